"""What becomes of spans that are not wanted or too many, and of a trace that is followed."""

from __future__ import annotations

from penstock.core.clock_types import WallMs
from penstock.core.counting.spans import FOLLOW_MS, FOLLOWED_MAX, PUBLISH, SPANS_MAX, Span, SpanBook

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


def a_span(parent: str = PARENT) -> Span:
    return Span(PUBLISH, parent, 1, 2, "/", "orders", ())


def test_a_book_without_an_export_wants_nothing() -> None:
    book = SpanBook()
    assert not book.on
    assert not book.wants(PARENT)
    assert book.take(WallMs(0)) == []
    assert book.dropped_count == 0


def test_more_than_fit_between_two_takes_are_dropped_and_counted() -> None:
    book = SpanBook(2)
    assert book.on
    for _ in range(3):
        book.note(a_span())
    assert not book.wants(PARENT)
    assert (len(book.take(WallMs(0))), book.dropped_count) == (2, 2)
    assert book.wants(PARENT)


def test_a_followed_trace_is_kept_within_bounds_and_ends() -> None:
    book = SpanBook()
    book.follow(TRACE, "ann", WallMs(1))
    assert book.on
    assert book.wants(PARENT)
    assert not book.wants(PARENT.replace("4bf", "5bf"))
    for _ in range(SPANS_MAX + 1):
        book.note(a_span())
    assert len(book.spans_of(TRACE, "ann") or []) == SPANS_MAX
    assert book.take(WallMs(FOLLOW_MS)) == []
    assert book.on
    book.take(WallMs(FOLLOW_MS + 1))
    assert book.spans_of(TRACE, "ann") is None
    assert not book.on


def test_of_too_many_traces_of_a_user_the_oldest_is_forgotten() -> None:
    book = SpanBook()
    for number in range(FOLLOWED_MAX + 1):
        book.follow(str(number), "ann", WallMs(0))
    assert book.spans_of("0", "ann") is None
    assert book.spans_of("1", "ann") == []


def test_no_user_pushes_the_trace_of_another_one_out() -> None:
    book = SpanBook()
    book.follow(TRACE, "ann", WallMs(0))
    book.note(a_span())
    for number in range(3 * FOLLOWED_MAX):
        book.follow(str(number), "eve", WallMs(0))
    book.follow(TRACE, "eve", WallMs(0))  # its own from here on
    assert book.spans_of(TRACE, "ann") == [a_span()]
    assert book.spans_of(TRACE, "eve") == []
    for number in range(FOLLOWED_MAX - 2):
        book.follow("x", str(number), WallMs(0))
    assert book.spans_of("47", "eve") is None, "the user who followed most"
    assert book.spans_of(TRACE, "ann") == [a_span()]
    book.follow("y", "2", WallMs(0))
    book.follow("z", "2", WallMs(0))
    book.note(a_span())
    assert book.spans_of(TRACE, "ann") == [a_span()] * 2
    assert book.spans_of(TRACE, "eve") == [a_span()]
