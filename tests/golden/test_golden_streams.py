"""Streams that a build has left on the disk are opened, read and written on by the broker of today.

``streams-clean.tar.gz`` and ``streams-killed.tar.gz`` are of the format of docs/formats/streams.md,
version 1, which no release has written yet; they are made again only if that version changes:

    PYTHONPATH=src:. python -m tests.golden.test_golden_streams

Each is a node that stands alone with two streams, stopped in order or by SIGKILL.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from penstock.cli.data.audit import audit_directory
from tests.golden.lines import GoldenBroker
from tests.golden.make import kill, names_no_place, pack, unpack
from tests.golden.making import COMMON

HERE = Path(__file__).resolve().parent
ENDINGS = ("clean", "killed")
SETTINGS = {name: COMMON[name] for name in ("journal_file_size_bytes", "journal_size_limit_bytes")}
SETTINGS |= {"node_name": COMMON["node_name"], "log_file": COMMON["log_file"]}
STREAM = {"x-queue-type": "stream"}
COUNT = 30
SEGMENT = {"x-stream-max-segment-size-bytes": 500}
STREAMS = {
    "all": STREAM | SEGMENT,
    "rest": STREAM | SEGMENT | {"x-max-length-bytes": 2000},
    "once": STREAM | SEGMENT | {"x-message-deduplication": True},
}
KEEPER = "keeper"
KEPT = 5
"""The consumer of that tag has its position kept, and has settled so many."""
VALUES = ("eu", "us", None)
FIRST_LEFT = {"all": 0, "rest": 25, "once": 0}
"""Where retention had left off."""


def connect(broker: GoldenBroker) -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.URLParameters(broker.url))


def publish(channel: BlockingChannel, number: int) -> None:
    """To all; each is confirmed."""
    value = VALUES[number % len(VALUES)]
    headers = {"x-deduplication-header": f"maker:{number}"}
    if value is not None:
        headers["x-stream-filter-value"] = value
    for name in STREAMS:
        properties = pika.BasicProperties(headers=headers, delivery_mode=2)
        channel.basic_publish("", name, b"m%d" % number, properties)


def read(
    broker: GoldenBroker, name: str, last: int, **arguments: object
) -> list[tuple[int, bytes]]:
    """Offsets and bodies, up to that offset."""
    found: list[tuple[int, bytes]] = []
    with connect(broker) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=100)
        spelt = {"x-stream-" + key: value for key, value in arguments.items()}
        for method, properties, body in channel.consume(
            name, arguments=spelt, inactivity_timeout=10
        ):
            assert method is not None, f"{name}: {found} and no more"
            assert properties.headers is not None
            found.append((properties.headers["x-stream-offset"], body))
            if found[-1][0] >= last:
                return found
    raise AssertionError


def keep(connection: pika.BlockingConnection, count: int) -> int:
    """Settle so many as the one whose position is kept; where it began."""
    offsets: list[int] = []

    def got(
        channel: BlockingChannel,
        method: pika.spec.Basic.Deliver,
        properties: pika.BasicProperties,
        _body: bytes,
    ) -> None:
        assert properties.headers is not None
        if len(offsets) < count:
            offsets.append(properties.headers["x-stream-offset"])
            channel.basic_ack(method.delivery_tag)

    channel = connection.channel()
    channel.basic_qos(prefetch_count=count)
    arguments = {"x-stream-offset": "first", "x-stream-automatic-offset-tracking": True}
    channel.basic_consume("all", got, arguments=arguments, consumer_tag=KEEPER)
    deadline = time.monotonic() + 20
    while len(offsets) < count:
        assert time.monotonic() < deadline
        connection.process_data_events(0.2)
    channel.close()
    return offsets[0]


def expected(first: int, end: int) -> list[tuple[int, bytes]]:
    return [(number, b"m%d" % number) for number in range(first, end)]


@pytest.mark.parametrize("ending", ENDINGS)
def test_streams_are_opened_read_and_written_on(ending: str, tmp_path: Path) -> None:
    broker = GoldenBroker(tmp_path, SETTINGS)
    unpack(HERE / f"streams-{ending}.tar.gz", tmp_path)
    report = audit_directory(str(broker.data_dir))
    assert report["damages"] == []
    counts = {row["name"]: row["messages"] for row in report["queues"]}
    assert counts == {name: COUNT - first for name, first in FIRST_LEFT.items()}
    with broker:
        for name, first in FIRST_LEFT.items():
            assert read(broker, name, COUNT - 1, offset="first") == expected(first, COUNT)
        assert read(broker, "all", COUNT - 1, offset=17) == expected(17, COUNT)
        # Each message is a block of its own; the last one of "us" is that before the last.
        us = read(broker, "all", COUNT - 2, offset="first", filter="us")
        assert us == [(n, b"m%d" % n) for n in range(COUNT) if VALUES[n % 3] == "us"]
    with broker:
        with connect(broker) as connection:
            assert keep(connection, KEPT) == KEPT
            channel = connection.channel()
            channel.confirm_delivery()
            publish(channel, COUNT - 1)  # once more: only one takes note of it
            publish(channel, COUNT)
        assert read(broker, "once", COUNT, offset="first") == expected(0, COUNT + 1)
        twice = [*expected(0, COUNT), (COUNT, b"m%d" % (COUNT - 1)), (COUNT + 1, b"m%d" % COUNT)]
        for name in ("all", "rest"):
            assert read(broker, name, COUNT + 1, offset=COUNT) == twice[-2:]
    assert audit_directory(str(broker.data_dir))["damages"] == []


def make(ending: str) -> None:
    with tempfile.TemporaryDirectory(prefix="penstock-golden-") as scratch:
        broker = GoldenBroker(Path(scratch) / "made", SETTINGS)
        broker.start()
        with connect(broker) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for name, arguments in STREAMS.items():
                channel.queue_declare(name, durable=True, arguments=arguments)
            for number in range(COUNT):
                publish(channel, number)
            keep(connection, KEPT)
        if ending == "killed":
            kill(broker)
        else:
            broker.stop()
        names_no_place(broker.data_dir, HERE.parents[1])
        pack(broker.data_dir, HERE / f"streams-{ending}.tar.gz")
        for row in audit_directory(str(broker.data_dir))["queues"]:
            print(ending, row["name"], "begins at", COUNT - row["messages"])


if __name__ == "__main__":
    for one in sys.argv[1:] or ENDINGS:
        make(one)
