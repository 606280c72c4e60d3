"""The end of a stream is given up: a copy has messages that its master never had.

In: a directory, and from which offset on.  Out: segments that end there, or with the block before.
Whole blocks go, so that what is left is as it was written; the master has it to be fetched again.

    <offset>-<known>.cut  to be done: so a crash in the middle finds the rest of the work
    <known>.gone          done: that the stream was on disk up to ``known`` counts no more

    <first>.stm.new          what is kept of a segment, until it takes the segment's place

The first two are empty files beside the segments; their names are what counts.  Until the stream
has grown beyond ``known`` again, a start cannot tell that messages are missing at its end.
"""

import re
from typing import Final, NamedTuple

from mypy_extensions import i64

from penstock.storage.common.file_window import FileWindow
from penstock.storage.common.files import FileSystem
from penstock.streams.block_codec import (
    HEAD_BYTES,
    MESSAGES,
    read_head,
    segment_first,
    segment_path,
)
from penstock.streams.reading import FILTER_BYTES_MAX, WINDOW_BYTES

COPIED_AT_ONCE: Final = 1024 * 1024
_NAME: Final = re.compile(r"(?:([0-9]{1,19})-)?([0-9]{1,19})\.(cut|gone)", re.ASCII)


class Cut(NamedTuple):
    """``offset``: from there on; -1 = it is done."""

    offset: int
    known: int


def cut_of(name: str) -> Cut | None:
    """What the name of a file says; None = some other file."""
    found = _NAME.fullmatch(name)
    if found is None or (found[1] is None) != (found[3] == "gone"):
        return None
    return Cut(-1 if found[1] is None else int(found[1]), int(found[2]))


def note_cut(files: FileSystem, directory: str, offset: i64, known: i64) -> None:
    """From here on ``give_up`` will do it, be it at the next start."""
    files.makedirs(directory)
    files.close(files.open_write(f"{directory}/{int(offset)}-{int(known)}.cut"))
    files.sync_dir(directory)


def give_up(files: FileSystem, directory: str, stream: i64) -> int:
    """Do what was noted; returns up to which offset it does not count what was on disk."""
    known = 0
    notes: list[str] = []
    for name in files.listdir(directory):
        cut = cut_of(name)
        if cut is None:
            continue
        known = max(known, cut.known)
        notes.append(name)
        if cut.offset >= 0:
            _cut(files, directory, stream, cut.offset)
    done = f"{known}.gone"
    if notes and notes != [done]:
        if done not in notes:
            files.rename(f"{directory}/{notes.pop()}", f"{directory}/{done}")
            files.sync_dir(directory)
        for name in notes:
            if name != done:
                files.remove(f"{directory}/{name}")
        files.sync_dir(directory)
    return known


def _cut(files: FileSystem, directory: str, stream: i64, offset: int) -> None:
    firsts = sorted([one for one in map(segment_first, files.listdir(directory)) if one >= 0])
    while firsts and firsts[-1] >= offset:
        files.remove(segment_path(directory, firsts.pop()))
    if firsts:
        path = segment_path(directory, firsts[-1])
        at = _place_of(files, path, stream, offset)
        if at == 0:
            files.remove(path)
        elif at < files.size(path):
            _shorten(files, path, at)
    files.sync_dir(directory)


def _shorten(files: FileSystem, path: str, size: int) -> None:
    """A new file takes its place: a backup may have a link to this one (``node/backup.py``)."""
    new = f"{path}.new"
    if files.exists(new):
        files.remove(new)  # of a cut that was interrupted
    handle = files.open_write(new)
    try:
        for at in range(0, size, COPIED_AT_ONCE):
            part = files.pread(path, at, min(COPIED_AT_ONCE, size - at))
            files.pwrite_parts(handle, at, [part])
        files.sync(handle)
    finally:
        files.close(handle)
    files.rename(new, path)


def _place_of(files: FileSystem, path: str, stream: i64, offset: int) -> int:
    """Where the block of that message begins; else the end of the file, or of its true blocks."""
    window = FileWindow(files, path, int(WINDOW_BYTES))
    size: i64 = files.size(path)
    at: i64 = 0
    while at < size:
        head = read_head(window.take(at, HEAD_BYTES + FILTER_BYTES_MAX), 0, at, stream, path)
        if head is None or head.end() > size:
            return int(size)  # torn, or damaged: the start looks at it
        if head.kind == MESSAGES and head.next_offset() > offset:
            return int(at)
        at = head.end()
    return int(size)
