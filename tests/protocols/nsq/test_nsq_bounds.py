"""What an NSQ client can make this node keep, and what becomes of one that has ended."""

from __future__ import annotations

import select
import socket
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest

from penstock.broker.rules.log_ins import DELAY_MS, FREE_MAX
from penstock.broker.topology.topics import is_name
from penstock.core.steps import STEPS_MAX, steps
from penstock.protocols.nsq.codec.commands import Command, FinishRun, NsqFault, PublishRun
from penstock.protocols.nsq.codec.contents import body as body_in
from penstock.protocols.nsq.codec.ids import IdFactory
from penstock.protocols.nsq.codec.reader import WORK_MAX, NsqReader, ReaderLimits
from penstock.protocols.nsq.layer_stack import Layers, LayerStack
from penstock.protocols.nsq.publishing import HELD_MESSAGE_BYTES
from penstock.protocols.nsq.session import NsqSession
from penstock.runtime.connection import Connection, SessionFactory
from penstock.runtime.loop import TICK_MS, Loop
from tests.helpers.nsq_pair import PEER, NsqBroker
from tests.helpers.raw_nsq import MAGIC, auth, fin, identify, mpub, pub

NOW_MS = 1_763_000_000_000


@pytest.fixture
def node() -> NsqBroker:
    return NsqBroker()


@pytest.fixture
def reader() -> NsqReader:
    return NsqReader(ReaderLimits(1 << 20, 5 << 20, 3_600_000), IdFactory(1), is_name)


def test_who_goes_on_before_its_layer_is_up_is_refused(node: NsqBroker) -> None:
    client = node.nsq_client()
    node.broker.admission.vhost_reasons["/"] = "over budget"
    node.run()
    client.send(pub("t", b"m") + identify(feature_negotiation=True, deflate=True))
    for _ in range(40):
        client.send(b"x" * 4096)
    assert len(client.session._line.take_rest()) <= 64 * 1024
    node.broker.admission.vhost_reasons.clear()
    node.run()
    assert client.heard()[2:] == [b"E_INVALID more than 65536 bytes before a layer was up"]
    assert client.lost
    assert node.layers.put == []


# -- many commands at a time ---------------------------------------------------------------------


def test_nothing_is_made_of_what_follows_no_command(reader: NsqReader) -> None:
    assert len(reader.receive(b"\n" * 100_000, 1)) == 1


def test_commands_are_made_some_thousand_at_a_time(reader: NsqReader) -> None:
    data = b"NOP\n" * (5 * WORK_MAX)
    counts = [len(reader.receive(data, 1))]
    while reader.paused:
        counts.append(len(reader.receive(b"", 1)))
    assert counts == [WORK_MAX] * 5 + [0]
    assert reader.receive(b"NOP\n", 1)


def test_runs_are_one_command(reader: NsqReader) -> None:
    commands = reader.receive(fin(b"0123456789abcdef") * 900 + pub("t", b"m") * 900, 1)
    assert len(commands) == 2


def work_of(command: Command) -> int:
    if isinstance(command, PublishRun):
        return len(command.messages)
    return len(command.keys) if isinstance(command, FinishRun) else 1


def test_runs_end_where_the_work_of_a_turn_does(reader: NsqReader) -> None:
    bodies = [b"%d" % number for number in range(12_000)]
    data = fin(b"0123456789abcdef") * 12_000 + b"".join(pub("t", body) for body in bodies)
    commands = reader.receive(data + mpub("t", bodies) + pub("u", b"m"), NOW_MS)
    counts = []
    while reader.paused:
        found = reader.receive(b"", NOW_MS)
        counts.append(sum(work_of(command) for command in found))
        commands += found
    assert max(counts) <= WORK_MAX
    runs = [command for command in commands if isinstance(command, PublishRun)]
    assert [body_in(message.content) for run in runs for message in run.messages] == [
        *bodies * 2,
        b"m",
    ]
    assert [run.answers for run in runs if run.verb == "MPUB"][-3:] == [0, 0, 1]
    assert sum(run.answers for run in runs) == 12_000 + 1 + 1


def test_nothing_of_an_mpub_is_published_that_is_wrong_at_its_end(reader: NsqReader) -> None:
    data = mpub("t", [b"m"] * 12_000)
    (fault,) = reader.receive(data[:-5] + b"\x00\x00\x00\x09m", 1)
    assert isinstance(fault, NsqFault)
    assert fault.code == "E_BAD_MESSAGE"


def test_a_session_reads_all_of_a_burst(node: NsqBroker) -> None:
    client = node.nsq_client()
    assert client.ask(b"NOP\n" * 25_000 + pub("t", b"m")) == [b"OK"]


def test_a_turn_does_so_much_of_a_burst_and_the_others_the_rest(node: NsqBroker) -> None:
    client = node.nsq_client()
    bursts = iter([b"NOP\n" * 16_384] * 40 + [pub("t", b"m")])
    client.session.layers.draw_from(lambda: next(bursts, b""))
    client.send(b"NOP\n" * 16_384, run=False)
    assert client.session.has_more
    assert client.session.hung_up(node.now_ms), "what it had sent comes first"
    turns = 0
    while client.session.has_more:
        turns += 1
        client.session.go_on(node.now_ms)
    assert turns >= 41 * 16_384 // (2 * WORK_MAX)
    node.turn.fed(client.session)
    node.run()
    assert client.heard() == [b"OK"]


def test_a_layer_that_fails_ends_the_connection(node: NsqBroker) -> None:
    def fail() -> bytes:
        raise ConnectionAbortedError

    client = node.nsq_client()
    client.session.layers.draw_from(fail)
    client.send(b"NOP\n")
    assert client.lost


# -- what is held --------------------------------------------------------------------------------


def test_answers_that_wait_count_as_held(node: NsqBroker) -> None:
    client, flow = node.nsq_client(), node.broker.flow
    node.broker.admission.vhost_reasons["/"] = "over budget"
    node.run()
    client.send(pub("t", b"m"))
    before = client.session.held_bytes
    client.send(identify(feature_negotiation=True) * 100)
    assert client.session.held_bytes - before > 100 * 250
    assert flow.held_bytes == client.session.held_bytes
    client.send(identify(feature_negotiation=True) * 5000)
    assert not flow.may_read_on(client.session.held_bytes)
    node.broker.admission.vhost_reasons.clear()
    node.run()
    assert len(client.heard()) == 5101
    assert flow.held_bytes == client.session.held_bytes == 0


def test_who_leaves_holds_nothing(node: NsqBroker) -> None:
    client = node.nsq_client()
    node.broker.admission.vhost_reasons["/"] = "over budget"
    node.run()
    client.send(pub("t", b"m") + identify(feature_negotiation=True))
    client.drop()
    assert node.broker.flow.held_bytes == 0


def test_small_messages_are_held_for_what_they_take(node: NsqBroker) -> None:
    client = node.nsq_client()
    node.broker.admission.vhost_reasons["/"] = "over budget"
    node.run()
    client.send(mpub("t", [b"m"] * 1000))
    assert client.session.held_bytes == 1000 * (1 + HELD_MESSAGE_BYTES)


# -- endings -------------------------------------------------------------------------------------


@pytest.mark.parametrize("hangs_up", [False, True])
def test_who_has_ended_gets_no_more_messages(node: NsqBroker, hangs_up: bool) -> None:
    producer, consumer = node.nsq_client(), node.nsq_client()
    producer.send(pub("t", b"before"))
    consumer.subscribe("t", "c", ready=10)
    node.committer.hold = True
    consumer.send(pub("u", b"m"))
    if hangs_up:
        assert consumer.session.hung_up(node.now_ms)
    else:
        consumer.send(b"WHAT\n")
    assert not consumer.lost
    consumer.received = b""
    producer.send(pub("t", b"after"))
    assert consumer.messages() == []
    node.committer.finish()
    node.run()
    assert consumer.lost
    node.check()


def test_who_lost_its_channel_is_not_heard_any_more(node: NsqBroker) -> None:
    client = node.nsq_client()
    client.subscribe("t", "c")
    topics = node.broker.vhosts["/"].topics
    node.turn.cancelled(topics.delete(topics.topics["t"]))
    client.session.receive(pub("t", b"m") + b"WHAT\n", node.now_ms)
    assert not topics.topics
    node.run()
    assert client.lost
    assert client.heard() == []


def test_nor_what_it_had_postponed(node: NsqBroker) -> None:
    client = node.nsq_client()
    client.subscribe("t", "c")
    client.send(b"".join(pub(f"t{number}", b"m") for number in range(75)), run=False)
    assert client.session.waiting_head
    topics = node.broker.vhosts["/"].topics
    node.turn.cancelled(topics.delete(topics.topics["t"]))
    client.session.go_on(node.now_ms)
    assert not client.session.waiting_head
    assert len(topics.topics) == 50


# -- layers that cannot be made ------------------------------------------------------------------


class BrokenLayers(Layers):
    def over(self, kind: str, sock: object, rest: bytes, stack: LayerStack) -> object:
        raise RuntimeError("no such layer")


def test_a_layer_that_cannot_be_made_costs_one_connection(node: NsqBroker) -> None:
    node.nsq.layers = BrokenLayers()
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    connection = Connection(ours, PEER, node.now_ms)
    session = NsqSession(node.nsq, PEER, True, node.now_ms)
    connection.session = session
    session.carrier = connection
    loop = Loop(node.turn, cast(SessionFactory, None))
    loop._tick_at_ms = time.time_ns() // 1_000_000 + TICK_MS  # no tick in between
    loop.connections[connection.fd] = connection
    loop._epoll.register(connection.fd, select.EPOLLIN)
    with theirs, closing(loop):
        theirs.sendall(MAGIC + identify(feature_negotiation=True, deflate=True))
        loop.run_once(0)
        assert connection.gone
    assert not node.nsq.sessions


def test_snappy_is_not_offered_where_it_cannot_be_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cramjam.py").write_text("raise ImportError('of another machine')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "cramjam", raising=False)
    assert not NsqBroker().nsq.identify_limits.offers_snappy


# -- what clients say of themselves, and who they are --------------------------------------------


def test_half_a_pair_of_surrogates_is_replaced_as_in_go(node: NsqBroker) -> None:
    client = node.nsq_client()
    body = rb'{"client_id":"a\ud800b","hostname":"\udc00","user_agent":"\ud83d\ude00"}'
    assert client.ask(b"IDENTIFY\n" + len(body).to_bytes(4, "big") + body) == [b"OK"]
    identity = client.session.identity
    assert (identity.client_id, identity.hostname) == ("a\ufffdb", "\ufffd")
    assert identity.user_agent == "\U0001f600"


def test_refused_logins_are_answered_late_when_there_are_many() -> None:
    node = NsqBroker("nsq_auth_required = true")
    for number in range(FREE_MAX + 3):
        client = node.nsq_client()
        assert client.ask(auth("guest:wrong")) == [b"E_AUTH_FAILED AUTH failed"]
        late_ms = DELAY_MS if number >= FREE_MAX else 0
        assert client.session.mute_until_ms == node.mono_ms + late_ms


@pytest.mark.parametrize("way", ["MPUB", "PUB", "PUB in turn"])
def test_publishes_to_topics_with_many_channels_are_copied_in_shares(way: str) -> None:
    node = NsqBroker()
    topics, each = (2, 20) if way == "PUB in turn" else (1, 40)
    for topic in range(topics):
        for number in range(each):
            watcher = node.nsq_client()
            watcher.send(b"SUB t%d c%d\n" % (topic, number))
            watcher.drop()
    end = node.nsq_client()
    bodies = [b"%d" % number for number in range(2000 * topics)]
    if way == "MPUB":
        said = mpub("t0", bodies)
    else:
        said = b"".join(pub(f"t{place % topics}", body) for place, body in enumerate(bodies))
    before = steps.taken
    end.session.receive(said, node.now_ms)
    assert steps.taken - before < 2 * STEPS_MAX
    node.turn.fed(end.session)
    node.turn.run(node.now_ms, True)
    assert steps.taken - before < 4 * STEPS_MAX
    topic = node.broker.vhosts["/"].topics.topics["t0"]
    depths = [channel.queue.backing.ready_count() for channel in topic.channels.values()]
    assert max(depths) < 2000, "not all in one turn"
    node.run()
    depths = [channel.queue.backing.ready_count() for channel in topic.channels.values()]
    assert depths == [2000] * each
    reader = node.nsq_client()
    reader.send(b"SUB t0 c7\nRDY 2500\n")
    assert [message.body for message in reader.messages()] == bodies[::topics]
    node.check()
