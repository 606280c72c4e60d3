"""The coordinator's keys as this member knows them, and the events that a new snapshot stands for.

In: the first snapshot and every event since.  Out, from a new snapshot: the events
that lead from the one to the other, as O2 of ``coordinator.py`` says.  Values are not kept here,
only when each key was made: that tells a key which changed from one that went and was made anew.

A coordinator may lose its data, and come back empty or with an older copy.  A key that is missing
there was not deleted: the member gets no more events, and ``lost`` says why.  Such a
loss shows by a smaller revision than before, of the store or of the key ``CHANGED``, or by another
value of the key ``FOUNDED``, which never changes.
"""

from collections.abc import Sequence
from typing import Final, final

from penstock.cluster.agreement.coordinator import CHANGED, Entry, Event

FOUNDED: Final = "cluster/founded"
"""The key that says that there is a cluster, and which."""

Known = tuple[int, str | None]
"""A revision, and the value of ``FOUNDED``."""


def founded_in(entries: Sequence[Entry]) -> str | None:
    """The value of that key; None = there is no cluster."""
    return next((entry.value for entry in entries if entry.key == FOUNDED), None)


def changed_in(entries: Sequence[Entry]) -> int:
    """The revision of that key; 0 = there is none."""
    return next((entry.revision for entry in entries if entry.key == CHANGED), 0)


@final
class KnownKeys:
    """``revision``: everything up to it was told.  ``lost``: "", or why nothing more is."""

    __slots__ = ("_changed", "_founded", "_made", "lost", "revision")

    def __init__(self, entries: Sequence[Entry], revision: int) -> None:
        self._made = {entry.key: entry.made for entry in entries}
        self._founded = founded_in(entries)
        self._changed = changed_in(entries)
        self.revision = revision
        self.lost = ""

    def state(self) -> Known:
        """The member keeps this when it asks the coordinator: later events do not change it."""
        return self.revision, self._founded

    def look(self, founded: str | None, revision: int, known: Known | None = None) -> None:
        """The coordinator is at that revision, and ``FOUNDED`` has that value.

        ``known``: the state when it was asked; None = that of now.
        """
        told, known_founded = known or self.state()
        if revision < told:
            self.lost = (
                f"its data is older than what it said before (revision {revision}, not {told})"
            )
        elif known_founded is not None and founded is None:
            self.lost = "its data is gone: it knows this cluster no more"
        elif known_founded not in (None, founded):
            self.lost = "it has the data of another cluster now"

    def distrust(self, why: str) -> None:
        """What the coordinator says was not agreed on by members."""
        self.lost = why

    def told(self, events: Sequence[Event], revision: int) -> None:
        """All there are up to ``revision``."""
        for event in events:
            self._told(event)
        self.revision = revision

    def _told(self, event: Event) -> None:
        if event.key == FOUNDED:
            self.look(event.value, event.revision)
            self._founded = event.value
        if event.key == CHANGED:
            self._changed = event.revision
        if event.value is None:
            self._made.pop(event.key, None)
        elif event.created:
            self._made[event.key] = event.revision
        self.revision = max(self.revision, event.revision)

    def difference(self, entries: Sequence[Entry], revision: int) -> list[Event]:
        """To be told next; with it the member is at ``revision``, that of the snapshot."""
        self.look(founded_in(entries), revision)
        changed = changed_in(entries)
        if not self.lost and changed < self._changed:
            self.lost = (
                f"its data is older than what it said before (changed at revision {changed}, not"
                f" {self._changed})"
            )
        if self.lost:
            return []
        self._changed = changed
        self._founded = founded_in(entries)
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
