"""queueScanLoop: nsqd's way to find deliveries and deferrals whose time has come.

    every interval    a round: some channels by lot, each looked at by one of the workers
    dirty             of those looked at, more than a share had something due: another round at once
    every refresh     which channels there are, and how many workers that takes

In: time, the channels there are, and random numbers from the caller.  Out: channels to look at
now, as many at once as there are workers; the loop has its turns in between.  nsqd's workers are
threads; here a worker is a place in such a handful, so the pool bounds how long a turn takes.

It looks at few channels of many, so it is late when many are due at once, by seconds with some
hundred channels, and does not know a channel before the next refresh.  ``queues/schedule.py``
knows every deadline; this is here for those who want nsqd's cost, which does not grow with what
is in flight.  (nsqd 1.3.0, ``nsqd.go``; the fact book's A9.)

Invariants (``check``):
  S1  the channels of a round are different ones, ``selection_count`` at most
  S2  ``workers`` is a quarter of the channels, at least 1, at most ``worker_pool_max``
"""

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from penstock.core.clock_types import WallMs
from penstock.queues.queue import Queue

POOL_SHARE: Final = 0.25

Lots = Callable[[int, int], list[int]]
"""(n, count) -> so many different numbers below n."""


@final
class ScanLoop:
    def __init__(
        self,
        lots: Lots,
        interval_ms: i64 = 100,
        refresh_interval_ms: i64 = 5000,
        selection_count: i64 = 20,
        dirty_percent: float = 0.25,
        worker_pool_max: i64 = 4,
    ) -> None:
        self.interval_ms: i64 = interval_ms
        self.refresh_interval_ms: i64 = refresh_interval_ms
        self.selection_count: i64 = selection_count
        self.dirty_percent = dirty_percent
        self.worker_pool_max: i64 = worker_pool_max
        self.workers: i64 = 0
        self.rounds: i64 = 0
        self.last_dirty_share: float = 0.0  # of the channels of the last round
        self.last_round_ms: i64 = 0  # how long it took, turns of others included
        self._lots = lots
        self._channels: list[Queue] = []
        self._tick_at_ms = WallMs(0)  # when the next round begins
        self._refresh_at_ms = WallMs(0)
        self._selected: list[Queue] = []  # of the round that is under way
        self._looked_at: i64 = 0
        self._dirty: i64 = 0
        self._begun_ms = WallMs(0)

    def count(self) -> i64:
        """How many channels it knows."""
        return len(self._channels)

    def wants_channels(self, now_ms: WallMs) -> bool:
        """Is it time for ``refresh``?"""
        return not 0 < self._refresh_at_ms - now_ms <= self.refresh_interval_ms

    def refresh(self, channels: list[Queue], now_ms: WallMs) -> None:
        """These are all there are."""
        self._channels = channels
        self._resize_pool(len(channels))
        self._refresh_at_ms = WallMs(now_ms + self.refresh_interval_ms)

    def _resize_pool(self, count: i64) -> None:
        ideal = i64(int(float(count) * POOL_SHARE))
        if ideal > self.worker_pool_max:
            ideal = self.worker_pool_max
        self.workers = ideal if ideal > 1 else 1

    def next_ms(self) -> WallMs:
        """When it wants to be asked again."""
        if len(self._selected) > 0 or self._tick_at_ms < self._refresh_at_ms:
            return self._tick_at_ms
        return self._refresh_at_ms

    def step(self, now_ms: WallMs) -> bool:
        """Let the workers look at one channel each; True = it would go on at once."""
        if len(self._selected) == 0:
            if 0 < self._tick_at_ms - now_ms <= self.interval_ms:
                return False
            self._tick_at_ms = WallMs(now_ms + self.interval_ms)
            if len(self._channels) == 0:
                return False
            self._begin_round(now_ms)
        last = self._looked_at + self.workers
        while self._looked_at < last and self._looked_at < len(self._selected):
            queue = self._selected[self._looked_at]
            self._looked_at += 1
            if not queue.deleted and queue.release_due(now_ms) > 0:
                self._dirty += 1
        return self._looked_at < len(self._selected) or self._end_round(now_ms)

    def _begin_round(self, now_ms: WallMs) -> None:
        count: i64 = len(self._channels)
        if count > self.selection_count:
            count = self.selection_count
        places = self._lots(len(self._channels), int(count))
        self._selected = [self._channels[place] for place in places]
        self._looked_at = 0
        self._dirty = 0
        self._begun_ms = now_ms
        self.rounds += 1

    def _end_round(self, now_ms: WallMs) -> bool:
        """True when another one begins at once."""
        self.last_dirty_share = float(self._dirty) / float(len(self._selected))
        self.last_round_ms = now_ms - self._begun_ms
        if self.last_dirty_share > self.dirty_percent:
            self._begin_round(now_ms)
            return True
        self._selected = []
        return False

    def check(self) -> None:
        """Assert S1 and S2."""
        assert len(self._selected) <= self.selection_count, "S1"
        assert len({id(queue) for queue in self._selected}) == len(self._selected), "S1"
        assert self.workers <= max(self.worker_pool_max, 1), "S2"
        assert self.workers >= 1 or not self._channels, "S2"
