"""A real Spark cluster on this machine: a master and two workers run the pipelines.

The workers know nothing of Penstock but what the session sends them: their environment has no
path to its sources.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import pytest

from tests.helpers.broker_process import BrokerProcess, free_port
from tests.spark.spark_tools import (
    archive_command,
    archive_environment,
    depth,
    pipeline_command,
    publish,
    require_spark,
    table_rows,
)

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

MESSAGES = int(os.environ.get("PENSTOCK_CLUSTER_MESSAGES", "60000"))
DEPLOY = "org.apache.spark.deploy"


class Cluster:
    """Master and workers as processes; gone when the test is."""

    def __init__(self, home: Path) -> None:
        from penstock.spark.launcher.java import find_java

        self._home = home
        self._stack = ExitStack()
        self._java = str(find_java(os.environ).home)
        self._port = free_port()
        self.master = f"spark://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        ports = ("--port", str(self._port), "--webui-port", str(free_port()))
        self._start("master", f"{DEPLOY}.master.Master", "--host", "127.0.0.1", *ports)
        self._wait_for("master", "I have been elected leader")
        for name in ("worker-1", "worker-2"):
            self._start(
                name, f"{DEPLOY}.worker.Worker",
                *("--host", "127.0.0.1", "--webui-port", str(free_port())),
                *("--cores", "1", "--memory", "1g", "--work-dir", str(self._home / name)),
                self.master,
            )  # fmt: skip
        for name in ("worker-1", "worker-2"):
            self._wait_for(name, "Successfully registered with master")
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def workers_used(self) -> int:
        """How many of the two got an executor of the pipeline."""
        return sum(any((self._home / f"worker-{n}").glob("app-*")) for n in (1, 2))

    def _start(self, name: str, main: str, *arguments: str) -> None:
        import pyspark

        log = self._stack.enter_context((self._home / f"{name}.log").open("w"))
        process = subprocess.Popen(
            [Path(pyspark.__file__).parent / "bin" / "spark-class", main, *arguments],
            env={
                "PATH": os.environ["PATH"],
                "JAVA_HOME": self._java,
                "SPARK_LOCAL_IP": "127.0.0.1",
                "SPARK_DAEMON_MEMORY": "256m",
            },
            stdout=log,
            stderr=log,
            cwd=self._home,
        )
        self._stack.callback(process.wait)
        self._stack.callback(process.terminate)

    def _wait_for(self, name: str, words: str) -> None:
        log, deadline = self._home / f"{name}.log", time.monotonic() + 120
        while words not in log.read_text():
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    require_spark()
    with Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.mark.long
def test_two_workers_archive_a_queue_and_replay_it(
    cluster: Cluster, broker: BrokerProcess, tmp_path: Path
) -> None:
    publish_many(broker.url, "clustered", MESSAGES)
    publish(broker.url, "replayed", [])
    table = tmp_path / "table"
    master = ("--master", cluster.master)
    told = run(archive_command(broker.url, "clustered", table, *master, "--partition-by", "day"))
    assert (told["messages"], told["left_in_queue"]) == (MESSAGES, 0)
    assert told["files"] >= 2, "both workers wrote"
    assert cluster.workers_used() == 2
    rows = table_rows(table, "seq_id", "body", "day")
    assert sorted(int(row["body"]) for row in rows) == list(range(MESSAGES))
    assert depth(broker.url, "clustered") == 0
    target = ("--from", str(table), "--to-queue", "replayed")
    told = run(pipeline_command("replay", broker.url, *target, *master))
    assert (told["messages"], told["left"]) == (MESSAGES, 0)
    assert depth(broker.url, "replayed") == MESSAGES


def run(command: list[str]) -> dict[str, Any]:
    done = subprocess.run(
        command, env=archive_environment(), capture_output=True, text=True, check=False, timeout=280
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def publish_many(url: str, queue: str, count: int) -> None:
    """By the client of the load generator: pika takes long over so many."""
    from penstock.client.amqp import Connection
    from penstock.client.endpoint import Endpoint

    publish(url, queue, [])
    with Connection(Endpoint.parse(url)) as connection:
        channel = connection.channel()
        channel.confirm_select()
        for number in range(count):
            channel.publish(b"%d" % number, "", queue)
        assert not channel.wait_for_confirms()
        channel.close()
