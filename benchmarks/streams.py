"""Streams: many readers of one log at once, attaching at a time, and consumers that wait."""

from __future__ import annotations

import argparse
import os
import random
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from bisect import bisect_left
from collections.abc import Callable
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from benchmarks.brokers import ROOT, Side, Watch, memory_mb, peers, penstock
from benchmarks.harness import Figures, Given, Row, Table, chosen, needs
from benchmarks.load import bench, environment
from benchmarks.page import Column, Promise, Section, tenths, thousands
from penstock.client.amqp import Channel, Connection, Endpoint
from penstock.client.load import SEQUENCE_MASK
from penstock.protocols.amqp.codec.tables import Timestamp

STREAM: Final = "bench.stream"
PUBLISHER: Final = (
    *("--queue", STREAM, "--queue-arg", "x-queue-type=stream", "--durable", "--persistent"),
    *("--consumers", "0"),
)
WARMUP_S: Final = 3.0
QUERIES_WARMUP_S: Final = 25.0
"""Java compiles what Spark does often, and takes most of a core for it at first."""
READING_LIMIT_S: Final = 120.0
SETTLE_S: Final = 3.0
IDLE_MESSAGES: Final = 100
"""Read and acknowledged by each consumer before it is idle."""


def publish(side: Side, size: int, *words: str) -> Figures:
    """One publisher with confirms."""
    return bench(side, [*PUBLISHER, "--size", str(size), *words])


def fill(side: Side, size: int, count: int) -> None:
    words = ("--count", str(count), "--confirm", "20000", "--deadline", "900")
    publish(side, size, *words)


# -- many readers ------------------------------------------------------------------------------


class Readers:
    """A process of ``streams_load``: how many messages it had read by when."""

    def __init__(self, side: Side, kind: str, *words: str) -> None:
        program = (sys.executable, "-m", "benchmarks.streams_load", kind, side.url, STREAM)
        self.process = subprocess.Popen(
            ["taskset", "-c", side.generator_cores, *program, *words],
            env=environment(),
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._seen: list[tuple[float, int]] = []
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def close(self) -> None:
        """Raises AssertionError if the process failed."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self._thread.join()
        assert self.process.wait() == 0, "readers failed"

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            at_s, count = line.split()
            self._seen.append((float(at_s), int(count)))

    def wait_until_they_read(self) -> None:
        limit_s = time.monotonic() + READING_LIMIT_S
        while not self._seen or self._seen[-1][1] == 0:
            assert self.process.poll() is None, "readers ended before they read anything"
            assert time.monotonic() < limit_s, "readers read nothing"
            time.sleep(0.05)

    def last_s(self) -> float:
        """When they told of themselves last: the end, if they have read all."""
        return self._seen[-1][0] if self.process.poll() is not None else time.monotonic()

    def rate(self, begin_s: float, end_s: float) -> float:
        """Messages per second, by straight lines between the times that they told of."""
        counts = []
        for at_s in (begin_s, end_s):
            place = min(max(bisect_left(self._seen, (at_s, 0)), 1), len(self._seen) - 1)
            (before_s, before), (after_s, after) = self._seen[place - 1 : place + 1]
            counts.append(before + (after - before) * (at_s - before_s) / (after_s - before_s))
        return (counts[1] - counts[0]) / (end_s - begin_s)


def read_by_many(side: Side, given: Given) -> Figures:
    """A stream of so many messages, read by consumers alone, then beside queries of Spark."""
    count = given.count if side.key == "penstock" else given.peer_count
    fill(side, given.size, count)
    alone = publish(side, given.size, *timing(given))["publish_rate"]
    found = {"consumers": read_at_once(side, given, count, 0)}
    if given.queries and side.key == "penstock":
        found["queries"] = read_at_once(side, given, count, given.queries)
    for phase in found.values():
        phase |= {"alone": alone, "kept": phase["published"] / alone}
    side.delete(STREAM)
    return found


def timing(given: Given) -> tuple[str, ...]:
    seconds = ("--duration", f"{given.seconds:g}", "--warmup", f"{WARMUP_S:g}")
    return (*seconds, "--confirm", "1000")


def read_at_once(side: Side, given: Given, count: int, queries: int) -> Figures:
    """Consumers, queries and a publisher; the time ends early if a consumer has read all."""
    with ExitStack() as stack:
        readers: dict[str, Readers] = {}

        def add(name: str, *words: str) -> None:
            readers[name] = Readers(side, *words)
            stack.callback(readers[name].close)
            readers[name].wait_until_they_read()

        if queries:
            scratch = stack.enter_context(tempfile.TemporaryDirectory())
            add("by_queries", "query", str(queries), scratch)
            time.sleep(QUERIES_WARMUP_S)
        add("by_consumers", "consume", str(given.consumers), str(count))
        told: Figures = {}
        publishing = threading.Thread(
            target=lambda: told.update(publish(side, given.size, *timing(given)))
        )
        publishing.start()
        time.sleep(WARMUP_S)
        begin_s = time.monotonic()
        with Watch(side.pid) as watch:
            publishing.join(given.seconds)
        end_s = min(time.monotonic(), readers["by_consumers"].last_s())
        publishing.join()
        time.sleep(1.0 if queries else 0.0)  # the batches that were under way
        found: Figures = {name: one.rate(begin_s, end_s) for name, one in readers.items()}
    total = sum(found.values())
    return found | {
        "sum": total,
        "published": told["publish_rate"],
        "watched": watch.result(),
        "cpu_us": watch.cpu_s / given.seconds / total * 1e6,
    }


# -- attaching at a time -----------------------------------------------------------------------


def attaching(side: Side, given: Given) -> Figures:
    """Milliseconds from the request to the first message; how far that was from the time."""
    chance = random.Random(1)
    stored = side.stored
    assert stored is not None
    with Connection(Endpoint.parse(side.url)) as connection:
        began_s = time.time()
        fill(side, 16, given.attach_count)
        filled_s = time.time() - began_s
        files = sorted((stored / "streams").rglob("*.stm"))
        spent: dict[str, list[float]] = {"warm": [], "cold": [], "off": []}
        for number in range(2 * given.attaches):
            at_s = int(began_s + min(2, filled_s / 2) + chance.random() * max(0, filled_s - 3))
            if number % 2 == 0:
                forget(files)
            spent_ms, off_ms = attach(connection.channel(), at_s)
            spent["warm" if number % 2 else "cold"].append(spent_ms)
            spent["off"].append(off_ms)
    found: Figures = {
        name: {"median": statistics.median(seen), "max": max(seen)} for name, seen in spent.items()
    }
    gb = sum(path.stat().st_size for path in files) / 1e9
    return found | {"gb": gb, "segments": len(files), "fill_s": filled_s}


def forget(files: list[Path]) -> None:
    """Let the kernel keep nothing of these files in memory."""
    for path in files:
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def attach(channel: Channel, at_s: int) -> tuple[float, float]:
    """Milliseconds until the first message, and how many before or after the time it was sent.

    Raises AssertionError if its offset is not its place among all that were published.
    """
    channel.qos(100)
    begin_s = time.monotonic()
    channel.consume(STREAM, arguments={"x-stream-offset": Timestamp(at_s)})
    delivery = channel.next_delivery()
    spent_s = time.monotonic() - begin_s
    assert delivery is not None, "nothing came"
    sent_ns, sequence = struct.unpack_from(">qq", delivery.body)
    headers = delivery.properties.headers or {}
    assert headers["x-stream-offset"] == (sequence & SEQUENCE_MASK) - 1, headers
    channel.close()
    sent_s = (sent_ns + time.time_ns() - time.monotonic_ns()) / 1e9
    return spent_s * 1000, abs(at_s - sent_s) * 1000


# -- consumers that wait -----------------------------------------------------------------------


def waiting(channels: int, consumers: int) -> Callable[[Side, Given], Figures]:
    """Bytes of resident memory for each consumer, its part of channel and connection included."""

    def measure(side: Side, given: Given) -> Figures:
        publish(side, given.size, "--count", str(IDLE_MESSAGES), "--confirm", "100")
        for connection in [attached(side.url, 1, 2) for _ in range(10)]:
            connection.close()
        time.sleep(SETTLE_S)
        before_mb = memory_mb(side.pid)
        connections = max(1, given.idle // (channels * consumers))
        opened = [attached(side.url, channels, consumers) for _ in range(connections)]
        time.sleep(SETTLE_S)
        grown_mb = memory_mb(side.pid) - before_mb
        for connection in opened:
            connection.close()
        return {"bytes": grown_mb * 1e6 / (connections * channels * consumers)}

    return measure


def attached(url: str, channels: int, consumers: int) -> Connection:
    """A connection whose consumers have read and acknowledged all there is."""
    connection = Connection(Endpoint.parse(url))
    for _ in range(channels):
        channel = connection.channel()
        channel.qos(IDLE_MESSAGES)
        for _ in range(consumers):
            channel.consume(STREAM, arguments={"x-stream-offset": "first"})
            tags = [channel.next_delivery() for _ in range(IDLE_MESSAGES)]
            assert tags[-1] is not None, "messages are missing"
            channel.ack(tags[-1].delivery_tag, multiple=True)
    return connection


# -- the table ---------------------------------------------------------------------------------


def options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--count", type=int, default=10_000_000, help="readers: messages of Penstock's stream")
    add("--peer-count", type=int, default=500_000, help="readers: those of others")
    add("--size", type=int, default=1024, help="body bytes of readers and idle ones")
    add("--consumers", type=int, default=10, help="that read the stream at once")
    add("--queries", type=int, default=2, help="of Spark, beside them")
    add("--attach-count", type=int, default=100_000_000, help="attach: messages of 16 B")
    add("--idle", type=int, default=1000, help="idle: consumers")
    add("--attaches", type=int, default=50, help="at times by chance, warm and cold")


def sides(given: Given, row: Row) -> list[Side]:
    """RabbitMQ has streams from 3.9 on, where a plug-in is on: beside it by ``--peer``."""
    return [penstock(given), *(peers(given) if row.name == "readers" else ())]


ROWS: Final = [
    Row("readers", "one stream", read_by_many, "readers"),
    Row("attach", "a stream of messages of 16 B", attaching, "attach"),
    Row("idle-channel", "100 consumers a channel", waiting(1, 100), "idle"),
    Row("idle-channels", "100 channels a connection", waiting(100, 1), "idle"),
    Row("idle-connections", "a connection each", waiting(1, 1), "idle"),
]


def lacking(given: Given) -> str | None:
    has_readers = any(row.name == "readers" for row in chosen(ROWS, given.only))
    if has_readers and given.queries and find_spec("pyspark") is None:
        return "Spark is not here: run `make deps-spark` first, or give --queries 0"
    return needs(given)


SECTIONS: Final = {
    "readers": Section(
        "Readers from the beginning (prefetch 1000, ack every 100) beside a publisher, messages/s",
        (
            Column("sum", "read in sum", thousands, 1),
            Column("by_consumers", "by consumers", thousands),
            Column("by_queries", "by queries", thousands),
            Column("alone", "published alone", thousands),
            Column("published", "published meanwhile", thousands, 1),
            Column("kept", "kept"),
            Column("watched/rss_peak_mb", "peak RSS MB", thousands),
            Column("watched/cores", "cores"),
            Column("cpu_us", "CPU µs/msg"),
        ),
        {"consumers": "consumers", "queries": "consumers and queries of Spark"},
    ),
    "attach": Section(
        "Attaching at a time, ms until the first message",
        (
            Column("median", "median", tenths),
            Column("max", "largest", tenths),
            Column("/gb", "GB", tenths),
            Column("/segments", "segments", thousands),
        ),
        {"warm": "warm", "cold": "cold", "off": "between the time asked for and the one it has"},
    ),
    "idle": Section(
        f"Consumers that have read {IDLE_MESSAGES} messages and wait: growth of the memory",
        (Column("bytes", "bytes for each", thousands),),
    ),
}
TABLES: Final = (
    Table(
        "streams",
        "Streams",
        "Readers of one log at once, attaching at a time in a long one, and consumers that wait.",
        ROWS,
        SECTIONS,
        sides,
        lives="run",
        options=options,
        defaults={"rounds": 1, "seconds": 15.0, "alone": True},
        tried={
            "count": 200_000,
            "peer_count": 20_000,
            "attach_count": 300_000,
            "attaches": 2,
            "idle": 100,
            "queries": 0,
            "seconds": 2.0,
        },
        promises=[
            Promise("messages/s in sum at least", "readers", "queries/sum", least=500_000),
            Promise("resident below 250 MB", "readers", "queries/watched/rss_peak_mb", most=250),
            Promise("published meanwhile / alone", "readers", "queries/kept", least=0.7),
            Promise("attaching below 50 ms, warm", "attach", "warm/max", most=50),
            Promise("attaching below 50 ms, cold", "attach", "cold/max", most=50),
            Promise("bytes where connections are shared", "idle-channel", "bytes", most=20_000),
        ],
        lacking=lacking,
    ),
)
