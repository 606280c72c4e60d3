"""Exactly once to a mirrored queue while the node that stages is killed: real nodes, no JVM."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import pika
import pyarrow as pa
import pyspark  # noqa: F401
import pytest

from penstock_ranges.frames import NOT_FOUND
from penstock_ranges.staging import DONE, DUPLICATE
from pyspark_penstock.client import Refused
from pyspark_penstock.sink import Identity, Staged, _Writing
from pyspark_penstock.sink_options import parse_sink_options
from pyspark_penstock.staging_client import commit
from tests.helpers.cluster import LiveCluster, missing_reason
from tests.spark.source.test_failover import QUEUE, declare, row_of, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LiveCluster]:
    reason = missing_reason()
    if reason is not None:
        pytest.skip(reason)
    with LiveCluster(tmp_path / "cluster", 2) as cluster:
        policy = {"ha-mode": "all", "ha-sync-mode": "automatic"}
        cluster.ask(
            0,
            "/api/policies/%2F/two",
            {"pattern": f"^{QUEUE}$", "apply-to": "queues", "definition": policy},
        )
        yield cluster


def writing(cluster: LiveCluster, **options: str) -> _Writing:
    """The node that is no master comes first in the URL."""
    hosts = [urllib.parse.urlsplit(node.url).netloc.rpartition("@")[2] for node in cluster.nodes]
    url = f"amqp://guest:guest@{','.join(reversed(hosts))}/%2f"
    return _Writing(parse_sink_options({"url": url, "queue": QUEUE, **options}))


def staged(sink: _Writing, batch: int, *bodies: bytes) -> Staged:
    rows = iter([pa.RecordBatch.from_pydict({"body": list(bodies)})])
    return sink._write(Identity("query", "run", batch), rows)


def committed(sink: _Writing, done: Staged) -> int:
    told = commit(sink._settings, "query", "run", done.batch, done.sets, done.home)
    return told.outcome


def drained(cluster: LiveCluster, node: int) -> list[bytes]:
    found: list[bytes] = []
    with pika.BlockingConnection(pika.URLParameters(cluster.nodes[node].url)) as connection:
        channel = connection.channel()
        while True:
            method, _, body = channel.basic_get(QUEUE, auto_ack=True)
            if method is None:
                return found
            found.append(body)


def test_a_batch_is_published_once_whichever_node_is_lost(
    cluster: LiveCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspark_penstock.staging_client.HOME_PATIENCE_S", 0.5)
    assert declare(cluster) == 0
    sink = writing(cluster, reconnectTimeout="30s")

    first = staged(sink, 0, b"a", b"b")
    assert first.home == 1, "the master's node, though another comes first"
    assert committed(sink, first) == DONE
    lost = staged(sink, 1, b"c")

    cluster.nodes[0].kill()
    with pytest.raises(Refused, match="it was not committed") as refused:
        committed(sink, lost)
    assert refused.value.code == NOT_FOUND
    until(
        lambda: row_of(cluster, 1)["node"] == cluster.name(1),
        lambda: json.dumps(row_of(cluster, 1)),
    )
    assert staged(sink, 0, b"a", b"b").sets == [], "it is published, and the new master knows"
    again = staged(sink, 1, b"c")
    assert again.home == 0
    assert committed(sink, again) == DONE

    cluster.nodes[0].start()
    back = writing(cluster)
    assert committed(back, lost) == DUPLICATE, "what was staged there is not published, too"
    assert drained(cluster, 1) == [b"a", b"b", b"c"]
