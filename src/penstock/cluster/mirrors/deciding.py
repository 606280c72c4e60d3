"""The next view of a queue, if one is due: pure decisions, the same on every node.

In: the view there is, the live nodes, the policy.  Out: a ``Step``: the view to propose, or that it
is to be looked at again later, and why in words.  To every change there is one node that
proposes it, so that nodes do not get into each other's way:

    the master              removes members that are gone or not wanted, adds missing ones where
                            there is room, marks synced ones, counts no more on slow ones, hands
                            over; ends the group when no mirror is wanted
    the next master         promotes itself when the master has gone, or when some return
    the first by name       says that the queue is down when no member may be promoted

A step changes one thing, so views follow each other by one version.
"""

from typing import NamedTuple

from penstock.broker.rules.ha_policy import HaPolicy
from penstock.cluster.agreement.coordinator import node_of
from penstock.cluster.agreement.living_nodes import LivingNodes
from penstock.cluster.agreement.placement import Chance, wanted_copies
from penstock.cluster.agreement.queue_views import QueueView, first_view
from penstock.cluster.mirrors.promotion import PROMOTE, WAIT, when_master_goes, when_some_return
from penstock.cluster.mirrors.safety import STUCK_MS, MirrorStates
from penstock.core.clock_types import MonoMs


class Step(NamedTuple):
    view: QueueView | None = None  # None: nothing to propose
    why: str = ""
    look_again: bool = False
    ends_group: bool = False  # its ring goes with this change
    seals: bool = False  # the copy here has no part in earlier terms from now on (electing.py)


NOTHING = Step()
STUCK_S = int(STUCK_MS) // 1000


def begins(policy: HaPolicy, nodes: LivingNodes, chance: Chance) -> Step:
    """Of a queue without a view whose master is here."""
    able = nodes.able_to_copy([nodes.here])
    placed = wanted_copies(policy, nodes.here, [], [nodes.here], able, chance)
    if not placed.mirrors or not nodes.is_here():
        return NOTHING
    return Step(first_view(nodes.member), "it is to be mirrored")


def next_step(
    view: QueueView,
    policy: HaPolicy,
    nodes: LivingNodes,
    mirrors: MirrorStates,
    mono_ms: MonoMs,
    chance: Chance,
    *,
    has_copy: bool,
    has_ring: bool,
) -> Step:
    """``has_copy``: this node; ``has_ring``: the queue, in the coordinator."""
    if not nodes.is_here():
        return NOTHING
    if view.master == "":
        return _when_down(view, policy, nodes, mono_ms, has_copy=has_copy)
    if view.master == nodes.member:
        return _as_master(view, policy, nodes, mirrors, chance, has_ring=has_ring)
    if not nodes.lives(view.master):
        return _without_master(view, policy, nodes)
    return NOTHING


def _as_master(
    view: QueueView,
    policy: HaPolicy,
    nodes: LivingNodes,
    mirrors: MirrorStates,
    chance: Chance,
    *,
    has_ring: bool,
) -> Step:
    for mirror in view.mirrors():
        if not nodes.lives(mirror):
            return Step(view.without(mirror), f"{mirror} is gone")
        if node_of(mirror) in nodes.unreached:
            return Step(view.without(mirror), f"{mirror} cannot be reached from {nodes.here}")
        if mirror in mirrors.silent:
            return Step(view.without(mirror), f"{mirror} does not say what it has")
        if mirror in mirrors.slow:
            why = nodes.shortage(node_of(mirror)) or f"its disk takes nothing for {STUCK_S} s"
            return Step(view.behind(mirror), f"{node_of(mirror)}: {why}")
    for mirror in mirrors.complete:
        if mirror in view.members and mirror not in view.synced:
            return Step(view.with_synced(mirror), f"{mirror} has everything")
    if nodes.here in nodes.drained:
        for mirror in view.synced:
            if node_of(mirror) not in nodes.drained:
                return Step(view.handed_over(mirror), f"{nodes.here} is drained")
    step = _as_wanted(view, policy, nodes, chance)
    if step.view is None and policy.mode == "" and has_ring:
        return Step(view.alone(), "no node mirrors it any more", ends_group=True)
    return _without_leftovers(view, nodes) if step.view is None else step


def _without_leftovers(view: QueueView, nodes: LivingNodes) -> Step:
    """A node that is there, and is not to mirror the queue, need not keep what it had."""
    for node in view.recoverable:
        if node in nodes.able_to_copy([]):
            return Step(view.forgot(node), f"the copy at {node} is not wanted")
    return NOTHING


def _as_wanted(view: QueueView, policy: HaPolicy, nodes: LivingNodes, chance: Chance) -> Step:
    mirrors = [node_of(one) for one in view.mirrors()]
    synced = [node_of(one) for one in view.synced]
    able = nodes.able_to_copy([nodes.here, *mirrors])
    placed = wanted_copies(policy, nodes.here, mirrors, synced, able, chance)
    if placed.master != nodes.here:
        member = nodes.members[placed.master]
        return Step(view.handed_over(member), f"the policy puts the master on {placed.master}")
    for mirror in view.mirrors():
        if node_of(mirror) not in placed.mirrors:
            return Step(view.without(mirror, keeps_data=False), f"{mirror} is not wanted")
    for node in placed.mirrors:
        if node not in mirrors:
            return Step(view.with_member(nodes.members[node]), f"{node} is to mirror it")
    return NOTHING


def _without_master(view: QueueView, policy: HaPolicy, nodes: LivingNodes) -> Step:
    living = [member for member in view.mirrors() if nodes.lives(member)]
    decision = when_master_goes(view, living, policy.on_failure, policy.on_shutdown, graceful=False)
    if decision.kind == PROMOTE:
        if decision.who != nodes.member:
            return NOTHING
        view = view.promoted(decision.who, heard_all=decision.heard_all, graceful=False)
        return Step(view, decision.why)
    if nodes.speaker() == nodes.here:
        return Step(view.went_down(graceful=False), decision.why)
    return NOTHING


def _when_down(
    view: QueueView, policy: HaPolicy, nodes: LivingNodes, mono_ms: MonoMs, *, has_copy: bool
) -> Step:
    """The nodes that are back; the waiting time is counted from the first of them."""
    back = [node for node in view.recoverable if node in nodes.members]
    back.sort(key=lambda node: (nodes.joined_ms[node], node))
    if nodes.here in back and not has_copy:
        return Step(view.forgot(nodes.here), f"{nodes.here} came back without its copy")
    waited_ms = mono_ms - nodes.joined_ms[back[0]] if back else 0
    decision = when_some_return(
        view, node_of(view.former), back, waited_ms, policy.on_failure, policy.on_shutdown
    )
    if decision.kind == WAIT:
        return Step(None, decision.why, look_again=bool(back))
    if decision.who != nodes.here:
        return Step(None, decision.why)
    view = view.promoted(nodes.member, heard_all=False, graceful=view.graceful)
    return Step(view, decision.why)


def when_damaged(view: QueueView, nodes: LivingNodes, fault: str) -> Step:
    """This node cannot read its copy: it gives it up, if another has all, and fetches a new one."""
    why = f"{nodes.here} cannot read its copy: {fault}"
    if nodes.member in view.mirrors():
        return Step(view.without(nodes.member, keeps_data=False), why)
    if view.master != nodes.member:
        return NOTHING
    for mirror in view.mirrors():
        is_there = nodes.lives(mirror) and node_of(mirror) not in nodes.unreached
        if mirror in view.synced and is_there:
            after = view.promoted(mirror, heard_all=True, graceful=True, keeps_data=False)
            return Step(after, why)
    return NOTHING


def when_stopping(view: QueueView, policy: HaPolicy, nodes: LivingNodes) -> Step:
    """This node is the master's, and is about to stop."""
    living = [member for member in view.mirrors() if nodes.lives(member)]
    decision = when_master_goes(view, living, policy.on_failure, policy.on_shutdown, graceful=True)
    if decision.kind == PROMOTE:
        view = view.promoted(decision.who, heard_all=decision.heard_all, graceful=True)
        return Step(view, decision.why)
    return Step(view.went_down(graceful=True), decision.why)
