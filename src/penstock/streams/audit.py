"""``StreamAudit``: the files of one stream, every block of them, for ``penstock audit``.

In: the directory of a stream, which is only read, and up to which offset the stream is known to
have been on disk.  Out: a walk of each segment file, how many messages a start would find,
``damages``, and ``notes`` on what is harmless.  Where recovery stops at the first damage, a walk
goes on at the next true block.  A file is read in pieces: segments may be large.
"""

from typing import Final

from penstock.storage.audit.files import FOREIGN, UNTRUE, Damage, FileWalk
from penstock.storage.common.file_window import WINDOW_BYTES, FileWindow
from penstock.storage.common.files import FileSystem
from penstock.streams.block_codec import (
    FLOOR,
    HEAD_BYTES,
    INDEX,
    MAGIC_BYTES,
    MESSAGES,
    POSITIONS,
    PUBLISHERS,
    TERMS,
    BlockHead,
    IndexRows,
    read_head,
    read_records,
    segment_first,
    segment_path,
)
from penstock.streams.cutting import cut_of
from penstock.streams.log import INDEX_STEP_BYTES
from penstock.streams.marks import StreamMarks
from penstock.streams.reading import FILTER_BYTES_MAX

KINDS: Final = {
    int(MESSAGES): "messages",
    int(INDEX): "index",
    int(FLOOR): "floor",
    int(POSITIONS): "positions",
    int(PUBLISHERS): "publishers",
    int(TERMS): "terms",
}


class StreamWalk(FileWalk):
    """A segment file.  ``newest``: it may end in a torn block.

    After the walk: ``count`` of messages and their ``content_bytes``, ``next_offset`` behind them,
    the ``floor`` that its last block says, and whether it is ``finished`` with its index.
    """

    def __init__(
        self, files: FileSystem, path: str, name: str, stream: int, first: int, *, newest: bool
    ) -> None:
        """``path``: where it is; ``name``: what it is called in the report."""
        super().__init__(name, b"")
        self.size = files.size(path)
        self.first = self.next_offset = first
        self.count = 0
        self.content_bytes = 0
        self.floor = 0
        self.finished = False
        self._window = FileWindow(files, path)
        self._stream = stream
        self._newest = newest
        self._skipped = False  # what came before is not known
        self._rows = IndexRows()
        self._walk()

    def _head(self, at: int) -> BlockHead | None:
        """Of a block that is there to its end."""
        data = self._window.take(at, int(HEAD_BYTES) + int(FILTER_BYTES_MAX))
        head = read_head(data, 0, at, self._stream, self.path)
        return head if head is not None and head.end() <= self.size else None

    def _walk(self) -> None:
        at = 0
        while at < self.size:
            head = self._head(at)
            end = self._next_true_head(at) if head is None else int(head.end())
            payload = b"" if head is None else self._window.take(head.payload_at(), head.size)
            if head is None or not head.is_payload(payload):
                if self._newest and not self._attests(at, end):
                    self.torn_bytes = self.size - at
                    return
                self.damage(at, end, UNTRUE)
            elif not self._takes(head, payload):
                self.damage(at, end, FOREIGN)
            if head is not None:
                self.next_offset = int(head.next_offset())
            self._skipped = head is None
            at = end

    def _next_true_head(self, at: int) -> int:
        """Where the next block begins that has one; the end of the file if none has."""
        overlap = len(MAGIC_BYTES) - 1
        at += 1
        while at < self.size:
            data = self._window.take(at, WINDOW_BYTES)
            found = data.find(MAGIC_BYTES)
            if found < 0:
                at += max(len(data) - overlap, 1)
            elif self._head(at + found) is not None:
                return at + found
            else:
                at += found + 1
        return self.size

    def _attests(self, place: int, at: int) -> bool:
        """Does a true head from ``at`` on say that this place was on disk?"""
        while at < self.size:
            head = self._head(at)
            if head is not None and head.synced > place:
                return True
            at = self._next_true_head(at)
        return False

    def _takes(self, head: BlockHead, payload: bytes) -> bool:
        """Note a true block; False = it does not belong here."""
        kind = int(head.kind)
        messages = read_records(payload, head) if kind == MESSAGES else None
        follows = head.first == self.next_offset or self._skipped
        if self.finished or not follows or kind not in KINDS:
            return False
        if kind == MESSAGES:
            if messages is None:
                return False
            step = int(self._rows.last_at())
            if step < 0 or head.at - step >= INDEX_STEP_BYTES:
                self._rows.add(head.first, head.first_ms, head.at)
            self.count += len(messages)
            self.content_bytes += sum(int(message.size) for message in messages)
        elif kind == INDEX:
            self.finished = head.end() == self.size
            if payload != self._rows.payload(head.at) and not self.damages:
                return False
        elif kind != FLOOR and not StreamMarks().of_kind(kind).read(payload, head.count):
            return False
        self.floor = int(head.floor)
        content = f"{KINDS[kind]}, {int(head.count)}" if head.count else KINDS[kind]
        self.note(int(head.at), int(head.end()), int(head.synced), content)
        return True


class StreamAudit:
    """One look; made complete.  ``walks`` are those of files that a start keeps."""

    def __init__(self, files: FileSystem, directory: str, stream: int, known_offset: int) -> None:
        """``directory``: of the data."""
        self.walks: list[StreamWalk] = []
        self.damages: list[Damage] = []
        self.notes: list[str] = []
        self._files = files
        self._home = f"streams/{stream}"
        self._directory = f"{directory}/{self._home}"
        self._stream = stream
        self._known_offset = known_offset
        self._unbegun: StreamWalk | None = None
        for first in reversed(self._firsts()):
            self._take(first)
        self._compare()
        for walk in self.walks:
            self.damages += walk.damages

    def messages(self) -> int:
        return sum(walk.count for walk in self.walks)

    def content_bytes(self) -> int:
        return sum(walk.content_bytes for walk in self.walks)

    def _firsts(self) -> list[int]:
        names = self._files.listdir(self._directory) if self._files.exists(self._directory) else []
        for name in sorted(names):
            cut = cut_of(name)
            if cut is not None and self._known_offset <= cut.known:
                self._known_offset = 0
            elif segment_first(name) < 0 and cut is None:
                self.notes.append(f"{self._home}/{name} is no file of this broker")
        return sorted(first for first in map(segment_first, names) if first >= 0)

    def _take(self, first: int) -> None:
        """The files are taken from the newest to the oldest."""
        name = segment_path(self._home, first)
        if first < max((walk.floor for walk in self.walks), default=0):
            self.notes.append(f"{name} is below the floor; the next start removes it")
            return
        path = segment_path(self._directory, first)
        newest = not self.walks
        walk = StreamWalk(self._files, path, name, self._stream, first, newest=newest)
        if not newest and not walk.finished and not walk.damages:
            walk.damage(walk.end, walk.size, "no index at the end of a finished file")
        if newest and self._unbegun is None and not walk.blocks and not walk.damages:
            self._unbegun = walk
            self.notes.append(f"{name} has no block yet; the next start removes it")
        else:
            self.walks.insert(0, walk)

    def _compare(self) -> None:
        """The files with one another, and with what is known of their begin and end."""
        offset = max((walk.floor for walk in self.walks), default=0)
        for walk in self.walks:
            self._must_be(walk.first, offset, walk.path)
            offset = walk.next_offset
        if self._unbegun is not None:
            self._must_be(self._unbegun.first, offset, self._unbegun.path)
        if offset < self._known_offset:
            missing = f"messages {offset} to {self._known_offset - 1}"
            text = f"{missing} of the stream are missing at its end"
            self.damages.append(Damage(self._home, 0, 0, text))

    def _must_be(self, begin: int, offset: int, path: str) -> None:
        """``begin``: of what is at ``path``; ``offset``: behind what comes before it."""
        if begin > offset:
            text = f"messages {offset} to {begin - 1} of the stream are missing before it"
            self.damages.append(Damage(path, 0, 0, text))
        elif begin < offset:
            text = f"messages {begin} to {offset - 1} of the stream are in the file before it, too"
            self.damages.append(Damage(path, 0, 0, text))
