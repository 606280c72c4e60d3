"""``LostTransients``: deletes transient queues whose node is lost, as RabbitMQ does.

In: the living nodes, and what is agreed on.  Out: proposals that delete such queues of nodes that
are gone, so that their names can be declared anew.  Else that would wait for the node to return,
which ends them when it starts.

The node that lives for the longest time does it, and not before a node has been gone for
``patience_ms``: when the coordinator was away for all nodes, they come back one after the other,
with all their queues.  Each proposal has the condition that the node is still gone.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final, final

from penstock.cluster.agreement import metadata as md
from penstock.cluster.agreement.coordinator import ABSENT, CHANGES_MAX
from penstock.cluster.agreement.membership import JOINED, MEMBERS, Membership
from penstock.cluster.agreement.proposing import ClusterChanges
from penstock.core.clock_types import MonoMs
from penstock.core.errors import BrokerError
from penstock.core.pending import Pending

LOOK_MS: Final = 1000
AT_ONCE: Final = CHANGES_MAX // 4
"""Queues in one proposal."""


@final
class LostTransients:
    """See the head of this file."""

    def __init__(self, changes: ClusterChanges, membership: Membership, patience_ms: int) -> None:
        self._changes = changes
        self._membership = membership
        self._patience_ms = patience_ms
        self._gone_ms: dict[str, MonoMs] = {}  # by node: since when, as far as this one saw it
        self._nothing: dict[str, int] = {}  # of the node, as of this revision
        self._looked_ms = MonoMs(0)
        self._next: Callable[[], object] | None = None  # step of what is being deleted

    def turn(self, mono_ms: MonoMs) -> None:
        membership = self._membership
        if membership.state != JOINED or membership.eldest() != membership.here.name:
            self._gone_ms = {}
            return
        for node in membership.nodes.values():
            if node.living is not None:
                self._gone_ms.pop(node.name, None)
            else:
                self._gone_ms.setdefault(node.name, mono_ms)
        if self._next is None and not 0 <= mono_ms - self._looked_ms < LOOK_MS:
            self._looked_ms = mono_ms
            self._look(mono_ms)
        if self._next is not None:
            self._go_on(self._next)

    def _look(self, mono_ms: MonoMs) -> None:
        late, changed = mono_ms - self._patience_ms, self._changes.agreed.changed
        for name, since_ms in self._gone_ms.items():
            if since_ms > late or self._nothing.get(name) == changed:
                continue
            if self._of(name):
                self._next = partial(self._changes.ask().run, partial(self._delete, name))
                return
            self._nothing[name] = changed

    def _of(self, node: str) -> list[md.QueueMeta]:
        return [
            meta
            for meta in self._changes.agreed.queues.values()
            if meta.home == node and not meta.durable and meta.owner == ""
        ]

    def _go_on(self, step: Callable[[], object]) -> None:
        self._next = None
        with suppress(BrokerError):  # the coordinator is away: it is looked at again
            outcome = step()
            if isinstance(outcome, Pending):
                self._next = outcome.resume

    def _delete(self, node: str) -> Pending | None:
        known = self._membership.nodes.get(node)
        if known is not None and known.living is not None:
            return None
        draft = self._changes.draft
        assert draft is not None, "it asks"
        for meta in self._of(node)[:AT_ONCE]:
            if draft.size() < CHANGES_MAX // 2 and self._changes.delete_agreed(meta):
                draft.require(md.path(MEMBERS, node), ABSENT)
        return None if draft.is_empty() else Pending(None, partial(self._delete, node))
