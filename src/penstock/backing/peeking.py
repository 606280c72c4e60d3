"""Looking at the messages of a variable queue without taking them: what reads it by ranges.

``peek_range`` finds messages wherever they are and leaves contents that are on disk there;
``read_range`` brings them along, with one read for neighbours, and ``read_some`` stops early where
a block of a segment would be read for a part of it only; ``measure_range`` says just how many
there are and how large, and looks at the directory of the segments' blocks where it can.

Nothing here moves a message or keeps what it has read: a reader of ranges costs no memory, and
consumers find everything where it was.  The disk is read here and now, so callers ask for little.
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.backing.disk_records import DiskRecords
from penstock.backing.message_deque import MessageDeque
from penstock.backing.tiers import Tiers
from penstock.core.message import INDEXED, STORED, Message
from penstock.storage.index.queue_index import QueueIndex
from penstock.storage.store.message_store import MessageStore

FILL_BYTES: Final[i64] = 1024 * 1024
MEASURED_BLOCKS_MAX: Final[i64] = 6
"""So many blocks are read to measure a range; there may be more of it then."""


@final
class Measured:
    """``count`` messages with ``size`` bytes of contents, all below ``upto``.

    ``more``: from there on was not looked at.
    """

    def __init__(self, upto: i64, count: i64, size: i64, more: bool) -> None:
        self.upto: i64 = upto
        self.count: i64 = count
        self.size: i64 = size
        self.more: bool = more


@final
class AnswerLimit:
    """How much more an answer may hold, and where what it holds ends."""

    def __init__(
        self, start: i64, max_messages: i64, max_bytes: i64, is_frugal: bool = False
    ) -> None:
        self.is_frugal: bool = is_frugal  # no block is read for a part of it only
        self.messages_left: i64 = max_messages
        self.bytes_left: i64 = max_bytes
        self.full: bool = max_messages <= 0
        self.upto: i64 = start
        self._empty: bool = True

    def take(self, message: Message) -> bool:
        """Room for this one?  The first always fits."""
        return self.take_some(1, message.size, message.seq_id + 1)

    def take_some(self, count: i64, size: i64, upto: i64) -> bool:
        """Room for all of them?"""
        if self.full or (size > self.bytes_left and not self._empty):
            self.full = True
            return False
        self._empty = False
        self.messages_left -= count
        self.bytes_left -= size
        self.upto = upto
        if self.messages_left <= 0 or self.bytes_left < 0:
            self.full = True
        return True

    def close(self) -> None:
        """It takes no more."""
        self.full = True

    def has(self, count: i64, size: i64) -> bool:
        return not self.full and count <= self.messages_left and size <= self.bytes_left


@final
class RangeReader:
    """Of one queue."""

    def __init__(self, records: DiskRecords, tiers: Tiers) -> None:
        self._records: Final = records
        self._tiers: Final = tiers

    def read_range(self, start: i64, end: i64, max_messages: i64, max_bytes: i64) -> list[Message]:
        """Ready messages with start <= seq_id < end, in order, without taking them."""
        return self.with_contents(self.peek_range(start, end, max_messages, max_bytes))

    def read_some(self, start: i64, end: i64, max_messages: i64, max_bytes: i64) -> list[Message]:
        """As ``read_range``, but it may find less than there is room for, if it finds something."""
        room = AnswerLimit(start, max_messages, max_bytes, True)
        return self.with_contents(self._peek(start, end, room))

    def peek_range(self, start: i64, end: i64, max_messages: i64, max_bytes: i64) -> list[Message]:
        """As ``read_range``, but contents that rest on disk stay there."""
        return self._peek(start, end, AnswerLimit(start, max_messages, max_bytes))

    def _peek(self, start: i64, end: i64, room: AnswerLimit) -> list[Message]:
        found: list[Message] = []
        self._peek_run(self._tiers.q4, start, end, found, room)
        self._peek_run(self._tiers.q3, start, end, found, room)
        if self._tiers.delta_count > 0 and start < self._tiers.delta_end and not room.full:
            self._peek_delta(start, end, found, room)
        self._peek_run(self._tiers.q2, start, end, found, room)
        self._peek_run(self._tiers.q1, start, end, found, room)
        return found

    def _peek_run(
        self, run: MessageDeque, start: i64, end: i64, found: list[Message], room: AnswerLimit
    ) -> None:
        place = run.first_at(start)
        while place < len(run.messages) and not room.full:
            message = run.messages[place]
            if message.seq_id >= end or not room.take(message):
                return
            found.append(message)
            place += 1

    def _peek_delta(self, start: i64, end: i64, found: list[Message], room: AnswerLimit) -> None:
        if start < self._tiers.delta_start:
            start = self._tiers.delta_start
        stop = self._tiers.segments_end(end)
        while start < stop and not room.full:
            upto = self._peek_segments(start, stop, room.bytes_left, found, room)
            if upto < 0:
                break
            start = upto
        self._peek_run(self._tiers.tail, start, end, found, room)

    def _peek_segments(
        self, start: i64, stop: i64, size: i64, found: list[Message], room: AnswerLimit
    ) -> i64:
        """Where to go on; -1 = nothing more is there, or cannot be read."""
        index = self._records.index
        job = None if index is None else index.plan_read(start, stop, size if size > 1 else 1)
        if job is None:
            return -1
        if room.is_frugal and len(found) > 0 and job.size > room.bytes_left:
            room.close()
            return -1
        if not self._records.look_now(job):
            room.close()
            return -1
        for message in self._tiers.decode(job, room.messages_left, room.bytes_left):
            if not room.take(message):
                return -1
            found.append(message)
        return job.upto

    def with_contents(self, messages: list[Message]) -> list[Message]:
        """The same messages, as copies with contents where those are only on disk.

        They end before the first whose content cannot be read; the queue has a fault then.
        """
        bare = [message for message in messages if len(message.content) == 0]
        if len(bare) == 0:
            return messages
        contents: dict[int, bytes] = {}
        self._stored_contents(bare, self._records.engine.store, contents)
        self._stored_contents(bare, self._records.engine.transient_store, contents)
        self._embedded_contents(bare, contents)
        complete: list[Message] = []
        for message in messages:
            if len(message.content) > 0:
                complete.append(message)
                continue
            content = contents.get(int(message.seq_id))
            if content is None or content == b"":
                break
            complete.append(_copy_with(message, content))
        return complete

    # -- contents --------------------------------------------------------------------------

    def _stored_contents(
        self, bare: list[Message], store: MessageStore, contents: dict[int, bytes]
    ) -> None:
        msg_ids: list[int] = []
        seq_ids: list[int] = []
        for message in bare:
            if message.flags & STORED and self._records.store_of(message) is store:
                msg_ids.append(int(message.msg_id))
                seq_ids.append(int(message.seq_id))
        if len(msg_ids) == 0:
            return
        job = store.read(msg_ids)
        if not self._records.load_now(job):
            return
        for place in range(len(seq_ids)):
            contents[seq_ids[place]] = job.contents[place]

    def _embedded_contents(self, bare: list[Message], contents: dict[int, bytes]) -> None:
        last = bare[-1].seq_id
        for message in bare:
            if message.flags & STORED or int(message.seq_id) in contents:
                continue
            assert message.flags & INDEXED
            job = self._records.the_index().plan_read(message.seq_id, last + 1, FILL_BYTES)
            assert job is not None
            if not self._records.read_now(job):
                return
            for found in self._records.the_index().decode(job):
                if not found.flags & STORED:  # else the store has it, and its record is empty
                    contents[int(found.seq_id)] = found.content

    def whole(self, message: Message) -> Message | None:
        content = message.content if len(message.content) > 0 else self.content_now(message)
        return _copy_with(message, content) if content != b"" else None

    def content_now(self, message: Message) -> bytes:
        complete = self.with_contents([message])
        return complete[0].content if len(complete) == 1 else b""

    def measure_range(self, start: i64, end: i64, max_messages: i64, max_bytes: i64) -> Measured:
        """What ``peek_range`` would find.

        ``max_messages`` and ``max_bytes`` bound it as there, the first message always fits.
        """
        room = AnswerLimit(start, max_messages, max_bytes)
        found: list[Message] = []
        stopped_at: i64 = -1
        self._peek_run(self._tiers.q4, start, end, found, room)
        self._peek_run(self._tiers.q3, start, end, found, room)
        if self._tiers.delta_count > 0 and start < self._tiers.delta_end and not room.full:
            stopped_at = self._measure_delta(start, end, found, room)
        if stopped_at < 0:
            self._peek_run(self._tiers.q2, start, end, found, room)
            self._peek_run(self._tiers.q1, start, end, found, room)
        upto = room.upto if stopped_at < 0 else stopped_at
        count = max_messages - room.messages_left
        return Measured(upto, count, max_bytes - room.bytes_left, stopped_at >= 0)

    def _measure_delta(self, start: i64, end: i64, found: list[Message], room: AnswerLimit) -> i64:
        """Where it stopped for having read enough; -1 = it did not."""
        if start < self._tiers.delta_start:
            start = self._tiers.delta_start
        stop = self._tiers.segments_end(end)
        index = self._records.index
        blocks_left = MEASURED_BLOCKS_MAX
        while index is not None and start < stop and not room.full:
            start = self._measure_blocks(index, start, stop, room)
            if start >= stop or room.full:
                break
            if blocks_left == 0:
                return start
            blocks_left -= 1
            upto = self._peek_segments(start, stop, 1, found, room)
            if upto < 0:
                break
            start = upto
        self._peek_run(self._tiers.tail, start, end, found, room)
        return -1

    def _measure_blocks(self, index: QueueIndex, start: i64, stop: i64, room: AnswerLimit) -> i64:
        """By the directory of blocks, as far as that goes; returns where to go on."""
        if self._tiers.delayed.count() > 0 or self._records.has_left():
            return start  # some of what lives there is not ready
        while True:
            block = index.whole_block(start, stop)
            if block is None or not room.has(block.count, block.size):
                return start
            start = block.upto
            room.take_some(block.count, block.size, start)


def _copy_with(message: Message, content: bytes) -> Message:
    copy = Message(content, message.address, message.flags, message.expires_at_ms)
    copy.place(message.seq_id, message.enqueued_at_ms)
    return copy
