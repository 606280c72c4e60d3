"""Pipelines on a stream: archived twice, asked in SQL, and filled by a replay."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.broker_process import BrokerProcess
from tests.spark.spark_tools import STREAM, Pipelines, depth, publish, table_rows

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def archive(pipelines: Pipelines, url: str, table: Path, *more: str) -> dict[str, Any]:
    return pipelines.run(url, "archive", "--stream", "clicks", "--to", str(table), *more).summary()


def fill(url: str, first: int, end: int) -> None:
    publish(url, "clicks", [b"%d" % n for n in range(first, end)], arguments=STREAM)


@pytest.mark.long
def test_a_stream_is_archived_asked_and_replayed(
    own_broker: BrokerProcess, pipelines: Pipelines, tmp_path: Path
) -> None:
    url, table = own_broker.url, tmp_path / "table"
    fill(url, 0, 300)
    planned = archive(pipelines, url, table, "--dry-run", "--max-messages", "100")
    assert (planned["ready"], planned["batches"]) == (300, 3)
    told = archive(pipelines, url, table, "--max-messages", "100")
    assert (told["messages"], told["batches"], told["left_in_queue"]) == (300, 3, 0)
    fill(url, 300, 350)
    assert archive(pipelines, url, table, "--dry-run")["ready"] == 50
    told = archive(pipelines, url, table)
    assert (told["messages"], told["holes"], told["left_in_queue"]) == (50, 0, 0)
    rows = table_rows(table, "seq_id", "body", "queue")
    assert sorted((r["seq_id"], r["body"], r["queue"]) for r in rows) == [
        (n, b"%d" % n, "clicks") for n in range(350)
    ]
    other = archive(pipelines, url, tmp_path / "other", "--group", "other", "--format", "delta")
    assert (other["messages"], other["left_in_queue"]) == (350, 0)
    assert depth(url, "clicks") == 350

    question = "select count(*) as n, max(seq_id) as last from stream('clicks')"
    asked = pipelines.run(url, "sql", question, "--format", "json")
    assert json.loads(asked.stdout.splitlines()[0]) == {"n": 350, "last": 349}

    publish(url, "again", [], arguments=STREAM)
    pipelines.run(url, "replay", "--from", str(table), "--to-queue", "again")
    assert depth(url, "again") == 350


def test_wrong_kinds_are_told_before_spark_starts(
    broker: BrokerProcess, pipelines: Pipelines, tmp_path: Path
) -> None:
    fill(broker.url, 0, 3)
    publish(broker.url, "plain", [])
    archive = ("archive", "--to", str(tmp_path / "t"))
    said = pipelines.refused(broker.url, *archive, "--queue", "clicks", code=1)
    assert "queue 'clicks' in vhost '/' is a stream" in said
    said = pipelines.refused(broker.url, *archive, "--stream", "plain", code=1)
    assert "queue 'plain' in vhost '/' is no stream" in said
    channel = ("--stream", "clicks", "--channel", "c")
    said = pipelines.refused(broker.url, *archive, *channel, code=2)
    assert "--channel belongs to --topic" in said
