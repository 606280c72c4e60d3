"""One local Spark for all tests that only need some session."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.spark.spark_tools import require_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """``local[2]``; the broker is named per read, so the environment names none."""
    require_spark()
    from penstock.spark.launcher.session import local_session

    before = dict(os.environ)
    scratch = tmp_path_factory.mktemp("spark")
    session = local_session("tests", "local[2]", "", scratch, short=True)
    yield session
    session.stop()
    os.environ.clear()
    os.environ.update(before)
