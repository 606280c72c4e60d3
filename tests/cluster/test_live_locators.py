"""Three real nodes and a real etcd: a queue works at once, wherever its home is."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.helpers.cluster import LiveCluster, missing_reason
from tests.helpers.live_broker import LiveBroker
from tests.helpers.management_api import manage

pytestmark = pytest.mark.slow

PERSISTENT = pika.BasicProperties(delivery_mode=2)
NODES = ["penstock@n1", "penstock@n2", "penstock@n3"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    reason = missing_reason()
    if reason is not None:
        pytest.skip(reason)
    with LiveCluster(tmp_path_factory.mktemp("locators"), 3) as cluster:
        yield cluster


@pytest.fixture
def channel(cluster: LiveCluster) -> Iterator[BlockingChannel]:
    """On the first node."""
    connection = pika.BlockingConnection(pika.URLParameters(cluster.nodes[0].url))
    channel = connection.channel()
    channel.confirm_delivery()
    yield channel
    connection.close()


def api(node: LiveBroker, path: str, body: Any = None) -> Any:
    return manage(node.http_url + path, body)


def home(cluster: LiveCluster, queue: str) -> str:
    """As the node sees it that is asked last."""
    told = {api(node, f"/api/queues/%2F/{queue}")["node"] for node in cluster.nodes}
    (name,) = told
    return str(name)


def works(channel: BlockingChannel, queue: str) -> None:
    """Of a queue that was declared on this channel a moment ago."""
    channel.basic_publish("", queue, b"first", PERSISTENT, mandatory=True)
    method, _, body = next(iter(channel.consume(queue, inactivity_timeout=10)))
    assert method is not None
    assert body == b"first"
    channel.basic_ack(method.delivery_tag)
    channel.cancel()
    channel.basic_publish("", queue, b"second", PERSISTENT, mandatory=True)
    assert channel.queue_purge(queue).method.message_count == 1


def test_masters_are_spread_and_every_queue_works_at_once(
    cluster: LiveCluster, channel: BlockingChannel
) -> None:
    arguments = {"x-queue-master-locator": "min-masters"}
    names = [f"spread {number}" for number in range(6)]
    for name in names:
        channel.queue_declare(name, durable=True, arguments=arguments)
        works(channel, name)
    homes = Counter(home(cluster, name.replace(" ", "%20")) for name in names)
    assert homes == dict.fromkeys(NODES, 2)


def test_a_policy_says_where(cluster: LiveCluster, channel: BlockingChannel) -> None:
    definition = {"ha-mode": "nodes", "ha-params": [NODES[2], "penstock@nowhere"]}
    policy = {"pattern": "^listed", "definition": definition, "apply-to": "queues"}
    api(cluster.nodes[1], "/api/policies/%2F/listed", policy)
    channel.queue_declare("listed", durable=True)
    works(channel, "listed")
    assert home(cluster, "listed") == NODES[2]
    row = api(cluster.nodes[0], "/api/queues/%2F/listed")
    assert row["effective_policy_definition"] == definition
    mine = channel.queue_declare("listed mine", exclusive=True, durable=True).method.queue
    works(channel, mine)
    assert home(cluster, "listed%20mine") == NODES[0]


def test_a_management_client_may_name_the_node(cluster: LiveCluster) -> None:
    for node in (NODES[1], NODES[0]):
        queue = f"at%20{node[-2:]}"
        api(cluster.nodes[0], f"/api/queues/%2F/{queue}", {"durable": True, "node": node})
        assert home(cluster, queue) == node
    with pytest.raises(urllib.error.HTTPError) as refused:
        api(cluster.nodes[0], "/api/queues/%2F/nowhere", {"node": "penstock@nowhere"})
    assert refused.value.code == 400
    assert "penstock@nowhere" in json.loads(refused.value.read())["reason"]
    refused.value.close()


def test_what_nobody_knows_is_refused(channel: BlockingChannel) -> None:
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
        channel.queue_declare("odd", arguments={"x-queue-master-locator": "near"})
    assert closed.value.reply_code == 406
    assert "invalid queue-master-locator value" in closed.value.reply_text


def test_a_node_that_was_killed_gets_no_new_masters(
    cluster: LiveCluster, channel: BlockingChannel
) -> None:
    """Not even before its lease has ended."""
    cluster.nodes[1].kill()
    try:
        for number in range(4):
            name = f"without {number}"
            channel.queue_declare(
                name, durable=True, arguments={"x-queue-master-locator": "min-masters"}
            )
            works(channel, name)
            row = api(cluster.nodes[0], f"/api/queues/%2F/without%20{number}")
            assert row["node"] in (NODES[0], NODES[2])
    finally:
        cluster.nodes[1].start()
