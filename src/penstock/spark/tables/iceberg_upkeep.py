"""Small files of an Iceberg table become large ones, and what no snapshot needs is removed.

Compaction is one commit, which takes files out and puts their copies in; readers of older
snapshots go on with the old files.  When another commit has taken out one of those files
meanwhile, nothing is exchanged, and the copies are removed.

Vacuum takes out the snapshots that are older than asked, but for the newest one and those with a
name.  Then the files are removed that they have and no other snapshot has.
"""

import uuid
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from penstock.spark.tables.compaction import (
    FILES_MIN,
    LARGE_SHARE,
    ROWS_AT_ONCE,
    Compacted,
    Merger,
    OnPartition,
)
from penstock.spark.tables.iceberg import IcebergTable, commit_to, described
from penstock.spark.tables.table import OtherTable

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile, ManifestFile
    from pyiceberg.table import Table as OpenTable
    from pyiceberg.table import Transaction
    from pyiceberg.table.snapshots import Snapshot


def compact_iceberg(
    place: IcebergTable,
    file_bytes: int,
    on_partition: OnPartition,
    vacuum_hours: float | None,
    *,
    only_plan: bool,
) -> Compacted:
    """All partitions in one commit; raises OtherTable when there is no such table."""
    table = place.opened()
    if table is None:
        raise OtherTable(f"there is no {place}")
    done = Compacted()
    old: list[DataFile] = []
    new: list[DataFile] = []
    for files in _small_files(table, file_bytes):
        copies = [] if only_plan else _copies(table, files, file_bytes)
        sizes, sizes_after = ([one.file_size_in_bytes for one in some] for some in (files, copies))
        done.partition(sizes, sizes_after, sum(one.record_count for one in copies))
        if not only_plan:
            on_partition(str(files[0].partition), len(files), len(copies))
        old, new = [*old, *files], [*new, *copies]
    if only_plan:
        return done
    if new and not _exchanged(place, old, new):
        _remove(table.io, {one.file_path for one in new})
        done = Compacted()
    if vacuum_hours is not None:
        return replace(done, removed=_vacuumed(place, timedelta(hours=vacuum_hours)))
    return done


def _small_files(table: "OpenTable", file_bytes: int) -> list[list["DataFile"]]:
    """Those of each partition in the order they came; files with deleted rows are left alone."""
    found: dict[tuple[Any, ...], list[DataFile]] = defaultdict(list)
    for task in table.scan().plan_files():
        one = task.file
        small = one.file_size_in_bytes < file_bytes * LARGE_SHARE
        if small and not task.delete_files and one.spec_id == table.spec().spec_id:
            found[tuple(one.partition[place] for place in range(len(one.partition)))].append(one)
    return [
        sorted(files, key=lambda one: one.file_path)
        for files in found.values()
        if len(files) >= FILES_MIN
    ]


def _copies(table: "OpenTable", files: list["DataFile"], file_bytes: int) -> list["DataFile"]:
    from pyarrow import parquet

    directory = f"{table.location().rstrip('/')}/data/compacted/{uuid.uuid4().hex}"
    merger = Merger(
        "rows", file_bytes, lambda name: table.io.new_output(f"{directory}/{name}").create()
    )
    for one in files:
        with table.io.new_input(one.file_path).open() as stream:
            source = parquet.ParquetFile(stream)
            merger.follow(source)
            for rows in source.iter_batches(ROWS_AT_ONCE):
                merger.add(rows)
    names = merger.close()
    if merger.rows != sum(one.record_count for one in files):
        raise AssertionError(f"{files[0].file_path} holds other messages than its table says")
    return [described(table, f"{directory}/{name}", files[0].partition) for name in names]


def _exchanged(place: IcebergTable, old: list["DataFile"], new: list["DataFile"]) -> bool:
    """In one commit; False = one of the old files is no longer in the table."""
    gone = {one.file_path for one in old}

    def change(table: "OpenTable", commit: "Transaction") -> bool:
        tasks = list(table.scan().plan_files())
        there = {task.file.file_path for task in tasks if not task.delete_files}
        if not gone <= there:
            return False
        with commit.update_snapshot().overwrite() as exchange:
            for one in old:
                exchange.delete_data_file(one)
            for one in new:
                exchange.append_data_file(one)
        return True

    return commit_to(place, change)


def _vacuumed(place: IcebergTable, age: timedelta) -> int:
    from pyiceberg.table.update.snapshot import ExpireSnapshots

    oldest_ms = (datetime.now(UTC) - age).timestamp() * 1000
    expired: list[Snapshot] = []

    def change(table: "OpenTable", commit: "Transaction") -> bool:
        kept = {ref.snapshot_id for ref in table.metadata.refs.values()}
        expired[:] = [
            one
            for one in table.snapshots()
            if one.timestamp_ms < oldest_ms and one.snapshot_id not in kept
        ]
        if expired:
            ExpireSnapshots(commit).by_ids([one.snapshot_id for one in expired]).commit()
        return bool(expired)

    if not commit_to(place, change):
        return 0
    table = place.opened()
    assert table is not None
    unused = _files_of(table.io, expired) - _files_of(table.io, table.snapshots())
    return _remove(table.io, unused)


def _files_of(files: "FileIO", snapshots: Iterable["Snapshot"]) -> set[str]:
    found = set()
    manifests: dict[str, ManifestFile] = {}
    for one in snapshots:
        found.add(one.manifest_list)
        manifests |= {manifest.manifest_path: manifest for manifest in one.manifests(files)}
    for manifest in manifests.values():
        found |= {one.data_file.file_path for one in manifest.fetch_manifest_entry(files)}
    return found | manifests.keys()


def _remove(files: "FileIO", locations: set[str]) -> int:
    """What a store does not let us remove stays."""
    removed = 0
    for location in locations:
        with suppress(OSError):
            files.delete(location)
            removed += 1
    return removed
