"""What a reader of ranges asks of one queue, or of one stream: where it ends, and what is in it.

Both number their messages, so the requests are the same (``reading``).  A queue answers from its
backing, here and now.  A stream answers from its log: the disk's threads read blocks, which leave
as they are stored; until they have come the answer is None, and the request is asked again.
"""

from typing import Final, NamedTuple, Protocol, final

from penstock.backing.peeking import Measured
from penstock.backing.variable_queue import VariableQueue
from penstock.core.errors import BrokerError, NotFound
from penstock.protocols.ranges.codec.block import BlockColumns, encode_block
from penstock.queues.local import LocalQueue
from penstock.queues.queue import Queue
from penstock.queues.refusals import check_read
from penstock.queues.stream import StreamQueue
from penstock.streams.cursor import OFFSET, TIME, Start, StreamCursor
from penstock.streams.log import StreamLog

LOOKS_MAX: Final = 4
"""Steps of one search by time; each may read a block of a segment."""


class BlockBounds(NamedTuple):
    """The most that one BLOCK has."""

    messages: int
    content_bytes: int


class MessagesGone(BrokerError):
    """Retention has taken messages of a stream that a reader asks for."""


class RangeSource(Protocol):
    """One reader's view of one queue."""

    def floor(self) -> int:
        """The lowest number that can be read."""

    def end(self) -> int:
        """Behind the last one: no crash takes what is below."""

    def next(self) -> int:
        """The number of the next message that is published."""

    def ready(self) -> int:
        """So many messages can be read."""

    def measure(self, start: int, end: int, max_messages: int, max_bytes: int) -> Measured:
        """How far a slice goes; raises MessagesGone, or NotFound when it cannot be read."""

    def block(self, start: int, end: int, most: BlockBounds, with_body: bool) -> bytes | None:
        """The reply BLOCK; None = it is being read.  Raises as ``measure``."""

    def search(self, timestamp_ms: int, low: int, high: int) -> tuple[int, int] | None:
        """Closer bounds of the first message that came at that time or later; None as above."""

    def take_looked_bytes(self) -> int:
        """What was read here and now since the last time."""

    def publishers_wait(self) -> bool:
        """For the disk, while this is read: readers get less in a turn."""


def source_of(queue: Queue) -> RangeSource:
    """Raises PreconditionFailed where messages have no positions, QueueElsewhere where not here."""
    if isinstance(queue, StreamQueue):
        return StreamSource(queue)
    queue.backing.positions()
    assert isinstance(queue, LocalQueue)
    return QueueSource(queue)


@final
class QueueSource:
    """Of a queue with positions."""

    def __init__(self, queue: LocalQueue) -> None:
        self._queue = queue

    @property
    def _positions(self) -> VariableQueue:
        return self._queue.backing.positions()  # raises when it has none any more

    def floor(self) -> int:
        return int(self._positions.tiers.floor_seq_id())

    def end(self) -> int:
        return int(self._positions.records.first_unsafe())

    def next(self) -> int:
        return int(self._positions.records.next_seq_id)

    def ready(self) -> int:
        return int(self._positions.ready_count())

    def measure(self, start: int, end: int, max_messages: int, max_bytes: int) -> Measured:
        failed = self._positions.records.failed_reads
        found = self._positions.reads.measure_range(start, end, max_messages, max_bytes)
        if found.count == 0:
            self._check_read(failed)
        return found

    def block(self, start: int, end: int, most: BlockBounds, with_body: bool) -> bytes | None:
        failed = self._positions.records.failed_reads
        messages = self._positions.reads.read_some(start, end, *most)
        if not messages:
            self._check_read(failed)
        next_start = int(messages[-1].seq_id) + 1 if messages else end
        return encode_block(messages, next_start, with_body)

    def search(self, timestamp_ms: int, low: int, high: int) -> tuple[int, int] | None:
        positions = self._positions
        failed = positions.records.failed_reads
        for _ in range(LOOKS_MAX):
            if low == high:
                break
            middle = (low + high) // 2
            found = positions.reads.peek_range(middle, high, 1, 1)
            if not found:
                self._check_read(failed)
            if not found or found[0].enqueued_at_ms >= timestamp_ms:
                high = middle
            else:
                low = int(found[0].seq_id) + 1
        return low, high

    def take_looked_bytes(self) -> int:
        return int(self._positions.records.take_looked_bytes())

    def publishers_wait(self) -> bool:
        return False

    def _check_read(self, failed: int) -> None:
        check_read(self._positions, failed, self._queue.name, self._queue.vhost)


@final
class StreamSource:
    """Of a stream; keeps what was read and not sent, a megabyte and a block at most."""

    def __init__(self, queue: StreamQueue) -> None:
        self._queue = queue
        self._log: StreamLog = queue.log
        self._cursor: StreamCursor | None = None
        self._searched: tuple[int, StreamCursor] | None = None  # by that time

    def floor(self) -> int:
        return int(self._log.first_offset)

    def end(self) -> int:
        return int(self._log.durable_offset)

    def next(self) -> int:
        return self.end()

    def ready(self) -> int:
        return self.end() - self.floor()

    def measure(self, start: int, end: int, max_messages: int, max_bytes: int) -> Measured:
        end = min(end, self.end(), start + max_messages)
        if start >= end:
            return Measured(start, 0, 0, False)
        self._check_floor(start)
        upto, size = self._log.estimate(start, end, max_bytes)
        return Measured(upto, upto - start, size, False)

    def block(self, start: int, end: int, most: BlockBounds, with_body: bool) -> bytes | None:
        columns = BlockColumns(with_body, *most)
        if start >= end:
            return columns.frame(end)
        self._check_floor(start)
        if end > self._log.durable_offset:
            if self._log.is_on_disk(end):
                return None  # the mirrors of a new master have not said yet that they have it
            raise MessagesGone(f"{self._name()} ends at {self.end()}, not at {end}")
        cursor = self._cursor
        if cursor is not None and cursor.offset != start:
            cursor.close()
            cursor = None
        if cursor is None:
            cursor = self._cursor = StreamCursor(self._log, Start(OFFSET, start), stored=True)
        if not self._arrived(cursor):
            return None
        self._check_floor(start)  # retention may have been faster than the read
        upto = start
        for block in cursor.blocks():
            upto = columns.add(block.payload, block.first, block.head.last_ms, start, end)
            if upto < block.next_offset():
                break
        cursor.pass_to(upto)
        if upto < end:
            cursor.look()  # what the next request asks for
        return columns.frame(upto)

    def search(self, timestamp_ms: int, low: int, high: int) -> tuple[int, int] | None:
        if low >= high:
            return low, high
        if self._searched is None or self._searched[0] != timestamp_ms:
            cursor = StreamCursor(self._log, Start(TIME, timestamp_ms), stored=True)
            self._searched = timestamp_ms, cursor
        cursor = self._searched[1]
        if not self._arrived(cursor) and cursor.is_reading():
            return None
        self._searched = None
        cursor.close()
        found = min(max(int(cursor.offset), low), high)
        return found, found

    def take_looked_bytes(self) -> int:
        return 0

    def publishers_wait(self) -> bool:
        return self._queue.publishers_wait()

    def _arrived(self, cursor: StreamCursor) -> bool:
        """Are blocks at hand?  Raises NotFound when they cannot be read."""
        there = cursor.look()
        if cursor.error is not None:
            raise NotFound(f"{self._name()} is stopped: {cursor.error}")
        return there

    def _check_floor(self, start: int) -> None:
        floor = self.floor()
        if start < floor:
            taken = f"messages {start} to {floor - 1} of {self._name()}"
            raise MessagesGone(f"retention has taken {taken}")

    def _name(self) -> str:
        return f"stream '{self._queue.name}' in vhost '{self._queue.vhost}'"
