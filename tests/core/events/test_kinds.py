"""Lines of the event log: what is written can be read, and what was cut is known."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from penstock.core.events.book import EVENTS_MAX, NODE, EventBook
from penstock.core.events.kinds import FIELDS, KINDS, line_of, read_line

REPOSITORY = Path(__file__).resolve().parents[3]
SAMPLE = {"string": 'q"uéue\n', "long": 1 << 40, "double": 0.5, "boolean": True}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_survives(kind: str) -> None:
    values = tuple(SAMPLE[type_] for type_ in KINDS[kind].values())
    line = line_of(1_700_000_000_000, kind, values)
    assert line.isascii()
    assert line.count(b"\n") == 1
    found = read_line(line)
    assert found is not None
    del found["crc"]
    expected = {"at_ms": 1_700_000_000_000, "event": kind} | dict(
        zip(KINDS[kind], values, strict=True)
    )
    assert found == expected


def test_what_has_no_value_is_left_out() -> None:
    line = line_of(1, "connection_opened", ("c", None, "/", "p", None))
    assert "user" not in json.loads(line)


def test_too_few_values_are_a_fault_of_ours() -> None:
    with pytest.raises(ValueError, match="shorter"):
        line_of(1, "queue_deleted", ("/",))


def test_a_line_that_was_cut_or_changed_is_not_believed() -> None:
    line = line_of(1, "queue_deleted", ("/", "orders"))
    for cut in range(len(line) - 1):
        assert read_line(line[:cut]) is None
    for place in range(len(line) - 1):
        changed = line[:place] + bytes([line[place] ^ 1]) + line[place + 1 :]
        assert read_line(changed) is None


def test_a_name_means_the_same_in_every_kind() -> None:
    for kind, fields in KINDS.items():
        for name, type_ in fields.items():
            assert FIELDS[name] == type_, f"{name} of {kind}"


def test_the_page_for_readers_names_every_kind_and_field() -> None:
    page = (REPOSITORY / "docs/formats/event_log.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| (.+?) \|", page, re.MULTILINE))
    told = {kind: re.findall(r"`(\w+)`", text) for kind, text in rows.items()}
    assert told == {kind: list(fields) for kind, fields in KINDS.items()}


def test_the_example_of_the_page_is_a_whole_line() -> None:
    page = (REPOSITORY / "docs/formats/event_log.md").read_text()
    examples = re.findall(r'^\{"at_ms".*\}$', page, re.MULTILINE)
    assert examples
    assert all(read_line(example.encode()) for example in examples)


def test_the_book_is_bounded_and_says_what_did_not_fit() -> None:
    book = EventBook()
    book.note("queue_deleted", ("/", "unheard"))
    assert book.take() == []
    book.on = True
    book.now_ms = 5
    for _ in range(EVENTS_MAX + 3):
        book.note("queue_deleted", ("/", "q"))
    assert book.take_dropped() == 3
    assert book.take_dropped() == 0
    events = book.take()
    assert len(events) == EVENTS_MAX
    assert events[0] == (5, "queue_deleted", ("/", "q"), NODE)
    assert book.take() == []
