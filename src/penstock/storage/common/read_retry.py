"""``ReadRetry``: when a queue whose read failed reads again.

After 5 s, and when that fails after twice the time, up to 320 s; a fault long after the last one is
a new one.  A clock that was set back begins the wait anew.
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.core.clock_types import WallMs

RETRY_LEAST_MS: Final[i64] = 5_000
RETRY_MOST_MS: Final[i64] = 320_000


@final
class ReadRetry:
    """Of one queue."""

    def __init__(self) -> None:
        self._tried_at_ms = WallMs(0)  # the fault was seen first, or the last try
        self._after_ms: i64 = RETRY_LEAST_MS

    def is_due(self, faulty: bool, now_ms: WallMs) -> bool:
        """Called when a read has failed, and now and then; True = it may read again."""
        since_ms = now_ms - self._tried_at_ms
        within = 0 <= since_ms <= 2 * RETRY_MOST_MS
        if not faulty:
            if self._tried_at_ms > 0 and not within:
                self._tried_at_ms = WallMs(0)
                self._after_ms = RETRY_LEAST_MS
            return False
        if not within:
            self._tried_at_ms = now_ms
            return False
        if since_ms < self._after_ms:
            return False
        self._tried_at_ms = now_ms
        if self._after_ms < RETRY_MOST_MS:
            self._after_ms *= 2
        return True

    def is_over(self) -> bool:
        """There was no fault for so long that the next one is a new one."""
        return self._tried_at_ms == 0

    def at_ms(self) -> WallMs:
        """Of the next try, while there is a fault."""
        return WallMs(self._tried_at_ms + self._after_ms)
