"""Connections that somebody at the management API ends; texts as RabbitMQ 3.10.8 has them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any
from urllib.parse import quote

import pika
import pytest
from click.testing import CliRunner

from penstock.cli.admin.maintenance import close_connection
from penstock_ranges import ranges
from penstock_ranges.frames import MAGIC
from tests.helpers.range_line import RangeLine
from tests.management.conftest import Served


@pytest.fixture
def client(served: Served) -> Iterator[pika.BlockingConnection]:
    connection = pika.BlockingConnection(
        pika.ConnectionParameters("127.0.0.1", served.amqp_port, heartbeat=0)
    )
    yield connection
    if connection.is_open:
        connection.close()


def path_of(client: pika.BlockingConnection, served: Served) -> str:
    port = client._impl._transport._sock.getsockname()[1]
    name = f"127.0.0.1:{port} -> 127.0.0.1:{served.amqp_port}"
    return "/api/connections/" + quote(name, safe="")


def end_of(client: pika.BlockingConnection) -> tuple[int, str]:
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as caught:
        client.sleep(10)
    return caught.value.reply_code, caught.value.reply_text


def delete(served: Served, path: str, headers: dict[str, Any]) -> int:
    connection = HTTPConnection("127.0.0.1", served.port, timeout=10)
    login = {"Authorization": "Basic Z3Vlc3Q6Z3Vlc3Q="}
    connection.request("DELETE", path, headers={**login, **headers})
    status = connection.getresponse().status
    connection.close()
    return status


@pytest.mark.parametrize(
    "headers, text",
    [
        ({}, "Closed via management plugin"),
        ({"X-Reason": "go away"}, "go away"),
        ({"X-Reason": "für heute".encode()}, "für heute"),
        ({"X-Reason": b"\xff"}, "\ufffd"),
    ],
)
def test_the_client_is_told_why(
    served: Served, client: pika.BlockingConnection, headers: dict[str, Any], text: str
) -> None:
    queue = client.channel().queue_declare("own", exclusive=True).method.queue
    path = path_of(client, served)
    assert served.get(path)["channels"] == 1
    assert delete(served, path, headers) == 204
    assert end_of(client) == (320, f"CONNECTION_FORCED - {text}")
    assert served.ask(f"/api/queues/%2F/{queue}").status == 404
    assert delete(served, path, headers) == 404


def test_a_reason_too_long_for_the_protocol_is_cut(
    served: Served, client: pika.BlockingConnection
) -> None:
    assert delete(served, path_of(client, served), {"X-Reason": "x" * 1000}) == 204
    assert end_of(client)[1].startswith("CONNECTION_FORCED - xxx")


def test_only_administrators_close_what_is_not_theirs(
    served: Served, client: pika.BlockingConnection
) -> None:
    served.add_user("mon", "m", ["monitoring"], "/")
    path = path_of(client, served)
    assert served.ask(path, user="mon").status == 200
    answer = served.ask(path, user="mon", method="DELETE")
    assert (answer.status, "not authorised to access object" in answer.body) == (401, True)
    assert client.channel().is_open
    own = pika.BlockingConnection(
        pika.ConnectionParameters(
            "127.0.0.1", served.amqp_port, credentials=pika.PlainCredentials("mon", "m")
        )
    )
    assert served.ask(path_of(own, served), user="mon", method="DELETE").status == 204
    assert end_of(own)[0] == 320
    served.add_user("mon", "m", ["management"], "/")
    assert served.ask(path, user="mon").status == 401


def test_a_connection_of_no_name(served: Served) -> None:
    assert served.ask("/api/connections/nope").status == 404
    assert served.ask("/api/connections/nope", method="DELETE").status == 404
    assert served.ask("/api/connections/nope", method="PUT").status == 405


def test_the_command(served: Served, client: pika.BlockingConnection) -> None:
    url = f"http://127.0.0.1:{served.port}"
    port = client._impl._transport._sock.getsockname()[1]
    name = f"127.0.0.1:{port} -> 127.0.0.1:{served.amqp_port}"
    result = CliRunner().invoke(close_connection, [name, "we are\nmoving — soon", "--url", url])
    assert (result.exit_code, result.output) == (0, "")
    assert end_of(client) == (320, "CONNECTION_FORCED - we are moving — soon")
    result = CliRunner().invoke(close_connection, [name, "--url", url])
    assert result.exit_code == 1
    assert "Not Found (404 of " in result.output


@pytest.fixture
def reader(served: Served) -> Iterator[RangeLine]:
    """Spark's: it reads queue 'q'."""
    served.declare("q")
    with RangeLine(served.amqp_port) as line:
        line.ask(ranges.encode_open(ranges.OpenRequest("guest", "guest", "/", "q", ranges.READ)))
        yield line


def test_readers_of_ranges_are_listed(served: Served, reader: RangeLine) -> None:
    with RangeLine(served.amqp_port):  # has not logged in
        for path in ("/api/connections", "/api/vhosts/%2F/connections"):
            (row,) = served.get(path)
            name = f"127.0.0.1:{reader.port} -> 127.0.0.1:{served.amqp_port}"
            assert (row["name"], row["user"], row["vhost"]) == (name, "guest", "/")
            assert (row["peer_host"], row["peer_port"]) == ("127.0.0.1", reader.port)
            assert (row["protocol"], row["state"], row["channels"]) == ("ranges", "running", 0)
            assert 0 <= time.time() * 1000 - row["connected_at"] < 60_000
            assert row["recv_oct"] > len(MAGIC) < row["send_oct"]
    assert served.get("/api/connections/" + quote(name, safe=""))["name"] == name
    assert served.get("/api/connections/" + quote(name, safe="") + "/channels") == []
    assert served.get("/api/overview")["object_totals"]["connections"] == 1


@pytest.mark.parametrize("by", ["name", "user", "command"])
def test_readers_of_ranges_are_closed(served: Served, reader: RangeLine, by: str) -> None:
    name = f"127.0.0.1:{reader.port} -> 127.0.0.1:{served.amqp_port}"
    if by == "command":
        url = f"http://127.0.0.1:{served.port}"
        assert CliRunner().invoke(close_connection, [name, "--url", url]).exit_code == 0
    else:
        last = quote(name, safe="") if by == "name" else "username/guest"
        assert delete(served, f"/api/connections/{last}", {}) == 204
    assert reader.has_ended()
    assert served.get("/api/connections") == []
