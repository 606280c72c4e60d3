"""Who becomes master: every combination, against the promises and not against the code.

First as a table to read, of a queue with a master A and at most one mirror B.  Then the rules are
asked of all views with up to two mirrors, all subsets of the living, both ways of going and every
pair of policies; what is expected is said once more, in other words.
"""

from __future__ import annotations

import re
from itertools import chain, combinations, permutations, product

import pytest

from penstock.cluster.agreement.queue_views import QueueView, first_view
from penstock.cluster.mirrors.promotion import (
    DOWN,
    PROMOTE,
    RETURN_WAIT_MS,
    WAIT,
    when_master_goes,
    when_some_return,
)

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


TABLE = """
    mirror B            rule          at once    then, while down: who is back, and who is master
                                                 nobody  B, soon  B, later  A, or both
    synced              when-synced   B
    synced              always        B
    not synced          when-synced   down       -       -        -         A
    not synced          always        B, lacks
    synced, lost too    when-synced   down       -       -        B         A
    synced, lost too    always        down       -       -        B         A
    not synced, lost    when-synced   down       -       -        -         A
    not synced, lost    always        down       -       -        B, lacks  A
    none                when-synced   down       -       -        -         A
    none                always        down       -       -        -         A
"""
"""The rule is that of the way in which the master went; the other one has no say.

``lacks``: it may lack what was confirmed.  ``lost``: its node went with the master's.  Later is
30 s after the first of them was back.  Not synced, and not lost: the node is there all the time.
"""
ROWS = [re.split(r"  +", line.strip()) for line in TABLE.strip().splitlines()[2:]]


@pytest.mark.parametrize("graceful, other_rule", list(product((False, True), RULES)))
@pytest.mark.parametrize("row", ROWS, ids=[" ".join(row[:2]) for row in ROWS])
def test_one_mirror(row: list[str], graceful: bool, other_rule: str) -> None:
    mirror, rule, at_once, *then = row
    on_failure, on_shutdown = (other_rule, rule) if graceful else (rule, other_rule)
    view = first_view(MASTER)
    if mirror != "none":
        view = view.with_member(ELDER)
    if mirror.startswith("synced"):
        view = view.with_synced(ELDER)
    live = {ELDER} if mirror in ("synced", "not synced") else set()
    decision = when_master_goes(view, live, on_failure, on_shutdown, graceful=graceful)
    if at_once != "down":
        assert (decision.kind, decision.who) == (PROMOTE, ELDER)
        after = view.promoted(decision.who, heard_all=decision.heard_all, graceful=graceful)
        lacks = ELDER not in view.synced
        assert at_once == ("B, lacks" if lacks else "B")
        assert decision.heard_all == (not lacks)
        assert (after.master, after.synced) == (ELDER, [ELDER])
        assert then == []
        return
    assert (decision.kind, decision.who) == (DOWN, "")
    down = view.went_down(graceful=graceful)
    a, b, soon, later = "a@h", "b@h", RETURN_WAIT_MS - 1, RETURN_WAIT_MS

    def master(*back: str, after_ms: int) -> str:
        found = when_some_return(down, a, back, after_ms, on_failure, on_shutdown)
        if found.kind == WAIT:
            return "-"
        assert not found.heard_all
        return {a: "A", b: "B" if ELDER in view.synced else "B, lacks"}[found.who]

    told = [
        master(after_ms=later),
        master(b, after_ms=soon),
        master(b, after_ms=later),
        master(a, after_ms=0),
    ]
    assert told == then
    for back in ((a, b), (b, a)):
        assert {master(*back, after_ms=ms) for ms in (0, soon, later)} == {then[-1]}


def test_a_former_master_that_has_lost_its_copy_is_not_waited_for() -> None:
    """No other node can bring more than a synchronised copy has."""
    down = first_view(MASTER).with_member(ELDER).with_synced(ELDER).went_down(graceful=False)
    back = ("a@h", "b@h")
    decision = when_some_return(down.forgot("a@h"), "a@h", back[1:], 0, *RULES)
    assert (decision.kind, decision.who) == (PROMOTE, "b@h")
    assert decision.why == "the former master has lost its copy"
    assert when_some_return(down, "a@h", back[1:], 0, *RULES).kind == WAIT
    behind = first_view(MASTER).with_member(ELDER).went_down(graceful=False).forgot("a@h")
    assert when_some_return(behind, "a@h", back[1:], 0, "always", "always").kind == WAIT
    assert when_some_return(behind, "a@h", back[1:], 0, *RULES).kind == WAIT


def test_the_table_has_every_combination() -> None:
    mirrors = ("synced", "not synced", "synced, lost too", "not synced, lost", "none")
    assert [tuple(row[:2]) for row in ROWS] == list(product(mirrors, RULES))


def test_while_a_queue_is_down_the_policy_may_change() -> None:
    """What holds is what the policy says when somebody has to be chosen."""
    down = first_view(MASTER).with_member(ELDER).went_down(graceful=False)
    late = RETURN_WAIT_MS
    assert when_some_return(down, "a@h", ["b@h"], late, "when-synced", "always").kind == WAIT
    decision = when_some_return(down, "a@h", ["b@h"], late, "always", "when-synced")
    assert (decision.kind, decision.who) == (PROMOTE, "b@h")


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
    (synced, graceful, returned, waited_ms, on_failure, on_shutdown)
    for synced in subsets((ELDER, YOUNGER))
    for graceful in (False, True)
    for some in subsets(("a@h", "b@h", "c@h", "stranger@h"))
    for returned in permutations(some)
    for waited_ms in (0, RETURN_WAIT_MS - 1, RETURN_WAIT_MS)
    for on_failure, on_shutdown in product(RULES, RULES)
]


def test_some_return() -> None:
    """a was the master, b and c its mirrors; who is back is told in the order in which they came.

    There are too many combinations for a test of its own each.
    """
    for synced, graceful, returned, waited_ms, on_failure, on_shutdown in RETURNING:
        view = view_of((ELDER, YOUNGER), synced).went_down(graceful=graceful)
        decision = when_some_return(view, "a@h", returned, waited_ms, on_failure, on_shutdown)
        rule = on_shutdown if graceful else on_failure
        late = waited_ms >= RETURN_WAIT_MS
        complete = [one for one in returned if f"{one}/1" in synced]
        others = [one for one in returned if one in ("b@h", "c@h")]
        if "a@h" in returned:
            wanted = (PROMOTE, "a@h")
        elif complete:
            wanted = (PROMOTE, complete[0]) if late else (WAIT, "")
        elif others and rule == "always" and late:
            wanted = (PROMOTE, others[0])
        else:
            wanted = (WAIT, "")
        asked = (synced, graceful, returned, waited_ms, on_failure, on_shutdown)
        assert (decision.kind, decision.who) == wanted, asked
        assert not decision.heard_all, asked
        assert decision.why, asked


def test_there_are_as_many_returns_as_that() -> None:
    """Of four nodes 65 orders of some of them; four sets of synced mirrors, 24 ways of asking."""
    assert len(RETURNING) == 65 * 4 * 24


def test_a_mirror_that_went_before_the_end_is_behind() -> None:
    """It was synced when it went; the queue went on without it."""
    view = view_of((ELDER, YOUNGER), (ELDER, YOUNGER)).without(ELDER).went_down(graceful=False)
    late = RETURN_WAIT_MS
    asked = ("when-synced", "when-synced")
    assert when_some_return(view, "a@h", ["b@h"], late, *asked).kind == WAIT
    decision = when_some_return(view, "a@h", ["b@h", "c@h"], late, *asked)
    assert (decision.kind, decision.who) == (PROMOTE, "c@h")
