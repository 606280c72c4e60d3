"""NSQ clients in ``/stats`` and in the management API: seen, listed, closed."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from tests.helpers.management_api import manage
from tests.helpers.nsq_broker import NsqBroker, eventually

CLIENT_FIELDS = [
    *("client_id", "hostname", "version", "remote_address", "state", "ready_count"),
    *("in_flight_count", "message_count", "finish_count", "requeue_count", "connect_ts"),
    *("sample_rate", "deflate", "snappy", "user_agent", "tls", "tls_cipher_suite"),
    *("tls_version", "tls_negotiated_protocol", "tls_negotiated_protocol_is_mutual"),
]
"""Of a consumer of nsqd 1.3.0, in its order."""
PUBLISHED = CLIENT_FIELDS.index("tls")
"""Where ``pub_counts`` stands in those of a producer."""


class Client:
    """A V2 client that reads frames."""

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), 5)
        body = json.dumps({"client_id": "me", "hostname": "here", "user_agent": "test/1"}).encode()
        self.say(b"  V2IDENTIFY\n" + struct.pack(">i", len(body)) + body)
        assert self.frame() == b"OK"

    def say(self, data: bytes) -> None:
        self.sock.sendall(data)

    def command(self, line: bytes, body: bytes | None = None) -> bytes:
        more = b"" if body is None else struct.pack(">i", len(body)) + body
        self.say(line + b"\n" + more)
        return self.frame()

    def frame(self) -> bytes:
        """Its data; b"" at the end."""
        head = self.sock.recv(8, socket.MSG_WAITALL)
        if len(head) < 8:
            return b""
        return self.sock.recv(struct.unpack(">i", head[:4])[0] - 4, socket.MSG_WAITALL)

    @property
    def port(self) -> int:
        return int(self.sock.getsockname()[1])


@pytest.fixture(scope="module")
def broker() -> Iterator[NsqBroker]:
    with NsqBroker() as running:
        yield running


@pytest.fixture
def consumer(broker: NsqBroker) -> Iterator[Client]:
    """With one message in flight, and room for two more."""
    client = Client(broker.tcp_port)
    assert client.command(b"SUB t c") == b"OK"
    client.say(b"RDY 3\n")
    assert broker.post("/pub?topic=t", b"hello").status == 200
    assert client.frame().endswith(b"hello")
    yield client
    client.sock.close()
    eventually(lambda: broker.stats("topic=t")["topics"][0]["channels"][0]["client_count"] == 0)
    broker.post("/channel/empty?topic=t&channel=c")


def managed(broker: NsqBroker, method: str, path: str) -> Any:
    return manage(broker.http_url + path, method=method)


def test_a_consumer_in_stats(broker: NsqBroker, consumer: Client) -> None:
    channel = broker.stats("topic=t")["topics"][0]["channels"][0]
    assert (channel["in_flight_count"], channel["client_count"]) == (1, 1)
    client = channel["clients"][0]
    assert list(client) == CLIENT_FIELDS
    assert (client["client_id"], client["hostname"], client["user_agent"]) == (
        *("me", "here"),
        "test/1",
    )
    assert client["remote_address"] == f"127.0.0.1:{consumer.port}"
    assert (client["state"], client["ready_count"], client["in_flight_count"]) == (3, 3, 1)
    text = broker.ask("GET", "/stats?topic=t").body
    assert f"[V2 here:{consumer.port} test/1" in text
    assert "state: 3 inflt: 1    rdy: 3    fin: 0        re-q: 0        msgs: 1        conn" in text


def test_a_producer_in_stats(broker: NsqBroker) -> None:
    producer = Client(broker.tcp_port)
    for topic in (b"p", b"p", b"q"):
        assert producer.command(b"PUB " + topic, b"x") == b"OK"
    rows = broker.stats()["producers"]
    assert list(rows[0]) == [*CLIENT_FIELDS[:PUBLISHED], "pub_counts", *CLIENT_FIELDS[PUBLISHED:]]
    assert rows[0]["pub_counts"] == [{"topic": "p", "count": 2}, {"topic": "q", "count": 1}]
    assert broker.stats("topic=q")["producers"][0]["pub_counts"] == [{"topic": "q", "count": 1}]
    assert broker.stats("include_clients=false")["producers"] is None
    text = broker.ask("GET", "/stats").body
    assert "msgs: 3        topics: p=2,q=1 connected: " in text
    producer.sock.close()
    eventually(lambda: broker.stats()["producers"] is None)


def test_in_the_management_api(broker: NsqBroker, consumer: Client) -> None:
    connection = managed(broker, "GET", "/api/connections")[0]
    assert connection["name"] == f"127.0.0.1:{consumer.port} -> 127.0.0.1:{broker.tcp_port}"
    assert (connection["protocol"], connection["user"], connection["vhost"]) == (
        *("NSQ V2", "guest"),
        "/",
    )
    assert connection["client_properties"]["product"] == "test/1"
    channel = managed(broker, "GET", "/api/channels")[0]
    assert channel["number"] == channel["consumer_count"] == channel["messages_unacknowledged"] == 1
    found = managed(broker, "GET", "/api/consumers")[0]
    assert found["queue"] == {"name": "nsq.t:c", "vhost": "/"}
    assert found["prefetch_count"] == 3
    assert found["channel_details"]["connection_name"] == connection["name"]
    queue = managed(broker, "GET", "/api/queues/%2f/nsq.t:c")
    assert (queue["consumers"], queue["messages_unacknowledged"]) == (1, 1)
    assert managed(broker, "GET", "/api/overview")["object_totals"]["connections"] == 1
    ports = {
        one["protocol"]: one["port"] for one in managed(broker, "GET", "/api/overview")["listeners"]
    }
    assert ports["nsq"] == broker.tcp_port


def test_a_connection_is_closed_from_there(broker: NsqBroker, consumer: Client) -> None:
    name = managed(broker, "GET", "/api/connections")[0]["name"]
    assert managed(broker, "GET", f"/api/connections/{quote(name, safe='')}")["name"] == name
    managed(broker, "DELETE", f"/api/connections/{quote(name, safe='')}")
    assert consumer.frame() == b""
    eventually(lambda: managed(broker, "GET", "/api/connections") == [])


def test_deleting_the_channel_ends_its_consumers(broker: NsqBroker, consumer: Client) -> None:
    assert broker.post("/channel/delete?topic=t&channel=c").status == 200
    assert consumer.frame() == b""
    broker.post("/channel/create?topic=t&channel=c")


def test_a_paused_channel_gives_nothing_until_it_goes_on(
    broker: NsqBroker, consumer: Client
) -> None:
    broker.post("/channel/pause?topic=t&channel=c")
    broker.post("/pub?topic=t", b"second")
    consumer.sock.settimeout(0.3)
    with pytest.raises(TimeoutError):
        consumer.frame()
    consumer.sock.settimeout(5)
    broker.post("/channel/unpause?topic=t&channel=c")
    assert consumer.frame().endswith(b"second")
