"""NSQ side by side: Penstock durable, Penstock fast, and nsqd; and how late deferred messages come.

Each run has a topic of its own with one channel, which is deleted afterwards.  Penstock is held to
its core and the generator to another; nsqd may use all, as it does by default.
"""

from __future__ import annotations

import argparse
import json
import selectors
import socket
import struct
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.brokers import Side, Watch, all_cores, held_to, memory_mb
from benchmarks.brokers import penstock as penstock_of
from benchmarks.harness import Figures, Given, Row, Table, needs
from benchmarks.load import loading
from benchmarks.nsq_wire import OK_FRAME, RECEIVE_BYTES, connect, subscribe
from benchmarks.page import Column, Section, tenths, thousands
from tests.conformance_nsq.servers import NsqdProcess
from tests.helpers.broker_process import free_port

RUN_LIMIT_S: Final = 180.0
FILL: Final[dict[str, Any]] = {"what": "publish", "batch": 200, "window": 2000}


class NsqSide(Side):
    """``port``, ``http_port``: where it speaks NSQ."""

    port: int
    http_port: int

    @property
    def pid(self) -> int:
        return self.process.pid


def penstock(given: Given, key: str, label: str, *flags: str) -> NsqSide:
    port, http_port = free_port(), free_port()
    made = penstock_of(
        given,
        *("--nsq-port", str(port), "--nsq-http-port", str(http_port)),
        *("--nsqlookupd-tcp-port", "0", "--nsqlookupd-http-port", "0", *flags),
    )
    side = NsqSide(key, made.process, made.cores, made.generator_cores, made.favoured)
    side.label, side.port, side.http_port = label, port, http_port
    return side


def nsqd(given: Given) -> list[NsqSide]:
    if not given.nsqd:
        return []
    process = NsqdProcess(given.nsqd.resolve(), {"log-level": "fatal"})
    cores = given.nsqd_cores or all_cores()
    generator = given.generator_cores if given.nsqd_cores else all_cores()
    side = NsqSide("nsqd", process, cores, generator, given.favoured)
    said = subprocess.run([given.nsqd, "--version"], capture_output=True, text=True, check=True)
    side.label, side.port, side.http_port = said.stdout.strip(), process.port, process.http_port
    return [side]


def common_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--nsqd", type=Path, help="the program nsqd; without it Penstock runs alone")
    add("--nsqd-cores", default="", help="nsqd's cores; empty = all")
    add("--size", type=int, default=200, help="body bytes")


# -- throughput ---------------------------------------------------------------------------------


def options(parser: argparse.ArgumentParser) -> None:
    common_options(parser)
    add = parser.add_argument
    add("--generator", type=Path, help="another program that drives them, instead of our own")
    add("--count", type=int, default=200_000, help="messages of a run")


def driven(
    *, reading: bool = False, batch: int = 1, window: int, finish_every: int = 1
) -> Callable[[NsqSide, Given], Figures]:
    """``reading``: what was published before is read, else publishing is measured."""

    def own(side: NsqSide, given: Given, **words: Any) -> Figures:
        amounts = {"port": side.port, "count": given.count, "size": given.size}
        with loading(side, "nsq_wire", **amounts, **words) as program:
            found: Figures = program.result()
            return found

    def measure(side: NsqSide, given: Given) -> Figures:
        topic = f"bench-{time.monotonic_ns()}"
        subscribe(side.port, topic).close()  # from here on the channel exists
        if reading:
            own(side, given, topic=topic, **FILL)
        words = {"what": "read" if reading else "publish", "batch": batch, "window": window}
        with Watch(side.pid) as watch:
            if given.generator:
                found = foreign(side, given, topic, reading, batch, window, finish_every)
            else:
                found = own(side, given, topic=topic, finish_every=finish_every, **words)
        delete_topic(side, topic)
        again = found.get("redelivered", 0)
        return found | {
            "cpu_us": watch.cpu_s * 1e6 / found["messages"],
            "rss_mb": memory_mb(side.pid),
            "other_cores": watch.other_cores(found["generator_cpu_s"]),
            "wrong": [f"{again:,} redelivered"] if again else [],
        }

    return measure


def foreign(
    side: NsqSide,
    given: Given,
    topic: str,
    reading: bool,
    batch: int,
    window: int,
    finish_every: int,
) -> Figures:
    """By a program that takes such words and says what it did as one line of JSON."""
    words = [str(given.generator), "--proto", "nsq", "--port", str(side.port), "--queue", topic]
    words += ["--size", str(given.size), "--deadline", str(int(RUN_LIMIT_S))]
    if reading:
        words += ["--pub", "0", "--con", "1", "--expect", str(given.count)]
        words += ["--prefetch", str(window), "--ack-every", str(finish_every)]
    else:
        words += ["--con", "0", "--count", str(given.count), "--confirm", str(window)]
        words += ["--mpub", str(batch)] if batch > 1 else []
    done = subprocess.run(
        ["taskset", "-c", side.generator_cores, *words],
        capture_output=True,
        text=True,
        timeout=RUN_LIMIT_S,
        check=True,
    )
    said = json.loads(done.stdout.splitlines()[-1])
    if said["error"]:
        raise RuntimeError(said["error"])
    messages, rate = ("consumed", "consume_rate") if reading else ("confirmed", "publish_rate")
    return {
        "messages": said[messages],
        "rate": said[rate],
        "redelivered": said["redelivered"],
        "generator_cpu_s": said["loadgen_cpu_s"],
    }


def delete_topic(side: NsqSide, topic: str) -> None:
    url = f"http://127.0.0.1:{side.http_port}/topic/delete?topic={topic}"
    with urllib.request.urlopen(urllib.request.Request(url, b"", method="POST"), timeout=60):
        pass


def sides(given: Given, row: Row) -> list[NsqSide]:
    return [
        penstock(given, mode, f"Penstock, {mode}", "--nsq-publish-mode", mode)
        for mode in ("durable", "fast")
    ] + nsqd(given)


NSQ: Final = Table(
    "nsq",
    "Penstock and nsqd side by side",
    "Messages per second. Durable: OK when the message is on disk; fast: OK at once, synced a"
    " moment later; nsqd says OK when it is in memory.",
    [
        Row("pub", "PUB, window 1000", driven(window=1000)),
        Row("mpub", "MPUB of 200, window 2000", driven(batch=200, window=2000)),
        Row("read-each", "RDY 2500, each FIN sent alone", driven(reading=True, window=2500)),
        Row(
            "read-batched",
            "RDY 2500, FINs sent by the hundred",
            driven(reading=True, window=2500, finish_every=100),
        ),
    ],
    {
        "": Section(
            "",
            (
                Column("rate", "msg/s", thousands, 1),
                Column("cpu_us", "CPU µs/msg"),
                Column("rss_mb", "RSS MB", thousands),
                Column("other_cores", "other load, cores"),
            ),
        )
    },
    sides,
    options=options,
    defaults={"alone": True},
    tried={"count": 4000},
    lacking=needs,
)


# -- how late deferred messages come ------------------------------------------------------------

WINDOW: Final = 1000
PERCENTILES: Final = (50.0, 90.0, 99.0, 99.9)
DEFERRAL: Final = struct.Struct(">q")
"""In nanoseconds, at the beginning of a body."""


class Load(NamedTuple):
    """``spread_ns``: over which the due times lie evenly."""

    messages: int
    spread_ns: int


def commands(given: Given, load: Load, began_ns: int) -> Iterator[bytes]:
    """One DPUB after the other, each due at its own moment."""
    first_ns = began_ns + int(given.lead * 1e9)
    padding = bytes(max(0, given.size - DEFERRAL.size))
    for number in range(load.messages):
        due_ns = first_ns + load.spread_ns * number // load.messages
        delay_ms = max(0, due_ns - time.time_ns()) // 1_000_000
        body = DEFERRAL.pack(delay_ms * 1_000_000) + padding
        head = b"DPUB late-%d %d\n" % (number % given.channels, delay_ms)
        yield head + struct.pack(">i", len(body)) + body


def publish(port: int, given: Given, load: Load) -> float:
    """All of them, at most a window without an answer; returns the seconds it took."""
    began_ns = time.time_ns()
    line = connect(port)
    sent = answered_bytes = 0
    block: list[bytes] = []
    for command in commands(given, load, began_ns):
        block.append(command)
        if len(block) < WINDOW // 4 and sent + len(block) < load.messages:
            continue
        line.sendall(b"".join(block))
        sent += len(block)
        block = []
        while sent * len(OK_FRAME) - answered_bytes > WINDOW * len(OK_FRAME):
            answered_bytes += len(line.recv(RECEIVE_BYTES))
    while answered_bytes < load.messages * len(OK_FRAME):
        data = line.recv(RECEIVE_BYTES)
        if not data or b"E_" in data:
            raise RuntimeError(f"refused: {data[:200]!r}")
        answered_bytes += len(data)
    line.close()
    return (time.time_ns() - began_ns) / 1e9


class Reader:
    """The consumer of one channel: takes what comes and finishes it."""

    def __init__(self, port: int, number: int) -> None:
        self.line: socket.socket = subscribe(port, f"late-{number}")
        self.line.sendall(b"RDY 2500\n")
        self._rest = b""

    def take(self, lateness_ns: list[int]) -> None:
        self._rest += self.line.recv(RECEIVE_BYTES)
        now_ns = time.time_ns()
        at, data, finished = 0, self._rest, []
        while len(data) - at >= 8:
            size, kind = struct.unpack_from(">ii", data, at)
            if len(data) - at < 4 + size:
                break
            if kind == 2:
                published_ns = struct.unpack_from(">q", data, at + 8)[0]
                delay_ns = DEFERRAL.unpack_from(data, at + 34)[0]
                lateness_ns.append(now_ns - published_ns - delay_ns)
                finished.append(b"FIN %b\n" % data[at + 18 : at + 34])
            elif kind == 0:
                finished.append(b"NOP\n")
            else:
                raise RuntimeError(data[at : at + 200])
            at += 4 + size
        self._rest = data[at:]
        if finished:
            self.line.sendall(b"".join(finished))


def late(load_of: Callable[[Given], Load]) -> Callable[[NsqSide, Given], Figures]:
    def measure(side: NsqSide, given: Given) -> Figures:
        load = load_of(given)
        with held_to(given.generator_cores):
            readers = [Reader(side.port, number) for number in range(given.channels)]
            took_s = publish(side.port, given, load)
            if took_s > given.lead:
                raise RuntimeError(f"publishing took {took_s:.0f} s: give a longer --lead")
            lateness_ns: list[int] = []
            deadline_s = time.monotonic() + given.lead - took_s + 1 + given.patience
            with selectors.DefaultSelector() as waiting:
                for reader in readers:
                    waiting.register(reader.line, selectors.EVENT_READ, reader)
                while len(lateness_ns) < load.messages and time.monotonic() < deadline_s:
                    for key, _ in waiting.select(1.0):
                        key.data.take(lateness_ns)
            for reader in readers:
                reader.line.close()
        return lateness(lateness_ns, load.messages)

    return measure


def lateness(found_ns: list[int], wanted: int) -> Figures:
    found_ns.sort()
    count = len(found_ns)
    found: Figures = {"missing": wanted - count}
    if count:
        found |= {"smallest": found_ns[0] / 1e6, "largest": found_ns[-1] / 1e6}
        for percent in PERCENTILES:
            found[f"p{percent:g}"] = found_ns[min(count - 1, int(count * percent / 100))] / 1e6
    return found


def late_options(parser: argparse.ArgumentParser) -> None:
    common_options(parser)
    add = parser.add_argument
    add("--channels", type=int, default=400)
    add("--messages", type=int, default=100_000)
    add("--lead", type=float, default=25.0, help="seconds from the first publish to the due one")
    add("--patience", type=float, default=30.0, help="seconds after which the rest is missing")


def late_sides(given: Given, row: Row) -> list[NsqSide]:
    scans = {"exact": "Penstock, exact", "probabilistic": "Penstock, queueScanLoop"}
    made = [penstock(given, k, label, "--nsq-queue-scan", k) for k, label in scans.items()]
    return made + nsqd(given)


LATE_COLUMNS: Final = (
    Column("smallest", "smallest", tenths),
    *(
        Column(f"p{percent:g}", f"p{percent:g}", tenths, -(percent == 99))
        for percent in PERCENTILES
    ),
    Column("largest", "largest", tenths),
    Column("missing", "missing", thousands),
)
NSQ_LATENESS: Final = Table(
    "nsq-lateness",
    "Lateness of deferred messages",
    "400 channels with a consumer each, if not told otherwise; milliseconds from the due time until"
    " a message is read.",
    [
        Row(
            "second",
            "all within one second",
            late(lambda given: Load(given.messages, 1_000_000_000)),
        ),
        Row("moment", "one a channel, at one moment", late(lambda given: Load(given.channels, 0))),
    ],
    {"": Section("", LATE_COLUMNS)},
    late_sides,
    lives="run",
    options=late_options,
    defaults={"rounds": 1, "alone": True},
    tried={"channels": 20, "messages": 500, "lead": 3.0, "patience": 5.0},
    lacking=needs,
)

TABLES: Final = (NSQ, NSQ_LATENESS)
