"""Consistent hashing: shares as the weights say, and no key moves that need not."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import PreconditionFailed
from penstock.core.message import PROPERTY_PREFIX
from penstock.routing.exchanges import Exchange, route
from penstock.routing.matcher import RoutingContext

KEYS = [f"user-{number}" for number in range(20_000)]


class Queue:
    def __init__(self, name: str) -> None:
        self.name = name


def exchange(**arguments: object) -> Exchange:
    named = {name.replace("_", "-"): value for name, value in arguments.items()}
    return Exchange("/", "x", "x-consistent-hash", False, False, False, named)


def bound(weights: dict[str, int]) -> tuple[Exchange, dict[str, Queue]]:
    x = exchange()
    queues = {name: Queue(name) for name in weights}
    for name, weight in weights.items():
        x.bind(queues[name], str(weight), {})
    return x, queues


def owner(x: Exchange, key: str, headers: dict[str, object] | None = None) -> str:
    context = None if headers is None else RoutingContext(headers, 0)
    (queue,) = route(x, key, context)
    assert isinstance(queue, Queue)
    return queue.name


def owners(x: Exchange) -> dict[str, str]:
    return {key: owner(x, key) for key in KEYS}


@pytest.mark.slow
@pytest.mark.parametrize(
    "weights",
    [
        {f"q{number}": 1 for number in range(7)},
        {f"q{number}": 10 for number in range(20)},
        {"a": 1, "b": 2, "c": 7},
        {"a": 1, "b": 1000},
    ],
)
def test_shares_are_as_the_weights(weights: dict[str, int]) -> None:
    x, _ = bound(weights)
    counts = Counter(owners(x).values())
    for name, weight in weights.items():
        share = len(KEYS) * weight / sum(weights.values())
        # Five times what chance alone would stray.
        assert abs(counts[name] - share) < 5 * share**0.5 + 1


def test_a_queue_that_goes_moves_only_its_own_keys_and_comes_back_to_them() -> None:
    x, queues = bound({"a": 1, "b": 3, "c": 2, "d": 2})
    before = owners(x)
    x.unbind(queues["b"], "3", {})
    between = owners(x)
    moved = {key for key in KEYS if before[key] != between[key]}
    assert moved == {key for key in KEYS if before[key] == "b"}
    assert {between[key] for key in moved} == {"a", "c", "d"}
    x.bind(queues["b"], "3", {})
    assert owners(x) == before


def test_a_new_queue_takes_from_all_and_moves_nothing_between_others() -> None:
    x, _ = bound({f"q{number}": 1 for number in range(9)})
    before = owners(x)
    x.bind(Queue("new"), "1", {})
    after = owners(x)
    moved = [key for key in KEYS if before[key] != after[key]]
    assert {after[key] for key in moved} == {"new"}
    assert {before[key] for key in moved} == {f"q{number}" for number in range(9)}
    assert len(moved) == pytest.approx(len(KEYS) / 10, rel=0.1)


def test_the_same_in_whatever_order_and_whichever_objects() -> None:
    weights = {f"queue-{number}": number % 3 + 1 for number in range(12)}
    one, _ = bound(weights)
    names = list(weights)
    random.Random(7).shuffle(names)
    other, _ = bound({name: weights[name] for name in names})
    assert owners(one) == owners(other)


def test_it_is_the_same_in_every_process() -> None:
    """Written down once: a broker that starts again, or a newer one, leads keys the same way."""
    x, _ = bound({"a": 1, "b": 1, "c": 1})
    assert "".join(owner(x, str(number)) for number in range(24)) == "cbcaccaababacbaccaabbacc"
    x, _ = bound({"a": 1, "b": 2, "c": 3})
    assert "".join(owner(x, str(number)) for number in range(24)) == "cbcbccccbabccbaccacbbbcc"


def test_bindings_of_one_queue_add_up() -> None:
    x, queues = bound({"a": 1, "b": 4})
    wanted = owners(x)
    x, queues = bound({"a": 1, "b": 1})
    x.bind(queues["b"], "3", {})
    assert owners(x) == wanted
    x.unbind(queues["b"], "1", {})
    x.unbind(queues["b"], "3", {})
    assert set(owners(x).values()) == {"a"}
    x.unbind_destination(queues["a"])
    assert route(x, "k", None) == []


def test_by_a_header_or_a_property() -> None:
    for x, name in (
        (exchange(hash_header="user"), "user"),
        (exchange(hash_property="message_id"), PROPERTY_PREFIX + "message_id"),
    ):
        assert x.needs_headers
        for number in range(4):
            x.bind(Queue(f"q{number}"), "1", {})
        assert len({owner(x, key, {name: "one"}) for key in KEYS[:50]}) == 1
        assert len({owner(x, "k", {name: key}) for key in KEYS[:50]}) == 4
        assert len({owner(x, key, {}) for key in KEYS[:50]}) == 1
        assert owner(x, "k", {name: "one"}) == owner(x, "k", {name: b"one"})
        assert len({owner(x, "k", {name: number}) for number in range(50)}) == 4
    assert not exchange().needs_headers


@given(st.text(), st.text())
def test_any_text_is_a_key(key: str, name: str) -> None:
    x, _ = bound({"a": 1, "b": 2})
    assert owner(x, key) == owner(x, key)
    x.bind(Queue(name), "5", {})
    assert owner(x, key) in {"a", "b", name}


@pytest.mark.parametrize("weight", ["", "0", "-3", "1.5", " 1", "1 ", "one", "\u0661", "+", "1_0"])
def test_what_is_no_weight_is_refused(weight: str) -> None:
    x = exchange()
    with pytest.raises(PreconditionFailed, match="The binding key must be"):
        x.bind(Queue("a"), weight, {})
    assert not x.has_bindings()
    assert route(x, "k", None) == []


def test_odd_weights() -> None:
    x, _ = bound({"a": 1})
    x.bind(Queue("b"), "+007", {})
    x.bind(Queue("c"), "9" * 255, {})
    assert set(owners(x).values()) == {"c"}


def test_arguments_that_are_refused() -> None:
    with pytest.raises(PreconditionFailed, match="mutually exclusive"):
        exchange(hash_header="a", hash_property="message_id")
    with pytest.raises(PreconditionFailed, match="Unsupported property: app_id"):
        exchange(hash_property="app_id")
