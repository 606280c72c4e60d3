"""Pipelines on a stream: archived twice, asked in SQL, and filled by a replay."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.broker_process import BrokerProcess
from tests.spark.spark_tools import (
    STREAM,
    archive_environment,
    depth,
    pipeline_command,
    publish,
    require_spark,
    table_rows,
)

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture(autouse=True)
def _spark_is_here() -> None:
    require_spark()


def pipeline(url: str, name: str, *more: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        pipeline_command(name, url, *more),
        env=archive_environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


def archive(url: str, table: Path, *more: str) -> dict[str, Any]:
    done = pipeline(url, "archive", "--stream", "clicks", "--to", str(table), *more)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def fill(url: str, first: int, end: int) -> None:
    publish(url, "clicks", [b"%d" % n for n in range(first, end)], arguments=STREAM)


@pytest.mark.long
def test_a_stream_is_archived_asked_and_replayed(broker: BrokerProcess, tmp_path: Path) -> None:
    url, table = broker.url, tmp_path / "table"
    fill(url, 0, 300)
    planned = archive(url, table, "--dry-run", "--max-messages", "100")
    assert (planned["ready"], planned["batches"]) == (300, 3)
    told = archive(url, table, "--max-messages", "100")
    assert (told["messages"], told["batches"], told["left_in_queue"]) == (300, 3, 0)
    fill(url, 300, 350)
    assert archive(url, table, "--dry-run")["ready"] == 50
    told = archive(url, table)
    assert (told["messages"], told["holes"], told["left_in_queue"]) == (50, 0, 0)
    rows = table_rows(table, "seq_id", "body", "queue")
    assert sorted((r["seq_id"], r["body"], r["queue"]) for r in rows) == [
        (n, b"%d" % n, "clicks") for n in range(350)
    ]
    other = archive(url, tmp_path / "other", "--group", "other", "--format", "delta")
    assert (other["messages"], other["left_in_queue"]) == (350, 0)
    assert depth(url, "clicks") == 350

    question = "select count(*) as n, max(seq_id) as last from stream('clicks')"
    asked = pipeline(url, "sql", question, "--format", "json")
    assert json.loads(asked.stdout.splitlines()[0]) == {"n": 350, "last": 349}

    publish(url, "again", [], arguments=STREAM)
    pipeline(url, "replay", "--from", str(table), "--to-queue", "again")
    assert depth(url, "again") == 350


def test_wrong_kinds_are_told_before_spark_starts(broker: BrokerProcess, tmp_path: Path) -> None:
    fill(broker.url, 0, 3)
    publish(broker.url, "plain", [])
    to = ("--to", str(tmp_path / "t"))
    told = pipeline(broker.url, "archive", "--queue", "clicks", *to, code=1)
    assert "queue 'clicks' in vhost '/' is a stream" in told.stderr
    told = pipeline(broker.url, "archive", "--stream", "plain", *to, code=1)
    assert "queue 'plain' in vhost '/' is no stream" in told.stderr
    told = pipeline(broker.url, "archive", "--stream", "clicks", "--channel", "c", *to, code=2)
    assert "--channel belongs to --topic" in told.stderr
