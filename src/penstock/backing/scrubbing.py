"""``PartScrub``: reads what rests of one part of a queue, once, to see that the disk still has it.

    segments, stretch by stretch ─► the messages there ─► their contents in the message store

Reads go to the thread of the disk, one at a time; checksums are looked at there.  What cannot be
read is a fault of the queue, as when a consumer asks for it.
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.backing.message_deque import NO_MESSAGES
from penstock.backing.variable_queue import VariableQueue
from penstock.core.message import STORED, Message
from penstock.storage.index.segment_jobs import SegmentRead
from penstock.storage.store.message_store import StoreRead

SCRUBBED_AT_ONCE_BYTES: Final[i64] = 128 * 1024
EVERY_SEQ_ID: Final[i64] = 1 << 62


@final
class PartScrub:
    """Of ``queue``, from its first message on."""

    def __init__(self, queue: VariableQueue) -> None:
        self._records: Final = queue.records
        self._from: i64 = 0  # what is below was read
        self._read: SegmentRead | None = None
        self._contents: StoreRead | None = None
        self._stored: list[Message] = NO_MESSAGES  # whose contents are still to be read

    def is_reading(self) -> bool:
        """The last read has not come back."""
        read, contents = self._read, self._contents
        return (read is not None and not read.done) or (contents is not None and not contents.done)

    def go_on(self) -> i64:
        """Ask for the next read; returns its bytes, 0 = all was read, or something cannot be."""
        if self._records.deleted or not self._take_in():
            return 0
        return self._read_contents() if self._stored else self._read_segment()

    def _take_in(self) -> bool:
        """What the disk has brought; False = it has failed."""
        read, contents = self._read, self._contents
        self._read = None
        self._contents = None
        if contents is not None and self._records.failed(contents):
            return False
        if read is not None:
            if self._records.failed(read):
                return False
            messages = self._records.the_index().decode(read)
            self._stored = [message for message in messages if message.flags & STORED]
        return True

    def _read_segment(self) -> i64:
        index = self._records.index
        if index is None:
            return 0
        read = index.plan_read(self._from, EVERY_SEQ_ID, SCRUBBED_AT_ONCE_BYTES)
        if read is None:
            return 0
        self._from = read.upto
        self._read = read
        self._records.engine.board.reads.append(read)
        return read.size

    def _read_contents(self) -> i64:
        """Of messages in one of the stores, as many as one read may bring, and one at least."""
        store = self._records.store_of(self._stored[-1])
        msg_ids: list[int] = []
        size: i64 = 0
        while self._stored and size < SCRUBBED_AT_ONCE_BYTES:
            message = self._stored[-1]
            if self._records.store_of(message) is not store:
                break
            self._stored.pop()
            msg_ids.append(int(message.msg_id))
            size += message.size
        self._contents = store.read(msg_ids)
        self._records.engine.board.reads.append(self._contents)
        return size
