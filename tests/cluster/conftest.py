"""The last line of a run with loads: what they did in all."""

from __future__ import annotations

import pytest

from tests.cluster.judge import told
from tests.cluster.load import TOTALS


def pytest_unconfigure(config: pytest.Config) -> None:
    """A worker of several does not speak for all of them."""
    if TOTALS and not hasattr(config, "workerinput"):
        print(f"clusters under load: {told(TOTALS)}")
