"""``Reign`` by itself, against the definitions; and the small world of five copies by chance.

All states of three copies are visited by test_majority_model.py.
"""

from __future__ import annotations

import random
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.agreement.coordinator import node_of
from penstock.cluster.agreement.reigns import (
    BEGINNING,
    ENDS_KEPT,
    FETCH,
    GIVE_UP,
    GO_ON,
    NOWHERE,
    Holding,
    Position,
    Reign,
    first_reign,
    gave_up_for,
)
from tests.models.judge_majority import judge, judge_confirm, judge_progress
from tests.models.model_majority import Rules, Scope, first_world, steps

NODES = ("a", "b", "c", "d", "e")


def exact(term: int, number: int) -> Holding:
    return Holding(Position(term, number), Position(term, number))


def elected(reign: Reign, *votes: tuple[str, Holding]) -> Reign:
    for member, holding in votes:
        reign = reign.voted(member, holding)
        reign.check()
    return reign


@given(st.integers(1, 5), st.dictionaries(st.sampled_from([*NODES, "x"]), st.integers(0, 4)))
def test_a_number_is_decided_when_a_majority_has_it(count: int, durable: dict[str, int]) -> None:
    """A node that is no copy does not count, a copy that said nothing has nothing."""
    copies = NODES[:count]
    decided = first_reign(copies, "a/1").decided_number(durable)

    def have(number: int) -> int:
        return len([node for node in copies if durable.get(node, -1) >= number])

    assert have(decided) * 2 > count
    assert have(decided + 1) * 2 <= count


@given(st.integers(1, 5), st.dictionaries(st.sampled_from(NODES), st.integers(0, 4)))
def test_a_copy_is_spared_when_each_majority_with_it_has_another_one(
    count: int, durable: dict[str, int]
) -> None:
    copies = NODES[:count]
    reign = first_reign(copies, "a/1")
    spared = copies[-1]
    others = {node: number for node, number in durable.items() if node != spared}
    majorities = [set(found) for found in combinations(copies, reign.majority()) if spared in found]
    for confirmed in range(4):
        have = {node for node in copies if others.get(node, -1) >= confirmed}
        expected = all(found & have for found in majorities)
        assert reign.founded().may_spare(others, confirmed) == expected
        assert not reign.may_spare(others, confirmed), "before it is founded"


holdings = st.builds(
    lambda position, more: Holding(Position(*position), Position(*max(position, more))),
    st.tuples(st.integers(0, 1), st.integers(0, 3)),
    st.tuples(st.integers(0, 1), st.integers(0, 3)),
)


@given(st.lists(st.tuples(st.sampled_from(NODES), st.integers(1, 2), holdings), max_size=9))
def test_the_foremost_of_a_majority_is_elected(votes: list[tuple[str, int, Holding]]) -> None:
    """Of a copy that voted again the last vote counts; no copy is master before three voted."""
    reign = first_reign(NODES, "a/0")
    standing: dict[str, tuple[str, Holding]] = {}
    for node, life, holding in votes:
        reign = reign.voted(f"{node}/{life}", holding)
        reign.check()
        standing[node] = f"{node}/{life}", holding
        assert reign.term == 2
        if len(standing) < 3:
            assert reign.master == ""
            continue
        most = max(holding.complete for _, holding in standing.values())
        member, chosen = standing[node_of(reign.master)]
        assert reign.master == member
        assert chosen.complete == most == reign.ends[-1]
        assert reign.is_exact == chosen.is_exact()
        others = [one for _, one in standing.values() if one.complete == most]
        assert chosen.heard == max(one.heard for one in others)
        return


def test_the_first_vote_begins_a_term_and_more_join_it() -> None:
    reign = first_reign(NODES[:3], "a/1")
    voting = reign.voted("b/1", exact(1, 4))
    assert (voting.term, voting.master) == (2, "")
    assert elected(voting, ("c/1", exact(1, 5)))[:3] == (2, NODES[:3], "c/1")


def test_a_copy_follows_by_what_it_heard() -> None:
    """Two terms with a master each, and what c, which was away, has by then."""
    reign = elected(first_reign(NODES[:3], "a/1"), ("b/1", exact(1, 4)), ("a/2", exact(1, 3)))
    reign = elected(reign, ("b/2", exact(2, 7)), ("a/2", exact(2, 6)))
    assert (reign.term, reign.ends) == (3, (BEGINNING, Position(1, 4), Position(2, 7)))
    followed = {
        exact(2, 7): GO_ON,
        exact(2, 6): FETCH,
        exact(2, 8): GIVE_UP,
        exact(1, 4): FETCH,
        exact(1, 5): GIVE_UP,
        Holding(Position(1, 4), Position(2, 7)): FETCH,
        Holding(Position(1, 4), Position(2, 8)): GIVE_UP,
        Holding(NOWHERE, Position(3, 9)): FETCH,
        Holding(NOWHERE, BEGINNING): FETCH,
        Holding(NOWHERE, Position(0, 1)): GIVE_UP,
    }
    assert {one: reign.how_to_follow(one) for one in followed} == followed


def test_no_copy_goes_on_under_a_master_that_may_have_more() -> None:
    """It came back with part of parcel 5, which is in no copy's position."""
    torn = Holding(Position(1, 4), Position(1, 5))
    reign = elected(first_reign(NODES[:3], "a/1"), ("a/2", torn), ("b/1", exact(1, 3)))
    assert reign.master == "a/2"
    assert reign.how_to_follow(exact(1, 4)) == FETCH


def test_of_two_copies_with_as_much_the_one_that_heard_more_is_elected() -> None:
    """The other one need not give up what it has."""
    torn = Holding(Position(1, 4), Position(1, 5))
    reign = elected(first_reign(NODES[:3], "a/1"), ("b/2", torn), ("a/2", exact(1, 4)))
    assert (reign.master, reign.how_to_follow(exact(1, 4))) == ("b/2", FETCH)


def test_of_copies_with_as_much_the_favoured_one_is_elected() -> None:
    voting = first_reign(NODES[:3], "a/1").favouring("c").vacated()
    same = elected(voting, ("b/1", exact(1, 4)), ("c/1", exact(1, 4)))
    assert (same.master, same.favoured) == ("c/1", "")
    with_more = elected(voting, ("b/1", exact(1, 5)), ("c/1", exact(1, 4)))
    assert (with_more.master, with_more.favoured) == ("b/1", "c"), "it is still to be handed over"


def test_a_copy_that_gave_up_makes_a_majority_with_one_of_that_term_or_later() -> None:
    """Beside one of an earlier term it waits for more votes."""
    nothing = Holding(gave_up_for(2), BEGINNING)
    reign = elected(first_reign(NODES[:3], "a/1"), ("b/1", exact(1, 4)), ("c/1", exact(1, 3)))
    by_its_term = elected(reign, ("a/1", nothing), ("b/2", exact(2, 0)))
    assert (by_its_term.master, by_its_term.ends[-1]) == ("b/2", Position(2, 0))
    waits = elected(reign, ("a/1", nothing), ("c/1", exact(1, 9)))
    assert (waits.term, waits.master, len(waits.votes)) == (3, "", 2)
    assert elected(waits, ("b/2", exact(2, 0))).master == "b/2"
    assert elected(reign, ("a/1", nothing), ("c/1", nothing)).master == ""


def test_a_term_that_was_passed_over_counts_again_if_its_copy_is_elected() -> None:
    """b's term 2 was unknown to a and c; when b is elected later, what led to it is not known."""
    reign = elected(first_reign(NODES[:3], "a/1"), ("b/1", exact(1, 2)), ("c/1", exact(1, 2)))
    passed_over = elected(reign, ("a/2", exact(1, 3)), ("c/1", exact(1, 2)))
    assert passed_over.ends == (BEGINNING, Position(1, 3))
    assert passed_over.how_to_follow(exact(2, 1)) == GIVE_UP
    again = elected(passed_over, ("b/2", exact(2, 1)), ("c/1", exact(1, 2)))
    assert (again.master, again.ends) == ("b/2", (Position(2, 1),))
    assert again.how_to_follow(exact(1, 2)) == GIVE_UP


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 9)), max_size=30))
def test_no_copy_keeps_what_does_not_count(elections: list[tuple[int, int]]) -> None:
    """Each term's master was elected with any position there was: a tree, and reigns know the path.

    ``FETCH`` is said only of positions on it.
    """
    reign = first_reign(("a",), "a/1")
    parents: dict[int, Position] = {1: BEGINNING}
    for number, (term, parcels) in enumerate(elections):
        base = Position(1 + term % reign.term, parcels)
        reign = elected(reign, (f"a/{number + 2}", Holding(base, base)))
        parents[reign.term] = base
    path = {}
    term = reign.term
    while term:
        path[parents[term].term] = parents[term].number
        term = parents[term].term
    for heard_term in range(1, reign.term):
        for number in range(11):
            counts = number <= path.get(heard_term, -1)
            how = reign.how_to_follow(Holding(NOWHERE, Position(heard_term, number)))
            assert how == GIVE_UP or counts
    assert len(reign.ends) <= ENDS_KEPT


@pytest.mark.parametrize("seed", range(10))
def test_five_copies_by_chance(seed: int) -> None:
    scope = Scope(nodes=5, copies=4, messages=6, ends=3, elections=5, crashes=6, changes=4)
    chance, rules = random.Random(seed), Rules()
    for _ in range(4):
        world = first_world(scope)
        for _ in range(150):
            ways = list(steps(world, scope, rules))
            if not ways:
                break
            before, (_, world) = world, chance.choice(ways)
            judge_confirm(before, world)
            judge(before, world)
        judge_progress(world, rules, set())
