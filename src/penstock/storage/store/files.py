"""Where each message of a store lies: packed arrays per file, no object per message.

In: records as they are sealed, references as they come and go.  Out: where a msg_id lies, which
files are dead, what share of a file is garbage.  Nothing here touches the disk.

A file's rows ascend by msg_id because ids are handed out in order and sealed in order, and
compaction joins only neighbours.  So a look-up is a bisection over the files and one inside the
file, and a message costs 24 bytes (id 8, offset 8, size 4, references 4), a little more while
its file grows (arrays over-allocate by an eighth).  A row stays until its file is rewritten or
removed, also when nothing refers to it any more.

Rejected: a dictionary from msg_id to a tuple (over 200 bytes each), an index on disk (a read
before every read), a second table of reference counts (two look-ups where one does).

Invariants (``check``):
  T1  ids ascend strictly within a file and from file to file, and so do numbers of files
  T2  records lie in the order of their ids, do not overlap, and end within the file
  T3  a file's live bytes, messages and references are the sums over its rows
  T4  no row has fewer than no references
"""

from bisect import bisect_left, bisect_right
from typing import Final, final

from mypy_extensions import i64

from penstock.storage.common.disk_jobs import DiskJob, JobBoard
from penstock.storage.store.codec import RECORD_HEADER_BYTES, FileTable, store_file_name

ROW_BYTES: Final = 24


@final
class StoreFile:
    """One file and its rows; identity tells a file from what compaction put in its place.

    ``first_id``    no row of this file is below, no row of the files before is at or above
    ``last_death``  journal position behind which the newest death in it is acknowledged
    ``compacting``  its place on disk may change under the hands of a reader
    ``copy``        while it is compacting: where its records will be, or are already
    ``damaged``     compaction met a false record: leave it alone
    """

    __slots__ = (
        "compacting", "copy", "damaged", "first_id", "last_death", "live_count", "references",
        "rows", "valid_bytes",
    )  # fmt: skip

    def __init__(self, rows: FileTable, first_id: i64) -> None:
        self.rows: FileTable = rows
        self.first_id: i64 = first_id
        self.valid_bytes: i64 = 0
        self.live_count: i64 = 0
        self.references: i64 = 0
        self.last_death: i64 = 0
        self.compacting: bool = False
        self.copy: StoreFile | None = None
        self.damaged: bool = False

    @property
    def number(self) -> i64:
        return self.rows.number

    @property
    def size(self) -> i64:
        return self.rows.size

    def index_of(self, msg_id: i64) -> i64:
        """The row of that message; -1 = it never was here."""
        ids = self.rows.ids
        i = bisect_left(ids, msg_id)
        if i < len(ids) and i64(ids[i]) == msg_id:
            return i
        return -1

    def count_rows(self) -> None:
        """Set the sums anew from the rows."""
        self.valid_bytes = 0
        self.live_count = 0
        self.references = 0
        rows = self.rows
        for i in range(len(rows.ids)):
            references: i64 = rows.references[i]
            if references > 0:
                self.valid_bytes += RECORD_HEADER_BYTES + i64(rows.sizes[i])
                self.live_count += 1
                self.references += references

    # -- rows ------------------------------------------------------------------------------

    def append(self, msg_id: i64, content_size: i64, references: i64) -> None:
        """A row for the record that comes next in the file."""
        rows = self.rows
        rows.add(msg_id, rows.size, content_size, references)
        size = RECORD_HEADER_BYTES + content_size
        rows.grow(size)
        self.valid_bytes += size
        self.live_count += 1
        self.references += references

    def refer(self, msg_id: i64, count: i64) -> None:
        index = self.index_of(msg_id)
        references: i64 = self.rows.references[index]
        assert references > 0, "referred to a message that is gone"
        self.rows.references[index] = references + count
        self.references += count

    def unrefer(self, msg_id: i64, position: i64) -> bool:
        """One reference less; whether it was the last one."""
        index = self.index_of(msg_id)
        references: i64 = self.rows.references[index]
        assert references > 0, "removed a message that is gone"
        self.rows.references[index] = references - 1
        self.references -= 1
        if references > 1:
            return False
        self.valid_bytes -= RECORD_HEADER_BYTES + i64(self.rows.sizes[index])
        self.live_count -= 1
        self.note_death(position)
        return True

    def note_death(self, position: i64) -> None:
        if position > self.last_death:
            self.last_death = position

    # -- compaction ------------------------------------------------------------------------

    def begin_compaction(self, copy: "StoreFile") -> None:
        self.compacting = True
        self.copy = copy

    def end_compaction(self) -> None:
        self.compacting = False
        self.copy = None

    def note_damaged(self) -> None:
        self.damaged = True


@final
class FileSums:
    """Over all files of a store: bytes, those of living records, living messages, references."""

    def __init__(self, files: list[StoreFile]) -> None:
        self.total_bytes: i64 = 0
        self.valid_bytes: i64 = 0
        self.live_count: i64 = 0
        self.references: i64 = 0
        for file in files:
            self.total_bytes += file.size
            self.valid_bytes += file.valid_bytes
            self.live_count += file.live_count
            self.references += file.references


@final
class StoreFiles:
    """All files of a store, oldest first; the last one is written to.

    ``parked``      reads that wait until a compaction has ended
    ``disk_error``  what went wrong behind the store's back; the node cannot go on
    """

    __slots__ = ("_first_ids", "board", "directory", "disk_error", "files", "parked")

    def __init__(self, directory: str, board: JobBoard) -> None:
        self.directory: str = directory
        self.board: JobBoard = board
        self.parked: list[DiskJob] = []
        self.disk_error: Exception | None = None
        self.files: list[StoreFile] = []
        self._first_ids: list[int] = []

    def path(self, number: i64) -> str:
        return f"{self.directory}/{store_file_name(int(number))}"

    def current(self) -> StoreFile:
        return self.files[-1]

    def file_of(self, msg_id: i64) -> StoreFile | None:
        """The one file that may have a row of that message."""
        i = bisect_right(self._first_ids, msg_id) - 1
        return self.files[i] if i >= 0 else None

    # -- files -----------------------------------------------------------------------------

    def add(self, file: StoreFile) -> None:
        """A newer file than all so far."""
        assert not self.files or file.number > self.current().number
        self.files.append(file)
        self._first_ids.append(int(file.first_id))

    def add_rows(self, rows: FileTable) -> None:
        """A file found at start; call ``count_rows`` when the references are there."""
        first_id: i64 = 1
        if rows.ids:
            first_id = rows.ids[0]
        elif self.files:
            last = self.files[-1]
            first_id = i64(last.rows.ids[-1]) + 1 if last.rows.ids else last.first_id
        self.add(StoreFile(rows, first_id))

    def remove(self, file: StoreFile) -> None:
        i = self.files.index(file)
        del self.files[i]
        del self._first_ids[i]

    def replace(self, old: StoreFile, new: StoreFile) -> None:
        i = self.files.index(old)
        self.files[i] = new
        self._first_ids[i] = int(new.first_id)

    def count_rows(self) -> None:
        """Set all sums anew from the rows (recovery fills rows behind our back)."""
        for file in self.files:
            file.count_rows()

    def sums(self) -> FileSums:
        return FileSums(self.files)

    # -- jobs ------------------------------------------------------------------------------

    def note_error(self, error: Exception) -> None:
        self.disk_error = error

    def submit_parked(self) -> None:
        """A compaction has ended: what waited for it is read now."""
        self.board.reads.extend(self.parked)
        self.parked = []

    # -- looking ---------------------------------------------------------------------------

    def check(self) -> None:
        """Assert the numbered invariants; O(messages), for tests."""
        last_id: i64 = 0
        last_number: i64 = 0
        for file in self.files:
            assert file.number > last_number, "T1"
            assert file.first_id > last_id or not file.rows.ids, "T1"
            last_number = file.number
            last_id = self._check_rows(file, last_id)
            counted = StoreFile(file.rows, file.first_id)
            counted.count_rows()
            assert counted.valid_bytes == file.valid_bytes, "T3"
            assert counted.live_count == file.live_count, "T3"
            assert counted.references == file.references, "T3"
        assert self._first_ids == [int(file.first_id) for file in self.files], "T1"
        assert self._first_ids == sorted(self._first_ids), "T1"

    def _check_rows(self, file: StoreFile, last_id: i64) -> i64:
        rows = file.rows
        end: i64 = 0
        for i in range(len(rows.ids)):
            msg_id: i64 = rows.ids[i]
            assert msg_id > last_id, "T1"
            assert msg_id >= file.first_id, "T1"
            last_id = msg_id
            assert i64(rows.offsets[i]) >= end, "T2"
            end = i64(rows.offsets[i]) + RECORD_HEADER_BYTES + i64(rows.sizes[i])
            assert rows.references[i] >= 0, "T4"
        assert end <= file.size, "T2"
        return last_id
