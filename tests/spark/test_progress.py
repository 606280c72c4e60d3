"""Batches of a Spark query reach the broker; a broker that is gone does not reach the query."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.cli.management import Management
from penstock.spark.progress import lag_of, report_progress, told_of
from penstock_ranges.reports import decode_report
from tests.helpers.live_broker import LiveBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE_S = 60


def test_what_spark_says_of_a_batch_is_a_report_the_broker_takes() -> None:
    offsets = {
        "startOffset": {"v": 1, "q": {"orders": {"inc": "a", "seq": 0}}},
        "endOffset": {"v": 1, "q": {"orders": {"inc": "a", "seq": 90}}},
        "latestOffset": {"v": 1, "q": {"orders": {"inc": "a", "seq": 230}}},
    }
    progress = {
        "runId": "r",
        "batchId": 4,
        "batchDuration": 250,
        "numInputRows": 90,
        "sources": [offsets],
    }
    told = told_of(progress)
    assert told == {
        "state": "running",
        "run": "r",
        "lag": 140,
        "batch": 4,
        "rows": 90,
        "duration_ms": 250,
    }
    report = decode_report(json.dumps({"name": "lake"} | told).encode())
    assert (report.batch, report.rows, report.lag) == (4, 90, 140)


def test_a_trigger_without_rows_is_no_batch() -> None:
    told = told_of({"runId": "r", "batchId": 5, "numInputRows": 0, "sources": []})
    assert told == {"state": "waiting", "run": "r", "lag": None}


def test_what_a_new_master_skipped_is_no_lag() -> None:
    def at(seq: int) -> dict[str, Any]:
        return {"v": 1, "q": {"orders": {"inc": "a", "seq": seq}}}

    def lag(end: int, latest: int) -> int | None:
        return lag_of({"sources": [{"endOffset": at(end), "latestOffset": at(latest)}]})

    term = 1 << 40
    assert lag(term - 5, term + 30) == 30
    assert lag(term + 10, term + 30) == 20
    assert lag(7, 3 * term) == 0


@pytest.mark.parametrize("offset", [None, "", "{}", "7", '{"q": 3}', {"q": {"a": {}}}, [1]])
def test_offsets_of_other_sources_say_nothing_of_lag(offset: Any) -> None:
    assert lag_of({"sources": [{"endOffset": offset, "latestOffset": offset}]}) is None


def rows_of(broker: LiveBroker) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = Management(broker.http_url, "guest", "guest").get(
        "/api/penstock/pipelines"
    )
    return found


def eventually(happened: Callable[[], bool]) -> bool:
    until = time.monotonic() + PATIENCE_S
    while not happened() and time.monotonic() < until:
        time.sleep(0.2)
    return happened()


@pytest.mark.spark
@pytest.mark.timeout(200)
def test_batches_are_shown_and_a_lost_broker_stops_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Its end is no wait either: what the broker does not hear in a moment is not said."""
    with LiveBroker(tmp_path / "broker") as broker:
        with report_progress(spark, broker.url, "ticks", kind="mine", query_name="ticks"):
            query = (
                spark.readStream.format("rate")
                .option("rowsPerSecond", 50)
                .load()
                .writeStream.format("noop")
                .queryName("ticks")
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .trigger(processingTime="500 milliseconds")
                .start()
            )
            assert eventually(lambda: any(row["batches"] >= 2 for row in rows_of(broker)))
            (row,) = rows_of(broker)
            assert (row["name"], row["kind"], row["state"]) == ("ticks", "mine", "running")
            assert row["rows"] == sum(one["rows"] for one in row["last_batches"]) > 0
            assert row["run"] == str(query.runId)
            broker.kill()
            seen = query.lastProgress["batchId"]
            assert eventually(lambda: query.lastProgress["batchId"] >= seen + 3)
            assert query.isActive
            query.stop()
            begun = time.monotonic()
        assert time.monotonic() - begun < 15
