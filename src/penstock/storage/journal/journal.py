"""``Journal``: what happened to durable queues, in order, for all queues of a node.

In: publishes, acknowledgements, requeues to the tail, delays and attempts, in batches, of queues
known by number.  Out: sealed groups of bytes for ``disk.committer``, which writes and syncs them.
The journal is read only at start (``journal.recovery``).

**The walk.**  ``publish`` and ``ack`` append records to a buffer; ``position`` counts the
bytes ever appended.  ``seal`` freezes the buffer into one group, which becomes one block of
the current file.  When the committer has done a group, ``committed`` moves
``durable_position``; a publisher's confirm waits until that has reached the ``position`` of
right after its ``publish``.

**Retirement.**  The journal is the way to the disk, not a place to rest.  When its files are
larger than the limit, the oldest is *retired*: the queues write whatever of it still lives
into their segments (``queue_index``), those are synced, then ``retire`` lets the file go.
Queues whose messages are gone by then, which is most of them, write nothing.  Segments
first, journal last: a crash in between finds some things twice, never not at all.  That a
file is gone is a record of its own in a synced group, and the file is removed after that
sync; a file missing without such a record is damage.  Where segments refer to records in the
file instead of having them, it is kept (resting.py): a record says that it is not replayed, and
it goes when no segment refers to it any more.

**One for all queues**, where RabbitMQ has a ``journal.jif`` for each: there a turn that
touches fifty queues costs fifty syncs, here one.  The price is that one file holds entries
of many queues, so retiring it asks all of them.  The files are numbered, because one that
is being retired cannot be written to: ``journal.jif`` has become ``<N>.jif``.

**Room.**  A file is allocated at its full size when it is begun, so an acknowledgement finds
room even on a full disk (with the store's help consumers can empty a full disk).  A 'B' record says
so when the size is on disk: a newest file that is shorter was cut.

**Numbers.**  Every file begins with the queues' next seq_ids, so no number is lost with an
old file.  Numbers of transient messages are never written; ``reserve`` records an upper
bound instead, and recovery from a crash goes on at the next multiple of 16,384 above all it
saw.

Rejected: compacting the journal by appending live messages again (that was the first
engine: everything that rests was copied whenever a neighbour died); acks in a file of their
own (two syncs per group).

Invariants (``check``):
  J1  durable_position <= sealed position <= position; the buffer holds the difference
  J2  file numbers ascend; the current file is the last
  J3  every file that is kept is referred to, and is none of ``files``
"""

from typing import Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64

from penstock.core.clock_types import WallMs
from penstock.core.message import LOGGED, PERSISTENT, STORED, Message, counts_in
from penstock.storage.common.files import FileSystem
from penstock.storage.common.message_record import write_message_head
from penstock.storage.common.side_log import SideLog
from penstock.storage.journal.codec import (
    BLOCK_HEADER_BYTES,
    FILES,
    KEPT,
    POSITION_IDS,
    QUEUES,
    JournalGroup,
    journal_file_name,
    position_ids,
    write_ack,
    write_attempts,
    write_begun,
    write_delay,
    write_drop,
    write_forget,
    write_reserve,
    write_table,
    write_to_tail,
)
from penstock.storage.journal.resting import RestingFiles

JOURNAL_FILE_BYTES: Final[i64] = 16 * 1024 * 1024
LEAST_PART: Final[i64] = 2048
"""A segment refers to no less than one part in so many of a file."""
BUFFER_KEPT_BYTES: Final[i64] = 4 * 1024 * 1024
"""A buffer that one huge batch made larger is not kept."""


@final
class JournalFile:
    __slots__ = ("number", "size")

    def __init__(self, number: i64, size: i64) -> None:
        self.number: i64 = number
        self.size: i64 = size


@final
class Journal:
    """Call ``begin`` once, before anything else."""

    def __init__(
        self,
        files: FileSystem,
        directory: str,
        file_size_bytes: i64 = JOURNAL_FILE_BYTES,
        side: SideLog | None = None,
    ) -> None:
        """``side``: the logs beside it, whose groups go with its own."""
        self.side: SideLog = SideLog() if side is None else side
        self.position: i64 = 0
        self.durable_position: i64 = 0
        self.directory: str = directory
        self.file_size_bytes: i64 = file_size_bytes
        self.current: JournalFile = JournalFile(0, 0)
        self.files: list[JournalFile] = []
        self.files_retired: i64 = 0
        self.resting: RestingFiles = RestingFiles(directory, file_size_bytes // LEAST_PART)
        self._fs: FileSystem = files
        self._buffer: BytesWriter = BytesWriter()
        self._next_seq_ids: dict[int, int] = {}
        self._retired: list[int] = []  # since the last synced group
        self._written_file: JournalFile = self.current  # of the last group sealed
        self.sealed_position: i64 = 0
        self._sync_position: i64 = 0  # end of the last group sealed with sync
        self._synced_file_no: i64 = 0
        self._synced_offset: i64 = 0
        self._groups_sealed: i64 = 0
        self._sized_no: i64 = 0  # the newest file that says how long it is on disk
        self._ends: dict[int, int] = {}  # logs beside: on disk up to there, in no record yet

    def path(self, file_no: int) -> str:
        return f"{self.directory}/{journal_file_name(file_no)}"

    # -- start -----------------------------------------------------------------------------

    def begin(self, file_no: int, next_seq_ids: dict[int, int]) -> None:
        """Start a new file and put its first block on disk; older files may go after that."""
        self._fs.makedirs(self.directory)
        self._next_seq_ids = dict(next_seq_ids)
        self.files = []
        self._begin_file(file_no)

    def roll(self) -> None:
        """Before a stop, when all is committed: the current file is finished, here and now.

        So segments may refer to it; no file that they refer to is the newest.
        """
        file = self.current
        if file.size == 0:
            self.files.pop()
            self._begin_file(int(file.number))
            return
        self._begin_file(int(file.number) + 1)
        self._fs.truncate(self.path(int(file.number)), int(file.size))

    def _begin_file(self, file_no: int) -> None:
        self.current = JournalFile(file_no, 0)
        self.files.append(self.current)
        self._written_file = self.current
        writer = BytesWriter()
        write_begun(writer, file_no, self.file_size_bytes)
        self._sized_no = file_no
        parts = [self._tables(), writer.getvalue()]
        group = JournalGroup(file_no, 0, 0, parts, True, self.position, [])
        handle = self._fs.open_write(self.path(file_no))
        try:
            self._fs.allocate(handle, int(self.file_size_bytes))
            self._fs.sync(handle)  # what the block says of its size is true then
            self._fs.pwrite_parts(handle, 0, [group.header(), *group.parts])
            self._fs.sync(handle)
        finally:
            self._fs.close(handle)
        self._fs.sync_dir(self.directory)
        self._note_sealed(group)
        self.committed(group)

    # -- queues append ---------------------------------------------------------------------

    def publish(self, queue_id: i64, messages: list[Message]) -> i64:
        """A record for each PERSISTENT message, which becomes LOGGED; others are skipped.

        Returns how many records were written.
        """
        file_no = self.current.number
        buffer = self._buffer
        next_seq_id: i64 = 0
        count: i64 = 0
        for message in messages:
            flags = message.flags
            if flags & PERSISTENT:
                write_message_head(buffer, queue_id, message)
                if not flags & STORED:
                    buffer.write(message.content)
                message.flags = flags | LOGGED
                message.file_no = file_no
                next_seq_id = message.seq_id + 1
                count += 1
        if count > 0:
            self.position = self.sealed_position + len(buffer)
            self._used(queue_id, next_seq_id)
        return count

    def ack(self, queue_id: i64, messages: list[Message]) -> None:
        """A record for each run of LOGGED messages, which cease to be LOGGED."""
        start: i64 = 0
        end: i64 = -1  # the run of seq_ids is [start, end)
        for message in messages:
            if message.flags & LOGGED:
                message.flags -= LOGGED
                if message.seq_id != end:
                    if end > start:
                        self.ack_run(queue_id, start, end)
                    start = message.seq_id
                end = message.seq_id + 1
        if end > start:
            self.ack_run(queue_id, start, end)

    def ack_run(self, queue_id: i64, start: i64, end: i64) -> None:
        """All seq_ids from ``start`` up to and without ``end``, whatever they were, are done."""
        write_ack(self._buffer, queue_id, start, end)
        self.position = self.sealed_position + len(self._buffer)

    def to_tail(self, queue_id: i64, message: Message, old_seq_id: i64) -> None:
        """The message was renumbered: its old place is settled, at once with the new one."""
        write_to_tail(self._buffer, queue_id, old_seq_id, message.seq_id)
        self.position = self.sealed_position + len(self._buffer)
        self.publish(queue_id, [message])

    def delay(self, queue_id: i64, seq_id: i64, until_ms: WallMs) -> None:
        """The message is not to be ready before that time; 0 = it is due."""
        write_delay(self._buffer, queue_id, seq_id, until_ms)
        self.position = self.sealed_position + len(self._buffer)

    def note_attempts(self, queue_id: i64, messages: list[Message]) -> i64:
        """The counts of the LOGGED ones have changed; returns how many records it took."""
        start: i64 = 0
        end: i64 = -1  # the run of seq_ids is [start, end)
        counts: i64 = 0
        count: i64 = 0
        for message in messages:
            if message.flags & LOGGED:
                own = counts_in(message.flags)
                if message.seq_id != end or own != counts:
                    if end > start:
                        write_attempts(self._buffer, queue_id, start, end, counts)
                        count += 1
                    start = message.seq_id
                    counts = own
                end = message.seq_id + 1
        if end > start:
            write_attempts(self._buffer, queue_id, start, end, counts)
            count += 1
        self.position = self.sealed_position + len(self._buffer)
        return count

    def reserve(self, queue_id: i64, upto_seq_id: i64) -> None:
        """Once this is durable, no start ever gives the queue a next seq_id below that."""
        write_reserve(self._buffer, queue_id, upto_seq_id)
        self.position = self.sealed_position + len(self._buffer)
        self._used(queue_id, upto_seq_id)

    def forget_queue(self, queue_id: i64) -> None:
        """The queue is deleted, and so are the positions of its copy.

        The deletion must be committed in the definitions before the group that holds this
        record is submitted, else a crash between the two brings the queue back empty.
        """
        complete_id, heard_id = position_ids(queue_id)
        for number in (int(queue_id), complete_id, heard_id):
            self._next_seq_ids.pop(number, None)
        self._ends.pop(int(queue_id), None)
        write_forget(self._buffer, queue_id)
        self.position = self.sealed_position + len(self._buffer)

    def _used(self, queue_id: i64, next_seq_id: i64) -> None:
        known = self._next_seq_ids.get(int(queue_id))
        if known is None or next_seq_id > known:
            assert 0 <= queue_id < 0x7FFFFFFF
            self._next_seq_ids[int(queue_id)] = int(next_seq_id)

    # -- groups ----------------------------------------------------------------------------

    def is_on_disk(self) -> bool:
        """All of it: no publisher waits for more."""
        return self.durable_position >= self.position

    def pending_bytes(self) -> i64:
        """Appended and not yet sealed."""
        return len(self._buffer)

    def seal(self, sync: bool) -> JournalGroup | None:
        """Freeze what was appended since the last seal; None when there is nothing to do.

        With ``sync`` the group also covers unsynced ones before it; when only those are
        left it comes without data.  One that carries something for a log beside it is synced:
        readers wait for that.
        """
        side = self.side.seal() if self.side.dirty else None
        if side is not None:
            sync = True
        dropped: list[int] = []
        unlinked: list[int] = []
        if sync and (self._retired or self.resting.unused or self.resting.unsaid):
            dropped = self._retired
            self._retired = []
            unlinked = self.resting.take_unused()
            self._note_retired(dropped + unlinked)
        told: dict[int, int] | None = None
        if len(self._buffer) > 0 and (self._ends or self._sized_no != self.current.number):
            told = self._tell()
        size: i64 = len(self._buffer)
        assert size > 0 or side is None, "what is appended beside the journal has a record here"
        if size == 0 and (not sync or self._sync_position == self.sealed_position):
            return None
        parts: list[bytes] = []
        file = self._written_file
        if size > 0:
            parts.append(self._buffer.getvalue())
            if size > BUFFER_KEPT_BYTES:
                self._buffer = BytesWriter()
            else:
                self._buffer.truncate(0)
            file = self.current
            if file.size == 0:
                parts.insert(0, self._tables())
        synced = self._synced_offset if self._synced_file_no == file.number else 0
        group = JournalGroup(
            file.number,
            file.size,
            synced,
            parts,
            sync,
            self.position,
            dropped,
            side,
            unlinked,
            told,
        )
        self._note_sealed(group)
        return group

    def _note_retired(self, dropped: list[int]) -> None:
        """Of all that were retired, in one block, so that none goes before an older one.

        What ended in a file may have its record in an older one, and comes back if only that one
        is replayed.
        """
        kept = self.resting.take_unsaid()
        if kept:
            write_table(self._buffer, KEPT, kept)
        for file_no in dropped:
            write_drop(self._buffer, file_no)
        self.position = self.sealed_position + len(self._buffer)
        self.resting.note_kept(kept, self.position)

    def _tell(self) -> dict[int, int] | None:
        """What is on disk and in no record yet; returns it of the logs beside the journal."""
        file = self.current
        if self._synced_file_no == file.number and self._sized_no != file.number:
            self._sized_no = file.number
            write_begun(self._buffer, file.number, self.file_size_bytes)
        told: dict[int, int] | None = None
        if self._ends:
            told = self._ends
            self._ends = {}
            for queue_id, end in told.items():
                if self._next_seq_ids.get(queue_id, end) < end:  # it is not deleted
                    self.reserve(queue_id, end)
        self.position = self.sealed_position + len(self._buffer)
        return told

    def _note_sealed(self, group: JournalGroup) -> None:
        self._groups_sealed += 1
        self.sealed_position = group.end_position
        if group.sync:
            self._sync_position = group.end_position
        if group.size == 0:
            return
        file = self.current
        self._written_file = file
        file.size += BLOCK_HEADER_BYTES + group.size
        # The next file is created when its first group comes.
        if file.size * 8 >= self.file_size_bytes * 7:
            self.current = JournalFile(file.number + 1, 0)
            self.files.append(self.current)

    def _tables(self) -> bytes:
        """Every file begins with what must outlive the files before it."""
        sizes: dict[int, int] = {}
        for file in self.files:
            if file is not self.current:
                sizes[int(file.number)] = int(file.size)
        writer = BytesWriter()
        write_table(writer, FILES, sizes)
        write_table(writer, QUEUES, self._next_seq_ids)
        if self.resting.sizes:
            write_table(writer, KEPT, self.resting.sizes)
        return writer.getvalue()

    def committed(self, group: JournalGroup) -> None:
        """The committer has done the group, and all before it."""
        if group.side is not None:
            self.side.committed(group.side)
            self._ends.update(group.side.ends())
        if group.sync:
            self.durable_position = group.end_position
            self._synced_file_no = group.file_no
            self._synced_offset = group.end_offset()

    def synced_end(self) -> tuple[int, int]:
        """The newest file with something on disk, and how many bytes of it are."""
        return int(self._synced_file_no), int(self._synced_offset)

    # -- retirement ------------------------------------------------------------------------

    def total_bytes(self) -> i64:
        total: i64 = 0
        for file in self.files:
            total += file.size
        return total

    def oldest(self) -> JournalFile:
        return self.files[0]

    def is_finished(self, file: JournalFile) -> bool:
        """It is on disk to its end, and a newer one is in use."""
        return file.number < self._synced_file_no

    def retire(self, file: JournalFile) -> None:
        """It need not be replayed: what lived in it is in segments, or these refer to it."""
        assert file is self.files[0]
        assert self.is_finished(file)
        del self.files[0]
        self.files_retired += 1
        if self.resting.retire(file.number, file.size):
            self._retired.append(int(file.number))

    def has_retired(self) -> bool:
        """The next synced group says of files that they are dropped, or kept."""
        resting = self.resting
        return len(self._retired) > 0 or len(resting.unused) > 0 or len(resting.unsaid) > 0

    # -- looking ---------------------------------------------------------------------------

    def highest(self, number: int) -> int:
        """What was ever reserved under it, in any life; 0 = nothing."""
        return self._next_seq_ids.get(number, 0)

    def positions(self) -> dict[int, int]:
        """Of all copies, by the ids that ``position_ids`` gives."""
        return {one: upto for one, upto in self._next_seq_ids.items() if one >= POSITION_IDS}

    def statistics(self) -> dict[str, int]:
        return {
            "files": len(self.files),
            "bytes": int(self.total_bytes()),
            "pending_bytes": int(self.pending_bytes()),
            "position": int(self.position),
            "durable_position": int(self.durable_position),
            "groups_sealed": int(self._groups_sealed),
            "files_retired": int(self.files_retired),
            "files_resting": len(self.resting.sizes),
            "bytes_resting": int(self.resting.total_bytes()),
        }

    def check(self) -> None:
        """Assert the numbered invariants."""
        assert self.durable_position <= self.sealed_position <= self.position, "J1"
        assert self.position - self.sealed_position == self.pending_bytes(), "J1"
        for i in range(1, len(self.files)):
            assert self.files[i - 1].number < self.files[i].number, "J2"
        assert self.files[len(self.files) - 1] is self.current, "J2"
        self.resting.check()
        assert all(int(file.number) not in self.resting.sizes for file in self.files), "J3"
