"""``RestingFiles``: journal files that stay, because segments refer to messages in them.

A message that rests need not be written again: its record is in the journal.  While a file is
retired (engine/retirement.py) ``places`` knows where its records lie, and a segment is given their
places in the file (index/references.py) instead of the records.  Such a file is replayed no more,
and is kept as long as a segment refers to it.  Here is counted how much that is.

A file that was ever referred to is removed in the end and never written over as a spare: a backup
of the running node has a link to it.
"""

from contextlib import suppress
from typing import Final, final

from librt.strings import BytesWriter, read_i32_be, read_i64_be, write_i32_be, write_i64_be
from mypy_extensions import i32, i64

from penstock.core.message import Message
from penstock.storage.common.disk_jobs import DiskJob
from penstock.storage.common.files import FileSystem
from penstock.storage.common.message_record import MESSAGE, record_queue_id, record_seq_id
from penstock.storage.journal.codec import (
    BEGUN_BYTES,
    BLOCK_HEADER_BYTES,
    block_bytes,
    block_end,
    journal_file_name,
    record_size,
)

SCAN_BYTES: Final[i64] = 1024 * 1024
"""So much is read at once, or one block if that is longer: memory that is used again stays warm."""
PLACE_BYTES: Final[i64] = 16
"""A record of one queue in the file: its seq_id, where it begins and ends."""


@final
class QueuePlaces:
    """The records of one queue in a file: ``count`` of them, with ``size`` bytes."""

    def __init__(self) -> None:
        self.count: i64 = 0
        self.size: i64 = 0
        self._writer: BytesWriter = BytesWriter()
        self._places: bytes = b""
        self._last: i64 = -1
        self._near: i64 = 0  # the place that is probably asked for next
        self._ascends: bool = True

    def add(self, seq_id: i64, start: i64, end: i64) -> None:
        """The next one in the file."""
        if seq_id <= self._last:
            self._ascends = False  # in a copy an older place may have a younger record
        self._last = seq_id
        write_i64_be(self._writer, seq_id)
        write_i32_be(self._writer, i32(start))
        write_i32_be(self._writer, i32(end))
        self.count += 1
        self.size += end - start

    def close(self) -> None:
        """All of them are here."""
        self._places = self._writer.getvalue()
        self._writer = BytesWriter()
        if not self._ascends:
            self.count = 0

    def rows(self, messages: list[Message], first: i64, end: i64) -> bytes:
        """Where the records of these, which ascend, lie: rows of (offset u32, size u32).

        Records that touch have one row.  Empty: some are not here.
        """
        writer = BytesWriter()
        start: i64 = -1
        stop: i64 = -1
        for i in range(first, end):
            place = self._find(messages[i].seq_id)
            if place < 0:
                return b""
            at = i64(read_i32_be(self._places, place + 8))
            if at != stop:
                if start >= 0:
                    write_i32_be(writer, i32(start))
                    write_i32_be(writer, i32(stop - start))
                start = at
            stop = i64(read_i32_be(self._places, place + 12))
        write_i32_be(writer, i32(start))
        write_i32_be(writer, i32(stop - start))
        return writer.getvalue()

    def _find(self, seq_id: i64) -> i64:
        """The offset of its place; -1 = it has none."""
        near = self._near
        if near < self.count and read_i64_be(self._places, near * PLACE_BYTES) == seq_id:
            self._near = near + 1
            return near * PLACE_BYTES
        low: i64 = 0
        high = self.count
        while low < high:
            middle = (low + high) // 2
            if read_i64_be(self._places, middle * PLACE_BYTES) < seq_id:
                low = middle + 1
            else:
                high = middle
        if low == self.count or read_i64_be(self._places, low * PLACE_BYTES) != seq_id:
            return -1
        self._near = low + 1
        return low * PLACE_BYTES


@final
class JournalScan(DiskJob):
    """Finds the records of these queues in a finished journal file; ``found`` by queue.

    What is not whole has no places: then it is written from memory.
    """

    def __init__(self, directory: str, file_no: i64, size: i64, queue_ids: set[int]) -> None:
        """``size``: where the file's last block ends."""
        super().__init__()
        self.file_no: i64 = file_no
        self.found: dict[int, QueuePlaces] = {}
        self._path: str = f"{directory}/{journal_file_name(int(file_no))}"
        self._size: i64 = size
        self._queue_ids: set[int] = queue_ids

    def run(self, files: FileSystem) -> None:
        self.found = {}
        base: i64 = 0
        wanted = SCAN_BYTES
        while base < self._size:
            size = min(wanted, self._size - base)
            data = files.pread(self._path, int(base), int(size))
            at: i64 = 0
            end = block_end(data, 0, self.file_no, base)
            while end >= 0:
                self._read_block(data, at + BLOCK_HEADER_BYTES, end, base)
                at = end
                end = block_end(data, at, self.file_no, base)
            wanted = max(SCAN_BYTES, block_bytes(data, at))
            if at == 0 and min(wanted, self._size - base) <= size:
                self.found = {}  # not whole
                return
            base += at
        for places in self.found.values():
            places.close()

    def _read_block(self, data: bytes, at: i64, end: i64, base: i64) -> None:
        places = QueuePlaces()
        known_id: i64 = -1
        while at < end:
            size = record_size(data, at, end)
            if size < 0:
                return
            if i64(data[at]) == MESSAGE:
                queue_id = record_queue_id(data, at)
                if queue_id != known_id:
                    known_id = queue_id
                    places = self._places(queue_id)
                places.add(record_seq_id(data, at), base + at, base + at + size)
            at += size

    def _places(self, queue_id: i64) -> QueuePlaces:
        number = int(queue_id)
        if number not in self._queue_ids:
            return QueuePlaces()
        places = self.found.get(number)
        if places is None:
            places = QueuePlaces()
            self.found[number] = places
        return places

    def finish(self) -> None:
        self.done = True
        if self.error is not None:
            self.found = {}


@final
class RestingFiles:
    """``directory`` is the journal's.

    ``sizes``     bytes of the files that are kept, by number
    ``referred``  bytes of their records that segments refer to; also of the file being retired
    ``unsaid``    files that are kept, and the journal does not say so yet
    ``unused``    files that nothing refers to any more, to be dropped
    ``going``     those of them that were kept, to be removed
    """

    def __init__(self, directory: str, least_bytes: i64) -> None:
        """``least_bytes``: less is not worth a reference."""
        self.directory: str = directory
        self.least_bytes: i64 = least_bytes
        self.sizes: dict[int, int] = {}
        self.referred: dict[int, int] = {}
        self.unsaid: list[int] = []
        self.unused: list[int] = []
        self.going: list[int] = []
        self._kept_at: dict[int, int] = {}  # where in the journal it says so
        self._scanned_no: i64 = 0
        self._places: dict[int, QueuePlaces] = {}

    # -- the file being retired ------------------------------------------------------------

    def know(self, scan: JournalScan) -> None:
        """Where its records lie, until ``forget``."""
        self._scanned_no = scan.file_no
        self._places = scan.found

    def forget(self) -> None:
        self._scanned_no = 0
        self._places = {}

    def places(self, file_no: i64, queue_id: i64) -> QueuePlaces | None:
        """Of that queue's records, if the file is known just now."""
        if file_no != self._scanned_no or file_no == 0:
            return None
        return self._places.get(int(queue_id))

    # -- references ------------------------------------------------------------------------

    def refer(self, file_no: i64, size: i64) -> None:
        """A segment refers to so many bytes more."""
        number = int(file_no)
        self.referred[number] = self.referred.get(number, 0) + int(size)

    def release(self, references: dict[int, int]) -> None:
        """The file of a segment with these is gone or replaced, and that is on disk."""
        for number, size in references.items():
            self.referred[number] -= size
            if self.referred[number] == 0 and number in self.sizes:
                self._give_up(number)

    def adopt(self, sizes: dict[int, int]) -> None:
        """At start: those that are referred to; the journal's first block says so."""
        self.sizes = sizes
        self._kept_at = dict.fromkeys(sizes, 0)

    def retire(self, file_no: i64, size: i64) -> bool:
        """It is to be replayed no more; True = it was never referred to, and may be used again."""
        number = int(file_no)
        if number not in self.referred:
            return True
        self.sizes[number] = int(size)
        self.unsaid.append(number)
        if self.referred[number] == 0:
            self._give_up(number)
        return False

    def _give_up(self, number: int) -> None:
        del self.referred[number]
        del self.sizes[number]
        self.unused.append(number)
        if number in self._kept_at:
            self.going.append(number)

    def take_unsaid(self) -> dict[int, int]:
        """With their sizes; but for those that nothing refers to by now."""
        unsaid = {number: self.sizes[number] for number in self.unsaid if number in self.sizes}
        self.unsaid = []
        return unsaid

    def note_kept(self, kept: dict[int, int], position: i64) -> None:
        """The journal says so of these, up to there."""
        self._kept_at.update(dict.fromkeys(kept, int(position)))

    def take_removable(self, durable_position: i64) -> list[int]:
        """Files that no start looks for, whether the journal says that they are dropped or not."""
        found = [number for number in self.going if self._kept_at[number] <= durable_position]
        if found:
            self.going = [number for number in self.going if number not in found]
            for number in found:
                del self._kept_at[number]
        return found

    def take_unused(self) -> list[int]:
        unused = self.unused
        self.unused = []
        return unused

    def costly(self, slack_bytes: i64, held: set[int]) -> int:
        """The file of which the least part is referred to, if all are too large for that; or 0.

        ``held``: files that cannot go, and do not count.
        """
        total: i64 = 0
        referred: i64 = 0
        worst: int = 0
        for number, size in self.sizes.items():
            if number in held:
                continue
            total += size
            referred += self.referred[number]
            if worst == 0 or (
                self.referred[number] * self.sizes[worst] < self.referred[worst] * size
            ):
                worst = number
        return worst if total > 2 * referred + slack_bytes else 0

    def total_bytes(self) -> i64:
        total: i64 = 0
        for size in self.sizes.values():
            total += size
        return total

    def check(self) -> None:
        for number in self.sizes:
            assert self.referred[number] > 0, "J3"
        assert all(size >= 0 for size in self.referred.values()), "J3"


@final
class RemoveKept(DiskJob):
    """Makes room at once: on a full disk the journal may not take what drops the file.

    Not made durable, nor tried again: the committer, or the next start, removes what is left.
    """

    def __init__(self, directory: str, file_no: int) -> None:
        super().__init__()
        self._path: str = f"{directory}/{journal_file_name(file_no)}"

    def run(self, files: FileSystem) -> None:
        with suppress(FileNotFoundError):  # the committer's thread may have removed it already
            files.remove(self._path)


@final
class CutRoom(DiskJob):
    """A file that is kept gives back the room behind its last block.

    What stands there says that the next file had begun: it stays.
    """

    def __init__(self, directory: str, file_no: i64, size: i64) -> None:
        super().__init__()
        self._path: str = f"{directory}/{journal_file_name(int(file_no))}"
        self._size: i64 = size

    def run(self, files: FileSystem) -> None:
        with suppress(FileNotFoundError):  # the committer's thread may have removed it already
            size = int(self._size + BLOCK_HEADER_BYTES + BEGUN_BYTES)
            files.truncate(self._path, min(size, files.size(self._path)))
