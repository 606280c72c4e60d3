"""A running broker and its sockets: slow peers, vanished peers, many peers, and the end.

Each test is a trap some broker fell into.  What needs no socket is in test_session.py and
test_turn.py.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from penstock.runtime.descriptors import DESCRIPTORS_RESERVED
from tests.helpers import raw_codec as codec
from tests.helpers.broker_process import BrokerFailed, free_port
from tests.helpers.live_broker import LiveBroker
from tests.helpers.nsq_live import NsqLiveBroker
from tests.helpers.raw_amqp import HungUp, RawClient, connect

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveBroker]:
    arguments = ("--heartbeat-s", "1")
    with LiveBroker(tmp_path_factory.mktemp("loop") / "broker", arguments) as running:
        yield running


@pytest.fixture
def own(tmp_path: Path) -> Iterator[LiveBroker]:
    with LiveBroker(tmp_path / "broker") as running:
        yield running
        show_out()


_guests: list[RawClient] = []


def knock(broker: LiveBroker) -> RawClient:
    """Connected, nothing said; whoever is still there when the test ends is shown out."""
    _guests.append(connect(broker.url))
    return _guests[-1]


def enter(broker: LiveBroker) -> RawClient:
    """Logged in, channel 1 open."""
    client = knock(broker).open()
    client.open_channel(1)
    return client


def show_out() -> None:
    while _guests:
        _guests.pop().close_socket()


@pytest.fixture(autouse=True)
def _close_up() -> Iterator[None]:
    yield
    show_out()


def wait_for(what: Callable[[], bool], timeout_s: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not what():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def descriptors(broker: LiveBroker) -> int:
    return len(os.listdir(f"/proc/{broker.pid}/fd"))


def resident_kib(broker: LiveBroker) -> int:
    status = Path(f"/proc/{broker.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


def processor_s(broker: LiveBroker) -> float:
    fields = Path(f"/proc/{broker.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def publish_bytes(queue: str, body: bytes, count: int, mode: int = 1) -> bytes:
    one = codec.method_frame(1, "basic.publish", routing_key=queue)
    return (one + codec.content_frames(1, body, {"delivery_mode": mode})) * count


def ready_in(client: RawClient, queue: str) -> int:
    return int(client.call(1, "queue.declare", queue=queue, passive=True).args["messages"])


def answers(broker: LiveBroker) -> None:
    """The broker serves a newcomer, and soon."""
    client = enter(broker)
    began = time.monotonic()
    client.call(1, "queue.declare", exclusive=True)
    assert time.monotonic() - began < 2


# -- slow peers ------------------------------------------------------------------------------


def test_a_client_that_does_not_read_is_not_read_and_others_go_on(live: LiveBroker) -> None:
    """Its commands wait with it; and when it reads again, everything comes, in order."""
    slow = enter(live)
    slow.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
    before = resident_kib(live)
    # Each reply is larger than its question: a returned message of 100 kB.
    publish = codec.method_frame(1, "basic.publish", routing_key="nowhere", mandatory=True)
    question = publish + codec.content_frames(1, b"x" * 100_000, {})
    slow.sock.setblocking(False)
    sent = 0
    still = 0
    while still < 20:
        try:
            sent += slow.sock.send((question * 2)[sent % len(question) :][: 1 << 20])
            still = 0
        except BlockingIOError:
            still += 1
            time.sleep(0.02)
        assert sent < 200 << 20, "the broker reads a client that does not read"
    assert resident_kib(live) - before < 100 << 10
    answers(live)
    slow.sock.setblocking(True)
    slow.sock.settimeout(10)
    for _ in range(sent // len(question)):
        event = slow.receive_quietly()
        assert event.name == "basic.return"
        assert len(event.body) == 100_000


def test_a_consumer_that_pauses_gets_everything_afterwards(live: LiveBroker) -> None:
    """The queue went to rest when the way out was full; the drain must wake it."""
    publisher, taker = enter(live), enter(live)
    publisher.call(1, "queue.declare", queue="paused")
    taker.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
    taker.send(1, "basic.consume", queue="paused", no_ack=True, consumer_tag="t", nowait=True)
    count, body = 2000, b"y" * 8000
    publisher.sock.settimeout(20)
    publisher.sock.sendall(publish_bytes("paused", body, count))
    stuck = ready_in(publisher, "paused")
    assert stuck > 0, "nothing was held back: the test shows nothing"
    time.sleep(0.2)
    assert ready_in(publisher, "paused") == stuck, "the broker goes on filling its output"
    for number in range(count):
        event = taker.receive_quietly()
        assert event.args["delivery_tag"] == number + 1
        assert event.body == body
    assert ready_in(publisher, "paused") == 0
    publisher.call(1, "queue.delete", queue="paused")


def test_frames_dribble_in_octet_by_octet(live: LiveBroker) -> None:
    client = knock(live)
    for octet in codec.PROTOCOL_HEADER:
        client.sock.sendall(bytes([octet]))
    client.expect("connection.start")
    client.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    client.sock.close()
    client = enter(live)
    client.call(1, "queue.declare", queue="dribble", exclusive=True)
    for octet in publish_bytes("dribble", b"drop", 3):
        client.sock.sendall(bytes([octet]))
    wait_for(lambda: ready_in(client, "dribble") == 3)


# -- vanished peers --------------------------------------------------------------------------


def test_a_half_open_peer_is_dropped_by_its_heartbeat(live: LiveBroker) -> None:
    """The machine at the other end died without a word: no FIN, no reset, just silence."""
    gone, other = knock(live), enter(live)
    gone.open(heartbeat=1)
    gone.open_channel(1)
    other.call(1, "queue.declare", queue="half-open", auto_delete=True)
    other.send(1, "basic.consume", queue="half-open", consumer_tag="o", nowait=True)
    gone.call(1, "queue.declare", queue="its-own", exclusive=True)
    began = time.monotonic()
    assert other.call(1, "queue.declare", queue="its-own", passive=True).name == "channel.close"
    other.send(1, "channel.close-ok")
    other.open_channel(1)

    def its_own_is_gone() -> bool:
        event = other.call(1, "queue.declare", queue="its-own", passive=True)
        other.send(1, "channel.close-ok")
        other.open_channel(1)
        return event.args["code"] == 404

    wait_for(its_own_is_gone)
    assert 1.5 < time.monotonic() - began < 6


def test_heartbeats_come_without_being_asked(live: LiveBroker) -> None:
    client = knock(live)
    tune = client.login()
    assert tune.args["heartbeat"] == 1
    client.keep_heartbeats = True
    client.send(0, "connection.tune-ok", channel_max=10, frame_max=4096, heartbeat=1)
    client.send(0, "connection.open", virtual_host="/")
    client.expect("connection.open-ok")
    for _ in range(2):
        client.expect("heartbeat", timeout_s=2.5)
        client.send_frame(codec.HEARTBEAT, 0, b"")


def test_a_reset_in_the_middle_of_a_delivery_costs_nobody_else(live: LiveBroker) -> None:
    publisher = enter(live)
    publisher.call(1, "queue.declare", queue="reset")
    publisher.send_off_record(publish_bytes("reset", b"z" * 100_000, 100))
    for _ in range(5):
        victim = enter(live)
        victim.send(1, "basic.consume", queue="reset", consumer_tag="v")
        victim.receive_quietly()
        # Closing with unread input and no lingering sends a reset.
        victim.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        victim.close_socket()
    wait_for(lambda: ready_in(publisher, "reset") == 100)
    publisher.call(1, "queue.delete", queue="reset")


def test_confirms_go_to_nobody_when_the_number_of_their_descriptor_is_used_again(
    live: LiveBroker,
) -> None:
    """A publisher dies while its group is synced; the next connection gets its descriptor."""
    owner = enter(live)
    owner.call(1, "queue.declare", queue="lasting", durable=True)
    for _ in range(30):
        dying = enter(live)
        dying.call(1, "confirm.select")
        dying.send_off_record(publish_bytes("lasting", b"x" * 50_000, 40, mode=2))
        dying.close_socket()
        heir = enter(live)
        assert heir.call(1, "confirm.select").name == "confirm.select-ok"
        assert heir.receive_quietly(0.01).name == "silence", "somebody else's confirm"
        heir.close_socket()
    owner.call(1, "queue.delete", queue="lasting")


# -- many peers ------------------------------------------------------------------------------


def test_idle_connections_are_cheap(live: LiveBroker) -> None:
    answers(live)
    count = 300
    before = resident_kib(live)
    clients = [knock(live).open() for _ in range(count)]
    for client in clients:
        client.open_channel(1)
    each_kib = (resident_kib(live) - before) / count
    for client in clients:
        client.close_socket()
    assert each_kib < 30, f"an idle connection costs {each_kib:.0f} KiB"


def test_connections_that_come_and_go_leave_no_descriptor_and_no_memory(live: LiveBroker) -> None:
    def churn(count: int) -> None:
        for number in range(count):
            if number % 10 == 0:  # a whole session, ended in three ways
                client = enter(live)
                client.call(1, "queue.declare", queue=f"churn{number}", exclusive=True)
                client.send(1, "basic.consume", queue=f"churn{number}", nowait=True)
                if number % 20:
                    client.call(0, "connection.close", code=200)
            else:
                client = knock(live)
                client.send_off_record(codec.PROTOCOL_HEADER[: number % 9])
            client.close_socket()

    def settled() -> bool:
        return descriptors(live) <= baseline

    baseline = descriptors(live)
    churn(4000)  # the collector finds what is left of a session after some thousands
    wait_for(settled)
    before = resident_kib(live)
    churn(2000)
    wait_for(settled)
    assert resident_kib(live) - before < 2000
    watcher = enter(live)
    event = watcher.call(1, "queue.declare", queue="churn0", passive=True)
    assert event.args["code"] == 404


def test_without_descriptors_left_those_who_are_in_are_served(tmp_path: Path) -> None:
    """And the broker neither dies nor burns the processor; with room again, others get in."""
    with LiveBroker(tmp_path / "broker") as broker:
        inside = enter(broker)
        limit = descriptors(broker) + 20
        subprocess.run(
            ["prlimit", "--pid", str(broker.pid), f"--nofile={limit}:{limit}"], check=True
        )
        crowd = [knock(broker) for _ in range(60)]
        assert inside.call(1, "queue.declare", queue="q").name == "queue.declare-ok"
        before = processor_s(broker)
        time.sleep(1.0)
        burnt_s = processor_s(broker) - before
        assert inside.call(1, "queue.delete", queue="q").name == "queue.delete-ok"
        for client in crowd:
            client.close_socket()
        wait_for(lambda: can_enter(broker))
        show_out()
    assert burnt_s < 0.3, f"{burnt_s:.1f} s of processor in a second of waiting"


class Narrow(LiveBroker):
    """May open so many files and sockets."""

    open_files = 160

    def command(self) -> list[str]:
        return ["prlimit", f"--nofile={self.open_files}:{self.open_files}", *super().command()]


def test_the_last_descriptors_are_the_engines_whoever_has_the_others(tmp_path: Path) -> None:
    with Narrow(tmp_path / "broker") as broker, ExitStack() as held:
        for _ in range(20):
            browser = socket.create_connection(("127.0.0.1", broker.http_port), 5)
            held.enter_context(browser)
            browser.sendall(b"GET /healthz/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert browser.recv(100).startswith(b"HTTP/1.1 200")
        inside = enter(broker)
        crowd = []
        with suppress(HungUp, OSError):
            while True:
                crowd.append(enter(broker))
        assert len(crowd) > 5
        assert inside.call(1, "queue.declare", queue="q", durable=True).name == "queue.declare-ok"
        numbers = [int(name) for name in os.listdir(f"/proc/{broker.pid}/fd")]
        for client in crowd:
            client.close_socket()
        wait_for(lambda: can_enter(broker))
        show_out()
        said = broker.output()
    # Among them may be some of the engine's own, that came last.
    assert max(numbers) < Narrow.open_files - DESCRIPTORS_RESERVED + 8
    assert said.count("a connection is refused: few of 160 descriptors are left") == 1


def test_a_client_that_says_nothing_leaves_a_line(tmp_path: Path) -> None:
    """It is closed before the first bytes tell its protocol (B13)."""
    with (
        NsqLiveBroker(tmp_path / "broker", handshake_timeout_ms=300) as broker,
        socket.create_connection(("127.0.0.1", broker.amqp_port)) as amqp,
        socket.create_connection(("127.0.0.1", broker.tcp_port)) as nsq,
    ):
        nsq.sendall(b"  V")
        assert amqp.recv(1) == nsq.recv(1) == b""
        for kind, one in (("AMQP", amqp), ("NSQ", nsq)):
            name = f"127.0.0.1:{one.getsockname()[1]} -> 127.0.0.1:{one.getpeername()[1]}"
            line = f"closing {kind} connection ({name}) before it is open: handshake timeout"
            wait_for(lambda line=line: line in broker.output())


def test_strangers_do_not_keep_out_clients_that_log_in(tmp_path: Path) -> None:
    """One address has its share; NSQ clients that must log in and do not are sent away."""
    port = free_port()
    arguments = ("--nsq-auth-required", "true", "--handshake-timeout-ms", "3000")
    with (
        Narrow(tmp_path / "broker", (*arguments, "--nsq-port", str(port))) as broker,
        ExitStack() as held,
    ):
        for _ in range(40):
            stranger = held.enter_context(socket.create_connection(("127.0.0.1", port), 5))
            with suppress(OSError):
                stranger.sendall(b"  V2NOP\n")
        wait_for(lambda: "of 127.0.0.1, 24 of all, have not logged in" in broker.output())
        assert not can_enter(broker)
        ours = held.enter_context(
            socket.create_connection(("127.0.0.1", broker.amqp_port), 5, ("127.0.0.2", 0))
        )
        ours.sendall(codec.PROTOCOL_HEADER)
        assert ours.recv(100)[:1] == b"\x01", "another address gets in"
        wait_for(lambda: can_enter(broker))
        show_out()


def can_enter(broker: LiveBroker) -> bool:
    client = knock(broker)
    client.send_off_record(codec.PROTOCOL_HEADER)
    event = client.receive_quietly(0.5)
    return event.name == "connection.start"


# -- the end ---------------------------------------------------------------------------------


def test_sigterm_tells_every_client_and_leaves_with_0(own: LiveBroker) -> None:
    clients = [enter(own) for _ in range(3)]
    polite = clients[0]
    knock(own)  # and one that has not said anything yet
    polite.call(1, "queue.declare", queue="q", durable=True)
    process = own.process
    assert process is not None
    process.send_signal(signal.SIGTERM)
    for client in clients:
        event = client.expect("connection.close")
        assert (event.args["code"], event.args["text"]) == (
            320,
            "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'",
        )
    polite.send(0, "connection.close-ok")
    assert polite.until_closed()[-1].name == "closed"
    # The others never answer; they are not waited for long.
    assert process.wait(10) == 0
    own.process = None
    show_out()
    own.start()
    again = enter(own)
    assert again.call(1, "queue.declare", queue="q", passive=True).name == "queue.declare-ok"


def test_a_second_sigterm_does_not_spoil_the_first(own: LiveBroker) -> None:
    client = enter(own)
    process = own.process
    assert process is not None
    for _ in range(3):
        process.send_signal(signal.SIGTERM)
    client.expect("connection.close")
    client.send(0, "connection.close-ok")
    assert process.wait(10) == 0
    own.process = None
    own.start()


def test_a_data_directory_belongs_to_one_process(own: LiveBroker) -> None:
    second = LiveBroker(own.directory.parent / "second", ("--data-dir", str(own.data_dir)))
    with pytest.raises(BrokerFailed):
        second.start()
    assert f"{own.data_dir} is in use by process {own.pid}" in second.output()
    answers(own)


def test_a_peer_that_floods_after_its_end_does_not_hold_the_loop(live: LiveBroker) -> None:
    """After an error its bytes are thrown away; that must not become the broker's only work."""
    flood = enter(live)
    flood.send_frame(9, 0, b"no such frame")
    flood.expect("connection.close")
    flood.sock.setblocking(False)
    junk = b"\x00" * (1 << 20)
    deadline = time.monotonic() + 1.0
    while time.monotonic() < deadline:
        try:
            flood.sock.send(junk)
        except BlockingIOError:
            time.sleep(0.001)
        except OSError:
            break
        if deadline - time.monotonic() < 0.5:
            answers(live)
