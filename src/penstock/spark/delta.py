"""A batch's drafts become part of a Delta table: one transaction, which knows its batch.

Delta's log decides what is in the table.  A transaction carries (query, batch) as Delta's own
``txn`` action, so whether a batch has landed is asked of the table itself, and of two drivers
that land the same batch one fails.  Needs the package ``deltalake``; no Spark jar.

Landing batch n, and what a crash leaves:

    1  the table's version of the query >= n?  done     a crash came between 5 and Spark's log
    2  workers write drafts and sync them               rubbish, swept at the next start
    3  sync Spark's own note of n
    4  rename drafts to their final names, sync         not in the table: no log names them; the
                                                        next try uses the same names
    5  commit                                           *n has landed*

Files that 4 left and no later try took over are removed by Delta's own VACUUM, like those of
any writer that failed.
"""

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.core.errors import PenstockError
from penstock.spark.publishing import Landed, check_drafts
from penstock.spark.table import DELTA_LOG, Table, sync
from pyspark_penstock.table_files import Draft

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable


class DeltaMissing(PenstockError):
    """The package deltalake cannot be imported."""

    fix = "install it: pip install 'penstock-broker[spark]', or land in --format parquet"


def check_deltalake() -> None:
    from importlib.util import find_spec

    if find_spec("deltalake") is None:
        raise DeltaMissing("Delta tables need the package deltalake, which is not installed here")


class DeltaPublisher:
    """Transactions of one pipeline in a Delta table."""

    def __init__(self, table: Table, schema: "pa.Schema", name: str) -> None:
        check_deltalake()
        self._table = table
        self._schema = schema  # of a file
        self._name = name

    def recover(self) -> None:
        """Nothing is ever half decided."""

    def landed(self, query_id: str, batch: int) -> Landed | None:
        table = self._opened()
        version = table.transaction_version(query_id) if table is not None else None
        if version is None or version < batch:
            return None
        return Landed(batch, 0, 0, 0, before=True)

    def publish(self, query_id: str, batch: int, drafts: list[Draft]) -> Landed:
        """Steps 4 and 5."""
        check_drafts(drafts)
        files = [draft for draft in drafts if draft.path]
        files.sort(key=lambda draft: (draft.directory, draft.seq_id_min))
        stem = f"{self._name}-{query_id}-{batch:08d}"
        names = [
            os.path.join(draft.directory, f"{stem}-{place:03d}.parquet")
            for place, draft in enumerate(files)
        ]
        self._place(files, names)
        self._commit(query_id, batch, files, names)
        return Landed(
            batch,
            sum(draft.messages for draft in files),
            sum(draft.file_bytes for draft in files),
            sum(draft.holes for draft in drafts),
            before=False,
            files=len(files),
        )

    def _opened(self) -> "DeltaTable | None":
        from deltalake import DeltaTable

        if not (self._table.directory / DELTA_LOG).is_dir():
            return None
        return DeltaTable(self._table.directory)

    def _place(self, files: list[Draft], names: list[str]) -> None:
        places = {self._table.directory}
        for draft, name in zip(files, names, strict=True):
            final = self._table.directory / name
            final.parent.mkdir(parents=True, exist_ok=True)
            Path(draft.path).rename(final)
            places.add(final.parent)
        for place in sorted(places):
            sync(place)

    def _commit(self, query_id: str, batch: int, files: list[Draft], names: list[str]) -> None:
        from deltalake import CommitProperties, Transaction
        from deltalake.transaction import create_table_with_add_actions

        properties = CommitProperties(app_transactions=[Transaction(query_id, batch)])
        actions = [self._action(*pair) for pair in zip(files, names, strict=True)]
        columns = list(self._table.partition_by)
        table = self._opened()
        if table is None:
            create_table_with_add_actions(
                str(self._table.directory),
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

    def _delta_schema(self) -> Any:
        """Of the table: that of a file and the columns in its path."""
        import pyarrow as pa
        from deltalake import Schema

        paths = [pa.field(name, pa.string()) for name in self._table.partition_by]
        return Schema.from_arrow(pa.schema([*self._schema, *paths]))

    def _action(self, draft: Draft, name: str) -> Any:
        from deltalake.transaction import AddAction

        stats = {
            "numRecords": draft.messages,
            "minValues": {"seq_id": draft.seq_id_min},
            "maxValues": {"seq_id": draft.seq_id_max},
            "nullCount": {"seq_id": 0},
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
