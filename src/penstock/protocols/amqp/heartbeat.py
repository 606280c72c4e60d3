"""Heartbeats of one connection: how long the peer has been silent, and we.

Counted from tick to tick, not from clock to clock: a clock that is set ends no
connection.
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.core.clock_types import MonoMs

TICK_MAX_MS: Final[i64] = 1000
FINE: Final = 0
SPEAK: Final = 1
DEAD: Final = 2
HEARTBEAT_FRAME: Final = b"\x08\x00\x00\x00\x00\x00\x00\xce"


@final
class Heartbeat:
    """``interval_ms`` is what both sides agreed on; 0 = none."""

    def __init__(self, now_ms: MonoMs, interval_ms: i64) -> None:
        self.interval_ms: i64 = interval_ms
        self._silent_ms: i64 = 0  # the peer has said nothing for so long
        self._quiet_ms: i64 = 0  # and we
        self._received_count: i64 = 0  # of the session, at the last tick
        self._sent_count: i64 = 0
        self._ticked_at_ms: MonoMs = now_ms

    def heard(self) -> None:
        """The peer took what it is sent, so it lives."""
        self._silent_ms = 0

    def tick(self, now_ms: MonoMs, received_count: i64, sent_count: i64, unread: bool) -> int:
        """What is to be done; ``unread``: the peer may have spoken, we did not look.

        The counts are how often something came in, and left, in all.
        """
        elapsed_ms = min(max(now_ms - self._ticked_at_ms, 0), TICK_MAX_MS)
        self._ticked_at_ms = now_ms
        if received_count != self._received_count:
            self._received_count = received_count
            self._silent_ms = 0
        if sent_count != self._sent_count:
            self._sent_count = sent_count
            self._quiet_ms = 0
        if self.interval_ms == 0:
            return FINE
        self._quiet_ms += elapsed_ms
        if not unread:
            self._silent_ms += elapsed_ms
        if self._silent_ms * 2 > self.interval_ms * 5:
            return DEAD
        return SPEAK if self._quiet_ms * 2 >= self.interval_ms else FINE
