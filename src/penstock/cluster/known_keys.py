"""What a member has been told of the coordinator's keys, and what it is told when history is gone.

In: the snapshot it began with and every event it was given.  Out, from a new snapshot: the events
that lead from the one to the other, as O2 of ``coordinator.py`` says.  Values are not kept here,
only when each key was made: that tells a key which changed from one that went and was made anew.
"""

from collections.abc import Sequence
from typing import final

from penstock.cluster.coordinator import Entry, Event


@final
class KnownKeys:
    """``revision``: everything up to it was told."""

    __slots__ = ("_made", "revision")

    def __init__(self, entries: Sequence[Entry], revision: int) -> None:
        self._made = {entry.key: entry.made for entry in entries}
        self.revision = revision

    def told(self, event: Event) -> None:
        if event.value is None:
            self._made.pop(event.key, None)
        elif event.created:
            self._made[event.key] = event.revision
        self.revision = max(self.revision, event.revision)

    def difference(self, entries: Sequence[Entry], revision: int) -> list[Event]:
        """To be told next; with it the member is at ``revision``, that of the snapshot."""
        told, known = self.revision, self._made
        lasting = {entry.key for entry in entries if entry.made <= told}
        gone = sorted(
            ((made, key) for key, made in known.items() if key not in lasting), reverse=True
        )
        # When they went is not known; the earliest it can be keeps each key's revisions ascending.
        events = [Event(told + 1, key, None, created=False) for _, key in gone]
        for entry in sorted(entries, key=lambda entry: (entry.made, entry.key)):
            if entry.revision > told:
                created = entry.made > told
                events.append(Event(entry.revision, entry.key, entry.value, created=created))
        self._made = {entry.key: entry.made for entry in entries}
        self.revision = max(told, revision)
        return events
