"""``Forecast``: the time until the disk is full, at the present rate.

Looks at the free space go in, at whatever times; out comes how fast it shrinks, averaged over
about half a minute, and from that the seconds to any level.  At first it is the plain average
over what has been seen, so that there is an answer from the second look on.

A trend is believed ``FAITH`` times as far as it has lasted: what some program writes for half a
minute says nothing of hours.
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.core.clock_types import MonoMs

MEMORY_MS: Final[i64] = 30_000
LEAST_BYTES_PER_S: Final = 1000.0
"""Slower is no trend: a log line now and then."""
FAITH: Final = 40.0
FAR_S: Final[i64] = 366 * 86_400
NEVER: Final[i64] = -1


@final
class Forecast:
    """Of one file system."""

    def __init__(self) -> None:
        self.shrinks_by: float = 0.0  # bytes a second; negative = it grows
        self._free_bytes: i64 = 0
        self._seen_at_ms = MonoMs(0)
        self._watched_ms: i64 = -1
        self._trend_ms: i64 = 0  # so long it has shrunk

    def note(self, now_ms: MonoMs, free_bytes: i64) -> None:
        """A look at the free space; times that go backwards begin anew."""
        elapsed_ms = now_ms - self._seen_at_ms
        if self._watched_ms < 0 or elapsed_ms < 0:
            self._watched_ms = self._trend_ms = 0
            self.shrinks_by = 0.0
        elif elapsed_ms > 0:
            self._watched_ms = min(self._watched_ms + elapsed_ms, MEMORY_MS)
            now = 1000.0 * float(self._free_bytes - free_bytes) / float(elapsed_ms)
            weight = min(float(elapsed_ms) / float(self._watched_ms), 1.0)
            self.shrinks_by += weight * (now - self.shrinks_by)
            shrinks = self.shrinks_by >= LEAST_BYTES_PER_S
            self._trend_ms = self._trend_ms + elapsed_ms if shrinks else 0
        self._free_bytes = free_bytes
        self._seen_at_ms = now_ms

    def seconds_to(self, level_bytes: i64) -> i64:
        """Until no more than ``level_bytes`` are free; NEVER = not in sight; 0 = it is so."""
        left = self._free_bytes - level_bytes
        if self._watched_ms < 0:
            return NEVER
        if left <= 0:
            return 0
        if self.shrinks_by < LEAST_BYTES_PER_S:
            return NEVER
        seconds = float(left) / self.shrinks_by
        sight_s = min(FAITH * float(self._trend_ms) / 1000.0, float(FAR_S))
        return i64(seconds) if seconds < sight_s else NEVER
