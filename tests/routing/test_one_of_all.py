"""Exchanges that give each message to one of the bound destinations."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.routing.exchanges import Exchange, route
from penstock.routing.matcher import RoutingContext
from penstock.routing.one_of_all import LOCAL_RANDOM, MODULUS_HASH, RANDOM

KINDS = (MODULUS_HASH, RANDOM)


def bound(kind: str, names: str) -> tuple[Exchange, dict[str, object]]:
    exchange = Exchange("/", "x", kind, True, False, False, {})
    queues: dict[str, object] = {name: SimpleNamespace(name=name) for name in names}
    for queue in queues.values():
        exchange.bind(queue, "any", {})
    return exchange, queues


def routed(exchange: Exchange, key: str) -> list[str]:
    found = route(exchange, key, RoutingContext({}, 0))
    return [one.name for one in found]  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", KINDS)
def test_each_message_has_one_destination_and_all_get_their_share(kind: str) -> None:
    exchange, _ = bound(kind, "abcd")
    counts: Counter[str] = Counter()
    for number in range(4000):
        [name] = routed(exchange, f"key {number}")
        counts[name] += 1
    assert sorted(counts) == list("abcd")
    assert min(counts.values()) > 800


def test_a_key_has_one_queue_by_its_hash_and_any_by_chance() -> None:
    by_hash, _ = bound(MODULUS_HASH, "abcd")
    by_chance, _ = bound(RANDOM, "abcd")
    assert len({routed(by_hash, "same")[0] for _ in range(50)}) == 1
    assert {routed(by_chance, "same")[0] for _ in range(50)} == set("abcd")


@pytest.mark.parametrize("kind", KINDS)
@given(leave=st.sets(st.sampled_from("abcd")))
def test_only_those_that_are_bound(kind: str, leave: set[str]) -> None:
    exchange, queues = bound(kind, "abcd")
    exchange.bind(queues["a"], "a second binding", {})
    for name in leave:
        exchange.unbind(queues[name], "any", {})
    left = set("abcd") - leave | {"a"}
    found = {name for number in range(200) for name in routed(exchange, str(number))}
    assert found == left


def test_a_local_exchange_leaves_out_queues_of_other_nodes() -> None:
    exchange = Exchange("/", "x", LOCAL_RANDOM, True, False, False, {})
    far, near, other = [
        SimpleNamespace(name=name, remote=name == "far") for name in ("far", "near", "other")
    ]
    exchange.bind(far, "", {})
    assert routed(exchange, "k") == []
    exchange.bind(near, "", {})
    exchange.bind(other, "", {})
    assert {routed(exchange, "k")[0] for _ in range(50)} == {"near", "other"}
    exchange.unbind_destination(near)
    exchange.unbind_destination(other)
    assert routed(exchange, "k") == []
