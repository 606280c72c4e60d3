"""docs/errors: a page for each code, what the code closes, and texts that the program has."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

from penstock.protocols.amqp.codec.errors import NAMES, is_hard

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = REPOSITORY / "docs" / "errors"
SOURCES = REPOSITORY / "src" / "penstock"
NEVER_CLOSE = (311, 312, 313, 402, 502)
"""312 is the code of basic.return, the others are never sent."""
QUOTED = re.compile(r"^\| `(.+?)` \|", re.MULTILINE)
"""The first column of a table; "…" stands for a value."""


@functools.cache
def program() -> str:
    """All sources, with the parts of a text that stands on several lines put together."""
    text = "".join(path.read_text(encoding="utf-8") for path in sorted(SOURCES.rglob("*.py")))
    return re.sub(r"[\"']\s*\n\s*f?[\"']", "", text)


def test_each_code_has_its_page() -> None:
    assert {page.stem for page in PAGES.glob("[0-9]*.md")} == {str(code) for code in NAMES}


@pytest.mark.parametrize("code", NAMES)
def test_a_page_says_what_the_code_closes(code: int) -> None:
    text = (PAGES / f"{code}.md").read_text(encoding="utf-8")
    assert text.startswith(f"# {code} {NAMES[code]}\n")
    closes = re.findall(r"It closes the \*\*(\w+)\*\*", text)
    if code in NEVER_CLOSE:
        assert closes == []
    else:
        assert closes == ["connection" if is_hard(code) else "channel"]


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda page: page.stem)
def test_texts_are_those_of_the_program(page: Path) -> None:
    quoted = QUOTED.findall(page.read_text(encoding="utf-8"))
    parts = [part.strip() for text in quoted for part in text.split("…")]
    assert [part for part in parts if len(part) > 2 and part not in program()] == []


def test_each_error_of_nsq_has_a_row() -> None:
    nsq = "".join(path.read_text("utf-8") for path in (SOURCES / "protocols/nsq").rglob("*.py"))
    known = set(re.findall(r"[\"'`](E_[A-Z_]+)", nsq))
    assert set(QUOTED.findall((PAGES / "nsq.md").read_text("utf-8"))) == known
