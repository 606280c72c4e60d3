"""Queues that are elsewhere, for those who speak no AMQP, and for the broker's own moves."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.broker.message_moves import COPY, MOVE, MessageMove
from penstock.broker.rules.rights import Rights
from penstock.broker.transfers.batches import PUBLISHED_AT_ONCE, UNDER_WAY_MAX
from penstock.cluster.mirrors.safety import SafeLine
from penstock.cluster.remote.queue_places import take_place
from penstock.core.errors import NoMaster, PreconditionFailed, QueueElsewhere
from penstock.core.message import Message
from penstock.protocols.amqp.loopback_client import LoopbackClient
from penstock.protocols.amqp.session import AmqpSession
from penstock.protocols.ranges.leases import RangeLeases
from penstock.queues.publish_notes import PublishNotes
from penstock.storage.definitions.range_readers import RangeReaders
from penstock_ranges import staging
from tests.helpers.node_pair import NodePair, PairedNsqBroker
from tests.helpers.range_pair import Answered, StagingEnd, bodies_in, publishes


@pytest.fixture
def pair() -> NodePair:
    return NodePair(PairedNsqBroker)


def pending(pair: NodePair, name: str) -> int:
    queue: Any = pair.here.broker.vhosts["/"].queues[name]
    return int(queue.backing.tiers.pending.count)


# -- batches ---------------------------------------------------------------------------------


def test_a_batch_is_committed_when_it_is_safe_there(pair: NodePair) -> None:
    pair.remote("q")
    end = StagingEnd(pair.here)
    staged = end.stage(1, "q", [b"a", b"b"])
    pair.slow = True
    end.ask_commit(1, [staged])
    assert end.silent()
    pair.slow = False
    pair.run()
    assert staging.decode_committed(end.expect(staging.COMMITTED)).outcome == staging.DONE
    assert bodies_in(pair.there, "q") == [b"a", b"b"]
    assert pair.here.broker.staging.totals()["messages"] == 0
    pair.check()


def test_what_was_published_and_not_answered_is_published_to_the_next_master(
    pair: NodePair,
) -> None:
    queue = pair.remote("q")
    end = StagingEnd(pair.here)
    staged = end.stage(1, "q", [b"a"])
    pair.slow = True
    end.ask_commit(1, [staged])
    pair.lose_link()
    assert end.silent()
    pair.slow = False
    pair.connect()
    queue.follow(pair.ends[0].queues.client)
    pair.run()
    assert staging.decode_committed(end.expect(staging.COMMITTED)).outcome == staging.DONE
    assert bodies_in(pair.there, "q") == [b"a"]


def test_a_direct_publish_of_a_program_waits_likewise(pair: NodePair) -> None:
    pair.remote("q")
    end = StagingEnd(pair.here)
    pair.slow = True
    end.send(staging.encode_publish(publishes("", "q", [b"a"]), False, 1000))
    assert end.silent()
    pair.slow = False
    pair.run()
    assert staging.decode_published(end.expect(staging.PUBLISHED)) == ("", 0)


class Noted(PublishNotes):
    """Of a master with a mirror that says nothing."""

    def __init__(self, line: SafeLine) -> None:
        self._line = line

    def note(self, messages: list[Message]) -> bool:
        self._line.wait_for(1)
        return True

    def is_alone(self) -> bool:
        return False


def test_a_program_sends_again_what_was_under_way_when_the_master_moved(pair: NodePair) -> None:
    """Here: nobody knows whether the next master has it, so nobody says that it is there."""
    pair.here.client().call("queue.declare", queue="q", durable=True)
    broker = pair.here.broker
    line = SafeLine(broker.waits)
    broker.vhosts["/"].queues["q"].mirrors = Noted(line)
    end = StagingEnd(pair.here)
    end.send(staging.encode_publish(publishes("", "q", [b"a"]), False, 1000))
    pair.tick()
    assert end.silent()
    line.begin()
    end.session.tick(pair.here.now_ms)
    pair.run()
    with pytest.raises(Answered, match="another master"):
        end.expect(staging.PUBLISHED)


# -- what is the broker's own, under way to a master that leaves -------------------------------


class Leaving:
    """``q`` is mirrored, has its master here, and its mirrors say nothing."""

    def __init__(self, pair: NodePair) -> None:
        self.pair = pair
        self.client = pair.here.client()
        self.client.call("queue.declare", queue="q", durable=True)
        broker = pair.here.broker
        self.line = SafeLine(broker.waits)
        self.queue = broker.vhosts["/"].queues["q"]
        self.queue.mirrors = Noted(self.line)

    def leave(self) -> None:
        """To a node that has heard nothing of what was under way."""
        pair = self.pair
        vhost = pair.there.broker.vhosts["/"]
        vhost.declare_queue("q", True, None, False, {})
        self.line.begin()
        self.queue.mirrors = None
        remote = pair.made_here("q", True, {})
        take_place(pair.here.broker, self.queue, remote, pair.here.now_ms)
        remote.follow(pair.ends[0].queues.client)
        pair.tick()
        pair.check()


def test_a_batch_goes_to_the_next_master(pair: NodePair) -> None:
    """In order, and before what was not published yet; it is not called published before."""
    leaving = Leaving(pair)
    end = StagingEnd(pair.here)
    bodies = [[b"%d" % (n + 700 * part) for n in range(700)] for part in range(2)]
    end.ask_commit(1, [end.stage(1, "q", part) for part in bodies])
    pair.tick()
    assert len(bodies_in(pair.here, "q")) == 1400
    pair.tick(60_000)
    end.session.tick(pair.here.now_ms)
    pair.run()
    told = staging.decode_committed(end.expect(staging.COMMITTED))
    assert told.outcome == staging.UNDER_WAY
    assert "other nodes have not said" in told.trouble
    end.ask_commit(1, [])
    leaving.leave()
    pair.run()
    told = staging.decode_committed(end.expect(staging.COMMITTED))
    assert (told.outcome, told.messages) == (staging.DUPLICATE, 1400)
    assert bodies_in(pair.there, "q") == bodies[0] + bodies[1]
    assert pair.here.broker.staging.totals()["messages"] == 0
    pair.check()


def test_so_many_of_a_batch_are_under_way_and_no_more(pair: NodePair) -> None:
    leaving = Leaving(pair)
    end = StagingEnd(pair.here)
    most = UNDER_WAY_MAX * PUBLISHED_AT_ONCE
    bodies = [b"%d" % n for n in range(most + 10)]
    end.ask_commit(1, [end.stage(1, "q", bodies)])
    pair.tick()
    assert len(bodies_in(pair.here, "q")) == most
    leaving.line.reach(1)
    pair.tick()
    assert len(bodies_in(pair.here, "q")) == most + 10
    assert end.silent()
    leaving.line.reach(1)
    pair.run()
    assert staging.decode_committed(end.expect(staging.COMMITTED)).messages == most + 10
    assert bodies_in(pair.here, "q") == bodies


def test_dead_letters_go_to_the_next_master(pair: NodePair) -> None:
    leaving = Leaving(pair)
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"}
    leaving.client.call("queue.declare", queue="source", durable=True, arguments=arguments)
    leaving.client.publish("", "source", b"late", expiration="10", delivery_mode=2)
    pair.tick()
    leaving.client.publish("", "source", b"refused", delivery_mode=2)
    leaving.client.consume("source")
    leaving.client.method(1, "basic.reject", delivery_tag=1, requeue=False)
    pair.tick()
    assert len(bodies_in(pair.here, "q")) == 2
    fates = pair.here.broker.dead_letters.fates
    assert (fates.expired, fates.rejected) == (1, 1)
    leaving.leave()
    assert bodies_in(pair.there, "q") == [b"late", b"refused"]
    assert pending(pair, "source") == 0
    assert (fates.expired, fates.rejected) == (1, 1), "they have died once"


def test_a_letter_whose_queue_is_gone_by_then_is_not_sent(pair: NodePair) -> None:
    leaving = Leaving(pair)
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"}
    leaving.client.call("queue.declare", queue="source", durable=True, arguments=arguments)
    leaving.client.publish("", "source", b"late", expiration="10", delivery_mode=2)
    pair.tick()
    leaving.client.call("queue.delete", queue="source")
    leaving.leave()
    assert bodies_in(pair.there, "q") == []


def test_delayed_messages_go_to_the_next_master(pair: NodePair) -> None:
    leaving = Leaving(pair)
    client = leaving.client
    client.call(
        "exchange.declare",
        exchange="late",
        type="x-delayed-message",
        durable=True,
        arguments={"x-delayed-type": "fanout"},
    )
    client.call("queue.bind", queue="q", exchange="late", routing_key="")
    client.publish("late", "", b"x", delivery_mode=2, headers={"x-delay": 500})
    pair.tick()
    assert bodies_in(pair.here, "q") == [b"x"]
    leaving.leave()
    assert bodies_in(pair.there, "q") == [b"x"]
    room = pair.here.broker.vhosts["/"].internal_queues.queues["amq.delayed.late"]
    backing: Any = room.backing
    assert (backing.tiers.pending.count, backing.ready_count()) == (0, 0)


def test_moved_messages_stay_where_they_were(pair: NodePair) -> None:
    """They may be at the next master, too: in two places, as after any doubt."""
    leaving = Leaving(pair)
    leaving.client.call("queue.declare", queue="source", durable=True)
    leaving.client.publish("", "source", b"one", delivery_mode=2)
    job = errand(pair, MOVE, "source", ("", "q"))
    assert job.step([0], pair.here.now_ms) == []
    pair.tick()
    assert bodies_in(pair.here, "source") == [b"one"]
    leaving.leave()
    assert bodies_in(pair.here, "source") == [b"one"]
    assert pending(pair, "source") == 0
    assert job.waits[0].lost


def test_moved_messages_leave_when_the_mirrors_have_them(pair: NodePair) -> None:
    leaving = Leaving(pair)
    leaving.client.call("queue.declare", queue="source", durable=True)
    leaving.client.publish("", "source", b"one", delivery_mode=2)
    errand(pair, MOVE, "source", ("", "q")).step([0], pair.here.now_ms)
    pair.tick()
    leaving.line.reach(1)
    pair.tick()
    assert bodies_in(pair.here, "source") == []
    assert bodies_in(pair.here, "q") == [b"one"]
    assert pending(pair, "source") == 0


# -- people ----------------------------------------------------------------------------------


def errand(pair: NodePair, action: str, queue: str, target: tuple[str, str]) -> MessageMove:
    broker = pair.here.broker
    rights = Rights(broker.users.users["guest"], "/")
    vhost = broker.vhosts["/"]
    return MessageMove(broker, rights, vhost, vhost.queue(queue), 0, action, target)


@pytest.mark.parametrize("action", [COPY, MOVE])
def test_chosen_messages_go_there(pair: NodePair, action: str) -> None:
    pair.remote("q")
    client = pair.here.client()
    client.call("queue.declare", queue="source", durable=True)
    client.publish("", "source", b"one", delivery_mode=2)
    pair.slow = True
    job = errand(pair, action, "source", ("", "q"))
    assert job.step([0], pair.here.now_ms) == []
    pair.run()
    assert job.counts["done"] == 1
    assert not all(wait.done for wait in job.waits)
    assert bodies_in(pair.here, "source") == [b"one"]
    pair.slow = False
    pair.run()
    assert all(wait.done for wait in job.waits)
    assert pending(pair, "source") == 0
    assert bodies_in(pair.there, "q") == [b"one"]
    assert bodies_in(pair.here, "source") == ([] if action == MOVE else [b"one"])


def test_what_finds_no_room_there_stays(pair: NodePair) -> None:
    pair.remote("q", **{"x-max-length": 0, "x-overflow": "reject-publish"})
    client = pair.here.client()
    client.call("queue.declare", queue="source", durable=True)
    client.publish("", "source", b"one", delivery_mode=2)
    errand(pair, MOVE, "source", ("", "q")).step([0], pair.here.now_ms)
    pair.run()
    assert pending(pair, "source") == 0
    assert bodies_in(pair.here, "source") == [b"one"]
    assert bodies_in(pair.there, "q") == []


def test_messages_are_chosen_at_the_masters_node(pair: NodePair) -> None:
    pair.remote("q")
    with pytest.raises(PreconditionFailed, match="on another node"):
        errand(pair, COPY, "q", ("", "other"))


def test_who_would_look_at_messages_is_told_where(pair: NodePair) -> None:
    queue = pair.remote("q")
    with pytest.raises(QueueElsewhere, match="ask 'there' to look at"):
        queue.backing.positions()
    queue.unfollow()
    with pytest.raises(NoMaster, match="no master at present"):
        queue.backing.positions()
    queue.give_up("home node 'there' of queue 'q' in vhost '/' is down or inaccessible")
    with pytest.raises(NoMaster, match="home node 'there'"):
        queue.backing.positions()


def test_a_lease_of_a_queue_whose_master_went_elsewhere_is_not_taken_up(pair: NodePair) -> None:
    """At a start, when the reader's token is still in the definitions."""
    broker = pair.here.broker
    queue = pair.remote("q")
    readers = RangeReaders(broker.definitions)
    readers.put_token("/", "q", queue.incarnation, 77)
    RangeLeases(60_000, broker.letting_go, broker.idleness).adopt(broker)
    assert not queue.is_leased


def test_an_http_publish_is_answered_when_it_is_safe_there(pair: NodePair) -> None:
    pair.remote("q")
    node = pair.here
    inner = AmqpSession(
        *(node.broker, node.limits, {}, node.new_name, node.turn.cancelled),
        *(node.reports.append, ("", True), node.now_ms, "guest"),
    )
    agent = LoopbackClient(inner, node.turn, "/", node.now_ms)
    pair.slow = True
    answer = agent.publish("", "q", {}, b"one", pair.here.now_ms)
    pair.run()
    assert not answer.done()
    pair.slow = False
    pair.run()
    assert answer.done()
    assert answer.result() is True


def test_a_delayed_message_goes_there_when_its_time_has_come(pair: NodePair) -> None:
    remote = pair.remote("q")
    client = pair.here.client()
    client.call(
        "exchange.declare",
        exchange="later",
        type="x-delayed-message",
        durable=True,
        arguments={"x-delayed-type": "direct"},
    )
    pair.here.broker.vhosts["/"].bind_queue(remote, "later", "k", {})
    client.publish("later", "k", b"one", headers={"x-delay": 5000}, delivery_mode=2)
    assert bodies_in(pair.there, "q") == []
    pair.tick(6000)
    assert bodies_in(pair.there, "q") == [b"one"]
    room: Any = pair.here.broker.vhosts["/"].exchanges["later"].internal_queue
    assert room.backing.tiers.pending.count == 0
