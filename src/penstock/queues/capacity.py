"""``Capacity``: the share of time in which a queue could deliver what it had.

Each turn of the queue says whether messages were left over because no consumer had room (or
there was none): ``note``.  Management looks now and then, and between two looks is an interval
(``look``); the share is that of the last whole one.  An integral over time, so nothing is counted
per message, and what happens between two turns changes nothing.
"""

from typing import final

from mypy_extensions import i64, mypyc_attr

from penstock.core.clock_types import WallMs


@final
@mypyc_attr(acyclic=True)
class Capacity:
    """Of one queue."""

    __slots__ = ("_begun_ms", "_share", "_waited_ms", "_waiting", "_waits_since_ms")

    def __init__(self) -> None:
        self._begun_ms = WallMs(0)  # of this interval; 0 = before the first turn
        self._waited_ms: i64 = 0  # in it, until ``_waits_since_ms``
        self._waits_since_ms = WallMs(0)
        self._waiting: bool = False
        self._share: float = -1.0  # of the interval before; below 0 = there is none

    def note(self, waits: bool, now_ms: WallMs) -> None:
        """After a turn: are messages left that no consumer has room for?"""
        if self._begun_ms == 0:
            self._begun_ms = now_ms
        if waits == self._waiting:
            return
        self._waiting = waits
        if waits:
            self._waits_since_ms = now_ms
        else:
            self._waited_ms += now_ms - self._waits_since_ms

    def look(self, now_ms: WallMs) -> None:
        """An interval ends here, and the next begins."""
        if self._begun_ms == 0 or now_ms <= self._begun_ms:
            return
        self._share = self._share_until(now_ms)
        self._begun_ms = now_ms
        self._waits_since_ms = now_ms
        self._waited_ms = 0

    def share(self, now_ms: WallMs) -> float:
        """From 0 to 1; before the first look, since the first turn."""
        if self._share >= 0.0:
            return self._share
        return self._share_until(now_ms)

    def _share_until(self, now_ms: WallMs) -> float:
        elapsed = now_ms - self._begun_ms
        if self._begun_ms == 0 or elapsed <= 0:
            return 0.0 if self._waiting else 1.0
        waited = self._waited_ms
        if self._waiting:
            waited += now_ms - self._waits_since_ms
        share = 1.0 - float(waited) / float(elapsed)
        return min(1.0, max(0.0, share))  # the clock of the machine may have been set
