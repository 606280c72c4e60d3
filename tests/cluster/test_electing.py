"""Which view of a queue with a majority comes next, and which copy proposes it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.cluster.agreement.living_nodes import LivingNodes
from penstock.cluster.agreement.queue_views import QueueView, first_ruled_view
from penstock.cluster.agreement.reigns import Holding, Position, Reign
from penstock.cluster.mirrors.deciding import Step
from penstock.cluster.mirrors.electing import next_step_of_reign
from penstock.cluster.mirrors.safety import NOTHING_KNOWN, MirrorStates
from tests.cluster.test_mirror_deciding import nodes, proposed

A, B, C = "a/1", "b/1", "c/1"
CHANGES = MirrorStates([], [], [], may_change=True)


def exact(term: int, number: int) -> Holding:
    return Holding(Position(term, number), Position(term, number))


SOME = exact(1, 5)


def reign_of(view: QueueView) -> Reign:
    assert view.reign is not None
    return view.reign


def step(
    view: QueueView,
    there: LivingNodes,
    holding: Holding | None = SOME,
    mirrors: MirrorStates = NOTHING_KNOWN,
    trouble: str = "",
    *,
    is_missed: bool = False,
) -> Step:
    reign = reign_of(view)
    return next_step_of_reign(view, reign, there, holding, mirrors, trouble, is_missed=is_missed)


def trio() -> QueueView:
    return _founded(first_ruled_view(A, ("a", "b", "c"), ("a", "b", "c")))


def _founded(view: QueueView) -> QueueView:
    assert view.reign is not None
    return replace(view, reign=view.reign.founded())


WITHOUT_A = "b/1 c/1"


def test_while_the_master_lives_no_copy_does_anything() -> None:
    for here in (A, B, C):
        assert step(trio(), nodes(here), mirrors=CHANGES) == Step()


def test_two_votes_are_an_election() -> None:
    first = step(trio(), nodes(B, WITHOUT_A), exact(1, 5))
    assert first.seals
    view = proposed(first)
    assert (view.term, view.master, view.former) == (2, "", A)
    waiting = step(view, nodes(B, WITHOUT_A))
    assert waiting.view is None
    assert (waiting.why, waiting.look_again) == ("1 of 3 copies have voted", True)
    last = step(view, nodes(C, WITHOUT_A), exact(1, 4))
    assert (proposed(last).master, last.seals) == (B, True)
    assert "elected b/1" in last.why


def test_a_copy_without_a_vote_waits() -> None:
    assert step(trio(), nodes("d/1", "b/1 c/1 d/1")) == Step(), "it is none"
    nowhere = step(trio(), nodes(B, WITHOUT_A), None)
    assert (nowhere.view, nowhere.look_again) == (None, True)
    assert step(trio(), nodes("b/2", WITHOUT_A)) == Step(), "this life is over"


def test_another_life_votes_anew() -> None:
    view = proposed(step(trio(), nodes(B, WITHOUT_A), exact(1, 5)))
    again = proposed(step(view, nodes("b/2", "b/2 c/1"), exact(1, 3)))
    assert [vote.member for vote in reign_of(again).votes] == ["b/2"]
    former = proposed(step(again, nodes("a/2", "a/2 b/2"), exact(1, 4)))
    assert former.master == "a/2"


@pytest.mark.parametrize("unreached, is_proposed", [("c", True), ("a c", False)])
def test_a_copy_that_reaches_no_majority_does_not_vote(unreached: str, is_proposed: bool) -> None:
    view = trio().ruled(reign_of(trio()).vacated())
    found = step(view, nodes(B, unreached=unreached))
    assert (found.view is not None) == is_proposed
    assert is_proposed or found.why == "b reaches fewer than 2 of a, b, c"


def test_a_master_that_reaches_no_majority_steps_down_if_others_can_decide() -> None:
    found = step(trio(), nodes(A, unreached="b c"))
    assert found.seals
    assert (proposed(found).term, proposed(found).master) == (2, "")
    assert step(trio(), nodes(A, unreached="b")) == Step(), "a and c decide"
    assert step(trio(), nodes(A, "a/1 b/1", unreached="b")) == Step(), "no others decide"
    assert step(trio(), nodes(A, "a/1")) == Step()


@pytest.mark.parametrize(
    "unheard, is_lost",
    [("b:a", False), ("c:a", False), ("b:a c:a", True), ("a:b a:c", True), ("b:a a:c", True)],
)
def test_a_master_that_no_majority_hears_is_not_waited_for(unheard: str, is_lost: bool) -> None:
    """Nor one that hears none, for it gets no answers."""
    found = step(trio(), nodes(B, unheard=unheard))
    assert (found.view is not None) == is_lost
    assert found.seals == is_lost
    five = tuple("abcde")
    lives = "a/1 b/1 c/1 d/1 e/1"
    found = step(first_ruled_view(A, five, five), nodes(B, lives, unheard=unheard))
    assert found.view is None, "a majority of five hears it"
    found = step(first_ruled_view(A, five, five), nodes(B, "a/1 b/1 d/1", unheard="b:a"))
    assert found.view is not None, "c and e do not run, and b does not hear it"


def test_a_queue_is_founded_before_its_copies_change() -> None:
    """By its master, when a majority of the disks has what it began with."""
    trio_and_more = first_ruled_view(A, ("a", "b"), ("a", "b", "c"))
    complete = NOTHING_KNOWN._replace(complete=["c/1"])
    assert step(trio_and_more, nodes(A), mirrors=complete).view is None
    able = complete._replace(may_change=True)
    founded = proposed(step(trio_and_more, nodes(A), mirrors=able))
    assert founded.reign is not None
    assert (founded.reign.is_founded, founded.reign.copies) == (True, ("a", "b"))
    changed = proposed(step(founded, nodes(A), mirrors=able)).reign
    assert changed is not None
    assert (changed.is_founded, changed.copies) == (True, ("a", "b", "c"))


def test_a_drained_node_leaves_it_to_others() -> None:
    follow = NOTHING_KNOWN._replace(following=("b", "c"))
    vacated = proposed(step(trio(), nodes(A, drained="a"), mirrors=follow))
    assert (vacated.master, reign_of(vacated).votes) == ("", ())
    assert step(vacated, nodes(A, drained="a")).view is None
    view = proposed(step(vacated, nodes(B, drained="a"), exact(1, 3)))
    assert proposed(step(view, nodes(C, drained="a"), exact(1, 4))).master == C
    alone = step(trio(), nodes(A, drained="a b"), mirrors=follow)
    assert alone == Step(), "c alone decides nothing"


def test_a_drained_node_keeps_a_queue_whose_other_copies_are_not_complete() -> None:
    """And votes, if those elect none for long."""
    follow = NOTHING_KNOWN._replace(following=("b",))
    assert step(trio(), nodes(A, drained="a"), mirrors=follow) == Step()
    vacated = trio().ruled(reign_of(trio()).vacated())
    assert step(vacated, nodes(A, drained="a")).view is None
    votes = step(vacated, nodes(A, drained="a"), is_missed=True)
    assert [vote.member for vote in reign_of(proposed(votes)).votes] == [A]


def test_a_master_hands_over_when_no_copy_has_more_than_the_favoured_one() -> None:
    view = trio().ruled(reign_of(trio()).favouring("c"))
    follow = NOTHING_KNOWN._replace(following=("b", "c"))
    assert step(view, nodes(A), mirrors=follow) == Step()
    vacated = proposed(step(view, nodes(A), mirrors=follow._replace(is_level=True)))
    assert (vacated.master, reign_of(vacated).favoured) == ("", "c")
    left = step(vacated, nodes(A))
    assert (left.view, left.why) == (None, "it is handed over to c")
    assert step(vacated, nodes(A), is_missed=True).view is not None
    voting = proposed(step(vacated, nodes(B)))
    assert proposed(step(voting, nodes(C))).master == C
    fetching = NOTHING_KNOWN._replace(following=("b",), is_level=True)
    assert step(view, nodes(A), mirrors=fetching) == Step(), "c is not complete"
    gone = proposed(step(view, nodes(A, "a/1 b/1"), mirrors=follow))
    assert (gone.master, reign_of(gone).favoured) == (A, "")


def test_a_copy_that_was_sealed_for_a_refused_vote_votes_again() -> None:
    """Though the master is heard again: it would follow it no more."""
    view, there = trio(), nodes(B)
    assert next_step_of_reign(view, reign_of(view), there, SOME, NOTHING_KNOWN, "") == Step()
    bound = next_step_of_reign(view, reign_of(view), there, SOME, NOTHING_KNOWN, "", is_bound=True)
    assert [vote.member for vote in reign_of(proposed(bound)).votes] == [B]


def test_a_master_in_trouble_steps_down() -> None:
    found = step(trio(), nodes(A), trouble="its disk is gone")
    assert (proposed(found).master, found.why, found.seals) == ("", "its disk is gone", True)


def test_a_wanted_node_votes_when_it_has_everything() -> None:
    view = trio().wanting(("a", "b", "c", "d"))
    there = nodes(A, "a/1 b/1 c/1 d/3")
    assert step(view, there, mirrors=CHANGES) == Step()
    learned = CHANGES._replace(complete=["d/3"])
    found = step(view, there, mirrors=learned)
    assert reign_of(proposed(found)).copies == ("a", "b", "c", "d")
    assert not found.seals
    early = learned._replace(may_change=False)
    assert step(view, there, mirrors=early) == Step(), "what was confirmed before comes first"
    assert step(trio(), there, mirrors=learned) == Step(), "it is not wanted any more"


def test_a_copy_that_is_not_wanted_goes_and_the_masters_stays() -> None:
    view = trio().wanting(("c",))
    follow = CHANGES._replace(following=("b", "c"))
    one = proposed(step(view, nodes(A), mirrors=follow))
    assert reign_of(one).copies == ("a", "c")
    assert step(one, nodes(A), mirrors=follow) == Step()
    early = CHANGES._replace(following=("b",))
    assert step(view, nodes(A), mirrors=early) == Step(), "c could not vote yet"
    assert step(view, nodes(A)) == Step()
