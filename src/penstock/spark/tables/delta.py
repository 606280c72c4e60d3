"""A batch's drafts become part of a Delta table: one transaction, which knows its batch.

Delta's log decides what is in the table.  A transaction carries (query, batch) as Delta's own
``txn`` action, so whether a batch has landed is asked of the table itself, and of two drivers
that land the same batch one fails.  Needs the package ``deltalake``; no Spark jar.

Landing batch n, and what a crash leaves:

    1  the table's version of the query >= n?  go on    a crash came between 5 and Spark's log
       at 6, done
    2  workers write drafts and sync them               rubbish, swept at the next start
    3  sync Spark's own note of n
    4  rename drafts to their final names, sync         not in the table: no log names them; the
                                                        next try uses the same names
    5  commit                                           found by 1, which does 6
    6  sync the log                                     *n has landed*

``deltalake`` syncs nothing.  The log is synced from its last checkpoint on, with the entries of
other writers: a table that lacks one of them cannot be read beyond it.  An entry that a power cut
between 5 and 6 left half written is taken away at the next start.

In an object store (``store``) files stay where workers have written them, and nothing is synced.
``store_races`` says what the store must be able to do.

Files that 4 left and no later try took over are removed by Delta's own VACUUM, like those of
any writer that failed.
"""

import json
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.core.errors import PenstockError
from penstock.spark.tables.publishing import (
    FileGone,
    Landed,
    landed_from,
    named,
)
from penstock.spark.tables.store_races import check_refusals
from penstock.spark.tables.table import DELTA_LOG, Table
from pyspark_penstock.durable import sync
from pyspark_penstock.table_files import DAYS, Draft, Layout

LAST_CHECKPOINT = "_last_checkpoint"
TIME = "enqueued_at"

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable


class DeltaMissing(PenstockError):
    fix = "install it: pip install 'penstock-broker[spark]', or land in --format parquet"


def check_deltalake() -> None:
    from importlib.util import find_spec

    if find_spec("deltalake") is None:
        raise DeltaMissing("Delta tables need the package deltalake, which is not installed here")


def sync_log(directory: Path, synced: int = -1) -> int:
    """Bring a table's log to the disk as far as readers need it; returns its newest version.

    ``synced`` is a version up to which the caller has done so.
    """
    log = directory / DELTA_LOG
    last = log / LAST_CHECKPOINT
    oldest = json.loads(last.read_text())["version"] if last.exists() else 0
    found = {path: _version(path) for path in log.iterdir()}
    new = [path for path, version in found.items() if version >= max(oldest, synced + 1)]
    sync(log, *new, *([last] if last.exists() else []))
    return max(found.values(), default=-1)


def mend_log(directory: Path) -> None:
    """Take away the newest entries that are not whole: a power cut came before their fsync.

    Nothing was acknowledged for them.  An entry gets its name when it is written, so one that
    another writer is at is not seen here.
    """
    log = directory / DELTA_LOG
    for kind in ("*.json", "*.checkpoint*.parquet", LAST_CHECKPOINT):
        for file in sorted(log.glob(kind), key=_version, reverse=True):
            if _is_whole(file):
                break
            file.unlink()
            # It may name what is gone now; without it readers look for a checkpoint by its name.
            (log / LAST_CHECKPOINT).unlink(missing_ok=True)


def _version(path: Path) -> int:
    """That an entry or a checkpoint begins its name with; -1 = the file is something else."""
    number = path.name.partition(".")[0]
    return int(number) if number.isdigit() and path.suffix in (".json", ".parquet") else -1


def _is_whole(file: Path) -> bool:
    content = file.read_bytes()
    if file.suffix == ".parquet":
        return content.endswith(b"PAR1")
    try:
        return bool([json.loads(line) for line in content.splitlines()])
    except ValueError:
        return False


class DeltaPublisher:
    def __init__(self, table: Table, schema: "pa.Schema", name: str) -> None:
        check_deltalake()
        self._table = table
        self.places = table.places(name)
        self._schema = schema  # of a file
        self._name = name
        self._synced = -1  # so far this instance has synced the log

    @property
    def directory(self) -> Path:
        return self._table.directory

    def begin(self, layout: Layout) -> Layout:
        if self.places.store:
            check_refusals(self._table)
        self._table.describe(self._schema)
        return replace(layout, store=self.places.store)

    def drafts_dir(self, query_id: str, batch: int) -> AbstractContextManager[str]:
        if self.places.store:
            return nullcontext(f"{self._table.uri}/data/{query_id}/{batch:08d}")
        return self.places.drafts_dir(query_id, batch)

    def recover(self) -> None:
        mend_log(self._table.directory)
        self.places.sweep()

    def landed(self, query_id: str, batch: int) -> Landed | None:
        table = self._opened()
        version = table.transaction_version(query_id) if table is not None else None
        if version is None or version < batch:
            return None
        self.sync_log()
        return Landed(batch, 0, 0, 0, before=True)

    def publish(self, query_id: str, batch: int, drafts: list[Draft]) -> Landed:
        """Steps 4 to 6."""
        self.places.check(drafts)
        files = self._placed(named(drafts, f"{self._name}-{query_id}-{batch:08d}"))
        self._commit(query_id, batch, files)
        self.sync_log()
        return landed_from(batch, drafts)

    @staticmethod
    def properties(query_id: str, batch: int) -> Any:
        """By which a transaction knows its batch."""
        from deltalake import CommitProperties, Transaction

        return CommitProperties(app_transactions=[Transaction(query_id, batch)])

    def made(self) -> "DeltaTable":
        from deltalake import DeltaTable

        found = self._opened()
        return found or DeltaTable.create(self._table.uri, self._delta_schema(), mode="error")

    def _opened(self) -> "DeltaTable | None":
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        if not self.places.store and not any((self._table.directory / DELTA_LOG).glob("*.json")):
            return None  # or a power cut came before the first commit was synced
        try:
            return DeltaTable(self._table.uri)
        except TableNotFoundError:
            return None

    def _placed(self, files: list[tuple[Draft, str]]) -> list[tuple[Draft, str]]:
        """Step 4; objects of a store stay where they are."""
        if self.places.store:
            return [(draft, self.places.noted(draft)) for draft, _ in files]
        for draft, name in files:
            if not self.places.put(self.places.noted(draft), name, draft.file_bytes):
                raise FileGone(f"{draft.path} is gone, which was there a moment ago")
        self.places.settle([name for _, name in files])
        return files

    def _commit(self, query_id: str, batch: int, files: list[tuple[Draft, str]]) -> None:
        from deltalake.transaction import create_table_with_add_actions

        properties = self.properties(query_id, batch)
        actions = [self._action(*pair) for pair in files]
        columns = list(self._table.partition_by)
        table = self._opened()
        if table is None:
            create_table_with_add_actions(
                self._table.uri,
                self._delta_schema(),
                actions,
                mode="error",
                partition_by=columns,
                commit_properties=properties,
            )
        else:
            table.create_write_transaction(
                actions, "append", table.schema(), columns, commit_properties=properties
            )

    def sync_log(self) -> None:
        if not self.places.store:
            self._synced = sync_log(self._table.directory, self._synced)

    def _delta_schema(self) -> Any:
        """Of a new table: that of a file and the columns in its path.

        Until release 0.1.0 days were text; the log has both as text, so such a table stays so.
        """
        import pyarrow as pa
        from deltalake import Schema

        kinds = dict.fromkeys(DAYS, pa.date32())
        paths = [pa.field(name, kinds.get(name, pa.string())) for name in self._table.partition_by]
        return Schema.from_arrow(pa.schema([*self._schema, *paths]))

    def _action(self, draft: Draft, name: str) -> Any:
        from deltalake.transaction import AddAction

        times = times_in(self.places.footer(name))
        # As Delta's statistics have times; readers that ask for a time pass over other files.
        low, high = (
            (
                {TIME: moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")}
                for moment in times
            )
            if times
            else ({}, {})
        )
        stats = {
            "numRecords": draft.messages,
            "minValues": {"seq_id": draft.seq_id_min} | low,
            "maxValues": {"seq_id": draft.seq_id_max} | high,
            "nullCount": {"seq_id": 0} | dict.fromkeys(low, 0),
        }
        values = dict(zip(self._table.partition_by, json.loads(draft.values), strict=True))
        return AddAction(
            path=name,  # deltalake makes the URL of it that the log wants
            size=draft.file_bytes,
            partition_values=values,
            modification_time=int(time.time() * 1000),
            data_change=True,
            stats=json.dumps(stats),
        )


def times_in(footer: Any) -> tuple[datetime, datetime] | None:
    """The first and the last ``enqueued_at`` of a file; None = it does not say."""
    if TIME not in footer.schema.to_arrow_schema().names:
        return None
    groups = [footer.row_group(n).column(_leaf(footer, TIME)) for n in range(footer.num_row_groups)]
    found = [group.statistics for group in groups]
    if not found or not all(one is not None and one.has_min_max for one in found):
        return None
    return min(one.min for one in found), max(one.max for one in found)


def _leaf(footer: Any, name: str) -> int:
    """A map is two columns of the file."""
    paths = [footer.schema.column(n).path for n in range(footer.num_columns)]
    return paths.index(name)
