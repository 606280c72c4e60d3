"""Whole lives of a mirrored queue, with copies that are sets of numbers: what is lost, and to whom.

The decisions are the broker's (``mirrors.deciding``), made by every node in its turn on the newest
view.  Everything else is this page: a confirm is given when every synced member has the message, a
synchronisation gives a mirror what the master has, a node that dies keeps what was on its disk.

  K1, K3  a master has all that was confirmed, unless the policy says ``always`` for how the one
          before it went
  K2      a term has one master
  rest    when all nodes run and time passes, there is a master, and everybody is synced
"""

from __future__ import annotations

import os
import random
from itertools import product
from random import SystemRandom

import pytest

from penstock.broker.rules.ha_policy import ALWAYS, WHEN_SYNCED, HaPolicy, read_ha_policy
from penstock.cluster.agreement.coordinator import node_of
from penstock.cluster.agreement.living_nodes import LivingNodes
from penstock.cluster.agreement.queue_views import QueueView
from penstock.cluster.mirrors.deciding import Step, begins, next_step, when_stopping
from penstock.cluster.mirrors.safety import MirrorStates

LIVES = int(os.environ.get("PENSTOCK_PROMOTION_SEEDS", "150"))
FIRST = os.environ.get("PENSTOCK_PROMOTION_SEED")
FAILED_ONCE: tuple[int, ...] = ()
RULES = (WHEN_SYNCED, ALWAYS)
NODES = ("a@h", "b@h", "c@h")
STEPS = 120


ALL: dict[str, object] = {"ha-mode": "all"}
MODES: tuple[dict[str, object], ...] = (
    ALL,
    ALL,
    {"ha-mode": "exactly", "ha-params": 2},
    {"ha-mode": "nodes", "ha-params": ["c@h", "b@h"]},
    {},
)


def ha(mode: dict[str, object], on_failure: str, on_shutdown: str) -> HaPolicy:
    rules = {"ha-promote-on-failure": on_failure, "ha-promote-on-shutdown": on_shutdown}
    return read_ha_policy(mode | rules if mode else {})


class Life:
    def __init__(self, seed: int, on_failure: str, on_shutdown: str) -> None:
        self.rng = random.Random(seed)
        self.rules = (on_failure, on_shutdown)
        self.policy = ha(ALL, *self.rules)
        self.has_ring = True
        self.now_ms = 1_700_000_000_000
        self.members: dict[str, str] = {}  # of those that run
        self.joined_ms: dict[str, int] = {}
        self.lives = 0
        self.copies: dict[str, set[int]] = {}  # on the disks, by node
        self.published = 0
        self.pending: set[int] = set()
        self.confirmed: set[int] = set()
        self.lost = 0
        self.kinds: set[str] = set()
        self.masters: dict[int, str] = {}  # by term
        for node in NODES:
            self.start(node)
        step = begins(self.policy, self.nodes("a@h"), self.rng.randrange)
        assert step.view is not None
        self.view = step.view
        self.copies["a@h"] = set()

    def nodes(self, here: str) -> LivingNodes:
        return LivingNodes(self.members[here], dict(self.members), dict(self.joined_ms))

    def lives_here(self, member: str) -> bool:
        return self.members.get(node_of(member)) == member

    def master(self) -> str:
        """Its node; "" while there is none that lives."""
        return node_of(self.view.master) if self.lives_here(self.view.master) else ""

    # -- what happens --------------------------------------------------------------------

    def start(self, node: str) -> None:
        self.lives += 1
        self.members[node] = f"{node}/{self.lives}"
        self.joined_ms[node] = self.now_ms

    def kill(self, node: str) -> None:
        del self.members[node]

    def stop(self, node: str) -> None:
        if self.master() == node:
            self.take(when_stopping(self.view, self.policy, self.nodes(node)))
        self.kill(node)

    def publish(self) -> None:
        if self.master():
            self.published += 1
            self.pending.add(self.published)
            for member in self.view.members:
                if self.lives_here(member):
                    self.copies[node_of(member)].add(self.published)
        self.confirm()

    def confirm(self) -> None:
        if self.master() and all(self.lives_here(member) for member in self.view.synced):
            everywhere = [self.copies[node_of(member)] for member in self.view.synced]
            safe = self.pending.intersection(*everywhere)
            self.pending -= safe
            self.confirmed |= safe

    def say(self) -> None:
        """Somebody changes the policy."""
        self.policy = ha(self.rng.choice(MODES), *self.rules)

    def synchronise(self) -> None:
        mirrors = [one for one in self.view.mirrors() if self.lives_here(one)]
        if self.master() and mirrors:
            self.copies[node_of(self.rng.choice(mirrors))] |= self.copies[self.master()]

    def look(self) -> None:
        """Every node at the newest view, in any order."""
        for node in self.rng.sample(sorted(self.members), len(self.members)):
            complete = [
                one
                for one in self.view.mirrors()
                if self.lives_here(one) and self.copies[node_of(one)] >= self.copies[self.master()]
            ] if self.master() == node else []  # fmt: skip
            step = next_step(
                self.view,
                self.policy,
                self.nodes(node),
                MirrorStates(complete, [], []),
                self.now_ms,
                self.rng.randrange,
                has_copy=node in self.copies,
                has_ring=self.has_ring,
            )
            self.take(step)

    # -- views ---------------------------------------------------------------------------

    def take(self, step: Step) -> None:
        if step.view is None:
            return
        before, self.view = self.view, step.view
        self.has_ring = not step.ends_group
        assert self.view.version == before.version + 1
        for member in set(self.view.members) - set(before.members) - {self.view.master}:
            self.copies[node_of(member)] = set()  # a joiner begins with nothing it can rely on
        for member in set(before.members) - set(self.view.members):
            if self.view.master and node_of(member) not in self.view.recoverable:
                del self.copies[node_of(member)]  # it is not wanted any more
        if self.view.master != before.master:
            self.pending.clear()  # who published them is told no
        if self.view.term != before.term:
            self.new_master(before)
        if self.view.master == "":
            self.kinds.add("down")
        self.confirm()

    def new_master(self, before: QueueView) -> None:
        term, master = self.view.term, self.view.master
        assert self.masters.setdefault(term, master) == master, "K2"
        self.kinds.add("heard all" if self.view.heard_all else "not all")
        copy = self.copies[node_of(master)]
        missing = self.confirmed - copy
        if missing:
            graceful = self.view.graceful
            rule = self.policy.on_shutdown if graceful else self.policy.on_failure
            assert rule == ALWAYS, f"K3: {missing} after {before.master or 'being down'}"
            self.lost += len(missing)
            self.confirmed &= copy
        if not self.view.heard_all:
            for mirror in self.view.mirrors():
                self.copies[node_of(mirror)] = set()

    # -- a life --------------------------------------------------------------------------

    def run(self) -> None:
        for _ in range(STEPS):
            self.now_ms += self.rng.choice((10, 1000, 20_000))
            node = self.rng.choice(NODES)
            what = self.rng.choice(
                ("publish", "publish", "look", "look", "look", "synchronise", "end", "start", "say")
            )
            if what == "end" and node in self.members:
                self.rng.choice((self.kill, self.stop))(node)
            elif what == "start" and node not in self.members:
                self.start(node)
            elif what == "say" and self.rng.random() < 0.3:
                self.say()
            elif what in ("publish", "look", "synchronise"):
                getattr(self, what)()
        self.rest()

    def rest(self) -> None:
        self.policy = ha(ALL, *self.rules)
        for node in set(NODES) - set(self.members):
            self.start(node)
        for _ in range(30):
            self.now_ms += 10_000
            self.look()
            self.synchronise()
        assert self.master(), "there is a master"
        assert len(self.view.synced) == len(NODES), "all are synced"
        self.publish()
        assert not self.pending, "what is published is confirmed"
        assert self.confirmed <= self.copies[self.master()]


@pytest.fixture(scope="module")
def first() -> int:
    seed = int(FIRST) if FIRST else SystemRandom().randrange(10**9)
    print(f"PENSTOCK_PROMOTION_SEED={seed}")
    return seed


@pytest.mark.parametrize("on_failure, on_shutdown", list(product(RULES, RULES)))
def test_no_life_of_a_queue_loses_what_its_policy_does_not_give_up(
    on_failure: str, on_shutdown: str, first: int
) -> None:
    lost = 0
    kinds: set[str] = set()
    for seed in (*FAILED_ONCE, *range(first, first + LIVES)):
        life = Life(seed, on_failure, on_shutdown)
        try:
            life.run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        lost += life.lost
        kinds |= life.kinds
    assert kinds == {"down", "heard all", "not all"}, "it is put to the test"
    assert (lost > 0) == (ALWAYS in (on_failure, on_shutdown))
