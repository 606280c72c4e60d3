"""A table with one row per key: the last message of a key replaces the row, or removes it.

For change events.  A batch is in the queue's order, so of each key its last message counts; it
becomes one transaction of Delta (a MERGE) or one commit of Iceberg (the rows of these keys out, the
new ones in).  The transaction knows its batch as an append does (``delta``, ``iceberg``), so a
batch is merged once; drafts of workers are only read, and swept.

A batch is in the driver's memory, hence ``BATCH_BYTES_MAX``.  Delta's library writes the files of
a MERGE without syncing them: their entry of the log may outlive them in a power cut.  Which version
has been synced stands in a note; a later one whose files are not whole was never acknowledged, and
is taken away at the next start.  An object store has no fsync, and needs no such note.
"""

import json
import warnings
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from penstock.core.errors import PenstockError
from penstock.spark.tables.landing import LakeTable, Publisher
from penstock.spark.tables.publishing import Landed, landed_from
from penstock.spark.tables.table import DELTA, DELTA_LOG, ICEBERG
from pyspark_penstock.durable import sync, write_synced
from pyspark_penstock.table_files import Draft, Layout

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.compute import Expression

    from penstock.spark.tables.delta import DeltaPublisher
    from penstock.spark.tables.iceberg import IcebergPublisher

BATCH_BYTES_MAX: Final = 128 << 20
DELETED: Final = "penstock_deleted"
PLACE: Final = "penstock_place"
MERGED: Final = "merged.json"


class CannotMerge(PenstockError):
    """The table, or its keys, are none that can be merged."""

    fix = "merge into --format delta or --table, on columns that are not null, of one queue"


class Merge(NamedTuple):
    """``deletes``: which messages remove the row of their key; None = none does."""

    keys: tuple[str, ...]
    deletes: "Expression | None" = None


def check_merge(table: LakeTable, merge: Merge, required: frozenset[str]) -> None:
    """``required``: columns that are never null.  Raises CannotMerge."""
    if table.format not in (DELTA, ICEBERG):
        raise CannotMerge(f"{table} is of plain files, of which none can be replaced")
    if table.partition_by:
        raise CannotMerge("a table that is merged has no partitions: rows would have to move")
    if table.format == ICEBERG and len(merge.keys) > 1:
        raise CannotMerge("an Iceberg table is merged on one column")
    nullable = [key for key in merge.keys if key not in required]
    if nullable:
        raise CannotMerge(f"{', '.join(nullable)} may be null, or is no column of --columns")


def merging_publisher(
    publisher: Publisher, table: LakeTable, merge: Merge, home: Path
) -> Publisher:
    """As ``publisher``, but batches are merged; ``home`` is the pipeline's place in the table."""
    kinds: Any = {DELTA: _DeltaMerges, ICEBERG: _IcebergMerges}
    made: Publisher = kinds[table.format](publisher, merge, home)
    return made


def last_of_each_key(rows: "pa.Table", merge: Merge) -> "pa.Table":
    """In: rows of a batch.  Out: the last by ``seq_id`` of each key, and whether it removes."""
    import pyarrow as pa
    from pyarrow import compute as pc

    rows = rows.sort_by("seq_id")
    places = rows.select(merge.keys).append_column(
        PLACE, pa.array(range(rows.num_rows), pa.int64())
    )
    last = places.group_by(list(merge.keys)).aggregate([(PLACE, "max")])[f"{PLACE}_max"]
    rows = rows.take(last)
    removed: Any = pa.repeat(pa.scalar(False), rows.num_rows)
    if merge.deletes is not None:
        numbered = rows.append_column(PLACE, pa.array(range(rows.num_rows), pa.int64()))
        found = numbered.filter(merge.deletes)[PLACE]
        removed = pc.is_in(numbered[PLACE], value_set=found.combine_chunks())
    return rows.append_column(DELETED, removed)


class _Merges:
    """What both formats share: the batches that have landed are those of ``publisher``."""

    def __init__(self, publisher: Any, merge: Merge, home: Path) -> None:
        self._publisher = publisher
        self._merge = merge
        self._note = home / MERGED

    def begin(self, layout: Layout) -> Layout:
        found: Layout = self._publisher.begin(layout)
        return found

    def recover(self) -> None:
        self._publisher.recover()

    def landed(self, query_id: str, batch: int) -> Landed | None:
        found: Landed | None = self._publisher.landed(query_id, batch)
        return found

    def drafts_dir(self, query_id: str, batch: int) -> AbstractContextManager[str]:
        place: AbstractContextManager[str] = self._publisher.drafts_dir(query_id, batch)
        return place


class _DeltaMerges(_Merges):
    _publisher: "DeltaPublisher"

    def drafts_dir(self, query_id: str, batch: int) -> AbstractContextManager[str]:
        return self._publisher.places.drafts_dir(query_id, batch)

    def recover(self) -> None:
        super().recover()
        log = self._publisher.directory / DELTA_LOG
        synced = json.loads(self._note.read_text())["version"] if self._note.exists() else -1
        for entry in sorted(log.glob("*.json"), reverse=True):
            if int(entry.stem) <= synced or _whole(self._publisher.directory, _added(entry)):
                break
            entry.unlink()

    def publish(self, query_id: str, batch: int, drafts: list[Draft]) -> Landed:
        places = self._publisher.places
        places.check(drafts)
        files = [draft for draft in drafts if draft.path]
        rows = places.read(files) if files else None
        table = self._publisher.made()
        properties = self._publisher.properties(query_id, batch)
        if rows is not None:
            _merge_into(table, last_of_each_key(rows, self._merge), self._merge, properties)
        if table.transaction_version(query_id) != batch:  # it changed nothing, so it was not noted
            table.create_write_transaction(
                [], "append", table.schema(), [], commit_properties=properties
            )
        if not places.store:
            self._sync()
        return landed_from(batch, drafts)

    def _sync(self) -> None:
        log = self._publisher.directory / DELTA_LOG
        newest = max(int(entry.stem) for entry in log.glob("*.json"))
        added = _added(log / f"{newest:020d}.json")
        sync(*(self._publisher.directory / name for name, _ in added))
        self._publisher.sync_log()
        write_synced(self._note, json.dumps({"version": newest}))


def _merge_into(table: Any, rows: "pa.Table", merge: Merge, properties: Any) -> None:
    columns = {name: f"s.{name}" for name in rows.column_names if name != DELETED}
    (
        table.merge(
            source=rows,
            predicate=" AND ".join(f"t.{key} = s.{key}" for key in merge.keys),
            source_alias="s",
            target_alias="t",
            commit_properties=properties,
        )
        .when_matched_delete(predicate=f"s.{DELETED}")
        .when_matched_update(updates=columns)
        .when_not_matched_insert(updates=columns, predicate=f"NOT s.{DELETED}")
        .execute()
    )


def _added(entry: Path) -> list[tuple[str, int]]:
    lines = [json.loads(line) for line in entry.read_text().splitlines()]
    return [(line["add"]["path"], line["add"]["size"]) for line in lines if "add" in line]


def _whole(directory: Path, files: list[tuple[str, int]]) -> bool:
    places = [(directory / name, size) for name, size in files]
    return all(
        place.exists() and place.stat().st_size == size and place.read_bytes()[-4:] == b"PAR1"
        for place, size in places
    )


class _IcebergMerges(_Merges):
    _publisher: "IcebergPublisher"

    def publish(self, query_id: str, batch: int, drafts: list[Draft]) -> Landed:
        import pyarrow as pa
        from pyarrow import compute as pc
        from pyiceberg import expressions

        within: Any = expressions.In  # whose types mypy does not see
        (key,) = self._merge.keys
        tables = [self._publisher.read(draft) for draft in drafts if draft.path]
        rows = last_of_each_key(pa.concat_tables(tables), self._merge) if tables else None

        def change(_: Any, commit: Any, told: dict[str, str]) -> None:
            if rows is None:
                return
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # no row of these keys was there
                commit.delete(within(key, rows[key].to_pylist()), snapshot_properties=told)
            kept = rows.filter(pc.invert(rows[DELETED])).drop_columns([DELETED])
            if kept.num_rows:
                commit.append(kept, snapshot_properties=told)

        return self._publisher.committed(query_id, batch, drafts, change, kept=set())
