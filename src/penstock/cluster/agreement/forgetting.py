"""A node that never comes back: it is forgotten, and its queues with it, as RabbitMQ does.

In: what is agreed on and the views of queues.  Out, into the caller's draft: queues without a copy
on another node go; of others the view forgets the node; and last the node's own key goes.

    a queue                                                   what becomes of it
    without a view, at home there                             it goes
    that has a master elsewhere                               its view forgets the node
    that is down, and another node has a copy                 its view forgets the node
    that is down, and no other node has a copy                it goes
    of whose view the node is still a member                  later: it is being taken out
    that a majority of its copies confirms                    the node is wanted for it no more
    the same, and no other node has a copy                    it goes

Whether a copy that is left may become master is then decided as ever (``promotion.py``): one that
was not synchronised only if the policy says so (K3).  RabbitMQ lets the first of them.

Queues come first and in slices, each on condition that the node is still away; so what was
interrupted is gone on with by the next request, and a node that comes back in between keeps the
rest.  A forgotten node that starts again joins as a new one, without those queues.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, final

from penstock.cluster.agreement import metadata as md
from penstock.cluster.agreement.coordinator import CHANGES_MAX, node_of
from penstock.cluster.agreement.draft import Draft
from penstock.cluster.agreement.membership import Membership
from penstock.cluster.agreement.mirror_keys import DRAINED, VIEWS
from penstock.cluster.agreement.proposing import ClusterChanges
from penstock.cluster.agreement.queue_views import QueueView, view_to_json
from penstock.cluster.agreement.reigns import Reign
from penstock.core.pending import Pending

STAYS, GOES, FORGETS, LATER = range(4)
AT_ONCE: Final = CHANGES_MAX // 4
"""Queues in one proposal."""


class KnownView(NamedTuple):
    """``revision``: of its key."""

    view: QueueView
    revision: int


ViewOf = Callable[[str, str], KnownView | None]
"""(virtual host, queue); None = it has none."""


def fate_of(home: str, view: QueueView | None, node: str) -> int:
    """What becomes of a queue when that node is forgotten."""
    if view is None:
        return GOES if home == node else STAYS
    if view.reign is not None:
        return _fate_of_copies(view, view.reign, node)
    if node in [node_of(member) for member in view.members]:
        return LATER
    if node not in view.recoverable:
        return STAYS
    if view.master == "" and len(view.recoverable) == 1:
        return GOES
    return FORGETS


def _fate_of_copies(view: QueueView, reign: Reign, node: str) -> int:
    """Where a majority decides: the master takes out a copy that is not wanted, when it can."""
    if reign.copies == (node,):
        return GOES
    return FORGETS if node in view.wanted else STAYS


@final
class Forgetting:
    """Of one node of the cluster, that forgets others."""

    def __init__(self, changes: ClusterChanges, membership: Membership, view_of: ViewOf) -> None:
        self.view_of = view_of
        self._changes = changes
        self._membership = membership

    def forget(self, node: str) -> Pending | None:
        """To be run by an ``Ask``; raises NotFound, PreconditionFailed for one that runs."""
        conditions, changes = self._membership.forgetting(node)
        draft = self._changes.draft
        assert draft is not None, "a request is being answered"
        for condition in conditions:
            draft.require(condition.key, condition.revision)
        if not self._leave_queues(draft, node):
            return Pending(None, partial(self.forget, node))
        for change in changes:
            draft.delete(change.key)
        draft.delete(md.path(DRAINED, node))
        return None

    def _leave_queues(self, draft: Draft, node: str) -> bool:
        """Of those there are, some; False = there are more, or a view is about to change."""
        left = AT_ONCE
        later = False
        for meta in self._changes.agreed.queues.values():
            known = self.view_of(meta.vhost, meta.name)
            fate = fate_of(meta.home, None if known is None else known.view, node)
            if fate == LATER:
                later = True
            if fate in (STAYS, LATER):
                continue
            if left == 0 or draft.size() >= CHANGES_MAX // 2:
                return False
            left -= 1
            view_key = md.path(VIEWS, meta.vhost, meta.name)
            if known is not None:
                draft.require(view_key, known.revision)
            if known is not None and fate == FORGETS:
                draft.put(view_key, view_to_json(known.view.forgot(node)))
            elif not self._changes.delete_agreed(meta):
                later = True
        return not later
