"""Which view of a queue comes next: who proposes what, and when nobody does."""

from __future__ import annotations

import pytest

from penstock.broker.rules.ha_policy import HaPolicy, read_ha_policy
from penstock.cluster.agreement.living_nodes import LivingNodes
from penstock.cluster.agreement.queue_views import QueueView, first_view
from penstock.cluster.mirrors.deciding import Step, begins, next_step, when_stopping
from penstock.cluster.mirrors.safety import MirrorStates

A, B, C = "a/1", "b/1", "c/1"
ALL = read_ha_policy({"ha-mode": "all", "ha-sync-mode": "automatic"})
TWO = read_ha_policy({"ha-mode": "exactly", "ha-params": 2})
ON_B = read_ha_policy({"ha-mode": "nodes", "ha-params": ["b"]})
NO_MIRRORS = read_ha_policy({})
ALWAYS = read_ha_policy({"ha-mode": "all", "ha-promote-on-failure": "always"})


def nodes(
    member: str,
    living: str = "a/1 b/1 c/1",
    drained: str = "",
    unreached: str = "",
    short: str = "",
    unheard: str = "",
) -> LivingNodes:
    """``unheard``: "b:a" is that b does not hear a."""
    members = {one.partition("/")[0]: one for one in living.split()}
    joined = {node: 1000 * number for number, node in enumerate(sorted(members))}
    short_of = {node: ["disk"] for node in short.split()}
    deaf: dict[str, set[str]] = {}
    for one, _, other in (pair.partition(":") for pair in unheard.split()):
        deaf.setdefault(one, set()).add(other)
    away = drained.split(), unreached.split()
    return LivingNodes(member, members, joined, *away, short_of, deaf)


def step(
    view: QueueView,
    policy: HaPolicy,
    there: LivingNodes,
    *,
    complete: str = "",
    silent: str = "",
    slow: str = "",
    wall_ms: int = 0,
    has_copy: bool = True,
    has_ring: bool = True,
) -> Step:
    return next_step(
        view,
        policy,
        there,
        MirrorStates(complete.split(), silent.split(), slow.split()),
        wall_ms,
        lambda count: count - 1,
        has_copy=has_copy,
        has_ring=has_ring,
    )


def trio() -> QueueView:
    return first_view(A).with_member(B).with_synced(B).with_member(C)


def test_a_queue_without_a_view_gets_one_where_somebody_could_mirror_it() -> None:
    first = begins(ALL, nodes(A), lambda _: 0)
    assert first.view is not None
    assert (first.view.master, first.view.members) == (A, [A])
    assert begins(ALL, nodes(A, "a/1"), lambda _: 0).view is None
    assert begins(NO_MIRRORS, nodes(A), lambda _: 0).view is None
    assert begins(ALL, nodes("a/2"), lambda _: 0).view is None, "this life counts no more"
    assert begins(ALL, nodes(A, unreached="b c"), lambda _: 0).view is None


def proposed(found: Step) -> QueueView:
    assert found.view is not None, found.why
    return found.view


def test_the_master_adds_who_is_missing_one_by_one() -> None:
    view = proposed(step(first_view(A), ALL, nodes(A)))
    assert view.members == [A, B]
    view = proposed(step(view, ALL, nodes(A)))
    assert view.members == [A, B, C]
    assert step(view, ALL, nodes(A)).view is None
    assert step(view, ALL, nodes(B)).view is None, "that is the master's to say"


@pytest.mark.parametrize(
    "there, facts, why",
    [
        (nodes(A, "a/1 c/1"), {}, "b/1 is gone"),
        (nodes(A, "a/1 b/2 c/1"), {}, "b/1 is gone"),
        (nodes(A, unreached="b"), {}, "b/1 cannot be reached from a"),
        (nodes(A), {"silent": B}, "b/1 does not say what it has"),
    ],
)
def test_the_master_goes_on_without_a_mirror(
    there: LivingNodes, facts: dict[str, str], why: str
) -> None:
    found = step(trio(), ALL, there, **facts)  # type: ignore[arg-type]
    assert found.why == why
    assert proposed(found).members == [A, C]
    assert proposed(found).recoverable == {"b": "partial"}


def test_who_cannot_be_reached_is_not_asked_back() -> None:
    alone = trio().without(B)
    assert step(alone, ALL, nodes(A, unreached="b")).view is None
    assert proposed(step(alone, ALL, nodes(A))).members == [A, C, B]


def test_a_mirror_with_a_slow_disk_stays_and_is_not_counted_on() -> None:
    found = step(trio(), ALL, nodes(A), slow=B)
    assert found.why == "b: its disk takes nothing for 4 s"
    assert proposed(found).members == [A, B, C]
    assert proposed(found).synced == [A]
    found = step(trio(), ALL, nodes(A), slow=C)
    assert proposed(found).version == trio().version + 1, "what is proposed of it is refused now"
    assert step(trio(), ALL, nodes(A, short="b"), slow=B).why == "b: short of disk"


def test_no_copy_is_begun_on_a_node_that_is_short_and_those_that_are_there_stay() -> None:
    assert begins(ALL, nodes(A, "a/1 b/1", short="b"), lambda _: 0).view is None
    view = proposed(step(first_view(A), ALL, nodes(A, short="b")))
    assert view.members == [A, C]
    assert step(view, ALL, nodes(A, short="b")).view is None
    assert proposed(step(first_view(A), TWO, nodes(A, short="b"))).members == [A, C]
    two = first_view(A).with_member(B).with_synced(B)
    assert step(two, TWO, nodes(A, short="b")).view is None
    there = two.went_down(graceful=False).promoted("a/2", heard_all=False, graceful=False)
    assert step(there, ALL, nodes("a/2", "a/2 b/1", short="b")).view is None, "it is kept"
    assert proposed(step(there, ALL, nodes("a/2", "a/2 b/1"))).members == ["a/2", B]


def test_the_master_says_who_has_everything() -> None:
    assert proposed(step(trio(), ALL, nodes(A), complete=C)).synced == [A, B, C]


def test_one_that_is_not_wanted_goes_with_its_copy() -> None:
    view = proposed(step(trio(), TWO, nodes(A)))
    assert (view.members, view.recoverable) == ([A, B], {})


def test_a_copy_of_an_earlier_life_that_is_not_wanted_is_forgotten() -> None:
    view = first_view(A).with_member(B).with_synced(B).with_member(C).without(C)
    assert view.counts_on("c")
    assert not proposed(step(view, TWO, nodes(A))).counts_on("c")
    assert step(view, TWO, nodes(A, "a/1 b/1")).view is None


def test_a_master_that_is_not_on_the_list_hands_over_and_goes() -> None:
    view = proposed(step(trio(), ON_B, nodes(A)))
    assert (view.master, view.members, view.former, view.heard_all) == (B, [B, C, A], A, True)
    view = proposed(step(view, ON_B, nodes(B)))
    assert view.members == [B, A]
    assert proposed(step(view, ON_B, nodes(B))).members == [B]


def test_a_drained_node_hands_over_to_one_that_is_not() -> None:
    view = trio().with_synced(C)
    assert proposed(step(view, ALL, nodes(A, drained="a b"))).master == C
    assert step(view, ALL, nodes(A, drained="a b c")).view is None


def test_nobody_mirrors_it_any_more() -> None:
    found = step(trio().without(B).without(C), NO_MIRRORS, nodes(A))
    assert (proposed(found).term, found.ends_group) == (2, True)
    alone = nodes(A, "a/1")
    assert step(proposed(found), NO_MIRRORS, alone, has_ring=False).view is None


def test_the_eldest_synced_one_promotes_itself() -> None:
    there = "b/1 c/1"
    view = proposed(step(trio().with_synced(C), ALL, nodes(B, there)))
    assert (view.master, view.term, view.synced, view.heard_all) == (B, 2, [B, C], True)
    assert step(trio().with_synced(C), ALL, nodes(C, there)).view is None


def test_where_nobody_may_be_promoted_the_first_node_says_that_it_is_down() -> None:
    there = "a/2 c/1"  # b is gone too, c lacks messages
    view = proposed(step(trio(), ALL, nodes("a/2", there)))
    assert (view.master, view.former, view.graceful) == ("", A, False)
    assert view.recoverable == {"a": "synced", "b": "synced", "c": "partial"}
    assert step(trio(), ALL, nodes(C, there)).view is None
    view = proposed(step(trio(), ALWAYS, nodes(C, there)))
    assert (view.master, view.synced, view.heard_all) == (C, [C], False)


def down() -> QueueView:
    return trio().went_down(graceful=False)


def test_the_former_master_comes_back() -> None:
    view = proposed(step(down(), ALL, nodes("a/2", "a/2 b/2 c/1")))
    assert (view.master, view.members, view.term) == ("a/2", ["a/2"], 2)
    assert step(down(), ALL, nodes("b/2", "a/2 b/2 c/1")).view is None


def test_others_give_it_thirty_seconds() -> None:
    there = nodes("b/2", "b/2 c/1")  # since 0
    waits = step(down(), ALL, there, wall_ms=29_999)
    assert (waits.view, waits.look_again) == (None, True)
    assert proposed(step(down(), ALL, there, wall_ms=30_000)).master == "b/2"
    assert step(down(), ALL, nodes(C, "b/2 c/1"), wall_ms=30_000).view is None


def test_who_came_back_without_its_copy_says_so() -> None:
    view = proposed(step(down(), ALL, nodes("a/2", "a/2"), has_copy=False))
    assert sorted(view.recoverable) == ["b", "c"]


def test_a_stopping_master_hands_over_or_takes_the_queue_down() -> None:
    view = proposed(when_stopping(trio(), ALL, nodes(A)))
    assert (view.master, view.graceful, view.heard_all) == (B, True, True)
    assert view.recoverable == {"a": "partial"}
    view = proposed(when_stopping(trio(), ALL, nodes(A, "a/1 c/1")))
    assert (view.master, view.graceful) == ("", True)


def test_a_life_that_is_over_decides_nothing() -> None:
    for view in (trio(), down()):
        assert step(view, ALL, nodes("a/0")).view is None
