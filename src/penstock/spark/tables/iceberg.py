"""A batch's drafts become part of an Iceberg table: one commit, which knows its batch.

The table's metadata decides what is in the table, and a catalog decides which metadata is the
table's.  A commit adds the files and sets the table's property ``penstock.landed.<query>`` to the
number of the batch, and expiring snapshots does not lose it.  The summary of the snapshot says
it as well (``penstock.query``, ``penstock.batch``, ``penstock.messages``), for people.

Landing batch n, and what a crash leaves:

    1  the table's property of the query >= n?     a crash came between 3 and Spark's log
       go on at 4
    2  workers write files into a directory of     in no snapshot; step 4 removes them
       batch n, in the table's place
    3  commit; pyiceberg's files are synced        *n has landed*; files of a commit that the
       (``synced_io``) before the catalog's swap   catalog refused or never saw are rubbish
    4  remove what is in the directory of n and
       not in the commit

pyiceberg would try a refused commit again as it is.  Here the table is asked first (1): the commit
that came before may be that of another driver, with the same batch.  The files keep their names,
so an object store needs no rename.  Directories of files, and notes on this machine::

    <location>/data/<query>/00000012/<random>.parquet      batch 12
    $XDG_STATE_HOME/penstock/iceberg/<catalog>/<table>      lock, checkpoint, log (``landing``)
"""

import hashlib
import itertools
import json
import random
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.core.errors import PenstockError
from penstock.spark.state.places import file_name_of, state_home
from penstock.spark.tables.publishing import Landed, check_drafts, landed_from
from penstock.spark.tables.table import ICEBERG, OtherTable
from pyspark_penstock.durable import sync_again
from pyspark_penstock.table_files import (
    STATISTICS,
    TIME_SOURCES,
    Draft,
    Layout,
    parts_of,
    table_schema,
    with_ids,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.io.pyarrow import PyArrowFileIO
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table as OpenTable
    from pyiceberg.table import Transaction
    from pyiceberg.types import NestedField

SQLITE: Final = "sqlite:///"
LANDED: Final = "penstock.landed."
COMMITS_MAX: Final = 20
"""A commit is refused while others commit; each of them brings the table on."""
PAUSE_S: Final = 0.2
BEGUN_WITH: Final = {
    "commit.manifest-merge.enabled": "true",  # else a manifest for every batch, for ever
    "write.metadata.delete-after-commit.enabled": "true",
}
METRICS: Final = {"write.metadata.metrics.default": "none"} | {
    f"write.metadata.metrics.column.{name}": "full" for name in STATISTICS
}
"""Bounds of those columns only: the files have no others."""
TRANSFORMS: Final = {"day": "day", "hour": "hour", "published_day": "day"}
"""Of ``TIME_SOURCES``."""
STORE_PROPERTIES: Final = ("s3.", "gcs.", "adls.", "client.")
CHANCE: Final = random.SystemRandom()
EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - of times in UTC that name no zone


class CatalogFailed(PenstockError):
    """The catalog cannot be opened, or lacks what it is asked for."""

    fix = "name a catalog of pyiceberg's configuration, or --catalog-uri and --warehouse"


class CommitsRefused(PenstockError):
    """Others commit to the table all the time."""

    fix = "run it again; nothing of the batch was acknowledged"


@dataclass(frozen=True)
class IcebergTable:
    """A name in a catalog, and what is to be there.

    ``given``: ``uri`` and ``warehouse``, as far as pyiceberg's configuration does not say them.
    """

    name: str
    catalog: str = "default"
    given: tuple[tuple[str, str], ...] = ()
    partition_by: tuple[str, ...] = ()
    format: str = ICEBERG

    def __str__(self) -> str:
        return f"{self.name} of catalog {self.catalog}"

    @property
    def home(self) -> Path:
        """Notes on this machine: the place of the table may have no files that can be locked."""
        source = json.dumps([self.catalog, dict(self.given).get("uri", "")])
        catalog = f"{self.catalog}-{hashlib.sha256(source.encode()).hexdigest()[:12]}"
        return state_home() / ICEBERG / file_name_of("/", catalog) / file_name_of("/", self.name)

    def opened(self) -> "OpenTable | None":
        """As it is now; None = the catalog has none of this name."""
        from pyiceberg.exceptions import NoSuchTableError

        with _explained(self):
            try:
                return self._catalog().load_table(self.name)
            except NoSuchTableError:
                return None

    def files(self) -> list[str]:
        """The data files of the current snapshot: paths, or URLs of a store; raises OtherTable."""
        table = self.opened()
        tasks = [] if table is None else list(table.scan().plan_files())
        if any(task.delete_files for task in tasks):
            raise OtherTable(f"{self} has deleted rows, which are not read here: rewrite it first")
        return [task.file.file_path.removeprefix("file://") for task in tasks]

    def check(self, schema: "pa.Schema") -> None:
        """Raises OtherTable when what is there differs; columns it lacks are added by ``begin``."""
        if {"day", "hour"} <= set(self.partition_by):
            raise OtherTable("in Iceberg an hour is one of a day: give --partition-by hour")
        table = self.opened()
        if table is None:
            return
        there = tuple(map(str, _partitions(table)))
        if there != self.partition_by:
            shown = (", ".join(names) or "none" for names in (there, self.partition_by))
            raise OtherTable("{} has the partitions {}, not {}".format(self, *shown))
        kinds = {one.name: _shown(one) for one in table.schema().fields}
        wrong = [
            f"{one.name} is {kinds[one.name]}, not {_shown(one)}"
            for one in _as_iceberg(schema).fields
            if kinds.get(one.name, _shown(one)) != _shown(one)
        ]
        if wrong:
            raise OtherTable(f"{self} has columns of another type: {'; '.join(wrong)}")

    def begin(self, layout: Layout) -> Layout:
        """Make the table, or the columns it lacks; returns how its files are written."""
        schema = _as_iceberg(table_schema(replace(layout, partition_by=())))
        table = self.opened() or self._made(schema)
        if not set(schema.column_names) <= set(table.schema().column_names):
            with table.update_schema() as update:
                update.union_by_name(schema)
            self.sync()
        return replace(
            layout, column_ids=_column_ids(table.schema()), store=store_properties(table)
        )

    def sync(self) -> None:
        """Bring a catalog in a file of this machine to the disk."""
        uri = dict(self.given).get("uri", "")
        if uri.startswith(SQLITE):
            sync_again(Path(uri.removeprefix(SQLITE)))

    def _made(self, schema: "Schema") -> "OpenTable":
        from pyiceberg.partitioning import PartitionField, PartitionSpec
        from pyiceberg.transforms import parse_transform

        sources = [schema.find_field(TIME_SOURCES.get(n, n)) for n in self.partition_by]
        parts = [
            PartitionField(
                source.field_id,
                1000 + place,
                parse_transform(TRANSFORMS.get(name, "identity")),
                f"{source.name}_{TRANSFORMS[name]}" if name in TRANSFORMS else name,
            )
            for place, (name, source) in enumerate(zip(self.partition_by, sources, strict=True))
        ]
        with _explained(self):
            catalog = self._catalog()
            namespace = self.name.rpartition(".")[0]
            catalog.create_namespace_if_not_exists(namespace)
            made = catalog.create_table(
                self.name, schema, partition_spec=PartitionSpec(*parts), properties=BEGUN_WITH
            )
        self.sync()
        return made

    def _catalog(self) -> "Catalog":
        from pyiceberg.catalog import load_catalog

        from penstock.spark.tables.synced_io import SYNCED_FILES

        return load_catalog(self.catalog, **dict(self.given), **{"py-io-impl": SYNCED_FILES})


def iceberg_table(
    name: str, catalog: str, uri: str, warehouse: str, partition_by: tuple[str, ...]
) -> IcebergTable:
    """From what a user says: "" = as pyiceberg's configuration says.  Paths become absolute."""
    if uri.startswith(SQLITE):
        uri = SQLITE + str(Path(uri.removeprefix(SQLITE)).absolute())
    if warehouse and "://" not in warehouse:
        warehouse = Path(warehouse).absolute().as_uri()
    given = {"uri": uri, "warehouse": warehouse}
    return IcebergTable(
        name, catalog, tuple((key, said) for key, said in given.items() if said), partition_by
    )


class IcebergPublisher:
    def __init__(self, table: IcebergTable) -> None:
        self._table = table

    def begin(self, layout: Layout) -> Layout:
        return self._table.begin(layout)

    def recover(self) -> None:
        """A commit is whole or was never one."""

    @contextmanager
    def drafts_dir(self, query_id: str, batch: int) -> Iterator[str]:
        """Step 2; what an error leaves is removed when the batch has landed."""
        table = self._opened()
        yield _batch_place(table, query_id, batch)

    def landed(self, query_id: str, batch: int) -> Landed | None:
        """Steps 1 and 4."""
        table = self._table.opened()
        if table is None or int(table.properties.get(LANDED + query_id, -1)) < batch:
            return None
        self._table.sync()
        _sweep(table, query_id, batch, _committed(table, query_id, batch))
        return Landed(batch, 0, 0, 0, before=True)

    def publish(self, query_id: str, batch: int, drafts: list[Draft]) -> Landed:
        """Steps 3 and 4.  Raises CommitsRefused."""
        files = [draft for draft in drafts if draft.path]

        def add(table: "OpenTable", commit: "Transaction", told: dict[str, str]) -> None:
            if files:
                with commit.update_snapshot(snapshot_properties=told).merge_append() as append:
                    for draft in files:
                        append.append_data_file(_data_file(table, draft))

        return self.committed(query_id, batch, drafts, add, kept={draft.path for draft in files})

    def committed(
        self,
        query_id: str,
        batch: int,
        drafts: list[Draft],
        change: "Callable[[OpenTable, Transaction, dict[str, str]], None]",
        kept: set[str],
    ) -> Landed:
        """One commit with the ``change``, which gets what the snapshot is to say of itself.

        Of the batch's drafts only those ``kept`` are left.
        """
        if not store_properties(self._opened()):
            check_drafts([draft for draft in drafts if draft.path])
        landed = landed_from(batch, drafts)
        told = {"query": query_id, "batch": str(batch), "messages": str(landed.messages)}

        def commit_batch(table: "OpenTable", commit: "Transaction") -> bool:
            if int(table.properties.get(LANDED + query_id, -1)) >= batch:
                return False
            commit.set_properties({LANDED + query_id: str(batch)})
            change(table, commit, {f"penstock.{name}": value for name, value in told.items()})
            return True

        if not commit_to(self._table, commit_batch):
            return self.landed(query_id, batch) or landed
        _sweep(self._opened(), query_id, batch, kept)
        return landed

    def read(self, draft: Draft) -> "pa.Table":
        from pyarrow import parquet

        table = self._opened()
        with table.io.new_input(_location(table, draft)).open() as stream:
            return parquet.read_table(stream)

    def _opened(self) -> "OpenTable":
        table = self._table.opened()
        if table is None:
            raise CatalogFailed(f"{self._table} was dropped")
        return table


def commit_to(place: IcebergTable, change: "Callable[[OpenTable, Transaction], bool]") -> bool:
    """``change`` the table as it is; again when another commit came between.

    ``change`` returns False when there is nothing to do (any more), and so does this.  Raises
    CommitsRefused.
    """
    from pyiceberg.exceptions import CommitFailedException

    for attempt in range(COMMITS_MAX):
        table = place.opened()
        if table is None:
            raise CatalogFailed(f"{place} was dropped")
        commit = _single_try(table).transaction()
        try:
            if not change(table, commit):
                return False
            commit.commit_transaction()
        except CommitFailedException:
            time.sleep(CHANCE.uniform(0, PAUSE_S * (attempt + 1)))
            continue
        place.sync()
        return True
    raise CommitsRefused(f"{place} was changed by others {COMMITS_MAX} times while this committed")


def _single_try(table: "OpenTable") -> "OpenTable":
    """The same table, whose transactions fail when they are refused."""
    from pyiceberg.table import Table as OpenTable

    properties = {**table.properties, "commit.retry.num-retries": "0"}
    metadata = table.metadata.model_copy(update={"properties": properties})
    return OpenTable(table.name(), metadata, table.metadata_location, table.io, table.catalog)


@contextmanager
def _explained(table: IcebergTable) -> Iterator[None]:
    from pyiceberg.exceptions import RESTError
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (RESTError, SQLAlchemyError, ValueError) as error:
        reason = getattr(error, "orig", None) or error  # SQLAlchemy adds the statement
        raise CatalogFailed(f"cannot open {table}: {reason}") from error


# -- files ---------------------------------------------------------------------------------------


def store_properties(table: "OpenTable") -> dict[str, str]:
    """What a worker needs to write into the table's object store; {} = it is a directory here."""
    if _files_of(table).parse_location(table.location())[0] == "file":
        return {}
    kept = {
        name: str(value)
        for name, value in table.io.properties.items()
        if name.startswith(STORE_PROPERTIES)
    }
    return kept | {"py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO"}


def _batch_place(table: "OpenTable", query_id: str, batch: int) -> str:
    place = f"{table.location().rstrip('/')}/data/{query_id}/{batch:08d}"
    scheme, _, path = _files_of(table).parse_location(place)
    return path if scheme == "file" else place


def _files_of(table: "OpenTable") -> "PyArrowFileIO":
    from penstock.spark.tables.synced_io import SyncedFileIO

    assert isinstance(table.io, SyncedFileIO)
    return table.io


def _sweep(table: "OpenTable", query_id: str, batch: int, kept: set[str]) -> None:
    """Step 4; ``kept``: paths as drafts have them.

    The batch has landed, so what a store does not let us remove stays.
    """
    from pyarrow.fs import FileSelector

    files = _files_of(table)
    place = _batch_place(table, query_id, batch)
    scheme, netloc, path = files.parse_location(place)
    system = files.fs_by_scheme(scheme, netloc)
    names = {Path(name).name for name in kept}
    for found in system.get_file_info(FileSelector(path, allow_not_found=True)):
        if found.is_file and found.base_name not in names:
            with suppress(OSError):
                system.delete_file(found.path)


def _committed(table: "OpenTable", query_id: str, batch: int) -> set[str]:
    """The files of a batch that has landed; those of the table when its snapshot has expired."""
    for snapshot in table.snapshots():
        said = snapshot.summary
        if said and said["penstock.query"] == query_id and said["penstock.batch"] == str(batch):
            return {
                entry.data_file.file_path
                for manifest in snapshot.manifests(table.io)
                for entry in manifest.fetch_manifest_entry(table.io)
            }
    return {task.file.file_path for task in table.scan().plan_files()}


def _data_file(table: "OpenTable", draft: Draft) -> "DataFile":
    from pyiceberg.typedef import Record

    columns = [str(name) for name in _partitions(table)]
    values = zip(columns, json.loads(draft.values), strict=True)
    return described(table, _location(table, draft), Record(*(_value(*pair) for pair in values)))


def _location(table: "OpenTable", draft: Draft) -> str:
    return f"{table.location().rstrip('/')}/data/" + "/".join(Path(draft.path).parts[-3:])


def described(table: "OpenTable", location: str, partition: Any) -> "DataFile":
    """A Parquet file as a manifest has it, by what its footer says."""
    from pyarrow import parquet
    from pyiceberg.io.pyarrow import (
        compute_statistics_plan,
        data_file_statistics_from_parquet_metadata,
        parquet_path_to_id_mapping,
    )
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat

    source = table.io.new_input(location)
    with source.open() as stream:
        footer = parquet.read_metadata(stream)
    schema = table.schema()
    statistics = data_file_statistics_from_parquet_metadata(
        footer,
        compute_statistics_plan(schema, METRICS),
        parquet_path_to_id_mapping(schema),
    )
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=location,
        file_format=FileFormat.PARQUET,
        partition=partition,
        file_size_in_bytes=len(source),
        sort_order_id=None,
        spec_id=table.spec().spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )


def _value(column: str, text: str | None) -> Any:
    """Of a partition: days or hours since 1970, or the text."""
    if column not in TRANSFORMS or text is None:
        return text
    since = datetime.fromisoformat(text) - EPOCH
    whole_days = TRANSFORMS[column] == "day"
    return since.days if whole_days else since.days * 24 + since.seconds // 3600


# -- columns -------------------------------------------------------------------------------------


def _partitions(table: "OpenTable") -> list[str]:
    """``day``, ``hour`` and names of columns, as ``--partition-by`` has them."""
    found = []
    times = {(TRANSFORMS[name], TIME_SOURCES[name]): name for name in TRANSFORMS}
    for one in table.spec().fields:
        column, transform = table.schema().find_column_name(one.source_id), str(one.transform)
        if transform == "identity":
            found.append(str(column))
        else:
            found.append(times.get((transform, str(column)), f"{transform}({column})"))
    return found


def _as_iceberg(schema: "pa.Schema") -> "Schema":
    """With numbers that a new table replaces by its own."""
    from pyiceberg.io.pyarrow import pyarrow_to_schema

    numbers = itertools.count(1)
    ids = {one.name: tuple(itertools.islice(numbers, _size(one))) for one in schema}
    return pyarrow_to_schema(with_ids(schema, ids))


def _size(column: "pa.Field") -> int:
    return 1 + sum(map(_size, parts_of(column.type)))


def _column_ids(schema: "Schema") -> dict[str, tuple[int, ...]]:
    return {one.name: tuple(_ids(one)) for one in schema.fields}


def _ids(column: "NestedField") -> Iterator[int]:
    from pyiceberg.types import ListType, MapType, StructType

    yield column.field_id
    kind = column.field_type
    if isinstance(kind, MapType):
        parts: tuple[NestedField, ...] = (kind.key_field, kind.value_field)
    elif isinstance(kind, ListType):
        parts = (kind.element_field,)
    else:
        parts = kind.fields if isinstance(kind, StructType) else ()
    for part in parts:
        yield from _ids(part)


def _shown(column: "NestedField") -> str:
    return re.sub(r"\b\d+: ", "", str(column.field_type))
