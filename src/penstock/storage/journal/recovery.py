"""Reads the journal at start, after a crash.

In: a directory of journal files, the ids of the queues that exist and of those deleted.  Out: for
each queue
the messages that live as far as the journal knows, the seq_ids it says are settled (their
messages may be in segments), delays, attempts, and the next seq_id.  Files are read from the newest
to the oldest: an acknowledgement always lies in the file of its message or in a newer one, so
when a message record is met everything that could have killed it has been read, and no
object is made for a dead message.

The *tail* is the newest file with a true first block.  Its first block names the files
that were there when it began, with their sizes; a ``D`` record in it takes a name off that
list, a ``K`` record puts it on that of the files that are kept: segments refer to these, and they
are not replayed.  So a file that is missing, short or damaged is noticed, one that is kept where
segments refer to it, and a file that is not listed is garbage whose removal the crash undid.

What a crash can leave, and what is done:

    tail ends in no true block             it ends there: a file is longer than what was
                                           written to it, so this is how every tail ends
    the same, but a later block of the     Corrupt: those bytes had been on disk
      file attests that place
    newest file without a true first       it never began: a file is begun only after the
      block                                one before it was synced, so that one is whole.  It
                                           goes, else the next one begun in vain (on a full
                                           disk, say) would make it look like damage
    a file that is shorter than a record   Corrupt: it was cut
      says, or has not begun after all
    anything else wrong                    Corrupt, with file, offset and length

``run`` changes nothing.  ``secure`` makes the end of the tail durable: after a mere
kill it may be only in the page cache, and what the caller does because of it (settle, remove,
move to the tail) must not outlive it.  The caller then writes what lives into segments, begins
a new journal file and only then removes the old ones, so running again after a crash in the
middle finds the same.  ``bytes_cut`` counts what looks like the beginning of a block at the end
of the tail.
"""

from typing import Final, final

from librt.strings import read_i32_be, read_i64_be
from mypy_extensions import i64

from penstock.core.clock_types import WallMs
from penstock.core.errors import Corrupt
from penstock.core.message import LOGGED, PERSISTENT, REDELIVERED, Message, counts_in
from penstock.storage.common.files import FileSystem
from penstock.storage.common.formats import check_version
from penstock.storage.common.message_record import (
    MESSAGE,
    read_message,
    record_queue_id,
    record_seq_id,
)
from penstock.storage.common.seq_ranges import SeqRanges
from penstock.storage.journal.codec import (
    ACK,
    ACK_RUN,
    ATTEMPTS,
    BEGUN,
    BLOCK_HEADER_BYTES,
    DELAY,
    DROP,
    FILES,
    FORGET,
    FORMAT_VERSION,
    KEPT,
    MAGIC_BYTES,
    POSITION_IDS,
    QUEUES,
    RESERVE,
    TO_TAIL,
    attests_damage,
    block_end,
    damage,
    journal_file_name,
    journal_file_no,
    read_table,
    record_size,
    synced_offset,
)

SEQ_ID_STEP: Final[i64] = 16_384
"""After an unclean stop numbering goes on at the next multiple of this."""


@final
class JournalledQueue:
    """What the journal knows of one queue.

    ``messages``     alive, in order, unless a segment says otherwise; ``file_no`` is 0 where
                     the sync that covers the record is not attested
    ``acked``        seq_ids that are settled
    ``delays``       seq_id → not before, of the last word on each
    ``attempts``     seq_id → ``counts_in``, of the last word on each that lives
    ``next_seq_id``  above every seq_id seen or reserved
    """

    __slots__ = (
        "acked", "attempts", "chunks", "delays", "file_attempts", "file_delays", "forgotten",
        "messages", "next_seq_id",
    )  # fmt: skip

    def __init__(self, forgotten: bool = False) -> None:
        self.next_seq_id: i64 = 0
        self.forgotten: bool = forgotten
        self.acked: SeqRanges = SeqRanges()
        self.delays: dict[int, WallMs] = {}
        self.file_delays: dict[int, WallMs] = {}  # of the file being read
        self.attempts: dict[int, int] = {}
        self.file_attempts: dict[int, int] = {}  # of the file being read
        self.messages: list[Message] = []
        self.chunks: list[list[Message]] = []  # of the files read, newest first

    def saw(self, next_seq_id: i64) -> None:
        if next_seq_id > self.next_seq_id:
            self.next_seq_id = next_seq_id

    def forget(self) -> None:
        """It was deleted: what is older does not count."""
        self.forgotten = True

    def put_messages_aside(self) -> None:
        """Those of a file; older ones come in front."""
        self.chunks.append(self.messages)
        self.messages = []

    def note_attempts(self, first: i64, count: i64, attempts: i64) -> None:
        """Of those that live: what ended is in this file or in one that was read before."""
        seq_id = first
        while seq_id < first + count:
            if not self.acked.contains(seq_id):
                self.file_attempts[int(seq_id)] = int(attempts)
            seq_id += 1

    def file_is_read(self) -> None:
        """The last words of a newer file, which was read before, stand."""
        if self.file_delays:
            self.delays = self.file_delays | self.delays
            self.file_delays = {}
        if self.file_attempts:
            self.attempts = self.file_attempts | self.attempts
            self.file_attempts = {}

    def join(self) -> None:
        """All files were read."""
        self.acked.settle()
        for chunk in reversed(self.chunks):
            self.messages.extend(chunk)
        self.chunks = []
        if self.attempts:
            for message in self.messages:
                attempts: i64 = self.attempts.get(int(message.seq_id), 0)
                if attempts > counts_in(message.flags):
                    message.set_counts(attempts)

    def forget_messages(self) -> None:
        """They are where they belong, or counted."""
        self.messages = []

    def safe_next_seq_id(self) -> i64:
        """Transient messages leave no record: ids above the last one seen may have been used."""
        return (self.next_seq_id // SEQ_ID_STEP + 1) * SEQ_ID_STEP


@final
class JournalRecovery:
    """One reading of a journal directory; ``run`` it, then look at the attributes.

    ``queues``         id → JournalledQueue, for every id asked for
    ``unknown``        the same for other ids that are met and that are not ``deleted``
    ``positions``      of copies, by the ids of ``position_ids``: the highest number each
    ``numbers``        files that are there, ascending
    ``last_file_no``   of the newest file that began; 0 = none did
    ``sizes``          of the files that a segment may refer to
    """

    def __init__(
        self, files: FileSystem, directory: str, queue_ids: set[int], deleted: SeqRanges
    ) -> None:
        self.files: FileSystem = files
        self.directory: str = directory
        self.queues: dict[int, JournalledQueue] = {}
        self.unknown: dict[int, JournalledQueue] = {}
        self.positions: dict[int, int] = {}
        self._are_deleted: SeqRanges = deleted
        self.numbers: list[int] = []
        self.last_file_no: i64 = 0
        self.bytes_read: i64 = 0
        self.bytes_cut: i64 = 0
        self.messages_read: i64 = 0
        for queue_id in queue_ids:
            self.queues[queue_id] = JournalledQueue()
        self._deleted: JournalledQueue = JournalledQueue(True)  # all that are deleted
        self.sizes: dict[int, int] = {}
        self._listed: dict[int, int] = {}
        self._kept: dict[int, int] = {}
        self._dropped: set[int] = set()
        self._touched: list[JournalledQueue] = []  # with messages in the file being read
        self._never_began: str = ""  # the path of a file
        self._begun: dict[int, int] = {}  # files that are on disk, and the least they are long
        self._lengths: dict[int, int] = {}  # of the files that were read
        self._doubtful_path: str = ""
        self._doubtful_offset: i64 = 0
        self._doubtful: bytes = b""

    def run(self) -> None:
        self.numbers = self.file_numbers()
        self._read_all()
        for queue in self.queues.values():
            queue.join()
            self.messages_read += len(queue.messages)
        for queue in self.unknown.values():
            queue.join()

    def file_numbers(self) -> list[int]:
        """Of the files that are there, ascending."""
        if not self.files.exists(self.directory):
            return []
        found = [journal_file_no(name) for name in self.files.listdir(self.directory)]
        return sorted([number for number in found if number > 0])

    def secure(self) -> None:
        """From here on all that was read is durable."""
        if self._doubtful_path:
            # The room behind it stays: a shorter file would look as if it was cut.
            self.files.secure(self._doubtful_path, int(self._doubtful_offset), self._doubtful)
            self._doubtful = b""
            self.files.sync_dir(self.directory)

    def must_be_newer_than(self, referred: int) -> None:
        """No segment refers to the newest file: else files are lost, and what was read is old.

        ``referred``: the newest to which one does; 0 = none.  A file that never began goes then.
        """
        if referred > 0 and self.last_file_no <= referred:
            raise Corrupt(
                f"{self._never_began or self.directory}: the newest files of the journal are"
                f" missing or damaged: segments refer to {journal_file_name(referred)}, which is"
                " older; restore the whole data directory from a copy"
            )
        if self._never_began:
            self.files.remove(self._never_began)
            self.files.sync_dir(self.directory)

    def path(self, number: i64) -> str:
        return f"{self.directory}/{journal_file_name(int(number))}"

    # -- which files, and how far ----------------------------------------------------------

    def _read_all(self) -> None:
        """Read from the newest to the oldest."""
        for number in reversed(self.numbers):
            data = self._read(number)
            if block_end(data, 0, number) >= 0:
                self.last_file_no = number
                self._read_tail(number, data)
                break
            # Older files go only when the first block of the next is on disk.
            alone = len(self.numbers) == 1 and number > 1
            if number != self.numbers[-1] or alone or attests_damage(data, 0, number):
                raise damage(self.path(number), 0, len(data))
            self._never_began = self.path(number)
        needed = self._listed | self._kept
        for number in sorted(needed, reverse=True):
            if number in self._dropped:
                continue
            self.sizes[number] = needed[number]
            if number not in self._kept:
                self._read_listed(number, needed[number])
        self._must_be_whole()

    def _must_be_whole(self) -> None:
        """The newest file, and no other was begun behind it."""
        for number, size in self._begun.items():
            if number < self.last_file_no:
                continue
            path = self.path(number)
            length = self._lengths.get(number, -1)
            if length < 0:
                raise Corrupt(f"{path}: is missing, although {size} bytes of it were on disk")
            if length < size:
                raise Corrupt(
                    f"{path}: ends at offset {length}, although {size} bytes of it were on disk:"
                    " it was cut short"
                )
            if number > self.last_file_no:
                raise damage(path, 0, length)

    def _read(self, number: i64) -> bytes:
        data = self.files.read(self.path(number))
        self.bytes_read += len(data)
        self._lengths[int(number)] = len(data)
        return data

    def _read_tail(self, number: i64, data: bytes) -> None:
        blocks: list[int] = []
        end = self._note_blocks(number, data, len(data), blocks, True)
        if attests_damage(data, end, number):
            raise damage(self.path(number), int(end), len(data) - int(end))
        self.bytes_cut += _begun(data, end, number)
        self.sizes[int(number)] = int(end)
        attested = synced_offset(data, blocks[-2])
        self._doubtful_path = self.path(number)
        self._doubtful_offset = attested
        self._doubtful = data[attested:end]
        self._collect(number, data, blocks, attested)

    def _read_listed(self, number: int, size: int) -> None:
        path = self.path(number)
        if number not in self.numbers:
            raise damage(path, 0, size)
        data = self._read(number)
        blocks: list[int] = []
        end = self._note_blocks(number, data, size, blocks, False)
        if end != size:
            raise damage(path, int(end), abs(size - int(end)))
        note_end = block_end(data, size, number)
        if note_end >= 0:
            self._note_records(number, data, size + BLOCK_HEADER_BYTES, note_end, False)
        self._collect(number, data, blocks, size)

    # -- first pass over a file: everything but messages -----------------------------------

    def _note_blocks(
        self, number: i64, data: bytes, size: i64, blocks: list[int], tail: bool
    ) -> i64:
        """Check the blocks and note what is no message; returns the end of the last true one."""
        at: i64 = 0
        while at < size:
            end = block_end(data, at, number)
            if end < 0:
                break
            check_version(self.path(number), "journal", data[at + 3], FORMAT_VERSION)
            blocks.append(int(at))
            self._note_records(number, data, at + BLOCK_HEADER_BYTES, end, tail)
            at = end
        blocks.append(int(at))
        return at

    def _note_records(self, number: i64, data: bytes, at: i64, end: i64, tail: bool) -> None:
        while at < end:
            size = record_size(data, at, end)
            if size < 0:
                # The checksum is right: these bytes were written so, by other rules than ours.
                raise damage(self.path(number), int(at), int(end - at))
            kind = i64(data[at])
            if kind != MESSAGE:
                self._note(kind, data, at, tail)
            at += size

    def _note(self, kind: i64, data: bytes, at: i64, tail: bool) -> None:
        if kind == FILES:
            if tail:
                self._listed.update(read_table(data, at))
            return
        if kind == KEPT:
            if tail:
                self._kept.update(read_table(data, at))
            return
        if kind == QUEUES:
            for queue_id, next_seq_id in read_table(data, at).items():
                self._reserved(queue_id, next_seq_id)
            return
        number = i64(read_i32_be(data, at + 1))
        if kind == BEGUN:
            self._begun[int(number)] = int(read_i64_be(data, at + 5))
            return
        if kind == RESERVE:
            self._reserved(number, read_i64_be(data, at + 5))
            return
        if kind == DROP:
            if tail:
                self._dropped.add(int(number))
            return
        queue = self._queue(number)
        if kind == FORGET:
            queue.forget()
        elif queue.forgotten:
            return
        elif kind == ACK or kind == TO_TAIL:
            first = read_i64_be(data, at + 5)
            queue.acked.add(first, first + 1)
        elif kind == ACK_RUN:
            first = read_i64_be(data, at + 5)
            queue.acked.add(first, first + i64(read_i32_be(data, at + 13)))
        elif kind == DELAY:
            # Within a file the last word counts.
            until_ms = WallMs(read_i64_be(data, at + 13))
            queue.file_delays[int(read_i64_be(data, at + 5))] = until_ms

    def _reserved(self, number: i64, upto: i64) -> None:
        if number < POSITION_IDS:
            queue = self._queue(number)
            if not queue.forgotten:
                queue.saw(upto)
        elif upto > self.positions.get(int(number), 0):
            self.positions[int(number)] = int(upto)

    def _queue(self, queue_id: i64) -> JournalledQueue:
        queue = self.queues.get(int(queue_id))
        if queue is not None:
            return queue
        if self._are_deleted.contains(queue_id):
            return self._deleted
        return self.unknown.setdefault(int(queue_id), JournalledQueue())

    # -- second pass over a file: the messages that live, and what was counted of them ------

    def _collect(self, number: i64, data: bytes, blocks: list[int], attested: i64) -> None:
        for i in range(len(blocks) - 1):
            file_no = number if blocks[i + 1] <= attested else 0
            self._collect_block(file_no, data, blocks[i] + BLOCK_HEADER_BYTES, blocks[i + 1])
        for queue in self._touched:
            queue.put_messages_aside()
        self._touched = []
        for queue in self.queues.values():
            queue.file_is_read()

    def _collect_block(self, file_no: i64, data: bytes, at: i64, end: i64) -> None:
        queue = self._deleted
        known_id: i64 = -1
        while at < end:
            size = record_size(data, at, end)
            kind = i64(data[at])
            if kind == ATTEMPTS:
                counted = self._queue(i64(read_i32_be(data, at + 1)))
                if not counted.forgotten:
                    counted.note_attempts(
                        read_i64_be(data, at + 5),
                        i64(read_i32_be(data, at + 13)),
                        i64(read_i32_be(data, at + 17)),
                    )
            elif kind == MESSAGE:
                queue_id = record_queue_id(data, at)
                if queue_id != known_id:
                    queue = self._queue(queue_id)
                    known_id = queue_id
                seq_id = record_seq_id(data, at)
                queue.saw(seq_id + 1)
                if not queue.forgotten and not queue.acked.contains(seq_id):
                    if not queue.messages:
                        self._touched.append(queue)
                    message = read_message(data, at, at + size)
                    # Which of them were handed out before the crash cannot be known.
                    message.flags |= PERSISTENT | LOGGED | REDELIVERED
                    message.file_no = file_no
                    queue.messages.append(message)
            at += size


def _begun(data: bytes, at: i64, number: i64) -> i64:
    """Bytes of a block of this file that begins at ``at`` and is not whole."""
    if data[at : at + 3] != MAGIC_BYTES or len(data) < at + BLOCK_HEADER_BYTES:
        return 0
    if i64(read_i32_be(data, at + 4)) != number or read_i64_be(data, at + 8) != at:
        return 0
    size = BLOCK_HEADER_BYTES + (read_i64_be(data, at + 24) & 0x7FFFFFFF)
    return size if size < len(data) - at else len(data) - at
