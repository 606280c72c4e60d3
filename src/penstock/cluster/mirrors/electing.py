"""The next view of a queue that a majority of its copies confirms: pure decisions (deciding.py).

In: the view and its reign (reigns.py), the live nodes, what the copy here has, and what the master
knows of the others.  Out: a ``Step``.  Its proposers:

    the master   steps down when its copy is in trouble; when it reaches no majority of the
                 copies, and others could decide without it; and when its node is drained, and
                 enough others are complete.  Hands over to the node that the reign favours when
                 no copy has more than that one
                 Founds the queue when a majority of the disks has it.  Puts a copy that has
                 everything among those that vote; takes one out that is not wanted
    any copy     votes when the master has gone or stepped down, or a majority of the copies does
                 not hear it: it can confirm nothing, and its lease need not be waited for.  Not
                 one that reaches no majority: if it was elected it could confirm nothing; nor one
                 of a drained node, while others are enough, until the queue has been without a
                 master for long: they may be complete nowhere.  Nor the master that hands over

A step that ``seals`` is proposed only by a copy that does no parcel of an earlier term any more.
"""

from penstock.cluster.agreement.coordinator import node_of
from penstock.cluster.agreement.living_nodes import LivingNodes
from penstock.cluster.agreement.queue_views import QueueView
from penstock.cluster.agreement.reigns import Holding, Reign
from penstock.cluster.mirrors.deciding import NOTHING, Step
from penstock.cluster.mirrors.safety import MirrorStates


def next_step_of_reign(
    view: QueueView,
    reign: Reign,
    nodes: LivingNodes,
    holding: Holding | None,
    mirrors: MirrorStates,
    trouble: str,
    *,
    is_missed: bool = False,
    is_bound: bool = False,
) -> Step:
    """``holding``: of the copy here; None = there is none, or it is complete nowhere.

    ``trouble``: why the copy here cannot go on as master; "" = it can.  ``is_missed``: the queue
    has had no master for long.  ``is_bound``: the copy here has ceased to follow that reign, for a
    vote that was refused.
    """
    if not nodes.is_here():
        return NOTHING
    if reign.master == nodes.member:
        return _as_master(view, reign, nodes, mirrors, trouble)
    if nodes.here not in reign.copies or (_is_heard(reign, nodes) and not is_bound):
        return NOTHING
    return _vote(view, reign, nodes, holding, is_missed=is_missed)


def _as_master(
    view: QueueView, reign: Reign, nodes: LivingNodes, mirrors: MirrorStates, trouble: str
) -> Step:
    if trouble or _is_to_leave(reign, nodes, mirrors):
        why = trouble or _why_apart(reign, nodes)
        return Step(view.ruled(reign.vacated()), why, seals=True)
    heir = reign.favoured
    if heir and (heir == nodes.here or heir not in reign.copies or heir not in nodes.members):
        return Step(view.ruled(reign.favouring("")), f"it is not handed over to {heir}")
    if mirrors.is_level and heir in mirrors.following:
        return Step(view.ruled(reign.vacated()), f"it is handed over to {heir}", seals=True)
    if not mirrors.may_change:
        return NOTHING
    if not reign.is_founded:
        return Step(view.ruled(reign.founded()), "a majority of its disks has what it began with")
    for member in mirrors.complete:
        node = node_of(member)
        if node in view.wanted and node not in reign.copies:
            with_it = reign.with_copies((*reign.copies, node))
            return Step(view.ruled(with_it), f"{member} has everything")
    for node in reign.copies:
        if node not in view.wanted and node != nodes.here:
            rest = reign.without(node, mirrors.following)
            if rest is not None:
                return Step(view.ruled(rest), f"the copy at {node} is not wanted")
    return NOTHING


def _is_to_leave(reign: Reign, nodes: LivingNodes, mirrors: MirrorStates) -> bool:
    if nodes.here not in nodes.drained:
        return _others_decide(reign, nodes)
    others = [node for node in mirrors.following if node in nodes.members]
    return len([node for node in others if node not in nodes.drained]) >= reign.majority()


def _vote(
    view: QueueView,
    reign: Reign,
    nodes: LivingNodes,
    holding: Holding | None,
    *,
    is_missed: bool,
) -> Step:
    count = len(reign.votes)
    if nodes.member in [vote.member for vote in reign.votes]:
        return Step(None, f"{count} of {len(reign.copies)} copies have voted", look_again=True)
    if holding is None:
        return Step(None, f"the copy at {nodes.here} is not complete", look_again=True)
    hands_over = reign.favoured != "" and node_of(view.former) == nodes.here != reign.favoured
    yields = _others_decide(reign, nodes, hands_over=hands_over) and not is_missed
    if yields or not _reaches_majority(reign, nodes):
        return Step(None, _why_apart(reign, nodes), look_again=True)
    after = reign.voted(nodes.member, holding)
    chosen = f"a majority has elected {after.master}" if after.master else f"{nodes.here} votes"
    return Step(view.ruled(after), chosen, look_again=True, seals=True)


def _is_heard(reign: Reign, nodes: LivingNodes) -> bool:
    """The master lives, and those that hear it, and that it hears, are a majority with it."""
    master = node_of(reign.master)
    heard = [one for one in reign.copies if one == master or nodes.hear_each_other(one, master)]
    return nodes.lives(reign.master) and len(heard) >= reign.majority()


def _reaches_majority(reign: Reign, nodes: LivingNodes) -> bool:
    reached = [node for node in nodes.within_reach() if node in reign.copies]
    return len(reached) >= reign.majority()


def _others_decide(reign: Reign, nodes: LivingNodes, *, hands_over: bool = False) -> bool:
    """There is a majority to elect from, and this node should not be elected."""
    others = [node for node in nodes.running() if node in reign.copies and node != nodes.here]
    if nodes.here in nodes.drained:
        others = [node for node in others if node not in nodes.drained]
    elif _reaches_majority(reign, nodes) and not hands_over:
        return False
    return len(others) >= reign.majority()


def _why_apart(reign: Reign, nodes: LivingNodes) -> str:
    if nodes.here in nodes.drained:
        return f"{nodes.here} is drained"
    if _reaches_majority(reign, nodes):
        return f"it is handed over to {reign.favoured}"
    return f"{nodes.here} reaches fewer than {reign.majority()} of {', '.join(reign.copies)}"
