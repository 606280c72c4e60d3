"""``StreamLog``: one stream, a log on disk that grows at its end and shrinks at its begin.

In: batches of messages; groups that the committer has done; limits.  Out: groups to write and sync,
jobs that read and remove.  A message's *offset* is its number in the log, from 0 on without gaps.

    first_offset  the floor: retention has left what begins here
    durable_offset  the log is on disk up to here, and at its mirrors: readers see what is below
    next_offset   the next message gets this one
    last_ms       when the last message came; 0 = none did

**Append.**  Records are collected in a block, which is closed when it is large or when ``seal``
takes all of them as a group.  When the committer has written and synced the group, ``committed``
moves ``durable_offset``.  A message that no reader can see may be lost in a crash, and its offset
used again; one that a reader saw keeps its offset for good.

**Retention** takes whole segments from the begin, never the last one; for its size never the last
one that has messages, which may be above the limit alone.  It is a fact of the log: the floor is in
the head of each block, in one of its own if no message comes.  The files go after that block is on
disk; what is missing above the floor is damage, and never taken for retention.
Readers may hold back what is over a limit, from an offset on and up to so many bytes (``hold``).

**Marks** (positions of named readers, numbers of publishers) are blocks of their own whenever they
changed, and come first in each segment, so that a start needs the newest segment only.  Numbers
follow the messages of their group: a start looks at the messages behind the last ones.  Terms of
masters come before the messages of their group: no message is taken for one of an earlier term.

**A copy** of a stream whose master is elsewhere is a log as well: ``append_copies`` and
``retire_below`` do what the master did.

**Memory** is 24 bytes a segment, the sparse index of the last segment, and what is under way.
Segments grow with the stream above ``segments_usual`` of them, so that small ones are not millions.

Invariants (``check``):
  L1  first <= durable <= synced <= sealed <= next offset; the open block holds the end of it
  L2  the floor is the first offset of the oldest segment
"""

from typing import Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64

from penstock.core.clock_types import WallMs
from penstock.core.message import Message
from penstock.storage.common.disk_jobs import JobBoard
from penstock.streams.block_codec import (
    FLOOR,
    INDEX,
    MESSAGES,
    BlockHead,
    IndexRows,
    segment_path,
    write_record,
)
from penstock.streams.filtering import FILTER_BYTES, UNFILTERED, Wanted, make_filter
from penstock.streams.holding import Hold
from penstock.streams.marks import Marks, StreamMarks
from penstock.streams.reading import BlockCache, LogBlock, StreamRead
from penstock.streams.removal import StreamRemoval
from penstock.streams.segments import SegmentTable
from penstock.streams.writer import StreamGroup, StreamPiece

SEGMENT_BYTES: Final[i64] = 500_000_000
"""RabbitMQ's default."""
SEGMENTS_USUAL: Final[i64] = 16_384
BLOCK_BYTES: Final[i64] = 256 * 1024
INDEX_STEP_BYTES: Final[i64] = 64 * 1024
"""The index of a segment names a block each so many bytes."""
FOLLOWED_MESSAGES: Final[i64] = 32_768
"""What is written is cached while some reader is so near: else it would take the place of blocks
that readers share."""
NO_BOUND: Final[i64] = 1 << 62


@final
class StreamLimits:
    """0 = no limit, of ``max_bytes`` and ``max_age_ms``."""

    def __init__(
        self,
        max_bytes: i64 = 0,
        max_age_ms: i64 = 0,
        segment_bytes: i64 = SEGMENT_BYTES,
        filter_bytes: i64 = FILTER_BYTES,
        segments_usual: i64 = SEGMENTS_USUAL,
    ) -> None:
        self.max_bytes: i64 = max_bytes
        self.max_age_ms: i64 = max_age_ms
        self.segment_bytes: i64 = segment_bytes
        self.filter_bytes: i64 = filter_bytes
        self.segments_usual: i64 = segments_usual


@final
class StreamFound:
    """What a start finds of a stream; as made, a new one.

    ``rows``      of the last segment; ``finished``: it ends with its index
    ``last_ms``   when the last message came
    ``last_block``  the first offset of the last block of messages
    """

    def __init__(self) -> None:
        self.segments: SegmentTable = SegmentTable()
        self.rows: IndexRows = IndexRows()
        self.finished: bool = False
        self.first_offset: i64 = 0
        self.next_offset: i64 = 0
        self.last_ms: i64 = 0
        self.last_block: i64 = 0
        self.marks: StreamMarks = StreamMarks()

    def take_last(
        self,
        rows: IndexRows,
        finished: bool,
        first_offset: i64,
        next_offset: i64,
        last_ms: i64,
        last_block: i64,
    ) -> None:
        """What the last segment, and with it the log, is like."""
        self.rows = rows
        self.finished = finished
        self.first_offset = first_offset
        self.next_offset = next_offset
        self.last_ms = last_ms
        self.last_block = last_block


@final
class _OpenBlock:
    """Messages that are not sealed yet."""

    def __init__(self) -> None:
        self.buffer: BytesWriter = BytesWriter()
        self.messages: list[Message] = []
        self.values: set[bytes] = set()

    def add(self, message: Message, value: bytes) -> None:
        write_record(self.buffer, message)
        self.messages.append(message)
        self.values.add(value)


@final
class _Sealed:
    """The last group ends below ``offset``; it says that the log begins with ``floor``."""

    def __init__(self, offset: i64, floor: i64) -> None:
        self.offset: i64 = offset
        self.floor: i64 = floor


@final
class _Synced:
    """The log is on disk up to that place of that segment, and its messages below ``offset``."""

    def __init__(self, segment: i64, at: i64, offset: i64) -> None:
        self.segment: i64 = segment
        self.at: i64 = at
        self.offset: i64 = offset


@final
class StreamLog:
    """See the head of this file; ``found`` is what recovery read."""

    def __init__(
        self,
        board: JobBoard,
        cache: BlockCache,
        directory: str,
        stream: i64,
        limits: StreamLimits,
        found: StreamFound,
    ) -> None:
        self.directory: str = directory
        self.stream: i64 = stream
        self.limits: StreamLimits = limits
        self.cache: BlockCache = cache
        self.segments: SegmentTable = found.segments
        self.first_offset: i64 = found.first_offset
        self.durable_offset: i64 = found.next_offset
        self.next_offset: i64 = found.next_offset
        self.last_block: i64 = found.last_block
        self.last_ms: i64 = found.last_ms
        self.marks: StreamMarks = found.marks
        self._board: JobBoard = board
        self._rows: IndexRows = found.rows
        self._finishing: dict[int, IndexRows] = {}  # of segments whose index is not on disk yet
        self._finished: bool = found.finished
        self._bound: i64 = NO_BOUND  # readers see nothing from there on
        self._sealed: _Sealed = _Sealed(found.next_offset, found.first_offset)
        self._synced: _Synced = _Synced(-1, 0, found.next_offset)
        if len(found.segments) > 0:
            table = found.segments
            self._synced = _Synced(table.first(-1), table.size(-1), found.next_offset)
        self._open: _OpenBlock = _OpenBlock()
        self._full: list[_OpenBlock] = []
        self._dropped: list[int] = []  # segments, until the floor above them is on disk
        self._hold: Hold = Hold()
        self._fault: str = ""
        self._reads: dict[int, StreamRead] = {}  # under way, by offset
        self._farthest: i64 = 0  # where a reader of messages has been

    # -- appending -------------------------------------------------------------------------

    def append(self, messages: list[Message], values: list[bytes], now_ms: WallMs) -> None:
        """Number them and take their bytes.

        ``values``: their filter values, b"" for one without; empty = none has any.  A clock that
        goes back does not take times back.
        """
        self.last_ms = max(self.last_ms, now_ms)
        for i in range(len(messages)):
            self._append(messages[i], values[i] if values else UNFILTERED)

    def append_copies(self, messages: list[Message], values: list[bytes]) -> None:
        """As ``append``, of messages with the numbers and times that the master gave them."""
        for i in range(len(messages)):
            assert messages[i].seq_id == self.next_offset, "a copy has no gaps"
            self.last_ms = max(self.last_ms, messages[i].enqueued_at_ms)
            self._append(messages[i], values[i] if values else UNFILTERED)

    def _append(self, message: Message, value: bytes) -> None:
        message.place(self.next_offset, WallMs(self.last_ms))
        self.next_offset += 1
        self._open.add(message, value)
        if len(self._open.buffer) >= BLOCK_BYTES:
            self._full.append(self._open)
            self._open = _OpenBlock()

    def begin_at(self, offset: i64) -> None:
        """The log is empty, and its first message has this number."""
        assert self.is_empty()
        self.first_offset = self.durable_offset = self.next_offset = offset
        self._sealed = _Sealed(offset, offset)
        self._synced = _Synced(-1, 0, offset)
        self.last_block = offset

    def is_empty(self) -> bool:
        """It has no segment, and none is under way."""
        return len(self.segments) == 0 and self.next_offset == self._sealed.offset

    def pending_bytes(self) -> i64:
        """Appended and not yet sealed."""
        size: i64 = len(self._open.buffer)
        for block in self._full:
            size += len(block.buffer)
        return size

    def seal(self) -> StreamGroup | None:
        """Freeze what was appended since the last seal; None when there is nothing to do."""
        blocks = self._full
        if self._open.messages:
            blocks.append(self._open)
            self._open = _OpenBlock()
        self._full = []
        pieces: list[StreamPiece] = []
        terms = self.marks.terms
        if terms.changed:
            first_ms = blocks[0].messages[0].enqueued_at_ms if blocks else self.last_ms
            terms.seal()
            self._make_room(pieces, self._sealed.offset, first_ms)
            self._place_marks(pieces, [terms], self._sealed.offset, first_ms)
        for block in blocks:
            self._place(pieces, MESSAGES, block)
        changed = self.marks.take_changed()
        if changed:
            self._make_room(pieces, self.next_offset, self.last_ms)
            self._place_marks(pieces, changed, self.next_offset, self.last_ms)
        if not pieces and self._sealed.floor != self.first_offset:
            self._place(pieces, FLOOR, _OpenBlock())
        if not pieces:
            return None
        self._sealed = _Sealed(self.next_offset, self.first_offset)
        return StreamGroup(self.stream, pieces, self.next_offset, self.first_offset)

    def _place(self, pieces: list[StreamPiece], kind: i64, block: _OpenBlock) -> None:
        messages = block.messages
        first = messages[0].seq_id if messages else self.next_offset
        first_ms = messages[0].enqueued_at_ms if messages else self.last_ms
        last_ms = messages[-1].enqueued_at_ms if messages else self.last_ms
        self._make_room(pieces, first, first_ms)
        at = self.segments.size(-1)
        step = self._rows.last_at()
        if kind == MESSAGES and (step < 0 or at - step >= INDEX_STEP_BYTES):
            self._rows.add(first, first_ms, at)
        block_filter = make_filter(block.values, self.limits.filter_bytes)
        payload = block.buffer.getvalue()
        head = self._head(kind, len(messages), first, first_ms, last_ms, block_filter, payload)
        self._write(pieces, head, payload, messages)

    def _place_marks(
        self, pieces: list[StreamPiece], sealed: list[Marks], first: i64, first_ms: i64
    ) -> None:
        for marks in sealed:
            count = marks.sealed_count
            head = self._head(marks.kind, count, first, first_ms, first_ms, b"", marks.sealed)
            self._write(pieces, head, marks.sealed, [])

    def _make_room(self, pieces: list[StreamPiece], first: i64, first_ms: i64) -> None:
        """The next block goes to the end of the last segment, or into a new one behind a full one.

        Numbers of publishers that are sealed are those of all groups before this one: with a
        part of it in the segment before, its numbers would be nowhere.
        """
        segments = self.segments
        is_within = self.marks.is_numbered and len(pieces) > 0
        if len(segments) > 0 and not self._finished and not is_within and self._is_full():
            rows = self._rows
            payload = rows.payload(segments.size(-1))
            head = self._head(INDEX, len(rows), first, first_ms, first_ms, b"", payload)
            self._write(pieces, head, payload, [])
            self._finishing[int(segments.first(-1))] = rows
            self._finished = True
        if len(segments) == 0 or self._finished:
            segments.add(first, first_ms, 0)
            self._rows = IndexRows()
            self._finished = False
            self._place_marks(pieces, self.marks.beginning(), first, first_ms)

    def _is_full(self) -> bool:
        """The last segment has messages enough."""
        limits = self.limits
        usual = max(limits.segment_bytes, self.segments.total_bytes // limits.segments_usual)
        return len(self._rows) > 0 and self.segments.size(-1) >= usual

    def _head(
        self,
        kind: i64,
        count: i64,
        first: i64,
        first_ms: i64,
        last_ms: i64,
        block_filter: bytes,
        payload: bytes,
    ) -> BlockHead:
        segments = self.segments
        synced: i64 = self._synced.at if self._synced.segment == segments.first(-1) else 0
        at = segments.size(-1)
        return BlockHead(
            self.stream,
            kind,
            count,
            at,
            synced,
            self.first_offset,
            first,
            first_ms,
            last_ms,
            block_filter,
            len(payload),
        )

    def _write(
        self, pieces: list[StreamPiece], head: BlockHead, payload: bytes, messages: list[Message]
    ) -> None:
        segment = self.segments.first(-1)
        pieces.append(StreamPiece(self.directory, segment, head, payload, messages))
        self.segments.grow(head.end() - head.at)

    def committed(self, group: StreamGroup) -> None:
        """The group is on disk, and so are all before it."""
        for piece in group.pieces:
            if piece.head.kind == INDEX:
                del self._finishing[int(piece.segment)]
            if piece.messages:
                self.last_block = piece.head.first
                if piece.head.first - self._farthest <= FOLLOWED_MESSAGES:
                    show = self.cache.show
                    self.cache.put(LogBlock(piece.segment, piece.head, piece.messages, show))
        last = group.pieces[len(group.pieces) - 1]
        self._synced = _Synced(last.segment, last.head.end(), group.end)
        self.show_below(self._bound)
        gone = [first for first in self._dropped if first < group.floor]
        if gone:
            self._dropped = [first for first in self._dropped if first >= group.floor]
            self._board.reads.append(StreamRemoval(self.directory, gone, self._not_removed))

    def show_below(self, bound: i64) -> None:
        """Readers see what is on disk here, below that offset: mirrors may not have the rest."""
        self._bound = bound
        before = self.durable_offset
        self.durable_offset = max(self.first_offset, min(self._synced.offset, bound))
        if self.durable_offset > before:
            self._board.announce(self.stream)

    def is_on_disk(self, end: i64) -> bool:
        """Here, up to that offset: readers may not see it yet."""
        return end <= self._synced.offset

    def _not_removed(self, firsts: list[int], error: Exception) -> None:
        """Of segments; the next group of this stream tries again."""
        self._dropped += firsts
        self._fault = f"{segment_path(self.directory, firsts[-1])} is not removed: {error}"

    def take_fault(self) -> str:
        """What went wrong since the last time, and will be tried again; "" = nothing did."""
        fault = self._fault
        self._fault = ""
        return fault

    # -- retention -------------------------------------------------------------------------

    def retire(self, now_ms: WallMs) -> int:
        """Let go of segments at the begin that are over a limit; returns how many.

        Readers get nothing of them any more.  Their files go when a group that says so, the next
        one, is on disk.
        """
        over = 0
        size = self.segments.total_bytes
        while over + 1 < len(self.segments) and self._is_over(over, size, now_ms):
            size -= self.segments.size(over)
            over += 1
        return self._drop(self._hold.take(self.segments, over))

    def retire_below(self, floor: i64) -> int:
        """As ``retire``, of a copy: segments whose messages the master has let go of."""
        segments = self.segments
        floor = min(floor, self._synced.offset)
        count = 0
        while count + 1 < len(segments) and segments.first(count + 1) <= floor:
            count += 1
        return self._drop(count)

    def _drop(self, count: int) -> int:
        if count > 0:
            self._dropped += self.segments.drop(count)
            self.first_offset = self.segments.first(0)
        return count

    def _is_over(self, dropped: int, size: i64, now_ms: WallMs) -> bool:
        """Is the oldest segment behind that many, which leave ``size`` bytes, over a limit?"""
        segments = self.segments
        limits = self.limits
        if segments.first(dropped + 1) > self.durable_offset:
            return False
        if limits.max_age_ms > 0 and segments.time(dropped + 1) < now_ms - limits.max_age_ms:
            return True
        if limits.max_bytes == 0 or size <= limits.max_bytes:
            return False
        return segments.first(dropped + 1) < self.durable_offset  # or none would be left

    def hold(self, offset: i64, most_bytes: i64) -> None:
        """Keep what is from the offset on, up to so many bytes over the limits; -1 = nothing."""
        self._hold.move(offset, most_bytes)

    def held_bytes(self) -> i64:
        """So much would be gone if no reader held it."""
        return self._hold.held_bytes(self.segments)

    def set_limits(self, limits: StreamLimits) -> None:
        """They hold from the next block and the next ``retire`` on."""
        self.limits = limits

    def next_retirement_ms(self) -> WallMs:
        """When one more segment will be over the age; 0 = that is not known yet, or never."""
        limits = self.limits
        following = self._hold.segments + 1
        if limits.max_age_ms == 0 or len(self.segments) <= following:
            return WallMs(0)
        return WallMs(self.segments.time(following) + limits.max_age_ms + 1)

    # -- reading ---------------------------------------------------------------------------

    def read(
        self,
        offset: i64,
        time_ms: i64,
        segment: i64,
        at: i64,
        wanted: Wanted | None,
        stored: bool = False,
    ) -> StreamRead:
        """A read of what is there from the offset on, or, with ``time_ms``, from that time on.

        ``segment`` and ``at`` are where a read before it ended, if that is still there.  Readers
        that want the same at the same time get the same read.
        """
        shared = time_ms < 0 and wanted is None and not stored
        known = self._reads.get(int(offset)) if shared else None
        if known is not None:
            return known
        if segment < self.first_offset:
            number = self.segments.holding(offset)
            if time_ms >= 0:
                written = self.segments.holding(self.durable_offset - 1)
                number = min(self.segments.holding_time(time_ms), written)
            segment = self.segments.first(number)
            at = self._look_up(number, offset, time_ms)
        read = StreamRead(self, offset, time_ms, segment, at, wanted, stored)
        if shared:
            self._reads[int(offset)] = read
        self._board.submit_read(read, self.stream)
        return read

    def is_read_at(self, offset: i64) -> None:
        """A reader of messages has come so far."""
        self._farthest = max(self._farthest, offset)

    def read_ahead(self, offset: i64, segment: i64, at: i64) -> None:
        """As ``read``, into the cache; not while a reader waits for what is elsewhere."""
        if self._reads or offset >= self.durable_offset:
            return
        if self.cache.get(self.stream, offset) is None:
            self.read(offset, -1, segment, at, None)

    def _look_up(self, number: i64, offset: i64, time_ms: i64) -> i64:
        """The place in that segment to begin at; -1 = the index of its file has it."""
        rows = self._finishing.get(int(self.segments.first(number)))
        if rows is None and number == len(self.segments) - 1 and not self._finished:
            rows = self._rows
        if rows is None:
            return -1
        return rows.at_offset(offset) if time_ms < 0 else rows.at_time(time_ms)

    def read_done(self, read: StreamRead) -> None:
        if self._reads.get(int(read.began_at)) is read:
            del self._reads[int(read.began_at)]
        if not read.stored:
            for block in read.blocks:
                self.cache.put(block)

    def estimate(self, start: i64, end: i64, most_bytes: i64) -> tuple[i64, i64]:
        """How far about so many bytes of messages go from ``start`` on, which is below ``end``.

        At least one message.  Returns the offset behind them and their bytes, by the mean size in
        each segment: nothing is read.
        """
        segments = self.segments
        number = segments.holding(start)
        at = start
        size: i64 = 0
        while at < end:
            first = segments.first(number)
            last = number + 1 == len(segments)
            behind = self.durable_offset if last else segments.first(number + 1)
            mean = segments.size(number) // (behind - first)
            count = min(end, behind) - at
            fit: i64 = max((most_bytes - size) // mean, 1 if at == start else 0)
            size += min(count, fit) * mean
            at += min(count, fit)
            if fit < count:
                break
            number += 1
        return at, size

    # -- looking ---------------------------------------------------------------------------

    def check(self) -> None:
        """Assert the numbered invariants."""
        pending: i64 = len(self._open.messages)
        for block in self._full:
            pending += len(block.messages)
        assert self.next_offset - self._sealed.offset == pending, "L1"
        assert self.first_offset <= self.durable_offset <= self._synced.offset, "L1"
        assert self._synced.offset <= self._sealed.offset, "L1"
        if len(self.segments) > 0:
            assert self.segments.first(0) == self.first_offset, "L2"
            self._rows.check(self.segments.size(-1))
        self.segments.check()
        self.cache.check()
