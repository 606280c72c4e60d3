"""A table for each queue: a batch in all of them once, wherever it was cut off; without a Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pytest
from pyarrow import parquet

from penstock.cli.pipelines.lake import begun_table
from penstock.spark.tables.landing import LakeTable, Landing
from penstock.spark.tables.parts import Target
from penstock.spark.tables.per_queue import QueueTables, TablePerQueue
from penstock.spark.tables.table import DELTA, ICEBERG, PARQUET
from pyspark_penstock.body_columns import BodyDecoding
from pyspark_penstock.columns import arrow_schema
from pyspark_penstock.options import DEFAULT_COLUMNS
from pyspark_penstock.sorting import Sorter
from pyspark_penstock.table_files import Layout

QUERY = "7d9f2f0e-0000-4000-8000-000000000000"


def family(tmp_path: Path, format_: str, partition_by: tuple[str, ...] | None = ()) -> Any:
    words: dict[str, str | None] = dict.fromkeys(("catalog", "catalog_uri", "warehouse"))
    place: Path | None = tmp_path / "lake" / "{queue}"
    name = None
    if format_ == ICEBERG:
        words |= {"catalog_uri": f"sqlite:///{tmp_path}/catalog.db"}
        words |= {"warehouse": str(tmp_path / "warehouse")}
        place, name = None, "lake.{queue}"
    return begun_table(
        place, name, words, table_format=format_, partition_by=partition_by, endless=False
    )


class Lands:
    """Batches of messages of some queues, with Spark's notes of them."""

    def __init__(self, tables: TablePerQueue) -> None:
        self.family = tables
        self.ends: dict[str, int] = {}
        self.sent: dict[str, list[int]] = {}
        self.batch = -1

    def plan(self, **counts: int) -> None:
        self.batch += 1
        self.counts = counts
        for queue in counts:
            self.sent.setdefault(queue, [])
        self.begins = {queue: self.ends.get(queue, 0) for queue in counts}
        for queue, count in counts.items():
            self.ends[queue] = self.begins[queue] + count
            self.sent[queue] += range(self.begins[queue], self.ends[queue])
        checkpoint = self.landing(self.family).checkpoint
        (checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
        (checkpoint / "metadata").write_text(json.dumps({"id": QUERY}))
        offset = {queue: {"inc": "i", "seq": seq} for queue, seq in self.ends.items()}
        note = "\n".join(("v1", "{}", json.dumps({"v": 1, "q": offset})))
        (checkpoint / "offsets" / str(self.batch)).write_text(note)

    def landing(self, table: LakeTable) -> Landing:
        return Landing(table, "/", "/orders.*/", None)

    def land(self) -> int | None:
        """None = it had landed before."""
        layout = Layout(DEFAULT_COLUMNS)
        meant = QueueTables(self.family, layout, self.landing(self.family), self.landing)
        with meant.begun() as tables:
            if tables.main.publisher.landed(QUERY, self.batch) is not None:
                return None
            with tables.batch(QUERY, self.batch) as places:
                sorter = Sorter(BodyDecoding(()), places.parts, self.batch)
                for queue, count in self.counts.items():
                    rows = [
                        {"seq_id": self.begins[queue] + n, "body": b"x", "queue": queue}
                        for n in range(count)
                    ]
                    schema = arrow_schema(DEFAULT_COLUMNS)
                    sorter.add(pa.RecordBatch.from_pylist(rows, schema), queue)
                landed, _ = places.publish(sorter.close())
                return landed.messages

    def rows(self) -> dict[str, list[int]]:
        return {
            queue: sorted(
                number
                for file in self.family.of(queue).files()
                for number in parquet.read_table(file, partitioning=None)["seq_id"].to_pylist()
            )
            for queue in self.sent
        }


@pytest.mark.parametrize("format_", [PARQUET, DELTA, ICEBERG])
def test_each_queue_has_its_table_and_a_cut_batch_lands_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_: str
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    lands = Lands(family(tmp_path, format_))
    lands.plan(a=3, b=2)
    assert lands.land() == 5
    lands.plan(a=1, c=4)
    publish = Target.publish

    def cut(self: Target, query_id: str, batch: int, drafts: Any) -> int:
        if self.name == "c":
            raise InterruptedError
        return publish(self, query_id, batch, drafts)

    monkeypatch.setattr(Target, "publish", cut)
    with pytest.raises(InterruptedError):
        lands.land()
    assert lands.rows()["a"] == [0, 1, 2, 3]
    assert not lands.rows()["c"]
    monkeypatch.setattr(Target, "publish", publish)
    assert lands.land() == 5
    assert lands.land() is None
    assert lands.rows() == lands.sent == {"a": [0, 1, 2, 3], "b": [0, 1], "c": [0, 1, 2, 3]}


def test_a_name_of_a_queue_is_one_step_of_a_path(tmp_path: Path) -> None:
    found = family(tmp_path, PARQUET)
    assert found.root == tmp_path / "lake"
    assert str(found.of("../x")) == str(tmp_path / "lake" / "%2E.%2Fx")
    assert family(tmp_path, ICEBERG).of("orders.eu-1").name == "lake.orders_eu_1"


def test_two_queues_of_one_name_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    lands = Lands(family(tmp_path, ICEBERG))
    lands.plan(**{"a.b": 1, "a_b": 1})
    with pytest.raises(Exception, match=r"'a\.b' and 'a_b' would both be in lake\.a_b"):
        lands.land()


def test_a_table_keeps_its_partitions(tmp_path: Path) -> None:
    lands = Lands(family(tmp_path, PARQUET, ("queue",)))
    lands.plan(a=1)
    lands.land()
    again = family(tmp_path, PARQUET, None)
    assert again.of("a").partition_by == ("queue",)
    assert again.of("new").partition_by == ()
    with pytest.raises(click.UsageError, match="is not a name such as"):
        begun_table(
            None, "{queue}", dict.fromkeys(("catalog", "catalog_uri", "warehouse")),
            table_format=ICEBERG, partition_by=None, endless=False,
        )  # fmt: skip
