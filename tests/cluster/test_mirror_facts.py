"""What is told of a mirrored queue: who has copies, how far they are, what its ring looks like."""

from __future__ import annotations

import pytest

from penstock.broker.mirrors import DOWN, MASTER, MIRROR, RUNNING, SYNCING, WAITING, MirrorFacts
from penstock.broker.rules.ha_policy import read_ha_policy
from penstock.cluster.agreement.living_nodes import LivingNodes
from penstock.cluster.agreement.queue_views import QueueView, first_view
from penstock.cluster.mirrors.facts import mirror_facts, policy_in_words
from penstock.cluster.mirrors.group import MirrorGroup
from penstock.cluster.mirrors.promotion import WAIT, when_master_goes, when_some_return
from penstock.cluster.ring.views import NO_VIEW
from tests.cluster.test_mirror_group import World

A, B, C = "penstock@a/1", "penstock@b/2", "penstock@c/3"
NODE_A, NODE_B, NODE_C = "penstock@a", "penstock@b", "penstock@c"
ALL = read_ha_policy({"ha-mode": "all"})


def queue_view(world: World) -> QueueView:
    members = list(world.members)
    return QueueView(3, world.term, world.master, members, world.synced, {})


def facts_of(
    world: World, group: MirrorGroup | None = None, *, sync_wanted: bool = False
) -> MirrorFacts:
    view = queue_view(world)
    return mirror_facts(view, world.view, group, ALL, world.now_ms, sync_wanted=sync_wanted)


def in_the_middle() -> World:
    """A mirror has fetched 8 of 30 messages, and the master goes on meanwhile."""
    world = World([A])
    a = world.members[A]
    for number in range(30):
        a.publish(b"%d" % number)
    world.run()
    world.add(B)
    for _ in range(100):
        joiner = world.members[B].group.joiner
        if joiner is not None and joiner.received_count:
            return world
        world.now_ms += 10
        for member in world.members.values():
            member.group.ring.view_changed(world.view)
            member.take()
            member.opened.commit()
        for link in list(world.links):
            world.carry(*link)
    raise AssertionError("nothing was fetched")


def test_a_node_without_a_copy_knows_who_has_one() -> None:
    world = World([A, B, C])
    facts = facts_of(world)
    assert [(one.node, one.role, one.synced) for one in facts.copies] == [
        (NODE_A, MASTER, True),
        (NODE_B, MIRROR, True),
        (NODE_C, MIRROR, True),
    ]
    assert (facts.term, facts.master(), facts.state, facts.why) == (1, NODE_A, RUNNING, "")
    assert [one.behind for one in facts.copies] == [None] * 3
    ring = facts.ring
    assert ring is not None
    assert (ring.left, ring.right, ring.kept_bytes) == ("", "", None)


def test_the_master_knows_how_far_each_mirror_is() -> None:
    world = World([A, B])
    a = world.members[A]
    a.publish(b"x")
    a.take()
    master, mirror = facts_of(world, a.group).copies
    assert (master.applied, master.behind) == (2, 0)  # the first began with the mirror
    assert (mirror.applied, mirror.behind) == (1, 1)
    world.run()
    _, mirror = facts_of(world, a.group).copies
    assert (mirror.applied, mirror.durable, mirror.behind, mirror.sync) == (2, 2, 0, None)


def test_a_mirror_knows_of_its_own_copy() -> None:
    world = World([A, B])
    world.members[A].publish(b"x")
    world.run()
    master, mirror = facts_of(world, world.members[B].group).copies
    assert master.applied is None
    assert (mirror.applied, mirror.durable, mirror.behind, mirror.sync) == (2, 2, None, None)


def test_a_mirror_that_fetched_nothing_tells_of_no_progress() -> None:
    world = World([A])
    world.members[A].publish(b"x")
    world.run()
    b = world.add(B).group
    assert b.replica is not None
    assert not b.replica.is_complete()
    world.synced = [A]
    assert facts_of(world, b).copies[1].sync is None


def test_how_far_a_synchronisation_is() -> None:
    world = in_the_middle()
    facts = facts_of(world, world.members[A].group, sync_wanted=True)
    assert (facts.state, facts.why) == (SYNCING, f"{NODE_B}: fetching what they lack")
    sync = facts.copies[1].sync
    assert sync is not None
    assert 0 < sync.done < sync.total == 30
    assert sync.sent_bytes > 0
    assert sync.rate is not None
    assert sync.rate > 0
    assert sync.eta_ms > 0
    own = facts_of(world, world.members[B].group).copies[1].sync
    assert own is not None
    assert 0 < own.done < own.total == 30
    assert (own.rate, own.eta_ms) == (None, -1)
    world.run()
    assert facts_of(world, world.members[A].group, sync_wanted=True).state == RUNNING
    assert facts_of(world, world.members[A].group).copies[1].sync is None


def test_a_mirror_that_is_not_to_fetch_anything_is_said_to_lack_it() -> None:
    world = in_the_middle()
    facts = facts_of(world, sync_wanted=False)
    assert (facts.state, facts.why) == (
        RUNNING,
        f"{NODE_B}: not synchronised, and no synchronisation was asked for",
    )


@pytest.mark.parametrize(
    "definition, why",
    [
        ({"ha-mode": "exactly", "ha-params": 2}, ""),
        ({"ha-mode": "exactly", "ha-params": 3}, "2 of 3 copies, for want of nodes"),
        ({"ha-mode": "all"}, f"no copy at {NODE_C}"),
        ({"ha-mode": "nodes", "ha-params": [NODE_A, NODE_C]}, f"no copy at {NODE_C}"),
        ({"ha-mode": "nodes", "ha-params": [NODE_A, NODE_B]}, ""),
    ],
)
def test_a_queue_with_fewer_copies_than_the_policy_wants_says_so(
    definition: dict[str, object], why: str
) -> None:
    view = first_view(A).with_member(B).with_synced(B).with_member(C).without(C)
    policy = read_ha_policy(definition)
    facts = mirror_facts(view, NO_VIEW, None, policy, 0, sync_wanted=True)
    assert (facts.state, facts.why) == (RUNNING, why)


def test_the_ring_names_its_dead() -> None:
    world = World([A, B, C])
    world.view = world.view.with_dead([f"{B}#1"])
    c = world.members[C].group
    c.ring.view_changed(world.view)
    ring = facts_of(world, c).ring
    assert ring is not None
    assert ring.version == world.view.version
    assert sorted(ring.members) == [f"{A}#1", f"{B}#1", f"{C}#1"]
    assert ring.dead == [f"{B}#1"]
    assert (ring.left, ring.right) == (f"{A}#1", f"{A}#1")
    assert ring.full
    assert ring.kept_bytes is not None


def test_a_node_that_is_short_and_a_mirror_for_which_publishers_wait_are_named() -> None:
    world = World([A, B])
    world.now_ms = 1000
    a = world.members[A]
    a.publish(b"x")
    for _ in range(8):
        world.now_ms += 100
        for member in world.members.values():
            member.take()
        for link in list(world.links):
            world.carry(*link)
    living = {NODE_A: A, NODE_B: B, NODE_C: C}
    nodes = LivingNodes(A, living, {}, short={NODE_C: ["disk", "memory"]})
    facts = mirror_facts(
        queue_view(world), world.view, a.group, ALL, world.now_ms, sync_wanted=True, nodes=nodes
    )
    assert facts.state == RUNNING
    assert facts.why.split("; ") == [
        f"{NODE_B} holds publishers: its disk has taken nothing for 0.7 s",
        f"no copy at {NODE_C} (short of disk and memory)",
    ]
    world.synced = [A]
    nodes = LivingNodes(A, living, {}, short={NODE_B: ["disk"]})
    facts = mirror_facts(
        queue_view(world), world.view, None, ALL, world.now_ms, sync_wanted=True, nodes=nodes
    )
    assert facts.why == f"{NODE_B}: short of disk, and fetches nothing until it is not"


def test_why_a_queue_is_down() -> None:
    view = first_view(A).with_member(B)
    decision = when_master_goes(view, [B], "when-synced", "when-synced", graceful=False)
    facts = mirror_facts(
        view.went_down(graceful=False),
        NO_VIEW,
        None,
        ALL,
        0,
        sync_wanted=True,
        why=decision.why,
        waits=decision.kind == WAIT,
    )
    assert (facts.state, facts.master(), facts.copies) == (DOWN, "", [])
    assert facts.why == "no mirror is synchronised, and ha-promote-on-failure says when-synced"
    assert facts.recoverable == {NODE_A: "synced", NODE_B: "partial"}
    assert facts.ring is None


def test_a_queue_waits_for_its_former_master() -> None:
    view = first_view(A).with_member(B).with_synced(B).went_down(graceful=False)
    decision = when_some_return(view, NODE_A, [NODE_B], 1000, "when-synced", "when-synced")
    facts = mirror_facts(
        view,
        NO_VIEW,
        None,
        ALL,
        0,
        sync_wanted=False,
        why=decision.why,
        waits=decision.kind == WAIT,
    )
    assert (facts.state, facts.why) == (WAITING, "the former master is given 30 s")


@pytest.mark.parametrize(
    "definition, words",
    [
        ({}, "no policy asks for mirrors"),
        ({"ha-mode": "all"}, "all, manual"),
        (
            {"ha-mode": "exactly", "ha-params": 2, "ha-sync-mode": "automatic"},
            "exactly 2, automatic",
        ),
        ({"ha-mode": "nodes", "ha-params": ["x", "y"]}, "nodes x, y, manual"),
    ],
)
def test_a_policy_in_words(definition: dict[str, object], words: str) -> None:
    assert policy_in_words(read_ha_policy(definition)) == words
