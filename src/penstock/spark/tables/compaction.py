"""Many small files of a table become few large ones, while others write and read it.

A pipeline that lands a batch every few seconds leaves thousands of files, and readers pay for
each.  Compaction copies them together, in the order of their names, which is the queue's.  How
Iceberg tables are compacted is in ``iceberg_upkeep``.

**Delta** has a log: the copies replace the originals in one transaction of it, readers of the
old version go on with the old files, and ``vacuum`` removes those a week later.  Copies and log
are synced before it runs, with all that the table names: a killed run may have synced nothing.

In an object store (``store``) nothing is synced, and plain files stay: it exchanges nothing.

**Plain Parquet** has none.  A rename moves one name, so "these ten go, this one comes" cannot be
done by renames without a moment in which a reader who lists the directory sees messages twice
or not at all.  Linux can exchange two *directories* atomically
(``renameat2`` with RENAME_EXCHANGE).  So a partition is compacted as a whole:

    1  under ``_penstock/compacting/<random>`` write the large files, sync them      rubbish
    2  alone (``publish.lock``): finish what killed pipelines had decided, link every file that
       came since, or is large enough, beside them, sync, exchange the two directories
                                                               *the partition is compacted*
    3  remove what is now the old directory                                          rubbish

Rubbish is all a crash leaves; the next compaction sweeps it.  Adding a file takes the same
lock (shared) for the milliseconds its renames take, so none lands in a directory that has just
become the old one.

A reader sees the files before or the files after.  One that listed the directory before the
exchange and opens a file after it gets "no such file": an error it can repeat, never a wrong
answer; readers that must not see even that want Delta.

What follows, and is refused with these words: a table that others write or list (Spark's own,
Iceberg's) is not ours to exchange, since they know nothing of the lock; a table without partitions
keeps its files beside its notes, and that directory cannot be exchanged under a running pipeline;
and the file system must know how to exchange (ext4, xfs, btrfs, tmpfs do; NFS does not).
"""

import ctypes
import errno
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.core.errors import PenstockError
from penstock.spark.state.places import alone
from penstock.spark.tables.landing import LakeTable
from penstock.spark.tables.publishing import place_decided, publish_lock
from penstock.spark.tables.store import StoreTable
from penstock.spark.tables.store_races import check_refusals
from penstock.spark.tables.table import DELTA, ICEBERG, NOTE, PARQUET, Table, any_file, data_files
from pyspark_penstock.durable import sync, sync_one
from pyspark_penstock.table_files import DICTIONARY

AT_FDCWD = -100
RENAME_EXCHANGE = 2
ROWS_AT_ONCE = 8192
ROW_GROUP_BYTES = 32 << 20
LARGE_SHARE = 0.5
"""A file of so much of the wanted size is left alone."""
FILES_MIN = 2


class NotCompactable(PenstockError):
    fix = "archive with --partition-by day, or --format delta"


class ForeignFiles(NotCompactable):
    """Its writers do not hold our lock, and its lists of files would name what is gone."""

    fix = "compact it with the program that writes it"


OnPartition = Callable[[str, int, int], None]
"""Hears of each partition: its name, how many files it had and has."""


@dataclass
class Compacted:
    partitions: int = 0
    files_before: int = 0
    files_after: int = 0
    messages: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    removed: int = 0  # files that a vacuum took away

    def partition(self, before: list[int], after: list[int], messages: int = 0) -> None:
        """One more partition: the sizes of its files before and after, and what they hold."""
        self.partitions += 1
        self.files_before += len(before)
        self.files_after += len(after)
        self.messages += messages
        self.bytes_before += sum(before)
        self.bytes_after += sum(after)


def compact(
    table: LakeTable,
    file_bytes: int,
    on_partition: OnPartition,
    *,
    vacuum_hours: float | None = None,
    only_plan: bool = False,
) -> Compacted:
    run: Any = {PARQUET: _compact_plain, DELTA: _compact_delta, ICEBERG: _compact_iceberg}[
        table.format
    ]
    done: Compacted = run(table, file_bytes, on_partition, vacuum_hours, only_plan=only_plan)
    return done


def _compact_iceberg(table: Any, *wanted: Any, only_plan: bool) -> Compacted:
    from penstock.spark.tables.iceberg_upkeep import compact_iceberg

    return compact_iceberg(table, *wanted, only_plan=only_plan)


# -- plain Parquet -----------------------------------------------------------------------------


def _compact_plain(
    table: Any,
    file_bytes: int,
    on_partition: OnPartition,
    _vacuum_hours: float | None,
    *,
    only_plan: bool,
) -> Compacted:
    if isinstance(table, StoreTable):
        raise NotCompactable(f"{table} is in an object store, which exchanges no directories")
    directory = table.directory
    if any_file(directory) is None:
        raise NotCompactable(f"{directory} holds no Parquet files")
    if not (table.home / NOTE).is_file():
        raise ForeignFiles(
            f"{directory} was not begun by 'penstock pipeline archive': files that others add"
            " meanwhile would be lost"
        )
    done = Compacted()
    with _alone(table) as scratch:
        for place in _leaves(directory):
            if place == directory:
                raise NotCompactable(
                    f"{directory} has no partitions: its files are beside its notes, and cannot be "
                    "exchanged atomically; a table that 'penstock pipeline archive' began with "
                    "--partition-by or --format delta can be compacted"
                )
            small = _small_files(place, file_bytes)
            if len(small) < FILES_MIN:
                continue
            name = str(place.relative_to(directory))
            if only_plan:
                done.partition([path.stat().st_size for path in small], [])
            else:
                made = _compact_partition(table, place, small, file_bytes, scratch, done)
                on_partition(name, len(small), made)
    return done


@contextmanager
def _alone(table: Table) -> Iterator[Path]:
    """One compaction at a time; what an earlier one left is swept."""
    refusal = f"another compaction of {table.directory} is running"
    scratch = table.home / "compacting"
    with alone(table.home / "compact.lock", refusal):
        scratch.mkdir(exist_ok=True)
        for rubbish in scratch.iterdir():
            shutil.rmtree(rubbish)
        yield scratch


def _leaves(directory: Path) -> Iterator[Path]:
    for place, directories, names in os.walk(directory):
        directories[:] = sorted(d for d in directories if d[0] not in "_.")
        if any(name.endswith(".parquet") for name in names):
            yield Path(place)


def _small_files(place: Path, file_bytes: int) -> list[Path]:
    files = sorted(path for path in place.glob("*.parquet") if path.name[0] not in "_.")
    return [path for path in files if path.stat().st_size < file_bytes * LARGE_SHARE]


def _compact_partition(
    table: Table, place: Path, small: list[Path], file_bytes: int, scratch: Path, done: Compacted
) -> int:
    if any(path.is_dir() for path in place.iterdir()):
        raise NotCompactable(f"{place} holds files and directories: it is no table of one kind")
    sizes = [path.stat().st_size for path in small]
    draft = scratch / uuid.uuid4().hex
    draft.mkdir()
    made, rows = _merged(small, draft, file_bytes)
    if rows != sum(_rows_of(path) for path in small):
        raise AssertionError(f"{place} holds other messages than its files said")
    with publish_lock(table, alone=True):
        for notes in table.home.glob("*/landed"):
            place_decided(table, notes)  # a note must not look for files that are merged here
        _link_the_others(place, draft, {path.name for path in small})
        sync(draft)
        exchange(draft, place)
        sync(place, scratch)
    done.partition(sizes, [(place / path.name).stat().st_size for path in made], rows)
    shutil.rmtree(draft)  # the old one, now
    return len(made)


def _link_the_others(place: Path, draft: Path, merged: set[str]) -> None:
    """What stays as it is belongs to both directories for a moment."""
    for path in place.iterdir():
        if path.name not in merged:
            os.link(path, draft / path.name)


def _rows_of(path: Path) -> int:
    from pyarrow import parquet

    rows: int = parquet.read_metadata(path).num_rows
    return rows


def _merged(small: list[Path], draft: Path, file_bytes: int) -> tuple[list[Path], int]:
    import pyarrow as pa
    from pyarrow import parquet

    stem = small[0].stem.partition("-compact-")[0]
    merger = Merger(stem, file_bytes, lambda name: pa.OSFile(str(draft / name), "wb"))
    for path in small:
        with parquet.ParquetFile(path) as source:
            merger.follow(source)
            for rows in source.iter_batches(ROWS_AT_ONCE):
                merger.add(rows)
    made = [draft / name for name in merger.close()]
    for path in made:
        sync_one(path)
    return made, merger.rows


class Merger:
    """Writes rows into files of a size; a file of another schema begins another.

    ``create`` makes a file of a name, for pyarrow to write into.
    """

    def __init__(self, stem: str, file_bytes: int, create: Callable[[str], Any]) -> None:
        self._create = create
        self._stem = stem
        self._file_bytes = file_bytes
        self._schema: Any = None
        self._compression = "zstd"
        self._writer: Any = None
        self._sink: Any = None
        self._waiting: list[Any] = []
        self._waiting_bytes = 0
        self._made: list[str] = []
        self.rows = 0

    def follow(self, source: Any) -> None:
        """What comes next is from this file: it has a schema and a compression."""
        if self._schema is not None and not source.schema_arrow.equals(
            self._schema, check_metadata=True
        ):
            self._finish()
        self._schema = source.schema_arrow
        if source.metadata.num_row_groups:
            kind = source.metadata.row_group(0).column(0).compression
            self._compression = "none" if kind == "UNCOMPRESSED" else kind

    def add(self, rows: Any) -> None:
        self.rows += rows.num_rows
        self._waiting.append(rows)
        self._waiting_bytes += rows.nbytes
        if self._waiting_bytes >= min(ROW_GROUP_BYTES, self._file_bytes):
            self._flush()
            if self._sink.tell() >= self._file_bytes:
                self._finish()

    def close(self) -> list[str]:
        self._finish()
        return self._made

    def _flush(self) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        if not self._waiting:
            return
        if self._writer is None:
            # A new name: a reader must never find other contents under one it has seen.
            name = f"{self._stem}-compact-{uuid.uuid4().hex[:12]}.parquet"
            self._made.append(name)
            self._sink = self._create(name)
            self._writer = parquet.ParquetWriter(
                self._sink,
                self._schema,
                compression=self._compression,
                use_dictionary=[name for name in DICTIONARY if name in self._schema.names],
            )
        self._writer.write_table(pa.Table.from_batches(self._waiting))
        self._waiting, self._waiting_bytes = [], 0

    def _finish(self) -> None:
        self._flush()
        if self._writer is not None:
            self._writer.close()
            self._sink.close()
        self._writer = None


def exchange(one: Path, other: Path) -> None:
    """Both names atomically; raises NotCompactable where the file system cannot."""
    libc = ctypes.CDLL(None, use_errno=True)
    arguments = (AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE)
    try:
        failed = libc.renameat2(*arguments)
    except AttributeError:
        raise NotCompactable("this system cannot exchange directories (renameat2)") from None
    if failed:
        code = ctypes.get_errno()
        if code in (errno.EINVAL, errno.ENOSYS, errno.EXDEV, errno.EOPNOTSUPP):
            raise NotCompactable(f"the file system of {other} cannot exchange directories")
        raise OSError(code, os.strerror(code), str(other))


# -- Delta -------------------------------------------------------------------------------------


def _compact_delta(
    place: Any,
    file_bytes: int,
    _on_partition: OnPartition,
    vacuum_hours: float | None,
    *,
    only_plan: bool,
) -> Compacted:
    from penstock.spark.tables.delta import check_deltalake, sync_log

    check_deltalake()
    from deltalake import DeltaTable

    table = DeltaTable(place.uri)
    if only_plan:
        files = len(table.file_uris())
        return Compacted(files_before=files, files_after=files)
    if isinstance(place, StoreTable):
        check_refusals(place)
    told = table.optimize.compact(target_size=file_bytes)
    if not isinstance(place, StoreTable):
        # deltalake syncs nothing, and what the copies replace may go next
        sync(*data_files(place.directory))
        sync_log(place.directory)
    removed = []
    if vacuum_hours is not None:
        removed = table.vacuum(retention_hours=int(vacuum_hours), dry_run=False)
        if not isinstance(place, StoreTable):
            sync_log(place.directory)
    return Compacted(
        partitions=told["partitionsOptimized"],
        files_before=told["numFilesRemoved"],
        files_after=told["numFilesAdded"],
        bytes_before=_total(told["filesRemoved"]),
        bytes_after=_total(told["filesAdded"]),
        removed=len(removed),
    )


def _total(told: Any) -> int:
    """The sum of sizes in what Delta says about files, as text or as a dictionary."""
    found = json.loads(told) if isinstance(told, str) else told
    return int(found.get("totalSize") or 0)
