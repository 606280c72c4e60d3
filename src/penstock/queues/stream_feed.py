"""``StreamFeed``: what a queue has not taken yet of the stream that its messages come from.

So a channel of NSQ gets the messages of a topic that is a stream (``topic_streams.py``).  They rest
in the log until consumers of the queue have room for them.  Then the queue takes them, and
attempts, deadlines and delays are its matter, as of any other message it has.

In: how many messages the queue has room for.  Out: messages in the order of the log, as they were
published; and a position, which the stream keeps by the name of the queue.  The position moves when
the queue has on disk what it took: a crash gives some messages twice, and loses none.
"""

from collections import deque
from typing import NamedTuple, final

from mypy_extensions import i64

from penstock.core.message import Message
from penstock.queues.queue import Queue
from penstock.storage.journal.journal import Journal
from penstock.streams.block_codec import read_records
from penstock.streams.cursor import NEXT, Start, StreamCursor
from penstock.streams.log import StreamLog
from penstock.streams.marks import Marks
from penstock.streams.reading import LogBlock


class _Taken(NamedTuple):
    """What the queue took: safe when the journal is on disk up to ``journalled``."""

    journalled: int
    offset: int  # of the next message
    came_ms: int


@final
class StreamFeed:
    """``stream`` is woken when the position may move, ``queue`` when there is more to take.

    ``moved``: something was taken since the last report, or is not on disk yet.
    """

    def __init__(
        self, stream: Queue, queue: Queue, log: StreamLog, journal: Journal, start: Start
    ) -> None:
        self.name: str = queue.name if queue.durable else ""  # "" = no position is kept
        self.cursor: StreamCursor = StreamCursor(log, start, stored=True)
        self.moved: bool = True
        self._stream: Queue = stream
        self._queue: Queue = queue
        self._log: StreamLog = log
        self._journal: Journal = journal
        self._position: i64 = self.cursor.place()  # -1 = a time is looked for
        self._came_ms: i64 = self.cursor.came_ms
        self._block_ms: i64 = 0
        self._first: i64 = 0
        self._at_hand: list[Message] = []  # of one block, which begins with ``_first``
        self._taken: deque[_Taken] = deque()
        self._paused: bool = False

    def pause(self, paused: bool) -> None:
        """While it is paused it gives nothing."""
        self._paused = paused
        self._queue.wake()

    def close(self) -> None:
        """It reads no more."""
        self.cursor.close()
        self._at_hand = []

    # -- for the queue ---------------------------------------------------------------------

    def behind(self) -> i64:
        """How many messages of the stream are still to be taken."""
        return self._log.next_offset - max(self.cursor.offset, self._log.first_offset)

    def has_more(self) -> bool:
        """Can some be taken, now or when they have been read?"""
        is_stuck = self._paused or self.cursor.error is not None
        return not is_stuck and self.cursor.offset < self._log.durable_offset

    def take(self, most: i64) -> list[Message]:
        """At most so many; none while they are read from the disk.  Then the queue is woken."""
        if not self.has_more():
            return []
        begin = self.cursor.offset - self._first
        if not 0 <= begin < len(self._at_hand):
            if not self.cursor.look():
                return []
            self._decode(self.cursor.blocks()[0])
            begin = self.cursor.offset - self._first
        messages = self._at_hand[begin : begin + most]
        self.cursor.pass_to(self.cursor.offset + len(messages))
        if begin + len(messages) == len(self._at_hand):
            self._at_hand = []
        return messages

    def _decode(self, block: LogBlock) -> None:
        messages = read_records(block.payload, block.head)
        assert messages is not None, "its checksum was right"
        self._at_hand = messages
        self._first = block.first
        self._block_ms = block.head.last_ms
        if self._position < 0:
            self._position = self.cursor.offset

    def took(self) -> None:
        """What was taken last is in the queue, and its record with the journal."""
        self._taken.append(
            _Taken(int(self._journal.position), int(self.cursor.offset), int(self._block_ms))
        )
        self.moved = True
        self._stream.wake()

    def skip(self) -> int:
        """Give up what was not taken; returns how many messages these are."""
        count = int(self.behind())
        self.close()
        self.cursor = StreamCursor(self._log, Start(NEXT), stored=True)
        self._block_ms = self._log.last_ms
        self.took()
        return count

    # -- for the stream --------------------------------------------------------------------

    def look(self) -> None:
        """There may be more in the log; a time to begin at is looked for although none is taken."""
        if self._position < 0 and self.cursor.look():
            self._position = self.cursor.offset
            self.moved = True
        if self.has_more() and len(self._queue.consumers) > 0:
            self._queue.wake()

    def report(self, positions: Marks) -> None:
        """The position up to which the queue has all messages on disk."""
        while self._taken and self._taken[0].journalled <= self._journal.durable_position:
            taken = self._taken.popleft()
            self._position = taken.offset
            self._came_ms = taken.came_ms
        self.moved = len(self._taken) > 0
        if self.name != "" and self._position >= 0 and positions.has_room(self.name):
            positions.move(self.name, self._position, self._came_ms)
