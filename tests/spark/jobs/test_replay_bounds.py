"""What a replay sends: what was in the table when it was planned, with the values it had."""

from __future__ import annotations

import json
import shutil
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import MagicMock

import pyarrow as pa
import pytest
from pyarrow import parquet

from penstock.spark.jobs import replay
from penstock.spark.jobs.replay import SEQ, TIME, CannotReplay, ReplayJob
from penstock.spark.tables.delta import DeltaPublisher
from penstock.spark.tables.table import DELTA, PARQUET, Table
from pyspark_penstock.table_files import Draft, directory_of
from tests.spark.tables.iceberg_tools import Pipeline, messages, table_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

BEGAN = datetime(2026, 11, 21, 12, tzinfo=UTC)
Row = tuple[str, int, float]  # queue, seq_id, seconds after BEGAN


@pytest.fixture
def job(tmp_path: Path) -> ReplayJob:
    return ReplayJob("amqp://x", "local[1]", Table(tmp_path), "again", {"queue": "q"}, rate=2.0)


def land(lake: Path, name: str, *rows: Row) -> None:
    table = {
        "queue": [queue for queue, _, _ in rows],
        "seq_id": pa.array([seq_id for _, seq_id, _ in rows], pa.int64()),
        "enqueued_at": pa.array(
            [BEGAN + timedelta(seconds=at_s) for _, _, at_s in rows], pa.timestamp("us", "UTC")
        ),
    }
    parquet.write_table(pa.table(table), lake / f"{name}.parquet")


@pytest.mark.parametrize("order", [TIME, SEQ])
def test_what_lands_after_the_plan_is_not_sent(
    spark: SparkSession, tmp_path: Path, job: ReplayJob, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    """Such as what the replay itself has sent into an exchange that is archived."""
    job = replace(job, order=order)
    land(tmp_path, "a", *[("a", number, number) for number in range(5)])
    land(tmp_path, "b", *[("b", number, number + 0.5) for number in range(4)])
    sent: list[tuple[str, int]] = []

    def write(self: replay._Replay, number: int) -> None:
        """In place of Spark's write; the archive lands something after the first slice."""
        sent.extend((row["queue"], row["seq_id"]) for row in self._slice(number).collect())
        if number == 0:
            land(tmp_path, "a2", ("a", 5, 100), ("a", 6, 101))
            land(tmp_path, "b2", ("b", 4, 3.9))  # came before the plan, landed after it
            land(tmp_path, "b3", ("b", 0, 102))  # the queue was declared anew
            land(tmp_path, "c", ("c", 0, 1.2))

    monkeypatch.setattr(replay._Replay, "_write", write)
    monkeypatch.setattr(replay, "RunReports", MagicMock())
    monkeypatch.setattr(replay.Pace, "wait_s", lambda *_: 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(replay, "session", lambda *_: _Kept(spark))
        done = replay.run_replay(job, lambda *_: None, threading.Event())
    assert sorted(sent) == [("a", n) for n in range(5)] + [("b", n) for n in range(4)]
    assert (done.messages, done.slices, done.left) == (9, 3, 0)


class _Kept:
    """The session of the module, which is not stopped."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def __enter__(self) -> SparkSession:
        return self._spark

    def __exit__(self, *_: object) -> None:
        pass


def test_a_slice_that_is_not_as_planned_is_not_sent(
    spark: SparkSession, tmp_path: Path, job: ReplayJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    land(tmp_path, "a", *[("a", number, number) for number in range(4)])
    land(tmp_path, "b", *[("a", number, number) for number in range(4, 8)])
    plan = replay.planned(replay.chosen(spark, job), job)
    monkeypatch.setattr(replay, "RunReports", MagicMock())
    sending = replay._Replay(job, plan, spark, lambda *_: None)
    assert [row["seq_id"] for row in sending._slice(0).collect()] == [0, 1, 2, 3]
    (tmp_path / "b.parquet").unlink()
    assert sending._slice(0).count() == 4
    with pytest.raises(CannotReplay, match=r"slice 2 of replay 'again' had 4 messages .* has 0"):
        sending._slice(1)


@pytest.mark.parametrize("kind", [PARQUET, DELTA])
def test_partition_values_beyond_ascii_come_back(
    spark: SparkSession, tmp_path: Path, job: ReplayJob, kind: str
) -> None:
    """Spark's own reading of ``routing_key=%C3%BC`` is not the value."""
    keys = ["ü", "漢 字/%2F", "plain", "a=b&c%", "Ã", None]
    drafts = []
    for number, key in enumerate(keys):
        place = tmp_path / "_penstock" / "drafts"
        place.mkdir(parents=True, exist_ok=True)
        land(place, str(number), ("q", number, number))
        path = place / f"{number}.parquet"
        directory = directory_of(("routing_key",), (key,))
        size = path.stat().st_size
        drafts.append(Draft(str(path), directory, json.dumps([key]), 1, size, number, number, 0))
    if kind == DELTA:
        schema = parquet.read_schema(drafts[0].path)
        DeltaPublisher(Table(tmp_path, kind, ("routing_key",)), schema, "q").publish("i", 0, drafts)
    else:
        for draft in drafts:
            (tmp_path / draft.directory).mkdir()
            shutil.move(draft.path, tmp_path / draft.directory)
    job = replace(job, lake=Table.at(tmp_path))
    rows = replay.chosen(spark, job).orderBy("seq_id").collect()
    assert [row["routing_key"] for row in rows] == keys
    chosen = replay.chosen(spark, replace(job, where="routing_key = 'ü'"))
    assert [row["seq_id"] for row in chosen.collect()] == [0]


def test_an_iceberg_table_is_read_with_all_its_columns(
    spark: SparkSession, tmp_path: Path, job: ReplayJob
) -> None:
    """Files that were written before a column was added lack it; removed files are passed over."""
    table = table_in(tmp_path, "day", "routing_key")
    Pipeline(table).land(0, messages(1, 2, keys=("ü", None)))
    later = Pipeline(table, raw_properties=True)
    later.land(1, messages(3, 4, keys=("ü", None), raw_properties=True))
    later.drafts(2, messages(5, raw_properties=True))
    job = replace(job, lake=table)
    rows = replay.chosen(spark, job).orderBy("seq_id").collect()
    assert [row["seq_id"] for row in rows] == [1, 2, 3, 4]
    assert [row["routing_key"] for row in rows] == [None, "ü", None, "ü"]
    assert [row["properties_raw"] for row in rows] == [None, None, b"raw", b"raw"]
    chosen = replay.chosen(spark, replace(job, until=BEGAN + timedelta(hours=12)))
    assert chosen.count() == 1
