"""Sealed groups of streams, and what puts them on the disk.

In: pieces, each one block of one segment file, in order.  Out: bytes at the places that the log
has reserved for them.  Everything here but the constructors runs in the committer's thread.  A
file is synced to its end before the next one of its stream is begun, and a file's name is durable
before anything in it is reported: so only the newest file of a stream can end in a torn block.
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.core.message import Message
from penstock.storage.common.failpoints import reach
from penstock.storage.common.files import FileSystem
from penstock.storage.common.side_log import SideGroup, SideWriter
from penstock.streams.block_codec import BlockHead, segment_path

OPEN_FILES_MAX: Final = 32
"""Of all streams together: half of the descriptors that no client gets."""


@final
class StreamPiece:
    """One block, sealed and never changed again."""

    __slots__ = ("directory", "head", "messages", "payload", "segment", "written")

    def __init__(
        self, directory: str, segment: i64, head: BlockHead, payload: bytes, messages: list[Message]
    ) -> None:
        self.directory: str = directory
        self.segment: i64 = segment
        self.head: BlockHead = head
        self.payload: bytes = payload
        self.messages: list[Message] = messages
        self.written: bool = False

    def note_written(self) -> None:
        """It needs no second write when its group is tried again."""
        self.written = True


@final
class StreamGroup:
    """What one stream sealed at once; ``end`` is the offset behind its messages."""

    __slots__ = ("end", "floor", "pieces", "stream")

    def __init__(self, stream: i64, pieces: list[StreamPiece], end: i64, floor: i64) -> None:
        self.stream: i64 = stream
        self.pieces: list[StreamPiece] = pieces
        self.end: i64 = end
        self.floor: i64 = floor

    def by_file(self) -> list[list[StreamPiece]]:
        """Those that are not written yet, which follow each other in each file."""
        rows: list[list[StreamPiece]] = []
        for piece in self.pieces:
            if piece.written:
                continue
            if not rows or rows[-1][0].segment != piece.segment:
                rows.append([])
            rows[-1].append(piece)
        return rows


@final
class StreamGroups(SideGroup):
    """What all streams of a node sealed at once; those of ``deleted`` are gone.

    Files of those of ``left`` are not touched by the writer again before a later group.
    """

    def __init__(
        self, groups: list[StreamGroup], deleted: list[int], left: list[int] | None = None
    ) -> None:
        super().__init__()
        self.groups: list[StreamGroup] = groups
        self.deleted: list[int] = deleted
        self.left: list[int] = [] if left is None else left
        alone = len(groups) == 1 and not self.deleted and not self.left
        self.small = alone and len(groups[0].pieces) == 1 and groups[0].pieces[0].head.at > 0

    def ends(self) -> dict[int, int]:
        return {int(one.stream): int(one.end) for one in self.groups}


@final
class _OpenFile:
    def __init__(self, segment: i64, handle: int) -> None:
        self.segment: i64 = segment
        self.handle: int = handle


@final
class StreamWriter(SideWriter):
    """Writes the groups of all streams of a node."""

    def __init__(self, files: FileSystem) -> None:
        super().__init__()
        self._files: FileSystem = files
        self._open: dict[int, _OpenFile] = {}  # by stream
        self._written: set[int] = set()  # since the last sync

    def write(self, group: SideGroup) -> None:
        """Write it; syncs only where a file is left for another."""
        assert isinstance(group, StreamGroups)
        for one in group.groups:
            self._write(one)
        for stream in group.deleted:
            if stream in self._open:
                self._close(stream)
        for stream in group.left:
            if stream in self._open:
                self._leave(stream)

    def _write(self, group: StreamGroup) -> None:
        """One write for each file: between two, this thread waits for the others."""
        stream = int(group.stream)
        for pieces in group.by_file():
            file = self._open.get(stream)
            if file is None or file.segment != pieces[0].segment:
                file = self._begin(pieces[0], file)
            self._written.add(stream)
            self.unsynced = True
            parts: list[bytes] = []
            for piece in pieces:
                parts += [piece.head.encode(piece.payload), piece.payload]
            self._files.pwrite_parts(file.handle, int(pieces[0].head.at), parts)
            for piece in pieces:
                piece.note_written()

    def sync(self) -> None:
        """Bring everything written so far to the disk."""
        for stream in list(self._written):
            self._files.sync(self._open[stream].handle)
            self._written.discard(stream)
        self.unsynced = False
        reach("stream.synced")

    def close(self) -> None:
        """Let go of all files, without a sync."""
        for stream in list(self._open):
            self._close(stream)

    def _close(self, stream: int) -> None:
        file = self._open.pop(stream)
        self._written.discard(stream)
        self._files.close(file.handle)

    def _leave(self, stream: int) -> None:
        """Another file is opened instead: this one is on disk to its end."""
        if stream in self._written:
            self._files.sync(self._open[stream].handle)
        self._close(stream)

    def _begin(self, piece: StreamPiece, old: _OpenFile | None) -> _OpenFile:
        stream = int(piece.head.stream)
        if old is not None:
            self._leave(stream)
        elif len(self._open) >= OPEN_FILES_MAX:
            self._leave(next(iter(self._open)))
        if piece.head.at == 0:
            self._files.makedirs(piece.directory)
        handle = self._files.open_write(segment_path(piece.directory, piece.segment))
        file = _OpenFile(piece.segment, handle)
        self._open[stream] = file
        if piece.head.at == 0:
            self._files.sync_dir(piece.directory)
            reach("stream.rolled")
        return file
