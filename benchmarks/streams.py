"""Streams: many readers of one log at once, attaching at a time, and consumers that wait.

    python benchmarks/streams.py readers                       10 consumers and 2 queries of Spark
    python benchmarks/streams.py readers --peer amqp://…       the same consumers at other brokers
    python benchmarks/streams.py attach                        in a stream of 100 million messages
    python benchmarks/streams.py idle                          1000 consumers with nothing to do

Peers run already, and are named by their addresses on this machine; they get ``--peer-count``
messages, and no queries.  Penstock is started on a port and in a directory of its own.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import random
import shlex
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, Self

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from benchmarks.archive import Watched, environment  # noqa: E402
from benchmarks.compare import all_cores, favour, is_compiled, run, shown_arguments  # noqa: E402
from benchmarks.storage_brokers import StoredPenstock  # noqa: E402
from benchmarks.tables import machine, thousands  # noqa: E402
from penstock import __version__  # noqa: E402
from penstock.client.amqp import Channel, Connection, Endpoint  # noqa: E402
from penstock.client.load import SEQUENCE_MASK  # noqa: E402
from penstock.client.load import __file__ as generator_file  # noqa: E402
from penstock.protocols.amqp.codec.tables import Timestamp  # noqa: E402
from tests.helpers.slow_consumers import allow_sockets, resident_bytes  # noqa: E402

RESULTS: Final = ROOT / "benchmarks" / "results"
STREAM: Final = "bench.stream"
WARMUP_S: Final = 3.0
QUERIES_WARMUP_S: Final = 25.0
"""Java compiles what Spark does often, and takes most of a core for it at first."""
READING_LIMIT_S: Final = 120.0
FILL_LIMIT_S: Final = 900
SUM_MIN: Final = 500_000
RSS_MB_MAX: Final = 250
KEPT_MIN: Final = 0.7
ATTACH_MS_MAX: Final = 50.0
IDLE_BYTES_MAX: Final = 20_000
SETTLE_S: Final = 3.0
IDLE_MESSAGES: Final = 100
"""Read and acknowledged by each consumer before it is idle."""
LAYOUTS: Final = {
    "10 connections, a channel each, 100 consumers on it": (10, 1, 100),
    "10 connections, 100 channels each, a consumer on it": (10, 100, 1),
    "a connection each": (1000, 1, 1),
}
"""Connections, channels of each, consumers of each channel."""

Result = dict[str, Any]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("row", choices=sorted(ROWS), help="what is measured")
    add("--count", type=int, default=0, help="messages (10,000,000; attach: 100,000,000)")
    add("--size", type=int, default=0, help="body bytes (1024; attach: 16)")
    add("--consumers", type=int, default=10, help="that read the stream at once (10)")
    add("--queries", type=int, default=2, help="of Spark, beside them (2)")
    add("--seconds", type=float, default=15.0, help="of one measurement of rates (15)")
    add("--peer", action="append", default=[], help="AMQP URL of another broker; may be repeated")
    add("--peer-count", type=int, default=500_000, help="messages of its stream (500,000)")
    add("--attaches", type=int, default=50, help="at times by chance, warm and cold (50)")
    add("--broker-cores", default="0", help="Penstock's, like 0 or 0,1 (0)")
    add("--generator-cores", default="1", help="of generator and Spark beside Penstock (1)")
    add("--pure", action="store_true", help="run Penstock interpreted")
    add("--favoured", action="store_true", help="take precedence over other work (needs root)")
    add("--dir", type=Path, help="where files are made (the system's choice)")
    add("--out", type=Path, default=RESULTS, help="directory of the results")
    return parser.parse_args()


def main() -> int:
    given = arguments()
    given.count = given.count or (100_000_000 if given.row == "attach" else 10_000_000)
    given.size = given.size or (16 if given.row == "attach" else 1024)
    if not given.pure and not is_compiled(generator_file):
        print("error: this checkout is not compiled: run `make setup` first, or give --pure")
        return 1
    if given.dir is not None:
        tempfile.tempdir = str(given.dir.resolve())
    allow_sockets()
    report = describe(given)
    report[given.row] = ROWS[given.row](given)
    lines = page(report)
    given.out.mkdir(parents=True, exist_ok=True)
    path = given.out / f"{report['date']}-streams-{given.row}-{report['build']}"
    path.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n")
    path.with_suffix(".md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    return 0


@contextmanager
def penstock(given: argparse.Namespace) -> Iterator[StoredPenstock]:
    with StoredPenstock(given.broker_cores, given.generator_cores, given.pure, 0) as broker:
        if given.favoured:
            favour(broker.pid)
        yield broker


def publish(given: argparse.Namespace, url: str, *words: str) -> Result:
    """What ``penstock bench`` says of one publisher with confirms."""
    command = [
        *pinned(given, url),
        *(sys.executable, "-m", "penstock", "bench", "--uri", url, "--queue", STREAM),
        *("--queue-arg", "x-queue-type=stream", "--durable", "--persistent"),
        *("--size", str(given.size), "--consumers", "0", "--json", "-", *words),
    ]
    result: Result = json.loads(run(command, given.favoured))
    return result


def pinned(given: argparse.Namespace, url: str) -> tuple[str, ...]:
    """Before the command of what drives the broker there: beside a peer it may use all cores."""
    return ("taskset", "-c", all_cores() if url in given.peer else given.generator_cores)


def fill(given: argparse.Namespace, url: str, count: int) -> None:
    words = ("--count", str(count), "--confirm", "20000", "--deadline", str(FILL_LIMIT_S))
    print(f"publishing {count:,} messages", flush=True)
    publish(given, url, *words)


# -- many readers ------------------------------------------------------------------------------


class Readers:
    """A process of ``streams_load.py``: how many messages it had read by when."""

    def __init__(self, given: argparse.Namespace, side: str, url: str, *words: str) -> None:
        program = (sys.executable, str(ROOT / "benchmarks" / "streams_load.py"))
        self._process = subprocess.Popen(
            [*pinned(given, url), *program, side, url, STREAM, *words],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        if given.favoured:
            favour(self._process.pid)
        self._seen: list[tuple[float, int]] = []
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Raises AssertionError if the process failed."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._thread.join()
        assert self._process.wait() == 0, "readers failed"

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            at_s, count = line.split()
            self._seen.append((float(at_s), int(count)))

    def wait_until_they_read(self) -> None:
        limit_s = time.monotonic() + READING_LIMIT_S
        while not self._seen or self._seen[-1][1] == 0:
            assert self._process.poll() is None, "readers ended before they read anything"
            assert time.monotonic() < limit_s, "readers read nothing"
            time.sleep(0.05)

    def last_s(self) -> float:
        """When they told of themselves last: the end, if they have read all."""
        return self._seen[-1][0] if self._process.poll() is not None else time.monotonic()

    def rate(self, begin_s: float, end_s: float) -> float:
        """Messages per second."""
        return (self._count_at(end_s) - self._count_at(begin_s)) / (end_s - begin_s)

    def _count_at(self, at_s: float) -> float:
        """By a straight line between two times that they told of."""
        seen = self._seen
        place = min(max(bisect_left(seen, (at_s, 0)), 1), len(seen) - 1)
        (before_s, before), (after_s, after) = seen[place - 1 : place + 1]
        return before + (after - before) * (at_s - before_s) / (after_s - before_s)


def readers_row(given: argparse.Namespace) -> list[Result]:
    found: list[Result] = []
    for url in given.peer:
        found.append(consumers_of(given, url, listener(url), given.peer_count))
        print(json.dumps(found[-1]), flush=True)
    with penstock(given) as broker:
        where = (broker.url, listener(broker.url), given.count)
        ours = consumers_of(given, *where) | {"version": f"Penstock {__version__}"}
        found.append(ours)
        print(json.dumps(ours), flush=True)
        if given.queries:
            found.append(ours | read_at_once(given, *where, given.queries))
            print(json.dumps(found[-1]), flush=True)
    return found


def consumers_of(given: argparse.Namespace, url: str, pid: int, count: int) -> Result:
    """A stream of so many messages, read by consumers alone."""
    with Connection(Endpoint.parse(url)) as connection:
        told = connection.server_properties
    version = f"{told['product']} {told['version']}"
    fill(given, url, count)
    alone = publish(given, url, *measured(given))
    result = read_at_once(given, url, pid, count, 0)
    return result | {"version": version, "alone_rate": alone["publish_rate"]}


def measured(given: argparse.Namespace) -> tuple[str, ...]:
    seconds = ("--duration", f"{given.seconds:g}", "--warmup", f"{WARMUP_S:g}")
    return (*seconds, "--confirm", "1000")


def read_at_once(given: argparse.Namespace, url: str, pid: int, count: int, queries: int) -> Result:
    """Consumers, queries and a publisher; the time ends early if a consumer has read all."""
    with ExitStack() as stack:
        sides: dict[str, Readers] = {}
        if queries:
            scratch = stack.enter_context(tempfile.TemporaryDirectory())
            readers = Readers(given, "query", url, str(queries), scratch)
            sides["queries"] = stack.enter_context(readers)
            sides["queries"].wait_until_they_read()
            time.sleep(QUERIES_WARMUP_S)
        readers = Readers(given, "consume", url, str(given.consumers), str(count))
        sides["consumers"] = stack.enter_context(readers)
        sides["consumers"].wait_until_they_read()
        told: Result = {}
        publishing = threading.Thread(target=publish_into, args=(given, url, told))
        publishing.start()
        time.sleep(WARMUP_S)
        begin_s = time.monotonic()
        with Watched(pid) as watched:
            publishing.join(given.seconds)
        end_s = min(time.monotonic(), sides["consumers"].last_s())
        publishing.join()
        time.sleep(1.0 if queries else 0.0)  # the batches that were under way
        rates = {name: side.rate(begin_s, end_s) for name, side in sides.items()}
    total = sum(rates.values())
    return rates | {
        "sum": total,
        "seconds": end_s - begin_s,
        "publish_rate": told["publish_rate"],
        "rss_mb": watched.peak_mb,
        "cores": watched.cpu_s / given.seconds,
        "cpu_us": watched.cpu_s / (end_s - begin_s) / total * 1e6,
    }


def publish_into(given: argparse.Namespace, url: str, told: Result) -> None:
    told |= publish(given, url, *measured(given))


def listener(url: str) -> int:
    """The process of this machine that listens on the port of an AMQP URL."""
    port = f":{Endpoint.parse(url).port:04X}"
    sockets = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[1].endswith(port) and fields[3] == "0A":
                sockets.add(f"socket:[{fields[9]}]")
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if os.readlink(link) in sockets:
                return int(link.parts[2])
        except OSError:
            continue
    raise SystemExit(f"error: no process of this machine listens at {url}")


# -- attaching at a time -----------------------------------------------------------------------


def attach_row(given: argparse.Namespace) -> Result:
    """Milliseconds from the request to the first message; how far that was from the time."""
    chance = random.Random(1)
    with penstock(given) as broker, Connection(Endpoint.parse(broker.url)) as connection:
        began_s = time.time()
        fill(given, broker.url, given.count)
        filled_s = time.time() - began_s
        files = sorted((broker.data_dir / "streams").rglob("*.stm"))
        found: dict[str, list[float]] = {"warm": [], "cold": [], "off": []}
        for number in range(2 * given.attaches):
            at_s = int(began_s + 2 + chance.random() * (filled_s - 3))
            if number % 2 == 0:
                forget(files)
            spent_ms, off_ms = attach(connection.channel(), at_s)
            found["warm" if number % 2 else "cold"].append(spent_ms)
            found["off"].append(off_ms)
        return {
            "count": given.count,
            "gb": sum(path.stat().st_size for path in files) / 1e9,
            "segments": len(files),
            "fill_s": filled_s,
            **found,
        }


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


def idle_row(given: argparse.Namespace) -> Result:
    """Bytes of resident memory for each consumer, its part of channel and connection included."""
    return {title: idle_bytes(given, *layout) for title, layout in LAYOUTS.items()}


def idle_bytes(given: argparse.Namespace, connections: int, channels: int, consumers: int) -> float:
    with penstock(given) as broker:
        publish(given, broker.url, "--count", str(IDLE_MESSAGES), "--confirm", "100")
        for connection in [attached(broker.url, 1, 2) for _ in range(10)]:
            connection.close()
        time.sleep(SETTLE_S)
        before = resident_bytes(broker.pid)
        opened = [attached(broker.url, channels, consumers) for _ in range(connections)]
        time.sleep(SETTLE_S)
        grown = resident_bytes(broker.pid) - before
        for connection in opened:
            connection.close()
    return grown / (connections * channels * consumers)


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


# -- the result --------------------------------------------------------------------------------

READERS_HEAD: Final = (
    *("broker", "readers", "msg/s in sum", "consumers", "queries"),
    *("published alone", "meanwhile", "kept", "peak RSS MB", "cores", "CPU µs/msg"),
)

ROWS: Final = {"readers": readers_row, "attach": attach_row, "idle": idle_row}


def describe(given: argparse.Namespace) -> Result:
    command = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    words = shown_arguments(sys.argv[1:])
    return {
        "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "machine": machine(),
        "command": shlex.join(["python", "benchmarks/streams.py", *words]),
        "build": "interpreted" if given.pure else "compiled",
        "commit": commit.stdout.strip(),
        "count": given.count,
        "size": given.size,
        "cores": f"Penstock on {given.broker_cores}, generator on {given.generator_cores}",
        "consumers": given.consumers,
        "queries": given.queries,
    }


def page(report: Result) -> list[str]:
    about = report["machine"]
    where = f"{about['cores']} cores, {about['cpu']}, {about['memory_gb']} GB, {about['kernel']}"
    pages = {"readers": readers_page, "attach": attach_page, "idle": idle_page}
    row = next(name for name in pages if name in report)
    return [
        f"# Streams: {row}, {report['date']}",
        "",
        f"{where}, {about['python']}; Penstock {report['build']}, {report['commit']};",
        f"cores: {report['cores']}; a peer and its generator use all.",
        "",
        f"    {report['command']}",
        "",
        *pages[row](report),
    ]


def readers_page(report: Result) -> list[str]:
    lines = [
        f"One stream of messages of {report['size']} B, read from its beginning by consumers that",
        "acknowledge every 100th with a prefetch of 1000, while one publisher with at most 1000",
        "unconfirmed messages publishes into it as fast as it can.",
        "",
        f"| {' | '.join(READERS_HEAD)} |",
        "|---|---" + "|---:" * (len(READERS_HEAD) - 2) + "|",
    ]
    for found in report["readers"]:
        queries = "queries" in found
        kept = found["publish_rate"] / found["alone_rate"]
        readers = f"{report['consumers']} consumers"
        cells = [
            found["version"],
            f"{readers}, {report['queries']} queries of Spark" if queries else readers,
            *(thousands(found[name]) for name in ("sum", "consumers")),
            thousands(found["queries"]) if queries else "–",
            *(thousands(found[name]) for name in ("alone_rate", "publish_rate")),
            f"{kept:.2f}",
            *(f"{found['rss_mb']:.0f}", f"{found['cores']:.2f}", f"{found['cpu_us']:.2f}"),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    last = report["readers"][-1]
    kept = last["publish_rate"] / last["alone_rate"]
    return lines + asked(
        ("messages/s in sum", thousands(last["sum"]), f"at least {thousands(SUM_MIN)}"),
        ("peak RSS, MB", f"{last['rss_mb']:.0f}", f"below {RSS_MB_MAX}"),
        ("published meanwhile / alone", f"{kept:.2f}", f"at least {KEPT_MIN}"),
    )


def attach_page(report: Result) -> list[str]:
    found = report["attach"]
    lines = [
        f"A stream of {found['count']:,} messages of {report['size']} B ({found['gb']:.1f} GB in",
        f"{found['segments']} segments, published in {found['fill_s']:.0f} s); from",
        "`basic.consume` with a timestamp to the first message. Before a cold one the kernel let",
        "go of the stream's files.",
        "",
        "| ms | median | largest |",
        "|---|---:|---:|",
    ]
    for name, title in (
        ("warm", "until the first message"),
        ("cold", "the same, cold"),
        ("off", "between the time asked for and when it was sent"),
    ):
        middle, most = statistics.median(found[name]), max(found[name])
        lines.append(f"| {title} | {middle:.1f} | {most:.1f} |")
    most = max(found["warm"] + found["cold"])
    return lines + asked(("attaching, ms", f"{most:.1f}", f"below {ATTACH_MS_MAX:g}"))


def idle_page(report: Result) -> list[str]:
    lines = [
        "Growth of the broker's resident memory by 1000 consumers of one stream, each of which has",
        f"read and acknowledged {IDLE_MESSAGES} messages of {report['size']} B and waits for more.",
        "",
        "| connections | bytes for each consumer |",
        "|---|---:|",
    ]
    lines += [f"| {title} | {thousands(each)} |" for title, each in report["idle"].items()]
    lines += [
        "",
        "With a connection each, half of it are the statistics of connection and channel.",
    ]
    most = max(report["idle"][title] for title in list(LAYOUTS)[:2])
    name = "bytes, where connections are shared"
    return lines + asked((name, thousands(most), f"below {thousands(IDLE_BYTES_MAX)}"))


def asked(*rows: tuple[str, str, str]) -> list[str]:
    lines = ["", "| promise | here | asked |", "|---|---:|---|"]
    return lines + [f"| {name} | {got} | {wanted} |" for name, got, wanted in rows]


if __name__ == "__main__":
    sys.exit(main())
