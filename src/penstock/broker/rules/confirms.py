"""Publisher confirms of one channel: decides when a publish may be confirmed.

Publishes are numbered from 1.  A number may be confirmed

  C1  at once, when no queue took the message (it was returned first if mandatory),
  C2  as soon as the queues have taken it, when no record of it went to the journal,
  C3  when the journal is on disk up to the position right after its record,
  C4  never, when some queue refused the message for want of room: it is told no at once,
      or, where that queue is on another node, as soon as that is known,
  C5  when all that other nodes have to say of it has been said (``core/confirm_watermark.py``),

and numbers are confirmed in order, so one position per batch is all there is to
remember: positions only grow, and what waits behind a persistent message waits with it.
One "acknowledged up to N" then answers a whole group of publishes.

What waits for other nodes is a second list: nothing from its first number on is confirmed, however
far the journal is.  No wait has a time limit; cluster/mirrors/safety.py finds stuck mirrors.
How soon the journal is synced: ``GroupCommit`` in runtime/turn.py.
"""

from collections import deque
from typing import Final, final

from mypy_extensions import i64

from penstock.core.clock_types import WallMs
from penstock.core.confirm_watermark import PendingConfirm, all_done
from penstock.core.counting.histogram import Histogram

DEAD_HEAD_MIN: Final[i64] = 1024
NOTHING: Final[i64] = 1 << 62


@final
class AwayBatch:
    """``count`` numbers from ``first`` on, which wait for other nodes."""

    def __init__(self, first: i64, count: i64, waits: list[PendingConfirm], now_ms: WallMs) -> None:
        self.first: i64 = first
        self.count: i64 = count
        self.waits = waits
        self.since_ms: WallMs = now_ms


@final
class ConfirmLedger:
    """Numbers given, numbers confirmable, and what the rest waits for."""

    def __init__(self) -> None:
        self.last_number: i64 = 0
        self.confirmable: i64 = 0
        self.confirmed: i64 = 0
        self.acked: i64 = 0  # the highest number to say yes to
        self._refused: set[int] = set()  # numbers some queue had no room for, told already
        self._numbers: list[int] = []  # ascending; with _positions: up to N waits for P
        self._positions: list[int] = []
        self._since_ms: list[WallMs] = []  # when the first of them came
        self._head: i64 = 0
        self.denied: list[int] = []  # refused after all, and not told yet
        self._away: deque[AwayBatch] = deque()
        self._held_from: i64 = NOTHING  # the first number that waits for other nodes

    def published(self, count: i64, position: i64, durable_position: i64, now_ms: WallMs) -> None:
        """The next ``count`` publishes are safe once the journal is durable up to ``position``.

        ``position`` is 0 when nothing was logged.
        """
        self.last_number += count
        waiting: i64 = len(self._numbers)
        if waiting == self._head:
            if position <= durable_position:
                self.confirmable = self.last_number
                return
        elif position <= self._positions[waiting - 1]:
            self._numbers[waiting - 1] = self.last_number
            return
        self._numbers.append(self.last_number)
        self._positions.append(position)
        self._since_ms.append(now_ms)

    def published_away(
        self,
        count: i64,
        position: i64,
        durable_position: i64,
        now_ms: WallMs,
        waits: list[PendingConfirm],
    ) -> None:
        """As ``published``, and safe only when each of ``waits`` is done as well."""
        first = self.last_number + 1
        self.published(count, position, durable_position, now_ms)
        self._away.append(AwayBatch(first, count, waits, now_ms))
        if self._held_from == NOTHING:
            self._held_from = first
            self._look_away(now_ms, None)

    def _look_away(self, now_ms: WallMs, times: Histogram | None) -> None:
        """What of other nodes has been heard?"""
        while len(self._away) > 0 and all_done(self._away[0].waits):
            batch = self._away.popleft()
            for wait in batch.waits:
                for place in wait.unsafe_places(batch.count):
                    self.deny(batch.first + place)
            if times is not None:
                times.add(now_ms - batch.since_ms, 1)
        self._held_from = self._away[0].first if len(self._away) > 0 else NOTHING

    def advance(
        self, durable_position: i64, now_ms: WallMs, times: Histogram | None = None
    ) -> None:
        """The journal is now on disk up to here, or other nodes have said something.

        ``times``: of batches that waited for that.
        """
        if self._held_from != NOTHING:
            self._look_away(now_ms, times)
        count: i64 = len(self._numbers)
        while self._head < count and self._positions[self._head] <= durable_position:
            self.confirmable = self._numbers[self._head]
            if times is not None and self.confirmable < self._held_from:
                times.add(now_ms - self._since_ms[self._head], 1)
            self._head += 1
        if self._head == count:
            self._numbers = []
            self._positions = []
            self._since_ms = []
            self._head = 0
        elif self._head >= DEAD_HEAD_MIN and self._head * 2 > count:
            # With a publisher that never pauses the list is never empty.
            del self._numbers[: self._head]
            del self._positions[: self._head]
            del self._since_ms[: self._head]
            self._head = 0

    def waiting(self) -> bool:
        """Is any number held back by the disk, or by other nodes?"""
        return self._head < len(self._numbers) or self._held_from != NOTHING

    def unconfirmed_count(self) -> i64:
        return self.last_number - self.confirmed

    def refuse(self) -> None:
        """The next publish had no room in some queue: it is never acknowledged."""
        self.published(1, 0, 0, WallMs(0))
        self._refused.add(int(self.last_number))

    def deny(self, number: i64) -> None:
        """This one, given already, is refused after all."""
        if int(number) not in self._refused:
            self._refused.add(int(number))
            self.denied.append(int(number))

    def take_denied(self) -> list[int]:
        denied = self.denied
        self.denied = []
        return denied

    def take(self) -> i64:
        """How many numbers became confirmable since the last take; they count as confirmed.

        ``acked`` is then the highest of them.  Refused ones are left out; those of ``denied``
        are to be told first, because "up to N" would say yes to them.
        """
        upto = self.confirmable if self.confirmable < self._held_from else self._held_from - 1
        count = upto - self.confirmed
        acked = upto
        if self._refused and count > 0:
            number = self.confirmed + 1
            acked = 0
            while number <= upto:
                if int(number) in self._refused:
                    self._refused.discard(int(number))
                    count -= 1
                else:
                    acked = number
                number += 1
        self.confirmed = upto
        self.acked = acked
        return count
