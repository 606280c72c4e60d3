"""Durable means that this program has synced it, whichever library wrote it.

Spark, pyarrow and delta-rs write files and sync none of them.  What is acknowledged to the broker
is gone there, so a pipeline first syncs each file that the acknowledgement relies on: the file,
its directory and the directories above, whose names may be new as well.  Which of them are new
is not asked: a killed run may have made them and synced nothing.

A directory counts as far up as this process may have put a name into it: up to the mount point,
or below the first directory that it may not write.  An object store has no fsync: there its own
promise holds.
"""

import os
import re
from pathlib import Path
from typing import Final

_SYNCED_ABOVE: Final[set[Path]] = set()
"""Directories whose names this process has synced."""


def sync(*paths: Path) -> None:
    """The files or directories, then every directory above them; raises OSError."""
    for path in paths:
        sync_one(path)
    above = {parent for path in paths for parent in _changeable(path)}
    for directory in sorted(above - set(paths), key=lambda one: -len(one.parts)):
        sync_one(directory)


def sync_again(path: Path) -> None:
    """As ``sync``, for a file among many in one directory: what is above that is synced once."""
    sync_one(path)
    sync_one(path.parent)
    if path.parent not in _SYNCED_ABOVE:
        sync(path.parent)
        _SYNCED_ABOVE.add(path.parent)


def sync_one(path: Path) -> None:
    """A file or a directory without its name; raises OSError."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_synced(path: Path, text: str) -> None:
    """A whole file or none, whatever happens; its directories are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text)
    sync_one(draft)
    draft.replace(path)
    sync(path.parent)


def _changeable(path: Path) -> list[Path]:
    """The directories above in which this process may have made a name."""
    found = []
    place = path.absolute()
    while place != place.parent and not os.path.ismount(place):
        place = place.parent
        if not os.access(place, os.R_OK | os.W_OK):
            break
        found.append(place)
    return found


_CHECKPOINT = re.compile(r"(?:([^/:]*):)?(?://([^/]*))?(.*)", re.DOTALL)


def local_checkpoint(text: str) -> Path | None:
    """The directory that option ``checkpointLocation`` names; None where it is no plain one.

    It is read as Spark does, which knows no URL here but a path: nothing in it is escaped, and
    ``%20``, ``?`` and ``#`` are part of a name.
    """
    parts = _CHECKPOINT.fullmatch(text)
    assert parts is not None  # everything matches
    scheme, host, path = parts.groups()
    is_local = (scheme or "file").lower() == "file" and not host
    return Path(path).absolute() if is_local and path else None


def sync_note(checkpoint: Path, batch: int) -> None:
    """Spark's note of the batch survives a power failure; one that is not here is not ours.

    Spark writes what a batch is to hold before it runs, and does not sync it: without its note
    Spark plans another batch of that number.  So this comes before the batch is known elsewhere, to
    a table or to the broker.
    """
    notes = (checkpoint / "offsets" / str(batch), checkpoint / "metadata")
    files = [file for note in notes for file in (note, note.with_name(f".{note.name}.crc"))]
    sync(*(file for file in files if file.exists()))
