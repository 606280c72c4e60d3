"""Spark's notes about a query's batches, in a checkpoint on a file system of this machine.

Spark writes what a batch is to hold (``offsets/N``) before it runs, and does not sync it.  After a
power cut the note may be gone: then Spark plans another batch of that number.  So its note is
brought to the disk (``sync_note``) before batch N is known elsewhere: to a table, to the broker.

    checkpoint/metadata        who the query is
    checkpoint/offsets/N       what was planned; ``.N.crc`` beside it
"""

import re
from pathlib import Path

from pyspark_penstock.durable import sync

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
    """Spark's note of the batch survives a power failure; one that is not here is not ours."""
    notes = (checkpoint / "offsets" / str(batch), checkpoint / "metadata")
    files = [file for note in notes for file in (note, note.with_name(f".{note.name}.crc"))]
    sync(*(file for file in files if file.exists()))
