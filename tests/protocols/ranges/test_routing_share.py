"""A range connection whose publishes are dear to route does some of them in each turn (H11)."""

from __future__ import annotations

import random

import pytest

from penstock.core.pending import Ticket
from penstock.protocols.ranges import staging as requests
from penstock_ranges import staging
from tests.helpers import raw_codec as codec
from tests.helpers.connection_pair import QuietBroker
from tests.helpers.range_pair import Answered, StagingEnd, bodies_in, check, declare, publishes

KEYS = 40


def bind(node: QuietBroker, letters: str, patterns: int, words: int) -> None:
    chance = random.Random(1)
    client = declare(node, "q")
    for _ in range(patterns):
        pattern = ".".join(chance.choice(letters) for _ in range(words))
        where = {"queue": "q", "exchange": "amq.topic", "routing_key": pattern}
        client.send(codec.method_frame(1, "queue.bind", **where, nowait=True))
    assert client.methods() == []


def block() -> bytes:
    chance = random.Random(2)
    keys = [".".join(chance.choice("ab") for _ in range(100)) for _ in range(KEYS)]
    return b"".join(publishes("amq.topic", key, [b"%d" % at]) for at, key in enumerate(keys))


@pytest.mark.parametrize("whole", [False, True], ids=["a set", "without a set"])
def test_it_routes_for_some_time_in_each_turn_and_all_in_order(
    monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    monkeypatch.setattr(requests, "ROUTING_SHARE_NS", 0)  # one address each time
    node = QuietBroker()
    bind(node, "ab*#", 100, 60)
    bind(node, "#", 1, 1)
    end = StagingEnd(node)
    if whole:
        end.send(staging.encode_publish(block(), False, 1000))
    else:
        end.begin(1)
        end.send(staging.encode_block(block()))
    ticks = 0
    while end.silent():
        assert end.session.has_waiters
        node.tick(20)
        ticks += 1
    assert ticks >= KEYS - 2
    if whole:
        assert staging.decode_published(end.expect(staging.PUBLISHED)) == ("", 0)
    else:
        assert staging.decode_taken(end.expect(staging.STAGE_TAKEN)) == ""
        end.end(KEYS)
        end.commit(1, [name for _, name in node.broker.staging.sets])
    assert bodies_in(node, "q") == [b"%d" % number for number in range(KEYS)]
    check(node)


def test_an_address_that_reaches_too_many_patterns_is_refused() -> None:
    node = QuietBroker()
    bind(node, "a*##", 1500, 100)
    end = StagingEnd(node)
    end.send(
        staging.encode_publish(publishes("amq.topic", ".".join("a" * 127), [b"m"]), False, 1000)
    )
    with pytest.raises(Answered, match="too many patterns match a part of the routing key"):
        end.expect(staging.PUBLISHED)
    other = StagingEnd(node)
    assert other.publish_directly(publishes("amq.topic", "a.b", [b"m"]))[0] == ""
    check(node)


def test_long_lists_of_sets_are_shared_out() -> None:
    """A list of 5,000 names takes some milliseconds, and one read has seven."""
    node = QuietBroker()
    declare(node, "q")
    end = StagingEnd(node)
    names = [f"s{number}" for number in range(5000)]
    end.session.receive(staging.encode_abort(names) * 7, node.now_ms)
    assert end.session.waiting_head
    calls = 1
    while end.session.waiting_head:
        end.session.go_on(node.now_ms)
        calls += 1
    assert calls == 4
    node.run()
    for _ in range(7):
        assert staging.decode_aborted(end.expect(staging.ABORTED)) == 0
    check(node)


def test_what_waits_for_an_answer_goes_on_with_a_tick() -> None:
    """Also if it began to wait when a confirm came, after which the loop calls nothing else."""
    node = QuietBroker()
    end = StagingEnd(node)
    end.session.receive(staging.encode_last("p") * 2, node.now_ms)
    node.flush()
    assert len([end.expect(staging.LAST) for _ in range(2)]) == 2
    ticket = Ticket()
    end.session.wait_for(ticket)
    end.session.receive(staging.encode_last("p"), node.now_ms)
    end.session.tick(node.now_ms)
    node.flush()
    assert end.silent()
    ticket.answer()
    end.session.tick(node.now_ms)
    node.flush()
    end.expect(staging.LAST)


def test_a_connection_that_goes_meanwhile_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "ROUTING_SHARE_NS", 0)
    node = QuietBroker()
    bind(node, "ab*#", 100, 60)
    end = StagingEnd(node)
    end.begin(1)
    end.send(staging.encode_block(block()))
    assert end.session.has_waiters
    end.drop()
    assert not end.session.has_waiters
    assert node.broker.staging.sets == {}
    check(node)
