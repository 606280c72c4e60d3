"""``ClusterMirrors``: the operator's commands on mirrored queues.

In: a queue, a node, patterns.  Out: facts (facts.py), and proposals that go the way of every
change (``ClusterChanges.hand_in``): the request waits until it is accepted, as for a declaration.
What follows from it, the synchronisation or the move, comes after the answer.

    sync, cancel_sync     the queue's key ``sync/``; every node looks at it
    hand_over, rebalance  the queue's view: its master is another one
    drain, revive         the node's key ``drained/``; its masters go as soon as their nodes see it
"""

import re
from collections.abc import Callable, Sequence
from typing import Final, final

from penstock.broker.mirrors import (
    ALL_KINDS,
    KINDS,
    MasterMove,
    MirrorFacts,
    Mirrors,
    is_elected,
    no_copy,
    not_mirrored,
    not_synchronised,
)
from penstock.cluster.agreement.coordinator import ABSENT, node_of
from penstock.cluster.agreement.draft import Draft
from penstock.cluster.agreement.metadata import path
from penstock.cluster.agreement.mirror_keys import CANCELLED, DRAINED, SYNC, VIEWS, WANTED
from penstock.cluster.agreement.placement import rebalance
from penstock.cluster.agreement.proposing import ClusterChanges
from penstock.cluster.agreement.queue_views import QueueView, view_to_json
from penstock.cluster.mirrors.facts import mirror_facts
from penstock.cluster.mirrors.mirroring import Mirroring
from penstock.cluster.mirrors.queue import MirroredQueue
from penstock.core import patterns
from penstock.core.errors import NotFound, PreconditionFailed
from penstock.queues.context import CLASSIC, QUORUM
from penstock.queues.queue import Queue

MOVES_AT_ONCE: Final = 40
"""Of one proposal; the next request goes on with the rest."""


@final
class ClusterMirrors(Mirrors):
    """``nodes_known`` gives the names of all nodes, running or not."""

    def __init__(
        self, mirroring: Mirroring, changes: ClusterChanges, nodes_known: Callable[[], list[str]]
    ) -> None:
        self._mirroring = mirroring
        self._changes = changes
        self._nodes_known = nodes_known

    # -- looking -----------------------------------------------------------------------------

    def mirrored(self) -> list[tuple[str, str]]:
        return [place for place, known in self._mirroring.queues.items() if known.view is not None]

    def facts(self, queue: Queue) -> MirrorFacts | None:
        known = self._mirroring.queues.get((queue.vhost, queue.name))
        if known is None or known.view is None:
            return None
        trouble = known.alone()
        if not trouble and known.view.master:
            trouble = queue.why_down()
        if not trouble and known.stopped():
            trouble = f"its ring at this node cannot go on: {known.stopped()}"
        return mirror_facts(
            known.view,
            known.ring_view,
            known.group,
            known.policy(),
            self._changes.mono_ms,
            sync_wanted=known.is_sync_wanted(),
            why=known.why,
            waits=known.waits,
            trouble=trouble,
            nodes=self._mirroring.nodes,
        )

    def changes(self) -> dict[str, int]:
        return self._mirroring.changes.counts

    def drained(self) -> list[str]:
        return sorted(self._mirroring.drained)

    def leaving(self, node: str) -> list[tuple[str, str]]:
        return [
            place
            for place, known in self._mirroring.queues.items()
            if known.view is not None
            and node_of(known.view.master) == node
            and self._could_leave(known, known.view)
        ]

    def _could_leave(self, known: MirroredQueue, view: QueueView) -> bool:
        nodes = self._mirroring.nodes
        if view.reign is not None:
            running = {*nodes.members} - {*nodes.drained, node_of(view.master)}
            return len(running & {*view.reign.copies}) >= view.reign.majority()
        syncs = known.is_sync_wanted()
        return any(
            member != view.master
            and nodes.lives(member)
            and node_of(member) not in nodes.drained
            and (member in view.synced or syncs)
            for member in view.members
        )

    # -- one queue ---------------------------------------------------------------------------

    def sync(self, queue: Queue) -> None:
        known, view = self._known(queue)
        if len(view.synced) < len(view.members) and known.sync != WANTED:
            self._put_sync(known, f'"{WANTED}"')

    def cancel_sync(self, queue: Queue) -> bool:
        known, view = self._known(queue)
        if len(view.synced) == len(view.members) or not known.is_sync_wanted():
            return False
        self._put_sync(known, f'"{CANCELLED}"' if known.policy().automatic else None)
        return True

    def hand_over(self, queue: Queue, node: str) -> None:
        known, view = self._known(queue)
        if node_of(view.master) == node:
            return
        if view.reign is not None:
            if node not in view.reign.copies:
                raise no_copy(queue, node)
            self._hand_over(known, view, node)
            return
        member = _member_at(view, node)
        if not member:
            raise no_copy(queue, node)
        if member not in view.synced:
            raise not_synchronised(queue, node)
        self._hand_over(known, view, node)

    def _known(self, queue: Queue) -> tuple[MirroredQueue, QueueView]:
        known = self._mirroring.queues.get((queue.vhost, queue.name))
        if known is None or known.view is None or known.view.master == "":
            raise not_mirrored(queue)
        return known, known.view

    def _put_sync(self, known: MirroredQueue, value: str | None) -> None:
        place = known.vhost.name, known.name
        still = path(VIEWS, *place), known.view_revision  # it is that very queue
        self._put(path(SYNC, *place), known.sync_revision, value, still)

    def _hand_over(self, known: MirroredQueue, view: QueueView, node: str) -> None:
        """At once; where a majority elects the leader, as soon as that one can be elected."""
        key, reign = path(VIEWS, known.vhost.name, known.name), view.reign
        if reign is None:
            after = view.handed_over(_member_at(view, node))
        else:
            after = view.ruled(reign.favouring(node))
        self._put(key, known.view_revision, view_to_json(after))

    def _put(self, key: str, revision: int, value: str | None, *also: tuple[str, int]) -> None:
        """If that key and those of ``also`` are as they were; None deletes it."""

        def fill(draft: Draft) -> None:
            for condition in (*also, (key, revision)):
                draft.require(*condition)
            if value is None:
                draft.delete(key)
            else:
                draft.put(key, value)

        self._changes.hand_in(fill)

    # -- copies of a quorum queue --------------------------------------------------------------

    def copies_wanted(self, queue: Queue) -> tuple[str, ...]:
        known = self._mirroring.queues.get((queue.vhost, queue.name))
        return () if known is None or known.view is None else known.view.wanted

    def want_copies(self, queue: Queue, nodes: Sequence[str]) -> None:
        known, view = self._known(queue)
        if view.reign is None:
            raise not_mirrored(queue)
        if node_of(view.master) not in nodes:
            raise is_elected(queue)
        key = path(VIEWS, known.vhost.name, known.name)
        self._put(key, known.view_revision, view_to_json(view.wanting(tuple(nodes))))

    # -- nodes -------------------------------------------------------------------------------

    def rebalance(
        self, vhost_pattern: str, queue_pattern: str, kind: str = ALL_KINDS
    ) -> list[MasterMove]:
        if kind not in KINDS:
            raise PreconditionFailed(f"{kind!r} is none of {', '.join(KINDS)}")
        vhosts, queues = _expression(vhost_pattern), _expression(queue_pattern)
        chosen: dict[str, MirroredQueue] = {}
        for (vhost, name), known in self._mirroring.queues.items():
            is_asked = vhosts.search(vhost) and queues.search(name) and _is_of(known, kind)
            if is_asked and _has_master(known):
                chosen[path("queue", vhost, name)] = known
        views = {key: known.view for key, known in chosen.items() if known.view is not None}
        masters = {key: node_of(view.master) for key, view in views.items()}
        synced: dict[str, Sequence[str]] = {
            key: view.reign.copies if view.reign else [node_of(one) for one in view.synced]
            for key, view in views.items()
        }
        nodes = self._mirroring.nodes
        running = [node for node in nodes.running() if node not in nodes.drained]
        moves = rebalance(masters, synced, running)
        begun: list[MasterMove] = []
        for key, target in list({move.queue: move.target for move in moves}.items())[
            :MOVES_AT_ONCE
        ]:
            known, view = chosen[key], views[key]
            if masters[key] != target:
                self._hand_over(known, view, target)
                begun.append(MasterMove(known.vhost.name, known.name, masters[key], target))
        return begun

    def drain(self, node: str) -> None:
        self._check_node(node)
        if node not in self._mirroring.drained:
            self._put(path(DRAINED, node), ABSENT, '"drained"')

    def revive(self, node: str) -> None:
        self._check_node(node)
        revision = self._mirroring.drained.get(node)
        if revision is not None:
            self._put(path(DRAINED, node), revision, None)

    def _check_node(self, node: str) -> None:
        if node not in self._nodes_known():
            raise NotFound(f"no node '{node}' in the cluster")


def _is_of(known: MirroredQueue, kind: str) -> bool:
    return kind in (ALL_KINDS, QUORUM if known.queue.is_quorum else CLASSIC)


def _has_master(known: MirroredQueue) -> bool:
    return known.view is not None and known.view.master != ""


def _member_at(view: QueueView, node: str) -> str:
    for member in view.members:
        if node_of(member) == node:
            return member
    return ""


def _expression(pattern: str) -> "re.Pattern[str]":
    try:
        return patterns.compiled(pattern)
    except patterns.Refused as error:
        raise PreconditionFailed(f"{pattern!r} is no regular expression: {error}") from error
