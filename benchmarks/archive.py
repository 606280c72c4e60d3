"""A backlog into Parquet: ``penstock pipeline archive``, Spark from memory, pika with pyarrow.

All run on 127.0.0.1, one after the other, with the same bodies and the same compression.
"""

from __future__ import annotations

import argparse
import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Self

from benchmarks.archive_fill import fill
from benchmarks.brokers import ROOT, THEIRS, Side, Watch, all_cores, memory_mb, rabbit
from benchmarks.brokers import penstock as penstock_of
from benchmarks.harness import Figures, Given, Row, Table, needs
from benchmarks.load import environment
from benchmarks.page import Column, Promise, Section, tenths, thousands
from penstock.client.procstat import ProcessGauge
from tests.helpers.object_store import BUCKET, ObjectStore

QUEUE: Final = "bench.backlog"
LOOK_S: Final = 0.2
SMALL: Final = 1000
FORMATS: Final = {
    "parquet": "Parquet",
    "delta": "Delta",
    "iceberg": "Iceberg",
    "parquet-s3": "Parquet in an S3 store",
    "delta-s3": "Delta in an S3 store",
    "iceberg-s3": "Iceberg in an S3 store",
}
EMPTY: Final = """from pyspark.sql import SparkSession
SparkSession.builder.getOrCreate().stop()
"""


class Way(NamedTuple):
    """``drive`` gets the broker, if there is one, and a directory."""

    key: str
    label: str
    broker: Side | AbstractContextManager[None]
    drive: Callable[[Any, Given, Path], Figures]

    def __enter__(self) -> Self:
        self.broker.__enter__()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:  # noqa: PYI036
        self.broker.__exit__(kind, error, trace)


def landed(way: Way, given: Given) -> Figures:
    with tempfile.TemporaryDirectory() as scratch:
        return way.drive(way.broker, given, Path(scratch))


class Target(NamedTuple):
    """Where an archive goes: its options, and what names the place to its process."""

    words: tuple[str, ...] = ()
    environment: Mapping[str, str] = MappingProxyType({})


@contextmanager
def target_of(key: str, scratch: Path) -> Iterator[Target]:
    """``parquet``, ``delta`` or ``iceberg``; ``-s3``: in a store of this machine.

    The place of a table that is no directory is in ``scratch``, too: each run begins a table.
    """
    kind, _, place = key.partition("-")
    with ObjectStore(scratch / "store") if place == "s3" else nullcontext() as store:
        told = {"XDG_STATE_HOME": str(scratch / "state")}
        root = str(scratch)
        if store:
            root = f"s3://{BUCKET}"
            told |= store.environment
            told |= {
                f"PYICEBERG_CATALOG__DEFAULT__{name.upper().replace('.', '__')}": value
                for name, value in store.properties.items()
            }
        words: tuple[str, ...] = ("--to", f"{root}/lake")
        if kind == "iceberg":
            catalog = f"sqlite:///{scratch}/catalog.db"
            words = (
                *("--table", "lake.rows", "--catalog-uri", catalog),
                *("--warehouse", f"{root}/lake"),
            )
        yield Target(("--format", kind, *words), told)


def archived(side: Side, given: Given, scratch: Path, key: str = "parquet") -> Figures:
    """Without the seconds that Spark takes to start and stop, as those of the others are."""
    filled_s = fill(side.url, QUEUE, given.count, given.size, given.bodies)
    with target_of(key, scratch) as target, Watch(side.pid) as watch:
        command = archive_words(given, side.url, *target.words)
        told_env = {**environment(), **target.environment}
        with subprocess.Popen(command, env=told_env, stdout=subprocess.PIPE) as run:
            peaks_mb = largest_mb(run)
            assert run.stdout is not None
            said = run.stdout.read().splitlines()
    if run.returncode != 0:
        raise RuntimeError(f"the archive ended with {run.returncode}")
    told = json.loads(said[-1])
    if told["messages"] != given.count or told["left_in_queue"] != 0:
        raise RuntimeError(f"the archive landed {told['messages']} of {given.count}")
    start_s, stop_s = told["spark_start_s"], told["spark_stop_s"]
    return {
        "rate": given.count / (told["seconds"] - start_s - stop_s),
        "rate_of_all": given.count / told["seconds"],
        "start_s": start_s,
        "stop_s": stop_s,
        "files": told["files"],
        "file_mb": told["file_bytes"] / 1e6,
        "fill_rate": given.count / filled_s,
        "cpu_s": watch.cpu_s,
        "watched": watch.result(),
        "mb": peaks_mb,
    }


def largest_mb(run: subprocess.Popen[bytes]) -> dict[str, float]:
    """The largest resident sizes, in MB, of an archive's processes by kind, until it ends."""
    found = dict.fromkeys(("driver", "java", "worker"), 0.0)
    gauge = ProcessGauge(run.pid, tree=True)
    while run.poll() is None:
        gauge.refresh()
        for pid in gauge.pids:
            kind = "driver" if pid == run.pid else "java" if is_java(pid) else "worker"
            found[kind] = max(found[kind], memory_mb(pid, "VmHWM"))
        time.sleep(LOOK_S)
    return found


def is_java(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip() == "java"
    return False


def small(side: Side, given: Given, scratch: Path, cache: Path) -> Figures:
    """All of the process's time."""
    fill(side.url, QUEUE, SMALL, given.size, given.bodies)
    words = archive_words(given, side.url, "--to", str(scratch / "lake"))
    return {"seconds": whole_s(words, {"XDG_CACHE_HOME": str(cache)})}


def empty(nothing: None, given: Given, scratch: Path) -> Figures:
    """``spark-submit`` of a program that makes a session and stops it."""
    import pyspark

    program = scratch / "empty.py"
    program.write_text(EMPTY)
    home = Path(str(pyspark.__file__)).parent
    command = [str(home / "bin" / "spark-submit"), "--master", "local[2]", str(program)]
    told = {"SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable}
    return {"seconds": whole_s(command, told)}


def whole_s(command: Sequence[str], more: Mapping[str, str]) -> float:
    began_s = time.monotonic()
    subprocess.run(command, env={**environment(), **more}, capture_output=True, check=True)
    return time.monotonic() - began_s


def archive_words(given: Given, url: str, *target: str) -> list[str]:
    return [
        *(sys.executable, "-m", "penstock", "pipeline", "archive"),
        *("--url", url, "--queue", QUEUE, *target, "-o", "json"),
        *("--compression", given.compression, "--max-messages", str(given.max_messages)),
        *("--max-batch-mb", str(given.max_batch_mb)),
    ]


def from_memory(nothing: None, given: Given, scratch: Path) -> Figures:
    words = (str(given.count), str(given.size), given.bodies, given.compression, str(scratch))
    return {"rate": given.count / seconds_of("memory", *words)}


def by_pika(side: Side, given: Given, scratch: Path) -> Figures:
    count = min(given.peer_count, given.count)
    fill(side.url, QUEUE, count, given.size, given.bodies)
    words = (side.url, QUEUE, str(count), given.compression, str(scratch / "lake"))
    return {"rate": count / seconds_of("pika", *words)}


def seconds_of(*words: str) -> float:
    command = [sys.executable, "-m", "benchmarks.archive_sides", *words]
    done = subprocess.run(command, env=environment(), cwd=ROOT, stdout=subprocess.PIPE, check=True)
    return float(done.stdout.splitlines()[-1])


def beside(side: Side, given: Given, scratch: Path) -> Figures:
    """A publisher and a consumer on another queue, alone and while an archive runs."""
    fill(side.url, QUEUE, given.count, given.size, given.bodies)
    alone = neighbours(given, side.url)
    lake = scratch / "lake"
    archive = subprocess.Popen(
        archive_words(given, side.url, "--to", str(lake)),
        env=environment(),
        stdout=subprocess.DEVNULL,
    )
    try:
        while not any(lake.rglob("*.parquet")):  # its first batch is being written
            if archive.poll() is not None:
                raise RuntimeError("the archive ended before it wrote anything")
            time.sleep(LOOK_S)
        meanwhile = neighbours(given, side.url)
        outlasted = archive.poll() is None
    finally:
        archive.wait()
    wrong = "the archive ended before the measuring did: take a larger --count"
    return {
        "alone": alone,
        "meanwhile": meanwhile,
        "kept": meanwhile / alone,
        "wrong": [] if outlasted else [wrong],
    }


def neighbours(given: Given, url: str) -> float:
    """Messages a second that another queue's consumer gets."""
    words = (
        *("--uri", url, "--queue", "other", "--size", str(given.size), "--durable"),
        *("--persistent", "--rate", str(given.beside_rate), "--confirm", "1000"),
        *("--prefetch", "1000", "--ack-every", "10", "--cleanup"),
        *("--duration", str(given.seconds), "--json", "-"),
    )
    command = [sys.executable, "-m", "penstock", "bench", *words]
    done = subprocess.run(command, env=environment(), stdout=subprocess.PIPE, check=True)
    return float(json.loads(done.stdout)["consume_rate"])


def penstock(given: Given) -> Side:
    limit = ("--vm-memory-high-watermark", given.memory_limit) if given.memory_limit else ()
    made = penstock_of(given, *limit)
    return Side(made.key, made.process, all_cores(), all_cores(), given.favoured)


def ways(given: Given, row: Row) -> list[Way]:
    from penstock.spark.launcher.java import find_java
    from penstock.spark.launcher.java_classes import sharing_options

    prepared = sharing_options(find_java(os.environ), os.environ)
    label = f"penstock pipeline archive ({'prepared' if prepared else 'not prepared'})"
    if row.name == "beside":
        return [Way("penstock", "Penstock", penstock(given), beside)]
    if row.name == "formats":
        found = [
            Way(key, title, penstock(given), partial(archived, key=key))
            for key, title in FORMATS.items()
        ]
        return found + others(given)
    if row.name == "small":
        cache = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
        atexit.register(shutil.rmtree, cache)
        prepare = [sys.executable, "-m", "penstock", "pipeline", "prepare"]
        whole_s(prepare, {"XDG_CACHE_HOME": str(cache)})
        none = cache / "none"
        return [
            Way("prepared", "prepared", penstock(given), partial(small, cache=cache)),
            Way("unprepared", "not prepared", penstock(given), partial(small, cache=none)),
            Way("empty", "spark-submit of an empty program", nullcontext(), empty),
        ]
    return [Way("penstock", label, penstock(given), archived), *others(given)]


def others(given: Given) -> list[Way]:
    """Which write plain Parquet files."""
    found = [Way("memory", "Spark from memory", nullcontext(), from_memory)]
    if given.alone:
        return found
    return [*found, Way(THEIRS, "pika and pyarrow from RabbitMQ", rabbit(given), by_pika)]


def options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--count", type=int, default=10_000_000, help="messages of the backlog")
    add("--peer-count", type=int, default=1_000_000, help="those pika has to read")
    add("--size", type=int, default=1024, help="body bytes")
    add("--bodies", default="random", choices=("random", "json"), help="what they are")
    add("--compression", default="zstd", help="zstd, snappy, lz4 or none")
    add("--max-messages", type=int, default=2_500_000, help="of a batch")
    add("--max-batch-mb", type=int, default=4096, help="of a batch")
    add("--beside-rate", type=int, default=5000, help="messages a second on the other queue")
    add("--memory-limit", default="", help="Penstock's limit in bytes; empty = its default")


SECTIONS: Final = {
    "": Section(
        "Messages per second",
        (
            Column("rate", "msg/s", thousands, 1),
            Column("rate_of_all", "with Spark's start and stop", thousands),
            Column("start_s", "start s", tenths),
            Column("stop_s", "stop s", tenths),
            Column("files", "files", thousands),
            Column("file_mb", "MB", thousands),
            Column("cpu_s", "broker's CPU s", tenths),
            Column("watched/rss_peak_mb", "broker's peak RSS MB", thousands),
            Column("mb/driver", "driver's", thousands),
            Column("mb/java", "Java's", thousands),
            Column("mb/worker", "a worker's", thousands),
        ),
    ),
    "formats": Section("Messages per second by format", (Column("rate", "msg/s", thousands, 1),)),
    "small": Section("An archive of 1,000 messages", (Column("seconds", "s", tenths, -1),)),
    "beside": Section(
        "Another queue, messages per second",
        (
            Column("alone", "alone", thousands),
            Column("meanwhile", "while an archive runs", thousands),
            Column("kept", "kept"),
        ),
    ),
}
TABLES: Final = (
    Table(
        "archive",
        "A backlog into Parquet",
        "Persistent messages of a durable queue, on Spark local[2]; Spark that writes as many rows"
        " of the same columns from memory; pika that reads a queue of RabbitMQ for pyarrow.",
        [
            Row("archive", "a backlog", landed, room_bytes=lambda g: 3.0 * g.count * g.size),
            Row("formats", "formats", landed, "formats", lambda g: 3.0 * g.count * g.size),
            Row("small", "a small job", landed, "small"),
            Row("beside", "another queue", landed, "beside", lambda g: 3.0 * g.count * g.size),
        ],
        SECTIONS,
        ways,
        lives="run",
        options=options,
        defaults={"seconds": 20.0},
        tried={"count": 30_000, "peer_count": 5000, "max_messages": 10_000, "seconds": 3.0},
        promises=[
            Promise("over Spark from memory at least", "archive", "rate", 0.5, over="memory"),
            Promise("over pika and pyarrow at least", "archive", "rate", 10, over=THEIRS),
            Promise("Parquet over Spark from memory", "formats", "rate", 1.2, over="memory"),
            Promise("Parquet over pika and pyarrow", "formats", "rate", 10, over=THEIRS),
            Promise("Parquet over Iceberg", "formats", "rate", most=1.25, over="iceberg"),
            Promise("Parquet over itself in S3", "formats", "rate", most=1.66, over="parquet-s3"),
            Promise("a small job on a prepared machine, s", "small", "seconds", most=6),
            Promise("another queue keeps of its rate", "beside", "kept", least=0.8),
        ],
        lacking=needs,
    ),
)
