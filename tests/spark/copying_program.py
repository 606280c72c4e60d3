"""A Spark program that copies one queue to another, once; run by test_exactly_once.

    copying_program.py URL FROM TO DIRECTORY [MESSAGES_PER_BATCH]

Its checkpoint is DIRECTORY/checkpoint.  If DIRECTORY/hold is there, the next commit that the broker
has answered is not told to Spark: the file becomes ``held`` and the program waits to be killed.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.spark.launcher.session import local_session
from pyspark_penstock import DefaultSource
from pyspark_penstock.sink import StreamWriter
from pyspark_penstock.sink_options import parse_sink_options

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class HoldingWriter(StreamWriter):
    """The product's own, but for the moment behind the commit."""

    def __init__(self, *arguments: Any, directory: str) -> None:
        super().__init__(*arguments)
        self._directory = directory

    def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803 - Spark passes it by name
        super().commit(messages, batchId)
        hold = Path(self._directory) / "hold"
        if hold.exists():
            hold.rename(hold.with_name("held"))
            time.sleep(600)


class HoldingSink(DefaultSource):
    """Format ``holding``; option ``directory`` besides those of ``penstock``."""

    @classmethod
    def name(cls) -> str:
        return "holding"

    def streamWriter(  # noqa: N802 - Spark calls it so
        self, schema: StructType, overwrite: bool
    ) -> HoldingWriter:
        given = {name.lower(): value for name, value in self._given.items()}
        directory = given.pop("directory")
        return HoldingWriter(parse_sink_options(given), schema, directory=directory)


def main(url: str, source: str, target: str, directory: str, per_batch: str = "150") -> int:
    scratch = Path(directory)
    spark = local_session("copy", "local[2]", url, scratch / "spark", short=True)
    spark.dataSource.register(HoldingSink)
    rows = (
        spark.readStream.format("penstock")
        .option("url", url)
        .option("queue", source)
        .option("minPartitions", "2")
        .option("maxMessagesPerTrigger", per_batch)
        .option("reconnectTimeout", "60s")
        .load()
        .select("body", "message_id")
    )
    query = (
        rows.writeStream.format("holding")
        .option("url", url)
        .option("queue", target)
        .option("directory", directory)
        .option("checkpointLocation", str(scratch / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    print("batches", query.lastProgress and query.lastProgress["batchId"], flush=True)
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
