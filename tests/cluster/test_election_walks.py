"""The small world of five copies by chance (test_reigns.py), in which electing.py decides.

Each copy proposes what it finds due by its own picture of the others: leases end, which it may hear
late, and some nodes it does not reach.  Views go through their JSON.  A proposal may be refused, or
lost, after its copy was sealed for it.
"""

from __future__ import annotations

import random

import pytest

from penstock.cluster.agreement.living_nodes import LivingNodes
from penstock.cluster.agreement.queue_views import (
    first_ruled_view,
    view_from_json,
    view_to_json,
)
from penstock.cluster.agreement.reigns import Reign
from penstock.cluster.mirrors.deciding import Step
from penstock.cluster.mirrors.electing import next_step_of_reign
from penstock.cluster.mirrors.safety import MirrorStates
from tests.models.judge_majority import judge, judge_confirm, judge_progress
from tests.models.model_majority import (
    ALL,
    NAMES,
    Rules,
    Scope,
    World,
    accepted,
    durable_numbers,
    first_world,
    founded,
    member,
    put,
    sealed,
    steps,
)

RULES = Rules()
SCOPE = Scope(nodes=5, copies=3, messages=8, ends=3, elections=0, crashes=6, founded=False)
"""No step of the model's own elects, or changes copies."""
STEPS = 250


class Walk:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world: World = first_world(SCOPE)
        self.view = first_ruled_view("a/1", ("a", "b", "c"), ("a", "b", "c"))
        self.kinds: set[str] = set()
        self.over: set[str] = set()  # members whose leases have ended

    @property
    def reign(self) -> Reign:
        assert self.view.reign is not None
        return self.view.reign

    # -- steps -----------------------------------------------------------------------------

    def move(self, after: World) -> None:
        before, self.world = self.world, after
        judge_confirm(before, after)
        judge(before, after)

    def happen(self, *, but: tuple[str, ...] = ()) -> bool:
        """One step of the copies; False = there is none."""
        ways = [way for way in steps(self.world, SCOPE, RULES) if not self._is_one_of(way[0], but)]
        if ways:
            self.move(self.rng.choice(ways)[1])
        return bool(ways)

    def _is_one_of(self, name: str, kinds: tuple[str, ...]) -> bool:
        return any(kind in name for kind in (*kinds, " vote"))

    def decide(self, node: int, nodes: LivingNodes) -> None:
        copy = self.world.copies[node]
        holding = self.reign.may_vote_with(copy.holding())
        leads = self.reign.master == nodes.member
        trouble = "it has stepped down" if leads and copy.sealed > self.reign.term else ""
        states = self.states(node) if copy.reigns == self.reign.term else MirrorStates([], [], [])
        step = next_step_of_reign(self.view, self.reign, nodes, holding, states, trouble)
        if step.view is not None:
            self.propose(node, step)

    def propose(self, node: int, step: Step) -> None:
        assert step.view is not None
        assert step.view.version == self.view.version + 1
        after = view_from_json(view_to_json(step.view))
        assert after == step.view
        assert after.reign is not None
        if self.rng.random() < 0.1:
            self.kinds.add("refused")
            if step.seals:
                copy = sealed(self.world.copies[node], after.term)
                self.move(put(self.world, node, copy))
            return
        is_new = after.reign.is_founded and not self.reign.is_founded
        self.view = after
        if step.seals:
            kind = "voted" if after.reign.votes else "vacated"
            self.kinds.add("elected" if after.master else kind)
            self.move(accepted(self.world, node, after.reign, RULES))
        elif is_new:
            self.kinds.add("founded")
            self.move(founded(self.world))
        else:
            self.kinds.add("changed")
            self.move(self.world._replace(reign=after.reign))

    def states(self, node: int) -> MirrorStates:
        """What the master knows, which may not have heard of the newest copies."""
        copy, world = self.world.copies[node], self.world
        durable = durable_numbers(world, node, copy, RULES)
        learned = [name for name in durable if name not in self.reign.copies]
        told = world.told[copy.reigns - 1]
        confirmed = [n for n, m in enumerate(told, 1) if m >= 0 and world.confirmed >> m & 1]
        may_change = copy.counts == self.reign.copies and self.reign.may_change(
            durable, max(confirmed, default=0)
        )
        lives = self.lives()
        others = [name for name in durable if name in self.reign.copies and name != NAMES[node]]
        return MirrorStates([lives[one] for one in learned], [], [], may_change, tuple(others))

    # -- what is heard of others -----------------------------------------------------------

    def lives(self) -> dict[str, str]:
        copies = enumerate(self.world.copies)
        return {NAMES[node]: member(node, copy.life) for node, copy in copies}

    def picture(self, node: int) -> LivingNodes:
        """Of this node, which may not have heard yet that a lease is over."""
        here, lives = NAMES[node], self.lives()
        for name in (one for one in NAMES if one != here):
            if lives[name] in self.over and self.rng.random() < 0.7:
                del lives[name]
        unreached = [name for name in lives if name != here and self.rng.random() < 0.2]
        drained = [name for name in lives if self.rng.random() < 0.1]
        return LivingNodes(self.lives()[here], lives, {}, drained, unreached)

    def join_again(self, node: int) -> None:
        """With what it has in memory, as another life."""
        copy = self.world.copies[node]
        self.over.discard(member(node, copy.life))
        after = sealed(copy, self.reign.term)._replace(life=copy.life + 1)
        self.move(put(self.world, node, after))

    # -- a life ----------------------------------------------------------------------------

    def run(self) -> None:
        for _ in range(STEPS):
            what = self.rng.random()
            if what < 0.03:
                wanted = self.rng.sample(NAMES, self.rng.randrange(1, 6))
                self.view = self.view.wanting(tuple(wanted))
            elif what < 0.06:
                self.over.add(self.rng.choice(list(self.lives().values())))
            elif what < 0.1:
                self.join_again(self.rng.randrange(5))
            elif what < 0.35:
                node = self.rng.randrange(5)
                self.decide(node, self.picture(node))
            else:
                self.happen()
        self.rest()

    def rest(self) -> None:
        """All live and reach each other: the queue has a master, and the copies that it should."""
        self.view = self.view.wanting(("b", "c", "d"))
        self.world = self.world._replace(crashes_left=0)
        for node in range(5):
            self.join_again(node)
        for _ in range(150):
            for node in range(5):
                lives = LivingNodes(member(node, self.world.copies[node].life), self.lives(), {})
                self.decide(node, lives)
            for _ in range(3):
                self.happen(but=("publish", "end"))
        voters = [self.world.copies[NAMES.index(name)] for name in self.reign.copies]
        master = self.world.copies[NAMES.index(self.reign.master.partition("/")[0])]
        assert master.reigns == self.reign.term, "there is a master"
        wanted = {"b", "c", "d", self.reign.master.partition("/")[0]}
        assert set(self.reign.copies) == wanted, "and the copies that it should have"
        judge_progress(self.world, RULES, set())
        assert all(copy.known == ALL for copy in voters), "which are complete"


@pytest.mark.parametrize("first", [10, 20, 30])
def test_no_walk_loses_what_was_confirmed_and_each_ends_with_a_master(first: int) -> None:
    kinds: set[str] = set()
    for seed in range(first, first + 10):
        walk = Walk(seed)
        try:
            walk.run()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        kinds |= walk.kinds
    assert kinds >= {"elected", "voted", "vacated", "changed", "refused", "founded"}
