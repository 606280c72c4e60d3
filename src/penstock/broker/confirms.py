"""Publisher confirms of one channel: when may the broker say "I have it"?

Publishes are numbered from 1.  A number may be confirmed

  C1  at once, when no queue took the message (it was returned first if mandatory),
  C2  as soon as the queues have taken it, when no record of it went to the message log,
  C3  when the message log is on disk up to the position right after its record,
  C4  never, when some queue refused the message for want of room: it is told no at once,

and numbers are confirmed in order, so one position per batch is all there is to
remember: positions only grow, and what waits behind a persistent message waits with it.
One "acknowledged up to N" then answers a whole group of publishes.
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.core.traffic import Latencies

DEAD_HEAD_MIN: Final[i64] = 1024


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
        self._since_ms: list[int] = []  # when the first of them came
        self._head: i64 = 0

    def published(self, count: i64, position: i64, durable_position: i64, now_ms: i64 = 0) -> None:
        """The next ``count`` publishes are safe once the log is durable up to ``position``.

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

    def advance(
        self, durable_position: i64, now_ms: i64 = 0, times: Latencies | None = None
    ) -> None:
        """The log is now on disk up to here; ``times``: of batches that waited for it."""
        count: i64 = len(self._numbers)
        while self._head < count and self._positions[self._head] <= durable_position:
            self.confirmable = self._numbers[self._head]
            if times is not None:
                times.observe(now_ms - self._since_ms[self._head])
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
        """Is any number held back by the disk?"""
        return self._head < len(self._numbers)

    def unconfirmed_count(self) -> i64:
        return self.last_number - self.confirmed

    def refuse(self) -> None:
        """The next publish had no room in some queue: it is never acknowledged."""
        self.published(1, 0, 0)
        self._refused.add(int(self.last_number))

    def take(self) -> i64:
        """How many numbers became confirmable since the last take; they count as confirmed.

        ``acked`` is then the highest of them.  Refused ones are left out.
        """
        count = self.confirmable - self.confirmed
        acked = self.confirmable
        if self._refused and count > 0:
            number = self.confirmed + 1
            acked = 0
            while number <= self.confirmable:
                if int(number) in self._refused:
                    self._refused.discard(int(number))
                    count -= 1
                else:
                    acked = number
                number += 1
        self.confirmed = self.confirmable
        self.acked = acked
        return count
