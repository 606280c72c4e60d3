"""``MemoryMonitor``: divides the memory for messages among the queues while it is short.

    what each holds, how fast it leaves, what all may keep ─► one duration ─► a target for each

Of what a queue holds, that is useful in memory which is wanted soon.  With what leaves it in a
second (its byte rate: handed out and acknowledged) its holding lasts for so long, its
*duration*.  Memory is spent best when no message in it is wanted later than one that was paged
out; so there is one duration D for all queues, and a queue keeps what it delivers
within D.  D is found exactly: the sum over the queues of ``min(held, D * byte rate)`` is what
they may keep together.  So a queue that stands still is paged before one that moves, and one
whose holding is gone within D is not touched, however much it moves.

A queue that stands still counts as handing out a byte a second.  So what the moving ones leave
over is shared evenly by the others, the largest give most, and the rule needs no case for them.
And every queue keeps ``LEAST_TARGET_BYTES`` (less where memory is very small, or the queues are
very many), so that a new consumer finds messages in memory.

This is RabbitMQ's rule of durations, done with bytes.  There a queue reports messages in memory
over messages per second, and every queue is told the *mean* of what was reported, divided by how
full memory is:

- counts of messages say nothing of memory: large ones run past any limit, and unacknowledged
  small ones are not paged at all;
- a mean of durations is the right one by chance only: hundreds of queues that hold nothing draw
  it to nothing, and one that would take an hour raises it so far that no queue pages;
- what comes in counts as movement there, so a queue that only fills up seems the busiest;
- being no solution but a push in the right direction it has to be repeated, and a second is added
  to the sum below 0.95 of the limit, because a duration that came to 0 could never grow again.
  Here every look starts from what is there.

A look takes O(n log n).  One is taken when memory becomes short, when all that was over its
target has been paged, and ``INTERVAL_MS`` after the last; but with many queues not at once again.

Invariants (``check``), after a look that found too much in memory:
  W1  what the queues keep, the lesser of target and holding, is together what may be kept, to
      a byte for each queue
  W2  who is told less than it holds is told D * byte rate, or the least target
  W3  no target is below the least target
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.core.clock_types import WallMs
from penstock.storage.engine.resting_queue import INFINITE, RestingQueue

INTERVAL_MS: Final[i64] = 2500
LEAST_TARGET_BYTES: Final[i64] = 256 * 1024
QUEUES_PER_MS: Final[i64] = 16
"""A look at so many queues is taken once a millisecond at most: so it costs a few per cent."""
ENDLESS: Final = float("inf")


@final
class QueueMemory:
    """What one queue had in memory at the last look, and what it may keep."""

    def __init__(self, queue: RestingQueue, held_bytes: i64, byte_rate: i64) -> None:
        self.queue: RestingQueue = queue
        self.held_bytes: i64 = held_bytes
        self.byte_rate: i64 = byte_rate if byte_rate > 1 else 1
        self.target_bytes: i64 = INFINITE

    def aim(self, duration_s: float, least_bytes: i64) -> None:
        """It may keep what goes within this time, or all of it, and never less than the least."""
        wanted = duration_s * float(int(self.byte_rate))
        target = self.held_bytes
        if wanted < float(int(self.held_bytes)):
            target = i64(int(wanted))
        self.target_bytes = target if target > least_bytes else least_bytes

    def excess(self) -> i64:
        """What it holds over its target."""
        return 0 if self.target_bytes == INFINITE else self.held_bytes - self.target_bytes

    def kept_bytes(self) -> i64:
        return self.held_bytes - self.excess() if self.excess() > 0 else self.held_bytes


@final
class MemoryMonitor:
    """``duration_s`` is what all are held to at present; endless while memory is not short."""

    def __init__(self) -> None:
        self.duration_s: float = ENDLESS
        self.looks: i64 = 0
        self._looked_at_ms = WallMs(0)
        self._kept_bytes: i64 = 0
        self._least_bytes: i64 = 0
        self._holdings: list[QueueMemory] = []

    def is_due(self, now_ms: WallMs, busy: bool, queues: i64) -> bool:
        """Are new targets due?  ``busy`` = some queues over their targets still page."""
        interval_ms = queues // QUEUES_PER_MS
        if busy or interval_ms > INTERVAL_MS:
            interval_ms = INTERVAL_MS
        return not 0 <= now_ms - self._looked_at_ms < interval_ms

    def look(
        self, holdings: list[QueueMemory], kept_bytes: i64, paging_bytes: i64, now_ms: WallMs
    ) -> list[QueueMemory]:
        """Those that hold more than they may, the furthest over last."""
        self._looked_at_ms = now_ms
        self.looks += 1
        self._kept_bytes = kept_bytes
        self._holdings = holdings
        least = least_target(paging_bytes, kept_bytes, len(holdings))
        self._least_bytes = least
        duration_s = duration_for(holdings, kept_bytes, least)
        self.duration_s = duration_s
        if duration_s == ENDLESS:
            return []
        over: list[QueueMemory] = []
        for holding in holdings:
            holding.aim(duration_s, least)
            if holding.excess() > 0:
                over.append(holding)
        over.sort(key=_excess)
        return over

    def rest(self) -> None:
        """Memory is not short any more."""
        if self.duration_s != ENDLESS:
            self.duration_s = ENDLESS
            self._holdings = []

    def check(self) -> None:
        """Assert the invariants."""
        if self.duration_s == ENDLESS:
            return
        kept: i64 = 0
        least = self._least_bytes
        for holding in self._holdings:
            kept += holding.kept_bytes()
            assert holding.target_bytes >= least, "W3"
            if holding.excess() > 0:
                due = i64(int(self.duration_s * float(int(holding.byte_rate))))
                assert holding.target_bytes == (due if due > least else least), "W2"
        assert -len(self._holdings) <= kept - self._kept_bytes <= len(self._holdings), "W1"


def holdings_of(queues: list[RestingQueue]) -> list[QueueMemory]:
    """Of those that hold anything."""
    holdings: list[QueueMemory] = []
    for queue in queues:
        held_bytes = queue.ram_bytes()
        if held_bytes > 0:
            holdings.append(QueueMemory(queue, held_bytes, queue.byte_rate()))
    return holdings


def least_target(paging_bytes: i64, kept_bytes: i64, queues: i64) -> i64:
    """What each queue may keep: together no more than a quarter of what there is."""
    least = LEAST_TARGET_BYTES
    if least > paging_bytes // 8:
        least = paging_bytes // 8
    if queues > 0 and least > kept_bytes // (4 * queues):
        least = kept_bytes // (4 * queues)
    return least


def duration_for(holdings: list[QueueMemory], kept_bytes: i64, least_bytes: i64) -> float:
    """The D with which the queues keep this much together; endless when they hold no more.

    As D grows, a queue keeps more from when D * rate passes the least it keeps anyway until it
    keeps all.  In between the sum grows evenly: so walk from one such moment to the next.
    """
    level: i64 = 0
    total: i64 = 0
    moments: list[tuple[float, int]] = []  # and by how much faster the sum grows from there
    for holding in holdings:
        held = holding.held_bytes
        total += held
        level += held if held < least_bytes else least_bytes
        if held > least_bytes:
            rate = float(int(holding.byte_rate))
            moments.append((float(int(least_bytes)) / rate, int(holding.byte_rate)))
            moments.append((float(int(held)) / rate, -int(holding.byte_rate)))
    if total <= kept_bytes:
        return ENDLESS
    moments.sort()
    kept = float(int(level))
    wanted = float(int(kept_bytes))
    since_s = 0.0
    speed: i64 = 0
    for at_s, change in moments:
        grown = kept + float(int(speed)) * (at_s - since_s)
        if grown >= wanted and speed > 0:
            return since_s + (wanted - kept) / float(int(speed))
        kept = grown
        since_s = at_s
        speed += change
    return since_s


def _excess(holding: QueueMemory) -> int:
    return int(holding.excess())
