"""``StreamCursor``: the place of one reader in a stream.

In: where to begin; then ``look`` again and again, and ``take``.  Out: messages in the order of
their offsets.  A cursor holds the blocks of one read, which it shares with others, and gives them
back when too many are held; at rest it is its numbers.  A reader that retention overtakes goes on
at the floor; ``overtaken`` counts what it lost.  A reader of stored blocks (``reading.py``) uses
``blocks`` and ``pass_to`` instead of ``take``.

Invariant (``check``):
  C1  the offset is that of a message at hand, if there is one
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.core.message import Message
from penstock.streams.filtering import Wanted
from penstock.streams.log import StreamLog
from penstock.streams.reading import BlocksAtHand, LogBlock, StreamRead

FIRST: Final[i64] = 1
LAST: Final[i64] = 2
NEXT: Final[i64] = 3
OFFSET: Final[i64] = 4
TIME: Final[i64] = 5

PASSED_AT_ONCE: Final = 64
"""Blocks of the cache without a match, for one look."""


@final
class Start:
    """Where a reader begins.

    FIRST   with the oldest message
    LAST    with the first message of the last block
    NEXT    with what is published from now on
    OFFSET  with the message of that number, be it to come; a negative one counts back from the end
    TIME    with the block of the first message that came at that time (wall clock) or later
    """

    def __init__(self, kind: i64, value: i64 = 0) -> None:
        self.kind: i64 = kind
        self.value: i64 = value

    def offset_in(self, log: StreamLog) -> i64:
        """Not below what the log has; of a time the first one."""
        offset = log.first_offset
        if self.kind == LAST:
            offset = log.last_block
        elif self.kind == NEXT:
            offset = log.next_offset
        elif self.kind == OFFSET:
            offset = self.value if self.value >= 0 else log.durable_offset + self.value
        return max(offset, log.first_offset)


@final
class StreamCursor:
    """``offset`` is that of the next message; ``overtaken`` counts what retention took before.

    ``error`` is what keeps it from reading on: damage, or a disk that fails.
    ``came_ms``: when the last message came that was taken, 0 = unknown.
    """

    def __init__(
        self, log: StreamLog, start: Start, wanted: Wanted | None = None, stored: bool = False
    ) -> None:
        self.offset: i64 = start.offset_in(log)
        self.overtaken: i64 = 0
        self.error: Exception | None = None
        self.passing: bool = False  # a look passed over blocks, and another is to go on at once
        self.came_ms: i64 = log.last_ms if start.kind == NEXT else 0
        self._log: StreamLog = log
        self._wanted: Wanted | None = wanted
        self._stored: bool = stored
        self._time_ms: i64 = start.value if start.kind == TIME else -1
        self._segment: i64 = -1
        self._at: i64 = -1
        self._behind: i64 = 0  # the offset behind the last read, which may have passed blocks over
        self._hand: BlocksAtHand = BlocksAtHand(log.cache)
        self._read: StreamRead | None = None
        if not stored:
            log.is_read_at(self.offset)

    def place(self) -> i64:
        """The offset of the next message; -1 while that of a time is looked for."""
        return self.offset if self._time_ms < 0 else -1

    def read_again(self) -> None:
        """What failed may be over."""
        self.error = None

    def close(self) -> None:
        """It reads no more."""
        self._hand.give_back()

    def look(self) -> bool:
        """Are messages at hand?  If not and there are some, a read for them is under way."""
        self.passing = False
        for _ in range(PASSED_AT_ONCE):
            if not self._arrived() or self.error is not None:
                return False
            if self._hand.blocks:
                return True
            self._settle()
            log = self._log
            if not self._stored:
                log.is_read_at(self.offset)
            if self.offset >= log.durable_offset:
                return False
            block: LogBlock | None = None
            if self._time_ms < 0 and not self._stored:
                block = log.cache.get(log.stream, self.offset)
            if block is None:
                self._read = log.read(
                    self.offset, self._time_ms, self._segment, self._at, self._wanted, self._stored
                )
                if not self._read.done:
                    return False
            else:
                self._segment = block.segment
                self._at = block.head.end()
                self._behind = block.next_offset()
                if self._wanted is None or self._wanted.may_match(block.head.filter):
                    self._hand.take([block])
                    self._read_ahead()
                else:
                    self.offset = block.next_offset()
        self.passing = True
        return False

    def _settle(self) -> None:
        """Where to read on: not behind blocks that were given back, and not below the floor."""
        if self.offset < self._behind:
            self._segment = -1
            self._behind = 0
        floor = self._log.first_offset
        if self.offset < floor:
            if self._time_ms < 0:
                self.overtaken += floor - self.offset
            self.offset = floor
            self._segment = -1
            self._at = -1

    def _arrived(self) -> bool:
        """Take over what the read found; False = it is still under way."""
        read = self._read
        if read is None or not read.done:
            return read is None
        self._read = None
        if isinstance(read.error, FileNotFoundError) and read.segment < self._log.first_offset:
            self._segment = -1
            self._at = -1
            return True
        if read.error is not None:
            self.error = read.error
            return True
        self._segment = read.segment
        self._at = read.at
        self._behind = read.offset
        self._time_ms = read.time_ms if read.offset < read.end else -1
        self._hand.take(read.blocks)
        blocks = self._hand.blocks
        self.offset = max(self.offset, blocks[0].first if blocks else read.offset)
        if blocks:
            self._read_ahead()
        return True

    def _read_ahead(self) -> None:
        """What follows is read while the blocks at hand are used: a read waits for its thread."""
        if self._wanted is None and not self._stored:
            self._log.read_ahead(self._behind, self._segment, self._at)

    def take(self, most: i64) -> list[Message]:
        """At most so many of the messages at hand, of one block."""
        block = self._hand.blocks[0]
        begin = self.offset - block.first
        messages = block.messages()[begin : begin + most]
        self.offset += len(messages)
        self.came_ms = messages[-1].enqueued_at_ms
        if self.offset == block.next_offset():
            self._hand.use_up()
            blocks = self._hand.blocks
            self.offset = max(self.offset, blocks[0].first if blocks else self._behind)
        return messages

    def is_reading(self) -> bool:
        """Is something on its way from the disk?"""
        return self._read is not None

    def blocks(self) -> list[LogBlock]:
        """Those at hand, of one read; the first one has ``offset``."""
        return self._hand.blocks

    def pass_to(self, offset: i64) -> None:
        """All messages below were used, and those of the blocks at hand only."""
        self.offset = offset
        while self._hand.blocks and self._hand.blocks[0].next_offset() <= offset:
            self._hand.use_up()

    def check(self) -> None:
        """Assert the numbered invariant."""
        blocks = self._hand.blocks
        if blocks:
            assert blocks[0].first <= self.offset < blocks[0].next_offset(), "C1"
        for i in range(1, len(blocks)):
            assert blocks[i - 1].next_offset() <= blocks[i].first, "C1"
