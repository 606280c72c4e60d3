"""Pipelines without the packages of the extra ``spark``: the command says how to get them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
from importlib.machinery import ModuleSpec

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {packages!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
from penstock.cli.main import main
main()
"""
SPARK = ("pyspark", "py4j", "pyarrow", "deltalake", "pyiceberg", "sqlalchemy", "jsonschema")


def run(packages: tuple[str, ...], *arguments: str) -> subprocess.CompletedProcess[str]:
    program = PROGRAM.format(packages=packages)
    command = [sys.executable, "-c", program, "pipeline", *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    "arguments",
    [
        "archive --queue q --to {0}/lake",
        "archive --queue q --to {0}/lake --dry-run",
        "archive --queue q --table lake.orders",
        "latency --from-events {0}",
        "flow --from-events {0}",
        "compact --table {0}/lake",
        "replay --from {0} --to-queue q",
        "py-files --out {0}/spark.zip",
        "dlq report --queue q",
        "dlq redrive --queue q",
        "sql select",
        "validate --queue q --schema {0}/s --good-to queue:g --bad-to queue:b",
        "prepare",
        "init {0}/project",
    ],
)
def test_without_spark_a_pipeline_names_the_extra(tmp_path: Path, arguments: str) -> None:
    done = run(SPARK, *arguments.format(tmp_path).split())
    cause, fix = done.stderr.splitlines()
    assert cause.startswith("error: Spark is not installed here: no ")
    assert "make spark" in fix
    assert "pip install 'penstock-broker[spark]'" in fix
    assert done.returncode == 1


def test_another_missing_module_is_a_fault_of_the_program() -> None:
    done = run(("tempfile",), "prepare")
    assert "this is a fault of penstock" in done.stderr
    assert done.returncode == 1


def test_what_needs_no_spark_works_without() -> None:
    done = run(SPARK, "archive", "--help")
    assert done.returncode == 0, done.stderr
