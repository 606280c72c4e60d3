"""Reads the files of a message store at start, and repairs what a crash left.

In: a directory.  Out: the rows of its files, without references (the queue index knows those).

After a clean stop the table that was saved says everything, and only names and sizes are
compared.  After any other stop every file is read, each by a ``StoreScan`` of its own, so that
several threads can share the work, and every record is verified.

What a crash can leave, and what is done:

    newest file ends in no true group     cut there; the bytes are counted
    the same, but a group header of the   Corrupt: those bytes had been on disk
      file attests that place
    newest file without a true group      cut to nothing, then removed: a file is begun only
                                          after the one before it was synced
    ``<N>.rdt``                           a compaction that did not end: removed
    a record in two files                 a compaction that had not removed its second file:
                                          the older file counts
    an older file that is gone            the index asks for what was in it and says so
    anything else wrong                   Corrupt, with file, offset and length

Then a new file is begun and synced before anything is removed: it carries the next msg_id,
which must not be lost with the files that had it.  What may not have been on disk (the newest
file from the place its last group attests) is made durable first (``FileSystem.secure``).

Every step may be interrupted and run again.
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.core.checksum import crc32
from penstock.core.errors import Corrupt
from penstock.storage.common.disk_jobs import DiskJob
from penstock.storage.common.file_window import WINDOW_BYTES, FileWindow
from penstock.storage.common.files import FileSystem
from penstock.storage.common.formats import check_version
from penstock.storage.store.codec import (
    FORMAT_VERSION,
    GROUP_HEADER_BYTES,
    MAGIC_BYTES,
    RECORD_HEADER_BYTES,
    UNFINISHED_SUFFIX,
    FileTable,
    TableReader,
    damage,
    group_header,
    read_group_header,
    store_file_name,
    store_file_no,
)
from penstock.storage.store.files import StoreFile, StoreFiles

MSG_ID_STEP: Final[i64] = 4_294_967_296
"""After an unclean stop numbering goes on at the next multiple: no id is ever used twice."""


@final
class StoreScan(DiskJob):
    """Reads one file and verifies everything in it.

    ``rows``          what it holds, references all 0
    ``next_msg_id``   above every id it knows of
    ``end``           bytes of true groups
    ``bytes_cut``     bytes after them, to be cut off
    ``again_offset``  what lies behind may not be on disk
    """

    def __init__(self, path: str, number: i64, newest: bool) -> None:
        super().__init__()
        self.path: str = path
        self.rows: FileTable = FileTable(number, 0)
        self.newest: bool = newest
        self.next_msg_id: i64 = 1
        self.end: i64 = 0
        self.bytes_cut: i64 = 0
        self.again_offset: i64 = 0
        self._attested: i64 = 0

    def run(self, files: FileSystem) -> None:
        size: i64 = files.size(self.path)
        window = FileWindow(files, self.path)
        number = self.rows.number
        while self.end < size:
            data = window.take(self.end, GROUP_HEADER_BYTES)
            header = read_group_header(data, number, self.end)
            if header is None:
                break
            check_version(self.path, "message store", int(header.version), FORMAT_VERSION)
            self._attested = max(self._attested, header.synced)
            at = self.end + GROUP_HEADER_BYTES
            if header.size > size - at or not self._read_records(window, at, at + header.size):
                break
            self.next_msg_id = max(self.next_msg_id, header.next_msg_id)
            self.again_offset = min(header.synced, self.end)
            self.end = at + header.size
        self.rows.grow(self.end)
        self.rows.trim()
        self.bytes_cut = size - self.end
        if self.bytes_cut > 0:
            self._must_be_torn(window, size)

    def _read_records(self, window: FileWindow, at: i64, end: i64) -> bool:
        """Whether all of the group is true; only then its rows are kept."""
        rows = self.rows
        count = len(rows.ids)
        while at < end:
            at = self._read_record(window, at, end)
            if at < 0:
                rows.cut(count)
                return False
        self._must_ascend(count)
        return True

    def _read_record(self, window: FileWindow, at: i64, end: i64) -> i64:
        """Where the next one begins; -1 = this is no true record."""
        header = window.take(at, RECORD_HEADER_BYTES)
        size: i64 = int.from_bytes(header[:4], "big")
        content_at = at + RECORD_HEADER_BYTES
        if content_at + size > end:
            return -1
        checksum = window.checksum(content_at, size, crc32(header[:12]))
        if checksum != int.from_bytes(header[12:], "big"):
            return -1
        self.rows.add(int.from_bytes(header[4:12], "big"), at, size, 0)
        return content_at + size

    def _must_ascend(self, count: int) -> None:
        """The checksums are right: what does not ascend was written by other rules than ours."""
        ids = self.rows.ids
        for i in range(max(count, 1), len(ids)):
            if ids[i] <= ids[i - 1]:
                at: i64 = self.rows.offsets[i]
                raise damage(self.path, int(at), int(RECORD_HEADER_BYTES))

    def _must_be_torn(self, window: FileWindow, size: i64) -> None:
        """What follows the last true group: left by a crash, or damaged?"""
        if self.newest:
            self._look_for_witnesses(window, size)
        if not self.newest or self._attested > self.end:
            raise damage(self.path, int(self.end), int(size - self.end))

    def _look_for_witnesses(self, window: FileWindow, size: i64) -> None:
        """True group headers further on say how much was on disk when they were written."""
        at = self.end + 1
        while at < size:
            data = window.take(at, WINDOW_BYTES)
            found: i64 = data.find(MAGIC_BYTES)
            if found < 0:
                at += max(len(data) - len(MAGIC_BYTES) + 1, 1)
                continue
            at += found
            header = read_group_header(window.take(at, GROUP_HEADER_BYTES), self.rows.number, at)
            if header is not None:
                self._attested = max(self._attested, header.synced)
            at += 1


@final
class StoreRecovery:
    """One start.  Either ``load`` a table, or ``scans``, ``merge``, references, ``mend``."""

    def __init__(self, files: FileSystem, store: StoreFiles) -> None:
        self.next_msg_id: i64 = 1
        self.bytes_cut: i64 = 0
        self.files_removed: i64 = 0
        self._fs: FileSystem = files
        self._store: StoreFiles = store
        self._scans: list[StoreScan] = []
        self._secured: bool = False

    def numbers(self) -> list[int]:
        """Of the files that are there; what a compaction did not end is removed."""
        self._fs.makedirs(self._store.directory)
        numbers: list[int] = []
        for name in self._fs.listdir(self._store.directory):
            number = store_file_no(name)
            if number > 0:
                numbers.append(number)
            elif store_file_no(name, UNFINISHED_SUFFIX) > 0:
                self._fs.remove(f"{self._store.directory}/{name}")
        numbers.sort()
        return numbers

    def remove_all(self) -> None:
        for number in self.numbers():
            self._remove(number)

    def _remove(self, number: i64) -> None:
        self._fs.remove(self._store.path(number))
        self.files_removed += 1

    # -- after a clean stop ----------------------------------------------------------------

    def load(self, data: bytes) -> i64:
        """Take the rows from a saved table; the number for the next file."""
        try:
            table = TableReader(data)
        except ValueError as error:
            where = self._store.directory
            raise Corrupt(f"{where}: the saved table is damaged: {error}") from error
        left = set(self.numbers())
        for rows in table.files:
            self._must_be_there(rows, left)
            left.discard(int(rows.number))
            self._store.add_rows(rows)
        for number in sorted(left):
            if number >= table.next_file_no:
                raise damage(self._store.path(number), 0, self._fs.size(self._store.path(number)))
            self._remove(number)  # its removal was not yet durable
        self.next_msg_id = table.next_msg_id
        self._store.count_rows()
        return table.next_file_no

    def _must_be_there(self, rows: FileTable, present: set[int]) -> None:
        path = self._store.path(rows.number)
        if int(rows.number) not in present:
            raise damage(path, 0, int(rows.size))
        size: i64 = self._fs.size(path)
        if size != rows.size:
            raise damage(path, int(min(size, rows.size)), abs(int(size - rows.size)))

    # -- after any other -------------------------------------------------------------------

    def scans(self) -> list[StoreScan]:
        numbers = self.numbers()
        for number in numbers:
            path = self._store.path(number)
            self._scans.append(StoreScan(path, number, number == numbers[-1]))
        return self._scans

    def merge(self) -> None:
        """Put the scans together, once all have run."""
        last_id: i64 = 0
        for scan in self._scans:
            assert scan.done
            if scan.error is not None:
                raise scan.error
            rows = _rows_above(scan.rows, last_id)
            self._store.add_rows(rows)
            if rows.ids:
                last_id = rows.ids[-1]
            self.next_msg_id = max(self.next_msg_id, scan.next_msg_id)
            self.bytes_cut += scan.bytes_cut
        if self._scans:
            self.next_msg_id = (self.next_msg_id // MSG_ID_STEP + 1) * MSG_ID_STEP

    def mend(self) -> None:
        """Make durable what was read, begin a new file, remove files without a reference."""
        self.secure()
        self._store.count_rows()
        number: i64 = 1
        if self._scans:
            number = self._scans[-1].rows.number + 1
        self._begin(number)
        for file in self._store.files[:]:
            if file.live_count == 0 and file.number < number:
                self._store.remove(file)
                self._remove(file.number)
        self._scans = []

    def secure(self) -> None:
        """Make durable what was read; a segment may speak of it only after that."""
        if self._scans and not self._secured:
            self._secured = True
            self._mend_newest(self._scans[-1])

    def _mend_newest(self, scan: StoreScan) -> None:
        at = scan.again_offset
        if scan.end > at:
            data = self._fs.pread(scan.path, int(at), int(scan.end - at))
            self._fs.secure(scan.path, int(at), data)
        if scan.bytes_cut > 0:
            self._fs.truncate(scan.path, int(scan.end))

    def _begin(self, number: i64) -> None:
        header = group_header(number, 0, 0, 0, self.next_msg_id)
        directory = self._store.directory
        handle = self._fs.open_write(f"{directory}/{store_file_name(int(number))}")
        try:
            self._fs.pwrite_parts(handle, 0, [header])
            self._fs.sync(handle)
        finally:
            self._fs.close(handle)
        self._fs.sync_dir(directory)
        self._store.add(StoreFile(FileTable(number, len(header)), self.next_msg_id))


def _rows_above(rows: FileTable, last_id: i64) -> FileTable:
    """Without what an older file holds as well."""
    if not rows.ids or rows.ids[0] > last_id:
        return rows
    kept = FileTable(rows.number, rows.size)
    for i in range(len(rows.ids)):
        if rows.ids[i] > last_id:
            kept.add(rows.ids[i], rows.offsets[i], rows.sizes[i], 0)
    return kept
