"""Staged sets and commits as a program meets them: what is published, and what it is told."""

from __future__ import annotations

from typing import Any

import pytest

from penstock_ranges import frames as rf
from penstock_ranges import staging
from tests.helpers import raw_codec as codec
from tests.helpers.connection_pair import QuietBroker
from tests.helpers.range_pair import (
    Answered,
    StagingEnd,
    add_user,
    bodies_in,
    check,
    declare,
    numbers,
    publishes,
)


@pytest.fixture
def node() -> QuietBroker:
    node = QuietBroker()
    declare(node, "q")
    return node


# -- the walk ----------------------------------------------------------------------------------


def test_what_is_staged_is_seen_when_it_is_committed(node: QuietBroker) -> None:
    end = StagingEnd(node)
    first = end.stage(0, "q", numbers(0, 5))
    second = end.stage(0, "q", numbers(5, 9))
    assert bodies_in(node, "q") == []
    assert node.broker.staging.totals()["messages"] == 9
    done = end.commit(0, [first, second])
    assert done == staging.Committed(staging.DONE, 9, 0, "")
    assert bodies_in(node, "q") == numbers(0, 9)
    assert node.broker.staging.totals() == {
        "sets": 0,
        "sets_being_published": 0,
        "messages": 0,
        "bytes": 0,
    }
    assert end.last() == 0
    check(node)


def test_sets_come_in_the_order_of_the_commit(node: QuietBroker) -> None:
    end = StagingEnd(node)
    late = end.stage(0, "q", [b"second"])
    early = end.stage(0, "q", [b"first"])
    end.commit(0, [early, late])
    assert bodies_in(node, "q") == [b"first", b"second"]


def test_a_batch_counts_once(node: QuietBroker) -> None:
    end = StagingEnd(node)
    end.commit(3, [end.stage(3, "q", [b"a"])])
    assert end.begin(3) == ""  # nothing to stage
    assert end.begin(2) == ""
    assert end.commit(3, []).outcome == staging.DUPLICATE
    assert bodies_in(node, "q") == [b"a"]
    end.commit(4, [end.stage(4, "q", [b"b"])])
    assert bodies_in(node, "q") == [b"a", b"b"]


def test_sets_of_a_duplicate_are_dropped(node: QuietBroker) -> None:
    end, twin = StagingEnd(node), StagingEnd(node)
    first = end.stage(0, "q", [b"a"])
    again = twin.stage(0, "q", [b"a"])
    end.commit(0, [first])
    assert node.broker.staging.totals()["sets"] == 0  # dropped with the commit
    assert twin.commit(0, [again]).outcome == staging.DUPLICATE
    assert bodies_in(node, "q") == [b"a"]
    check(node)


def test_a_set_in_the_making_is_told_that_its_batch_was_committed(node: QuietBroker) -> None:
    end, slow = StagingEnd(node), StagingEnd(node)
    slow.begin(0)
    end.commit(0, [end.stage(0, "q", [b"a"])])
    with pytest.raises(Answered, match="takes nothing more"):
        slow.block(publishes("", "q", [b"late"]))
    assert bodies_in(node, "q") == [b"a"]
    check(node)


def test_abort_drops_what_is_not_decided(node: QuietBroker) -> None:
    end = StagingEnd(node)
    assert end.abort([end.stage(0, "q", [b"a"]), "nobody's"]) == 1
    node.committer.hold = False
    name = end.stage(0, "q", [b"b"])
    end.commit(0, [name])
    assert end.abort([name]) == 0
    assert bodies_in(node, "q") == [b"b"]
    assert end.last() == 0


def test_the_end_of_a_set_is_said_when_it_is_on_disk(node: QuietBroker) -> None:
    end = StagingEnd(node)
    end.begin(0)
    node.committer.hold = True
    end.block(publishes("", "q", [b"a"]))
    end.send(staging.encode_end(1))
    assert end.silent()
    node.committer.finish()
    node.run()
    node.committer.finish()
    node.run()
    assert staging.decode_ended(end.expect(staging.STAGE_ENDED)) > 0


def test_a_commit_is_said_when_all_of_it_is_on_disk(node: QuietBroker) -> None:
    end = StagingEnd(node)
    name = end.stage(0, "q", numbers(0, 2000))
    node.committer.hold = True
    end.ask_commit(0, [name])
    assert end.silent()
    for _ in range(20):
        node.committer.finish()
        node.run()
    assert staging.decode_committed(end.expect(staging.COMMITTED)).messages == 2000
    assert node.engine.journal.durable_position > 0


def test_a_message_may_be_larger_than_a_block(node: QuietBroker) -> None:
    end = StagingEnd(node)
    end.begin(0)
    body = bytes(range(256)) * 2000
    data = codec.method_frame(1, "basic.publish", exchange="", routing_key="q")
    data += codec.content_frames(1, body, {"delivery_mode": 2})
    for at in range(0, len(data), 100_000):
        assert end.block(data[at : at + 100_000]) == ""
    name = node.broker.staging.sets[next(iter(node.broker.staging.sets))].name
    end.end(1)
    end.commit(0, [name])
    assert bodies_in(node, "q") == [body]


def test_half_a_message_is_no_end(node: QuietBroker) -> None:
    end = StagingEnd(node)
    end.begin(0)
    end.block(publishes("", "q", [b"abc"])[:-3])
    with pytest.raises(Answered, match="0 whole ones have come"):
        end.end(1)


def test_an_empty_batch_counts(node: QuietBroker) -> None:
    end = StagingEnd(node)
    assert end.commit(0, []) == staging.Committed(staging.DONE, 0, 0, "")
    assert end.commit(0, []).outcome == staging.DUPLICATE
    assert end.commit(1, [end.stage(1, "q", [])]).outcome == staging.DONE


# -- runs and owners ---------------------------------------------------------------------------


def test_an_older_run_is_fenced(node: QuietBroker) -> None:
    zombie, heir = StagingEnd(node), StagingEnd(node)
    old = zombie.stage(0, "q", [b"old"])
    new = heir.stage(0, "q", [b"new"], run="r2")
    with pytest.raises(Answered, match="was started again elsewhere") as told:
        zombie.commit(0, [old])
    assert told.value.code == rf.FENCED
    assert heir.commit(0, [new], run="r2").outcome == staging.DONE
    assert bodies_in(node, "q") == [b"new"]
    check(node)


def test_producers_do_not_know_each_other(node: QuietBroker) -> None:
    end = StagingEnd(node)
    end.commit(7, [end.stage(7, "q", [b"a"])])
    assert end.last("other") == -1
    end.commit(0, [end.stage(0, "q", [b"b"], producer="other")], producer="other")
    assert bodies_in(node, "q") == [b"a", b"b"]


def test_others_cannot_touch_what_is_mine(node: QuietBroker) -> None:
    add_user(node, "eve")
    mine, eve = StagingEnd(node), StagingEnd(node, "eve")
    name = mine.stage(0, "q", [b"a"])
    assert eve.abort([name]) == 0
    for producer in ("eves", "p"):
        eve = StagingEnd(node, "eve")
        with pytest.raises(Answered, match="another producer, batch or user"):
            eve.commit(0, [name], producer=producer)
    assert mine.commit(0, [name]).outcome == staging.DONE
    check(node)


def test_a_name_of_a_producer_is_each_users_own(node: QuietBroker) -> None:
    """Another user's producer of this name is neither told of, fenced, nor in the way."""
    add_user(node, "eve")
    mine, eve = StagingEnd(node), StagingEnd(node, "eve")
    eve.commit(9, [eve.stage(9, "q", [b"e"], run="later")], run="later")
    mine.commit(7, [mine.stage(7, "q", [b"a"])])
    assert (mine.last(), eve.last()) == (7, 9)
    assert StagingEnd(node, "eve").begin(8, run="later") == ""
    assert mine.begin(8) != ""
    check(node)


def test_rights_are_those_of_publishing(node: QuietBroker) -> None:
    add_user(node, "ann", write="^orders$")
    ann = StagingEnd(node, "ann")
    ann.begin(0)
    with pytest.raises(Answered, match=r"access to exchange 'amq.default'.*refused") as told:
        ann.block(publishes("", "q", [b"a"]))
    assert told.value.code == rf.ACCESS_REFUSED
    ann = StagingEnd(node, "ann")
    ann.send(staging.encode_target("", "q"))
    with pytest.raises(Answered, match="refused for user 'ann'"):
        ann.expect(staging.TARGETED)
    check(node)


def test_rights_are_asked_again_at_the_commit(node: QuietBroker) -> None:
    add_user(node, "ann")
    ann = StagingEnd(node, "ann")
    name = ann.stage(0, "q", [b"a"])
    node.broker.users.users["ann"].vhosts["/"] = ("", "^$", "")
    node.broker.vhosts["/"].epoch += 1
    with pytest.raises(Answered, match="refused for user 'ann'"):
        ann.commit(0, [name])
    assert bodies_in(node, "q") == []


def test_nobody_speaks_for_another_user(node: QuietBroker) -> None:
    end = StagingEnd(node)
    end.begin(0)
    with pytest.raises(Answered, match="user_id property set to 'root'"):
        end.block(publishes("", "q", [b"a"], user_id="root"))


# -- where messages go ---------------------------------------------------------------------------


def test_a_missing_exchange_is_refused_at_the_door(node: QuietBroker) -> None:
    end = StagingEnd(node)
    end.begin(0)
    with pytest.raises(Answered, match="no exchange 'nowhere' in vhost '/'") as told:
        end.block(publishes("nowhere", "q", [b"a"]))
    assert told.value.code == rf.NOT_FOUND
    assert node.broker.staging.sets == {}


def test_unroutable_messages_fail_before_anything_is_published(node: QuietBroker) -> None:
    end = StagingEnd(node)
    end.begin(0, must_route=True)
    with pytest.raises(Answered, match="reach no queue: bind one"):
        end.block(publishes("amq.topic", "a.b", [b"a"]))


def test_unroutable_messages_are_found_at_the_commit_too(node: QuietBroker) -> None:
    end = StagingEnd(node)
    client = node.client()
    client.call("queue.bind", queue="q", exchange="amq.topic", routing_key="#")
    names = [end.stage(0, "q", [b"a"]), end.stage(0, "a.b", [b"b"], "amq.topic", must_route=True)]
    client.call("queue.unbind", queue="q", exchange="amq.topic", routing_key="#")
    with pytest.raises(Answered, match=r"with routing key 'a.b' reach no queue"):
        end.commit(0, names, must_route=True)
    assert bodies_in(node, "q") == []
    end = StagingEnd(node)
    assert end.last() == -1
    done = end.commit(0, names)  # as it is asked to, without them
    assert (done.messages, done.unroutable) == (2, 1)
    assert bodies_in(node, "q") == [b"a"]
    check(node)


def test_headers_route_each_message(node: QuietBroker) -> None:
    client = node.client()
    client.call(
        "queue.bind", queue="q", exchange="amq.headers", routing_key="", arguments={"eu": "1"}
    )
    end = StagingEnd(node)
    name = end.begin(0)
    end.block(publishes("amq.headers", "", [b"yes"], headers={"eu": "1"}))
    end.block(publishes("amq.headers", "", [b"no"], headers={"eu": "2"}))
    end.end(2)
    assert end.commit(0, [name]).unroutable == 1
    assert bodies_in(node, "q") == [b"yes"]


def test_properties_are_those_of_the_publisher(node: QuietBroker) -> None:
    client = declare(node, "first", **{"x-max-priority": 9})
    end = StagingEnd(node)
    name = end.begin(0)
    end.block(publishes("", "first", [b"low"], priority=1, message_id="m1"))
    end.block(publishes("", "first", [b"high"], priority=8, expiration="5000"))
    end.end(2)
    node.tick(10_000)  # a staged message has no time to die: that begins in its queue
    end.commit(0, [name])
    client.received = b""
    client.consume("first", no_ack=True)
    got = [fields for method, fields in client.methods() if method == "basic.deliver"]
    assert [one["body"] for one in got] == [b"high", b"low"]
    assert got[1]["properties"]["message_id"] == "m1"
    assert [one["redelivered"] for one in got] == [False, False]


def test_time_to_live_begins_when_it_is_published(node: QuietBroker) -> None:
    end = StagingEnd(node)
    name = end.begin(0)
    end.block(publishes("", "q", [b"a"], expiration="1000"))
    end.end(1)
    node.tick(5000)
    end.commit(0, [name])
    node.tick(900)
    assert bodies_in(node, "q") == [b"a"]
    node.tick(200)
    assert bodies_in(node, "q") == []


def test_a_full_queue_is_waited_for(node: QuietBroker) -> None:
    client = declare(node, "small", **{"x-max-length": 3, "x-overflow": "reject-publish"})
    client.call("queue.bind", queue="small", exchange="amq.fanout", routing_key="")
    client.call("queue.bind", queue="q", exchange="amq.fanout", routing_key="")
    end = StagingEnd(node)
    end.ask_commit(0, [end.stage(0, "", numbers(0, 8), "amq.fanout")], patience_ms=1000)
    assert end.silent()
    assert (bodies_in(node, "small"), bodies_in(node, "q")) == (numbers(0, 3), numbers(0, 3))
    node.now_ms += 3_600_000  # the wall clock may be set meanwhile
    node.tick(900)
    assert end.silent()
    node.now_ms -= 7_200_000
    node.tick(200)
    told = staging.decode_committed(end.expect(staging.COMMITTED))
    assert told.outcome == staging.UNDER_WAY
    assert told.trouble == "queue 'small' is full and refuses publishes (x-overflow)"
    client.received = b""
    client.consume("small", no_ack=True)
    end.ask_commit(0, [])
    for _ in range(5):
        node.tick(60)
    assert staging.decode_committed(end.expect(staging.COMMITTED)).outcome == staging.DUPLICATE
    assert client.bodies() == numbers(0, 8)
    assert bodies_in(node, "q") == numbers(0, 8)
    check(node)


@pytest.mark.parametrize("limit", [{"x-max-length": 0}, {"x-max-length-bytes": 3}])
def test_what_a_queue_can_never_take_is_not_waited_for(
    node: QuietBroker, limit: dict[str, int]
) -> None:
    client = declare(node, "small", **limit, **{"x-overflow": "reject-publish"})
    client.call("queue.bind", queue="small", exchange="amq.fanout", routing_key="")
    client.call("queue.bind", queue="q", exchange="amq.fanout", routing_key="")
    end = StagingEnd(node)
    large = [b"large1", b"large2", b"large3"]
    done = end.commit(0, [end.stage(0, "", large, "amq.fanout")])
    assert done == staging.Committed(staging.DONE, 3, 3, "")
    assert (bodies_in(node, "small"), bodies_in(node, "q")) == ([], large)
    done = end.commit(1, [end.stage(1, "small", large)])
    assert done == staging.Committed(staging.DONE, 3, 3, "")
    assert bodies_in(node, "small") == []
    check(node)


def test_what_fits_between_what_never_does_is_published_at_once(node: QuietBroker) -> None:
    declare(node, "small", **{"x-max-length-bytes": 3, "x-overflow": "reject-publish"})
    end = StagingEnd(node)
    done = end.commit(0, [end.stage(0, "small", [b"a", b"large", b"b", b"large", b"c"])])
    assert done == staging.Committed(staging.DONE, 5, 2, "")
    assert bodies_in(node, "small") == [b"a", b"b", b"c"]


def test_who_publishes_directly_is_told_what_can_never_be(node: QuietBroker) -> None:
    declare(node, "small", **{"x-max-length-bytes": 3, "x-overflow": "reject-publish"})
    end = StagingEnd(node)
    with pytest.raises(Answered, match="queue 'small' is full"):
        end.publish_directly(publishes("", "small", [b"large"]), patience_ms=0)


def test_a_consumer_may_take_what_has_no_room(node: QuietBroker) -> None:
    client = declare(node, "small", **{"x-max-length": 0, "x-overflow": "reject-publish"})
    client.consume("small", no_ack=True)
    end = StagingEnd(node)
    done = end.commit(0, [end.stage(0, "small", [b"a", b"b"])])
    assert done == staging.Committed(staging.DONE, 2, 0, "")
    assert client.bodies() == [b"a", b"b"]


def test_a_delayed_message_waits_its_time(node: QuietBroker) -> None:
    client = node.client()
    client.call(
        "exchange.declare",
        exchange="later",
        type="x-delayed-message",
        durable=True,
        arguments={"x-delayed-type": "fanout"},
    )
    client.call("queue.bind", queue="q", exchange="later", routing_key="")
    end = StagingEnd(node)
    name = end.begin(0, must_route=True)
    end.block(publishes("later", "", [b"a"], headers={"x-delay": 1000}))
    end.end(1)
    end.commit(0, [name], must_route=True)
    assert bodies_in(node, "q") == []
    node.tick(1000)
    assert bodies_in(node, "q") == [b"a"]


@pytest.mark.parametrize(
    "properties", [{"headers": {"CC": ["x"]}}, {"reply_to": "amq.rabbitmq.reply-to"}]
)
def test_what_needs_a_channel_is_refused(node: QuietBroker, properties: dict[str, Any]) -> None:
    end = StagingEnd(node)
    end.begin(0)
    with pytest.raises(Answered, match="not supported here: publish them by AMQP"):
        end.block(publishes("", "q", [b"a"], **properties))
