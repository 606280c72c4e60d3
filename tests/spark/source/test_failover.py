"""A mirrored queue becomes a table while the node of its master is killed: three real nodes.

PENSTOCK_FAILOVER_MESSAGES   how many are confirmed before, and after (default 400)
"""

from __future__ import annotations

import json
import os
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pika
import pika.exceptions
import pytest

from tests.helpers.cluster import LiveCluster, missing_reason

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

MESSAGES = int(os.environ.get("PENSTOCK_FAILOVER_MESSAGES", "400"))
QUEUE = "orders"
PAUSE_S = 0.005
PATIENCE_S = 60.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LiveCluster]:
    reason = missing_reason()
    if reason is not None:
        pytest.skip(reason)
    with LiveCluster(tmp_path / "cluster", 3) as cluster:
        cluster.ask(
            0,
            "/api/policies/%2F/two",
            {
                "pattern": f"^{QUEUE}$",
                "apply-to": "queues",
                "definition": {
                    "ha-mode": "exactly", "ha-params": 2, "ha-sync-mode": "automatic",
                },
            },
        )  # fmt: skip
        yield cluster


class Publisher(threading.Thread):
    """One message after the other, each confirmed; no body is ever sent twice.

    So what was not confirmed may be there or not, and everything else is there once.
    """

    def __init__(self, urls: list[str]) -> None:
        super().__init__(daemon=True)
        self.confirmed: list[bytes] = []
        self.ending = threading.Event()
        self._urls = urls
        self._attempts = 0

    def run(self) -> None:
        turn = 0
        while not self.ending.is_set():
            turn += 1
            with suppress(pika.exceptions.AMQPError, OSError):
                self._publish(self._urls[turn % len(self._urls)])
            time.sleep(0.1)

    def _publish(self, url: str) -> None:
        connection = pika.BlockingConnection(pika.URLParameters(url))
        try:
            channel = connection.channel()
            channel.confirm_delivery()
            while not self.ending.is_set():
                self._attempts += 1
                body = b"%d" % self._attempts
                channel.basic_publish("", QUEUE, body, pika.BasicProperties(delivery_mode=2))
                self.confirmed.append(body)
                time.sleep(PAUSE_S)
        finally:
            with suppress(pika.exceptions.AMQPError):
                connection.close()


def until(true: Callable[[], Any], what: Callable[[], str]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline_s, what()
        time.sleep(0.3)


def declare(cluster: LiveCluster) -> int:
    """On the first node, and mirrored when this returns; its master's number."""
    with pika.BlockingConnection(pika.URLParameters(cluster.nodes[0].url)) as connection:
        connection.channel().queue_declare(QUEUE, durable=True)
    until(
        lambda: row_of(cluster, 0).get("synchronised_slave_nodes"),
        lambda: f"no mirror is synchronised: {row_of(cluster, 0)}",
    )
    return int(row_of(cluster, 0)["node"].removeprefix("penstock@n")) - 1


def row_of(cluster: LiveCluster, asked: int) -> dict[str, Any]:
    found: dict[str, Any] = cluster.ask(asked, f"/api/queues/%2F/{QUEUE}")
    return found


def url_of(cluster: LiveCluster) -> str:
    """All nodes, the one of the master first."""
    hosts = [urllib.parse.urlsplit(node.url).netloc.rpartition("@")[2] for node in cluster.nodes]
    return f"amqp://guest:guest@{','.join(hosts)}/%2f"


def streaming(spark: SparkSession, url: str, directory: Path, **trigger: Any) -> StreamingQuery:
    source = spark.readStream.format("penstock").option("url", url).option("queue", QUEUE)
    writer = (
        source.option("maxMessagesPerTrigger", "150").load().select("seq_id", "body").writeStream
    )
    writer = writer.format("parquet").option("checkpointLocation", str(directory / "checkpoint"))
    return writer.trigger(**trigger).start(str(directory / "table"))


def bodies(directory: Path) -> list[bytes]:
    """As far as batches are committed, in the order of the queue."""
    from pyarrow import parquet

    files = set()
    for log in (directory / "table" / "_spark_metadata").glob("[0-9]*"):
        for line in log.read_text().splitlines()[1:]:
            files.add(urllib.parse.urlsplit(json.loads(line)["path"]).path)
    rows = [row for file in files for row in parquet.read_table(file).to_pylist()]
    return [row["body"] for row in sorted(rows, key=lambda row: row["seq_id"])]


def test_a_table_has_each_confirmed_message_once_though_the_master_is_killed(
    spark: SparkSession, cluster: LiveCluster, tmp_path: Path
) -> None:
    master = declare(cluster)
    url = url_of(cluster)
    publisher = Publisher([node.url for node in cluster.nodes])
    publisher.start()
    query = streaming(spark, url, tmp_path, processingTime="200 milliseconds")

    def told() -> str:
        progress = query.lastProgress
        return (
            f"{len(publisher.confirmed)} confirmed, {len(bodies(tmp_path))} in the table:"
            f" {query.status}, {progress and progress.json}, {query.exception()}"
        )

    try:
        until(lambda: len(publisher.confirmed) >= MESSAGES, told)
        until(lambda: bodies(tmp_path), told)
        cluster.nodes[master].kill()
        before = len(publisher.confirmed)
        until(lambda: len(publisher.confirmed) >= before + MESSAGES, told)
        publisher.ending.set()
        publisher.join(PATIENCE_S)
        confirmed = publisher.confirmed
        until(lambda: not query.isActive or confirmed[-1] in bodies(tmp_path), told)
        assert query.exception() is None
    finally:
        publisher.ending.set()
        query.stop()
    last = streaming(spark, url, tmp_path, availableNow=True)
    assert last.awaitTermination(60)
    found = bodies(tmp_path)
    assert len(found) == len(set(found)), "something is there twice"
    known = set(confirmed)
    assert [body for body in found if body in known] == confirmed
    other = (master + 1) % len(cluster.nodes)
    until(lambda: row_of(cluster, other).get("messages") == 0, lambda: str(row_of(cluster, other)))
    assert row_of(cluster, other)["node"] != cluster.name(master)
