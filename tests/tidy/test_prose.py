"""The sentences of the documents, as numbers that only shrink.

A sentence of more than 40 words is read twice.  A sentence whose subject is a clause ("What is
declared takes memory") names no noun of docs/glossary.md.  A change that mends some lowers the
number.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = sorted([*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")])
WORDS_MAX = 40

RATCHETS = {"longer than 40 words": 48, "with a clause for a subject": 87}
SLACK = 15
"""By which a number may be better, so that not each change of a page has to touch it."""

CODE = re.compile(r"^```.*?^```|<!--.*?-->|^ {4,}(?![-*] ).*?$", re.MULTILINE | re.DOTALL)
BREAK = re.compile(r"\n\s*\n|^\s*(?:[-*+]|\d+\.) |^#.*$|(?<!\\)\|", re.MULTILINE)
"""Between paragraphs, items of a list and cells of a table."""
SENTENCE = re.compile(r"(?<=[.!?])[\"')]*\s+(?=[\"'(]?[A-Z0-9])")
CLAUSE = re.compile(r"(What|Whatever|Who|Whom|Whose)\b.*[^?]$", re.DOTALL)


def plain(text: str) -> str:
    """Without marks; what stands between backticks is one word."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"[*_]{1,2}", "", re.sub(r"`+[^`]*`+", "CODE", text))


def sentences(text: str) -> Iterator[str]:
    for part in BREAK.split(CODE.sub("\n\n", text)):
        yield from SENTENCE.split(plain(" ".join(part.split())))


def count(sentence: str) -> int:
    return len(re.findall(r"[\w'’-]+", sentence))


@functools.cache
def found() -> dict[str, list[str]]:
    all_of_them = [
        (page.relative_to(REPOSITORY).as_posix(), sentence)
        for page in PAGES
        if page.name != "CHANGELOG.md"
        for sentence in sentences(page.read_text(encoding="utf-8"))
    ]
    return {
        "longer than 40 words": [
            f"{page}: {sentence}" for page, sentence in all_of_them if count(sentence) > WORDS_MAX
        ],
        "with a clause for a subject": [
            f"{page}: {sentence}"
            for page, sentence in all_of_them
            if count(sentence) > 5 and CLAUSE.match(sentence)
        ],
    }


def test_the_ratchets() -> None:
    counts = {what: len(places) for what, places in found().items()}
    worse = {what: found()[what] for what in counts if counts[what] > RATCHETS[what]}
    assert not worse
    better = {what: n for what, n in counts.items() if n < RATCHETS[what] - SLACK}
    assert not better, "better than before: lower the numbers of RATCHETS"


def test_sentences_are_found_as_they_are_read() -> None:
    text = "# Head\n\nOne is `a b`. Two\n[is](x.md) here.\n\n- item\n- What is *it*?\n\n| a | b |\n"
    assert [one for one in sentences(text) if one] == [
        *("One is CODE.", "Two is here.", "item", "What is it?", "a", "b")
    ]
    assert not CLAUSE.match("What is it?")
    assert CLAUSE.match("What is declared stays.")
