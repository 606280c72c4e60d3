"""How a batch becomes a file of a table: once, whole, and before its messages are gone.

A table is a directory of Parquet files.  Spark calls the pipeline with a batch, and calls it
again with the same batch when it is not sure the first call succeeded.  One batch is one
file, named by the query's identity in the checkpoint and the batch's number there::

    orders-5f0c…-00000012.parquet        the file of batch 12
    _penstock/orders/checkpoint          Spark's notes: what was planned, what is committed
    _penstock/orders/staging             files that are being written
    _penstock/orders/lock                held by the one pipeline that may land here
    _penstock/orders/spark.log           what Spark has to say

Readers of tables skip names that begin with an underscore, and there is no other
bookkeeping: whoever lists the directory sees the table.

Landing batch n, and what a crash leaves:

    1  file exists already?  done          a crash came between 5 and Spark's commit log
    2  write staging/<random>/part.parquet  rubbish, swept at the next start
    3  fsync the file
    4  fsync the checkpoint's note of n     so that n means the same after a power failure
    5  rename to the final name, fsync the directory      the batch is in the table

Only after 5 does Spark write its commit log, and only after that does the source acknowledge
the messages.  The range of messages of batch n is fixed by the note of n and the queue's
sequence ids, so a second attempt would write the same rows: step 1 loses nothing.

Spark does not sync its notes.  After a power cut its last commit may be missing although the
batch has landed and its messages are gone (``landed_below`` tells the source that this is
no loss), and its last note of either kind may be half written (``mend_checkpoint``).
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from penstock.core.errors import PenstockError, ResourceLocked

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NAME_MAX = 100
OFFSET_LINE = 2
"""In Spark's note of a batch: line 0 a version, line 1 settings, then one line per source."""


class NotLocal(PenstockError):
    """A table on something else than a local file system."""


class Landed(NamedTuple):
    """What became of one batch."""

    batch: int
    messages: int
    file_bytes: int
    holes: int  # sequence ids of the range that hold no message
    before: bool  # an earlier run had landed it already


def local_path(text: str) -> Path:
    """A path of this machine, absolute; raises NotLocal for URLs."""
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", text):
        raise NotLocal(
            f"{text} is a URL: this release lands tables on local file systems only; "
            "give a plain path"
        )
    return Path(text).expanduser().absolute()


def file_name_of(vhost: str, queue: str) -> str:
    """A file name that says which queue, and that no table reader takes for a hidden one."""
    name = quote(queue if vhost == "/" else f"{vhost}.{queue}", safe="")
    if name[0] in "_.":
        name = f"%{ord(name[0]):02X}{name[1:]}"
    if len(name) > NAME_MAX:
        name = f"{name[:NAME_MAX]}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"
    return name


class Landing:
    """The place where one queue's batches land."""

    def __init__(self, table: Path, vhost: str, queue: str, checkpoint: Path | None) -> None:
        self.table = table
        self._name = file_name_of(vhost, queue)
        self.home = table / "_penstock" / self._name
        self.checkpoint = checkpoint or self.home / "checkpoint"
        self._staging = self.home / "staging"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One pipeline at a time; the kernel lets go when the process dies."""
        self.home.mkdir(parents=True, exist_ok=True)
        with (self.home / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ResourceLocked(
                    f"another pipeline is landing this queue in {self.table}"
                ) from None
            # What an earlier run was writing when it died; nobody else writes there now,
            # except its JVM in its last moments, and that has a directory of its own.
            shutil.rmtree(self._staging, ignore_errors=True)
            self._staging.mkdir(parents=True, exist_ok=True)
            yield

    def land(self, frame: "DataFrame", batch: int) -> Landed:
        """Put one batch into the table; may be called again with the same batch."""
        final = self._file_of(batch)
        if final.exists():
            return self._landed(final, batch, before=True)
        draft_dir = self._staging / uuid.uuid4().hex
        frame.coalesce(1).write.parquet(str(draft_dir))
        drafts = sorted(draft_dir.glob("part-*.parquet"))
        if len(drafts) > 1:
            raise AssertionError(f"one file was expected in {draft_dir}, not {len(drafts)}")
        if drafts:
            _sync(drafts[0])
            self._sync_note(batch)
            drafts[0].rename(final)
            _sync(self.table)
        shutil.rmtree(draft_dir, ignore_errors=True)
        return self._landed(final, batch, before=False)

    def query_id(self) -> str:
        """The identity Spark gave to this checkpoint; a new checkpoint is a new identity."""
        found: str = json.loads((self.checkpoint / "metadata").read_text())["id"]
        return found

    def planned_end(self, batch: int) -> int | None:
        """The sequence id behind the last message of a planned batch, from Spark's note."""
        try:
            lines = (self.checkpoint / "offsets" / str(batch)).read_text().splitlines()
            positions: dict[str, Any] = json.loads(lines[OFFSET_LINE])["q"]
        except FileNotFoundError:
            return None
        return int(next(iter(positions.values()))["seq"])

    def last_planned(self) -> int | None:
        """The number of the last batch Spark has planned in this checkpoint."""
        notes = self.checkpoint / "offsets"
        if not notes.is_dir():
            return None
        numbers = [int(note.name) for note in notes.iterdir() if note.name.isdigit()]
        return max(numbers, default=None)

    def landed_below(self) -> int:
        """Every message below is in the table, as far as the last planned batch tells."""
        last = self.last_planned()
        if last is None or not self._file_of(last).exists():
            return 0
        return self.planned_end(last) or 0

    def mend_checkpoint(self) -> None:
        """Take away what a power cut may have left half written.

        A half-written plan was not synced, so its batch has not landed: Spark plans it anew.
        A half-written commit makes Spark call again, and step 1 answers.  Hadoop's checksum
        files may be half written as well, and are not needed.
        """
        for notes in (self.checkpoint / "offsets", self.checkpoint / "commits"):
            if not notes.is_dir():
                continue
            for checksum in notes.glob(".*.crc"):
                checksum.unlink()
            numbers = [int(note.name) for note in notes.iterdir() if note.name.isdigit()]
            last = notes / str(max(numbers, default=0))
            if last.exists() and not _is_whole(last):
                last.unlink()

    def _file_of(self, batch: int) -> Path:
        return self.table / f"{self._name}-{self.query_id()}-{batch:08d}.parquet"

    def _landed(self, final: Path, batch: int, *, before: bool) -> Landed:
        from pyarrow import parquet

        if not final.exists():
            return Landed(batch, 0, 0, 0, before)
        footer = parquet.read_metadata(final)
        messages: int = footer.num_rows
        start = self.planned_end(batch - 1) if batch else _lowest_seq_id(footer)
        end = self.planned_end(batch)
        holes = 0 if start is None or end is None else end - start - messages
        return Landed(batch, messages, final.stat().st_size, holes, before)

    def _sync_note(self, batch: int) -> None:
        notes = self.checkpoint / "offsets"
        for directory, name in ((notes, str(batch)), (self.checkpoint, "metadata")):
            for file in (directory / name, directory / f".{name}.crc"):
                if file.exists():
                    _sync(file)
            _sync(directory)


def _is_whole(note: Path) -> bool:
    """Spark's notes are a version line and then JSON, line by line."""
    version, *lines = note.read_bytes().split(b"\n")
    try:
        values = [json.loads(line) for line in lines if line != b"-"]
    except ValueError:
        return False
    return version.startswith(b"v") and bool(values)


def _lowest_seq_id(footer: Any) -> int | None:
    """From the statistics of the column, so nothing is read."""
    lowest = []
    for group in range(footer.num_row_groups):
        for place in range(footer.num_columns):
            column = footer.row_group(group).column(place)
            if column.path_in_schema == "seq_id" and column.statistics is not None:
                lowest.append(column.statistics.min)
    return min(lowest, default=None)


def _sync(path: Path) -> None:
    """On disk, whoever wrote it."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
