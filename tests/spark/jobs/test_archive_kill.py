"""The archive pipeline and the broker killed at random moments: every message once.

    PENSTOCK_SPARK_KILLS      how many kills (default 2); each kind of victim has its turn
    PENSTOCK_SPARK_SEED       which random choices; printed, so that a failure can be repeated
    PENSTOCK_SPARK_MESSAGES   how many messages before the kills begin (default 1800)
    PENSTOCK_SPARK_FORMAT     parquet, delta or iceberg (default parquet); with -s3 behind it the
                              table is in an S3 server, which is killed, too; iceberg-sql: its
                              catalog is a PostgreSQL, which is killed, too
    PENSTOCK_SPARK_COMPACT    1: the table is compacted all the while, but for plain files in S3

A batch is several files, one for each ``type`` of its messages, so that kills come between them.
Of a stream two archives read at once, into a table each, and one of them is killed, or the broker.

A publisher goes on with confirms all the while.  What it was told is safe must be in the
table exactly once; what it sent and was not answered may be there, once.  It never sends a
message a second time, so any duplicate would be ours.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import pika
import pytest

from penstock.spark.tables.iceberg import IcebergTable
from tests.helpers.live_broker import LiveBroker
from tests.helpers.object_store import BUCKET, ObjectStore
from tests.spark.spark_tools import (
    STREAM,
    archive_environment,
    depth,
    descendants,
    kill_all,
    pipeline_command,
    publish,
    require_spark,
    table_rows,
)
from tests.spark.sql_server import SqlServer
from tests.spark.tables.iceberg_tools import table_in

KILLS = int(os.environ.get("PENSTOCK_SPARK_KILLS", "2"))
MESSAGES = int(os.environ.get("PENSTOCK_SPARK_MESSAGES", "1800"))
MORE = MESSAGES * KILLS
SEED = int(os.environ.get("PENSTOCK_SPARK_SEED", "0")) or random.SystemRandom().randrange(2**32)
FORMAT, _, PLACE = os.environ.get("PENSTOCK_SPARK_FORMAT", "parquet").partition("-")
COMPACT = os.environ.get("PENSTOCK_SPARK_COMPACT") == "1"
QUEUE = "orders"
TYPES = 3
BATCH = 150
RUN_TIMEOUT_S = 240
DONE, UNAVAILABLE = 0, 69

pytestmark = [
    pytest.mark.spark,
    pytest.mark.crash,
    pytest.mark.slow,
    pytest.mark.timeout(180 + 150 * KILLS),
]


class Publisher(threading.Thread):
    """Sends numbered messages with confirms; knows which are safe and which uncertain.

    It ends after ``MORE``: a busy machine lands them more slowly than they come.
    """

    def __init__(self, url: str, first: int) -> None:
        super().__init__(daemon=True)
        self._url = url
        self._next = first
        self._end = first + MORE
        self.safe: set[int] = set()
        self.uncertain: set[int] = set()
        self.stopping = threading.Event()

    def run(self) -> None:
        while self._goes_on():
            with contextlib.suppress(pika.exceptions.AMQPError, OSError):
                self._publish()
            self.stopping.wait(0.2)

    def _goes_on(self) -> bool:
        return self._next < self._end and not self.stopping.is_set()

    def _publish(self) -> None:
        connection = pika.BlockingConnection(pika.URLParameters(self._url))
        channel = connection.channel()
        channel.confirm_delivery()
        while self._goes_on():
            number = self._next
            self._next += 1
            self.uncertain.add(number)
            persistent = pika.BasicProperties(delivery_mode=2, type=str(number % TYPES))
            channel.basic_publish("", QUEUE, b"%d" % number, persistent)
            self.uncertain.discard(number)
            self.safe.add(number)
            time.sleep(0.01)
        connection.close()


class Neighbours(NamedTuple):
    """Servers that may be killed beside the broker."""

    store: ObjectStore | None = None
    catalog: SqlServer | None = None


class Arena:
    """The broker, the table, and the pipeline of the moment."""

    def __init__(
        self,
        broker: LiveBroker,
        table: Path,
        chance: random.Random,
        source: str,
        neighbours: Neighbours,
    ) -> None:
        table.mkdir()
        self.source = source
        self.neighbours = neighbours
        store, catalog = neighbours
        self.url = str(table) if store is None else f"s3://{BUCKET}/{table.name}"
        self.place = table if store is None else store.objects / table.name
        self.iceberg: IcebergTable | None = None
        if FORMAT == "iceberg":
            uri = "" if catalog is None else catalog.database(table.name)
            self.iceberg = iceberg_of(table, store, uri)
        self.broker = broker
        self.table = table
        self.chance = chance
        self.killed: Counter[str] = Counter()
        self.codes: Counter[int] = Counter()
        self.compactions: Counter[int] = Counter()
        self.compaction_said = ""
        self.last_line = ""
        self.errors = ""

    def run_and_kill(self, victim: str) -> None:
        """Start the pipeline; kill the victim somewhere between its start and its end."""
        pipeline = self._start()
        self._wait_for_the_moment(pipeline)
        if pipeline.poll() is None:
            self._kill(victim, pipeline)
        self._finish(pipeline)

    def run(self) -> int:
        pipeline = self._start()
        self._finish(pipeline)
        assert pipeline.returncode is not None
        return pipeline.returncode

    def run_to_the_end(self) -> None:
        """Told to stop, as by an interrupt of the tests, a run is done and leaves the rest."""
        for _ in range(3):
            if self.run() == DONE:
                break
        else:
            pytest.fail(f"exit codes {dict(self.codes)}: {self.errors}")
        assert json.loads(self.last_line)["left_in_queue"] == 0

    def _start(self) -> subprocess.Popen[str]:
        to = self.in_catalog() if self.iceberg else ("--to", self.url, "--format", FORMAT)
        options = ("--max-messages", str(BATCH), "--partition-by", "type", *to)
        return subprocess.Popen(
            pipeline_command("archive", self.broker.url, self.source, QUEUE, *options),
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def environment(self) -> dict[str, str]:
        found = archive_environment() | {"XDG_STATE_HOME": f"{self.table}-state"}
        if self.neighbours.store is not None:
            found |= self.neighbours.store.environment | {
                f"PYICEBERG_CATALOG__DEFAULT__{name.upper().replace('.', '__')}": value
                for name, value in self.neighbours.store.properties.items()
            }
        return found

    def in_catalog(self) -> tuple[str, ...]:
        assert self.iceberg is not None
        given = dict(self.iceberg.given)
        return (
            *("--table", self.iceberg.name),
            *("--catalog-uri", given["uri"], "--warehouse", given["warehouse"]),
        )

    def compact(self, ended: threading.Event) -> None:
        """Again and again, until ``ended``.  Early ones find no table yet."""
        words = self.in_catalog() if self.iceberg else ("--table", self.url)
        command = [sys.executable, "-m", "penstock", "pipeline", "compact", *words]
        while not ended.wait(1):
            done = subprocess.run(
                command, env=self.environment(), capture_output=True, text=True, check=False
            )
            self.compactions[done.returncode] += 1
            if done.returncode != 0:
                self.compaction_said = done.stderr

    def _wait_for_the_moment(self, pipeline: subprocess.Popen[str]) -> None:
        """Mostly while batches land, sometimes while Spark is still starting."""
        if self.chance.random() < 0.2:
            time.sleep(self.chance.uniform(0, 12))
            return
        before = self.files()
        deadline = time.monotonic() + RUN_TIMEOUT_S
        while self.files() == before and pipeline.poll() is None:
            assert time.monotonic() < deadline, "no batch has landed"
            time.sleep(0.01)
        time.sleep(self.chance.uniform(0, 2))

    def files(self) -> int:
        step = "/data/" if FORMAT == "iceberg" else "/type="
        return sum(
            name.endswith(".parquet")
            for directory, _, names in os.walk(self.place)  # which some vanish from meanwhile
            if step in f"{directory}/".removeprefix(str(self.place))
            for name in names
        )

    def _kill(self, victim: str, pipeline: subprocess.Popen[str]) -> None:
        server = {"broker": self.broker, **self.neighbours._asdict()}.get(victim)
        if server is not None:
            self.killed[victim] += 1
            server.kill()
            time.sleep(self.chance.uniform(0, 2))
            server.start()
            return
        pids = descendants(pipeline.pid)
        if victim == "driver":
            pids = [pipeline.pid]  # the JVM notices by itself, in its own time
        elif victim == "java":
            pids = [pid for pid in pids if _is_java(pid)][:1]
        elif victim == "worker":
            workers = [pid for pid in pids if pid != pipeline.pid and not _is_java(pid)]
            pids = [self.chance.choice(workers)] if workers else []
        self.killed[victim] += bool(pids)
        kill_all(pids)

    def _finish(self, pipeline: subprocess.Popen[str]) -> None:
        out, self.errors = pipeline.communicate(timeout=RUN_TIMEOUT_S)
        self.last_line = out.splitlines()[-1] if out else ""
        self.codes[pipeline.returncode] += 1


def _is_java(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() == "java"
    except OSError:
        return False


@pytest.mark.long
def test_no_message_is_lost_or_doubled(tmp_path: Path) -> None:
    left, _ = kill_again_and_again(tmp_path, ["table"])
    assert left == 0


@pytest.mark.long
def test_two_groups_of_a_stream_lose_and_double_nothing(tmp_path: Path) -> None:
    left, safe = kill_again_and_again(tmp_path, ["one", "two"], "--stream", STREAM)
    assert left >= safe


def kill_again_and_again(
    tmp_path: Path,
    tables: list[str],
    source: str = "--queue",
    arguments: dict[str, Any] | None = None,
) -> tuple[int, int]:
    """An archive into each of the tables; returns how many messages are left, and were confirmed.

    The first of them is killed while the others run, and then has its turn last.
    """
    require_spark()
    chance = random.Random(SEED)
    print(f"\nPENSTOCK_SPARK_SEED={SEED} kills {KILLS}, by {source}")
    with LiveBroker(tmp_path / "broker") as broker, contextlib.ExitStack() as stack:
        neighbours = Neighbours(
            stack.enter_context(ObjectStore(tmp_path / "store")) if PLACE == "s3" else None,
            stack.enter_context(SqlServer()) if PLACE == "sql" else None,
        )
        for kind in range(TYPES):
            bodies = [b"%d" % n for n in range(kind, MESSAGES, TYPES)]
            publish(broker.url, QUEUE, bodies, arguments=arguments, type=str(kind))
        arenas = [Arena(broker, tmp_path / table, chance, source, neighbours) for table in tables]
        if COMPACT:
            stack.enter_context(compacting(arenas))
        publisher = Publisher(broker.url, MESSAGES)
        publisher.start()
        servers = [name for name, server in neighbours._asdict().items() if server]
        victims = ["everything", "broker", "driver", "java", "worker", *servers]
        for victim in itertools.islice(itertools.cycle(victims), KILLS):
            killed, *spared = arenas
            beside = [threading.Thread(target=arena.run) for arena in spared]
            for thread in beside:
                thread.start()
            killed.run_and_kill(victim)
            print(f"{victim}: {dict(killed.killed)}, exit codes {dict(killed.codes)}", flush=True)
            for thread in beside:
                thread.join()
            for arena in arenas:
                _no_duplicates(arena)
            arenas = [*spared, killed]
        assert any(arena.killed.total() for arena in arenas), arenas[0].errors
        publisher.stopping.set()
        publisher.join(30)
        for arena in arenas:
            arena.run_to_the_end()
            _judge(arena, publisher)
        return depth(broker.url, QUEUE), len(publisher.safe) + MESSAGES


@contextlib.contextmanager
def compacting(arenas: list[Arena]) -> Iterator[None]:
    ended = threading.Event()
    threads = [threading.Thread(target=arena.compact, args=(ended,)) for arena in arenas]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def iceberg_of(place: Path, store: ObjectStore | None, uri: str) -> IcebergTable:
    """The table of an archive into ``place``, or into the store; ``uri``: of another catalog."""
    if store is None:
        return table_in(place, uri=uri)
    table = table_in(place, warehouse=f"s3://{BUCKET}/{place.name}")
    keys = zip(("s3.access-key-id", "s3.secret-access-key"), store.keys, strict=True)
    return replace(table, given=(*table.given, *store.properties.items(), *keys))


def rows_of(arena: Arena, *columns: str) -> list[dict[str, Any]]:
    """What a reader of the table finds; objects of the store are files of its directory."""
    if arena.iceberg is not None:
        opened = arena.iceberg.opened() if arena.files() else None
        rows: list[dict[str, Any]] = (
            [] if opened is None else opened.scan(selected_fields=columns).to_arrow().to_pylist()
        )
        return rows
    while FORMAT == "parquet":
        with contextlib.suppress(FileNotFoundError):  # compacted since it was listed
            return table_rows(arena.place, *columns)
    if not (arena.place / "_delta_log").is_dir():
        return []
    from deltalake import DeltaTable

    table = DeltaTable(arena.place).to_pyarrow_table(columns=[*columns])
    found: list[dict[str, Any]] = table.to_pylist()
    return found


def _no_duplicates(arena: Arena) -> None:
    for column in ("seq_id", "body"):
        values = Counter(row[column] for row in rows_of(arena, column))
        doubled = [value for value, count in values.items() if count > 1]
        assert not doubled, f"{column} more than once: {doubled[:10]}"


def _judge(arena: Arena, publisher: Publisher) -> None:
    _no_duplicates(arena)
    rows = sorted(rows_of(arena, "seq_id", "body"), key=itemgetter("seq_id"))
    numbers = [int(row["body"]) for row in rows]
    later = [number for number in numbers if number >= MESSAGES]
    assert later == sorted(later), "the publisher's messages are not in its order"
    landed = set(numbers)
    safe = set(range(MESSAGES)) | publisher.safe
    lost = safe - landed
    invented = landed - safe - publisher.uncertain
    print(
        f"{FORMAT} {PLACE}: killed {dict(arena.killed)}, exit codes {dict(arena.codes)},"
        f" compactions {dict(arena.compactions)} {arena.compaction_said[-300:]}\n"
        f"confirmed {len(safe)}, uncertain {len(publisher.uncertain)}, in the table {len(landed)} "
        f"in {arena.files()} files, lost {len(lost)}, doubled 0"
    )
    assert not lost, sorted(lost)[:10]
    assert not invented, sorted(invented)[:10]
