"""Each item of the checklist is put to the test somewhere, and what is said of it is true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conformance.checklist import ELSEWHERE, ITEMS, NOWHERE, named

TESTS = Path(__file__).resolve().parents[1]


def test_every_item_is_named() -> None:
    assert set(ITEMS) - set(named()) - set(ELSEWHERE) == set(NOWHERE)


def test_nothing_else_is_named() -> None:
    assert set(named()) | set(ELSEWHERE) <= set(ITEMS)
    assert all(NOWHERE.values())


@pytest.mark.parametrize("test", sorted({test for tests in ELSEWHERE.values() for test in tests}))
def test_what_is_named_elsewhere_is_there(test: str) -> None:
    file, function = test.split("::")
    assert re.search(rf"^def {function}\(", (TESTS / file).read_text(), re.MULTILINE)
