"""``Alarms``: memory and disk against their watermarks.

    messages (RamAccount, every turn) ──────────┐
    base and resident size (every second) ──────┼─► memory ─┐
    limit of memory ────────────────────────────┘           ├─► admission: who may publish
    free disk (ten times a second to every 10 s)─┬─► disk ──┘
    limit of free disk ──────────────────────────┘     └─► the engine stops paging

**Used memory** is counted, not only asked of the system, because the system's number comes
late in both directions: a second is 500 MB of a fast publisher, and what messages have left
stays with the C library.  Counted is the *base* (the resident size when there was nothing of
messages in it: interpreter, code, topology, the index of what rests on disk) and the messages.
The limit is one for the whole process, as RabbitMQ's is, so what is left of it for messages is
the limit less the base; ``RamAccount`` has it as its own, and pages by it.

The *resident size* is the second opinion, for what is not counted: buffers of connections, gaps
in the heap.  Over the limit ``node/resource_monitor`` gives the heap's free memory back
first and reports what is left.  A little over the limit it counts only while
messages hold at least half of what is left for them: else publishers would be held for gaps in the
heap, which no consumer can free.  Over the limit by ``far_bytes`` it always counts, whatever the
memory is made of, and nothing new may be declared (``take_declared``): a second is 100 MB of
bindings and 500 MB of messages, so what was declared and how much the messages grew since the
system was asked are added to its number.  Before that sum refuses or blocks anything, the system
is asked again.

Before that it makes paging begin sooner, by as much as it is above ``COMFORT`` percent of the
limit: what messages leave goes to those that come, and the process stays below its limit.

**Hysteresis**: an alarm that is set stays until there is a twentieth to spare, so that
publishers are not told ``blocked`` and ``unblocked`` at every message; RabbitMQ, which looks once
a second, has none.  A changed limit is judged afresh.

Always true after a look, and asserted by ``check``:
    A1  more memory is used than the limit, or the limit is 0: the memory alarm is set
    A2  no more than the limit is used, by count and by resident size, and less than the level
        that clears: the memory alarm is not set
    A3  less disk is free than the limit: the disk alarm is set
    A4  as much is free as the level that clears, or it is not known: the disk alarm is not set
    A5  the base and what is left for messages make up the limit, or nothing is left
"""

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from penstock.broker.rules.forecast import Forecast
from penstock.core.capacity import DiskLimit, MemoryLimit
from penstock.core.clock_types import MonoMs
from penstock.storage.engine.ram import RamAccount

NO_PAGING: Final[i64] = 1 << 62
UNKNOWN: Final[i64] = -1
SPARE: Final[i64] = 20
"""One part in so many has to be to spare before an alarm is cleared."""
COMFORT: Final[i64] = 85
"""Percent of the limit; by what the resident size is above it, paging begins sooner."""
LEAST_PAGING: Final[i64] = 8
"""But not below one part in so many of what the ratio says."""
FAR_BYTES: Final[i64] = 64 * 1024 * 1024
FAR_PART: Final[i64] = 10
"""Over the limit by so much, or by one part in so many where that is more, is far over it."""
STEP_BYTES: Final[i64] = 1024 * 1024
"""The system is asked again when at least so much came since it was."""
NEXT_TO_NOTHING: Final[i64] = 100
"""With messages below this part of their share, the base may be measured again."""


@final
class Alarms:
    """Of one node; ``total_bytes`` and the rest of the machine are what it is told."""

    def __init__(self, ram: RamAccount) -> None:
        self.memory: bool = False
        self.disk: bool = False
        self.total_bytes: i64 = ram.limit_bytes
        self.memory_limit_bytes: i64 = ram.limit_bytes
        self.base_bytes: i64 = 0
        self.resident_bytes: i64 = 0
        self.paging_ratio: float = 0.5
        self.disk_bytes: i64 = 0
        self.disk_free_bytes: i64 = UNKNOWN
        self.disk_limit_bytes: i64 = 0
        self.forecast: Forecast = Forecast()
        self.memory_forecast: Forecast = Forecast()  # of what is *not* used: below zero
        self._measure: Callable[[], int] = lambda: int(self.resident_bytes)
        self._declared_bytes: i64 = 0  # since the resident size was measured
        self._messages_bytes: i64 = 0  # there were so many when it was
        self._most_bytes: i64 = 0  # of messages, since they were asked for
        self._excess_bytes: i64 = 0
        self._ram: RamAccount = ram
        self._memory_limit: MemoryLimit = MemoryLimit(0.0, int(ram.limit_bytes))
        self._disk_limit: DiskLimit = DiskLimit(0)

    def measure_with(self, resident: Callable[[], int]) -> None:
        """``resident``: bytes of the process now."""
        self._measure = resident

    # -- limits ----------------------------------------------------------------------------

    def set_machine(self, total_bytes: i64, paging_ratio: float) -> None:
        """How much memory there is, and when to page."""
        self.total_bytes = total_bytes
        self.paging_ratio = paging_ratio
        self.set_memory_limit(self._memory_limit)

    def set_memory_limit(self, limit: MemoryLimit) -> None:
        """From now on, until the broker stops."""
        self._memory_limit = limit
        self.memory_limit_bytes = limit.bytes_of(int(self.total_bytes))
        self._share_out()
        self.memory = False
        self.look()

    def memory_limit(self) -> MemoryLimit:
        """The setting in force; ``memory_limit_bytes`` is what it comes to on this machine."""
        return self._memory_limit

    def set_disk_limit(self, limit: DiskLimit) -> None:
        """From now on, until the broker stops."""
        self._disk_limit = limit
        self.disk_limit_bytes = limit.bytes_of(int(self.total_bytes), int(self.disk_bytes))
        self.disk = False
        self.look_at_disk(self.disk_free_bytes, self.disk_bytes)

    def _share_out(self) -> None:
        left = self.memory_limit_bytes - self.base_bytes
        if left < 0:
            left = 0
        ratio = self.paging_ratio
        if ratio > 1:
            self._ram.set_limits(left, NO_PAGING)
            return
        paging = i64(ratio * float(left))
        least = paging // LEAST_PAGING
        lowered = paging - self._excess_bytes
        self._ram.set_limits(left, lowered if lowered > least else least)

    # -- looks -----------------------------------------------------------------------------

    def look(self) -> None:
        """Has what is counted come to a limit?  Cheap: asked every turn."""
        level = self._clears_at() if self.memory else self.memory_limit_bytes
        used_bytes = self._ram.used_bytes()
        if used_bytes > self._most_bytes:
            self._most_bytes = used_bytes
        if self.base_bytes + used_bytes > level or self.memory_limit_bytes == 0:
            self.memory = True
            return
        if self.resident_bytes + self._declared_bytes + used_bytes <= level:
            self.memory = False
            return
        more_bytes = self._more_bytes(used_bytes)
        most = level if 2 * used_bytes >= self._ram.limit_bytes else level + self._far_bytes()
        if more_bytes >= STEP_BYTES and self.resident_bytes + more_bytes > most:
            self._measured(self._measure())
        self.memory = self.resident_bytes > most

    def note_memory(self, now_ms: MonoMs) -> None:
        """For the forecast; the limit is left out of it, so it may be changed at any time."""
        self.memory_forecast.note(now_ms, -self.used_bytes())

    def seconds_to_memory(self, used_bytes: i64) -> i64:
        """Until so much is used, as things go; NEVER = not in a year, 0 = it is."""
        return self.memory_forecast.seconds_to(-used_bytes)

    def look_at_resident(self, resident_bytes: i64) -> None:
        """The system's number, after free memory was given back if it was over the limit."""
        self._measured(resident_bytes)
        messages = self._messages_bytes
        if messages < self._ram.limit_bytes // NEXT_TO_NOTHING:
            self.base_bytes = max(min(self.base_bytes, resident_bytes - messages), 0)
        excess = resident_bytes - self.memory_limit_bytes * COMFORT // 100
        fading = self._excess_bytes * 7 // 8
        self._excess_bytes = excess if excess > fading else fading
        self._share_out()
        self.look()

    def set_base(self, base_bytes: i64) -> None:
        """What the process takes without messages."""
        self.base_bytes = max(base_bytes, 0)
        self._share_out()
        self.look()

    def look_at_disk(self, free_bytes: i64, disk_bytes: i64) -> None:
        """``UNKNOWN``: the free space is not known, so it blocks no publisher."""
        self.disk_free_bytes = free_bytes
        if disk_bytes != self.disk_bytes:
            self.disk_bytes = disk_bytes
            self.disk_limit_bytes = self._disk_limit.bytes_of(
                int(self.total_bytes), int(disk_bytes)
            )
        level = self._disk_clears_at() if self.disk else self.disk_limit_bytes
        self.disk = free_bytes != UNKNOWN and free_bytes < level

    def take_declared(self, size_bytes: i64) -> bool:
        """A client declares what takes so much.  False = memory is far over its limit."""
        most = max(self.memory_limit_bytes, self.base_bytes) + self._far_bytes()
        more_bytes = self._more_bytes(self._ram.used_bytes())
        if self.resident_bytes + more_bytes + size_bytes > most:
            self._measured(self._measure())
            if self.resident_bytes + size_bytes > most:
                return False
        self._declared_bytes += size_bytes
        return True

    def _more_bytes(self, used_bytes: i64) -> i64:
        """What may have come since the resident size was measured."""
        grown = used_bytes - self._messages_bytes
        return self._declared_bytes + (grown if grown > 0 else 0)

    def _measured(self, resident_bytes: i64) -> None:
        self.resident_bytes = resident_bytes
        self._messages_bytes = self._ram.used_bytes()
        self._declared_bytes = 0

    # -- what comes out ----------------------------------------------------------------------

    def used_bytes(self) -> i64:
        """Of the whole process, by count."""
        return self.base_bytes + self._ram.used_bytes()

    def take_most_bytes(self) -> i64:
        """What messages took at most, as far as looks saw it, since this was last called."""
        most, self._most_bytes = self._most_bytes, self._ram.used_bytes()
        return most

    def _far_bytes(self) -> i64:
        part = self.memory_limit_bytes // FAR_PART
        return part if part > FAR_BYTES else FAR_BYTES

    def _clears_at(self) -> i64:
        return self.memory_limit_bytes - self.memory_limit_bytes // SPARE

    def _disk_clears_at(self) -> i64:
        return self.disk_limit_bytes + self.disk_limit_bytes // SPARE

    def check(self) -> None:
        """The invariants at the head of this file, right after a look."""
        used, limit = self.used_bytes(), self.memory_limit_bytes
        if used > limit or limit == 0:
            assert self.memory, "A1"
        elif used <= self._clears_at() and self.resident_bytes <= self._clears_at():
            assert not self.memory, "A2"
        free = self.disk_free_bytes
        if free != UNKNOWN and free < self.disk_limit_bytes:
            assert self.disk, "A3"
        elif free == UNKNOWN or free >= self._disk_clears_at():
            assert not self.disk, "A4"
        assert self._ram.limit_bytes == max(limit - self.base_bytes, 0), "A5"
