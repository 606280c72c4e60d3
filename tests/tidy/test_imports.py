"""The import contracts hold, and would notice if they did not.

The contracts run on the real source; then one violation of each contract is planted in a copy,
and the contract of that name must break.  A contract that lets its own violation pass is a
contract about nothing.
"""

from __future__ import annotations

import configparser
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]

PLANTED = {
    "packages": ("penstock/queues/planted.py", "import penstock.broker"),
    "quiet": ("penstock/storage/planted.py", "import time"),
    "storage": ("penstock/storage/store/planted.py", "import penstock.storage.engine.engine"),
    "broker": ("penstock/broker/rules/planted.py", "import penstock.broker.topology"),
    "cluster": ("penstock/cluster/ring/planted.py", "import penstock.cluster.mirrors"),
    "protocols": ("penstock/protocols/amqp/planted.py", "import penstock.protocols.nsq"),
    "sessions": (
        "penstock/protocols/amqp/codec/planted.py",
        "import penstock.protocols.amqp.session",
    ),
    "codecs": ("penstock/protocols/nsq/codec/planted.py", "import penstock.broker"),
    "management": ("penstock/management/rows/planted.py", "import penstock.management.api"),
    "node": ("penstock/node/coordination/planted.py", "import penstock.node.node"),
    "runtime": ("penstock/runtime/disk/planted.py", "import penstock.runtime.loop"),
    "spark": ("penstock/spark/tables/planted.py", "import penstock.spark.jobs.replay"),
    "clients": ("penstock/client/planted.py", "import penstock.queues"),
    "server-door": ("penstock/cli/planted.py", "import penstock.node"),
    "light": ("penstock/ctl/planted.py", "import click"),
    "executors": ("penstock_ranges/planted.py", "import mypy_extensions"),
    "source-is-a-guest": ("penstock/node/planted.py", "import pyspark_penstock"),
}


def lint(source: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """import-linter over the packages of one source folder."""
    program = "from importlinter.cli import lint_imports_command as run; run()"
    return subprocess.run(
        [sys.executable, "-c", program, "--no-logo", "--no-cache", *options],
        cwd=REPOSITORY,
        env=os.environ | {"PYTHONPATH": str(source), "COLUMNS": "200"},
        check=False,
        capture_output=True,
        text=True,
        timeout=100,
    )


def contract_names() -> set[str]:
    config = configparser.ConfigParser()
    config.read(REPOSITORY / ".importlinter")
    prefix = "importlinter:contract:"
    return {section.removeprefix(prefix) for section in config if section.startswith(prefix)}


def test_the_contracts_hold() -> None:
    done = lint(REPOSITORY / "src")
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_contract_has_a_planted_violation() -> None:
    assert contract_names() == set(PLANTED)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Source files only: import-linter reads them and runs none."""
    target = tmp_path_factory.mktemp("planted") / "src"
    shutil.copytree(
        REPOSITORY / "src", target, ignore=shutil.ignore_patterns("*.so", "__pycache__")
    )
    return target


@pytest.mark.parametrize("contract", PLANTED)
def test_a_planted_violation_breaks_its_contract(copy: Path, contract: str) -> None:
    file, line = PLANTED[contract]
    (copy / file).write_text(f'"""Planted."""\n\n{line}\n')
    try:
        done = lint(copy, "--contract", contract)
    finally:
        (copy / file).unlink()
    assert done.returncode == 1, done.stdout + done.stderr
    assert "planted" in done.stdout


def test_a_package_in_no_layer_breaks_them(copy: Path) -> None:
    (copy / "penstock/cellar.py").write_text('"""A package that is in no layer."""\n')
    try:
        done = lint(copy, "--contract", "packages")
    finally:
        (copy / "penstock/cellar.py").unlink()
    assert done.returncode == 1, done.stdout + done.stderr
    assert "cellar" in done.stdout
