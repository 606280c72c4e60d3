"""Ring buffers of fixed size: growth of counters and values of gauges, step by step.

All objects of a kind are sampled at the same ticks, so where a ring stands is known once for all
(``Levels``), and a ``Track`` holds nothing but numbers: one typed array per column, with the rings
of all levels one behind the other.  A column has none until its first number that is not zero.

Samples of a counter are its newest value less what it grew by since.
"""

from array import array
from collections.abc import Sequence
from typing import Final

from penstock.management.statistics.kinds import FINE_S, SUMS, ObjectKind

NARROW_MAX: Final = (1 << 32) - 1
WIDE_MAX: Final = (1 << 64) - 1

Sample = tuple[int, float]
"""(timestamp in ms, value)"""


class Level:
    """A ring's place in the arrays, and where it stands."""

    def __init__(self, kept_s: float, step_s: float, offset: int) -> None:
        self.step_s = step_s
        self.size = int(kept_s / step_s) + 1
        self.offset = offset
        self.slot = -1  # the newest, counted from the epoch
        self.fresh: list[int] = []  # places begun by this tick

    def advance(self, now_s: float) -> None:
        slot = int(now_s // self.step_s)
        begun = self.size if self.slot < 0 else min(max(slot - self.slot, 0), self.size)
        self.fresh = [self.place(slot - back) for back in range(begun)]
        self.slot = slot

    def place(self, slot: int) -> int:
        return self.offset + slot % self.size


class Levels:
    def __init__(self, kind: ObjectKind, interval_s: float) -> None:
        self.kind = kind
        self.interval_s = interval_s
        self.levels: list[Level] = []
        offset = 0
        for kept_s, step_s in ((FINE_S, interval_s), *kind.kept):
            level = Level(kept_s, step_s, offset)
            self.levels.append(level)
            offset += level.size
        self.length = offset
        self.kept_s = max(level.step_s * level.size for level in self.levels)
        self.counter_count = len(kind.counters)
        self.ceiling = WIDE_MAX if kind.wide else NARROW_MAX
        self._empty = array("Q" if kind.wide else "I", bytes((8 if kind.wide else 4) * offset))
        self.fresh: list[int] = []
        self.current: list[int] = []
        self.newest = self.before = 0  # places in the finest ring
        self.names = kind.names
        self.sums = [(name, parts) for name, parts in SUMS.items() if parts[0] in kind.names]

    def advance(self, now_s: float) -> None:
        """A tick: from here on samples belong to this moment."""
        for level in self.levels:
            level.advance(now_s)
        self.fresh = [place for level in self.levels for place in level.fresh]
        self.current = [level.place(level.slot) for level in self.levels]
        fine = self.levels[0]
        self.newest, self.before = fine.place(fine.slot), fine.place(fine.slot - 1)

    def column(self) -> "array[int]":
        return self._empty[:]

    def level_for(self, age_s: int) -> Level:
        """The finest that reaches so far back, else the longest."""
        for level in self.levels:
            if level.step_s * (level.size - 1) >= age_s:
                return level
        return self.levels[-1]


class Track:
    __slots__ = ("changed_s", "columns", "counts", "seen")

    def __init__(self) -> None:
        self.counts: tuple[int, ...] = ()
        self.columns: dict[int, array[int]] = {}
        self.changed_s = 0.0
        self.seen = 0  # the tick in which it was there

    def forget(self) -> None:
        """Its samples; the counts stay, so that the next tick is compared with them."""
        self.columns = {}

    def record(self, levels: Levels, counts: tuple[int, ...], now_s: float, tick: int) -> None:
        """One tick's numbers: counters first, then gauges."""
        self.seen = tick
        before = self.counts
        changed = counts != before
        if changed:
            self.changed_s = now_s
            self.counts = counts
        elif now_s - self.changed_s > levels.kept_s:
            self.columns = {}  # nothing in it but zeros, and gauges that stood still
            return
        columns = self.columns
        if changed:
            self._begin_columns(levels, before, counts)
        ceiling = levels.ceiling
        for place, column in columns.items():
            value = counts[place]
            if place >= levels.counter_count:
                value = min(value, ceiling)
                # Before the first of all ticks nothing was sampled: it was then as it is now.
                was = min(before[place], ceiling) if before else value
                for at in levels.fresh:
                    column[at] = was
                for at in levels.current:
                    column[at] = value
                continue
            for at in levels.fresh:
                column[at] = 0
            grown = _grown(before, place, value) if changed else 0
            if grown:
                for at in levels.current:
                    column[at] = min(column[at] + grown, ceiling)

    def _begin_columns(
        self, levels: Levels, before: tuple[int, ...], counts: tuple[int, ...]
    ) -> None:
        for place, value in enumerate(counts):
            if place in self.columns or not value:
                continue
            was = before[place] if before else 0
            if value != was or place >= levels.counter_count:
                column = levels.column()
                if was and place >= levels.counter_count:
                    # It stood still for so long that it had no ring any more.
                    for at in range(levels.length):
                        column[at] = min(was, levels.ceiling)
                self.columns[place] = column

    def rates(self, levels: Levels) -> dict[str, float]:
        """Per second, over the last interval, of what moved; sums as well."""
        found: dict[str, float] = {}
        for place, column in self.columns.items():
            moved = column[levels.newest]
            if place >= levels.counter_count:
                moved -= column[levels.before]
            if moved:
                found[levels.names[place]] = moved / levels.interval_s
        if found:
            for name, parts in levels.sums:
                found[name] = sum([found.get(part, 0.0) for part in parts])
        return found

    def recent(self, levels: Levels, place: int, age_s: int) -> list[int]:
        """Of the finest ring's steps of that time, the oldest first: what a counter grew by in
        each, or a gauge's values, of which the first is as it was before.
        """
        level = levels.levels[0]
        back = min(int(age_s // level.step_s), level.size - 1)
        column = self.columns.get(place)
        if column is None:
            return [self._unmoved(levels, place)] * (back + 1)
        return [column[level.place(level.slot - ago)] for ago in range(back, -1, -1)]

    def samples(self, levels: Levels, place: int, age_s: int, step_s: int) -> list[Sample]:
        """The newest first."""
        level = levels.level_for(age_s)
        per = max(1, int(step_s // level.step_s))
        newest = level.slot - level.slot % per
        count = min(int(age_s // (per * level.step_s)) + 1, max(1, level.size // per))
        column = self.columns.get(place)
        value = self.counts[place] if place < len(self.counts) else 0
        found: list[Sample] = []
        at = level.slot
        for back in range(count):
            slot = newest - back * per
            if column is not None and place >= levels.counter_count:
                value = column[level.place(slot)]
            elif column is not None:
                while at > slot:
                    value -= column[level.place(at)]
                    at -= 1
            found.append((int(slot * level.step_s * 1000), value))
        # Rings may go on over a restart, or from another object of that name; counters do not.
        lowest = min([value for _, value in found], default=0)
        return found if lowest >= 0 else [(at_ms, value - lowest) for at_ms, value in found]

    def of_slot(self, levels: Levels, level: Level, slot: int) -> list[int]:
        """What each counter grew by in that step, and what each gauge was at its end."""
        at = level.place(slot)
        return [
            self.columns[place][at] if place in self.columns else self._unmoved(levels, place)
            for place in range(len(levels.names))
        ]

    def _unmoved(self, levels: Levels, place: int) -> int:
        """Of a number without a ring, in each step; nothing was counted before the first tick."""
        return self.counts[place] if levels.counter_count <= place < len(self.counts) else 0

    def restore(self, levels: Levels, at_s: int, numbers: Sequence[int]) -> None:
        """What ``of_slot`` once said of the step that began then; the oldest ones come first."""
        for level in levels.levels[1:]:
            slot = int(at_s // level.step_s)
            if not level.slot - level.size < slot <= level.slot:
                continue
            at = level.place(slot)
            for place, value in enumerate(numbers):
                column = self.columns.get(place)
                if column is None:
                    if not value:
                        continue
                    column = self.columns[place] = levels.column()
                if place < levels.counter_count:
                    value += column[at]  # noqa: PLW2901
                column[at] = min(value, levels.ceiling)


def _grown(before: Sequence[int], place: int, value: int) -> int:
    """A counter that has become smaller is another object's, of the same name."""
    was = before[place] if before else 0
    return value - was if value >= was else value


class Tracks:
    def __init__(self, kind: ObjectKind, interval_s: float) -> None:
        self.kind = kind
        self.levels = Levels(kind, interval_s)
        self.by_key: dict[tuple[str, ...], Track] = {}
        self._now_s = 0.0
        self._tick = 0

    def begin(self, now_s: float) -> None:
        self._now_s = now_s
        self._tick += 1
        self.levels.advance(now_s)

    def of(self, key: tuple[str, ...]) -> Track:
        return self.by_key.setdefault(key, Track())

    def record(self, key: tuple[str, ...], counts: tuple[int, ...]) -> None:
        track = self.by_key.get(key)
        if track is None:
            if not any(counts):
                return
            track = self.by_key[key] = Track()
        track.record(self.levels, counts, self._now_s, self._tick)

    def forget(self) -> None:
        """Keep where the counters are, and nothing of how they came there."""
        for track in self.by_key.values():
            track.forget()

    def end(self) -> None:
        """The walk is over: what it has not met is gone."""
        gone = [key for key, track in self.by_key.items() if track.seen != self._tick]
        for key in gone:
            del self.by_key[key]
