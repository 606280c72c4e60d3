"""A rehearsal of all pipelines without a broker: it loads the Java classes they need.

    python -m penstock.spark.launcher.rehearsal BASE DRAFT

Its Java writes the classes it has loaded to DRAFT when it ends (``java_classes``); BASE is the
file of Java's own classes.  What is missing here is loaded the slow way later.
"""

import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from penstock.spark.launcher.java_classes import noting_options
from penstock.spark.launcher.session import local_session

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import DataFrame, SparkSession

JAVA_TIMEOUT_S = 120.0
ROWS = 100
BATCHES = 2

QUESTIONS = (
    """select text, window(at, '1 minute') as w, count(*), max(number), sum(number),
       percentile_approx(number, array(0.5, 0.99)) from numbers group by 1, 2 order by 1, 2""",
    """select a.number, get_json_object(cast(a.body as string), '$.n') as n from numbers a
       left anti join numbers b on a.number = b.number + 1 order by 1 limit 10""",
    """select to_json(struct(*)), row_number() over (partition by text order by at) as place
       from numbers where text like 'even%' and length(body) > 0""",
)


class Numbers(DataSource):
    @classmethod
    def name(cls) -> str:
        return "penstock_numbers"

    def schema(self) -> str:
        return "number long, at timestamp, text string, body binary"

    def reader(self, schema: Any) -> DataSourceReader:
        return NumbersReader()

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return NumbersStream()


class Share(InputPartition):
    """From here on, ``ROWS`` of them."""

    def __init__(self, start: int) -> None:
        super().__init__(start)
        self.start = start


def batch_of(partition: InputPartition) -> "RecordBatch":
    import pyarrow as pa

    assert isinstance(partition, Share)
    numbers = range(partition.start, partition.start + ROWS)
    return pa.record_batch(
        {
            "number": pa.array(numbers, pa.int64()),
            "at": pa.array([datetime.now(UTC)] * ROWS, pa.timestamp("us", tz="UTC")),
            "text": pa.array([("even", "odd")[number % 2] for number in numbers]),
            "body": pa.array([b'{"n": %d}' % number for number in numbers], pa.binary()),
        }
    )


class NumbersReader(DataSourceReader):
    def partitions(self) -> list[InputPartition]:
        return [Share(0), Share(ROWS)]

    def read(self, partition: InputPartition) -> "Iterator[RecordBatch]":
        return iter([batch_of(partition)])


class NumbersStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """As ``source.StreamReader``: with limits, and an end."""

    def initialOffset(self) -> dict[str, int]:
        return {"n": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(ROWS)

    def prepareForTriggerAvailableNow(self) -> None:
        """It ends anyway."""

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        return {"n": min(start["n"] + 1, BATCHES)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [Share(ROWS * number) for number in range(start["n"], end["n"])]

    def read(self, partition: InputPartition) -> "Iterator[RecordBatch]":
        return iter([batch_of(partition)])

    def commit(self, end: dict[str, int]) -> None:
        """Nothing to let go of."""


def rehearse(spark: "SparkSession", scratch: Path) -> int:
    rows = 0

    def land(frame: "DataFrame", _: int) -> None:
        nonlocal rows
        rows += len(frame.rdd.mapPartitions(list).collect())

    spark.dataSource.register(Numbers)
    stream = spark.readStream.format(Numbers.name()).load()
    checkpoint = str(scratch / "checkpoint")
    writer = stream.writeStream.foreachBatch(land).option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()

    lake = str(scratch / "lake")
    spark.read.format(Numbers.name()).load().write.partitionBy("text").parquet(lake)
    spark.read.parquet(lake).createOrReplaceTempView("numbers")
    for question in QUESTIONS:
        spark.sql(question).collect()
    spark.createDataFrame([(1, "one")], "number long, text string").collect()
    return rows


def end_java(spark: "SparkSession") -> None:
    """And wait until it has: it writes its file last."""
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 - nothing public ends it
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(JAVA_TIMEOUT_S)


def main() -> int:
    base, draft = Path(sys.argv[1]), Path(sys.argv[2])
    with tempfile.TemporaryDirectory() as scratch:
        noting = noting_options(base, draft)
        spark = local_session(
            "penstock rehearsal", "local[2]", "", Path(scratch) / "spark", short=True, java=noting
        )
        rows = rehearse(spark, Path(scratch))
        end_java(spark)
    if rows != BATCHES * ROWS:
        print(f"the stream had {rows} rows")
    return int(rows != BATCHES * ROWS)


if __name__ == "__main__":
    raise SystemExit(main())
