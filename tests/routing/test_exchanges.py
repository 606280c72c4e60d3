"""Exchanges: bindings against a list of them, and routes through bound exchanges."""

from __future__ import annotations

import gc
import time
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.core.errors import PreconditionFailed
from penstock.routing.consistent_hash import CONSISTENT_HASH
from penstock.routing.exchanges import (
    DELAYED,
    EXCHANGE_TYPES,
    NSQ_TOPIC,
    REMOVED_AT_ONCE,
    Exchange,
    Sources,
    looks_at_headers,
    route,
)
from penstock.routing.matcher import RoutingContext
from penstock.routing.once import ONCE
from penstock.routing.one_of_all import LOCAL_RANDOM, MODULUS_HASH, RANDOM
from penstock.routing.recent_history import RECENT_HISTORY


class Queue:
    """A destination that hides its identity from everything but ``is``."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return self.name


def exchange(kind: str, name: str = "x") -> Exchange:
    return Exchange(
        "/",
        name,
        kind,
        False,
        False,
        False,
        {"x-delayed-type": "direct"} if kind == DELAYED else {},
    )


def names(found: list[object]) -> list[str]:
    return [destination.name for destination in found if isinstance(destination, Queue)]


def test_direct_wants_the_very_key() -> None:
    x = exchange("direct")
    a, b = Queue("a"), Queue("b")
    x.bind(a, "k", {})
    x.bind(b, "k", {})
    x.bind(b, "", {})
    assert names(route(x, "k", None)) == ["a", "b"]
    assert names(route(x, "", None)) == ["b"]
    assert route(x, "K", None) == []


def test_fanout_takes_any_key() -> None:
    x = exchange("fanout")
    a = Queue("a")
    x.bind(a, "k", {})
    x.bind(a, "other", {})
    assert names(route(x, "third", None)) == ["a"]
    x.unbind(a, "k", {})
    assert names(route(x, "k", None)) == ["a"]
    x.unbind(a, "other", {})
    assert route(x, "k", None) == []


def test_only_headers_exchanges_need_headers() -> None:
    assert [kind for kind in EXCHANGE_TYPES if exchange(kind).needs_headers] == [
        "headers",
        DELAYED,
        LOCAL_RANDOM,
        ONCE,
        RANDOM,
        RECENT_HISTORY,
    ]


def test_a_refused_binding_leaves_nothing_behind() -> None:
    x = exchange("headers")
    with pytest.raises(PreconditionFailed):
        x.bind(Queue("a"), "", {"x-match": "some"})
    assert not x.has_bindings()
    assert x.bindings() == []
    assert route(x, "", RoutingContext({}, 0)) == []


def test_bindings_differ_by_arguments() -> None:
    x = exchange("direct")
    a = Queue("a")
    assert x.bind(a, "k", {"n": 1, "m": 2})
    assert not x.bind(a, "k", {"m": 2, "n": 1})
    assert x.bind(a, "k", {"n": 2, "m": 2})
    assert x.bind(a, "k", {})
    assert not x.unbind(a, "k", {"n": 3})
    assert x.unbind(a, "k", {"m": 2, "n": 1})
    assert not x.unbind(a, "k", {"n": 1, "m": 2})
    assert names(route(x, "k", None)) == ["a"]


@pytest.mark.parametrize("kind", EXCHANGE_TYPES)
def test_a_queue_bound_three_times_leaves_with_the_third_binding(kind: str) -> None:
    x = exchange(kind)
    a = Queue("a")
    for n in range(3):
        x.bind(a, "1", {"x-n": n})
    for n in range(3):
        assert names(route(x, "1", RoutingContext({}, 0))) == ["a"]
        assert x.unbind(a, "1", {"x-n": n})
    assert names(route(x, "1", RoutingContext({}, 0))) == []


def test_a_binding_knows_both_ends() -> None:
    x = exchange("topic")
    a = Queue("a")
    x.bind(a, "k.#", {"n": 1})
    (binding,) = x.bindings()
    assert binding.source is x
    assert binding.destination is a
    assert (binding.routing_key, binding.arguments) == ("k.#", {"n": 1})
    assert x.bindings_to(a) == [binding]
    assert x.bindings_to(Queue("b")) == []


# -- exchanges bound to exchanges ----------------------------------------------------------


def test_a_route_follows_bound_exchanges_and_their_own_rules() -> None:
    source, topic, headers = exchange("direct"), exchange("topic"), exchange("headers")
    near, middle, far = Queue("near"), Queue("middle"), Queue("far")
    source.bind(topic, "a.b", {})
    source.bind(near, "a.b", {})
    topic.bind(headers, "a.*", {})
    topic.bind(middle, "#", {})
    headers.bind(far, "", {"h": 1})
    assert names(route(source, "a.b", RoutingContext({"h": 1}, 0))) == ["near", "middle", "far"]
    assert names(route(source, "a.b", None)) == ["near", "middle"]
    assert route(source, "a", RoutingContext({"h": 1}, 0)) == []
    assert source.exchange_destinations() == [topic]


def test_a_cycle_is_walked_once_and_a_queue_found_once() -> None:
    one, two, three = (exchange("fanout", name) for name in ("one", "two", "three"))
    a, b = Queue("a"), Queue("b")
    for source, target in [(one, two), (two, three), (three, one), (two, two), (one, three)]:
        assert source.bind(target, "", {})
    one.bind(a, "", {})
    three.bind(a, "", {})
    three.bind(b, "", {})
    assert names(route(one, "", None)) == ["a", "b"]
    assert names(route(two, "", None)) == ["a", "b"]


def test_a_bound_exchange_is_forgotten_with_its_last_binding() -> None:
    source, target = exchange("direct"), exchange("fanout")
    source.bind(target, "a", {})
    source.bind(target, "b", {})
    source.unbind(target, "a", {})
    assert source.exchange_destinations() == [target]
    source.unbind(target, "b", {})
    assert source.exchange_destinations() == []
    source.bind(target, "a", {})
    assert [b.routing_key for b in source.unbind_destination(target)] == ["a"]
    assert source.exchange_destinations() == []


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=15),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=15),
)
def test_a_route_reaches_what_a_walk_of_the_graph_reaches(
    ways: list[tuple[int, int]], ends: list[tuple[int, int]]
) -> None:
    exchanges = [exchange("fanout", str(i)) for i in range(5)]
    queues = [Queue(str(i)) for i in range(5)]
    for source, target in ways:
        exchanges[source].bind(exchanges[target], "", {})
    for source, target in ends:
        exchanges[source].bind(queues[target], "", {})
    reached = {0}
    for _ in range(5):
        reached |= {target for source, target in ways if source in reached}
    expected = {str(target) for source, target in ends if source in reached}
    found = names(route(exchanges[0], "", None))
    assert len(found) == len(set(found))
    assert set(found) == expected


def named(**kinds: str) -> dict[str, Exchange]:
    """Exchanges by name; ``two="fanout-one"`` has the alternate exchange ``one``."""
    made: dict[str, Exchange] = {}
    for name, kind in kinds.items():
        made[name] = exchange(kind.partition("-")[0], name)
        made[name].alternate = kind.partition("-")[2] or None
    return made


def test_an_alternate_gets_what_finds_nothing() -> None:
    x = named(first="direct-second", second="topic-third", third="fanout-first")
    a, b, c = Queue("a"), Queue("b"), Queue("c")
    x["first"].bind(a, "a.1", {})
    x["second"].bind(b, "b.*", {})
    assert names(route(x["first"], "a.1", None, x)) == ["a"]
    assert names(route(x["first"], "b.1", None, x)) == ["b"]
    assert names(route(x["second"], "a.1", None, x)) == ["a"]
    assert route(x["first"], "c.1", None, x) == []
    x["third"].bind(c, "", {})
    assert names(route(x["first"], "c.1", None, x)) == ["c"]
    del x["second"]
    assert route(x["first"], "b.1", None, x) == []


def test_a_bound_exchange_is_found_even_if_it_finds_nothing() -> None:
    x = named(first="fanout-spare", empty="direct", spare="fanout")
    a = Queue("a")
    x["spare"].bind(a, "", {})
    x["first"].bind(x["empty"], "", {})
    assert route(x["first"], "k", None, x) == []
    x["empty"].alternate = "spare"
    assert names(route(x["first"], "k", None, x)) == ["a"]


def test_copies_are_further_keys() -> None:
    x = named(direct="direct-spare", topic="topic", spare="fanout")
    a, b, c = Queue("a"), Queue("b"), Queue("c")
    x["direct"].bind(a, "a", {})
    x["direct"].bind(b, "b", {})
    x["direct"].bind(x["topic"], "t", {})
    x["topic"].bind(b, "#", {})
    x["spare"].bind(c, "", {})

    def found(key: str, *copies: str) -> list[str]:
        return names(route(x["direct"], key, None, x, list(copies)))

    assert found("a", "a", "none") == ["a"]
    assert found("none", "b", "a") == ["b", "a"]
    assert found("a", "t", "b") == ["a", "b"]
    assert found("none", "nobody") == ["c"]


def test_who_looks_at_headers_on_the_way() -> None:
    x = named(first="direct-second", second="fanout", third="headers", hash="fanout-third")
    assert not looks_at_headers(x["first"], x)
    x["second"].bind(x["hash"], "", {})
    assert looks_at_headers(x["first"], x)
    x["hash"].alternate = "first"
    assert not looks_at_headers(x["first"], x)


# -- the index against a list --------------------------------------------------------------


class BindingsMachine(RuleBasedStateMachine):
    """Bind and unbind anything anywhere; a list of bindings is the truth."""

    def __init__(self) -> None:
        super().__init__()
        self.exchanges = [exchange(kind) for kind in EXCHANGE_TYPES[:4]]
        self.queues = [Queue(f"q{i}") for i in range(3)]
        self.truth: list[tuple[int, int, str, tuple[tuple[str, object], ...]]] = []

    keys = st.sampled_from(["", "a", "a.b", "#", "a.*"])
    arguments = st.sampled_from([{}, {"h": 1}, {"x-match": "any", "h": 1, "i": 2}])

    @rule(x=st.integers(0, 3), q=st.integers(0, 2), key=keys, arguments=arguments)
    def bind(self, x: int, q: int, key: str, arguments: dict[str, object]) -> None:
        binding = (x, q, key, tuple(arguments.items()))
        is_new = self.exchanges[x].bind(self.queues[q], key, arguments)
        assert is_new == (binding not in self.truth)
        if is_new:
            self.truth.append(binding)

    @rule(x=st.integers(0, 3), q=st.integers(0, 2), key=keys, arguments=arguments)
    def unbind(self, x: int, q: int, key: str, arguments: dict[str, object]) -> None:
        binding = (x, q, key, tuple(arguments.items()))
        assert self.exchanges[x].unbind(self.queues[q], key, arguments) == (binding in self.truth)
        if binding in self.truth:
            self.truth.remove(binding)

    @rule(x=st.integers(0, 3), q=st.integers(0, 2))
    def unbind_destination(self, x: int, q: int) -> None:
        removed = self.exchanges[x].unbind_destination(self.queues[q])
        leaving = [b for b in self.truth if b[:2] == (x, q)]
        assert [(b.routing_key, tuple(b.arguments.items())) for b in removed] == [
            b[2:] for b in leaving
        ]
        self.truth = [b for b in self.truth if b[:2] != (x, q)]

    @rule(x=st.integers(0, 3), key=st.sampled_from(["", "a", "a.b", "c"]), h=st.integers(0, 2))
    def publish(self, x: int, key: str, h: int) -> None:
        expected = {
            f"q{q}"
            for source, q, pattern, arguments in self.truth
            if source == x and self._matches(EXCHANGE_TYPES[x], pattern, key, dict(arguments), h)
        }
        found = names(route(self.exchanges[x], key, RoutingContext({"h": h}, 0)))
        assert len(found) == len(set(found))
        assert set(found) == expected

    def _matches(
        self, kind: str, pattern: str, key: str, arguments: dict[str, object], h: int
    ) -> bool:
        if kind == "headers":
            return "h" not in arguments or h == 1
        topic = {"#": True, "a.*": key == "a.b"}
        return (
            kind == "fanout"
            or (topic.get(pattern, False) if kind == "topic" else False)
            or (pattern == key)
        )

    @invariant()
    def bindings_are_listed(self) -> None:
        for x, source in enumerate(self.exchanges):
            here = [b for b in self.truth if b[0] == x]
            assert len(source.bindings()) == len(here)
            assert source.has_bindings() == bool(here)


TestBindings = BindingsMachine.TestCase


@pytest.mark.parametrize("kind", EXCHANGE_TYPES)
def test_unbinding_one_destination_does_not_look_at_the_others(kind: str) -> None:
    """Quadratic work would be four hundred million steps here: minutes, not a second."""
    x = exchange(kind)
    queues = [Queue(str(i)) for i in range(20_000)]
    for queue in queues:
        x.bind(queue, "1", {"h": 1})
    started = time.process_time()
    for queue in queues:
        assert len(x.unbind_destination(queue)) == 1
    assert time.process_time() - started < 10
    assert not x.has_bindings()


# -- destinations that leave with very many bindings -------------------------------------------


def key(kind: str, number: int) -> str:
    return str(number + 1) if kind == "x-consistent-hash" else f"a.{number}.*"


AT_ONCE = (CONSISTENT_HASH, LOCAL_RANDOM, MODULUS_HASH, RANDOM)
"""Forget a destination with all its bindings."""


@pytest.mark.parametrize("kind", EXCHANGE_TYPES)
def test_a_dismissed_destination_is_gone_at_once_and_its_bindings_later(kind: str) -> None:
    x = exchange(kind)
    a, b = Queue("a"), Queue("b")
    for number in range(3 * REMOVED_AT_ONCE):
        x.bind(a, key(kind, number), {"n": number, "x-match": "any"})
    x.bind(b, key(kind, 7), {"n": 7})
    assert x.dismiss(a)
    assert not x.dismiss(a)
    assert [binding.destination for binding in x.bindings()] == [b]
    for number in range(3 * REMOVED_AT_ONCE):
        to_all = ("fanout", NSQ_TOPIC, ONCE, RECENT_HISTORY, *AT_ONCE)
        wanted = ["b"] if kind in to_all or number == 7 else []
        assert names(route(x, key(kind, number), RoutingContext({"n": number}, 0))) == wanted
    swept = 0
    while x.dismissed:
        count = x.sweep(70)
        assert 0 < count <= 70
        swept += count
    assert swept == (0 if kind in AT_ONCE else 3 * REMOVED_AT_ONCE)
    assert x.sweep(70) == 0
    assert names(route(x, key(kind, 7), RoutingContext({"n": 7}, 0))) == ["b"]
    x.unbind(b, key(kind, 7), {"n": 7})
    assert not x.has_bindings()
    fresh = exchange(kind)
    fresh.bind(b, key(kind, 8), {})
    x.bind(b, key(kind, 8), {})
    for one in x, fresh:
        assert names(route(one, key(kind, 8), RoutingContext({}, 0))) == ["b"]


def test_a_few_bindings_are_removed_at_once() -> None:
    x = exchange("direct")
    a = Queue("a")
    for number in range(REMOVED_AT_ONCE):
        x.bind(a, str(number), {})
    assert x.dismiss(a)
    assert not x.dismissed


def test_the_alternate_gets_what_only_dismissed_destinations_would_have() -> None:
    x = named(first="topic-spare", spare="fanout")
    a, b = Queue("a"), Queue("b")
    x["spare"].bind(b, "", {})
    for number in range(2 * REMOVED_AT_ONCE):
        x["first"].bind(a, f"#.{number}", {})
    x["first"].dismiss(a)
    assert names(route(x["first"], "1", None, x)) == ["b"]


def test_the_exchanges_that_lead_to_a_destination_are_known_until_none_does() -> None:
    sources = Sources()
    x, y = (Exchange("/", name, "direct", *[False] * 3, {}, sources=sources) for name in "xy")
    a = Queue("a")
    for one in x, y:
        for number in range(2 * REMOVED_AT_ONCE):
            one.bind(a, str(number), {})
    assert sources.of(a) == [x, y]
    x.close()
    for number in range(2 * REMOVED_AT_ONCE):
        assert sources.of(a) == [x, y]
        y.unbind(a, str(number), {})
    assert sources.of(a) == [x]
    while x.sweep(70):
        pass
    assert sources.of(a) == []
    y.bind(a, "k", {})
    assert sources.of(a) == [y]
    y.dismiss(a)
    assert sources.of(a) == []


def test_a_closed_exchange_gives_back_everything_in_slices() -> None:
    """It and its bindings refer to each other: nothing of them must wait for the collector."""
    x = exchange("topic")
    a = Queue("a")
    for number in range(300):
        x.bind(a, f"k.{number}", {})
        x.bind(Queue(str(number)), "k.#", {})
    dying = weakref.ref(a)
    for binding in x.bindings()[:300]:
        assert binding.source is x
    del binding
    x.dismiss(a)
    x.close()
    assert not x.has_bindings()
    del a
    gc.disable()
    try:
        assert sum(x.sweep(100) for _ in range(7)) == 600
        assert dying() is None
    finally:
        gc.enable()
