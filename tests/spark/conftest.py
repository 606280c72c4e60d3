"""One local Spark for all tests that only need some session."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.spark_tools import Pipelines, require_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the session has its log."""
    return tmp_path_factory.mktemp("spark")


@pytest.fixture(scope="session")
def spark(spark_home: Path) -> Iterator[SparkSession]:
    """``local[2]``; the broker is named per read, so the environment names none."""
    require_spark()
    from penstock.spark.launcher.session import local_session

    before = dict(os.environ)
    session = local_session("tests", "local[2]", "", spark_home, short=True)
    yield session
    session.stop()
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(params=["here", pytest.param("in a process", marks=pytest.mark.long)])
def pipelines(request: pytest.FixtureRequest, tmp_path: Path) -> Pipelines:
    """As users run them, or in this process: a start of Spark costs more than most tests.

    Both may come after each other, so that a test must not find what it left in its broker.
    """
    require_spark()
    shared = request.param == "here"
    return Pipelines(tmp_path, request.getfixturevalue("spark") if shared else None)
