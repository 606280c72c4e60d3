"""``Agreed``: the metadata the cluster has agreed on, as far as this node has applied them.

In: events, as they are done.  Out: the revision at which a key was last changed, which is what a
proposal names as its condition; and which bindings are *dead*: a key may outlive its source.
Binding and deleting the source do not hinder each other, so a binding may be agreed on an instant
before its source goes, unseen by the node that deletes it.  It counts only if its source, and where
it leads, are there when it is done, and as long as they are; events come in an order that shows it.

``rounds`` is moved whenever everything that had come is done.  What a coordinator has accepted
comes with the next events at the latest (O3 of ``coordinator.py``), so it is done a round later.
"""

from collections.abc import Sequence
from typing import Final, final

from penstock.cluster.agreement.coordinator import ABSENT, Entry
from penstock.cluster.agreement.metadata import (
    BINDINGS,
    EXCHANGES,
    QUEUES,
    QueueMeta,
    kind_of,
    parts_of,
    path,
    read,
)
from penstock.routing.exchanges import PREDECLARED

ALWAYS_THERE: Final = frozenset(name for name, _, _ in PREDECLARED)
"""Exchanges of every virtual host, which have no keys."""


@final
class Agreed:
    """``queues``: by key; ``homes``: how many of them a node has.  ``dead``: see above.

    ``revision``  everything up to it is done
    ``changed``   of the last change that was done; what came up to ``revision`` were none
    """

    def __init__(self) -> None:
        self.revisions: dict[str, int] = {}
        self.queues: dict[str, QueueMeta] = {}
        self.homes: dict[str, int] = {}
        self.dead: set[str] = set()
        self.revision: int = 0
        self.changed: int = 0
        self.rounds: int = 0

    def begin(self, entries: Sequence[Entry]) -> None:
        """All the coordinator has."""
        for entry in entries:
            if kind_of(entry.key):
                queue = read(entry.key, entry.value) if kind_of(entry.key) == QUEUES else None
                assert queue is None or isinstance(queue, QueueMeta)
                self.put(entry.key, entry.revision, queue)
        self.dead = dead_among(entries)
        self.done(max([entry.revision for entry in entries], default=0))

    def done(self, revision: int) -> None:
        """The changes up to there."""
        self.revision = max(self.revision, revision)
        self.changed = max(self.changed, revision)

    def done_without_change(self, revision: int) -> None:
        """Behind the last change none came up to there."""
        self.revision = max(self.revision, revision)

    def end_round(self) -> None:
        self.rounds += 1

    def revision_of(self, key: str) -> int:
        return self.revisions.get(key, ABSENT)

    def put(self, key: str, revision: int, queue: QueueMeta | None) -> None:
        self.revisions[key] = revision
        if queue is not None:
            self._leaves_home(key)
            self.queues[key] = queue
            self.homes[queue.home] = self.homes.get(queue.home, 0) + 1
        elif kind_of(key) == BINDINGS:
            if all(end in self.revisions for end in ends_of(key)):
                self.dead.discard(key)
            else:
                self.dead.add(key)

    def delete(self, key: str) -> None:
        self.revisions.pop(key, None)
        self._leaves_home(key)
        self.dead.discard(key)

    def _leaves_home(self, key: str) -> None:
        queue = self.queues.pop(key, None)
        if queue is not None:
            self.homes[queue.home] -= 1

    def bury(self, binding: str) -> None:
        """One of its ends goes, or was made after it."""
        if binding in self.revisions:
            self.dead.add(binding)

    def living(self) -> set[str]:
        """Every key that counts."""
        return self.revisions.keys() - self.dead


def dead_among(entries: Sequence[Entry]) -> set[str]:
    """The bindings of a snapshot that do not count."""
    made = {entry.key: entry.made for entry in entries}
    return {
        entry.key
        for entry in entries
        if kind_of(entry.key) == BINDINGS
        and not all(made.get(end, entry.made + 1) <= entry.made for end in ends_of(entry.key))
    }


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
