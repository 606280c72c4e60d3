"""A node that stood still for longer than its lease hands out nothing that others have now."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.helpers import raw_codec as codec
from tests.helpers.cluster import LiveCluster, missing_reason
from tests.helpers.live_broker import LiveBroker
from tests.helpers.raw_amqp import HungUp, open_client

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(missing_reason() is not None, reason=str(missing_reason())),
]

MESSAGES = 100
GETS = 10
MIRRORED = {"pattern": "^m", "definition": {"ha-mode": "all", "ha-sync-mode": "automatic"}}
GET = codec.method_frame(1, "basic.get", queue="m", no_ack=True)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LiveCluster]:
    with LiveCluster(tmp_path, 2) as running:
        running.ask(0, "/api/policies/%2F/m", {**MIRRORED, "apply-to": "queues"})
        running.ask(0, "/api/queues/%2F/m", {"durable": True, "node": running.name(0)})
        yield running


class Busy(threading.Thread):
    """Keeps the loop of a node at work, so that the pause meets it there and not in its sleep."""

    def __init__(self, node: LiveBroker) -> None:
        super().__init__(daemon=True)
        self.client = open_client(node.url)
        self.over = False

    def run(self) -> None:
        one = codec.method_frame(1, "basic.publish", exchange="", routing_key="nowhere")
        data = (one + codec.content_frames(1, b"x" * 100, {})) * 200
        try:
            while not self.over:
                self.client.sock.sendall(data)
        except OSError:
            pass  # the node hung up after its pause


def got(sock: socket.socket) -> list[str]:
    """The names of the answers, until there are no more."""
    sock.settimeout(5)
    rest, names = b"", []
    try:
        while data := sock.recv(1 << 16):
            frames, rest = codec.split_frames(rest + data)
            names += [codec.decode_method(f.payload)[0] for f in frames if f.type == codec.METHOD]
    except (OSError, HungUp):
        pass
    return names


@contextmanager
def channel_at(node: LiveBroker) -> Iterator[BlockingChannel]:
    connection = pika.BlockingConnection(pika.URLParameters(node.url))
    try:
        yield connection.channel()
    finally:
        with suppress(pika.exceptions.AMQPError):  # the node may have closed it
            connection.close()


def take_all(node: LiveBroker) -> None:
    """Consume everything there, as soon as it is the master."""
    count, end_s = 0, time.monotonic() + 30
    while count < MESSAGES:
        assert time.monotonic() < end_s, count
        with suppress(pika.exceptions.AMQPError), channel_at(node) as channel:
            while channel.basic_get("m", auto_ack=True)[0] is not None:
                count += 1
        time.sleep(0.2)


def test_after_a_pause_nothing_comes_from_the_stale_copy(cluster: LiveCluster) -> None:
    first, second = cluster.nodes
    with channel_at(first) as channel:
        channel.confirm_delivery()
        for number in range(MESSAGES):
            channel.basic_publish("", "m", b"%d" % number, pika.BasicProperties(delivery_mode=2))
    getter = open_client(first.url)
    busy = Busy(first)
    busy.start()
    os.kill(first.pid, signal.SIGSTOP)
    try:
        getter.sock.sendall(GET * GETS)
        take_all(second)
    finally:
        os.kill(first.pid, signal.SIGCONT)
    names = got(getter.sock)
    busy.over = True
    busy.join(10)
    for client in (getter, busy.client):
        client.sock.close()
    assert "basic.get-ok" not in names
