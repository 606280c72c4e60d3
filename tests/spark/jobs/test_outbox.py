"""Outboxes: each new row of a table is one message, whatever is killed; no Spark is started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pika
import pyarrow as pa
import pytest
from pyarrow import parquet

from penstock.core.errors import PenstockError
from penstock.spark.jobs import outbox
from penstock.spark.jobs.outbox import OtherOutbox, OutboxJob, WrongRows, run_outbox, waiting
from penstock.spark.tables.additions import CannotFollow
from penstock.spark.tables.store import StoreTable
from penstock.spark.tables.table import Table
from tests.helpers.broker_process import BrokerProcess
from tests.helpers.object_store import ObjectStore
from tests.spark.spark_tools import archive_environment, pipeline_command
from tests.spark.tables.iceberg_tools import table_in

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


class Grown:
    """A table that others append to, of one of the formats."""

    def __init__(self, format_: str, place: Path) -> None:
        self.format = format_
        self.place = place / "t"
        self.named = table_in(place) if format_ == "iceberg" else None
        self.files = 0

    @property
    def table(self) -> Any:
        return self.named or Table.at(self.place)

    def append(self, **columns: Any) -> None:
        rows = pa.table(columns)
        if self.format == "delta":
            from deltalake import write_deltalake

            write_deltalake(self.place, rows, mode="append")
        elif self.named is not None:
            catalog = self.named._catalog()
            catalog.create_namespace_if_not_exists("lake")
            catalog.create_table_if_not_exists("lake.orders", rows.schema).append(rows)
        else:
            self.place.mkdir(exist_ok=True)
            self.files += 1
            parquet.write_table(rows, self.place / f"{self.files}.parquet", row_group_size=3)


def job(broker: BrokerProcess, table: Any, home: Path, queue: str, **more: Any) -> OutboxJob:
    return OutboxJob(broker.url, table, {"queue": queue}, home, "outbox", **more)


def send(one: OutboxJob) -> int:
    return run_outbox(one, lambda *_: None, threading.Event()).messages


def messages(broker: BrokerProcess, queue: str) -> list[tuple[Any, bytes]]:
    found: list[tuple[Any, bytes]] = []
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        count = channel.queue_declare(queue, passive=True).method.message_count
        for _, properties, body in channel.consume(queue, auto_ack=True) if count else ():
            found.append((properties, body))
            if len(found) == count:
                break
        channel.cancel()
    return found


def declare(broker: BrokerProcess, queue: str) -> None:
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        connection.channel().queue_declare(queue, durable=True)


class Killed(BaseException):
    pass


@pytest.mark.parametrize("format_", ["parquet", "delta", "iceberg"])
def test_each_row_is_sent_once_though_every_slice_is_cut_off(
    broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_: str
) -> None:
    monkeypatch.setattr(outbox, "SLICE_ROWS_MAX", 4)
    queue = f"out.{format_}"
    declare(broker, queue)
    grown = Grown(format_, tmp_path)
    grown.append(n=list(range(10)))
    one = job(broker, grown.table, tmp_path / "home", queue)
    assert waiting(one)[1] == 10
    write = outbox.write_synced

    def dies(path: Path, text: str) -> None:
        if path.name == "sent":  # published, and not noted
            raise Killed
        write(path, text)

    for tried in range(4):
        grown.append(n=[10 + tried])
        monkeypatch.setattr(outbox, "write_synced", dies)
        with pytest.raises(Killed):
            send(one)
        monkeypatch.setattr(outbox, "write_synced", write)
        if tried % 2:
            grown.append(n=[100 + tried])
            send(one)  # both what was planned and what has come since
    send(one)
    assert send(one) == 0
    found = [json.loads(body)["n"] for _, body in messages(broker, queue)]
    assert found == [*range(12), 101, 12, 13, 103]


def test_what_a_compaction_writes_is_not_sent_again(broker: BrokerProcess, tmp_path: Path) -> None:
    from deltalake import DeltaTable

    declare(broker, "out.compact")
    grown = Grown("delta", tmp_path)
    one = job(broker, Table.at(grown.place), tmp_path / "home", "out.compact")
    for n in range(3):
        grown.append(n=[n])
    one = job(broker, grown.table, tmp_path / "home", "out.compact")
    send(one)
    DeltaTable(grown.place).optimize.compact()
    grown.append(n=[3])
    assert send(one) == 1
    DeltaTable(grown.place).update({"n": "n + 100"}, predicate="n = 3")
    with pytest.raises(CannotFollow, match=r"version \d+ changed or replaced rows"):
        send(one)
    grown.append(n=[4])
    assert send(job(broker, grown.table, tmp_path / "home", "out.compact", skip_changes=True)) == 1
    assert [json.loads(body)["n"] for _, body in messages(broker, "out.compact")] == [*range(5)]


def test_a_plain_table_that_was_compacted_is_refused(broker: BrokerProcess, tmp_path: Path) -> None:
    grown = Grown("parquet", tmp_path)
    grown.append(n=[1])
    (grown.place / "1.parquet").rename(grown.place / "x-compact-1.parquet")
    with pytest.raises(CannotFollow, match="was compacted"):
        send(job(broker, grown.table, tmp_path / "home", "out.q"))
    (grown.place / "x-compact-1.parquet").rename(grown.place / "1.parquet")
    (grown.place / "2.parquet").write_bytes(b"half")
    with pytest.raises(WrongRows, match=r"2.parquet is no whole Parquet file"):
        send(job(broker, grown.table, tmp_path / "home", "out.q"))


def test_columns_are_properties_and_a_body_is_a_body(broker: BrokerProcess, tmp_path: Path) -> None:
    declare(broker, "out.body")
    grown = Grown("parquet", tmp_path)
    grown.append(
        body=[b"x"],
        message_id=["m"],
        headers=pa.array([[("a", "1")]], pa.map_(pa.string(), pa.string())),
        kind=["k"],
    )
    send(job(broker, grown.table, tmp_path / "home", "out.body", properties={"type": "kind"}))
    [(properties, body)] = messages(broker, "out.body")
    assert (properties.message_id, properties.type, body) == ("m", "k", b"x")
    assert (properties.headers, properties.delivery_mode) == ({"a": "1"}, 2)


def test_a_row_of_any_types_is_json(broker: BrokerProcess, tmp_path: Path) -> None:
    declare(broker, "out.json")
    grown = Grown("parquet", tmp_path)
    at = datetime(2026, 11, 28, 8, tzinfo=UTC)
    tags = pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))
    grown.append(
        id=[1], price=[Decimal("1.50")], at=[at], on=[date(2026, 11, 28)], raw=[b"\xff"], tags=tags,
        name=["ü"], none=pa.array([None], pa.string()),
    )  # fmt: skip
    send(job(broker, grown.table, tmp_path / "home", "out.json"))
    [(properties, body)] = messages(broker, "out.json")
    assert properties.content_type == "application/json"
    assert json.loads(body) == {
        "id": 1, "price": "1.50", "at": "2026-11-28T08:00:00+00:00", "on": "2026-11-28",
        "raw": "/w==", "tags": {"a": 1}, "name": "ü", "none": None,
    }  # fmt: skip


def test_columns_of_directories_have_the_types_of_the_table(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    from deltalake import write_deltalake

    declare(broker, "out.parts")
    rows = pa.table({"n": [1, 2], "part": pa.array([7, None], pa.int32())})
    for _ in range(2):
        write_deltalake(tmp_path / "t", rows, mode="append", partition_by=["part"])
        send(job(broker, Table.at(tmp_path / "t"), tmp_path / "home", "out.parts"))
    found = [json.loads(body) for _, body in messages(broker, "out.parts")]
    assert sorted(found, key=str) == sorted(
        [{"n": 1, "part": 7}, {"n": 2, "part": None}] * 2, key=str
    )


def test_an_outbox_begins_where_it_is_told_and_stays_itself(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    declare(broker, "out.late")
    grown = Grown("delta", tmp_path)
    grown.append(n=[1])
    late = job(broker, grown.table, tmp_path / "home", "out.late", begin="latest")
    assert waiting(late) == (0, 0)
    assert send(late) == 0
    grown.append(n=[2])
    assert send(late) == 1
    with pytest.raises(OtherOutbox, match="was begun with"):
        send(job(broker, grown.table, tmp_path / "home", "out.other"))
    other = job(broker, grown.table, tmp_path / "new", "out.late", properties={"type": "missing"})
    with pytest.raises(PenstockError, match="has no column missing"):
        send(other)


def test_a_table_in_a_store_is_followed(
    broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from deltalake import write_deltalake

    declare(broker, "out.s3")
    with ObjectStore(tmp_path / "store") as store:
        for name, value in store.environment.items():
            monkeypatch.setenv(name, value)
        for n in range(2):
            write_deltalake("s3://lake/outbox", pa.table({"n": [n]}), mode="append")
            table = StoreTable.there("s3://lake/outbox")
            assert send(job(broker, table, tmp_path / "home", "out.s3")) == 1
    assert [json.loads(body)["n"] for _, body in messages(broker, "out.s3")] == [0, 1]


@pytest.mark.slow
def test_the_command_is_killed_again_and_again(broker: BrokerProcess, tmp_path: Path) -> None:
    declare(broker, "out.killed")
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        connection.channel().queue_bind("out.killed", "amq.topic", "order.#")
    grown = Grown("delta", tmp_path)
    command = pipeline_command(
        "outbox", broker.url, "--from", str(grown.place), "--to-exchange", "amq.topic",
        "--properties", "routing_key=key", "-o", "json",
    )  # fmt: skip
    environment = archive_environment()
    rows = 3_000
    for part in range(4):
        first = part * rows
        grown.append(n=list(range(first, first + rows)), key=["order.eu"] * rows)
        with subprocess.Popen([*command, "--every", "100ms"], env=environment) as run:
            plan = grown.place / "_penstock" / "outbox" / "outbox" / "plan.json"
            while not plan.exists():  # the first time it is slow to start
                time.sleep(0.05)
            time.sleep(0.3 * part)
            os.kill(run.pid, signal.SIGKILL)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = [json.loads(body)["n"] for _, body in messages(broker, "out.killed")]
    assert found == list(range(4 * rows))
