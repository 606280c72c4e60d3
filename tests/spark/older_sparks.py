"""PySpark of versions before the newest, each in a directory of its own (tools/setup.sh)."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from tests.helpers.live_broker import REPOSITORY
from tests.spark.spark_tools import java_of

LIST = Path(__file__).with_name("older-sparks.txt")
OLDER_SPARKS = re.findall(r"^pyspark==(\S+)", LIST.read_text(), re.MULTILINE)


def environment_of(version: str, cache: Path) -> dict[str, str]:
    """What has a Python here run that PySpark, with a Java it knows; skips where it is missing."""
    place = REPOSITORY / "build" / "spark" / version
    if not (place / "pyspark").is_dir():
        pytest.skip(f"no PySpark {version} beside the other: make deps-older-sparks")
    return {
        "PYTHONPATH": os.pathsep.join([str(place), str(REPOSITORY / "src")]),
        "SPARK_HOME": str(place / "pyspark"),
        "PYSPARK_PYTHON": sys.executable,
        "JAVA_HOME": str(java_of("of the system", cache)),  # these know no Java of today
    }
