"""Where copies and masters should be, as tables."""

from __future__ import annotations

import random
from typing import Any

import pytest

from penstock.broker.rules.ha_policy import HaPolicy, read_ha_policy
from penstock.cluster.agreement.placement import locate_master, rebalance, wanted_copies
from penstock.core.errors import PreconditionFailed


def first(_count: int) -> int:
    return 0


def last(count: int) -> int:
    return count - 1


def ha(mode: str = "", params: Any = None) -> HaPolicy:
    definition: dict[str, object] = {"ha-mode": mode} if mode else {}
    if params is not None:
        definition["ha-params"] = params
    return read_ha_policy(definition)


ALL = "abcde"
WANTED = [
    # mode, params, master, mirrors, synced, running -> master, mirrors
    ("", None, "a", "b", "ab", "abc", "a", ""),
    ("all", None, "a", "", "a", "a", "a", ""),
    ("all", None, "a", "", "a", "abc", "a", "bc"),
    ("all", None, "b", "c", "b", "abc", "b", "ca"),
    ("all", None, "a", "cd", "a", "ac", "a", "c"),
    ("exactly", 1, "a", "", "a", "abc", "a", ""),
    ("exactly", 1, "a", "bc", "abc", "abc", "a", ""),
    ("exactly", 2, "a", "", "a", "abc", "a", "b"),
    ("exactly", 2, "a", "cb", "abc", "abc", "a", "c"),
    ("exactly", 2, "a", "c", "ac", "ab", "a", "b"),
    ("exactly", 3, "a", "c", "a", "abcd", "a", "cb"),
    ("exactly", 9, "a", "", "a", "abc", "a", "bc"),
    ("nodes", "ab", "a", "", "a", "abc", "a", "b"),
    ("nodes", "ba", "a", "", "a", "abc", "a", "b"),
    ("nodes", "bc", "a", "", "a", "abc", "a", "bc"),
    ("nodes", "bc", "a", "b", "a", "abc", "a", "bc"),
    ("nodes", "bc", "a", "bc", "ac", "abc", "c", "b"),
    ("nodes", "bc", "a", "cb", "abc", "abc", "b", "c"),
    ("nodes", "bc", "a", "b", "ab", "ac", "a", "c"),
    ("nodes", "xy", "a", "b", "ab", "abc", "a", ""),
    ("nodes", "bb", "b", "", "b", "abc", "b", ""),
]


@pytest.mark.parametrize("mode, params, master, mirrors, synced, running, then, those", WANTED)
def test_wanted_copies(
    mode: str,
    params: Any,
    master: str,
    mirrors: str,
    synced: str,
    running: str,
    then: str,
    those: str,
) -> None:
    policy = ha(mode, list(params) if isinstance(params, str) else params)
    found = wanted_copies(policy, master, mirrors, synced, running, first)
    assert (found.master, "".join(found.mirrors)) == (then, those)


def test_chance_chooses_who_is_added() -> None:
    assert wanted_copies(ha("exactly", 2), "a", "", "a", ALL, last).mirrors == ["e"]


def test_a_master_kept_because_nobody_was_synced_goes_as_soon_as_one_is() -> None:
    policy = ha("nodes", ["b", "c"])
    before = wanted_copies(policy, "a", "bc", "a", ALL, first)
    assert (before.master, before.mirrors) == ("a", ["b", "c"])
    after = wanted_copies(policy, "a", "bc", "ab", ALL, first)
    assert (after.master, after.mirrors) == ("b", ["c"])


@pytest.mark.parametrize("seed", range(30))
def test_whatever_is_wanted_is_sensible(seed: int) -> None:
    rng = random.Random(seed)
    running = rng.sample(ALL, rng.randint(1, 5))
    master = rng.choice(running)
    mirrors = [one for one in rng.sample(ALL, rng.randint(0, 4)) if one != master]
    synced = [one for one in [master, *mirrors] if rng.random() < 0.5 or one == master]
    mode = rng.choice(["all", "exactly", "nodes"])
    params: Any = {"all": None, "exactly": rng.randint(1, 6), "nodes": rng.sample(ALL, 3)}[mode]
    found = wanted_copies(ha(mode, params), master, mirrors, synced, running, rng.randrange)
    copies = [found.master, *found.mirrors]
    assert len(set(copies)) == len(copies)
    assert set(copies) <= set(running)
    assert found.master == master or found.master in synced, "K3"
    if mode == "exactly":
        assert len(copies) == min(params, len(running))
    again = wanted_copies(
        ha(mode, params), found.master, found.mirrors, synced, running, rng.randrange
    )
    assert (again.master, again.mirrors) == (found.master, found.mirrors), "it comes to rest"


LOCATED = [
    ("client-local", ha(), "b", "abc", {}, "b"),
    ("client-local", ha("nodes", ["c"]), "b", "abc", {}, "c"),
    ("client-local", ha("nodes", ["x"]), "b", "abc", {}, "b"),
    ("min-masters", ha(), "b", "abc", {"a": 1, "b": 1, "c": 1}, "b"),
    ("min-masters", ha(), "b", "abc", {"a": 1, "b": 2}, "c"),
    ("min-masters", ha(), "c", "abc", {"c": 2}, "a"),
    ("min-masters", ha("nodes", ["b", "c"]), "a", "abc", {"b": 3, "c": 2}, "c"),
    ("random", ha(), "b", "abc", {}, "c"),
    ("random", ha("nodes", ["a", "b"]), "c", "abc", {}, "b"),
]


@pytest.mark.parametrize("locator, policy, client_node, running, masters, wanted", LOCATED)
def test_locators(
    locator: str,
    policy: HaPolicy,
    client_node: str,
    running: str,
    masters: dict[str, int],
    wanted: str,
) -> None:
    assert locate_master(locator, policy, client_node, running, masters, last) == wanted


def test_no_such_locator() -> None:
    with pytest.raises(PreconditionFailed, match="invalid queue-master-locator value"):
        locate_master("nearest", ha(), "a", "abc", {}, first)


def test_rebalancing_moves_masters_to_synced_mirrors_only() -> None:
    masters = {f"q{place}": "a" for place in range(6)}
    moves = rebalance(masters, {"q1": ["b"], "q2": ["c", "b"], "q3": ["c"]}, "abc")
    assert moves == [("q1", "a", "b"), ("q2", "a", "c"), ("q3", "a", "c")]


@pytest.mark.parametrize("seed", range(20))
def test_rebalancing_ends_as_even_as_it_can_be(seed: int) -> None:
    rng = random.Random(seed)
    masters = {f"q{place}": rng.choice("aab") for place in range(rng.randint(1, 30))}
    synced: dict[str, Any] = dict.fromkeys(masters, "abc")
    where = dict(masters)
    for move in rebalance(masters, synced, "abc"):
        assert where[move.queue] == move.source
        where[move.queue] = move.target
    counts = [list(where.values()).count(node) for node in "abc"]
    assert max(counts) - min(counts) <= 1
    assert not rebalance(where, synced, "abc")
