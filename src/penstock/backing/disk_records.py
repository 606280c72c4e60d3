"""What the disk has of one queue: records in the journal, in segments, contents in stores.

``DiskRecords`` owns the index of the queue, its next sequence id and what it needs of the journal.
A message that ends has up to four traces: the object in memory, a record in the journal, a record
in a segment, a content in a store.  The order is always the same (``release``): the acknowledgement
goes into the journal, the position is marked settled, and the content is given up with the
journal's position behind the acknowledgement, so that the store keeps it until that is on disk.

**Records that wait for the journal.**  Until a move to the tail or to another queue is synced, the
record of the old place, if a segment has one, is left as it is: a mark or a removed file that
reached the disk before the journal would lose the message (``leave_places``, ``settle_left``).  And
no segment may have the record of the new place before the journal has (``first_unsafe``).
Of a copy with positions that is so for everything (``await_journal``): what segments say of a
parcel is on disk behind the journal's word that it was heard.

**A read that fails** stops the queue: it has a ``fault``.  After a while, each time twice as long,
the fault is taken back and the queue reads again (``retry``): disks come back.
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.backing.noting import SetNotes
from penstock.core.clock_types import WallMs
from penstock.core.message import (
    INDEXED,
    LOGGED,
    PENDING,
    PERSISTENT,
    SETTLED,
    STORED,
    Message,
    counts_in,
)
from penstock.storage.common.disk_jobs import DiskJob, run_job
from penstock.storage.common.read_retry import ReadRetry
from penstock.storage.engine.engine import Engine
from penstock.storage.index.queue_index import QueueIndex
from penstock.storage.index.segment_jobs import SegmentRead
from penstock.storage.store.message_store import MessageStore, StoreRead

SEQ_IDS_RESERVED: Final[i64] = 1 << 20
"""How many seq_ids a durable queue reserves at once, when half of them are used up.

A reservation must be on disk before the ids are handed out; half of it lasts for longer than
the journal goes unsynced, at any rate a queue takes (see ``Journal.reserve``)."""
UNKNOWN_POSITION: Final[i64] = 1 << 62
"""Of the journal, behind whatever it will have: what is being published just now."""
_NONE_UNSAFE: Final[list[tuple[int, int]]] = []
_NONE_LEFT: Final[list[tuple[int, list[Message]]]] = []
"""Of most queues: nothing is ever appended to these."""


@final
class DiskRecords:
    """Of one queue; ``entries`` is the number of positions in a segment."""

    def __init__(self, engine: Engine, queue_id: i64, durable: bool, entries: i64) -> None:
        self.engine: Final = engine
        self.queue_id: Final[i64] = queue_id
        self.durable: Final = durable
        self.entries: Final[i64] = entries
        self.index: QueueIndex | None = None
        self.notes: SetNotes | None = None  # the mirrors' copy of the set of messages
        self.fault: str = ""
        self.deleted: bool = False
        self.next_seq_id: i64 = 0  # of the next message that is published
        self.reserved_seq_id: i64 = 0
        self.persistent_count: i64 = 0  # living ones in any state, if the queue is durable
        self.disk_reads: i64 = 0  # messages
        self.disk_writes: i64 = 0
        self.looked_bytes: i64 = 0  # see ``take_looked_bytes``
        self.failed_reads: i64 = 0  # if it grew, an answer lacks something
        self.awaits_journal: bool = False  # in segments nothing is said before the journal says it
        self._retry: ReadRetry | None = None  # since the first read failed
        self.found_count: i64 = -1  # how many there were at the start, if it was there
        self.found_seq_id: i64 = 0  # the next one then
        self.oldest_file: i64 = 0  # of the journal that may be needed; 0 = none
        self.newest_file: i64 = 0
        # Moved to the tail or new for later: (the first of some, the journal's position then).
        self._unsafe: list[tuple[int, int]] = _NONE_UNSAFE
        # Their old places in segments, to be settled when the journal is on disk that far.
        self._left: list[tuple[int, list[Message]]] = _NONE_LEFT

    def journalled(self) -> None:
        """The journal's current file has records of this queue."""
        file_no = self.engine.journal.current.number
        self.newest_file = file_no
        if self.oldest_file == 0:
            self.oldest_file = file_no

    def the_index(self) -> QueueIndex:
        index = self.index
        if index is None:
            index = self.engine.make_index(self.queue_id, self.durable, self.entries)
            self.index = index
        return index

    def store_of(self, message: Message) -> MessageStore:
        """Which store a STORED message of this queue is in."""
        if self.durable and message.flags & LOGGED:
            return self.engine.store
        return self.engine.transient_store

    def failed(self, job: DiskJob) -> bool:
        error = job.error
        if error is None:
            return False
        if not self.deleted and not job.cancelled:
            self.fault = str(error)
            if self._retry is None:
                self._retry = ReadRetry()
            self.failed_reads += 1
            self.engine.moving.wake(self.queue_id)
            self.engine.faults.append(f"queue {int(self.queue_id)} is stopped: {error}")
        return True

    def retry(self, now_ms: WallMs) -> bool:
        """Called a few times a second; True = there is a fault no more, so the queue may read."""
        if self._retry is None:
            return False
        if not self._retry.is_due(self.fault != "", now_ms):
            if self.fault == "" and self._retry.is_over():
                self._retry = None
            return False
        self.fault = ""
        self.engine.board.announce(self.queue_id)
        return True

    def into_store(self, message: Message) -> bool:
        """Is it in a message store, now at the latest?"""
        if message.flags & STORED:
            return True
        if message.flags & (INDEXED | LOGGED):
            return False  # its content is in the index, or in the journal on the way there
        if message.size < self.engine.limits.embed_below_bytes:
            return False
        message.msg_id = self.engine.transient_store.write(message.content, 1)
        message.flags |= STORED
        return True

    def release(self, messages: list[Message], flags: i64) -> None:
        """Messages that have ended: journalled, settled in the index, released in the store.

        ``flags`` are those of any of them.  The store keeps a content until the journal is synced
        up to the acknowledgement.
        """
        kept: list[Message] = []
        lost: list[Message] = []
        if flags & STORED:
            for message in messages:
                if message.flags & STORED:
                    if self.durable and message.flags & LOGGED:
                        kept.append(message)
                    else:
                        lost.append(message)
        if flags & LOGGED:
            for message in messages:
                if message.flags & LOGGED:
                    self.persistent_count -= 1
            journal = self.engine.journal
            journal.ack(self.queue_id, messages)
            self.newest_file = journal.current.number
            if self.oldest_file == 0:
                self.oldest_file = self.newest_file
        if flags & INDEXED:
            self._settle(messages)
        position = self.engine.journal.position
        for message in kept:
            self.engine.store.remove(message.msg_id, position)
        for message in lost:
            self.engine.transient_store.remove(message.msg_id, 0)

    def release_kept(self, messages: list[Message]) -> None:
        """As ``release``, for messages read from segments whose end is journalled already."""
        position = self.engine.journal.position
        for message in messages:
            if message.flags & STORED:
                if self.durable and message.flags & PERSISTENT:
                    self.engine.store.remove(message.msg_id, position)
                else:
                    self.engine.transient_store.remove(message.msg_id, 0)
        self._settle(messages)

    def await_journal(self) -> None:
        """From now on, as long as this process lives."""
        self.awaits_journal = True

    def _settle(self, messages: list[Message]) -> None:
        """In the index, now or when the journal is on disk so far."""
        if self.awaits_journal:
            self.leave_places([old_place(one) for one in messages if one.flags & INDEXED])
        else:
            self.the_index().settle(messages)

    def release_stored(self, messages: list[Message]) -> None:
        """The index counts what is only there; these are counted here."""
        for message in messages:
            message.flags = (message.flags | SETTLED) & ~PENDING
            if message.flags & STORED:
                if message.flags & INDEXED:
                    self.the_index().settle([message])
                if self.durable and message.flags & LOGGED:
                    self.engine.store.remove(message.msg_id, self.engine.journal.position)
                else:
                    self.engine.transient_store.remove(message.msg_id, 0)

    def count_out(self, persistent_count: i64) -> None:
        """So many persistent ones end without ``release``."""
        if self.durable:
            self.persistent_count -= persistent_count

    def settle_left(self) -> None:
        """Old places of what was moved to the tail, as far as that is durable."""
        durable = self.engine.journal.durable_position
        while self._left and self._left[0][0] <= durable:
            self.the_index().settle(self._left[0][1])
            del self._left[0]

    def places_left(self) -> list[Message]:
        places: list[Message] = []
        for _, messages in self._left:
            places.extend(messages)
        return places

    def is_still(self) -> bool:
        """Is nothing left that waits for the journal or the time?"""
        return not self._left and self._retry is None

    def has_left(self) -> bool:
        return len(self._left) > 0

    def leave_places(self, places: list[Message]) -> None:
        """Records of messages that have gone on elsewhere, settled when the journal is synced."""
        if places:
            if not self._left:
                self._left = []
                self.engine.moving.wake(self.queue_id)
            self._left.append((int(self.engine.journal.position), places))
            self.settle_left()

    def note_unsafe(self, first_seq_id: i64) -> None:
        """No segment may speak of those from there on before what was journalled is durable."""
        self.first_unsafe()
        while self._unsafe and self._unsafe[-1][0] >= first_seq_id:
            self._unsafe.pop()  # this one says more, and later
        self._add_unsafe(first_seq_id, self.engine.journal.position)

    def _add_unsafe(self, first_seq_id: i64, position: i64) -> None:
        if not self._unsafe:
            self._unsafe = []
        self._unsafe.append((int(first_seq_id), int(position)))

    def first_unsafe(self) -> i64:
        """From this seq_id on a move to the tail, or a delay from the start, may not be durable."""
        unsafe = self._unsafe
        durable = self.engine.journal.durable_position
        while unsafe and unsafe[0][1] <= durable:
            del unsafe[0]
        return unsafe[0][0] if unsafe else self.next_seq_id

    def expect_moved(self) -> None:
        """What comes until ``moved_in`` is taken from another queue, in this turn."""
        self.first_unsafe()
        self._add_unsafe(self.next_seq_id, UNKNOWN_POSITION)

    def moved_in(self) -> None:
        """It has come."""
        first, position = self._unsafe.pop()
        assert position == UNKNOWN_POSITION
        if first < self.next_seq_id:
            self.note_unsafe(first)

    def note_attempts(self, messages: list[Message]) -> None:
        if self.notes is not None:
            self.notes.counted(messages)
        count = self.engine.journal.note_attempts(self.queue_id, messages)
        if count > 0:
            self.journalled()
        for message in messages:
            if message.flags & INDEXED:
                self.the_index().set_attempts(message.seq_id, counts_in(message.flags))

    # -- reads in the thread of the queue ------------------------------------------------------

    def read_now(self, job: DiskJob) -> bool:
        """Run it here; False = it failed, and the queue has a fault."""
        run_job(job, self.engine.files)
        return not self.failed(job)

    def look_now(self, job: SegmentRead) -> bool:
        """As ``read_now``, counted for ``take_looked_bytes``."""
        self.looked_bytes += job.size
        return self.read_now(job)

    def load_now(self, job: StoreRead) -> bool:
        """As ``read_now``, of contents in a message store."""
        job.run_now(self.engine.files)
        return not self.failed(job)

    def take_looked_bytes(self) -> i64:
        """So much was read, here and now, by looking and choosing since last time."""
        size = self.looked_bytes
        self.looked_bytes = 0
        return size

    def count_reads(self, count: i64) -> None:
        self.disk_reads += count
        self.engine.disk_reads += count

    def write(self, messages: list[Message], flags: i64, largest: i64, next_seq_id: i64) -> None:
        """New messages with their numbers, all below ``next_seq_id``, as far as the disk has them.

        ``flags`` are those of any of them, ``largest`` the size of the largest content in bytes.
        """
        if largest >= self.engine.limits.embed_below_bytes:
            self._store_large(messages)
        self.advance(next_seq_id)
        if self.durable and flags & PERSISTENT:
            written = self.engine.journal.publish(self.queue_id, messages)
            self.persistent_count += written
            self.disk_writes += written
            self.engine.disk_writes += written
            self.journalled()
        if self.awaits_journal:
            self.note_unsafe(messages[0].seq_id)

    def _store_large(self, messages: list[Message]) -> None:
        """Large persistent ones go to the store, or are there already for another queue."""
        store = self.engine.store
        least = self.engine.limits.embed_below_bytes
        for message in messages:
            if self.durable and message.flags & PERSISTENT and message.size >= least:
                if message.msg_id == 0:
                    message.msg_id = store.write(message.content, 1)
                else:
                    store.refer(message.msg_id, 1)
                message.flags |= STORED
            else:
                message.msg_id = 0

    def advance(self, next_seq_id: i64) -> None:
        """The next message gets this number; a durable queue reserves some ahead of it."""
        self.next_seq_id = next_seq_id
        if self.durable and next_seq_id > self.reserved_seq_id - SEQ_IDS_RESERVED // 2:
            self.reserved_seq_id = next_seq_id + SEQ_IDS_RESERVED
            self.engine.journal.reserve(self.queue_id, self.reserved_seq_id)

    def journal_only_count(self) -> i64:
        """Living messages that are in the journal, and rest in no segment."""
        index = self.index
        if index is None or not self.durable or self.persistent_count == 0:
            return self.persistent_count
        resting = index.live_count - index.transient_count
        for message in self.places_left():
            if message.flags & PERSISTENT:
                resting -= 1
        return self.persistent_count - resting

    def flushed(self, file_no: i64) -> None:
        """The journal's files up to this one are not needed any more."""
        self.oldest_file = file_no + 1 if self.newest_file > file_no else 0

    def set_notes(self, notes: SetNotes | None) -> None:
        self.notes = notes

    def adopt(self, index: QueueIndex | None, next_seq_id: i64) -> None:
        """Start from what was found on disk."""
        self.index = index
        self.next_seq_id = next_seq_id
        self.reserved_seq_id = next_seq_id
        if index is not None:
            self.persistent_count = index.live_count

    def note_found(self, count: i64) -> None:
        """The start has adopted so many."""
        self.found_count = count
        self.found_seq_id = self.next_seq_id

    def resume_at(self, next_seq_id: i64) -> None:
        """Right after the start: go on there, though more numbers are reserved."""
        self.next_seq_id = next_seq_id

    def delete(self) -> None:
        """The queue is gone; its messages were given to ``release_stored``."""
        if self.index is not None:
            self.index.settle(self.places_left())
            self._left = _NONE_LEFT
            self.index.delete()
            self.index = None
        self.persistent_count = 0
        self.engine.remove_queue(self.queue_id)

    def begin_delete(self) -> None:
        self.deleted = True
        if self.durable:
            self.engine.journal.forget_queue(self.queue_id)


def old_place(message: Message) -> Message:
    """Stands for the record that is still there; its content, if stored, is not its own."""
    old = Message(b"", message.address, message.flags & (PERSISTENT | INDEXED | STORED), WallMs(0))
    old.seq_id = message.seq_id
    old.size = message.size
    return old
