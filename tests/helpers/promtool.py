"""Prometheus' own checker, unmodified: what it does not accept, a Prometheus would not either."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

MISSING = "promtool missing (Debian: apt-get install prometheus)"


def check_metrics(page: bytes) -> str:
    """What it finds wrong; "" = nothing."""
    return _run(["check", "metrics"], page)


def check_rules(file: Path) -> str:
    return _run(["check", "rules", str(file)], b"")


def _run(words: list[str], given: bytes) -> str:
    tool = shutil.which("promtool")
    if tool is None:
        pytest.skip(MISSING)
    done = subprocess.run([tool, *words], input=given, capture_output=True, timeout=60, check=False)
    said = (done.stdout + done.stderr).decode()
    return said if done.returncode else ""
