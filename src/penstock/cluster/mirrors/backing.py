"""``MirroredBacking``: the master's side of a mirrored queue's messages.

In: what changes the set of messages, told by the parts of any backing (``backing/noting.py``).
Out: once per turn one parcel of operations (operations.py) for all mirrors of the queue.

It is no wrapper.  The backing that the queue has stays what it is, with its own class and all its
verbs; this object hangs a note-taker on each of its parts while the queue has mirrors, and takes
them off when it has none.  A wrapper would have to guess what ``purge``, ``drop_below`` or a sweep
ended, one by one, and would hide the class ``VariableQueue`` from the parts that need it
(leases, staging, the flow chart).  So every durable queue *can* be mirrored at any time, and what
that costs while it is not is a comparison per batch.

**Order.**  Within a turn operations are written as they happen, but for ends: those are collected
as ranges and written last.  Nothing is said of a place after it has ended, so that changes
nothing, and a thousand acknowledgements, one by one, become one range.

**Numbers.**  A parcel has a term and a number that grows by one with each.  A set of messages read
between ``take_operations`` and the next change is the set *as of* ``number``; mirrors/sync.py
stands on that.

**Pace.**  While a parcel is on its way round, or for a moment to the disks for which publishers
wait, what happens is held for the next one, as long as it is small.  Consumers that acknowledge
message by message would else make a parcel for each, faster than mirrors take them, and publishers
would wait for all of these.  Where no message ends, nothing is gained by a parcel that grows.

**Short lives.**  Messages that came and ended while a parcel was held are not told, only their
ends.  A mirror that never heard of them has what it should have.

**A stream's** master tells its mirrors the messages, the floor (an end of all below) and the marks.
Readers see what all synchronised mirrors have: ``all_have`` says up to which parcel that is.

Invariants (``check``):
  M1  each part has its own notes, and no others, exactly while the backing is mirrored
  M2  where there is something to say, and it is not held, the queue is among the active ones
"""

from bisect import bisect_right
from collections import deque
from typing import Final, NamedTuple, final

from librt.strings import BytesWriter
from mypy_extensions import i64

from penstock.backing.interface import BackingQueue
from penstock.backing.noting import SetNotes
from penstock.backing.variable_queue import VariableQueue
from penstock.cluster.agreement.mirror_keys import Place
from penstock.cluster.agreement.reigns import Position
from penstock.cluster.mirrors.copy_positions import CopyPositions
from penstock.cluster.mirrors.operations import (
    DELAY,
    END,
    LET_GO,
    Pieces,
    Ranges,
    ranges_of_messages,
    write_attempts,
    write_header,
    write_marks,
    write_publish,
    write_ranges,
)
from penstock.core.clock_types import MonoMs, WallMs
from penstock.core.message import Message
from penstock.queues.stream_backing import StreamBacking

HELD_BYTES_MAX: Final[i64] = 1024 * 1024
"""More than that goes out at once: it is worth a parcel."""
ROUND_BYTES_MAX: Final[i64] = 64 * 1024
"""More than that does not wait for a parcel that goes round, nor for disks where no message ends:
the master and its mirrors would work in turn, and not at once."""
HELD_MS: Final[i64] = 100
"""Longer no parcel is held for disks: a copy may lack what is held to say that it is complete."""
SLICE_MESSAGES: Final[i64] = 64
"""So many messages at most are told, or left out, as one."""


class Slice(NamedTuple):
    """Of a parcel: the pieces that tell the messages ``first`` up to and without ``upto``."""

    begin: int
    end: int
    first: int
    upto: int


@final
class PartNotes(SetNotes):
    """Of one part: writes to the parcel of all."""

    def __init__(self, owner: "MirroredBacking", part: i64) -> None:
        self.ends: Ranges = []
        self.gone_on: Ranges = []
        self._owner: MirroredBacking = owner
        self._part: i64 = part
        self._slices: list[Slice] = []

    def published(self, messages: list[Message], until_ms: WallMs) -> None:
        parcel = self._owner.parcel()
        count: i64 = len(messages)
        at: i64 = 0
        while at < count:
            some = messages[at : at + SLICE_MESSAGES]
            begin = int(parcel.cut())
            write_publish(parcel, self._part, until_ms, some)
            first, last = some[0].seq_id, some[len(some) - 1].seq_id
            self._slices.append(Slice(begin, int(parcel.cut()), int(first), int(last) + 1))
            at += SLICE_MESSAGES

    def ended(self, messages: list[Message]) -> None:
        self._owner.parcel()
        start: i64 = 0
        end: i64 = -1
        for message in messages:
            if message.seq_id != end:
                if end > start:
                    self.ends.append((int(start), int(end)))
                start = message.seq_id
            end = message.seq_id + 1
        if end > start:
            self.ends.append((int(start), int(end)))

    def ended_between(self, start: i64, end: i64) -> None:
        self._owner.parcel()
        self.ends.append((int(start), int(end)))

    def let_go(self, seq_ids: list[int]) -> None:
        self._owner.parcel()
        self.gone_on.extend([(seq_id, seq_id + 1) for seq_id in seq_ids])

    def delayed(self, messages: list[Message], until_ms: WallMs) -> None:
        ranges = ranges_of_messages(messages)
        write_ranges(self._owner.parcel().writer, DELAY, self._part, until_ms, ranges)

    def counted(self, messages: list[Message]) -> None:
        write_attempts(self._owner.parcel().writer, self._part, messages)

    def marked(self, kind: i64, count: i64, rows: bytes) -> None:
        write_marks(self._owner.parcel().writer, kind, count, rows)

    def close(self, writer: BytesWriter) -> list[Slice]:
        """The last words of a parcel; returns what is not to be told, since it has ended."""
        slices, self._slices = self._slices, []
        if self.gone_on:
            write_ranges(writer, LET_GO, self._part, WallMs(0), joined(self.gone_on))
            self.gone_on = []
        if not self.ends:
            return []
        ends = joined(self.ends)
        self.ends = []
        write_ranges(writer, END, self._part, WallMs(0), ends)
        return within(slices, ends)


@final
class MirroredBacking:
    """``active``: the queues that want ``take_operations`` in this turn; ``place``: this one's.

    ``positions``: of the copy here, where a majority confirms.
    """

    def __init__(
        self,
        backing: BackingQueue,
        active: dict[Place, None],
        place: Place,
        positions: CopyPositions | None = None,
    ) -> None:
        self.backing: BackingQueue = backing
        self.parts: list[VariableQueue] = backing.parts()
        self.stream: StreamBacking | None = backing if isinstance(backing, StreamBacking) else None
        self.term: i64 = 0
        self.number: i64 = 0  # of the last parcel
        self.held: bool = False  # what there is to say, until the last parcel has gone round
        self._held_since_ms = MonoMs(0)
        self._had_ends: bool = False  # the last parcel
        self._active: dict[Place, None] = active
        self._place: Place = place
        self._positions: CopyPositions | None = positions
        self._notes: list[PartNotes] = []
        self._parcel: Pieces = Pieces()
        self._ends: deque[tuple[int, int]] = deque()  # of a stream: parcel, offset behind it

    # -- on and off ------------------------------------------------------------------------

    def begin(self, term: i64, number: i64) -> None:
        """From now on what happens is told; ``number`` is that of the parcel before the first."""
        assert not self._notes
        self.term = term
        self.number = number
        for place in range(len(self.parts)):
            notes = PartNotes(self, place)
            self._notes.append(notes)
            self.parts[place].records.set_notes(notes)
        if self.stream is not None:
            self._notes.append(PartNotes(self, 0))
            self.stream.set_notes(self._notes[0])
            self.stream.begin_term(term)

    def end(self) -> None:
        """The queue has no mirrors any more; what was not taken is not told."""
        for part in self.parts:
            part.records.set_notes(None)
        if self.stream is not None:
            self.stream.set_notes(None)
        self._ends.clear()
        self._notes = []
        self._parcel = Pieces()
        self.held = False

    # -- once per turn ---------------------------------------------------------------------

    def parcel(self) -> Pieces:
        """Where operations go; the first of a turn begins it."""
        if not self.has_operations():
            self._active[self._place] = None
            if self._positions is not None:
                self._positions.hear(Position(int(self.term), int(self.number) + 1))
            write_header(self._parcel.writer, self.term, self.number + 1)
        return self._parcel

    def has_operations(self) -> bool:
        return self._parcel.size() > 0

    def may_tell(self, mono_ms: MonoMs, *, is_under_way: bool, awaits_disks: bool) -> bool:
        """Or is it better held, while parcels told before go round, or for a moment to disks?"""
        size = self._parcel.size()
        if not self.held:
            self._held_since_ms = mono_ms
        is_late = mono_ms - self._held_since_ms >= HELD_MS
        goes_round = is_under_way and size <= ROUND_BYTES_MAX
        waits = goes_round or (awaits_disks and not is_late)
        most = HELD_BYTES_MAX if self._had_ends or self._has_ends() else ROUND_BYTES_MAX
        self.held = 0 < size <= most and waits
        return not self.held

    def _has_ends(self) -> bool:
        for notes in self._notes:  # noqa: SIM110 - a generator costs more than the loop
            if notes.ends:
                return True
        return False

    def last_number(self) -> i64:
        """Of the parcel that has all that happened so far."""
        return self.number + 1 if self.has_operations() else self.number

    def take_operations(self) -> bytes | None:
        """The parcel of this turn; None = nothing has changed."""
        if not self.has_operations():
            return None
        self._had_ends = self._has_ends()
        ended: list[Slice] = []
        for notes in self._notes:
            ended += notes.close(self._parcel.writer)
        self.number += 1
        self.held = False
        if self._positions is not None:
            self._positions.reach(Position(int(self.term), int(self.number)))
        if self.stream is not None:
            self._ends.append((int(self.number), int(self.stream.log.next_offset)))
        pieces = self._parcel.all()
        self._parcel = Pieces()
        if ended and self.stream is None:
            pieces = without(pieces, ended)
        return b"".join(pieces)

    def all_have(self, number: i64) -> None:
        """All parcels up to this one are on the disks of all synchronised mirrors."""
        end: i64 = -1
        while self._ends and self._ends[0][0] <= number:
            end = self._ends.popleft()[1]
        if end >= 0 and self.stream is not None:
            self.stream.log.show_below(end)

    def check(self) -> None:
        """Assert M1 and M2; the backing's own promises are its own business."""
        for place in range(len(self.parts)):
            notes = self.parts[place].records.notes
            if self._notes:
                assert notes is self._notes[place], "M1"
            else:
                assert notes is None, "M1"
        assert self._place in self._active or self.held or not self.has_operations(), "M2"


def within(slices: list[Slice], ranges: Ranges) -> list[Slice]:
    """Those of which all messages are in one of the ascending ranges."""
    found: list[Slice] = []
    starts = [start for start, _ in ranges]
    for one in slices:
        place = bisect_right(starts, one.first) - 1
        if place >= 0 and one.upto <= ranges[place][1]:
            found.append(one)
    return found


def without(pieces: list[bytes], slices: list[Slice]) -> list[bytes]:
    kept: list[bytes] = []
    at = 0
    for one in sorted(slices):
        kept += pieces[at : one.begin]
        at = one.end
    kept += pieces[at:]
    return kept


def joined(ranges: Ranges) -> Ranges:
    """Ascending, neighbours and repetitions made one."""
    whole: Ranges = []
    for start, end in sorted(ranges):
        if whole and start <= whole[-1][1]:
            if end > whole[-1][1]:
                whole[-1] = (whole[-1][0], end)
        else:
            whole.append((start, end))
    return whole
