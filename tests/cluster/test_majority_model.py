"""The lemmas of reigns.py in every state of small worlds, and that each rule is needed."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import pytest
from hypothesis import settings

from penstock.cluster.agreement.coordinator import node_of
from penstock.cluster.agreement.reigns import (
    FETCH,
    GIVE_UP,
    GO_ON,
    NOWHERE,
    Holding,
    Reign,
    Vote,
)
from tests.models.judge_majority import Broken, judge, judge_confirm, judge_progress
from tests.models.model_majority import Rules, Scope, World, first_world, steps

SMALL = Scope(messages=1, crashes=0)
TWO = Scope(messages=2, crashes=0)
CRASHES = Scope(messages=1, crashes=1)
ENDS = Scope(messages=1, ends=1, crashes=0)
CHANGES = Scope(messages=1, crashes=0, changes=2)
DAMAGES = Scope(messages=1, crashes=0, damages=1)
STEPS_DOWN = Scope(messages=1, crashes=0, vacancies=1)
ELECTIONS = Scope(messages=2, crashes=0, elections=2)
LOSES = Scope(messages=1, crashes=0, losses=1)
FOUNDING = Scope(nodes=2, copies=2, messages=1, crashes=1, founded=False)
FOUNDING_LOSES = Scope(messages=1, crashes=0, losses=1, founded=False)


def explore(
    scope: Scope, rules: Rules, lemma: str = "Lemma", chance: random.Random | None = None
) -> int:
    """How many worlds there are, each of them judged.

    Raises Broken, with the way to a bad one, if what does not hold is that ``lemma``: the shortest
    way, or with ``chance`` any, which is found among a tenth of the worlds.
    """
    first = first_world(scope)
    came_from: dict[World, tuple[World, str] | None] = {first: None}
    proven: set[tuple[World, tuple[int, ...]]] = set()
    waiting = [first]
    place = 0
    while place < len(waiting):
        if chance is not None:
            other = chance.randrange(place, len(waiting))
            waiting[place], waiting[other] = waiting[other], waiting[place]
        world = waiting[place]
        place += 1
        for name, after in steps(world, scope, rules):
            is_new = after not in came_from
            if is_new:
                came_from[after] = world, name
                waiting.append(after)
            try:
                judge_confirm(world, after)
                if is_new:
                    judge(world, after, rules)
                    judge_progress(after, rules, proven)
            except Broken as broken:
                if str(broken).startswith(lemma):
                    broken.add_note("; ".join([*way_to(world, came_from), name]))
                    raise
    return place


def way_to(world: World, came_from: Mapping[World, tuple[World, str] | None]) -> list[str]:
    names: list[str] = []
    step = came_from[world]
    while step is not None:
        names.append(step[1])
        step = came_from[step[0]]
    return names[::-1]


VISITED = {
    "crashes": CRASHES,
    "losses": LOSES,
    "founding": FOUNDING,
    "changes": Scope(messages=1, crashes=0, changes=1),
    "a master that steps down": STEPS_DOWN,
    "damage in one term": Scope(messages=1, crashes=0, elections=0, damages=1),
}
LARGE = {
    "founding by three": Scope(messages=1, crashes=1, founded=False),
    "founding and losses": FOUNDING_LOSES,
    "ends": ENDS,
    "elections": Scope(messages=1, crashes=0, elections=2),
    "two changes": CHANGES,
    "two messages": TWO,
    "damage": DAMAGES,
    "damage and a change": Scope(messages=1, crashes=0, damages=1, changes=1),
    "damage and crashes": Scope(messages=1, crashes=1, damages=1),
    "damage twice": Scope(messages=1, crashes=0, damages=2),
}
"""Hundreds of thousands of states, or millions."""
ALL = {**VISITED, **LARGE} if settings().max_examples >= 10_000 else VISITED
"""The profile ``nightly`` visits them all."""
SLOW = ("crashes", "losses")


@pytest.mark.parametrize(
    "name",
    [pytest.param(one, marks=pytest.mark.long) if one in SLOW else one for one in ALL],
)
def test_the_lemmas_hold_in_all_states(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    states = explore(ALL[name], Rules())
    with capsys.disabled():
        print(f"\n{name}: {states:,} states")
    assert states > 1000


# -- faults ----------------------------------------------------------------------------------


def elect(reign: Reign, vote: Vote) -> Reign:
    """Whatever the others have."""
    alone = reign._replace(copies=(node_of(vote.member),), votes=())
    return alone.voted(*vote)._replace(copies=reign.copies)


def elects_alone(reign: Reign, member: str, holding: Holding) -> Reign:
    return elect(reign, Vote(member, holding))


def elects_by(rank: Callable[[Vote], tuple[int, ...]]) -> Callable[[Reign, str, Holding], Reign]:
    def voted(reign: Reign, member: str, holding: Holding) -> Reign:
        after = reign.voted(member, holding)
        if after.master == "":
            return after
        others = [vote for vote in reign.votes if node_of(vote.member) != node_of(member)]
        return elect(reign, max([*others, Vote(member, holding)], key=rank))

    return voted


def the_least(vote: Vote) -> tuple[int, ...]:
    return tuple(-number for number in vote.holding.complete)


def whatever_was_given_up(reign: Reign, member: str, holding: Holding) -> Reign:
    """The foremost that is complete, when a majority has voted."""
    after = reign.voted(member, holding)
    others = [vote for vote in reign.votes if node_of(vote.member) != node_of(member)]
    votes = [*others, Vote(member, holding)]
    complete = [vote for vote in votes if vote.holding.is_complete()]
    if after.master or len(votes) < reign.majority() or not complete:
        return after
    return elect(reign, max(complete, key=lambda vote: vote.holding))


def by_number(vote: Vote) -> tuple[int, ...]:
    return (vote.holding.complete.number,)


def by_what_was_heard(vote: Vote) -> tuple[int, ...]:
    return vote.holding.heard


def never_gives_up(reign: Reign, holding: Holding) -> int:
    how = reign.how_to_follow(holding)
    return FETCH if how == GIVE_UP else how


def goes_on_anyway(reign: Reign, holding: Holding) -> int:
    return GO_ON if holding.is_exact() else reign.how_to_follow(holding)


def takes_masters_for_exact(reign: Reign, holding: Holding) -> int:
    return reign._replace(is_exact=True).how_to_follow(holding)


def one_copy_is_enough(reign: Reign, durable: Mapping[str, int]) -> int:
    return max(durable.values(), default=0)


def all_copies_are_needed(reign: Reign, durable: Mapping[str, int]) -> int:
    return min(durable.get(node, 0) for node in reign.copies)


def only_if_complete(holding: Holding) -> Holding | None:
    return holding if holding.complete != NOWHERE else None


def at_once(reign: Reign, durable: Mapping[str, int], confirmed: int) -> bool:
    return True


def before_a_majority_follows(reign: Reign, durable: Mapping[str, int], confirmed: int) -> bool:
    return confirmed == 0 or reign.may_change(durable, confirmed)


FAULTS = {
    "a copy that voted goes on": ("Lemma 1", SMALL, Rules(seals=False)),
    "a master that stepped down goes on": ("Lemma 1", STEPS_DOWN, Rules(seals=False)),
    "a copy says what it has in memory": ("Lemma 2", SMALL, Rules(says_durable=False)),
    "a master counts its own memory": ("Lemma 2", SMALL, Rules(counts_own_disk=False)),
    "a master counts words of another term": ("Lemma 2", TWO, Rules(counts_one_term=False)),
    "one copy is enough": ("Lemma 2", SMALL, Rules(confirmed_number=one_copy_is_enough)),
    "a copy that fetches is complete": ("Lemma 3", SMALL, Rules(waits_for_all_places=False)),
    "a copy forgets first": ("Lemma 3", TWO, Rules(withdraws_first=False)),
    "a later life begins": ("Lemma 3", CRASHES, Rules(begins_in_one_life=False)),
    "one vote elects": ("Lemma 4", SMALL, Rules(voted=elects_alone)),
    "the least is elected": ("Lemma 4", SMALL, Rules(voted=elects_by(the_least))),
    "terms do not count": ("Lemma 4", ELECTIONS, Rules(voted=elects_by(by_number))),
    "what was heard elects": ("Lemma 4", SMALL, Rules(voted=elects_by(by_what_was_heard))),
    "a lost disk counts as given up": ("Lemma 3", LOSES, Rules(tells_lost_disks=False)),
    "no copy gives up": ("Lemma 5", ENDS, Rules(how_to_follow=never_gives_up)),
    "a copy with less goes on": ("Lemma 5", SMALL, Rules(how_to_follow=goes_on_anyway)),
    "a master has no more": ("Lemma 5", CRASHES, Rules(how_to_follow=takes_masters_for_exact)),
    "no parcel is half written": ("Lemma 5", CRASHES, Rules(writes_heard_first=False)),
    "copies are changed at once": ("Lemma 6", CHANGES, Rules(may_change=at_once)),
    "copies are changed as a term begins": (
        "Lemma 6",
        CHANGES,
        Rules(may_change=before_a_majority_follows),
    ),
    "a damaged copy forgets before its leader lets it": (
        "Lemma 4",
        DAMAGES,
        Rules(keeps_until_told=False),
    ),
    "a damaged copy counts for what it said": ("Lemma 9", DAMAGES, Rules(forgets_damaged=False)),
    "any damaged copy may be given up": ("Lemma 9", DAMAGES, Rules(may_spare=at_once)),
    "copies give up at once": ("Lemma 8", TWO, Rules(waits_for_masters_disk=False)),
    "no copy votes before the queue is founded": (
        "Lemma 8",
        FOUNDING,
        Rules(may_vote_with=lambda _reign, holding: only_if_complete(holding)),
    ),
    "all copies are waited for": ("Lemma 7", SMALL, Rules(confirmed_number=all_copies_are_needed)),
}


@pytest.mark.parametrize("lemma, scope, rules", FAULTS.values(), ids=FAULTS)
def test_a_fault_breaks_a_lemma(lemma: str, scope: Scope, rules: Rules) -> None:
    with pytest.raises(Broken, match=lemma):
        explore(scope, rules, lemma, random.Random(1))


TO_A_COPY_THAT_GAVE_UP = (
    *("a publish 0", "a flush", "a publish 1", "b apply", "b flush"),  # 0 is confirmed, 1 is not
    *("b vote", "c vote", "b begin term 2", "b flush", "a give up for term 2", "a vote"),
)


def test_a_copy_that_gave_up_elects_none_of_an_earlier_term() -> None:
    """c lacks message 0: it is elected if a's vote does not say for which term a gave up."""
    faulty = Rules(voted=whatever_was_given_up)
    world = first_world(ELECTIONS)
    for name in TO_A_COPY_THAT_GAVE_UP:
        world = dict(steps(world, ELECTIONS, Rules()))[name]
    after = dict(steps(world, ELECTIONS, Rules()))["c vote"]
    judge(world, after)
    assert len(after.reign.votes) == 2
    with pytest.raises(Broken, match="Lemma 4"):
        judge(world, dict(steps(world, ELECTIONS, faulty))["c vote"])
    assert dict(steps(after, ELECTIONS, Rules()))["b vote"].reign.master == "b/1"


IS_LOST_BEFORE_THE_FOUNDING = (
    *("a publish 0", "a flush", "b apply", "b flush", "b lose"),
    *("b vote", "c vote"),
)


def test_nothing_is_confirmed_before_the_queue_is_founded() -> None:
    """b, which had message 0 on its disk, and c vote as if there had been none."""
    for rules in (Rules(), Rules(confirmed_number=Reign.decided_number)):
        world = first_world(FOUNDING_LOSES)
        for name in IS_LOST_BEFORE_THE_FOUNDING:
            before, world = world, dict(steps(world, FOUNDING_LOSES, rules))[name]
        assert world.reign.master in ("b/2", "c/1")
        if world.confirmed:
            with pytest.raises(Broken, match="Lemma 4"):
                judge(before, world)
        else:
            judge(before, world)
    assert world.confirmed, "by the rules without it"


def test_no_copy_is_taken_out_if_the_rest_could_not_vote() -> None:
    """c has restarted before its disk had anything: b is needed until c is complete."""
    scope = Scope(messages=0, crashes=1, changes=1, founded=False)
    anyway = Rules(without=lambda reign, node, _complete: reign.without(node, reign.copies))
    world = first_world(scope)
    for name in ("c crash", "a flush", "b flush", "a found"):
        world = dict(steps(world, scope, Rules()))[name]
    ways = dict(steps(world, scope, Rules()))
    assert "a change to ac" not in ways
    judge(world, ways["a change to ab"])
    with pytest.raises(Broken, match="Lemma 8"):
        judge(world, dict(steps(world, scope, anyway))["a change to ac"])


def test_every_lemma_has_a_fault() -> None:
    assert {lemma for lemma, _, _ in FAULTS.values()} == {f"Lemma {n}" for n in range(1, 10)}
