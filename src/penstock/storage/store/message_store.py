"""``MessageStore``: large contents, one copy each, with a count of references.

In: contents of messages too large for the queue index (raw AMQP frames, opaque here), with the
number of queues that took them.  Out: a msg_id to ask by; sealed groups for the committer; the
contents again, from the write cache or by a ``StoreRead``.

**The walk.**  ``write`` puts a content into the *write cache* and hands out its id; ids grow and
are never used twice.  ``seal`` freezes what waits into a ``StoreGroup`` and gives each content its
place in a file.  When the group is written, ``committed`` lets the cache go of its contents.  A
message that loses its last reference before it is sealed is *cancelled*: it never reaches the
disk, and since a fan-out counts its references in one write, a body is written once or never.

**Two of them.**  The persistent store is sealed whenever the journal is, and written and synced
before it: then a journal record never names a content that is not on disk.  A cancelled message
has its publish and its end in the same group of the journal, which a crash keeps whole or loses
whole; journal and store must therefore be sealed together.  The transient store is emptied at
start (``clear``), and writes by itself when told (``flush_job``), without any sync.

**Space.**  Files are rolled at 16 MiB; a content that is larger has a file for itself.  What
``remove`` leaves behind is given back by ``collect_garbage``; compaction.py says when and how.

**Memory.**  24 bytes per message on disk, references included (at most 28 while its file grows),
and no object: store/files.py.  Contents are in memory only while they wait for the disk.

**Start.**  After a clean stop ``load_table``; else ``scan_jobs``, run them, ``scanned``,
``count_reference`` for everything the index holds alive, and ``finish_recovery``.

Better than RabbitMQ here: no message costs the memory of a table entry with a 16 byte id and
a tuple; files compact alone where no pair fits; reads never wait for garbage collection nor it
for them; a record is verified whenever it is read.

Rejected: counts on disk (a write per acknowledgement), a file per large message (a sync each),
a lock or a count of readers per file (a reader that cannot be fooled needs none).

Invariants (``check``, which also checks those of store/files.py):
  M1  what waits has a reference, has an id below the next one, and no row in any file
  M2  what is cached beyond that is referred to and belongs to a group not yet committed
  M3  the bytes pending are the records waiting; the bytes cached are all contents in the cache
  M4  groups not yet committed lie in the order of their ids and of their places
  M5  durable_msg_id is below the next id, and below every id that waits or is under way
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.storage.common.disk_jobs import DiskJob, JobBoard
from penstock.storage.common.files import FileSystem
from penstock.storage.store.codec import (
    CONTENT_BYTES_MAX,
    GROUP_HEADER_BYTES,
    RECORD_HEADER_BYTES,
    FileTable,
    encode_table,
    store_file_name,
)
from penstock.storage.store.compaction import StoreGc
from penstock.storage.store.files import StoreFile, StoreFiles
from penstock.storage.store.groups import StoreGroup, StorePiece, StoreWriter, write_unsynced
from penstock.storage.store.reads import StoreRead
from penstock.storage.store.recovery import StoreRecovery, StoreScan

__all__ = ["MessageStore", "StoreFlush", "StoreGroup", "StoreRead", "StoreWriter"]

FILE_SIZE_LIMIT_BYTES: Final[i64] = 16 * 1024 * 1024


@final
class StoreFlush(DiskJob):
    """Writes a group of the transient store."""

    def __init__(self, store: "MessageStore", group: StoreGroup) -> None:
        super().__init__()
        self._store: MessageStore = store
        self._directory: str = store.directory
        self._group: StoreGroup = group

    def run(self, files: FileSystem) -> None:
        write_unsynced(files, self._directory, self._group)

    def finish(self) -> None:
        if self.error is None:
            self._store.committed(self._group)
        else:
            self._store.note_error(self.error)
        self.done = True


@final
class MessageStore:
    """Begin with ``clear``, ``load_table`` or a recovery.

    ``durable``  what is committed must survive a power cut
    """

    def __init__(
        self,
        files: FileSystem,
        directory: str,
        board: JobBoard,
        file_size_limit_bytes: i64 = FILE_SIZE_LIMIT_BYTES,
        durable: bool = True,
    ) -> None:
        self.directory: str = directory
        self.durable: bool = durable
        self.durable_msg_id: i64 = 0
        self.next_msg_id: i64 = 1
        self._fs: FileSystem = files
        self._board: JobBoard = board
        self._limit_bytes: i64 = file_size_limit_bytes
        self._files: StoreFiles = StoreFiles(directory, board)
        self._gc: StoreGc = StoreGc(self._files, file_size_limit_bytes, durable)
        self._recovery: StoreRecovery = StoreRecovery(files, self._files)
        self._open: bool = False
        # What waits to be sealed, in the order of ids.
        self._waiting: dict[int, bytes] = {}
        self._waiting_references: dict[int, int] = {}
        self.unsealed_bytes: i64 = 0  # written and not yet sealed, as records
        # What is sealed and not committed.
        self._cached: dict[int, bytes] = {}
        self.cached_bytes: i64 = 0  # of both
        self._groups: list[StoreGroup] = []
        self._sealed_msg_id: i64 = 0  # end of the last group sealed
        self._sync_msg_id: i64 = 0  # end of the last group sealed with sync
        self._synced_file_no: i64 = 0
        self._synced_offset: i64 = 0
        self._committed_file_no: i64 = 0
        self._writes_cancelled: i64 = 0
        self._messages_written: i64 = 0

    # -- start and stop --------------------------------------------------------------------

    def clear(self) -> None:
        """Begin with nothing: the transient store, at every start."""
        self._recovery.remove_all()
        self._begin(0, 1, 0)

    def save_table(self) -> bytes:
        """Everything the next start needs.  Nothing may wait or be under way, on disk neither."""
        assert not self._waiting
        assert not self._groups
        self._gc.forget_plan()
        assert self._gc.compaction is None
        tables = [_living(file) for file in self._files.files if file.size > 0]
        return encode_table(self.next_msg_id, self._files.current().number + 1, tables)

    def load_table(self, data: bytes) -> None:
        """Begin where ``save_table`` ended; Corrupt when the files are not those it saw."""
        next_file_no = self._recovery.load(data)
        files = self._files.files
        last_no: i64 = files[-1].number if files else 0
        size: i64 = files[-1].size if files else 0
        if files and size < self._limit_bytes:
            next_file_no = 0
        self._begin(last_no, next_file_no, size)

    def scan_jobs(self) -> list[StoreScan]:
        """One per file; they may run at the same time, in any order, in any thread."""
        return self._recovery.scans()

    def scanned(self) -> None:
        """All of them have run and finished; raises what they found wrong."""
        self._recovery.merge()

    def count_reference(self, msg_id: i64) -> bool:
        """The index holds a message alive that lies here.  False = it does not lie here.

        Where each group was synced before the journal was written, a False for a record that
        the journal kept means that bytes are gone which had been on disk: damage.
        """
        file = self._files.file_of(msg_id)
        index: i64 = -1 if file is None else file.index_of(msg_id)
        if file is None or index < 0:
            return False
        file.rows.references[index] += 1
        return True

    def secure(self) -> None:
        """During a recovery: from here on all that was scanned is durable."""
        self._recovery.secure()

    def finish_recovery(self) -> None:
        """All references are counted, and what they were counted from is on disk."""
        self._recovery.mend()
        current = self._files.current()
        self._begin(current.number, 0, current.size)

    def _begin(self, last_file_no: i64, next_file_no: i64, synced_offset: i64) -> None:
        """``next_file_no`` 0 = go on in the last file."""
        assert not self._open
        self.next_msg_id = self._recovery.next_msg_id
        self._synced_file_no = last_file_no
        self._synced_offset = synced_offset
        self._committed_file_no = last_file_no
        if next_file_no > 0:
            self._files.add(StoreFile(FileTable(next_file_no, 0), self.next_msg_id))
        self._sealed_msg_id = self.next_msg_id - 1
        self._sync_msg_id = self._sealed_msg_id
        self.durable_msg_id = self._sealed_msg_id
        self._open = True

    # -- messages --------------------------------------------------------------------------

    def write(self, content: bytes, references: i64) -> i64:
        """Keep the content for so many queues; its id."""
        assert self._open
        assert references > 0
        assert len(content) <= CONTENT_BYTES_MAX
        msg_id = self.next_msg_id
        self.next_msg_id = msg_id + 1
        self._waiting[int(msg_id)] = content
        self._waiting_references[int(msg_id)] = int(references)
        self.unsealed_bytes += RECORD_HEADER_BYTES + len(content)
        self.cached_bytes += len(content)
        return msg_id

    def refer(self, msg_id: i64, count: i64) -> None:
        """So many queues more need it."""
        assert count > 0
        if int(msg_id) in self._waiting_references:
            self._waiting_references[int(msg_id)] += int(count)
            return
        self._file_of(msg_id).refer(msg_id, count)

    def remove(self, msg_id: i64, position: i64) -> None:
        """A queue needs it no more; the acknowledgement ends at that position of the journal.

        At the last one a message that is not sealed is cancelled, any other is garbage.
        """
        references = self._waiting_references.get(int(msg_id), 0)
        if references > 1:
            self._waiting_references[int(msg_id)] = references - 1
        elif references == 1:
            self._cancel(msg_id)
        elif self._file_of(msg_id).unrefer(msg_id, position):
            self._let_go(msg_id)

    def _file_of(self, msg_id: i64) -> StoreFile:
        file = self._files.file_of(msg_id)
        assert file is not None, "no such message"
        return file

    def _cancel(self, msg_id: i64) -> None:
        content = self._waiting.pop(int(msg_id))
        del self._waiting_references[int(msg_id)]
        self.unsealed_bytes -= RECORD_HEADER_BYTES + len(content)
        self.cached_bytes -= len(content)
        self._writes_cancelled += 1
        self._note_rest()

    def _let_go(self, msg_id: i64) -> None:
        content = self._cached.pop(int(msg_id), None)
        if content is not None:
            self.cached_bytes -= len(content)

    def cached(self, msg_id: i64) -> bytes | None:
        """The content if it still waits for the disk."""
        content = self._waiting.get(int(msg_id))
        return self._cached.get(int(msg_id)) if content is None else content

    def read(self, msg_ids: list[int]) -> StoreRead:
        """A job for the board's ``reads``; it may put itself there again before it is done."""
        contents: list[bytes] = []
        places: list[int] = []
        for place in range(len(msg_ids)):
            content = self.cached(msg_ids[place])
            if content is None:
                places.append(place)
                content = b""
            contents.append(content)
        read = StoreRead(self._files, msg_ids, contents)
        read.want(places)
        return read

    # -- groups ----------------------------------------------------------------------------

    def seal(self, sync: bool = True) -> StoreGroup | None:
        """Freeze what waits, in order; None when there is nothing to do.

        With ``sync`` the group also covers unsynced ones before it; when only those are left
        it comes without pieces.
        """
        assert self._open
        if not self._waiting and (not sync or self._sync_msg_id == self._sealed_msg_id):
            return None
        pieces: list[StorePiece] = []
        for msg_id, content in self._waiting.items():
            piece = self._piece_for(pieces, RECORD_HEADER_BYTES + len(content), msg_id)
            piece.add(msg_id, content)
            self._files.current().append(msg_id, len(content), self._waiting_references[msg_id])
        self._cached.update(self._waiting)
        self._messages_written += len(self._waiting)
        self._waiting = {}
        self._waiting_references = {}
        self.unsealed_bytes = 0
        group = StoreGroup(pieces, sync, self.next_msg_id - 1)
        self._groups.append(group)
        self._sealed_msg_id = group.end_msg_id
        if sync:
            self._sync_msg_id = group.end_msg_id
        return group

    def _piece_for(self, pieces: list[StorePiece], size: i64, msg_id: i64) -> StorePiece:
        """The piece the next record belongs to; begins a file when this one is full."""
        file = self._files.current()
        if pieces and file.size + size <= self._limit_bytes:
            return pieces[-1]
        full = file.size + GROUP_HEADER_BYTES + size > self._limit_bytes
        if pieces or (full and file.size > GROUP_HEADER_BYTES):
            file.rows.trim()
            file = StoreFile(FileTable(file.number + 1, 0), msg_id)
            self._files.add(file)
        synced = self._synced_offset if file.number == self._synced_file_no else 0
        piece = StorePiece(file.number, file.size, synced)
        file.rows.grow(GROUP_HEADER_BYTES)
        pieces.append(piece)
        return piece

    def committed(self, group: StoreGroup) -> None:
        """The group is written (and on disk, if it asked for that)."""
        group.note_done()
        for piece in group.pieces:
            for msg_id in piece.msg_ids:
                self._let_go(msg_id)
        # Flushes may end out of order; what counts is how far there is no hole.
        while self._groups and self._groups[0].done:
            first = self._groups.pop(0)
            if first.pieces:
                self._committed_file_no = first.pieces[-1].file_no
            if first.sync:
                self._note_synced(first)
        self._note_rest()

    def _note_synced(self, group: StoreGroup) -> None:
        self.durable_msg_id = group.end_msg_id
        if group.pieces:
            self._synced_file_no = group.pieces[-1].file_no
            self._synced_offset = group.pieces[-1].end_offset()

    def _note_rest(self) -> None:
        """With nothing waiting and nothing under way all is on disk, or gone."""
        if not self._waiting and not self._groups and self._sync_msg_id == self._sealed_msg_id:
            self.durable_msg_id = self.next_msg_id - 1
            self._sealed_msg_id = self.durable_msg_id
            self._sync_msg_id = self.durable_msg_id

    def flush_job(self) -> StoreFlush | None:
        """Seal and have it written without a sync: the transient store, now and then."""
        assert not self.durable
        group = self.seal(sync=False)
        if group is None:
            return None
        job = StoreFlush(self, group)
        self._board.writes.append(job)
        return job

    # -- garbage ---------------------------------------------------------------------------

    def note_durable(self, position: i64) -> None:
        """The journal is on disk up to here: acknowledgements before it cannot be undone."""
        self._gc.note_durable(position)

    def collect_garbage(self) -> None:
        """Remove dead files; rewrite what is mostly garbage, one compaction at a time."""
        self._gc.collect(self._committed_file_no)

    def note_error(self, error: Exception) -> None:
        self._files.note_error(error)

    def disk_error(self) -> Exception | None:
        """The error of a job of the store that has no other receiver; the node cannot go on."""
        return self._files.disk_error

    # -- looking ---------------------------------------------------------------------------

    def statistics(self) -> dict[str, int]:
        sums = self._files.sums()
        gc = self._gc
        running = gc.compaction if gc.compaction is not None and gc.compaction.started else None
        return {
            "files": len(self._files.files),
            "bytes": int(sums.total_bytes),
            "valid_bytes": int(sums.valid_bytes),
            "messages": int(sums.live_count) + len(self._waiting),
            "references": int(sums.references) + sum(self._waiting_references.values()),
            "pending_bytes": int(self.unsealed_bytes),
            "cached_bytes": int(self.cached_bytes),
            "messages_written": int(self._messages_written),
            "writes_cancelled": int(self._writes_cancelled),
            "compactions": int(gc.compactions),
            "compacting_bytes": 0 if running is None else int(running.size_bytes),
            "compacted_bytes": 0 if running is None else int(running.copied_bytes),
            "files_removed": int(gc.files_removed),
            "bytes_reclaimed": int(gc.bytes_reclaimed),
            "next_msg_id": int(self.next_msg_id),
            "durable_msg_id": int(self.durable_msg_id),
            "bytes_cut": int(self._recovery.bytes_cut),
            "files_removed_at_start": int(self._recovery.files_removed),
        }

    def describe_files(self) -> list[dict[str, object]]:
        """A row per file, oldest first."""
        described: list[dict[str, object]] = []
        compaction = self._gc.compaction
        for file in self._files.files:
            garbage = 0.0
            if file.size > 0:
                garbage = int(file.size - file.valid_bytes) / int(file.size)
            described.append(
                {
                    "name": store_file_name(int(file.number)),
                    "bytes": int(file.size),
                    "valid_bytes": int(file.valid_bytes),
                    "messages": int(file.live_count),
                    "garbage": garbage,
                    "damaged": file.damaged,
                    "compacting": compaction is not None and compaction.concerns(file),
                }
            )
        return described

    def check(self) -> None:
        """Assert the numbered invariants; O(messages), for tests."""
        self._files.check()
        pending: i64 = 0
        cached: i64 = 0
        for msg_id, content in self._waiting.items():
            assert self._waiting_references[msg_id] > 0, "M1"
            assert self._sealed_msg_id < msg_id < self.next_msg_id, "M1"
            file = self._files.file_of(msg_id)
            assert file is None or file.index_of(msg_id) < 0, "M1"
            pending += RECORD_HEADER_BYTES + len(content)
            cached += len(content)
        assert len(self._waiting) == len(self._waiting_references), "M1"
        under_way = self._check_groups()
        for msg_id, content in self._cached.items():
            file = self._file_of(msg_id)
            assert file.rows.references[file.index_of(msg_id)] > 0, "M2"
            assert msg_id in under_way, "M2"
            cached += len(content)
        assert pending == self.unsealed_bytes, "M3"
        assert cached == self.cached_bytes, "M3"
        assert self.durable_msg_id < self.next_msg_id, "M5"
        assert all(msg_id > self.durable_msg_id for msg_id in self._waiting), "M5"

    def _check_groups(self) -> set[int]:
        """The ids under way."""
        under_way: set[int] = set()
        last_id: i64 = self.durable_msg_id
        last_file_no: i64 = 0
        last_end: i64 = 0
        for group in self._groups:
            for piece in group.pieces:
                if not group.done:
                    assert piece.msg_ids[0] > self.durable_msg_id, "M5"
                    under_way.update(piece.msg_ids)
                assert piece.msg_ids[0] > last_id, "M4"
                last_id = piece.msg_ids[-1]
                assert piece.file_no >= last_file_no, "M4"
                assert piece.file_no > last_file_no or piece.offset >= last_end, "M4"
                last_file_no = piece.file_no
                last_end = piece.end_offset()
        return under_way


def _living(file: StoreFile) -> FileTable:
    """A file's rows without those that nothing refers to."""
    rows = file.rows
    if file.live_count == len(rows.ids):
        return rows
    living = FileTable(rows.number, rows.size)
    for i in range(len(rows.ids)):
        if rows.references[i] > 0:
            living.add(rows.ids[i], rows.offsets[i], rows.sizes[i], rows.references[i])
    return living
