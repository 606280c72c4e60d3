"""The sentences of the documents, as numbers that only shrink.

A sentence of more than 40 words is read twice.  A sentence whose subject is a clause ("What is
declared takes memory") names no noun of docs/glossary.md.  A change that mends some lowers the
number.
"""

from __future__ import annotations

import functools
import re
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tools"))

from reading_level import CODE, level_of, sentences, syllables, words  # noqa: E402

PAGES = sorted([*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")])
WORDS_MAX = 40

READ_TWICE = (
    "speaks what your programs already speak", "Fast while short, cheap while long",
    "nsqd on two cores with", "release 0.1, in the making", "Who may come in, and how",
    "who is in stays", "virtual hosts do not notice", "is spelt as RabbitMQ's users",
    "Messages that go in time", "because nothing a consumer does would clear",
    "To look for such things", "the first step is nothing", "While something is, a message costs",
    "whoever has it is a node", "What is asked of them", "have no say in it",
    "when the policy wants it no more", "comes to nothing at the same", "leaves it nowhere",
    "would say nothing about them", "What a team gains", "What libraries make of us",
    "a token that is another one", "the data loop turns; clients may come",
    "lets a Spark run for half a minute", "numbered on from further up", "at one stroke",
    "nobody's business", "as honest as those who publish", "A batch is seen as its messages",
    "NSQ clients may nothing", "As it goes queues", "publishers: are read from",
    "What moves", "The picture in numbers", "What holds", "one = into that one",
    "No quorum hangs on", "A message is published and got", "when it is mended, run",
    "One node, one disk", "Not yet: Quorum and stream queues",
    "No room calls up", "needs a restart", "No queue is down while", "Refused, not ignored",
    "`__init__` lists its files", "some 300 lines",
)  # fmt: skip
"""Sentences of documents and programs that a review could not read at once."""

RATCHETS = {"longer than 40 words": 15, "with a clause for a subject": 50}
SLACK = 15
"""By which a number may be better, so that not each change of a page has to touch it."""

CLAUSE = re.compile(r"(What|Whatever|Who|Whom|Whose)\b.*[^?]$", re.DOTALL)


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
            f"{page}: {sentence}"
            for page, sentence in all_of_them
            if len(words(sentence)) > WORDS_MAX
        ],
        "with a clause for a subject": [
            f"{page}: {sentence}"
            for page, sentence in all_of_them
            if len(words(sentence)) > 5 and CLAUSE.match(sentence)
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


def test_the_reading_level_is_counted_as_its_tool_says() -> None:
    assert [syllables(word) for word in ("queue", "code", "table", "acknowledge", "RAM")] == [
        *(1, 1, 2, 3, 1)
    ]
    level = level_of(["# A head of five words\n\nThe cat sat on the mat. A label.\n"])
    assert level == (1, 1, 6, 6, 0, 0)
    assert round(level.grade, 2) == -1.45


def test_sentences_that_a_review_found_do_not_come_back() -> None:
    """Of the review: W2, W7 and W8 with both tables, B42, B44, B46 to B48, B55 to B57."""
    sources = sorted((REPOSITORY / "src").rglob("*.py")) + sorted(
        (REPOSITORY / "src/penstock/management/ui").glob("*/*.js")
    )
    back = {}
    for path in [*PAGES, *sources]:
        text = " ".join(path.read_text(encoding="utf-8").split())
        found_here = [words for words in READ_TWICE if words in text]
        if found_here:
            back[path.relative_to(REPOSITORY).as_posix()] = found_here
    assert back == {}


def test_no_item_of_a_list_stands_twice_on_a_page() -> None:
    """B81 of the review: one stood whole and by half."""
    for page in PAGES:
        if page.name == "CHANGELOG.md" or page.parent.name == "reference":
            continue
        text = CODE.sub("", page.read_text(encoding="utf-8"))
        begins = re.findall(r"^[-*] (.{30})", text, re.MULTILINE)
        assert len(begins) == len({*begins}), page


def test_the_readme_begins_with_a_command_and_the_glossary_has_our_words() -> None:
    """W6 and W9 of the review."""
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert len(readme.partition("`make run`")[0].split()) < 100
    glossary = (REPOSITORY / "docs/glossary.md").read_text(encoding="utf-8")
    words = ["alpha", "beta", "gamma", "delta", "q1", "q4", "in flow", "turn", "group commit"]
    assert [word for word in words if word not in glossary] == []


def test_a_measured_time_stands_with_its_machine() -> None:
    """B51 of the review: durations of an idle machine stood there as facts."""
    measured = re.compile(r"\btook\b([^.]|\.\d)*\d (ms|s|seconds|minutes)\b")
    machine = re.compile(r"\b(cores|processors|machine)\b|/results/")
    for page in PAGES:
        if page.name == "CHANGELOG.md":
            continue
        for part in re.split(
            r"\n\s*\n|^[-*|] ", page.read_text(encoding="utf-8"), flags=re.MULTILINE
        ):
            text = " ".join(part.split())
            assert not measured.search(text) or machine.search(text), f"{page}: {text}"
