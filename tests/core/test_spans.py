"""What becomes of spans that are not wanted, and of those that are too many."""

from __future__ import annotations

from penstock.core.spans import PUBLISH, Span, SpanBook

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


def a_span(parent: str = PARENT) -> Span:
    return Span(PUBLISH, parent, 1, 2, "/", "orders", ())


def test_a_book_without_an_export_wants_nothing() -> None:
    book = SpanBook()
    assert not book.on
    assert book.take() == []
    assert book.dropped_count == 0


def test_more_than_fit_between_two_takes_are_dropped_and_counted() -> None:
    book = SpanBook(2)
    assert book.on
    for _ in range(3):
        book.note(a_span())
    assert not book.has_room()
    assert (len(book.take()), book.dropped_count) == (2, 2)
    assert book.has_room()
