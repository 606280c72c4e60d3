"""``Agreed``: what the cluster has agreed on, as far as this node has done it.

In: events, as they are done.  Out: the revision at which a key was last changed, which is what a
proposal names as its condition; and whether a binding that the coordinator has still leads from
somewhere: its key may outlive its source.  Binding and deleting the source do not hinder each
other, so a binding may be agreed on an instant before its source goes, unseen by who deletes it.
It counts only if its source, and where it leads, are older than it.

``rounds`` is moved whenever everything that had come is done.  What a coordinator has accepted
comes with the next events at the latest (O3 of ``coordinator.py``), so it is done a round later.
"""

from typing import Final, final

from penstock.cluster.coordinator import ABSENT
from penstock.cluster.metadata import (
    BINDINGS,
    EXCHANGES,
    QUEUES,
    QueueMeta,
    kind_of,
    parts_of,
    path,
)
from penstock.routing.exchanges import PREDECLARED

ALWAYS_THERE: Final = frozenset(name for name, _, _ in PREDECLARED)
"""Exchanges of every virtual host, which have no keys."""


@final
class Agreed:
    """``queues``: by key.  ``revision``: everything up to it is done."""

    def __init__(self) -> None:
        self.revisions: dict[str, int] = {}
        self.made: dict[str, int] = {}  # of queues and exchanges
        self.queues: dict[str, QueueMeta] = {}
        self.revision: int = 0
        self.rounds: int = 0

    def revision_of(self, key: str) -> int:
        return self.revisions.get(key, ABSENT)

    def put(self, key: str, revision: int, made: int, queue: QueueMeta | None) -> None:
        self.revisions[key] = revision
        if kind_of(key) in (QUEUES, EXCHANGES):
            self.made[key] = made
        if queue is not None:
            self.queues[key] = queue

    def delete(self, key: str) -> None:
        self.revisions.pop(key, None)
        self.made.pop(key, None)
        self.queues.pop(key, None)

    def is_live(self, binding: str) -> bool:
        """Are both ends of the binding with this key there, and older than it?"""
        revision = self.revisions.get(binding)
        return revision is not None and all(
            self.made.get(end, revision + 1) <= revision for end in ends_of(binding)
        )

    def live_bindings(self) -> set[str]:
        return {key for key in self.revisions if kind_of(key) == BINDINGS and self.is_live(key)}

    def dead_bindings(self) -> list[str]:
        """They may be swept."""
        return [key for key in self.revisions if kind_of(key) == BINDINGS and not self.is_live(key)]


def ends_of(binding: str) -> list[str]:
    """The keys of what a binding leads from and to, as far as they have some."""
    vhost, letter, destination, source, _ = parts_of(binding)
    ends: list[str] = []
    if source not in ALWAYS_THERE:
        ends.append(path(EXCHANGES, vhost, source))
    if letter == "q":
        ends.append(path(QUEUES, vhost, destination))
    elif destination not in ALWAYS_THERE:
        ends.append(path(EXCHANGES, vhost, destination))
    return ends
