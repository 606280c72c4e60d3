"""Groups of the message store: sealed for the committer, written and synced as one.

In: contents, sealed by the message store in the order of their ids.  Out: bytes at the places
the store has reserved for them.  Everything here but the constructors runs in a thread: checksums
of large contents, which let others run meanwhile, and writes from where the contents lie.

A *piece* is one group of the file format; what is sealed at once is one piece, or several when
files fill up.  Writes go to places and not to the end, so writing again after the disk was full
does no harm.  But only what was not written: behind a file that was left for the next, recovery
takes every hole for damage, and so a power cut must not find it being written over.

``StoreWriter`` belongs to the group committer and keeps the order recovery relies on: a file is
synced to its end before the next one is begun, and a file's name is durable before anything in
it is reported.  The transient store has no such order to keep: ``StoreFlush`` only writes.
"""

from typing import final

from mypy_extensions import i64

from penstock.storage.common.failpoints import reach
from penstock.storage.common.files import FileSystem
from penstock.storage.store.codec import (
    GROUP_HEADER_BYTES,
    RECORD_HEADER_BYTES,
    group_header,
    record_header,
    store_file_name,
)


@final
class StorePiece:
    """One group of one file, sealed and never changed again."""

    __slots__ = ("contents", "file_no", "msg_ids", "offset", "size", "synced_offset", "written")

    def __init__(self, file_no: i64, offset: i64, synced_offset: i64) -> None:
        self.file_no: i64 = file_no
        self.offset: i64 = offset
        self.synced_offset: i64 = synced_offset
        self.size: i64 = 0  # of the records
        self.msg_ids: list[int] = []
        self.contents: list[bytes] = []
        self.written: bool = False

    def add(self, msg_id: i64, content: bytes) -> None:
        self.msg_ids.append(msg_id)
        self.contents.append(content)
        self.size += RECORD_HEADER_BYTES + len(content)

    def note_written(self) -> None:
        """It needs no second write when its batch is tried again."""
        self.written = True

    def end_offset(self) -> i64:
        """The size of the file once the piece is written."""
        return self.offset + GROUP_HEADER_BYTES + self.size

    def parts(self) -> list[bytes]:
        """The bytes, contents not copied."""
        next_msg_id = self.msg_ids[-1] + 1
        parts = [
            group_header(self.file_no, self.offset, self.synced_offset, self.size, next_msg_id)
        ]
        for i in range(len(self.msg_ids)):
            content = self.contents[i]
            parts.append(record_header(self.msg_ids[i], content))
            parts.append(content)
        return parts


@final
class StoreGroup:
    """What was sealed at once.

    ``pieces``      none = nothing to write, only to sync
    ``size``        bytes to write
    ``sync``        it must be on disk before it is reported as committed
    ``end_msg_id``  every id up to this one is in this group, an earlier one, or gone
    ``done``        reported as committed
    """

    __slots__ = ("done", "end_msg_id", "pieces", "size", "sync")

    def __init__(self, pieces: list[StorePiece], sync: bool, end_msg_id: i64) -> None:
        self.pieces: list[StorePiece] = pieces
        size: i64 = 0
        for piece in pieces:
            size += GROUP_HEADER_BYTES + piece.size
        self.size: i64 = size
        self.sync: bool = sync
        self.end_msg_id: i64 = end_msg_id
        self.done: bool = False

    def note_done(self) -> None:
        self.done = True


@final
class StoreWriter:
    """Writes the groups of one store, in order.  Lives in the committer's thread.

    An ``OSError`` of ``write`` for want of space may be tried again; any other is final.
    """

    def __init__(self, files: FileSystem, directory: str) -> None:
        self.unsynced: bool = False
        self._files: FileSystem = files
        self._directory: str = directory
        self._handle: int = -1
        self._file_no: i64 = 0

    def write(self, group: StoreGroup) -> None:
        """Write it; syncs only where a file is left for the next."""
        for piece in group.pieces:
            if piece.written:
                continue
            if piece.file_no != self._file_no:
                self._open(piece.file_no)
            self.unsynced = True
            self._files.pwrite_parts(self._handle, int(piece.offset), piece.parts())
            piece.note_written()

    def sync(self) -> None:
        """Bring everything written so far to the disk."""
        if self.unsynced:
            self._files.sync(self._handle)
            self.unsynced = False

    def close(self) -> None:
        """Let go of the file, without a sync."""
        if self._handle >= 0:
            handle = self._handle
            self._handle = -1
            self._file_no = 0
            self._files.close(handle)

    def _open(self, file_no: i64) -> None:
        self.sync()
        self.close()
        self._handle = self._files.open_write(f"{self._directory}/{store_file_name(int(file_no))}")
        self._files.sync_dir(self._directory)
        self._file_no = file_no
        reach("store.rolled")


def write_unsynced(files: FileSystem, directory: str, group: StoreGroup) -> None:
    """For the transient store: what the page cache has is enough."""
    for piece in group.pieces:
        handle = files.open_write(f"{directory}/{store_file_name(int(piece.file_no))}")
        try:
            files.pwrite_parts(handle, int(piece.offset), piece.parts())
        finally:
            files.close(handle)
