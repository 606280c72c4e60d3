"""The three bottlenecks operators know, made for real: ``penstock flow`` names each."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import hostile_machine
from tests.helpers import raw_codec as codec
from tests.helpers.hostile_machine import HostileMachine
from tests.helpers.live_broker import REPOSITORY, LiveBroker
from tests.helpers.raw_amqp import connect

PUBLISHERS = 3
PATIENCE_S = 40.0
WATCHED_S = 6.0
"""Of the ten seconds looked back at, so many must have been full of it before we ask."""


def flow(broker: LiveBroker, form: str = "json") -> Any:
    said = subprocess.run(
        [sys.executable, "-m", "penstock", "flow", "--url", broker.http_url, "-o", form],
        env=os.environ | {"PYTHONPATH": str(REPOSITORY / "src")},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return json.loads(said) if form == "json" else said


@contextmanager
def publishers(broker: LiveBroker, chunk: bytes) -> Iterator[None]:
    """Sockets into which the same publishes are written, as fast as they are taken."""
    clients = []
    for _ in range(PUBLISHERS):
        client = connect(broker.url)
        client.open()
        client.open_channel()
        clients.append(client)

    def publish(sock: socket.socket) -> None:
        with suppress(OSError):
            while True:
                sock.sendall(chunk)

    threads = [threading.Thread(target=publish, args=(one.sock,), daemon=True) for one in clients]
    for client in clients:
        client.sock.settimeout(None)
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for client in clients:
            with suppress(OSError):
                client.sock.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()
        for client in clients:
            client.close_socket()


def publish(exchange: str, key: str, body: bytes, **properties: Any) -> bytes:
    frame = codec.method_frame(1, "basic.publish", exchange=exchange, routing_key=key)
    return frame + codec.content_frames(1, body, properties)


def named(broker: LiveBroker, stage: str) -> dict[str, Any]:
    """What it says once it names the stage; the last answer if it never does."""
    time.sleep(WATCHED_S)
    until = time.monotonic() + PATIENCE_S
    while (found := flow(broker))["bottleneck"] != stage and time.monotonic() < until:
        time.sleep(1)
    return dict(found)


def declared(broker: LiveBroker, declare: Callable[[Any], None]) -> None:
    client = connect(broker.url)
    client.open()
    client.open_channel()
    declare(client)
    client.close_socket()


def test_routing_of_tiny_transient_messages_is_the_channels_work(tmp_path: Path) -> None:
    def declare(client: Any) -> None:
        client.call(1, "exchange.declare", exchange="h", type="headers")
        client.call(1, "queue.declare", queue="q")
        for number in range(60):
            criteria = {"x-match": "all", "number": number, "kind": "wanted"}
            client.call(1, "queue.bind", queue="q", exchange="h", arguments=criteria)

    with LiveBroker(tmp_path) as broker:
        declared(broker, declare)
        assert flow(broker)["bottleneck"] == "nothing"
        assert "Nothing makes publishers wait." in flow(broker, "table")
        chunk = b"".join(
            publish("h", "", b"x", headers={"number": number, "kind": "other"})
            for number in range(500)
        )
        with publishers(broker, chunk):
            found = named(broker, "channels")
            assert found["bottleneck"] == "channels", found
            assert found["waits"][0]["kind"] == "connection"
            assert "decoding and routing" in flow(broker, "table")


def test_many_small_persistent_messages_are_the_queues_work(tmp_path: Path) -> None:
    def declare(client: Any) -> None:
        client.call(1, "queue.declare", queue="q", durable=True)

    with LiveBroker(tmp_path) as broker:
        declared(broker, declare)
        chunk = publish("", "q", b"x" * 200, delivery_mode=2) * 500
        with publishers(broker, chunk):
            found = named(broker, "queues")
            assert found["bottleneck"] == "queues", found
            kinds = {wait["kind"] for wait in found["waits"]}
            assert kinds == {"connection", "channel"}
            assert "The queues are the bottleneck: " in found["sentence"]


@pytest.mark.skipif(
    hostile_machine.missing_reason() is not None, reason=str(hostile_machine.missing_reason())
)
def test_large_persistent_messages_on_a_slow_disk_wait_for_the_message_store(
    tmp_path: Path,
) -> None:
    def declare(client: Any) -> None:
        client.call(1, "queue.declare", queue="q", durable=True)

    environment = HostileMachine(tmp_path, 10_000_000).environment
    with LiveBroker(tmp_path / "b", environment=environment) as broker:
        declared(broker, declare)
        chunk = publish("", "q", b"x" * 100_000, delivery_mode=2) * 10
        with publishers(broker, chunk):
            found = named(broker, "message store")
            assert found["bottleneck"] == "message store", found
            assert {wait["kind"] for wait in found["waits"]} == {"connection", "channel", "queue"}
            text = flow(broker, "table")
            assert "contents wait for the disk" in text
            assert "queue 'q' in vhost '/'" in text
