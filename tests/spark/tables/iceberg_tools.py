"""Batches for an Iceberg table without Spark: what a worker writes, and what a driver commits."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa

from penstock.spark.tables.iceberg import IcebergPublisher, IcebergTable, iceberg_table
from penstock.spark.tables.publishing import Landed
from pyspark_penstock.columns import arrow_schema
from pyspark_penstock.options import COLUMNS, DEFAULT_COLUMNS
from pyspark_penstock.table_files import Draft, DraftWriter, Layout

QUERY = "0f8fad5b-d9cb-469f-a165-70867728950e"
BEGAN = datetime(2026, 11, 21, 22, 30, tzinfo=UTC)


def table_in(
    place: Path, *partition_by: str, warehouse: str = "", catalog: str = "default", uri: str = ""
) -> IcebergTable:
    """``lake.orders``, with a catalog in a file, or at ``uri``, and a warehouse beside it."""
    uri = uri or f"sqlite:///{place}/catalog.db"
    return iceberg_table("lake.orders", catalog, uri, warehouse or str(place / "w"), partition_by)


def messages(
    *seq_ids: int, keys: Sequence[str | None] = ("eu",), raw_properties: bool = False
) -> pa.RecordBatch:
    """Messages an hour apart, with the routing keys in turn."""
    known = {
        "seq_id": list(seq_ids),
        "queue": ["q"] * len(seq_ids),
        "routing_key": [keys[seq_id % len(keys)] for seq_id in seq_ids],
        "enqueued_at": [BEGAN + timedelta(hours=seq_id) for seq_id in seq_ids],
        "body": [b"%d" % seq_id for seq_id in seq_ids],
        "properties_raw": [b"raw"] * len(seq_ids),
        "headers": [[("a", str(seq_id))] for seq_id in seq_ids],
    }
    schema = arrow_schema(COLUMNS if raw_properties else DEFAULT_COLUMNS)
    arrays = [pa.array(known.get(f.name, [None] * len(seq_ids)), f.type) for f in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class Pipeline:
    """Lands batches in a table as an archive does."""

    def __init__(
        self, table: IcebergTable, query: str = QUERY, *, raw_properties: bool = False
    ) -> None:
        self.query = query
        self.publisher = IcebergPublisher(table)
        columns = COLUMNS if raw_properties else DEFAULT_COLUMNS
        layout = Layout(columns, table.partition_by)
        self.layout = self.publisher.begin(layout)

    def drafts(self, batch: int, rows: pa.RecordBatch) -> list[Draft]:
        with self.publisher.drafts_dir(self.query, batch) as place:
            writer = DraftWriter(self.layout, place, batch)
            writer.add(rows)
            return [*writer.close(), Draft("", "", "[]", 0, 0, 0, 0, 2)]

    def land(self, batch: int, rows: pa.RecordBatch) -> Landed:
        return self.publisher.publish(self.query, batch, self.drafts(batch, rows))


def seq_ids(table: IcebergTable) -> list[int]:
    opened = table.opened()
    assert opened is not None
    return sorted(opened.scan().to_arrow()["seq_id"].to_pylist())


def data_files(place: Path) -> list[Path]:
    return sorted(place.rglob("data/**/*.parquet"))
