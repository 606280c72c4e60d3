"""The programs of docs/guide/spark.md and coming-from.md, as they stand there."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.live_broker import REPOSITORY, LiveBroker
from tests.helpers.pages import blocks_of, paste, pasted
from tests.spark.older_sparks import OLDER_SPARKS, environment_of
from tests.spark.spark_tools import STREAM, publish, require_spark, table_rows

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]

PAGE = REPOSITORY / "docs" / "guide" / "spark.md"
PROGRAMS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)

FOR_A_LITTLE = """\
spark.sql.shuffle.partitions 2
spark.driver.extraJavaOptions -XX:TieredStopAtLevel=1
"""


def on_a_busy_machine(
    run: Callable[[], subprocess.CompletedProcess[str]],
) -> subprocess.CompletedProcess[str]:
    """Spark gives the planner of a query 10 s; the guide says to start such a program again."""
    done = run()
    for _ in range(4):
        if "Python worker failed to connect back" not in done.stderr:
            break
        done = run()
    return done


@pytest.mark.parametrize("spark", ["as installed", *OLDER_SPARKS])
def test_any_python_runs_them(spark: str, tmp_path: Path) -> None:
    require_spark()
    with LiveBroker() as broker:
        publish(broker.url, "orders", [b"1", b"2", b"3"])
        publish(broker.url, "clicks", [b"a", b"b"], arguments=STREAM)
        run_them(spark, broker.url, tmp_path)


def run_them(spark: str, url: str, tmp_path: Path) -> None:
    assert len(PROGRAMS) == 2
    (tmp_path / "job.py").write_text("".join(PROGRAMS))
    # Where the checkout's package and the test's broker are; no other Python has the package.
    told = {"PYTHONPATH": str(REPOSITORY / "src"), "PENSTOCK_URL": url}
    if spark in OLDER_SPARKS:
        told |= environment_of(spark, tmp_path / "java")
    (tmp_path / "spark-defaults.conf").write_text(FOR_A_LITTLE)
    told["SPARK_CONF_DIR"] = str(tmp_path)
    done = on_a_busy_machine(
        lambda: subprocess.run(
            [sys.executable, "job.py"],
            cwd=tmp_path,
            env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "TMPDIR": str(tmp_path), **told},
            capture_output=True,
            text=True,
            check=False,
        )
    )
    assert done.returncode == 0, done.stderr
    assert "|     orders|    3|" in done.stdout
    assert sorted(row["body"] for row in table_rows(tmp_path / "lake" / "clicks", "body")) == [
        b"a",
        b"b",
    ]
    (counted,) = table_rows(tmp_path / "lake" / "keys", "routing_key", "count")
    assert (counted["routing_key"], counted["count"]) == ("clicks", 2)
    left = {path.name for path in tmp_path.iterdir()} - {"spark-defaults.conf"}
    assert not {name for name in left if name.startswith(("spark-", "blockmgr-", "penstock-"))}


def test_a_stream_becomes_a_table_as_the_page_for_kafka_says(tmp_path: Path) -> None:
    require_spark()
    blocks = blocks_of("docs/guide/coming-from.md", "coming-from")
    with LiveBroker() as broker:
        place = {"PENSTOCK_URL": broker.url, "PENSTOCK_HTTP_URL": broker.http_url}
        pasted(blocks["publish"], tmp_path, place)
        done = on_a_busy_machine(lambda: paste(blocks["spark"], tmp_path, place))
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^\| +(\d)\|.*\| *(\w+)\|$", done.stdout, re.MULTILINE) == [
        ("0", "home"),
        ("1", "cart"),
    ]
