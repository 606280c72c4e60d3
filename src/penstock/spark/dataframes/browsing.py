"""Looking at a queue with Spark: nothing is taken, acknowledged or locked.

In: a queue's name.  Out: its extent, fixed once, and a DataFrame of exactly that.  A queue moves
while it is looked at, and Spark reads a DataFrame anew for every question: without an end that
was fixed before, two numbers of one report would be of two moments.
"""

import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from penstock.spark.launcher.failures import WrongQuery
from penstock_ranges.ranges import BROWSE
from pyspark_penstock.client import RangeClient
from pyspark_penstock.endpoints import parse_url

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NO_LIMIT = (1 << 63) - 1


class Extent(NamedTuple):
    """Messages ``start <= seq_id < end`` of one life of a queue."""

    queue: str
    incarnation: str
    start: int
    end: int
    ready: int  # messages in the whole queue


def look(url: str, queue: str, limit: int | None = None) -> Extent:
    """What can be read now; with ``limit`` only so many of the oldest messages."""
    with RangeClient(parse_url(url), queue, BROWSE) as looker:
        incarnation, head, _ = looker.opened
        end = head.next_seq
        if limit is not None and head.ready > limit:
            end = looker.plan(head.floor, end, limit, NO_LIMIT).end
    return Extent(queue, incarnation, head.floor, end, head.ready)


def browse(
    spark: "SparkSession", extent: Extent, columns: Sequence[str], url: str | None = None
) -> "DataFrame":
    """The messages of the extent, as far as they are still there when Spark reads them.

    ``url`` is only for sessions that were not started with it: options show up in plans.
    """
    reader = spark.read.format("penstock").option("queue", extent.queue)
    if url is not None:
        reader = reader.option("url", url)
    reader = reader.option("columns", ",".join(columns))
    reader = reader.option("startingOffsets", json.dumps({extent.queue: extent.start}))
    reader = reader.option("endingOffsets", json.dumps({extent.queue: extent.end}))
    # Consumers may take from the front meanwhile: that is no loss to a browser.
    reader = reader.option("failOnDataLoss", "false")
    return reader.option("minPartitions", spark.sparkContext.defaultParallelism).load()


@contextmanager
def scratch() -> Iterator[Path]:
    """A directory for the session's log; it stays when the job fails, to be looked into.

    The log says nothing about a query that Spark could not read: then it goes, too.
    """
    home = Path(tempfile.mkdtemp(prefix="penstock-"))
    try:
        yield home
    except Exception as error:
        if isinstance(error.__cause__, WrongQuery):
            shutil.rmtree(home, ignore_errors=True)
        raise
    shutil.rmtree(home, ignore_errors=True)
