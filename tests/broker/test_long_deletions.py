"""Queues and exchanges with very many bindings are deleted at once, and swept up later."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock.core.message import Address
from penstock.storage.definitions.definitions import Definitions
from tests.helpers.connection_pair import QuietBroker

NOW_MS = 1_000_000


@pytest.mark.parametrize("kind", ["direct", "topic", "fanout", "headers"])
def test_what_has_very_many_bindings_is_deleted_at_once(kind: str, tmp_path: Path) -> None:
    """The queue, then the exchange, with a crash while their bindings go."""
    file = str(tmp_path / "definitions.db")
    node = QuietBroker(definitions=file)
    vhost = node.broker.vhosts["/"]
    vhost.declare_exchange("x", kind, True, False, False, {})
    vhost.declare_exchange("last", "fanout", True, True, False, {})
    vhost.declare_exchange("spare", "fanout", True, False, False, {})
    vhost.bind_exchange("x", "spare", "k", {})
    big = vhost.declare_queue("big", True, None, False, {})
    small = vhost.declare_queue("small", True, None, False, {})
    for number in range(1200):
        vhost.bind_queue(big, "x", str(number), {"n": number})
        vhost.bind_queue(big, "last", str(number), {})
        vhost.bind_queue(small, "x", str(number), {"n": number})
    vhost.delete_queue(big)
    assert "last" not in vhost.exchanges
    assert [binding.destination for binding in vhost.exchanges["x"].bindings()] == [small] * 1200
    assert [one.name for one in vhost.find_queues("x", "7", {"n": 7}, [], 0)] == ["small"]
    node.turn.run(NOW_MS, True)
    assert node.turn.has_work()
    again = QuietBroker(definitions=file)
    vhost = again.broker.vhosts["/"]
    assert sorted(queue.name for queue in vhost.queues.values()) == ["small"]
    assert len(vhost.exchanges["x"].bindings()) == 1200
    vhost.delete_exchange("x", False)
    assert not vhost.exchanges["spare"].has_bindings()
    vhost.declare_exchange("x", kind, True, False, False, {})
    small = vhost.queues["small"]
    vhost.bind_queue(small, "x", "7", {"n": 7})
    turns = 0
    while again.broker.vhost_maker.sweep.run(NOW_MS, True):
        turns += 1
        assert [one.name for one in vhost.find_queues("x", "7", {"n": 7}, [], 0)] == ["small"]
    assert turns > 1
    again.definitions.commit()
    (binding,) = Definitions(file).load().bindings
    assert (binding.source, binding.destination, binding.routing_key) == ("x", "small", "7")


@pytest.mark.parametrize("kind", ["queue", "exchange"])
def test_a_deletion_costs_the_same_however_many_exchanges_there_are(kind: str) -> None:
    """It looked at each of them: a hundred deletions of one read took 20 ms, compiled."""

    def took_ms(others: int) -> float:
        vhost = QuietBroker().broker.vhosts["/"]
        for number in range(others):
            vhost.declare_exchange(f"x{number}", "fanout", False, False, False, {})
        delete: list[Any] = []
        for number in range(100):
            if kind == "queue":
                queue = vhost.declare_queue(f"q{number}", False, None, False, {})
                vhost.bind_queue(queue, "amq.fanout", "", {})
                delete.append(partial(vhost.delete_queue, queue))
            else:
                vhost.declare_exchange(f"y{number}", "fanout", False, False, False, {})
                vhost.bind_exchange(f"y{number}", "amq.fanout", "", {})
                delete.append(partial(vhost.delete_exchange, f"y{number}", False))
        since_ns = time.thread_time_ns()
        for one in delete:
            one()
        return (time.thread_time_ns() - since_ns) / 1e6

    few = min(took_ms(10) for _ in range(3))
    many = min(took_ms(2000) for _ in range(3))
    assert many < 5 * few


def test_nothing_is_routed_to_a_queue_that_many_exchanges_have_still_to_leave() -> None:
    node = QuietBroker()
    vhost = node.broker.vhosts["/"]
    queue = vhost.declare_queue("q", False, None, False, {})
    vhost.declare_queue("rest", False, None, False, {})
    vhost.declare_exchange("all", "fanout", False, False, False, {})
    vhost.bind_queue(vhost.queues["rest"], "all", "", {})
    names = [f"x{number}" for number in range(5000)]
    for name in names:
        auto_delete = name != names[-1]
        more: dict[str, object] = {} if auto_delete else {"alternate-exchange": "all"}
        vhost.declare_exchange(name, "fanout", False, auto_delete, False, more)
        vhost.bind_queue(queue, name, "", {})
    vhost.delete_queue(queue)
    assert 0 < len([name for name in names if name in vhost.exchanges]) < len(names)
    last = vhost.exchanges[names[-1]]
    assert last.has_bindings()
    assert last.bindings() == []
    assert vhost.route(Address(names[-1], "", b"", False)).queues == [vhost.queues["rest"]]
    node.run()
    assert [name for name in names if name in vhost.exchanges] == names[-1:]
    assert not last.has_bindings()
    assert not vhost.sources.leaving
    assert vhost.route(Address(names[-1], "", b"", False)).queues == [vhost.queues["rest"]]
