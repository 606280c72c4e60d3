"""What lets a job of few messages end soon: few processes that start quickly, and no waits."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import MagicMock, call

import pytest

from penstock.spark.launcher.java import find_java
from penstock.spark.launcher.session import INTERPRETED, interpret, stop
from tests.spark.spark_tools import descendants

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAIT_S = 30.0


@pytest.mark.spark
def test_every_python_of_spark_imports_the_installed_pyspark(spark: SparkSession) -> None:
    """From the archive that Spark puts in front, each start takes most of a second."""
    spark.range(1).rdd.mapPartitions(list).collect()
    spark.read.format("penstock")  # what looks for sources in all packages has done so by now
    daemons = {
        pid: command
        for pid in descendants(os.getpid())
        if "pyspark.daemon" in (command := _text(pid, "cmdline"))
    }
    assert daemons
    assert not [command for command in daemons.values() if "lookup_data_sources" in command]
    assert not [pid for pid in daemons if "pyspark.zip" in _text(pid, "environ")]


def _text(pid: int, what: str) -> str:
    return Path(f"/proc/{pid}/{what}").read_bytes().replace(b"\0", b" ").decode()


def test_a_session_interprets_but_for_what_the_user_has_set() -> None:
    first, *others = INTERPRETED
    spark = MagicMock()
    spark.sparkContext.getConf.return_value.contains = lambda key: key == first
    interpret(spark)
    assert spark.conf.set.mock_calls == [call(key, INTERPRETED[key]) for key in others]


def test_a_stop_does_not_wait_for_the_server_of_accumulators() -> None:
    ended, go_on = threading.Event(), threading.Event()
    spark = MagicMock()
    server = spark.sparkContext._accumulatorServer
    server.shutdown = lambda: go_on.wait(WAIT_S) and ended.set()
    spark.stop = lambda: [server.shutdown()]  # which is another one by then
    stop(spark)
    assert not ended.is_set()
    go_on.set()
    assert ended.wait(WAIT_S)


def test_a_java_is_asked_once_for_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Path] = []
    monkeypatch.setattr(
        "penstock.spark.launcher.java.version_of", lambda java: asked.append(java) or 17
    )
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.touch()
    environment = {"JAVA_HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    assert find_java(environment) == find_java(environment)
    assert asked == [java]
    os.utime(java, ns=(1, 1))  # another one
    find_java(environment)
    assert asked == [java, java]
