"""``RangeGroups``: the groups that read a stream by ranges, and hold its retention back.

A group is the name under which a Spark query reads.  Its position is the offset up to which the
query has committed.  What lies from the lowest position on stays, up to ``hold_bytes`` over the
stream's limits.  Beyond that retention removes segments, and the next read of the group fails with
the offsets that are gone.

A group of which nothing was heard for ``IDLE_MS`` is forgotten, and so is the one that was idle
longest when there are more than ``GROUPS_MAX``.
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.core.clock_types import MonoMs
from penstock.streams.log import StreamLog

IDLE_MS: Final = 7 * 86_400_000
GROUPS_MAX: Final = 100


@final
class RangeGroup:
    """``request``: what its start was asked for by; "" = something beyond it is committed."""

    def __init__(self, position: i64, request: str, now_ms: MonoMs) -> None:
        self.position: i64 = position
        self.request: str = request
        self.heard_ms: MonoMs = now_ms


@final
class RangeGroups:
    """Of one stream."""

    def __init__(self, log: StreamLog) -> None:
        self.by_name: dict[str, RangeGroup] = {}
        self.hold_bytes: i64 = 0
        self._log: StreamLog = log

    def allow(self, hold_bytes: i64) -> None:
        """How much they hold at most; 0 = nothing."""
        self.hold_bytes = hold_bytes

    def put(self, name: str, position: i64, request: str, now_ms: MonoMs) -> list[str]:
        """Where that group is now; returns the groups that were forgotten for it."""
        self.by_name.pop(name, None)  # so the one that was idle longest comes first
        self.by_name[name] = RangeGroup(position, request, now_ms)
        gone: list[str] = []
        if len(self.by_name) > GROUPS_MAX:
            gone.append(next(iter(self.by_name)))
            del self.by_name[gone[0]]
        self._hold()
        return gone

    def drop(self, name: str) -> list[str]:
        """Its name, if it was known."""
        if self.by_name.pop(name, None) is None:
            return []
        self._hold()
        return [name]

    def forget_idle(self, now_ms: MonoMs) -> list[str]:
        """Returns their names."""
        gone = [name for name, one in self.by_name.items() if now_ms - one.heard_ms > IDLE_MS]
        for name in gone:
            del self.by_name[name]
        if gone:
            self._hold()
        return gone

    def _hold(self) -> None:
        positions = [group.position for group in self.by_name.values()]
        lowest = min(positions) if positions and self.hold_bytes > 0 else -1
        self._log.hold(lowest, self.hold_bytes)
