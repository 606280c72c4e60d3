"""What people see of a queue whose master is on another node: its counts there, within a second."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from penstock.core.pending import Pending
from penstock.management.facts.sessions import SessionInspector
from penstock.management.metrics.gathering import Gathering
from penstock.management.rows.view import BrokerView
from penstock.management.statistics.reading import queue_counts
from tests.helpers.node_pair import NodePair

NO_SESSIONS = cast(SessionInspector, None)
"""Rows of queues ask for none."""


@pytest.fixture
def pair() -> Iterator[NodePair]:
    pair = NodePair()
    yield pair
    pair.check()


def view(pair: NodePair) -> BrokerView:
    return BrokerView(pair.here.broker, NO_SESSIONS, "here")


def lengths(row: dict[str, Any]) -> tuple[Any, ...]:
    return (
        row["messages"],
        row["messages_ready"],
        row["messages_unacknowledged"],
        row["consumers"],
    )


def test_the_row_has_what_the_master_has(pair: NodePair) -> None:
    pair.remote("q")
    for node in (pair.here, pair.there):
        client = node.client()
        client.call("basic.qos", prefetch_count=1)
        client.consume("q")
        for _ in range(2):
            client.publish("", "q", b"x")
    pair.tick()
    (row,) = view(pair).queues.rows("/", ["q"])
    assert lengths(row) == (4, 2, 2, 2)
    assert view(pair).queues.row("/", "q")["messages"] == 4
    totals = [0, 0, 0]
    view(pair).add_message_counts("/", ["q"], totals)
    assert totals == [2, 2, 2]
    assert queue_counts(pair.here.broker.vhosts["/"].queues["q"])[-2:] == (2, 2)


def test_another_node_shows_of_a_stream_what_its_master_does(pair: NodePair) -> None:
    """Offsets, segments, kept positions, groups, publishers, and what retention does next."""
    queue = pair.remote("s", **{"x-queue-type": "stream", "x-message-deduplication": True})
    client = pair.here.client()
    client.call("basic.qos", prefetch_count=10)
    tracked = {"x-stream-offset": "first", "x-stream-automatic-offset-tracking": True}
    client.consume("s", "reader", arguments=tracked)
    for number in (1, 2, 2):
        headers = {"x-deduplication-header": f"writer:{number}"}
        client.publish("", "s", b"x", headers=headers)
    pair.tick()
    assert "penstock" not in view(pair).queues.row("/", "s")
    pending = view(pair).queues.facts_elsewhere("/", "s")
    assert isinstance(pending, Pending)
    pair.run()
    found = pending.resume()
    master = BrokerView(pair.there.broker, NO_SESSIONS, "there").queues.row("/", "s")
    assert found == {"penstock": master["penstock"]}
    shown = cast(dict[str, Any], master["penstock"])
    assert (shown["next_offset"], shown["duplicates"]) == (2, 1)
    assert [one["name"] for one in shown["positions"]] == ["reader"]
    assert [one["name"] for one in shown["publishers"]] == ["writer"]

    assert lengths(view(pair).queues.row("/", "s"))[1] == 2
    queue.give_up("it is down")
    assert view(pair).queues.facts_elsewhere("/", "s") == {}


def test_of_other_queues_there_are_no_facts_elsewhere(pair: NodePair) -> None:
    pair.remote("q")
    assert view(pair).queues.facts_elsewhere("/", "q") == {}


def test_a_queue_that_is_down_has_no_counts(pair: NodePair) -> None:
    """RabbitMQ's row of it has these fields and no others that change."""
    queue = pair.remote("q")
    client = pair.here.client()
    client.publish("", "q", b"x")
    client.consume("q")
    pair.tick()
    pair.lose_link()
    queue.give_up("it is down")
    for row in (*view(pair).queues.rows("/", ["q"]), view(pair).queues.row("/", "q")):
        assert row["state"] == "down"
        assert (row["name"], row["durable"], row["arguments"]) == ("q", True, {})
        assert not {"messages", "messages_ready", "consumers", "message_stats"} & row.keys()
    totals = [0, 0, 0]
    view(pair).add_message_counts("/", ["q"], totals)
    assert totals == [0, 0, 0]
    pair.connect()
    queue.follow(pair.ends[0].queues.client)
    pair.run()
    pair.tick()
    (row,) = view(pair).queues.rows("/", ["q"])
    assert row["state"] in ("running", "idle")
    assert lengths(row) == (1, 0, 1, 1)


def test_metrics_are_those_of_the_masters_node(pair: NodePair) -> None:
    """Who asks all nodes adds them up."""
    pair.remote("q")
    pair.here.client().call("queue.declare", queue="local")

    async def on_loop(function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)

    gathering = Gathering(view(pair), on_loop, *cast(Any, [None] * 3))
    table = asyncio.run(gathering.queues(["/"]))
    assert len(table) == 1
    assert 'queue="local"' in table.labels[0]
