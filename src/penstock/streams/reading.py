"""Reads blocks of a stream, in a thread, and keeps the newest ones for all readers.

In: an offset or a time, and where in which segment to begin.  Out: a row of whole blocks, decoded
once for all readers that come by, and the place behind them.  A block whose filter says *no* is
passed over by its head.  What is not true here was true when it was written and synced: damage,
which names file, place and length; nothing is left out in silence.

A *stored* read leaves the records of a block as they are on disk, for readers that pass them on as
bytes (of ranges): its blocks hold no message objects, and are not kept for others.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from penstock.core.errors import Corrupt
from penstock.core.message import Message
from penstock.storage.common.disk_jobs import DiskJob
from penstock.storage.common.file_window import FileWindow
from penstock.storage.common.files import FileSystem
from penstock.streams.block_codec import (
    HEAD_BYTES,
    INDEX,
    MESSAGES,
    BlockHead,
    IndexRows,
    damage,
    index_place,
    read_head,
    read_index,
    read_records,
    segment_path,
)
from penstock.streams.filtering import Wanted

if TYPE_CHECKING:
    from penstock.streams.log import StreamLog

READ_BYTES: Final[i64] = 256 * 1024
"""A read ends with the block that reaches this."""
STORED_READ_BYTES: Final[i64] = 768 * 1024
"""The same of a stored read: with a block of usual size it has a megabyte."""
HEADS_AT_ONCE: Final[i64] = 4096
"""Or with so many blocks that were passed over: reads of others wait behind it."""
WINDOW_BYTES: Final[i64] = 64 * 1024
FILTER_BYTES_MAX: Final[i64] = 255
HELD_BYTES_MAX: Final[i64] = 64 * 1024 * 1024
CACHE_PART: Final[i64] = 32
HELD_PART: Final[i64] = 8
"""One part in so many of a node's memory for messages, if that is less: cached, and of readers."""
MESSAGE_BYTES: Final[i64] = 200
"""What a decoded message costs beside its content, about."""


Show = Callable[[list[Message]], list[Message]]
"""Messages as they are stored -> as readers get them."""


def as_stored(messages: list[Message]) -> list[Message]:
    return messages


@final
class LogBlock:
    """The messages of one block, shared between readers; or, of a stored read, its records."""

    __slots__ = (
        "_holders", "_messages", "_show", "_shown", "count", "first", "head", "payload", "segment",
    )  # fmt: skip

    def __init__(
        self,
        segment: i64,
        head: BlockHead,
        messages: list[Message],
        show: Show,
        payload: bytes = b"",
    ) -> None:
        self.segment: i64 = segment
        self.first: i64 = head.first
        self.count: i64 = head.count
        self.head: BlockHead = head
        self.payload: bytes = payload
        self._messages: list[Message] = messages
        self._show: Show = show
        self._shown: bool = False
        self._holders: i64 = 0

    def hold(self) -> i64:
        """A reader keeps it; returns what memory it takes that it did not take before."""
        self._holders += 1
        return self.memory_bytes() if self._holders == 1 else 0

    def let_go(self) -> i64:
        """The reader keeps it no longer; returns what memory it does not take any more."""
        self._holders -= 1
        return self.memory_bytes() if self._holders == 0 else 0

    def messages(self) -> list[Message]:
        """As readers get them; made for the first one."""
        if not self._shown:
            self._messages = self._show(self._messages)
            self._shown = True
        return self._messages

    def next_offset(self) -> i64:
        return self.first + self.count

    def memory_bytes(self) -> i64:
        return self.head.size + MESSAGE_BYTES * self.count


@final
class BlocksAtHand:
    """Blocks of one reader, which it uses up one by one; the cache may take all of them back."""

    def __init__(self, cache: "BlockCache") -> None:
        self.blocks: list[LogBlock] = []
        self._cache: BlockCache = cache

    def take(self, blocks: list[LogBlock]) -> None:
        if blocks:
            self.blocks += blocks
            self._cache.hold(self, blocks)

    def use_up(self) -> None:
        """The first one."""
        self._cache.let_go(self, [self.blocks.pop(0)])

    def give_back(self) -> None:
        blocks = self.blocks
        self.blocks = []
        self._cache.let_go(self, blocks)


@final
class BlockCache:
    """The blocks that were written, read or used last, and those of readers, of a node's streams.

    Readers that are slow, each at a place of its own, would keep a read each: when they have more
    than ``held_limit_bytes``, those that took theirs first read again when they go on.  A block
    that is cached and held is counted in both.

    Invariants (``check``):
      B1  ``bytes`` is the sum over the blocks, and no more than the limit
      B2  ``held_bytes`` is the sum over the blocks of readers, each once
    """

    def __init__(
        self, limit_bytes: i64, show: Show = as_stored, held_limit_bytes: i64 = HELD_BYTES_MAX
    ) -> None:
        self.show: Show = show
        self.bytes: i64 = 0
        self.held_bytes: i64 = 0
        self._most_bytes: Final[i64] = limit_bytes
        self._most_held_bytes: Final[i64] = held_limit_bytes
        self._limit_bytes: i64 = limit_bytes
        self._held_limit_bytes: i64 = held_limit_bytes
        self._blocks: dict[tuple[int, int], LogBlock] = {}
        self._readers: dict[BlocksAtHand, None] = {}  # that have blocks, oldest first

    def stay_within(self, memory_bytes: i64) -> None:
        """So much memory is for messages of all kinds from now on."""
        limit_bytes = min(self._most_bytes, memory_bytes // CACHE_PART)
        held_limit_bytes = min(self._most_held_bytes, memory_bytes // HELD_PART)
        if limit_bytes == self._limit_bytes and held_limit_bytes == self._held_limit_bytes:
            return
        self._limit_bytes = limit_bytes
        self._held_limit_bytes = held_limit_bytes
        self._shrink()

    def _shrink(self) -> None:
        while self.bytes > self._limit_bytes:
            oldest = self._blocks.pop(next(iter(self._blocks)))
            self.bytes -= oldest.memory_bytes()
        while self.held_bytes > self._held_limit_bytes and len(self._readers) > 1:
            next(iter(self._readers)).give_back()

    def hold(self, reader: BlocksAtHand, blocks: list[LogBlock]) -> None:
        """The reader has these now; others may have to give theirs back."""
        self._readers[reader] = None
        for block in blocks:
            self.held_bytes += block.hold()
        self._shrink()

    def let_go(self, reader: BlocksAtHand, blocks: list[LogBlock]) -> None:
        for block in blocks:
            self.held_bytes -= block.let_go()
        if not reader.blocks:
            self._readers.pop(reader, None)

    def put(self, block: LogBlock) -> None:
        """Keep it, and let go of the oldest ones."""
        key = (int(block.head.stream), int(block.first))
        if key in self._blocks:
            return
        self._blocks[key] = block
        self.bytes += block.memory_bytes()
        self._shrink()

    def get(self, stream: i64, offset: i64) -> LogBlock | None:
        """The block that begins with that offset; from now on it counts as a new one."""
        key = (int(stream), int(offset))
        block = self._blocks.pop(key, None)
        if block is not None:
            self._blocks[key] = block
        return block

    def forget(self, stream: i64) -> None:
        """What was given up of that stream may come again as something else."""
        for key in [one for one in self._blocks if one[0] == stream]:
            self.bytes -= self._blocks.pop(key).memory_bytes()

    def check(self) -> None:
        assert self.bytes == sum([block.memory_bytes() for block in self._blocks.values()]), "B1"
        assert self.bytes <= self._limit_bytes or not self._blocks, "B1"
        held = {block for reader in self._readers for block in reader.blocks}
        assert self.held_bytes == sum([block.memory_bytes() for block in held]), "B2"


@final
class StreamRead(DiskJob):
    """Blocks with ``offset`` and what follows, up to and without ``end``.

    ``time_ms``  look for the first block with a message of that time or later; -1 = by offset
    ``segment``  first offset of the segment, and ``at`` the place in it; -1 = look it up
    ``stored``   see the head of this file
    ``blocks``   what was found; the fields above then say where the next read goes on
    """

    def __init__(
        self,
        log: "StreamLog",
        offset: i64,
        time_ms: i64,
        segment: i64,
        at: i64,
        wanted: Wanted | None,
        stored: bool = False,
    ) -> None:
        super().__init__()
        self.stored: bool = stored
        self.offset: i64 = offset
        self.began_at: i64 = offset
        self.time_ms: i64 = time_ms
        self.segment: i64 = segment
        self.at: i64 = at
        self.end: i64 = log.durable_offset
        self.blocks: list[LogBlock] = []
        self.wanted: Wanted | None = wanted
        self._stream: i64 = log.stream
        self._directory: str = log.directory
        self._log: StreamLog = log

    def finish(self) -> None:
        super().finish()
        self._log.read_done(self)

    # -- the thread ------------------------------------------------------------------------

    def run(self, files: FileSystem) -> None:
        path = segment_path(self._directory, self.segment)
        if self.at < 0:
            self.at = self._look_up(files, path)
        window = FileWindow(files, path, WINDOW_BYTES)
        try:
            self._walk(files, window, path)
        except (Corrupt, OSError):
            if not self.blocks:
                raise  # else the next read, which begins there, meets it again

    def _walk(self, files: FileSystem, window: FileWindow, path: str) -> None:
        size: i64 = 0
        most = STORED_READ_BYTES if self.stored else READ_BYTES
        heads: i64 = 0
        while size < most and heads < HEADS_AT_ONCE and self.offset < self.end:
            heads += 1
            head = self._head(files, window, path)
            if head.kind == INDEX:
                self.segment = head.first
                self.at = 0
                self.offset = max(self.offset, head.first)
                return
            if self._is_wanted(head):
                self.blocks.append(self._block(window, path, head))
                size += head.size
                self.time_ms = -1
            self.offset = max(self.offset, head.next_offset())
            self.at = head.end()

    def _look_up(self, files: FileSystem, path: str) -> i64:
        """The place to begin at in a finished segment, by the index at its end."""
        end: i64 = files.size(path)
        at = index_place(files.pread(path, max(int(end) - 8, 0), 8))
        rows: IndexRows | None = None
        if 0 <= at < end:
            head = read_head(files.pread(path, int(at), int(HEAD_BYTES)), 0, at, self._stream, path)
            if head is not None and head.kind == INDEX and head.end() == end:
                payload = files.pread(path, int(head.payload_at()), int(head.size))
                rows = read_index(payload, head) if head.is_payload(payload) else None
        if rows is None:
            raise Corrupt(f"{path}: the index at its end is damaged, {int(end)} bytes in all")
        return rows.at_offset(self.offset) if self.time_ms < 0 else rows.at_time(self.time_ms)

    def _head(self, files: FileSystem, window: FileWindow, path: str) -> BlockHead:
        data = window.take(self.at, HEAD_BYTES + FILTER_BYTES_MAX)
        head = read_head(data, 0, self.at, self._stream, path)
        if head is None or (head.first > self.offset and self.time_ms < 0):
            raise damage(path, int(self.at), int(files.size(path) - self.at))
        return head

    def _is_wanted(self, head: BlockHead) -> bool:
        if head.kind != MESSAGES:
            return False
        if self.time_ms >= 0:
            if head.last_ms < self.time_ms:
                return False
        elif head.next_offset() <= self.offset:
            return False
        return self.wanted is None or self.wanted.may_match(head.filter)

    def _block(self, window: FileWindow, path: str, head: BlockHead) -> LogBlock:
        payload = window.take(head.payload_at(), head.size)
        show = self._log.cache.show
        if head.is_payload(payload):
            if self.stored:
                return LogBlock(self.segment, head, [], show, payload)
            messages = read_records(payload, head)
            if messages is not None:
                return LogBlock(self.segment, head, messages, show)
        raise damage(path, int(head.at), int(head.end() - head.at))
