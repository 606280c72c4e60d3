"""What came into a table since a position: its new files, in the order of the commits.

In: a table, and where a reader of its additions is (None = at the beginning).  Out: files, and the
position behind them, as JSON can keep it.  What a position is depends on the format::

    delta     the version of the table          entries of the log behind it say which files came
    iceberg   the id of a snapshot              its descendants do
    parquet   the names of the files so far     there is no log; ``FILES_MAX`` at most

Files that a compaction has written hold rows that were there before: Delta and Iceberg say so, and
they are passed over.  A commit that changes or replaces rows has no additions that could be told
from what was there: it is refused, or passed over if the reader says so.  Commits that only remove
files (whole partitions, old rows) add nothing.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote

from penstock.core.errors import PenstockError
from penstock.spark.tables.landing import LakeTable
from penstock.spark.tables.table import DELTA, DELTA_LOG, ICEBERG
from pyspark_penstock.store_file import path_in, system_of

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from pyarrow import NativeFile
    from pyarrow.parquet import ParquetFile
    from pyiceberg.manifest import ManifestEntry
    from pyiceberg.table import Table as OpenTable
    from pyiceberg.table.snapshots import Snapshot

FILES_MAX: Final = 100_000
COMPACTED: Final = "-compact-"


class CannotFollow(PenstockError):
    """The table has no additions that could be told from what was there."""

    def __init__(self, text: str, fix: str) -> None:
        super().__init__(text)
        self.fix = fix


class NewFile(NamedTuple):
    """``values``: of the columns that the file has not, but its place says, as text."""

    path: str
    values: dict[str, str | None]


class Additions(NamedTuple):
    files: list[NewFile]
    position: Any


def additions(table: Any, since: Any, *, skip_changes: bool) -> Additions:
    """``since`` None = all that is there.  Raises CannotFollow, OtherTable."""
    if table.format == DELTA:
        return _of_delta(table, since, skip_changes=skip_changes)
    if table.format == ICEBERG:
        return _of_iceberg(table, since, skip_changes=skip_changes)
    return _of_files(table, since or [])


def opened(table: Any, path: str) -> "ParquetFile":
    from pyarrow import parquet

    return parquet.ParquetFile(stream_of(table, path))


def stream_of(table: Any, path: str) -> "NativeFile":
    import pyarrow as pa

    if "://" not in path:
        return pa.OSFile(path)
    if table.format == ICEBERG:
        return table.opened().io.new_input(path).open()
    return system_of(path).open_input_file(path_in(path))


def types_of(table: Any) -> "dict[str, pa.DataType]":
    """Of the columns that are in no file, as far as the table says."""
    if table.format != DELTA:
        return {}
    import pyarrow as pa

    return {one.name: one.type for one in pa.schema(_delta(table).schema().to_arrow())}


def _changed(table: LakeTable, what: str) -> CannotFollow:
    return CannotFollow(
        f"{table}: {what} changed or replaced rows, so what it added cannot be told from what was"
        " there",
        "--skip-changes passes over such commits; a table that is followed should only grow",
    )


# -- plain files -----------------------------------------------------------------------------


def _of_files(table: LakeTable, since: list[str]) -> Additions:
    known = set(since)
    root = getattr(table, "uri", "").rstrip("/") + "/"
    new = [path for path in table.files() if path.removeprefix(root) not in known]
    if len(known) + len(new) > FILES_MAX:
        raise CannotFollow(
            f"{table} has more than {FILES_MAX} files, and no log that says which are new",
            "follow a Delta or Iceberg table",
        )
    compacted = next((path for path in new if COMPACTED in path.rpartition("/")[2]), None)
    if compacted is not None:
        raise CannotFollow(
            f"{table} was compacted, and has no log that says which rows of {compacted} are new",
            "follow a Delta or Iceberg table, or begin anew with another --name --begin latest",
        )
    new.sort(key=_age)
    files = [NewFile(path, _steps(path.removeprefix(root))) for path in new]
    return Additions(files, [*since, *(path.removeprefix(root) for path in new)])


def _age(path: str) -> tuple[int, str]:
    """A store's names have to do."""
    return (0 if "://" in path else Path(path).stat().st_mtime_ns), path


def _steps(name: str) -> dict[str, str | None]:
    """``day=2026-11-21/queue=orders/…``"""
    from pyspark_penstock.table_files import NULL_DIRECTORY

    pairs = [step.partition("=") for step in name.split("/")[:-1] if "=" in step]
    return {key: None if value == NULL_DIRECTORY else unquote(value) for key, _, value in pairs}


# -- Delta -----------------------------------------------------------------------------------


def _delta(table: Any) -> "DeltaTable":
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    try:
        return DeltaTable(table.uri)
    except TableNotFoundError as error:
        raise CannotFollow(f"{table} holds no table", "name one that is there") from error


def _of_delta(table: Any, since: int | None, *, skip_changes: bool) -> Additions:
    there = _delta(table)
    mode = there.metadata().configuration.get("delta.columnMapping.mode", "none")
    if mode != "none":
        raise CannotFollow(
            f"{table} maps its columns ({mode}), which is not read here",
            "follow a table without delta.columnMapping.mode",
        )
    now = there.version()
    if since is None:
        return Additions(_all_of_delta(table, there), now)
    files: list[NewFile] = []
    for version in range(since + 1, now + 1):
        files += _of_version(table, version, skip_changes=skip_changes)
    return Additions(files, now)


def _all_of_delta(table: Any, there: "DeltaTable") -> list[NewFile]:
    import pyarrow as pa

    if "deletionVectors" in (there.protocol().reader_features or ()):
        raise CannotFollow(
            f"{table} may have deletion vectors, which are not read here",
            "--begin latest follows what comes from now on",
        )
    rows = pa.table(there.get_add_actions()).to_pylist()
    rows.sort(key=lambda row: (row["modification_time"], row["path"]))
    return [
        NewFile(
            _in_delta(table, row["path"]),
            {
                name: None if value is None else str(value)
                for name, value in (row.get("partition") or {}).items()
            },
        )
        for row in rows
    ]


def _of_version(table: Any, version: int, *, skip_changes: bool) -> list[NewFile]:
    entry = f"{table.uri}/{DELTA_LOG}/{version:020d}.json"
    try:
        if "://" in entry:
            with system_of(entry).open_input_file(path_in(entry)) as file:
                text = file.read().decode()
        else:
            text = Path(entry).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise CannotFollow(
            f"{table}: the log has no version {version} any more, and with it what was added",
            "begin anew with another --name; keep the log longer (delta.logRetentionDuration)",
        ) from None
    actions = [json.loads(line) for line in text.splitlines() if line.strip()]
    added, removed = (
        [action[kind] for action in actions if kind in action and action[kind]["dataChange"]]
        for kind in ("add", "remove")
    )
    changes = added and (removed or any(one.get("deletionVector") for one in added))
    if changes and not skip_changes:
        raise _changed(table, f"version {version}")
    return [
        NewFile(_in_delta(table, unquote(one["path"])), one["partitionValues"])
        for one in ([] if changes else added)
    ]


def _in_delta(table: Any, path: str) -> str:
    return path if "://" in path else f"{table.uri}/{path}"


# -- Iceberg ---------------------------------------------------------------------------------


def _of_iceberg(table: Any, since: int | None, *, skip_changes: bool) -> Additions:
    there = table.opened()
    if there is None:
        raise CannotFollow(f"{table} does not exist", "name a table that is there")
    now = there.current_snapshot()
    if now is None:
        return Additions([], since)
    if since is None:
        known = set(table.files())  # which refuses deleted rows
        aged = sorted((entry.sequence_number or 0, path) for entry, path in _entries(there, now))
        return Additions([NewFile(path, {}) for _, path in aged if path in known], now.snapshot_id)
    files: list[NewFile] = []
    for one in reversed(list(_behind(table, there, now, since))):
        operation = one.summary.operation.value if one.summary else "append"
        if operation == "overwrite" and not skip_changes:
            raise _changed(table, f"snapshot {one.snapshot_id}")
        if operation == "append":
            files += [NewFile(path, {}) for path in _added_by(there, one)]
    return Additions(files, now.snapshot_id)


def _behind(table: Any, there: "OpenTable", now: "Snapshot", since: int) -> "Iterator[Snapshot]":
    one: Snapshot | None = now
    while one is not None and one.snapshot_id != since:
        yield one
        parent = one.parent_snapshot_id
        one = None if parent is None else there.snapshot_by_id(parent)
    if one is None:
        raise CannotFollow(
            f"{table} has no snapshot {since} any more, and with it what was added since",
            "begin anew with another --name; expire snapshots later",
        )


def _added_by(there: "OpenTable", snapshot: "Snapshot") -> Iterator[str]:
    from pyiceberg.manifest import ManifestEntryStatus

    for entry, path in _entries(there, snapshot, only_own=True):
        if entry.status == ManifestEntryStatus.ADDED and entry.snapshot_id == snapshot.snapshot_id:
            yield path


def _entries(
    there: "OpenTable", snapshot: "Snapshot", *, only_own: bool = False
) -> "Iterator[tuple[ManifestEntry, str]]":
    """Files of the snapshot; ``only_own``: in manifests that it has written."""
    for manifest in snapshot.manifests(there.io):
        if only_own and manifest.added_snapshot_id != snapshot.snapshot_id:
            continue
        for entry in manifest.fetch_manifest_entry(there.io):
            yield entry, entry.data_file.file_path.removeprefix("file://")
