"""What the archive benchmark measures beside ``penstock pipeline archive``.

``MemorySource`` is a Spark source whose workers yield record batches made beforehand, of the
columns an archive has: what Spark can write at best.  ``consume_into_parquet`` is what one would
write without Spark: pika reads a queue, pyarrow writes files, and a message is acknowledged when
its file is on disk.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from benchmarks.archive_fill import PROPERTIES, body_of

ROWS_PER_FILE = 30_000
PREFETCH = 2 * ROWS_PER_FILE
"""The next file's messages come while one is written."""


# -- Spark from memory -------------------------------------------------------------------------


class Share(InputPartition):
    """So many messages."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.count = count


class MemorySource(DataSource):
    """Options ``count``, ``size``, ``bodies`` and ``shares``."""

    @classmethod
    def name(cls) -> str:
        return "penstock_memory"

    def schema(self) -> Any:
        from pyspark_penstock.columns import spark_schema
        from pyspark_penstock.options import DEFAULT_COLUMNS

        return spark_schema(DEFAULT_COLUMNS)

    def reader(self, schema: Any) -> DataSourceReader:
        return MemoryReader(self.options)


class MemoryReader(DataSourceReader):
    """Each worker makes one record batch, and yields it as often as it takes."""

    def __init__(self, options: Any) -> None:
        self._count, self._size = int(options["count"]), int(options["size"])
        self._shares, self._bodies = int(options["shares"]), options["bodies"]

    def partitions(self) -> list[InputPartition]:
        return [Share(self._count // self._shares) for _ in range(self._shares)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, Share)
        batch = message_batch(8192, self._size, self._bodies)
        for at in range(0, partition.count, batch.num_rows):
            yield batch.slice(0, min(batch.num_rows, partition.count - at))


def message_batch(rows: int, size: int, bodies: str) -> Any:
    """Like a block of the broker's."""
    import pyarrow as pa

    from pyspark_penstock.columns import arrow_schema
    from pyspark_penstock.options import DEFAULT_COLUMNS

    chance = random.Random(1)
    columns: dict[str, list[Any]] = {name: [None] * rows for name in DEFAULT_COLUMNS}
    columns |= {
        "seq_id": list(range(rows)),
        "body": [body_of(bodies, size, chance) for _ in range(rows)],
        "queue": ["bench"] * rows,
        "exchange": [""] * rows,
        "routing_key": ["bench"] * rows,
        "enqueued_at": [datetime.now(UTC)] * rows,
        "content_type": [PROPERTIES["content_type"]] * rows,
        "app_id": [PROPERTIES["app_id"]] * rows,
        "persistent": [True] * rows,
        "redelivered": [False] * rows,
    }
    return pa.RecordBatch.from_pydict(columns, schema=arrow_schema(DEFAULT_COLUMNS))


def spark_from_memory(count: int, size: int, bodies: str, compression: str, target: Path) -> float:
    """Seconds for Spark to write so many rows into Parquet; a small run before warms it up."""
    from penstock.spark.launcher.session import local_session

    spark = local_session("memory", "local[2]", "", target / "spark")
    try:
        spark.conf.set("spark.sql.parquet.compression.codec", compression)
        spark.dataSource.register(MemorySource)
        seconds = 0.0
        for number, rows in enumerate((min(count, 100_000), count)):
            options = {"count": str(rows), "size": str(size), "bodies": bodies, "shares": "2"}
            began_s = time.monotonic()
            frame = spark.read.format("penstock_memory").options(**options).load()
            frame.write.parquet(str(target / f"memory-{number}"))
            seconds = time.monotonic() - began_s
        return seconds
    finally:
        spark.stop()


# -- pika and pyarrow --------------------------------------------------------------------------


def consume_into_parquet(url: str, queue: str, count: int, compression: str, target: Path) -> float:
    """Seconds to land so many messages."""
    import pika

    target.mkdir(parents=True)
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.basic_qos(prefetch_count=PREFETCH)
    rows: list[tuple[Any, ...]] = []
    landed = files = 0
    began_s = time.monotonic()
    for method, properties, body in channel.consume(queue):
        rows.append((method, properties, body))
        if len(rows) == ROWS_PER_FILE or landed + len(rows) == count:
            land(rows, queue, compression, target / f"{files:06d}.parquet")
            channel.basic_ack(method.delivery_tag, multiple=True)
            landed, files = landed + len(rows), files + 1
            rows = []
        if landed == count:
            break
    seconds = time.monotonic() - began_s
    channel.cancel()
    connection.close()
    return seconds


def land(rows: list[tuple[Any, ...]], queue: str, compression: str, path: Path) -> None:
    """A file, synced."""
    import pyarrow as pa
    from pyarrow import parquet

    methods, properties, bodies = zip(*rows, strict=True)
    table = pa.table(
        {
            "delivery_tag": [m.delivery_tag for m in methods],
            "body": pa.array(bodies, pa.binary()),
            "queue": [queue] * len(rows),
            "exchange": [m.exchange for m in methods],
            "routing_key": [m.routing_key for m in methods],
            "redelivered": [m.redelivered for m in methods],
            "content_type": [p.content_type for p in properties],
            "app_id": [p.app_id for p in properties],
            "delivery_mode": [p.delivery_mode for p in properties],
            "message_id": [p.message_id for p in properties],
            "timestamp": [p.timestamp for p in properties],
        }
    )
    parquet.write_table(table, path, compression=compression, use_dictionary=["queue"])
    with path.open("rb") as file:
        os.fsync(file.fileno())


if __name__ == "__main__":  # the sides that get a process of their own
    side, *words = sys.argv[1:]
    if side == "memory":
        count, size, bodies, compression, target = words
        print(spark_from_memory(int(count), int(size), bodies, compression, Path(target)))
    else:
        print(consume_into_parquet(words[0], words[1], int(words[2]), words[3], Path(words[4])))
