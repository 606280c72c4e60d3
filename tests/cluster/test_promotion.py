"""Who becomes master: every combination, against the promises and not against the code.

The rules are asked of all views with up to two mirrors, all subsets of the living, both ways of
going and every pair of policies; what is expected is said once more, in other words.
"""

from __future__ import annotations

from itertools import chain, combinations, product

import pytest

from penstock.cluster.promotion import (
    DOWN,
    PROMOTE,
    RETURN_WAIT_MS,
    WAIT,
    when_master_goes,
    when_some_return,
)
from penstock.cluster.queue_views import QueueView, first_view

MASTER, ELDER, YOUNGER = "a@h/1", "b@h/1", "c@h/1"
RULES = ("when-synced", "always")


def subsets(of: tuple[str, ...]) -> list[tuple[str, ...]]:
    return list(chain.from_iterable(combinations(of, size) for size in range(len(of) + 1)))


def view_of(mirrors: tuple[str, ...], synced: tuple[str, ...]) -> QueueView:
    view = first_view(MASTER)
    for mirror in mirrors:
        view = view.with_member(mirror)
    for mirror in synced:
        view = view.with_synced(mirror)
    return view


GOING = [
    (mirrors, synced, live, on_failure, on_shutdown, graceful)
    for mirrors in subsets((ELDER, YOUNGER))
    for synced in subsets(mirrors)
    for live in subsets(mirrors)
    for on_failure, on_shutdown, graceful in product(RULES, RULES, (False, True))
]


@pytest.mark.parametrize("mirrors, synced, live, on_failure, on_shutdown, graceful", GOING)
def test_the_master_goes(
    mirrors: tuple[str, ...],
    synced: tuple[str, ...],
    live: tuple[str, ...],
    on_failure: str,
    on_shutdown: str,
    graceful: bool,
) -> None:
    view = view_of(mirrors, synced)
    decision = when_master_goes(view, live, on_failure, on_shutdown, graceful=graceful)
    rule = on_shutdown if graceful else on_failure
    complete = [one for one in mirrors if one in synced and one in live]
    if complete:
        assert (decision.kind, decision.who) == (PROMOTE, complete[0])
        assert decision.heard_all
    elif live and rule == "always":
        assert (decision.kind, decision.who) == (PROMOTE, live[0])
        assert not decision.heard_all
    else:
        assert (decision.kind, decision.who) == (DOWN, "")
    assert decision.why


def test_there_are_as_many_combinations_as_that() -> None:
    """Of no mirror 1, of one 4 each, of two 16, times eight ways of being asked."""
    assert len(GOING) == (1 + 4 + 4 + 16) * 8


@pytest.mark.parametrize("graceful", [False, True])
def test_k3_what_is_not_synchronised_is_promoted_only_if_always_is_said(graceful: bool) -> None:
    view = view_of((ELDER, YOUNGER), (YOUNGER,))
    for on_failure, on_shutdown in product(RULES, RULES):
        decision = when_master_goes(
            view, {ELDER, YOUNGER}, on_failure, on_shutdown, graceful=graceful
        )
        assert decision.who == YOUNGER


RETURNING = [
    (graceful, returned, waited_ms, on_failure, on_shutdown)
    for graceful in (False, True)
    for returned in subsets(("a@h", "b@h", "c@h", "stranger@h"))
    for waited_ms in (0, RETURN_WAIT_MS - 1, RETURN_WAIT_MS)
    for on_failure, on_shutdown in product(RULES, RULES)
]


@pytest.mark.parametrize("graceful, returned, waited_ms, on_failure, on_shutdown", RETURNING)
def test_some_return(
    graceful: bool, returned: tuple[str, ...], waited_ms: int, on_failure: str, on_shutdown: str
) -> None:
    """a was the master, b had everything, c had not."""
    view = view_of((ELDER, YOUNGER), (ELDER,)).went_down(graceful=graceful)
    decision = when_some_return(view, "a@h", returned, waited_ms, on_failure, on_shutdown)
    rule = on_shutdown if graceful else on_failure
    late = waited_ms >= RETURN_WAIT_MS
    if "a@h" in returned:
        assert (decision.kind, decision.who) == (PROMOTE, "a@h")
    elif "b@h" in returned:
        assert (decision.kind, decision.who) == ((PROMOTE, "b@h") if late else (WAIT, ""))
    elif "c@h" in returned and rule == "always" and late:
        assert (decision.kind, decision.who) == (PROMOTE, "c@h")
    else:
        assert (decision.kind, decision.who) == (WAIT, "")
    assert not decision.heard_all


def test_a_mirror_that_went_before_the_end_is_behind() -> None:
    """It was synced when it went; the queue went on without it."""
    view = view_of((ELDER, YOUNGER), (ELDER, YOUNGER)).without(ELDER).went_down(graceful=False)
    late = RETURN_WAIT_MS
    asked = ("when-synced", "when-synced")
    assert when_some_return(view, "a@h", ["b@h"], late, *asked).kind == WAIT
    decision = when_some_return(view, "a@h", ["b@h", "c@h"], late, *asked)
    assert (decision.kind, decision.who) == (PROMOTE, "c@h")
