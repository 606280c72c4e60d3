"""What an archive has written, read by programs of others: row counts and bodies are equal."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from penstock.spark.tables.landing import LakeTable
from penstock.spark.tables.parts import publisher_of
from penstock.spark.tables.table import DELTA, ICEBERG, PARQUET, Table
from pyspark_penstock.body_columns import BodyDecoder, parse_body_columns
from pyspark_penstock.columns import arrow_schema
from pyspark_penstock.options import DEFAULT_COLUMNS
from pyspark_penstock.table_files import DraftWriter, Layout
from tests.spark.tables.iceberg_tools import table_in

BEGAN = datetime(2026, 11, 21, 22, 30, tzinfo=UTC)
KEYS = ("eu", "a/b c", "ü", None)
BATCHES, MESSAGES = 3, 8
BODIES = [
    [b'{"id": %d}' % n, b"", b"\x00\xff", b"x" * 70_000][n % 4] for n in range(BATCHES * MESSAGES)
]
DECODED = parse_body_columns("id long, at timestamp, total decimal(10,2)", ())


def table_of(kind: str, place: Path) -> LakeTable:
    if kind == ICEBERG:
        return table_in(place, "day", "routing_key")
    return Table(place / "t", kind, ("day", "routing_key"))


@pytest.fixture(params=[PARQUET, DELTA, ICEBERG])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> LakeTable:
    """Some batches, of messages over two days."""
    table = table_of(request.param, tmp_path)
    layout = Layout(DEFAULT_COLUMNS, table.partition_by, decoded=DECODED, with_fault=True)
    publisher = publisher_of(table, layout, "q")
    layout = publisher.begin(layout)
    for batch in range(BATCHES):
        numbers = range(batch * MESSAGES, (batch + 1) * MESSAGES)
        rows = [
            {
                "seq_id": n,
                "body": BODIES[n],
                "routing_key": KEYS[n % len(KEYS)],
                "enqueued_at": BEGAN + timedelta(hours=n),
                "headers": [("n", str(n))],
            }
            for n in numbers
        ]
        with publisher.drafts_dir("query", batch) as drafts_dir:
            writer = DraftWriter(layout, drafts_dir, batch)
            batch_rows = pa.RecordBatch.from_pylist(rows, arrow_schema(DEFAULT_COLUMNS))
            writer.add(BodyDecoder(DECODED).decoded(batch_rows))
            publisher.publish("query", batch, writer.close())
    return table


def judge(rows: Iterator[tuple[int, bytes, str | None, int | None]]) -> None:
    found = sorted(rows)
    numbers = range(BATCHES * MESSAGES)
    assert [row[0] for row in found] == [*numbers]
    assert [bytes(row[1]) for row in found] == BODIES
    assert [row[2] for row in found] == [KEYS[n % len(KEYS)] for n in numbers]
    assert [row[3] for row in found] == [n if n % 4 == 0 else None for n in numbers]


def test_duckdb_reads_them(table: LakeTable) -> None:
    duckdb = pytest.importorskip("duckdb", reason="no duckdb: make deps-spark")
    with duckdb.connect() as base:
        if table.format == PARQUET:
            source = f"read_parquet('{table}/day=*/**/*.parquet', hive_partitioning=true)"
        else:
            files: Any = sorted(table.files())
            source = f"read_parquet({files!r}, hive_partitioning={table.format == DELTA})"
        judge(base.sql(f"select seq_id, body, routing_key, id from {source}").fetchall())
        if table.format != ICEBERG:
            days = base.sql(f"select distinct day from {source} order by day").fetchall()
            assert days == [(date(2026, 11, 21),), (date(2026, 11, 22),)]
        wanted = f"select count(*) from {source} where enqueued_at < '2026-11-22 00:00:00+00'"
        assert base.sql(wanted).fetchall() == [(2,)]
        faults = f"select count(*) from {source} where body_fault is not null"
        assert base.sql(faults).fetchall() == [(BATCHES * MESSAGES * 3 // 4,)]


def test_their_own_libraries_read_them(table: LakeTable, tmp_path: Path) -> None:
    if table.format == ICEBERG:
        opened = table_in(tmp_path, "day", "routing_key").opened()
        assert opened is not None
        found = opened.scan().to_arrow()
        day = opened.scan(row_filter="enqueued_at < '2026-11-22T00:00:00+00:00'").to_arrow()
    elif table.format == DELTA:
        delta = DeltaTable(str(table))
        found = delta.to_pyarrow_table()
        assert set(found["day"].to_pylist()) == {date(2026, 11, 21), date(2026, 11, 22)}
        day = delta.to_pyarrow_table(filters=[("day", "=", date(2026, 11, 21))])
    else:
        from pyarrow import dataset

        strings = pa.schema([("day", pa.string()), ("routing_key", pa.string())])
        hive = dataset.partitioning(strings, flavor="hive")
        whole = dataset.dataset(str(table), partitioning=hive)
        found = whole.to_table()
        day = whole.to_table(filter=dataset.field("day") == "2026-11-21")
    rows = found.select(["seq_id", "body", "routing_key", "id"]).to_pylist()
    judge(tuple(row.values()) for row in rows)
    assert sorted(day["seq_id"].to_pylist()) == [0, 1]


def test_the_log_of_delta_has_the_times_of_each_file(tmp_path: Path) -> None:
    """So that a reader that asks for a day opens the files of that day only."""
    table = Table(tmp_path, DELTA)
    layout = Layout(DEFAULT_COLUMNS)
    publisher = publisher_of(table, layout, "q")
    publisher.begin(layout)
    for batch in range(2):
        times = [BEGAN + timedelta(days=batch, hours=hour) for hour in range(3)]
        rows = [{"seq_id": n, "enqueued_at": moment} for n, moment in enumerate(times)]
        with publisher.drafts_dir("query", batch) as drafts_dir:
            writer = DraftWriter(layout, drafts_dir, batch)
            writer.add(pa.RecordBatch.from_pylist(rows, arrow_schema(DEFAULT_COLUMNS)))
            publisher.publish("query", batch, writer.close())
    actions = pa.table(DeltaTable(tmp_path).get_add_actions(flatten=True)).sort_by(
        "min.enqueued_at"
    )
    assert actions["min.enqueued_at"].to_pylist() == [BEGAN, BEGAN + timedelta(days=1)]
    assert actions["max.enqueued_at"].to_pylist() == [
        BEGAN + timedelta(days=days, hours=2) for days in range(2)
    ]
    assert actions["null_count.enqueued_at"].to_pylist() == [0, 0]
