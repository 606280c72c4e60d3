"""``penstock serve --nodes N``: one command, several processes, one broker for clients."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.helpers.live_broker import LiveBroker
from tests.helpers.management_api import manage, status_of

pytestmark = pytest.mark.slow

PERSISTENT = pika.BasicProperties(delivery_mode=2)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveBroker]:
    directory = tmp_path_factory.mktemp("several")
    settings = {"PENSTOCK_NODES": "2", "PENSTOCK_NODE_NAME": "penstock@here"}
    with LiveBroker(directory, environment=settings, ready_timeout_s=60) as broker:
        yield broker


def children(broker: LiveBroker) -> list[int]:
    return [
        int(pid)
        for pid in Path(f"/proc/{broker.pid}/task/{broker.pid}/children").read_text().split()
    ]


def nodes(broker: LiveBroker) -> dict[str, Any]:
    found = manage(f"{broker.http_url}/api/penstock/cluster")
    return {one["name"]: one for one in found["nodes"]}


def management(broker: LiveBroker) -> tuple[str, str]:
    """Of the first node, and of the second."""
    address, _, port = broker.http_url.rpartition(":")
    return broker.http_url, f"{address}:{int(port) + 1}"


def ask(url: str, body: object = None, method: str = "PUT") -> tuple[int, str]:
    """Status and answer; a body is put."""
    return status_of(url, body, "" if body is None else method)


def channel(broker: LiveBroker) -> BlockingChannel:
    return pika.BlockingConnection(pika.URLParameters(broker.url)).channel()


def test_a_quorum_queue_has_copies_and_every_node_publishes_to_it(broker: LiveBroker) -> None:
    quorum = {"x-queue-type": "quorum"}
    channels = [channel(broker) for _ in range(4)]
    channels[0].queue_declare("quorum", durable=True, arguments=quorum)
    for number, one in enumerate(channels):
        one.confirm_delivery()
        one.basic_publish("", "quorum", b"%d" % number)
    both = ["penstock@here-1", "penstock@here-2"]
    for url in management(broker):
        row = json.loads(ask(url + "/api/queues/%2F/quorum")[1])
        assert row["leader"] in both
        assert (sorted(row["members"]), sorted(row["online"])) == (both, both)
    status = json.loads(ask(management(broker)[0] + "/api/queues/quorum/%2F/quorum/status")[1])
    states = sorted((one["Raft State"], one["Membership"]) for one in status)
    assert states == [("follower", "voter"), ("leader", "voter")]
    leader = str(row["leader"])
    follower = next(one for one in both if one != leader)
    assert replicas(broker, "/%2F/quorum/replicas/delete", "DELETE", follower) == 204
    eventually_members(broker, [leader])
    channels[1].basic_publish("", "quorum", b"4")
    assert replicas(broker, "/%2F/quorum/replicas/delete", "DELETE", leader) == 503
    assert replicas(broker, f"/replicas/on/{follower}/grow", "POST") == 204
    eventually_members(broker, both)
    found = sorted(channels[3].basic_get("quorum", auto_ack=True)[2] for _ in range(5))
    assert found == [b"0", b"1", b"2", b"3", b"4"]
    for one in channels:
        one.connection.close()


def replicas(broker: LiveBroker, path: str, method: str, node: str = "") -> int:
    url = management(broker)[0] + "/api/queues/quorum" + path
    body = {"node": node} if node else {"strategy": "all"}
    return ask(url, body, method)[0]


def eventually_members(broker: LiveBroker, nodes: list[str]) -> None:
    """They have all there is, and vote."""
    end_s, found = time.monotonic() + 20, [""]
    while found != nodes:
        assert time.monotonic() < end_s, found
        time.sleep(0.05)
        rows = json.loads(ask(management(broker)[1] + "/api/queues/quorum/%2F/quorum/status")[1])
        found = sorted(one["Node Name"] for one in rows if one["Membership"] == "voter")


def test_a_stream_is_published_and_read_at_either_node(broker: LiveBroker) -> None:
    channels = [channel(broker) for _ in range(4)]
    channels[0].queue_declare("stream", durable=True, arguments={"x-queue-type": "stream"})
    for one in channels:
        one.confirm_delivery()
        one.basic_publish("", "stream", b"%d" % channels.index(one))
        one.basic_qos(prefetch_count=10)
    for one in channels:
        found = []
        for _, _, body in one.consume("stream", arguments={"x-stream-offset": "first"}):
            found.append(body)
            if len(found) == 4:
                break
        assert found == [b"0", b"1", b"2", b"3"]
        one.connection.close()


def test_a_queue_that_is_bound_gets_the_last_messages_of_both_nodes(broker: LiveBroker) -> None:
    channels = [channel(broker) for _ in range(8)]
    channels[0].exchange_declare("past", "x-recent-history", durable=True)
    for number in range(40):
        one = channels[number % len(channels)]
        one.confirm_delivery()
        one.basic_publish("past", "k", b"%d" % number, PERSISTENT)
        time.sleep(0.005)  # their order is that of the times
    queues = [one.queue_declare("", exclusive=True).method.queue for one in channels]
    assert len({node_of(broker, queue) for queue in queues}) == 2
    for one, queue in zip(channels, queues, strict=True):
        one.queue_bind(queue, "past")
        found = [one.basic_get(queue, auto_ack=True)[2] for _ in range(21)]
        assert found == [b"%d" % number for number in range(20, 40)] + [None]
        one.connection.close()


def test_a_local_random_exchange_stays_on_the_publishers_node(broker: LiveBroker) -> None:
    """An exclusive queue is where its connection is."""
    channels, queues, where = [], [], []
    while len(set(where)) < 2 or len(where) < 8:
        assert len(where) < 64, "all connections are at one node"
        one = channel(broker)
        one.exchange_declare("local", "x-local-random")
        queue = one.queue_declare("", exclusive=True).method.queue
        one.queue_bind(queue, "local", "")
        channels.append(one)
        queues.append(queue)
        where.append(node_of(broker, queue))
    for place in range(len(channels)):
        channels[place].confirm_delivery()
        channels[place].basic_publish("local", "k", b"%d" % place, mandatory=True)
    for one, queue, node in zip(channels, queues, where, strict=True):
        while (found := one.basic_get(queue, auto_ack=True))[0] is not None:
            assert where[int(found[2])] == node
    for one in channels:
        one.connection.close()


def node_of(broker: LiveBroker, queue: str) -> str:
    return str(manage(f"{broker.http_url}/api/queues/%2F/{queue}")["node"])


def test_clients_come_to_one_port_and_see_one_broker(broker: LiveBroker) -> None:
    assert sorted(nodes(broker)) == ["penstock@here-1", "penstock@here-2"]
    channels = [channel(broker) for _ in range(8)]
    for number, one in enumerate(channels):
        one.queue_declare(f"shared-{number}", durable=True)
        one.confirm_delivery()
    for number in range(8):
        channels[7 - number].basic_publish("", f"shared-{number}", b"hello", PERSISTENT, True)
    for number in range(8):
        taken = next(iter(channels[(number + 3) % 8].consume(f"shared-{number}")))
        assert taken[2] == b"hello"
    for one in channels:
        one.connection.close()


def guests_of_both(broker: LiveBroker) -> list[BlockingChannel]:
    """The kernel spreads them: of forty connections none at one node is out of the question."""
    opened: list[BlockingChannel] = []
    where: set[str] = set()
    while len(where) < 2 and len(opened) < 40:
        opened.append(channel(broker))
        where.add(node_of(broker, opened[-1].queue_declare("", exclusive=True).method.queue))
    assert where == {"penstock@here-1", "penstock@here-2"}
    return opened


def test_an_alarm_of_one_node_blocks_the_publishers_of_all(broker: LiveBroker) -> None:
    """And names that node; both nodes say the same."""
    first, second = management(broker)
    short = "penstock@here-2"
    limit = f"{second}/api/penstock/vm-memory-high-watermark"
    publishers = guests_of_both(broker)
    told: dict[int, str] = {}
    assert ask(limit, {"fraction": 0.0})[0] == 200
    for number, one in enumerate(publishers):
        one.connection.add_on_connection_blocked_callback(
            lambda _, method, number=number: told.setdefault(number, method.method.reason)
        )
        one.queue_declare("alarmed")
    deadline = time.monotonic() + 20
    while len(told) < len(publishers) and time.monotonic() < deadline:
        for one in publishers:
            one.basic_publish("", "alarmed", b"held")
            one.connection.process_data_events(0)
    assert len(told) == len(publishers)
    assert set(told.values()) == {"low on memory", f"low on memory (node {short})"}
    for url in (first, second):
        status, text = ask(f"{url}/api/health/checks/alarms")
        alarms = [{"node": short, "resource": "memory"}]
        assert (status, json.loads(text)["alarms"]) == (503, alarms)
        rows = {row["name"]: row for row in json.loads(ask(f"{url}/api/nodes")[1])}
        assert [name for name, row in rows.items() if row["mem_alarm"]] == [short]
    assert ask(f"{first}/api/health/checks/local-alarms")[0] == 200
    assert ask(limit, {"fraction": 0.4})[0] == 200
    publishers.append(channel(broker))
    publishers[-1].confirm_delivery()
    publishers[-1].basic_publish("", "alarmed", b"goes on", PERSISTENT, True)
    for one in publishers:
        one.connection.close()
    assert ask(f"{second}/api/health/checks/alarms")[0] == 200


def test_prometheus_hears_of_one_cluster(broker: LiveBroker) -> None:
    """RabbitMQ's dashboards choose nodes by the name of their cluster."""
    nodes, clusters = [], set()
    for url in management(broker):
        page = ask(url + "/metrics")[1]
        (line,) = re.findall(r"^rabbitmq_identity_info\{(.*)\} 1$", page, re.MULTILINE)
        node, *cluster = re.findall(r'="([^"]*)"', line)
        nodes.append(node)
        clusters.add(tuple(cluster))
    assert nodes == ["penstock@here-1", "penstock@here-2"]
    ((name, permanent_id),) = clusters
    assert name == "penstock"
    assert permanent_id.startswith("penstock-cluster-id-")


def test_a_node_that_is_killed_is_started_again(broker: LiveBroker) -> None:
    one = channel(broker)
    one.queue_declare("durable", durable=True)
    one.confirm_delivery()
    one.basic_publish("", "durable", b"kept", PERSISTENT)
    before = children(broker)
    os.kill(before[1], signal.SIGKILL)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        found = nodes(broker)
        second = found["penstock@here-2"]
        if (
            second["running"]
            and set(children(broker)) != set(before)
            and second["link"]["connected"]
        ):
            break
        time.sleep(0.1)
    again = channel(broker)
    assert next(iter(again.consume("durable")))[2] == b"kept"
    again.connection.close()
    # Its node may have been the one that was killed.
    with suppress(pika.exceptions.AMQPError):
        one.connection.close()


def test_the_nodes_end_with_their_parent_and_no_argument_of_theirs_is_a_secret(
    tmp_path: Path,
) -> None:
    settings = {"PENSTOCK_NODES": "2", "PENSTOCK_NODE_NAME": "penstock@gone"}
    flags = ("--default-pass", "canary", "--heartbeat-s", "17")
    broker = LiveBroker(tmp_path, flags, environment=settings, ready_timeout_s=60).start()
    pids = children(broker)
    assert len(pids) == 2
    for pid in pids:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes()
        assert b"--heartbeat-s=17" in arguments
        assert b"canary" not in arguments
        assert b"PENSTOCK_DEFAULT_PASS=canary" in Path(f"/proc/{pid}/environ").read_bytes()
    broker.kill()
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline and any(Path(f"/proc/{pid}/fd").exists() for pid in pids):
        time.sleep(0.05)
    assert not any(Path(f"/proc/{pid}/exe").exists() for pid in pids)
