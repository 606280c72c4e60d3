"""The store of a coordinator as a dictionary: what is there, what was there, and whose it is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from penstock.cluster.agreement.coordinator import Change, Condition, Entry, Event


@dataclass
class Held:
    value: str
    revision: int
    created: int
    lease: int


@dataclass
class ModelCoordination:
    revision: int = 0
    keys: dict[str, Held] = field(default_factory=dict)
    leases: set[int] = field(default_factory=set)
    history: list[Event] = field(default_factory=list)
    lease_count: int = 0

    def grant(self) -> int:
        self.lease_count += 1
        self.leases.add(self.lease_count)
        return self.lease_count

    def end(self, lease: int) -> None:
        """What was bound to it goes, at one revision."""
        self.leases.discard(lease)
        gone = sorted(key for key, held in self.keys.items() if held.lease == lease)
        if gone:
            self.revision += 1
            for key in gone:
                self._delete(key)

    def holds(self, conditions: Iterable[Condition]) -> bool:
        return all(self.revision_of(one.key) == one.revision for one in conditions)

    def revision_of(self, key: str) -> int:
        held = self.keys.get(key)
        return 0 if held is None else held.revision

    def change(self, lease: int, changes: Iterable[Change]) -> int:
        self.revision += 1
        for change in changes:
            if change.value is not None:
                self._put(change.key, change.value, lease if change.leased else 0)
            elif change.below:
                for key in sorted(key for key in self.keys if key.startswith(change.key)):
                    self._delete(key)
            elif change.key in self.keys:
                self._delete(change.key)
        return self.revision

    def _put(self, key: str, value: str, lease: int) -> None:
        old = self.keys.get(key)
        created = self.revision if old is None else old.created
        self.keys[key] = Held(value, self.revision, created, lease)
        self.history.append(Event(self.revision, key, value, created=old is None))

    def _delete(self, key: str) -> None:
        del self.keys[key]
        self.history.append(Event(self.revision, key, None, created=False))

    def entries(self) -> list[Entry]:
        made = sorted((held.created, key) for key, held in self.keys.items())
        return [
            Entry(key, self.keys[key].value, self.keys[key].revision, created)
            for created, key in made
        ]

    def events_between(self, above: int, to: int) -> list[Event]:
        return [event for event in self.history if above < event.revision <= to]

    def difference(self, above: int, known: dict[str, int]) -> list[Event]:
        """For who knew these keys, and when they were made, at revision ``above``."""
        gone = [
            (made, key)
            for key, made in known.items()
            if key not in self.keys or self.keys[key].created > above
        ]
        found = [
            Event(above + 1, key, None, created=False) for _, key in sorted(gone, reverse=True)
        ]
        for entry in self.entries():
            if entry.revision > above:
                created = entry.made > above
                found.append(Event(entry.revision, entry.key, entry.value, created=created))
        return found
