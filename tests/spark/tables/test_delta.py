"""Delta tables without Spark: a batch is one transaction, and is there once."""

from __future__ import annotations

import json
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from pyarrow import parquet

from penstock.spark.tables.compaction import compact
from penstock.spark.tables.delta import DeltaPublisher
from penstock.spark.tables.table import OtherTable, Table
from pyspark_penstock.table_files import Draft, directory_of

QUERY = "0f8fad5b-d9cb-469f-a165-70867728950e"
SCHEMA = pa.schema([("seq_id", pa.int64()), ("ingest_batch", pa.int64())])


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path / "t", "delta", ("routing_key",))


def publisher_of(table: Table) -> DeltaPublisher:
    return DeltaPublisher(table, SCHEMA, "q")


def drafts_of(
    table: Table, batch: int, *seq_ids: int, values: tuple[str | None, ...] = ("eu/ü %",)
) -> list[Draft]:
    place = table.home / "q" / "staging"
    place.mkdir(parents=True, exist_ok=True)
    drafts = [Draft("", "", "[]", 0, 0, 0, 0, 2)]
    for seq_id in seq_ids:
        path = place / f"{batch}-{seq_id}.parquet"
        parquet.write_table(pa.table([[seq_id], [batch]], schema=SCHEMA), path)
        where, size = directory_of(table.partition_by, values), path.stat().st_size
        drafts.append(Draft(str(path), where, json.dumps(values), 1, size, seq_id, seq_id, 0))
    return drafts


def rows(table: Table) -> list[int]:
    found = deltalake.DeltaTable(table.directory).to_pyarrow_table()
    assert set(found["routing_key"].to_pylist()) == {"eu/ü %"}
    return sorted(found["seq_id"].to_pylist())


def test_batches_are_transactions_and_land_once(table: Table) -> None:
    publisher = publisher_of(table)
    assert publisher.landed(QUERY, 0) is None
    landed = publisher.publish(QUERY, 0, drafts_of(table, 0, 1, 2))
    assert (landed.messages, landed.files, landed.holes, landed.before) == (2, 2, 2, False)
    publisher.publish(QUERY, 1, drafts_of(table, 1, 3))
    again = publisher_of(table)
    assert [bool(again.landed(QUERY, batch)) for batch in (0, 1, 2)] == [True, True, False]
    assert again.landed("another-query", 0) is None
    assert rows(table) == [1, 2, 3]


def test_a_crash_before_the_commit_leaves_nothing_in_the_table(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher_of(table).publish(QUERY, 0, drafts_of(table, 0, 1))

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(DeltaPublisher, "_commit", crash)
        with pytest.raises(KeyboardInterrupt):
            publisher_of(table).publish(QUERY, 1, drafts_of(table, 1, 2, 3))
    assert rows(table) == [1]
    publisher = publisher_of(table)
    assert publisher.landed(QUERY, 1) is None
    publisher.publish(QUERY, 1, drafts_of(table, 1, 2, 3))
    assert rows(table) == [1, 2, 3]
    names = list(table.directory.glob("routing_key=*/*.parquet"))
    assert len(names) == 3, "the second try took the same names"


def test_of_two_drivers_one_commits(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    publisher_of(table).publish(QUERY, 0, drafts_of(table, 0, 1))
    late = publisher_of(table)
    seen = late._opened()
    publisher_of(table).publish(QUERY, 1, drafts_of(table, 1, 2))
    monkeypatch.setattr(late, "_opened", lambda: seen)  # it looked before the other committed
    with pytest.raises(Exception, match=r"(?i)transaction|conflict"):
        late.publish(QUERY, 1, drafts_of(table, 1, 2))
    assert rows(table) == [1, 2]


def test_compaction_is_a_transaction_and_forgets_no_batch(table: Table) -> None:
    publisher = publisher_of(table)
    for batch in range(4):
        publisher.publish(QUERY, batch, drafts_of(table, batch, batch))
    done = compact(table, 1 << 20, lambda *_: None)
    assert (done.files_before, done.files_after) == (4, 1)
    assert done.bytes_before > 0 < done.bytes_after
    assert rows(table) == [0, 1, 2, 3]
    assert publisher.landed(QUERY, 3)


@pytest.mark.parametrize("kind", [pa.string(), pa.date32()], ids=str)
def test_days_are_dates_and_a_table_with_texts_stays_so(tmp_path: Path, kind: pa.DataType) -> None:
    """Release 0.1.0 made texts of them."""
    table = Table(tmp_path / "t", "delta", ("day", "published_day", "hour"))
    if kind == pa.string():
        paths = [pa.field(name, kind) for name in table.partition_by]
        schema = deltalake.Schema.from_arrow(pa.schema([*SCHEMA, *paths]))
        deltalake.DeltaTable.create(
            str(table.directory), schema, partition_by=list(table.partition_by)
        )
    days = ("2026-11-28", "0999-01-01", "9999-12-31")
    table.check(SCHEMA)
    for batch, day in enumerate(days):
        for values in ((day, None, "08"), (day, day, "08")):
            drafts = drafts_of(table, batch, batch, values=values)
            publisher_of(table).publish(f"query-{values[1]}", batch, drafts)
    compact(table, 1 << 20, lambda *_: None)
    found = deltalake.DeltaTable(table.directory).to_pyarrow_table()
    assert [found.schema.field(name).type for name in table.partition_by] == [kind] * 2 + [
        pa.string()
    ]
    text = found["published_day"].cast(pa.string()).to_pylist()
    assert sorted(map(str, text)) == sorted([*days, *["None"] * 3])
    assert sorted(set(found["day"].cast(pa.string()).to_pylist())) == sorted(days)


def test_another_delta_table_is_refused(table: Table) -> None:
    publisher_of(table).publish(QUERY, 0, drafts_of(table, 0, 1))
    table.check(SCHEMA)
    with pytest.raises(OtherTable, match="other columns or partitions: it lacks body"):
        table.check(SCHEMA.append(pa.field("body", pa.binary())))
    with pytest.raises(OtherTable, match="partitions"):
        Table(table.directory, "delta").check(SCHEMA)
