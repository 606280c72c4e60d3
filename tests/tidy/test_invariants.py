"""docs/invariants.md names exactly the invariants the sources state, and those are asserted."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCE = REPOSITORY / "src" / "penstock"
PAGE = REPOSITORY / "docs" / "invariants.md"
STATED = re.compile(r"^ +([A-Z][0-9])  \S", re.MULTILINE)
ROW = re.compile(r"^\| (?:`(?P<file>[\w/.]+)` )?\| (?P<number>[A-Z][0-9]) \|", re.MULTILINE)


def stated() -> dict[str, set[str]]:
    """File below src/penstock to the numbers in it."""
    found = {
        path.relative_to(SOURCE).as_posix(): set(STATED.findall(path.read_text()))
        for path in SOURCE.rglob("*.py")
    }
    return {file: numbers for file, numbers in found.items() if numbers}


def listed(text: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    file = ""
    for row in ROW.finditer(text):
        file = row["file"] or file
        found.setdefault(file, set()).add(row["number"])
    return found


def test_the_page_lists_what_the_files_state() -> None:
    assert listed(PAGE.read_text()) == stated()


@pytest.mark.parametrize("file", sorted(listed(PAGE.read_text().split("## Promised")[0])))
def test_what_is_listed_as_asserted_is(file: str) -> None:
    text = (SOURCE / file).read_text()
    asserted = set(re.findall(r"[A-Z][0-9]", " ".join(re.findall(r'assert .*"(.*)"', text))))
    assert listed(PAGE.read_text().split("## Promised")[0])[file] <= asserted
