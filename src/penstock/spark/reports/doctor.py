"""What is wrong with a table, a pipeline's place and its queue, and the command that mends it.

Nothing is changed, and no Spark is started.  In: a table, or a directory of a checkpoint, and a
way to look at queues.  Out: ``Finding``s, the worst of which are ``ERROR``: a pipeline will not
go on, or a reader fails.
"""

import fcntl
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from penstock.core.errors import PenstockError
from penstock.spark.launcher.failures import IN_COMMANDS
from penstock.spark.state import notes
from penstock.spark.tables.iceberg import IcebergTable
from penstock.spark.tables.landing import LakeTable
from penstock.spark.tables.publishing import STAGING
from penstock.spark.tables.store import Store, StoreTable
from penstock.spark.tables.table import DELTA, NOTE, PARQUET, Table, data_files
from penstock_ranges import frames
from penstock_ranges.ranges import Opened
from pyspark_penstock.claims import TERM_SHIFT
from pyspark_penstock.client import ConnectionLost, Refused
from pyspark_penstock.planner import cure_of

ERROR, WARNING, NOTED = "error", "warning", "note"
SMALL_BYTES: Final = 64 << 20
SMALL_FILES: Final = 100
SNAPSHOTS: Final = 1000
MAGIC: Final = b"PAR1"
MEND_LOG: Final = "restore _delta_log from a backup; its entries name the files of the table"
AGAIN: Final = "run the pipeline's command again"
GO_ON: Final = f"{AGAIN} with --accept-data-loss, which goes on with what is there"


class Finding(NamedTuple):
    level: str
    subject: str
    text: str
    cure: str


Look = Callable[[str], Opened]
"""A queue as it is; raises Refused, ConnectionLost."""


def examine_table(table: LakeTable, look: Look | None) -> Iterator[Finding]:
    """``look`` None: the broker is not asked."""
    if isinstance(table, StoreTable):
        yield from _store(table)
    elif isinstance(table, Table):
        yield from _directory(table)
    elif isinstance(table, IcebergTable):
        yield from _iceberg(table)
    homes = sorted(table.home.iterdir()) if table.home.is_dir() else []
    for home in [table.home, *homes]:
        if (home / "checkpoint").is_dir():
            yield from examine_place(home, look)


# -- tables ----------------------------------------------------------------------------------


def _directory(table: Table) -> Iterator[Finding]:
    try:
        files = list(data_files(table.directory))
    except Exception as error:  # noqa: BLE001 - the library has kinds of its own for a broken log
        yield Finding(ERROR, str(table), f"the log of Delta cannot be read: {error}", MEND_LOG)
        return
    if not files and not table.home.is_dir():
        yield Finding(ERROR, str(table), "there is no table", "correct the path")
        return
    if not (table.home / NOTE).exists():
        cure = "archive into it once; a table of another program is compacted by that program"
        yield Finding(WARNING, str(table), "no pipeline has begun it, compact refuses it", cure)
    for file in files:
        fault = _fault(file)
        if fault:
            kind = "restore it" if table.format == DELTA else "restore it, or move it away"
            yield Finding(ERROR, str(file), fault, f"{kind}: every reader of the table fails at it")
    small = sum(1 for file in files if file.exists() and file.stat().st_size < SMALL_BYTES)
    if small > SMALL_FILES:
        flat = table.format == PARQUET and not any(f.parent != table.directory for f in files)
        cure = f"penstock pipeline compact --table {table.directory}"
        if flat:
            cure = "it has no partitions: begin another with --partition-by day, or --format delta"
        yield Finding(WARNING, str(table), f"{small} files are small", cure)
    left = table.home / "compacting"
    if left.is_dir() and any(left.iterdir()):
        cure = f"penstock pipeline compact --table {table.directory}"
        yield Finding(NOTED, str(left), "a compaction was killed, or runs", cure)


def _store(table: StoreTable) -> Iterator[Finding]:
    """Raises OSError when the store is away, or says no.  An object is whole or is not there."""
    try:
        files = {path.partition("://")[2] for path in table.files()}
    except OSError:
        raise
    except Exception as error:  # noqa: BLE001 - the library has kinds of its own for a broken log
        yield Finding(ERROR, str(table), f"the log of Delta cannot be read: {error}", MEND_LOG)
        return
    if not files:
        yield Finding(ERROR, str(table), "there is no table", "correct the URL")
        return
    if not (table.home / NOTE).exists():
        cure = f"examine it on the machine that archives into it: its place is below {table.home}"
        yield Finding(NOTED, str(table), "no pipeline of this machine has begun it", cure)
    sizes = {one.path: one.size for one in Store(table.url).listed()}
    for path in sorted(files - sizes.keys()):
        cure = "restore it: every reader of the table fails at it"
        yield Finding(ERROR, path, "the log names it, and it is not there", cure)
    small = sum(1 for path in files & sizes.keys() if sizes[path] < SMALL_BYTES)
    if small > SMALL_FILES:
        cure = "plain files of a store stay as they are: begin another table with --format delta"
        if table.format == DELTA:
            cure = f"penstock pipeline compact --table {table}"
        yield Finding(WARNING, str(table), f"{small} files are small", cure)


def _fault(file: Path) -> str:
    """A file of Parquet begins and ends with the same four octets."""
    try:
        with file.open("rb") as data:
            head = data.read(4)
            size = data.seek(0, 2)
            data.seek(max(size - 4, 0))
            tail = data.read(4)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return "" if head == tail == MAGIC and size > 2 * len(MAGIC) else "is no whole Parquet file"


def _iceberg(table: IcebergTable) -> Iterator[Finding]:
    try:
        opened = table.opened()
    except PenstockError as error:
        yield Finding(ERROR, str(table), str(error), getattr(error, "fix", ""))
        return
    if opened is None:
        cure = "correct --table and --catalog; an archive makes it"
        yield Finding(ERROR, str(table), "the catalog has no such table", cure)
        return
    cure = f"penstock pipeline compact --table {table.name} --vacuum-hours 168, and its catalog"
    count = len(opened.metadata.snapshots)
    if count > SNAPSHOTS:
        yield Finding(WARNING, str(table), f"{count} snapshots make each commit longer", cure)
    sizes = [task.file.file_size_in_bytes for task in opened.scan().plan_files()]
    small = sum(1 for size in sizes if size < SMALL_BYTES)
    if small > SMALL_FILES:
        yield Finding(WARNING, str(table), f"{small} files are small", cure)


# -- places ----------------------------------------------------------------------------------


def examine_place(home: Path, look: Look | None) -> Iterator[Finding]:
    """``home/checkpoint`` has Spark's notes, ``home/lock`` is held while a pipeline runs."""
    checkpoint = home / "checkpoint"
    runs = _is_held(home / "lock")
    last = notes.last_planned(checkpoint)
    if runs:
        yield Finding(NOTED, str(home), "a pipeline runs here", "")
    else:
        yield from _leavings(home, checkpoint, last)
    if last is None:
        return
    try:
        notes.query_id(checkpoint)
        places = notes.planned_places(checkpoint, last)
    except (OSError, ValueError, LookupError) as error:
        text = f"Spark's notes cannot be read: {type(error).__name__} {error}"
        cure = f"{AGAIN}: it mends half-written ones; else restore {checkpoint} from a backup"
        yield Finding(ERROR, str(checkpoint), text, cure)
        return
    if look is None:
        return
    for queue, (incarnation, seq_id) in places.items():
        yield from _queue(look, queue, incarnation, seq_id, settled=not _is_open(checkpoint))


def _leavings(home: Path, checkpoint: Path, last: int | None) -> Iterator[Finding]:
    drafts = [*checkpoint.glob("*/.*.tmp")]
    if drafts:
        text = f"a kill has left {len(drafts)} drafts of Spark's notes"
        yield Finding(WARNING, str(checkpoint), text, f"{AGAIN}: it removes them")
    if last is not None and _is_open(checkpoint):
        text = f"batch {last} was planned, and Spark does not know that it is done"
        yield Finding(NOTED, str(checkpoint), text, f"{AGAIN}: it finishes that batch first")
    staged = [file for file in (home / STAGING).rglob("*") if file.is_file()]
    if staged:
        size = sum(file.stat().st_size for file in staged)
        text = f"a killed run has left {len(staged)} drafts of {size} bytes"
        yield Finding(WARNING, str(home / STAGING), text, f"{AGAIN}: it removes them")
    for note in sorted((home / "landed").glob("*.json")):
        try:
            json.loads(note.read_text())
        except ValueError:
            cure = (
                "restore it from a backup, or empty the file system's lost blocks and ask for help"
            )
            yield Finding(ERROR, str(note), "the note of a decided batch cannot be read", cure)


def _is_open(checkpoint: Path) -> bool:
    return notes.unsettled(checkpoint) is not None


def _is_held(lock: Path) -> bool:
    try:
        with lock.open("r") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


# -- queues ----------------------------------------------------------------------------------


def _queue(
    look: Look, queue: str, incarnation: str, seq_id: int, *, settled: bool
) -> Iterator[Finding]:
    """``seq_id``: behind the last message of the last planned batch."""
    subject = f"queue '{queue}'"
    try:
        opened = look(queue)
    except ConnectionLost as error:
        yield Finding(ERROR, subject, str(error), "start the broker, or name it by --url")
        return
    except Refused as error:
        cure = cure_of(error, IN_COMMANDS)
        if error.code == frames.NOT_FOUND:
            cure = f"declare it, then {GO_ON}"
        yield Finding(ERROR, subject, str(error), cure)
        return
    head = opened.head
    if opened.incarnation != incarnation:
        text = "it was deleted and declared again since the last batch"
        yield Finding(ERROR, subject, text, GO_ON)
    elif head.next_seq < seq_id:
        text = f"its broker is older than the table: it ends at {head.next_seq}, not {seq_id}"
        yield Finding(ERROR, subject, text, GO_ON)
    elif settled and head.floor > seq_id and not _next_master(seq_id, head.floor):
        text = f"others have taken what is between {seq_id} and {head.floor}, or it expired"
        yield Finding(WARNING, subject, text, f"{AGAIN}; if it refuses, {GO_ON}")


def _next_master(seq_id: int, floor: int) -> bool:
    """A new master numbers on from a multiple: what lies between was never given."""
    return seq_id >> TERM_SHIFT != floor >> TERM_SHIFT


def worst(findings: Sequence[Finding]) -> str:
    levels = {finding.level for finding in findings}
    return next((level for level in (ERROR, WARNING, NOTED) if level in levels), "")
