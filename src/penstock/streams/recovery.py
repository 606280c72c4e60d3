"""Reads the files of one stream at start, and cuts what a crash left.

In: a directory, and the offset up to which the log is known to have been on disk.  Out: what
``StreamLog`` begins with.  Of finished segments the head and the end are read, of the last one all
heads, and all payloads that no later block attests.  Damage in attested payloads is found by the
reads that want them.

What a crash can leave, and what is done:

    the newest file ends in no true block    cut there; the bytes are counted
    the same, but a block behind it attests  Corrupt: those bytes had been on disk
      that place
    a newest file without a true block       removed: the one before it is finished
    files below the floor                    removed: retention had taken them
    a note that messages are given up        they are (``cutting.py``)
    the log ends below the known offset,     Corrupt, with file, offset and length
      or begins above the floor, or a file
      ends where the next does not begin

What may not have been on disk, from the place that the last block attests, is made durable.
Every step may be interrupted and run again.
"""

from collections.abc import Callable
from typing import final

from mypy_extensions import i64

from penstock.core.errors import Corrupt
from penstock.core.message import Message
from penstock.storage.common.disk_jobs import DiskJob
from penstock.storage.common.file_window import FileWindow
from penstock.storage.common.files import FileSystem
from penstock.streams.block_codec import (
    FLOOR,
    HEAD_BYTES,
    INDEX,
    MAGIC_BYTES,
    MARKS,
    MESSAGES,
    PUBLISHERS,
    BlockHead,
    IndexRows,
    damage,
    index_place,
    read_head,
    read_records,
    segment_first,
    segment_path,
)
from penstock.streams.cutting import give_up, note_cut
from penstock.streams.log import INDEX_STEP_BYTES, StreamFound
from penstock.streams.marks import StreamMarks
from penstock.streams.reading import FILTER_BYTES_MAX, WINDOW_BYTES


@final
class _LastSegment:
    """All blocks of the segment that was written to last.

    ``end``       of its true blocks
    ``attested``  so much of it was on disk when its last block was sealed
    """

    def __init__(self, path: str, stream: i64, first: i64) -> None:
        self.rows: IndexRows = IndexRows()
        self.end: i64 = 0
        self.attested: i64 = 0
        self.next_offset: i64 = first
        self.floor: i64 = 0
        self.first_ms: i64 = 0
        self.last_ms: i64 = 0
        self.last_block: i64 = -1
        self.finished: bool = False
        self._last_marks: dict[int, BlockHead] = {}  # by kind
        self._behind: list[BlockHead] = []  # of messages behind the numbers of publishers
        self._path: str = path
        self._stream: i64 = stream
        self._doubtful: list[BlockHead] = []

    def read(self, files: FileSystem) -> None:
        size: i64 = files.size(self._path)
        window = FileWindow(files, self._path, WINDOW_BYTES)
        heads: list[BlockHead] = []
        while self.end < size:
            data = window.take(self.end, HEAD_BYTES + FILTER_BYTES_MAX)
            head = read_head(data, 0, self.end, self._stream, self._path)
            if head is None or head.end() > size:
                break
            self._must_follow(head, heads)
            heads.append(head)
            self.end = head.end()
            if head.synced > self.attested:
                self.attested = head.synced
                self._take(heads)
        self._must_be_torn(files, size)
        self._take_true(files, heads)

    def _must_follow(self, head: BlockHead, heads: list[BlockHead]) -> None:
        """A true head of other rules than ours is damage."""
        expected = heads[-1].next_offset() if heads else self.next_offset
        finished = heads[-1].kind == INDEX if heads else self.finished
        known = MESSAGES <= head.kind <= FLOOR and (head.count > 0) == (head.kind != FLOOR)
        known = known or head.kind in MARKS
        if finished or head.first != expected or not known:
            raise damage(self._path, int(head.at), int(head.end() - head.at))

    def _take(self, heads: list[BlockHead]) -> None:
        """Count what is attested of these blocks."""
        while heads and heads[0].end() <= self.attested:
            self._count(heads.pop(0))

    def _take_true(self, files: FileSystem, heads: list[BlockHead]) -> None:
        """Count the rest, up to the first payload that is not true."""
        for head in heads:
            payload = files.pread(self._path, int(head.payload_at()), int(head.size))
            if not head.is_payload(payload):
                self.end = head.at
                return
            self._count(head)

    def read_marks(self, files: FileSystem, marks: StreamMarks) -> None:
        """The last ones of each kind, and the messages behind the numbers of publishers."""
        for kind, head in self._last_marks.items():
            if not marks.of_kind(kind).read(self._payload(files, head), head.count):
                raise damage(self._path, int(head.at), int(head.end() - head.at))
        behind: list[Message] = []
        for head in self._behind:
            messages = read_records(self._payload(files, head), head)
            if messages is None:
                raise damage(self._path, int(head.at), int(head.end() - head.at))
            behind += messages
        marks.found_behind(behind)

    def _payload(self, files: FileSystem, head: BlockHead) -> bytes:
        payload = files.pread(self._path, int(head.payload_at()), int(head.size))
        if not head.is_payload(payload):
            raise damage(self._path, int(head.at), int(head.end() - head.at))
        return payload

    def _count(self, head: BlockHead) -> None:
        if head.at == 0:
            self.first_ms = head.first_ms
        if head.kind == MESSAGES:
            step = self.rows.last_at()
            if step < 0 or head.at - step >= INDEX_STEP_BYTES:
                self.rows.add(head.first, head.first_ms, head.at)
            self.last_block = head.first
            if int(PUBLISHERS) in self._last_marks:
                self._behind.append(head)
        if head.kind in MARKS:
            self._last_marks[int(head.kind)] = head
        if head.kind == PUBLISHERS:
            self._behind = []
        self.finished = head.kind == INDEX
        self.next_offset = head.next_offset()
        self.last_ms = head.last_ms
        self.floor = head.floor

    def _must_be_torn(self, files: FileSystem, size: i64) -> None:
        """What follows the last true head: left by a crash, or damaged?"""
        if self.end == size:
            return
        rest = files.pread(self._path, int(self.end), int(size - self.end))
        found: i64 = rest.find(MAGIC_BYTES, 1)
        while found >= 0:
            head = read_head(rest, found, self.end, self._stream, self._path)
            if head is not None and head.synced > self.end:
                raise damage(self._path, int(self.end), int(size - self.end))
            found = rest.find(MAGIC_BYTES, int(found) + 1)


@final
class StreamRecovery(DiskJob):
    """``found`` and ``bytes_cut`` are true when the job has run."""

    def __init__(self, directory: str, stream: i64, known_offset: i64) -> None:
        """``known_offset``: messages below it were on disk."""
        super().__init__()
        self.found: StreamFound = StreamFound()
        self.bytes_cut: i64 = 0
        self._directory: str = directory
        self.stream: i64 = stream
        self._known_offset: i64 = known_offset

    def run(self, files: FileSystem) -> None:
        self.found = StreamFound()
        self.bytes_cut = 0
        firsts: list[int] = []
        if files.exists(self._directory):
            if self._known_offset <= give_up(files, self._directory, self.stream):
                self._known_offset = 0
            names = files.listdir(self._directory)
            firsts = sorted([first for first in map(segment_first, names) if first >= 0])
        last = self._last_segment(files, firsts)
        if last is not None:
            self._take_finished(files, [first for first in firsts if first >= last.floor], last)
            self._remove(files, [first for first in firsts if first < last.floor])
        if self.found.next_offset < self._known_offset:
            raise Corrupt(
                f"{self._directory}: messages {int(self.found.next_offset)} to"
                f" {int(self._known_offset) - 1} of the stream are missing at its end"
            )

    def _last_segment(self, files: FileSystem, firsts: list[int]) -> _LastSegment | None:
        """The newest segment with a true block; what it has is durable then."""
        last = self._newest(files, firsts)
        if last is not None and last.end == 0:
            path = segment_path(self._directory, firsts[-1])
            begun = firsts.pop()
            before = self._newest(files, firsts)
            ends_at = before.next_offset if before is not None else 0
            if begun < self._known_offset or ends_at != begun:
                raise damage(path, 0, files.size(path))
            files.remove(path)
            last = before
        if last is not None:
            self._make_durable(files, segment_path(self._directory, firsts[-1]), last)
        return last

    def _newest(self, files: FileSystem, firsts: list[int]) -> _LastSegment | None:
        if not firsts:
            return None
        path = segment_path(self._directory, firsts[-1])
        last = _LastSegment(path, self.stream, firsts[-1])
        last.read(files)
        return last

    def _make_durable(self, files: FileSystem, path: str, last: _LastSegment) -> None:
        size: i64 = files.size(path)
        if last.end == 0 or (last.next_offset < self._known_offset and size > last.end):
            raise damage(path, int(last.end), int(size - last.end))
        self.bytes_cut = size - last.end
        if last.end > last.attested:
            data = files.pread(path, int(last.attested), int(last.end - last.attested))
            files.secure(path, int(last.attested), data)
        if size > last.end:
            files.truncate(path, int(last.end))
        files.sync_dir(self._directory)

    def _take_finished(self, files: FileSystem, firsts: list[int], last: _LastSegment) -> None:
        found = self.found
        if not firsts or firsts[0] != last.floor:
            begin = firsts[0] if firsts else int(last.next_offset)
            raise Corrupt(
                f"{self._directory}: messages {int(last.floor)} to {begin - 1} of the stream are"
                " missing at its begin"
            )
        for i in range(len(firsts) - 1):
            self._take_one(files, firsts[i], firsts[i + 1])
        found.segments.add(firsts[-1], last.first_ms, last.end)
        last_block = last.last_block
        if last_block < 0:
            last_block = max(last.floor, last.next_offset - 1)
        found.take_last(
            last.rows, last.finished, last.floor, last.next_offset, last.last_ms, last_block
        )
        last.read_marks(files, found.marks)

    def _take_one(self, files: FileSystem, first: int, next_first: int) -> None:
        """A finished segment: its first head, and the index at its end."""
        path = segment_path(self._directory, first)
        size = files.size(path)
        data = files.pread(path, 0, int(HEAD_BYTES + FILTER_BYTES_MAX))
        head = read_head(data, 0, 0, self.stream, path)
        at = index_place(files.pread(path, max(size - 8, 0), 8))
        index: BlockHead | None = None
        if 0 <= at < size:
            data = files.pread(path, int(at), int(HEAD_BYTES))
            index = read_head(data, 0, at, self.stream, path)
        if head is None or head.first != first:
            raise damage(path, 0, size)
        if index is None or index.kind != INDEX or index.end() != size:
            begin = int(at) if 0 <= at < size else size
            raise damage(path, begin, size - begin)
        if index.first != next_first:
            missing = segment_path(self._directory, index.first)
            raise Corrupt(
                f"{missing}: this file is missing; messages {int(index.first)} to"
                f" {next_first - 1} of the stream are gone"
            )
        self.found.segments.add(first, head.first_ms, size)

    def _remove(self, files: FileSystem, firsts: list[int]) -> None:
        for first in firsts:
            files.remove(segment_path(self._directory, first))


@final
class StreamCut(DiskJob):
    """The messages of a stream from ``offset`` on, which were on disk below ``known``.

    When it has run, ``found`` is what is left, and ``owner`` hears of it; ``tell`` calls ``done``.
    """

    def __init__(
        self,
        directory: str,
        stream: i64,
        offset: i64,
        known: i64,
        owner: "Callable[[StreamCut], None]",
        done: Callable[[], None],
    ) -> None:
        super().__init__()
        self.stream: i64 = stream
        self.found: StreamFound = StreamFound()
        self._directory: str = directory
        self._offset: i64 = offset
        self._known: i64 = known
        self._owner: Callable[[StreamCut], None] = owner
        self._done: Callable[[], None] = done

    def run(self, files: FileSystem) -> None:
        note_cut(files, self._directory, self._offset, self._known)
        recovery = StreamRecovery(self._directory, self.stream, 0)
        recovery.run(files)
        self.found = recovery.found

    def finish(self) -> None:
        super().finish()
        self._owner(self)

    def tell(self) -> None:
        """The log may be opened again."""
        self._done()
