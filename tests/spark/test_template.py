"""The project for Declarative Pipelines: what it declares, and that nothing is overwritten."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from click.testing import CliRunner

from penstock.cli.main import cli
from pyspark_penstock.endpoints import parse_url
from pyspark_penstock.planner import give_back
from tests.helpers.broker_process import BrokerProcess
from tests.spark.spark_tools import archive_environment, depth, publish

pytestmark = pytest.mark.spark


def write(directory: Path, *more: str) -> Any:
    return CliRunner().invoke(cli, ["pipeline", "init", str(directory), *more])


def test_the_project_declares_what_its_page_says(tmp_path: Path) -> None:
    """Against stand-ins: the real ``spark-pipelines`` takes a minute."""
    project = tmp_path / "my: project"
    done = write(project, "--queue", 'in "1"', "--answers", "out")
    assert done.exit_code == 0, done.output
    assert json.loads(done.output.splitlines()[-1])["queue"] == 'in "1"'
    spec = dict(
        line.split(": ", 1)
        for line in (project / "spark-pipeline.yml").read_text().splitlines()
        if ": " in line and not line.startswith("#") and "glob" not in line
    )
    assert json.loads(spec["name"]) == "my: project"
    assert json.loads(spec["storage"]) == (project / "pipeline-storage").as_uri()
    assert (project / spec["      include"].removesuffix("/**")).is_dir()

    dp, session = mock.MagicMock(), mock.MagicMock()
    dp.append_flow.return_value = lambda flow: flow
    dp.table = dp.materialized_view = lambda flow: flow
    source = (project / "transformations" / "orders.py").read_text()
    names: dict[str, Any] = {}
    with (
        mock.patch.dict(sys.modules, {"pyspark.pipelines": dp}),
        mock.patch("pyspark.pipelines", dp, create=True),
        mock.patch("pyspark.sql.SparkSession.active", return_value=session),
    ):
        exec(compile(source, "orders.py", "exec"), names)
    names["messages"]()
    reader = session.readStream.format
    reader.assert_called_with("penstock")
    reader.return_value.option.assert_called_with("queue", 'in "1"')
    dp.create_sink.assert_called_once_with(
        name="answers", format="penstock", options={"queue": "out"}
    )
    dp.append_flow.assert_called_once_with(target="answers")


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    for place in (tmp_path, tmp_path / "mine"):
        done = write(place)
        assert done.exit_code == 2
        assert "not empty" in done.output
    assert (tmp_path / "mine").read_text() == "x"


if os.environ.get("PENSTOCK_TEST_PIPELINES"):  # needs pyspark[pipelines], and two minutes

    @pytest.mark.slow
    @pytest.mark.timeout(600)
    def test_the_real_spark_pipelines_runs_it_twice(broker: BrokerProcess, tmp_path: Path) -> None:
        project = tmp_path / "orders"
        assert write(project).exit_code == 0
        publish(broker.url, "orders.answers", [])
        for run in range(2):
            publish(broker.url, "orders", [b"%d" % n for n in range(3)], message_id=f"run{run}")
            done = subprocess.run(
                ["spark-pipelines", "run", "--conf", "spark.sql.catalogImplementation=hive"],
                cwd=project,
                env=archive_environment() | {"PENSTOCK_URL": broker.url},
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
            assert depth(broker.url, "orders.answers") == 3 * (run + 1)
        give_back(parse_url(broker.url), "orders")
        assert depth(broker.url, "orders") == 0
