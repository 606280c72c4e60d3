"""One turn of the broker: what is written when, who is told when."""

from __future__ import annotations

import random
import socket
import time
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest

from penstock.clocks import mono_ms
from penstock.core.capacity import DiskLimit, MemoryLimit
from penstock.core.clock_types import MonoMs, WallMs
from penstock.queues.allocator import DELIVERIES_AT_ONCE
from penstock.runtime.cluster_part import ClusterPart
from penstock.runtime.connection import Connection
from penstock.runtime.listener import Listener, tcp_socket
from penstock.runtime.loop import TICK_MS, Loop
from penstock.storage.journal.codec import JournalGroup
from tests.helpers import raw_codec as codec
from tests.helpers.connection_pair import ClientEnd, HeldCommitter, QuietBroker


@pytest.fixture
def node() -> QuietBroker:
    return QuietBroker()


def confirms(client: ClientEnd) -> list[int]:
    return [fields["delivery_tag"] for name, fields in client.methods() if name == "basic.ack"]


def test_a_confirm_waits_for_the_sync(node: QuietBroker) -> None:
    client = node.client()
    client.call("queue.declare", queue="q", durable=True)
    client.call("confirm.select")
    node.committer.hold = True
    client.publish("", "q", delivery_mode=2)
    client.publish("", "q", delivery_mode=2)
    assert confirms(client) == []
    assert all(group.sync for group in node.committer.seen[-1:])
    node.committer.finish()  # the group with the first publish only
    node.run()
    assert confirms(client) == [1]
    node.committer.finish()
    node.run()
    assert confirms(client) == [2]
    node.check()


@pytest.mark.parametrize("deletion", ["queue.delete", "auto-delete", "expiry"])
def test_a_deletion_is_defined_before_its_messages_are_forgotten(
    node: QuietBroker, deletion: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash between the two would bring the queue back without its confirmed messages."""
    client = node.client()
    arguments = {"x-expires": 5000} if deletion == "expiry" else {}
    client.call(
        "queue.declare",
        queue="q",
        durable=True,
        auto_delete=deletion == "auto-delete",
        arguments=arguments,
    )
    client.call("confirm.select")
    client.publish("", "q", delivery_mode=2)
    client.consume("q", "c")
    defined: list[list[str]] = []
    submit = HeldCommitter.submit

    def judged(committer: HeldCommitter, group: JournalGroup) -> None:
        assert not node.definitions.dirty, "messages are forgotten first"
        defined.append([record.name for record in node.definitions.load().queues])
        submit(committer, group)

    monkeypatch.setattr(HeldCommitter, "submit", judged)
    if deletion == "queue.delete":
        client.method(1, "queue.delete", queue="q")
    else:
        client.call("basic.cancel", consumer_tag="c")
        node.tick(10_000)
    node.tick(1000)
    assert defined
    assert defined[-1] == []


def test_acks_are_written_though_nobody_waits(node: QuietBroker) -> None:
    """Without a sync, at once: a killed process loses only what no group holds."""
    client = node.client()
    client.call("queue.declare", queue="q", durable=True)
    client.call("confirm.select")
    client.publish("", "q", delivery_mode=2)
    client.consume("q")
    groups = len(node.committer.seen)
    client.method(1, "basic.ack", delivery_tag=1)
    assert len(node.committer.seen) == groups + 1
    assert not node.engine.pending_bytes()


def test_what_nobody_waits_for_is_synced_before_long(node: QuietBroker) -> None:
    client = node.client()
    client.call("queue.declare", queue="q", durable=True)
    node.tick(1000)
    client.publish("", "q", delivery_mode=2)
    node.tick(1000)
    assert node.engine.journal.durable_position == node.engine.journal.position


def test_a_session_that_died_waiting_is_not_told(node: QuietBroker) -> None:
    """Its group is still being synced when it goes; the next one must get its own confirms."""
    dying = node.client()
    dying.call("queue.declare", queue="q", durable=True)
    dying.call("confirm.select")
    node.committer.hold = True
    dying.publish("", "q", delivery_mode=2)
    dying.received = b""
    dying.drop()
    other = node.client()
    other.call("confirm.select")
    other.publish("", "q", delivery_mode=2)
    node.committer.hold = False
    node.committer.finish()
    node.run()
    assert confirms(other) == [1]
    assert dying.received == b""
    assert node.turn.waiting == []
    node.check()


def test_after_an_error_of_the_disk_nothing_is_confirmed(node: QuietBroker) -> None:
    client = node.client()
    client.call("queue.declare", queue="q", durable=True)
    client.call("confirm.select")
    client.publish("", "q", delivery_mode=2)
    assert confirms(client) == [1]
    node.files.fail("pwrite")
    client.publish("", "q", delivery_mode=2)
    client.publish("", "q", delivery_mode=2)
    node.tick(1000)
    assert confirms(client) == []
    assert isinstance(node.committer.error, OSError)


def test_whatever_the_committer_does_confirms_come_in_order_and_all_come(
    node: QuietBroker,
) -> None:
    rng = random.Random(4711)
    clients = [node.client() for _ in range(3)]
    clients[0].call("queue.declare", queue="lasting", durable=True)
    clients[0].call("queue.declare", queue="passing")
    told: dict[ClientEnd, list[int]] = {}
    for client in clients:
        client.call("confirm.select")
        told[client] = []
    published = dict.fromkeys(clients, 0)
    for _ in range(300):
        node.committer.hold = rng.random() < 0.6
        client = rng.choice(clients)
        queue = rng.choice(["lasting", "passing", "nowhere"])
        client.publish("", queue, delivery_mode=rng.choice([1, 2]), run=rng.random() < 0.7)
        published[client] += 1
        if rng.random() < 0.3:
            node.committer.finish()
            node.run()
        for peer in clients:
            told[peer] += confirms(peer)
    node.committer.hold = False
    node.committer.finish()
    node.tick(1000)
    for peer in clients:
        told[peer] += confirms(peer)
        assert told[peer] == sorted(set(told[peer]))
        assert told[peer][-1] == published[peer]
    node.check()


# -- lack of room -------------------------------------------------------------------------


def test_publishers_hear_that_the_disk_is_full_and_that_it_is_not(node: QuietBroker) -> None:
    client, silent = node.client(blocked=True), node.client(blocked=True)
    other = node.client()
    for publisher in (client, other):
        publisher.publish("", "nowhere", b"")
        publisher.received = b""
    silent.received = b""
    assert node.turn.blocked_reason() == ""
    node.worker.stalled = "no space left on device"
    assert node.turn.publishers_wait()
    assert node.turn.disk_stalled() == "no space left on device"
    node.run()
    node.run()
    assert client.methods() == [("connection.blocked", {"reason": "low on disk"})]
    assert other.methods() == silent.methods() == []
    assert (client.session.state_name, silent.session.state_name) == ("blocked", "blocking")
    silent.publish("", "nowhere", b"")
    assert silent.methods() == [("connection.blocked", {"reason": "low on disk"})]
    node.broker.admission.alarms.memory = True
    node.broker.admission.alarms.resident_bytes = 1 << 62
    client.session.look_at_gate()  # another reason is no other news
    node.flush()
    assert client.methods() == []
    node.broker.admission.alarms.resident_bytes = 0
    node.worker.stalled = ""
    assert not node.turn.publishers_wait()
    client.received = b""
    node.run()
    assert client.methods() == [("connection.unblocked", {})]
    assert other.methods() == []
    assert client.session.state_name == "running"


def test_a_committer_without_space_holds_publishers_too(node: QuietBroker) -> None:
    node.committer.stalled = "no space left on device"
    assert node.turn.publishers_wait()
    assert node.turn.blocked_reason() == "low on disk"


def test_under_the_disk_alarm_nothing_is_paged_to_it(node: QuietBroker) -> None:
    """Not into the last bytes; when there is room again, paging goes on."""
    alarms = node.broker.admission.alarms
    client = node.client()
    client.call("queue.declare", queue="q")
    for _ in range(400):
        client.publish("", "q", b"x" * 2000)
    alarms.set_disk_limit(DiskLimit(1000))
    alarms.look_at_disk(1, 10_000)
    alarms.set_memory_limit(MemoryLimit(0, 1_000_000))
    node.run()
    assert node.turn.blocked_reason() == "low on disk"
    client.publish("", "q", b"held")
    assert client.session.held_bytes > 0
    assert node.engine.ram.must_page()
    assert node.engine.paging.slices == 0
    alarms.look_at_disk(1050, 10_000)
    for _ in range(3):
        node.tick(1000)
    assert client.session.held_bytes == 0
    assert node.engine.paging.slices > 0
    assert not node.engine.ram.must_page()
    node.check()


def test_messages_that_fill_their_memory_hold_publishers(node: QuietBroker) -> None:
    client = node.client()
    client.call("queue.declare", queue="q")
    assert not node.turn.publishers_wait()
    node.broker.admission.alarms.set_memory_limit(MemoryLimit(0, 1000))
    client.publish("", "q", b"x" * 2000)
    assert node.turn.publishers_wait()
    assert node.turn.blocked_reason() == "low on memory"
    assert client.session.has_published
    client.call("queue.purge", queue="q")
    assert not node.turn.publishers_wait()


def test_definitions_leave_the_log_of_sqlite_when_none_was_made_for_a_while(
    tmp_path: Path,
) -> None:
    """D3 of the review: until then the log is all there is of them."""
    path = tmp_path / "definitions.db"
    node = QuietBroker(definitions=str(path))
    client = node.client()
    client.call("queue.declare", queue="q", durable=True)
    log = path.with_name("definitions.db-wal")
    assert log.stat().st_size > 0
    node.now_ms += 400
    node.run()
    assert log.stat().st_size > 0
    node.now_ms += 200
    node.run()
    assert log.stat().st_size == 0


def test_messages_of_a_queue_that_was_deleted_before_a_kill_stay_away(tmp_path: Path) -> None:
    """The definitions are committed, the group with the journal's record of it is not."""
    path = str(tmp_path / "definitions.db")
    node = QuietBroker(definitions=path)
    client = node.client()
    client.call("queue.declare", queue="q", durable=True)
    client.publish("", "q", delivery_mode=2)
    node.committer.hold = True
    client.publish("", "q", delivery_mode=2)
    client.call("queue.delete", queue="q")
    node.files.kill()
    node.definitions.close()
    again = QuietBroker(node.files, path)
    assert again.opening.queues == {}
    assert again.definitions.deleted_queues().starts == []


class Lease(ClusterPart):
    """A part whose right to act ends when a test says so."""

    def __init__(self, client: ClientEnd) -> None:
        self.client = client
        self.lapsed = False
        self.heard: list[int] = []  # how many bytes the session had to say at each look

    def begin(self, now_ms: int) -> None:
        pass

    def end(self, now_ms: int) -> None:
        pass

    def stood_still(self, now_ms: int) -> bool:
        lapsed, self.lapsed = self.lapsed, False
        if lapsed:
            self.heard.append(len(self.client.session.out))
        return lapsed

    def has_work(self) -> bool:
        return False


def test_after_a_pause_the_lease_is_looked_at_before_clients_are_heard(node: QuietBroker) -> None:
    part = Lease(node.client())
    node.turn.join(part)
    part.lapsed = True
    node.turn.begin(WallMs(node.now_ms), MonoMs(node.now_ms))
    assert part.heard == [0]
    assert not node.turn.stood_still(node.now_ms)
    node.turn.begin(WallMs(node.now_ms), MonoMs(node.now_ms))
    assert part.heard == [0], "once is enough"


@pytest.mark.parametrize("paused", [True, False])
def test_after_a_pause_within_a_turn_nothing_is_said(node: QuietBroker, *, paused: bool) -> None:
    """What that turn had for clients may come from a copy that another node has replaced."""
    part = Lease(node.client())
    node.turn.join(part)
    loop = Loop(node.turn, cast(Any, None))
    ours, theirs = socket.socketpair()
    connection = Connection(ours, ("127.0.0.1", 1), node.now_ms)
    loop.adopt(connection, part.client.session)
    part.client.session.out.write(b"stale")
    part.lapsed = paused
    loop.flush(node.now_ms)
    ours.close()
    assert theirs.recv(100) == (b"" if paused else b"stale")
    assert connection.gone == paused
    theirs.close()
    loop.close()


class Patience:
    """Makes no session; the first bytes may take ten seconds."""

    def is_overdue(self, connection: Connection, now_ms: int) -> bool:
        return now_ms - connection.opened_at_ms > 10_000

    def tick(self, now_ms: int) -> None:
        pass


@pytest.mark.parametrize("hours", [1, -1])
def test_a_clock_that_is_set_ends_no_connection(
    hours: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither one that has said nothing yet, nor one whose last words are not taken yet."""
    node = QuietBroker(mono_ms=mono_ms())
    loop = Loop(node.turn, cast(Any, Patience()))
    listener = Listener(tcp_socket("127.0.0.1", 0))
    loop.listen(listener)
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    last = node.client().session
    last.force_close("for a test")
    last.out.write(bytes(1 << 20))  # more than the socket takes
    with theirs, socket.create_connection(listener.sock.getsockname()), closing(loop):
        loop.adopt(Connection(ours, ("127.0.0.1", 1), mono_ms()), last)
        loop.run_once(0)
        assert len(loop.connections) == 2
        real_ns = time.time_ns
        monkeypatch.setattr(time, "time_ns", lambda: real_ns() + hours * 3_600_000_000_000)
        time.sleep((TICK_MS + 10) / 1000)
        loop.run_once(0)
        last.closed = True  # it is given up; the clock is set once more
        time.sleep((TICK_MS + 10) / 1000)
        loop.run_once(0)
        monkeypatch.undo()
        time.sleep((TICK_MS + 10) / 1000)
        loop.run_once(0)
        assert len(loop.connections) == 2
        loop.drop_all()


def test_what_expires_is_delivered_as_a_dead_letter_in_the_same_turn(node: QuietBroker) -> None:
    client = node.client()
    client.call("queue.declare", queue="letters")
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "letters"}
    client.call("queue.declare", queue="q", arguments={"x-message-ttl": 1000, **letters})
    client.publish("", "q", b"late")
    client.consume("letters")
    client.received = b""
    node.now_ms += 2000
    node.turn.begin(WallMs(node.now_ms), MonoMs(node.mono_ms))
    node.turn.run(node.now_ms, True)
    node.flush()
    assert client.bodies() == [b"late"]


def test_a_time_to_live_of_0_is_delivered_before_older_messages_expire(node: QuietBroker) -> None:
    """In a turn in which the queue is due as well."""
    client = node.client()
    client.call("queue.declare", queue="q")
    client.publish("", "q", b"old", expiration="1000")
    node.now_ms += 2000
    client.received = b""
    consume = codec.method_frame(
        1, "basic.consume", queue="q", consumer_tag="c", no_ack=True, nowait=True
    )
    client.send(consume, run=False)
    client.publish("", "q", b"now", expiration="0", run=False)
    node.turn.begin(WallMs(node.now_ms), MonoMs(node.mono_ms))
    node.turn.run(node.now_ms, False)
    node.flush()
    assert client.bodies() == [b"now"]


def test_in_a_crowd_of_queues_a_time_to_live_of_0_is_delivered_in_its_turn(
    node: QuietBroker,
) -> None:
    """The others have theirs in the next turns, in the order in which they asked."""
    client = node.client()
    vhost = node.broker.vhosts["/"]
    client.call("exchange.declare", exchange="last", type="fanout")
    crowd = 2 * int(DELIVERIES_AT_ONCE)  # a turn has two looks at them
    for number in range(crowd + 1):
        queue = vhost.declare_queue(f"q{number}", False, None, False, {})
        assert queue is not None
        vhost.bind_queue(queue, "amq.fanout" if number < crowd else "last", "", {})
    client.call("queue.declare", queue="brief", arguments={"x-message-ttl": 0})
    client.call("queue.bind", queue="brief", exchange="last", routing_key="")
    for name in ("q0", f"q{crowd}", "brief"):
        client.consume(name, tag=name, no_ack=True)
    client.received = b""
    client.publish("amq.fanout", "", b"x", run=False)
    client.publish("last", "", b"x", run=False)
    found: list[list[str]] = []
    for _ in range(3):
        node.turn.begin(WallMs(node.now_ms), MonoMs(node.mono_ms))
        node.turn.run(node.now_ms, False)
        node.flush()
        found.append([fields["consumer_tag"] for _, fields in client.methods()])
        client.received = b""
        node.now_ms += 1
    assert found == [["q0", "brief"], [f"q{crowd}"], []]
