"""Definitions in a file of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.storage.definitions.definitions import Definitions


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "definitions.db")


@pytest.fixture
def definitions(path: str) -> Iterator[Definitions]:
    opened = Definitions(path)
    yield opened
    opened.close()
