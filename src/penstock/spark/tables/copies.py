"""A table of an object store as plain files of this machine, for a Spark that cannot read stores.

In: a table, and the times that are wanted.  Out: a directory of Parquet files, in directories of
their partitions where the table says values that the files have not (``day=2026-11-21``).  Files
whose footer says that all their messages came at other times are left out, but for the first, which
has the columns.  The directory is there when all of it is on disk.

A file that would leave less than ``ROOM_LEFT_BYTES`` of the disk is not copied: a broker may need
the same disk.
"""

import errno
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from shutil import copyfileobj, disk_usage, rmtree
from typing import TYPE_CHECKING

from penstock.spark.tables.additions import additions, stream_of
from penstock.spark.tables.delta import times_in
from penstock.spark.tables.landing import LakeTable
from pyspark_penstock.durable import sync, sync_again
from pyspark_penstock.table_files import directory_of

if TYPE_CHECKING:
    from pyarrow import NativeFile


ROOM_LEFT_BYTES = 1 << 30
SAY_EVERY_S = 5.0


def copy_table(
    table: LakeTable,
    place: Path,
    since: datetime | None,
    until: datetime | None,
    say: Callable[[str], None],
) -> None:
    """What is at ``place`` is replaced; ``say`` gets a line each few seconds and one at the end.

    Raises OSError (``ENOSPC`` before the disk is full), CannotFollow, ValueError.
    """
    rmtree(place, ignore_errors=True)
    draft = place.with_name(f"{place.name}.draft")
    rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    files = additions(table, None, skip_changes=True).files
    copied = copied_bytes = 0
    said_s = time.monotonic()
    for number, one in enumerate(files):
        directory = draft / directory_of(tuple(one.values), tuple(one.values.values()))
        with stream_of(table, one.path) as stream:
            if number and not _may_have(stream, since, until):
                continue
            size = stream.size()
            _check_room(draft, size)
            directory.mkdir(parents=True, exist_ok=True)
            file = directory / f"{number:06d}.parquet"
            with file.open("wb") as copy:
                copyfileobj(stream, copy)
            sync_again(file)
        copied, copied_bytes = copied + 1, copied_bytes + size
        if time.monotonic() - said_s >= SAY_EVERY_S:
            said_s = time.monotonic()
            say(f"file {number + 1} of {len(files)}: {copied_bytes / 1e6:,.0f} MB copied")
    say(f"{copied} of {len(files)} files copied: {copied_bytes / 1e6:,.0f} MB")
    draft.rename(place)
    sync(place.parent)


def _check_room(place: Path, size_bytes: int) -> None:
    free = disk_usage(place).free
    if free - size_bytes < ROOM_LEFT_BYTES:
        text = (
            f"a copy of {size_bytes:,} bytes would leave less than 1 GiB of the {free:,} free ones"
        )
        raise OSError(errno.ENOSPC, text, str(place))


def _may_have(stream: "NativeFile", since: datetime | None, until: datetime | None) -> bool:
    """Whether there may be messages of that time; the stream is where it was."""
    from pyarrow import parquet

    times = None if since is None and until is None else times_in(parquet.read_metadata(stream))
    stream.seek(0)
    if times is None or times[0].tzinfo is None:
        return True
    first, last = times
    return (since is None or last >= since) and (until is None or first < until)
