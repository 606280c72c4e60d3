"""Spark's notes in the checkpoint of a query: read, and mended after a power cut.

    checkpoint/metadata     who the query is
    checkpoint/offsets/N    what batch N is to hold; synced before the batch is published
    checkpoint/commits/N    batch N is done; never synced

So after a power cut the last commits may be missing, and either kind of note may be half written.
"""

import json
from pathlib import Path
from typing import Any

OFFSET_LINE = 2
"""In Spark's note of a batch: line 0 a version, line 1 settings, then one line per source."""


def query_id(checkpoint: Path) -> str:
    """The identity Spark gave to this checkpoint; a new checkpoint is a new identity."""
    found: str = json.loads((checkpoint / "metadata").read_text())["id"]
    return found


def planned_ends(checkpoint: Path, batch: int) -> dict[str, int]:
    """Per queue the sequence id behind the last message of a planned batch."""
    return {queue: seq for queue, (_, seq) in planned_places(checkpoint, batch).items()}


def planned_places(checkpoint: Path, batch: int) -> dict[str, tuple[str, int]]:
    """Per queue its incarnation, and the sequence id behind the last message of a planned batch."""
    try:
        lines = (checkpoint / "offsets" / str(batch)).read_text().splitlines()
    except FileNotFoundError:
        return {}
    positions: dict[str, Any] = json.loads(lines[OFFSET_LINE])["q"]
    return {queue: (place["inc"], int(place["seq"])) for queue, place in positions.items()}


def last_planned(checkpoint: Path) -> int | None:
    """The number of the last batch Spark has planned in this checkpoint."""
    planned = checkpoint / "offsets"
    if not planned.is_dir():
        return None
    numbers = [int(note.name) for note in planned.iterdir() if note.name.isdigit()]
    return max(numbers, default=None)


def unsettled(checkpoint: Path) -> int | None:
    """The last planned batch, if Spark does not know that it is done."""
    last = last_planned(checkpoint)
    return None if last is None or (checkpoint / "commits" / str(last)).exists() else last


def mend(checkpoint: Path) -> None:
    """Take away what a kill or a power cut may have left half written.

    A half-written plan was not synced, so its batch was not published: Spark plans it anew.
    Half-written commits make Spark call again with the last plan, and the publisher answers;
    they may be several, since they are not synced and a file system may write contents half a
    minute after names.  Hadoop's checksum files may be half written as well, and are not
    needed.  A kill leaves drafts of notes (``.0.<uuid>.tmp``), which Spark never finishes; it
    refuses a checkpoint that has one before batch 0.  The caller alone uses the checkpoint.
    """
    for kept in (checkpoint / "offsets", checkpoint / "commits"):
        if not kept.is_dir():
            continue
        for rubbish in (*kept.glob(".*.crc"), *kept.glob(".*.tmp")):
            rubbish.unlink()
        for note in sorted(kept.iterdir(), key=_number, reverse=True):
            if _number(note) < 0 or _is_whole(note):
                break
            note.unlink()


def _number(note: Path) -> int:
    """Of a batch; -1 = the file is something else."""
    return int(note.name) if note.name.isdigit() else -1


def _is_whole(note: Path) -> bool:
    """Spark's notes are a version line and then JSON, line by line."""
    version, *lines = note.read_bytes().split(b"\n")
    try:
        values = [json.loads(line) for line in lines if line != b"-"]
    except ValueError:
        return False
    return version.startswith(b"v") and bool(values)
