"""docs/differences.md says what the lists of differences say, and those name tests that exist."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import pytest

from tests.conformance.differences import RECORDED_ON
from tests.conformance.differences_elsewhere import ELSEWHERE
from tests.conformance.differences_page import PAGE, page

TESTS = Path(__file__).resolve().parents[1]


def test_the_page_is_up_to_date() -> None:
    """Else: ``python -m tests.conformance.differences_page``."""
    assert PAGE.read_text() == page()


def test_the_day_of_the_recordings_is_a_day() -> None:
    assert date.fromisoformat(RECORDED_ON) >= date(2026, 11, 21)


@pytest.mark.parametrize("test", sorted({entry.test for entry in ELSEWHERE if entry.test}))
def test_what_is_named_is_there(test: str) -> None:
    file, function = test.split("::")
    assert re.search(rf"^def {function}\(", (TESTS / file).read_text(), re.MULTILINE)
