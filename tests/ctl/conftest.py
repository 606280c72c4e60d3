"""One broker for a file, and ``penstockctl`` in this process, as quick as a call."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from penstock.ctl.main import run
from tests.helpers.live_broker import LiveBroker


class Said(NamedTuple):
    """What a command line printed, and how it ended."""

    code: int
    out: str
    err: str


def penstockctl(data_dir: Path | str, *words: str) -> Said:
    """``data_dir``: of the broker that is meant."""
    out, err = io.StringIO(), io.StringIO()
    environment = {"PENSTOCK_DATA_DIR": str(data_dir), "HOME": os.environ.get("HOME", "/")}
    code = run(list(words), out, err, environment)
    return Said(code, out.getvalue(), err.getvalue())


@pytest.fixture(scope="module")
def live() -> Iterator[LiveBroker]:
    if os.environ.get("PENSTOCK_TEST_URL"):
        pytest.skip("PENSTOCK_TEST_URL names another broker; penstockctl is for Penstock")
    with LiveBroker() as broker:
        yield broker
