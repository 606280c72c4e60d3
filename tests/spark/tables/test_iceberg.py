"""Iceberg tables without Spark: a batch is one commit, and is there once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyiceberg.table import Table as OpenTable
from pyiceberg.table import Transaction

from penstock.spark.tables import iceberg
from penstock.spark.tables.compaction import compact
from penstock.spark.tables.iceberg import (
    CatalogFailed,
    CommitsRefused,
    IcebergPublisher,
    IcebergTable,
)
from penstock.spark.tables.table import OtherTable
from pyspark_penstock.body_columns import BodyDecoder, parse_body_columns
from pyspark_penstock.options import COLUMNS, DEFAULT_COLUMNS
from pyspark_penstock.table_files import DraftWriter, Layout, table_schema
from tests.spark.tables.iceberg_tools import (
    BEGAN,
    QUERY,
    Pipeline,
    data_files,
    messages,
    seq_ids,
    table_in,
)


def opened(table: IcebergTable) -> OpenTable:
    found = table.opened()
    assert found is not None
    return found


def test_batches_are_commits_and_land_once(tmp_path: Path) -> None:
    table = table_in(tmp_path)
    pipeline = Pipeline(table)
    assert pipeline.publisher.landed(QUERY, 0) is None
    landed = pipeline.land(0, messages(1, 2))
    assert (landed.messages, landed.files, landed.holes, landed.before) == (2, 1, 2, False)
    pipeline.land(1, messages(3))
    again = Pipeline(table).publisher
    assert [bool(again.landed(QUERY, batch)) for batch in (0, 1, 2)] == [True, True, False]
    assert again.landed("another-query", 0) is None
    assert seq_ids(table) == [1, 2, 3]
    assert pipeline.land(1, messages(3)).before, "asked before each commit, too"
    assert seq_ids(table) == [1, 2, 3]
    assert len(data_files(tmp_path)) == 2 == len(table.files())


def test_a_snapshot_says_which_batch_it_is(tmp_path: Path) -> None:
    table = table_in(tmp_path)
    Pipeline(table).land(7, messages(1, 2))
    snapshot = opened(table).current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    said = snapshot.summary.additional_properties
    assert {name: said[f"penstock.{name}"] for name in ("query", "batch", "messages")} == {
        "query": QUERY,
        "batch": "7",
        "messages": "2",
    }


def test_a_batch_without_messages_is_landed_and_makes_no_snapshot(tmp_path: Path) -> None:
    table = table_in(tmp_path)
    pipeline = Pipeline(table)
    pipeline.publisher.publish(QUERY, 0, [])
    assert pipeline.publisher.landed(QUERY, 0)
    assert opened(table).current_snapshot() is None


def test_files_have_all_columns_with_their_numbers_and_bounds(tmp_path: Path) -> None:
    table = table_in(tmp_path, "routing_key")
    Pipeline(table).land(0, messages(1, 2))
    [file] = data_files(tmp_path)
    schema = parquet.read_schema(file)
    assert schema.names == [*DEFAULT_COLUMNS, "ingest_batch"]
    numbers = {one.name: one.field_id for one in opened(table).schema().fields}
    for column in schema:
        assert int(column.metadata[b"PARQUET:field_id"]) == numbers[column.name]
    rows = opened(table).scan().to_arrow().to_pylist()
    assert [row["headers"] for row in rows] == [[("a", "1")], [("a", "2")]]
    assert [row["enqueued_at"] for row in rows] == [BEGAN + timedelta(hours=n) for n in (1, 2)]
    [task] = opened(table).scan(row_filter="seq_id < 2").plan_files()
    assert not list(opened(table).scan(row_filter="seq_id > 2").plan_files())
    assert task.file.record_count == 2


def test_partitions_are_transforms_and_other_files_are_passed_over(tmp_path: Path) -> None:
    table = table_in(tmp_path, "hour", "routing_key")
    keys = (None, "", "a/ü %", "x" * 255)
    Pipeline(table).land(0, messages(0, 1, 2, 3, keys=keys))
    parts = [row["partition"] for row in opened(table).inspect.partitions().to_pylist()]
    hour = int(BEGAN.timestamp()) // 3600
    assert sorted((part["enqueued_at_hour"] - hour, part["routing_key"]) for part in parts) == [
        *zip(range(4), keys, strict=True)
    ]
    wanted = opened(table).scan(row_filter="enqueued_at < '2026-11-21T23:30:00+00:00'")
    assert [task.file.record_count for task in wanted.plan_files()] == [1]
    assert wanted.to_arrow()["seq_id"].to_pylist() == [0]


def test_columns_of_bodies_and_days_of_publishing_are_partitions(tmp_path: Path) -> None:
    table = table_in(tmp_path, "published_day", "region")
    publisher = IcebergPublisher(table)
    columns = parse_body_columns("id long, region string", ())
    layout = publisher.begin(
        Layout(DEFAULT_COLUMNS, table.partition_by, decoded=columns, with_fault=True)
    )
    rows = messages(0, 1, 2)
    bodies = [b'{"id": 7, "region": "eu"}', b"no", b'{"id": 9, "region": "us"}']
    times = [BEGAN, BEGAN, None]
    for name, values in (("body", bodies), ("timestamp", times)):
        at = rows.schema.get_field_index(name)
        rows = rows.set_column(at, rows.schema.field(at), pa.array(values, rows.schema.types[at]))
    with publisher.drafts_dir(QUERY, 0) as place:
        writer = DraftWriter(layout, place, 0)
        writer.add(BodyDecoder(columns).decoded(rows))
        landed = publisher.publish(QUERY, 0, writer.close())
    assert (landed.messages, landed.faults) == (3, 1)
    table.check(table_schema(layout))
    parts = [row["partition"] for row in opened(table).inspect.partitions().to_pylist()]
    day = BEGAN.date()
    found = {(part["timestamp_day"], part["region"]) for part in parts}
    assert found == {(day, "eu"), (day, None), (None, "us")}
    rows_there = {row["seq_id"]: row for row in opened(table).scan().to_arrow().to_pylist()}
    assert [rows_there[n]["id"] for n in range(3)] == [7, None, 9]
    assert [rows_there[n]["body"] for n in range(3)] == bodies
    assert "not JSON" in rows_there[1]["body_fault"]


def test_a_day_is_a_date(tmp_path: Path) -> None:
    table = table_in(tmp_path, "day")
    Pipeline(table).land(0, messages(0, 1, 2, 3))
    parts = [row["partition"] for row in opened(table).inspect.partitions().to_pylist()]
    days = {part["enqueued_at_day"] for part in parts}
    assert days == {date(2026, 11, 21), date(2026, 11, 22)}


def test_a_crash_before_the_commit_leaves_nothing_and_its_files_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_in(tmp_path)
    Pipeline(table).land(0, messages(1))

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Transaction, "commit_transaction", crash)
        with pytest.raises(KeyboardInterrupt):
            Pipeline(table).land(1, messages(2, 3))
    assert seq_ids(table) == [1]
    assert len(data_files(tmp_path)) == 2
    pipeline = Pipeline(table)
    assert pipeline.publisher.landed(QUERY, 1) is None
    pipeline.land(1, messages(2, 3))
    assert seq_ids(table) == [1, 2, 3]
    assert len(data_files(tmp_path)) == 2, "those of the first try are gone"


def test_a_crash_behind_the_commit_is_found_and_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_in(tmp_path)
    pipeline = Pipeline(table)
    pipeline.drafts(0, messages(9))  # of a task that Spark ran a second time

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(iceberg, "_sweep", crash)
        with pytest.raises(KeyboardInterrupt):
            pipeline.land(0, messages(1, 2))
    assert len(data_files(tmp_path)) == 2
    assert Pipeline(table).publisher.landed(QUERY, 0)
    assert len(data_files(tmp_path)) == 1
    assert seq_ids(table) == [1, 2]


def test_of_two_drivers_one_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The late one is at its commit when the other one's arrives."""
    table = table_in(tmp_path)
    late, other = Pipeline(table), Pipeline(table)
    late.land(0, messages(1))
    drafts = late.drafts(1, messages(2))
    real = Transaction.commit_transaction

    def first_the_other(commit: Transaction) -> OpenTable:
        monkeypatch.setattr(Transaction, "commit_transaction", real)
        other.land(1, messages(2))
        return real(commit)

    monkeypatch.setattr(Transaction, "commit_transaction", first_the_other)
    assert late.publisher.publish(QUERY, 1, drafts).before
    assert seq_ids(table) == [1, 2]


def test_commits_of_others_in_between_are_gone_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iceberg, "PAUSE_S", 0.0)
    table = table_in(tmp_path)
    one, other = Pipeline(table), Pipeline(table, "another-query")
    real = Transaction.commit_transaction
    count = 0

    def first_the_other(commit: Transaction) -> OpenTable:
        nonlocal count
        if count < limit:
            count += 1
            with monkeypatch.context() as patch:
                patch.setattr(Transaction, "commit_transaction", real)
                other.land(count, messages(100 + count))
        return real(commit)

    monkeypatch.setattr(Transaction, "commit_transaction", first_the_other)
    limit = 2
    assert not one.land(0, messages(1)).before
    assert seq_ids(table) == [1, 101, 102]
    monkeypatch.setattr(iceberg, "COMMITS_MAX", 2)
    limit = 4
    with pytest.raises(CommitsRefused, match="changed by others 2 times"):
        one.land(1, messages(2))
    assert seq_ids(table) == [1, 101, 102, 103, 104]


def test_an_expiry_of_snapshots_makes_no_batch_land_again(tmp_path: Path) -> None:
    table = table_in(tmp_path)
    pipeline = Pipeline(table)
    pipeline.land(0, messages(1))
    Pipeline(table, "another-query").land(0, messages(2))
    soon = datetime.now(UTC) + timedelta(minutes=1)
    opened(table).maintenance.expire_snapshots().older_than(soon).commit()
    assert len(opened(table).snapshots()) == 1
    assert pipeline.publisher.landed(QUERY, 0)
    assert seq_ids(table) == [1, 2]


def test_columns_come_later_and_no_file_is_written_anew(tmp_path: Path) -> None:
    table = table_in(tmp_path)
    Pipeline(table).land(0, messages(1))
    with opened(table).update_schema() as update:
        update.add_column("note", opened(table).schema().find_field("queue").field_type)
    layout = Layout(COLUMNS)
    table.check(table_schema(layout))
    publisher = Pipeline(table).publisher
    ids = publisher.begin(layout).column_ids
    assert ids["properties_raw"] == (len(ids) + 2,), "behind the others, the map has two parts"
    Pipeline(table).land(1, messages(2))
    rows = opened(table).scan().to_arrow()
    assert set(rows["properties_raw"].to_pylist()) == {None}
    assert seq_ids(table) == [1, 2]


def test_another_table_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    table = table_in(tmp_path, "day")
    table.check(table_schema(Layout(DEFAULT_COLUMNS, ("day",))))
    Pipeline(table)
    schema = table_schema(Layout(DEFAULT_COLUMNS, ("day",)))
    table.check(schema)
    for other in ((), ("hour",), ("day", "queue")):
        with pytest.raises(OtherTable, match="has the partitions day, not"):
            replace(table, partition_by=other).check(schema)
    with pytest.raises(OtherTable, match="an hour is one of a day"):
        table_in(tmp_path / "new", "day", "hour").check(schema)
    wrong = schema.set(0, pa.field("seq_id", pa.string()))
    with pytest.raises(OtherTable, match="of another type: seq_id is long, not string"):
        table.check(wrong)


def test_partitions_of_other_programs_are_named(tmp_path: Path) -> None:
    table = table_in(tmp_path)
    Pipeline(table)
    with opened(table).update_spec() as spec:
        spec.add_field("queue", "bucket[16]", "b")
    with pytest.raises(OtherTable, match=r"bucket\[16\]\(queue\), not none"):
        table.check(table_schema(Layout(DEFAULT_COLUMNS)))


def test_a_catalog_that_is_not_there_is_told(tmp_path: Path) -> None:
    table = table_in(tmp_path / "nowhere")
    with pytest.raises(CatalogFailed, match=r"cannot open lake.orders .*unable to open database"):
        table.opened()
    nothing = iceberg.iceberg_table("lake.orders", "unknown", "", "", ())
    with pytest.raises(CatalogFailed, match=r"cannot open lake.orders of catalog unknown"):
        nothing.opened()


def test_notes_are_apart_for_each_catalog_and_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    tables = [
        table_in(tmp_path),
        table_in(tmp_path / "other"),
        table_in(tmp_path, catalog="prod"),
        replace(table_in(tmp_path), name="lake.returns"),
    ]
    homes = {table.home for table in tables}
    assert len(homes) == len(tables)
    assert all(home.is_relative_to(tmp_path / "penstock" / "iceberg") for home in homes)
    assert replace(tables[0], partition_by=("day",)).home == tables[0].home


def test_compaction_is_one_commit_and_forgets_no_batch(tmp_path: Path) -> None:
    table = table_in(tmp_path, "day")
    pipeline = Pipeline(table)
    for batch in range(3):
        pipeline.land(batch, messages(batch * 2, batch * 2 + 1))
    plan = compact(table, 1 << 20, silent, only_plan=True)
    assert (plan.partitions, plan.files_before, plan.files_after) == (1, 2, 0)
    assert len(table.files()) == 3, "the first batch is of another day"
    told: list[tuple[int, int]] = []
    done = compact(table, 1 << 20, lambda _, before, after: told.append((before, after)))
    assert told == [(2, 1)]
    assert (done.files_before, done.files_after, done.messages) == (2, 1, 4)
    assert done.bytes_before > done.bytes_after > 0
    rows = opened(table).scan(row_filter="seq_id > 1").to_arrow().to_pylist()
    assert [row["seq_id"] for row in rows] == [2, 3, 4, 5], "in their order"
    assert [row["headers"] for row in rows[:2]] == [[("a", "2")], [("a", "3")]]
    assert pipeline.publisher.landed(QUERY, 2)
    assert seq_ids(table) == list(range(6))
    assert compact(table, 1 << 20, silent).partitions == 0
    pipeline.land(3, messages(6))
    assert seq_ids(table) == list(range(7))


def test_a_vacuum_removes_what_old_snapshots_alone_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_in(tmp_path)
    pipeline = Pipeline(table)
    for batch in range(3):
        pipeline.land(batch, messages(batch))
    done = compact(table, 1 << 20, silent, vacuum_hours=168)
    assert done.removed == 0, "readers of the last week may need them"
    assert len(data_files(tmp_path)) == 4
    assert compact(table, 1 << 20, silent, vacuum_hours=0).removed > 3
    assert [str(file) for file in data_files(tmp_path)] == table.files()
    assert seq_ids(table) == [0, 1, 2]
    assert pipeline.publisher.landed(QUERY, 2)
    pipeline.land(3, messages(3))
    assert seq_ids(table) == [0, 1, 2, 3]


def test_a_compaction_beside_others_loses_nothing_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that lands meanwhile stays; where a file was taken out, nothing is exchanged."""
    monkeypatch.setattr(iceberg, "PAUSE_S", 0.0)
    table = table_in(tmp_path)
    pipeline = Pipeline(table)
    for batch in range(2):
        pipeline.land(batch, messages(batch))
    real = Transaction.commit_transaction

    def first(other: Callable[[], object]) -> None:
        def commit(transaction: Transaction) -> OpenTable:
            monkeypatch.setattr(Transaction, "commit_transaction", real)
            other()
            return real(transaction)

        monkeypatch.setattr(Transaction, "commit_transaction", commit)

    first(lambda: pipeline.land(2, messages(2)))
    assert compact(table, 1 << 20, silent).files_before == 2
    assert seq_ids(table) == [0, 1, 2]
    files = len(data_files(tmp_path))
    first(lambda: opened(table).delete("seq_id = 2"))
    assert compact(table, 1 << 20, silent).partitions == 0
    assert seq_ids(table) == [0, 1]
    assert len(data_files(tmp_path)) == files


def silent(*_: object) -> None:
    """No partition is told of."""
