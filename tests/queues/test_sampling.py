"""Which messages' times are logged, for how many they stand, and what is said of them."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.core.events.book import EventBook
from penstock.core.events.kinds import KINDS
from penstock.core.message import REDELIVERED, SAMPLED, Message
from penstock.queues.sampling import (
    ACKED,
    AUTO,
    OPEN,
    OPEN_MAX,
    OPEN_MAX_MS,
    RETURNED,
    Sampler,
    Sampling,
)

START_MS = 1_700_000_000_000
PUBLISHED = (START_MS - 50, 1)


@pytest.fixture
def book() -> EventBook:
    made = EventBook()
    made.on = True
    made.now_ms = START_MS
    return made


@pytest.fixture
def sampler(book: EventBook) -> Sampler:
    sampling = Sampling(book, lambda _: PUBLISHED)
    sampling.left = 1_000_000
    return Sampler(sampling, "/", "orders")


def a_message(seq_id: int = 7) -> Message:
    message = Message(b"", b"", 0, 0)
    message.seq_id = seq_id
    message.enqueued_at_ms = START_MS - 30
    return message


def timings(book: EventBook) -> list[dict[str, Any]]:
    return [dict(zip(KINDS[kind], values, strict=True)) for _, kind, values, _ in book.take()]


def test_a_sample_is_told_when_it_is_settled(book: EventBook, sampler: Sampler) -> None:
    message, other = a_message(), a_message(8)
    sampler.take(message, 1, no_ack=False)
    assert message.flags & SAMPLED
    sampler.done([other], ACKED)
    assert timings(book) == []
    book.now_ms = START_MS + 200
    sampler.done([other, message], ACKED)
    assert timings(book) == [
        {
            "vhost": "/",
            "queue": "orders",
            "seq_id": 7,
            "every": 1,
            "published_at_ms": START_MS - 50,
            "precision_ms": 1,
            "enqueued_at_ms": START_MS - 30,
            "delivered_at_ms": START_MS,
            "settled_at_ms": START_MS + 200,
            "outcome": ACKED,
            "was_redelivered": False,
        }
    ]
    assert message.flags == 0
    assert len(sampler.open) == 0


def test_who_acknowledges_nothing_is_told_at_once(book: EventBook, sampler: Sampler) -> None:
    message = a_message()
    message.flags |= REDELIVERED
    sampler.take(message, 1, no_ack=True)
    (told,) = timings(book)
    assert (told["outcome"], told["settled_at_ms"], told["was_redelivered"]) == (AUTO, None, True)
    assert message.flags == REDELIVERED


def test_weights_add_up_to_what_was_delivered(book: EventBook, sampler: Sampler) -> None:
    sampler.begin(0, expected=1000, quota=10)
    delivered = 0
    for step in (1, 250, 3, 100, 646):
        delivered += step
        if delivered >= sampler.due:
            sampler.take(a_message(delivered), delivered, no_ack=True)
    told = timings(book)
    assert sum(one["every"] for one in told) == delivered
    assert len(told) < 5  # every hundredth: 1, 251, 354, 1000


def test_a_queue_that_becomes_faster_halves_its_share(book: EventBook, sampler: Sampler) -> None:
    sampler.begin(0, expected=0, quota=8)
    for delivered in range(1, 10_001):
        if delivered >= sampler.due:
            sampler.take(a_message(delivered), delivered, no_ack=True)
    told = timings(book)
    assert len(told) <= 8 * 11  # 8 at each share, and shares of 1, 2, 4, … 1024
    assert told[-1]["every"] >= 512


def test_the_nodes_share_is_never_exceeded(book: EventBook) -> None:
    sampling = Sampling(book, lambda _: (0, 0))
    sampling.left = 3
    sampler = Sampler(sampling, "/", "orders")
    sampler.begin(0, expected=0, quota=100)
    for delivered in range(1, 20):
        sampler.take(a_message(delivered), delivered, no_ack=True)
    told = timings(book)
    assert len(told) == 3
    assert told[0]["published_at_ms"] is None


def test_those_open_for_long_are_told_and_make_room(book: EventBook, sampler: Sampler) -> None:
    sampler.begin(0, expected=0, quota=1000)
    messages = [a_message(number) for number in range(OPEN_MAX + 1)]
    for number, message in enumerate(messages):
        sampler.take(message, number + 1, no_ack=False)
    assert len(sampler.open) == OPEN_MAX
    assert not messages[-1].flags & SAMPLED
    book.now_ms = START_MS + OPEN_MAX_MS
    sampler.take(messages[-1], OPEN_MAX + 2, no_ack=False)
    told = timings(book)
    assert len(told) == OPEN_MAX
    assert {one["outcome"] for one in told} == {OPEN}
    sampler.done(messages, RETURNED)
    (last,) = timings(book)
    assert (last["outcome"], last["every"]) == (RETURNED, 2)
