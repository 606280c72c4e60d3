"""``CopyScrub``: reads the copies of mirrors, slowly, to find damage before a copy is needed.

A mirror's copy is read when its node becomes the master, or sends another node what that lacks.
Until then a bit that has flipped on its disk would not be found, and with it the other copies may
go one after the other.  So each round reads all segments of all complete copies here, and the
contents in the message store that they refer to (backing/scrubbing.py), and all blocks of streams.
A copy that cannot be read goes the way of any damaged copy: ``Mirroring`` gives it up, says so, and
fetches another one.

It reads at most ``bytes_per_s``, one piece at a time, and begins a round when the last one began
``ROUND_MS`` ago.  A copy that is not complete, as all are at a start, has its turn when it is.
"""

from typing import Final, final

from penstock.backing.interface import BackingQueue
from penstock.backing.scrubbing import PartScrub
from penstock.cluster.agreement.mirror_keys import Place
from penstock.cluster.mirrors.queue import MirroredQueue
from penstock.core.clock_types import MonoMs
from penstock.queues.stream_backing import StreamBacking
from penstock.streams.cursor import FIRST, Start, StreamCursor

ROUND_MS: Final = 3_600_000
CREDIT_MS: Final = 1000
"""What was not read in the last second may be read at once."""
LOOKED_AT_ONCE: Final = 64


@final
class StreamScrub:
    """Reads a stream from its first message on, as ``PartScrub`` reads a part of a queue."""

    def __init__(self, backing: StreamBacking) -> None:
        self._backing = backing
        self._log = backing.log
        self._cursor = StreamCursor(self._log, Start(FIRST), None, True)

    def is_reading(self) -> bool:
        """The last read has not come back."""
        return not self._cursor.look() and (self._cursor.is_reading() or self._cursor.passing)

    def go_on(self) -> int:
        """What the last read brought was true; returns its bytes, 0 = that was all."""
        cursor = self._cursor
        if cursor.error is not None:
            if self._backing.has(self._log):
                self._backing.failed(cursor.error)
            return 0
        size = 0
        for block in cursor.blocks():
            size += int(block.head.size)
        if size > 0:
            cursor.pass_to(cursor.blocks()[-1].next_offset())
        return size


@final
class CopyScrub:
    """``queues``: those that have or had a copy here; 0 bytes a second: nothing is read.

    ``rounds``: how many have begun.
    """

    def __init__(self, queues: dict[Place, MirroredQueue], bytes_per_s: int) -> None:
        self.rounds = 0
        self._queues = queues
        self._bytes_per_s = bytes_per_s
        self._places: list[Place] = []  # left in this round
        self._incomplete: list[Place] = []  # to be looked at again in this round
        self._parts: list[PartScrub | StreamScrub] = []  # left of the queue that was taken last
        self._part: PartScrub | StreamScrub | None = None
        self._began_ms = MonoMs(0)
        self._next_ms = MonoMs(0)

    def tick(self, mono_ms: MonoMs) -> None:
        """At the end of a turn: ask for the next read, if it is time."""
        if self._bytes_per_s == 0 or mono_ms < self._next_ms:
            return
        if self._part is None:
            self._part = self._next_part(mono_ms)
        part = self._part
        if part is None or part.is_reading():
            return
        size = int(part.go_on())
        if size == 0:
            self._part = None
        since_ms = max(self._next_ms, mono_ms - CREDIT_MS)
        self._next_ms = MonoMs(since_ms + size * 1000 // self._bytes_per_s)

    def _next_part(self, mono_ms: MonoMs) -> PartScrub | StreamScrub | None:
        if not self._parts and not self._places:
            self._begin_again(mono_ms)
        for _ in range(LOOKED_AT_ONCE):
            if self._parts:
                return self._parts.pop()
            if not self._places:
                return None
            place = self._places.pop()
            known = self._queues.get(place)
            if known is None or not known.queue.remote:
                continue  # its master is here
            replica = None if known.group is None else known.group.replica
            if replica is not None and replica.is_complete():
                self._parts = scrubs_of(replica.backing)
            else:
                self._incomplete.append(place)
        return None

    def _begin_again(self, mono_ms: MonoMs) -> None:
        """A round, or this one with copies that were not complete; a second later if none is."""
        is_early = self.rounds > 0 and mono_ms - self._began_ms < ROUND_MS
        if is_early or not self._queues:  # at a start none is known at first
            self._places = self._incomplete
            self._next_ms = MonoMs(mono_ms + CREDIT_MS)
        else:
            self.rounds += 1
            self._began_ms = mono_ms
            self._places = list(self._queues)
        self._incomplete = []


def scrubs_of(backing: BackingQueue) -> list[PartScrub | StreamScrub]:
    if isinstance(backing, StreamBacking):
        return [StreamScrub(backing)]
    return [PartScrub(one) for one in backing.parts() if one.records.index is not None]
