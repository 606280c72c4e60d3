"""Heartbeats of one NSQ connection: one in each interval, and the end after two without a word.

Counted from tick to tick, not from clock to clock: a clock that is set ends no connection.
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.core.clock_types import MonoMs

TICK_MAX_MS: Final[i64] = 1000
FINE: Final = 0
SPEAK: Final = 1
DEAD: Final = 2


@final
class NsqHeartbeat:
    """The interval is the client's (IDENTIFY), and may change."""

    def __init__(self, now_ms: MonoMs) -> None:
        self._ticked_at_ms: MonoMs = now_ms
        self._received_count: i64 = 0  # of the session, at the last tick
        self._silent_ms: i64 = 0  # the client has said nothing for so long
        self._beat_ms: i64 = 0  # since the last heartbeat

    def elapsed_ms(self, now_ms: MonoMs) -> i64:
        """Since the last tick, which is now."""
        elapsed_ms = min(now_ms - self._ticked_at_ms, TICK_MAX_MS)
        self._ticked_at_ms = now_ms
        return elapsed_ms

    def heard(self) -> None:
        """The client took what it is sent, so it lives."""
        self._silent_ms = 0

    def begin(self) -> None:
        """A heartbeat was sent, or another interval was agreed on."""
        self._beat_ms = 0

    def tick(self, elapsed_ms: i64, interval_ms: i64, received_count: i64, unread: bool) -> int:
        """What is to be done; ``unread``: the client may have spoken, we did not look."""
        if received_count != self._received_count:
            self._received_count = received_count
            self._silent_ms = 0
        if not unread:
            self._silent_ms += elapsed_ms
        self._beat_ms += elapsed_ms
        if self._silent_ms >= 2 * interval_ms:
            return DEAD
        return SPEAK if self._beat_ms >= interval_ms else FINE
