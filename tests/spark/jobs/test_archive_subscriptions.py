"""Archives of several queues, of an exchange, and into Delta, on a real broker."""

from __future__ import annotations

import json
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pika
import pytest
from click.testing import CliRunner

from penstock.cli.main import cli
from tests.helpers.broker_process import BrokerProcess
from tests.spark.spark_tools import (
    archive_environment,
    depth,
    descendants,
    kill_all,
    pipeline_command,
    publish,
    require_spark,
    table_rows,
)

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture(autouse=True)
def _spark_is_here() -> None:
    require_spark()


def archive(url: str, *more: str) -> dict[str, Any]:
    done = subprocess.run(
        pipeline_command("archive", url, *more),
        env=archive_environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.long
def test_queues_of_a_pattern_have_a_table_each_and_a_kill_doubles_nothing(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    def fill(queue: str, first: int, end: int) -> None:
        publish(broker.url, queue, [b"%d" % n for n in range(first, end)])

    fill("fam.a", 0, 100)
    options = ("--queues-pattern", r"fam\..*", "--to", str(tmp_path / "lake" / "{queue}"))
    command = pipeline_command("archive", broker.url, *options, "--every", "500ms")
    environment = archive_environment()
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        assert "100 messages" in run.stdout.readline()
        fill("fam.b", 0, 50)  # which is declared only now
        fill("fam.a", 100, 150)
        while not table_rows(tmp_path / "lake" / "fam.b", "body"):
            assert run.stdout.readline()
        kill_all(descendants(run.pid))
    fill("fam.b", 50, 60)
    told = archive(broker.url, *options)
    assert (told["queue"], told["left_in_queue"]) == (r"/fam\..*/", 0)
    for queue, count in (("fam.a", 150), ("fam.b", 60)):
        rows = table_rows(tmp_path / "lake" / queue, "body", "queue")
        assert sorted(int(row["body"]) for row in rows) == [*range(count)]
        assert {row["queue"] for row in rows} == {queue}
    refused = subprocess.run(
        pipeline_command("archive", broker.url, "--queues-pattern", "nothing", "--to", "x"),
        env=environment, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert refused.returncode == 1
    assert "no queue in vhost '/' matches queuesPattern 'nothing'" in refused.stderr


@pytest.mark.long
def test_several_queues_land_in_partitions(broker: BrokerProcess, tmp_path: Path) -> None:
    table = tmp_path / "t"
    for queue, count in (("left", 30), ("right", 20)):
        publish(broker.url, queue, [b"%s %d" % (queue.encode(), n) for n in range(count)])
    to = ("--to", str(table), "--partition-by", "day,queue", "--max-messages", "20")
    told = archive(broker.url, "--queues", "left,right", *to)
    assert (told["messages"], told["left_in_queue"]) == (50, 0)
    today = datetime.now(UTC).date().isoformat()
    places = {str(path.parent.relative_to(table)) for path in table.glob("day=*/queue=*/*")}
    assert {f"day={today}/queue={queue}" for queue in ("left", "right")} <= places
    rows = table_rows(table, "queue", "body", "ingest_batch")
    assert {(r["queue"], r["body"]) for r in rows} == {
        (q, b"%s %d" % (q.encode(), n)) for q, c in (("left", 30), ("right", 20)) for n in range(c)
    }
    assert len(rows) == 50
    assert len({row["ingest_batch"] for row in rows}) == told["batches"] >= 3
    assert (depth(broker.url, "left"), depth(broker.url, "right")) == (0, 0)


def test_a_new_group_is_told_which_messages_it_gets(
    broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.spark.jobs.archive.run_archive", lambda *_: {})
    place = ["--url", broker.url, "--to", str(tmp_path / "t")]
    own = ["--exchange", "amq.topic", "--group", "new"]
    done = CliRunner().invoke(cli, ["pipeline", "archive", *place, *own])
    assert done.exit_code == 0, done.output
    told = "no messages wait in spark.amq.topic:new: a new channel or group gets what is published"
    assert f"{told} from now on\n" in done.output


@pytest.mark.long
def test_an_exchange_is_archived_beside_its_consumers(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    import deltalake

    table = tmp_path / "t"
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    channel.exchange_declare("events", "topic", durable=True)
    channel.queue_declare("live")
    channel.queue_bind("live", "events", "#")
    channel.confirm_delivery()
    options = ("--exchange", "events", "--routing-key", "eu.#", "--group", "lake")
    to = ("--to", str(table), "--format", "delta", "--partition-by", "routing_key")
    assert archive(broker.url, *options, *to)["messages"] == 0  # makes the group's queue
    for number in range(20):
        channel.basic_publish("events", "eu.de" if number % 2 else "us.ny", b"%d" % number)
    told = archive(broker.url, *options, *to)
    assert (told["messages"], told["left_in_queue"]) == (10, 0)
    found = deltalake.DeltaTable(table).to_pyarrow_table()
    assert sorted(int(body) for body in found["body"].to_pylist()) == list(range(1, 20, 2))
    assert set(found["routing_key"].to_pylist()) == {"eu.de"}
    assert channel.queue_declare("live", passive=True).method.message_count == 20
    connection.close()
    refused = subprocess.run(
        pipeline_command("archive", broker.url, "--queue", "live", "--to", str(table)),
        env=archive_environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert refused.returncode == 1
    assert "is a Delta table" in refused.stderr
    assert "fix: land in another directory" in refused.stderr
