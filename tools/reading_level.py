"""How long the sentences of the documents are, and which level of reading they take.

    python tools/reading_level.py [REVISION …]      without one: HEAD, and e75b673 of 2026-11-26

Reads the pages that Git has at each revision: those at the top and of ``docs``, without the
changelog.  Code, headings and what has fewer than five words (labels, most cells of tables) are
left out; an item of a list and a cell of a table end a sentence.  tests/tidy/test_prose.py counts
with the same functions.

The grade is that of Flesch and Kincaid, whose syllables are counted as groups of vowels without a
silent e at the end.  It says nothing about one text: it compares two that are counted alike.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parents[1]
REVISIONS = ("HEAD", "e75b673")
WORDS_MIN = 5
CODE = re.compile(r"^```.*?^```|<!--.*?-->|^ {4,}(?![-*] ).*?$", re.MULTILINE | re.DOTALL)
BREAK = re.compile(r"\n\s*\n|^\s*(?:[-*+]|\d+\.) |^#.*$|(?<!\\)\|", re.MULTILINE)
"""Between paragraphs, items of a list and cells of a table."""
SENTENCE = re.compile(r"(?<=[.!?])[\"')]*\s+(?=[\"'(]?[A-Z0-9])")
WORD = re.compile(r"[\w'’-]+")
VOWELS = re.compile(r"[aeiouy]+")


def plain(text: str) -> str:
    """Without marks; what stands between backticks is one word."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"[*_]{1,2}", "", re.sub(r"`+[^`]*`+", "CODE", text))


def sentences(text: str) -> Iterator[str]:
    for part in BREAK.split(CODE.sub("\n\n", text)):
        yield from SENTENCE.split(plain(" ".join(part.split())))


def words(sentence: str) -> list[str]:
    return WORD.findall(sentence)


def syllables(word: str) -> int:
    groups = len(VOWELS.findall(word.lower()))
    is_silent = re.search(r"[^aeiouyl]e$", word.lower()) is not None
    return max(1, groups - is_silent)


class Level(NamedTuple):
    """Of the pages at one revision."""

    pages: int
    sentences: int
    words: int
    syllables: int
    over_30: int
    over_40: int

    @property
    def words_a_sentence(self) -> float:
        return self.words / self.sentences

    @property
    def grade(self) -> float:
        return 0.39 * self.words_a_sentence + 11.8 * self.syllables / self.words - 15.59


def level_of(texts: list[str]) -> Level:
    counted = [words(sentence) for text in texts for sentence in sentences(text)]
    counted = [sentence for sentence in counted if len(sentence) >= WORDS_MIN]
    return Level(
        pages=len(texts),
        sentences=len(counted),
        words=sum(map(len, counted)),
        syllables=sum(syllables(word) for sentence in counted for word in sentence),
        over_30=sum(len(sentence) > 30 for sentence in counted),
        over_40=sum(len(sentence) > 40 for sentence in counted),
    )


def git(*arguments: str) -> str:
    command = ["git", "-C", str(REPOSITORY), *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def pages(revision: str) -> list[str]:
    files = git("ls-tree", "-r", "--name-only", revision).splitlines()
    names = [name for name in files if re.fullmatch(r"(docs/.*|[^/]+)\.md", name)]
    return [git("show", f"{revision}:{name}") for name in names if name != "CHANGELOG.md"]


def main() -> None:
    print("| revision | pages | sentences | words a sentence | over 30 | over 40 | grade |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for revision in sys.argv[1:] or REVISIONS:
        level = level_of(pages(revision))
        means = f"{level.words_a_sentence:.1f} | {level.over_30} | {level.over_40}"
        name = f"`{revision}` of {git('show', '-s', '--format=%cs', revision).strip()}"
        print(f"| {name} | {level.pages} | {level.sentences} | {means} | {level.grade:.1f} |")


if __name__ == "__main__":
    main()
