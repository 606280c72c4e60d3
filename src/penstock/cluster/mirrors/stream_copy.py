"""``StreamCopy``: a mirror's copy of a stream; ``StreamSource``: what its master sends of it.

A stream is a log that grows at its end, so a copy takes what the master told only where its own
log ends there.  While it lacks something it asks, from its end on, and keeps what it hears
meanwhile, up to ``HELD_BYTES_MAX``, the newest: when what it fetched meets that, it has everything.
What is sent is what all synchronised mirrors have on disk, read as any reader does it.

**Which messages are common.**  A master that died may have numbered messages that its successor
never heard of; an offset then means two messages.  So each copy keeps the terms of masters, and at
which offset they began (``streams/marks.py``).  A chunk has the master's: what the copy has beyond
the common part is given up (``streams/cutting.py``), and fetched again.  A copy that ends below
what retention has left gives up all it has.

Positions of readers, numbers of publishers and the floor come with each chunk, and are taken from
the last one; what was told of them before that is done behind it.
"""

from collections import deque
from typing import Final, final

from librt.strings import write_i64_be
from mypy_extensions import i64

from penstock.cluster.mirrors.operations import (
    END,
    MARKED,
    PUBLISH,
    SEQ_ID_MAX,
    Operation,
    Pieces,
    write_marks,
    write_publish,
    write_ranges,
)
from penstock.cluster.mirrors.part_copy import CopiedPart
from penstock.cluster.mirrors.sync_codec import CHUNK, CHUNK_BYTES, Chunk, SyncAsk, write_head
from penstock.core.byte_reader import Malformed
from penstock.core.clock_types import WallMs
from penstock.core.message import Message
from penstock.queues.stream_backing import StreamBacking
from penstock.streams.block_codec import POSITIONS, PUBLISHERS, TERMS, read_records
from penstock.streams.cursor import OFFSET, Start, StreamCursor
from penstock.streams.marks import StreamMarks, common_offset

HELD_BYTES_MAX: Final[i64] = 4 * 1024 * 1024


@final
class StreamCopy(CopiedPart):
    """See the head of this file.

    Invariant (``check``):
      V1  a complete copy holds nothing, and has all it has heard of
    """

    def __init__(self, backing: StreamBacking) -> None:
        super().__init__()
        self._backing: StreamBacking = backing
        self._held: deque[Message] = deque()
        self._held_bytes: i64 = 0
        self._heard: i64 = 0  # the offset behind the last message that was told
        self._floor: i64 = 0
        self._marks: dict[int, Operation] = {}  # by kind, told before it was complete

    def begin(self, is_whole: bool, forgets: bool) -> None:
        self.is_complete = is_whole

    def apply(self, operation: Operation) -> None:
        if operation.kind == PUBLISH:
            messages = operation.messages
            self._heard = max(self._heard, messages[len(messages) - 1].seq_id + 1)
            if self.is_complete:
                self._append(messages)
            else:
                self._hold(messages)
        elif operation.kind == END:
            self._floor = operation.ranges[len(operation.ranges) - 1][1]
            if self.is_complete:
                self._backing.retire_below(self._floor)
        elif operation.kind == MARKED:
            if self.is_complete:
                self._backing.take_marks(operation.row_kind, operation.row_count, operation.rows)
            elif operation.row_kind != TERMS:
                self._marks[operation.row_kind] = operation

    def _append(self, messages: list[Message]) -> None:
        """Those that come next; raises Malformed if there is a gap before them."""
        following = self._backing.log.next_offset
        new = [message for message in messages if message.seq_id >= following]
        if new and new[0].seq_id > following:
            raise Malformed(f"a copy that ends at {int(following)} hears of {int(new[0].seq_id)}")
        if new:
            self._backing.append_copies(new)

    def _hold(self, messages: list[Message]) -> None:
        for message in messages:
            self._held.append(message)
            self._held_bytes += message.size
        while self._held_bytes > HELD_BYTES_MAX:
            self._held_bytes -= self._held.popleft().size

    def may_lead(self) -> bool:
        return not self._backing.is_cut

    # -- synchronisation -------------------------------------------------------------------

    def question(self, term: i64, number: i64, part: i64) -> SyncAsk | None:
        if self.is_complete or self._backing.is_cut:
            return None
        return SyncAsk(term, number, part, self._backing.log.next_offset, SEQ_ID_MAX, [])

    def cover(self, chunk: Chunk) -> i64:
        log = self._backing.log
        marks = StreamMarks()
        for operation in chunk.operations:
            if operation.kind == MARKED:
                marks.of_kind(operation.row_kind).read(operation.rows, operation.row_count)
        if log.is_empty():
            if chunk.low > log.next_offset:
                log.begin_at(chunk.low)
        else:
            begins, theirs = log.marks.term_begins(), marks.term_begins()
            common = common_offset(begins, int(log.next_offset), theirs, chunk.next_seq_id)
            if chunk.low > log.next_offset:
                common = 0
            if common < log.next_offset:
                self._backing.give_up(common)
                return 0
        return self._take(chunk)

    def _take(self, chunk: Chunk) -> i64:
        """All of it follows what is here."""
        log = self._backing.log
        count: i64 = 0
        told: list[Operation] = []
        for operation in chunk.operations:
            if operation.kind == PUBLISH:
                self._append(operation.messages)
                count += len(operation.messages)
            elif operation.kind == END:
                self._floor = max(self._floor, operation.ranges[len(operation.ranges) - 1][1])
            elif operation.kind == MARKED and operation.row_kind != TERMS:
                told.append(operation)
            elif operation.kind == MARKED and operation.rows != log.marks.terms.rows():
                self._backing.take_marks(TERMS, operation.row_count, operation.rows)
        self._append_held()
        if log.next_offset >= max(chunk.next_seq_id, self._heard):
            self._complete(told)
        return count

    def _append_held(self) -> None:
        """What was heard meanwhile, if what is here has come so far."""
        following = self._backing.log.next_offset
        while self._held and self._held[0].seq_id < following:
            self._held_bytes -= self._held.popleft().size
        if self._held and self._held[0].seq_id == following:
            self._append(list(self._held))
            self._held.clear()
            self._held_bytes = 0

    def _complete(self, told: list[Operation]) -> None:
        self.is_complete = True
        for operation in told + list(self._marks.values()):
            self._backing.add_marks(operation.row_kind, operation.row_count, operation.rows)
        self._marks = {}
        self._backing.retire_below(self._floor)

    def check(self) -> None:
        """Assert V1, and what the log promises."""
        if self.is_complete:
            assert not self._held, "V1"
            assert not self._marks, "V1"
            assert self._backing.log.next_offset >= self._heard, "V1"
        self._backing.check()


@final
class StreamSource:
    """Reads a master's stream for one mirror."""

    def __init__(self, backing: StreamBacking) -> None:
        self._backing: StreamBacking = backing
        self._cursor: StreamCursor | None = None

    def read(self, low: i64) -> list[Message] | None:
        """From that offset or the floor on, a chunk of it; None = that is on its way."""
        log = self._backing.log
        low = max(low, log.first_offset)
        if low >= log.durable_offset:
            return []
        cursor = self._cursor
        if cursor is None or cursor.offset != low or cursor.error is not None:
            if cursor is not None:
                cursor.close()
            cursor = self._cursor = StreamCursor(log, Start(OFFSET, low), None, True)
        if not cursor.look():
            return None
        messages: list[Message] = []
        size: i64 = 0
        for block in cursor.blocks():
            found = read_records(block.payload, block.head)
            if found is None or (messages and size + block.head.size > CHUNK_BYTES):
                break
            size += block.head.size
            messages += [message for message in found if message.seq_id >= low]
        if messages:
            cursor.pass_to(messages[len(messages) - 1].seq_id + 1)
        return messages

    def close(self) -> None:
        if self._cursor is not None:
            self._cursor.close()

    def left_behind(self, messages: list[Message], low: i64) -> i64:
        """How many messages follow these, which are those from ``low`` on."""
        if messages:
            low = messages[len(messages) - 1].seq_id + 1
        return max(self._backing.log.next_offset - low, 0)

    def encode(self, messages: list[Message], question: SyncAsk, number: i64, left: i64) -> bytes:
        """The chunk; ``number`` of the last parcel, ``left`` messages are not in it."""
        log = self._backing.log
        marks = log.marks
        pieces = Pieces()
        writer = pieces.writer
        writer.append(CHUNK)
        low = max(question.low, log.first_offset)
        write_head(writer, question.term, number, question.part, low, question.upto)
        write_i64_be(writer, log.next_offset)
        write_i64_be(writer, left)
        write_marks(writer, TERMS, len(marks.terms), marks.terms.rows())
        if log.first_offset > 0:
            write_ranges(writer, END, 0, WallMs(0), [(0, int(log.first_offset))])
        write_publish(pieces, 0, WallMs(0), messages)
        for kind in (POSITIONS, PUBLISHERS):
            kept = marks.of_kind(kind)
            write_marks(writer, kind, len(kept), kept.rows())
        return pieces.joined()
