"""Streams on Spark 4.0 and 4.1, which ask for the newest offset without a place and a limit."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pyspark
import pytest
from pyarrow import dataset

from penstock.spark.jobs.query_run import started
from penstock.spark.launcher.failures import PipelineFailed
from pyspark_penstock import DefaultSource
from pyspark_penstock.older_spark import LimitedStreamReader
from tests.helpers.broker_process import BrokerProcess
from tests.spark.older_sparks import OLDER_SPARKS, environment_of
from tests.spark.range_host import RangeHost
from tests.spark.spark_tools import STREAM, archive_environment, depth, publish

WITHOUT_LIMITS = [one for one in OLDER_SPARKS if one < "4.2"]
COUNT = 1500
LIMIT = 400
PROGRAM = """
import sys
from pyspark.sql import SparkSession
url, kind, queue, table, checkpoint = sys.argv[1:]
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
reading = spark.readStream.format("penstock").option("url", url).option(kind, queue)
reading = reading.option("maxMessagesPerTrigger", LIMIT)
if kind == "stream":
    reading = reading.option("group", "lake").option("startingOffsets", "earliest")
rows = reading.load().selectExpr("seq_id", "CAST(body AS STRING) AS body")
def keep(batch, number):
    batch.write.mode("overwrite").parquet(f"{table}/batch={number}")
writing = rows.writeStream.foreachBatch(keep).option("checkpointLocation", checkpoint)
writing.trigger(processingTime="100 milliseconds").start().awaitTermination()
""".replace("LIMIT", str(LIMIT))


@pytest.fixture
def host() -> Iterator[RangeHost]:
    with RangeHost() as running:
        running.hall.declare("q")
        yield running


def limited(host: RangeHost, monkeypatch: pytest.MonkeyPatch, **more: Any) -> LimitedStreamReader:
    monkeypatch.setattr(pyspark, "__version__", "4.1.1")
    given = {"url": host.url, "queue": "q", "pollTimeout": "50ms", "maxMessagesPerTrigger": 4}
    source = DefaultSource({name: str(value) for name, value in (given | more).items()})
    reader = source.streamReader(source.schema())
    assert isinstance(reader, LimitedStreamReader)
    return reader


def seq(offset: dict[str, Any]) -> int:
    return int(offset["q"]["q"]["seq"])


def test_batches_have_limits_and_go_on_where_the_last_one_ended(
    host: RangeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    with host.lock:
        host.hall.publish("q", [b"%d" % number for number in range(10)])
    reader = limited(host, monkeypatch)
    start = reader.initialOffset()
    assert seq(start) == 0
    rows: list[list[int]] = []
    for _ in range(3):
        end = reader.latestOffset()
        (partition,) = reader.partitions(start, end)
        rows += [batch.column("seq_id").to_pylist() for batch in reader.read(partition)]
        start = end
    assert rows == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert reader.latestOffset() == end
    reader.stop()


def test_a_query_that_goes_on_begins_where_its_checkpoint_says(
    host: RangeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    with host.lock:
        host.hall.publish("q", [b"%d" % number for number in range(10)])
    first = limited(host, monkeypatch)
    first.initialOffset()
    end = first.latestOffset()
    first.stop()
    again = limited(host, monkeypatch)
    assert again.partitions(end, end) == []  # Spark tells the place
    assert seq(again.latestOffset()) == 8
    with host.lock:  # and what was committed is acknowledged
        assert host.hall.queues["q"].backing.ready_count() == 6
    again.stop()


def test_least_sizes_of_batches_are_refused(
    host: RangeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match=r"minBytesPerTrigger' need Spark 4\.2"):
        limited(host, monkeypatch, minMessagesPerTrigger=2, maxTriggerDelay="1s")


def test_a_pipeline_that_would_end_too_early_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", "4.1.1")
    with pytest.raises(PipelineFailed, match="older ones end it after one batch") as refused:
        started(MagicMock(), Path("checkpoint"), None)
    assert "--every" in refused.value.fix


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", WITHOUT_LIMITS)
@pytest.mark.parametrize("kind", ["queue", "stream"])
def test_each_message_comes_once_over_kills(
    kind: str, version: str, broker: BrokerProcess, tmp_path: Path
) -> None:
    queue = f"{kind} {version}"
    table, checkpoint = tmp_path / "table", tmp_path / "checkpoint"
    environment = archive_environment() | environment_of(version, tmp_path)
    given = (broker.url, kind, queue, str(table), str(checkpoint))
    arguments = STREAM if kind == "stream" else None
    for batch in range(3):  # a life of the program for each
        bodies = [b"%d" % (batch * COUNT + number) for number in range(COUNT)]
        publish(broker.url, queue, bodies, arguments=arguments)
        with subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *given], env=environment, process_group=0
        ) as program:
            end_s = time.monotonic() + 120
            while len(kept(table)) < (batch + 1) * COUNT - (batch < 2) * LIMIT:
                assert program.poll() is None
                assert time.monotonic() < end_s, len(kept(table))
                time.sleep(0.2)
            os.killpg(program.pid, 9)
    assert kept(table) == list(range(3 * COUNT))
    assert kind == "stream" or depth(broker.url, queue) <= LIMIT


def kept(table: Path) -> list[int]:
    """Numbers of the messages in finished batches, in order."""
    found = [path for path in table.glob("batch=*") if (path / "_SUCCESS").exists()]
    tables = [dataset.dataset(path).to_table(columns=["body"]) for path in found]
    return sorted(int(body) for one in tables for body in one.column("body").to_pylist())
