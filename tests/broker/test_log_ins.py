"""Refused log-ins: one answer, a delay that grows, events up to a bound."""

from __future__ import annotations

import pytest

from penstock.broker.rules import bounded_events as strangers
from penstock.broker.rules import log_ins
from penstock.broker.rules.access import User, hash_password
from penstock.broker.rules.judges import Source
from penstock.broker.rules.log_ins import RANGES, LogIns
from penstock.core.errors import AccessRefused, LoginRefused
from penstock.core.events.book import EventBook
from tests.helpers.sources import AFAR, HERE


@pytest.fixture
def book() -> EventBook:
    made = EventBook()
    made.on = True
    made.now_ms = 1_763_000_000_000
    return made


@pytest.fixture
def log(book: EventBook) -> LogIns:
    made = LogIns(book, ["guest"])
    made.users["guest"] = User("guest", hash_password("guest", b"salt"), [])
    return made


def refused(log: LogIns, name: str, password: str, source: Source = AFAR) -> tuple[str, int]:
    with pytest.raises(LoginRefused) as error:
        log.authenticate(name, password, source)
    return str(error.value), error.value.delay_ms


def values(book: EventBook) -> list[tuple[object, ...]]:
    return [values for _, _, values, _ in book.take()]


def test_the_answer_is_the_same_and_the_event_says_why(log: LogIns, book: EventBook) -> None:
    tries = (("guest", "guest"), ("guest", "wrong"), ("nobody", "guest"))
    assert {refused(log, *one) for one in tries} == {(log_ins.REFUSED, 0)}
    assert [one[3] for one in values(book)] == [log_ins.FAR, log_ins.FAR, log_ins.WRONG]
    assert log.authenticate("guest", "guest", HERE).name == "guest"
    assert log.counts()["http"] == (4, 3)
    assert log.counts()[RANGES] == (0, 0)
    log.forget_attempts()
    assert log.counts()["http"] == (0, 0)


def test_who_is_trusted_is_judged_by_the_place_as_well(log: LogIns) -> None:
    assert log.trust("guest", HERE).name == "guest"
    with pytest.raises(LoginRefused):
        log.trust("guest", AFAR)


def test_many_refusals_of_an_address_are_answered_late(log: LogIns, book: EventBook) -> None:
    delays = [refused(log, "x", "y")[1] for _ in range(log_ins.FREE_MAX + 2)]
    assert delays == [0] * log_ins.FREE_MAX + [log_ins.DELAY_MS] * 2
    assert refused(log, "x", "y", HERE)[1] == 0
    book.now_ms += strangers.WINDOW_MS
    assert refused(log, "x", "y")[1] == 0


def test_many_refusals_of_an_address_are_a_number(log: LogIns, book: EventBook) -> None:
    for _ in range(strangers.TOLD_MAX):
        refused(log, "noise", "x")
    assert len(values(book)) == strangers.TOLD_MAX
    for name in ("noise", "guest", "noise", "n" * 1000):
        refused(log, name, "x")
    refused(log, "guest", "x", HERE)
    assert [one[0] for one in values(book)] == [HERE.name]
    log.look()
    assert values(book) == []
    book.now_ms += strangers.WINDOW_MS
    log.look()
    assert values(book) == [(AFAR.address, 4, "noise, guest, " + "n" * strangers.EXAMPLE_MAX_CHARS)]


def test_a_clock_that_is_set_back_ends_the_minute(log: LogIns, book: EventBook) -> None:
    for _ in range(log_ins.FREE_MAX + 1):
        refused(log, "x", "y")
    book.now_ms -= 3_600_000
    assert refused(log, "x", "y")[1] == 0


def test_addresses_of_one_network_of_ipv6_share_a_count(log: LogIns) -> None:
    """A machine has 2^64 of them: each would have free guesses, and lines of the log."""
    delays = [
        refused(log, "x", "y", Source(RANGES, RANGES, f"2001:db8::{number:x}", False))[1]
        for number in range(log_ins.FREE_MAX + 2)
    ]
    assert delays == [0] * log_ins.FREE_MAX + [log_ins.DELAY_MS] * 2
    assert refused(log, "x", "y", Source(RANGES, RANGES, "2001:db8:0:1::1", False))[1] == 0


def test_the_table_of_addresses_is_bounded(log: LogIns, book: EventBook) -> None:
    for number in range(strangers.ADDRESSES_MAX + log_ins.FREE_MAX):
        source = Source(RANGES, RANGES, f"10.0.{number // 256}.{number % 256}", False)
        assert refused(log, "x", "y", source)[1] == 0
    assert refused(log, "x", "y", Source(RANGES, RANGES, "10.9.9.9", False))[1] == log_ins.DELAY_MS


def test_connections_that_fail_to_open_are_noted_within_bounds(
    log: LogIns, book: EventBook
) -> None:
    for number in range(strangers.TOLD_MAX + 9):
        log.opening_failed(AFAR, f"bad header {number // 10}")
    assert [one[2] for one in values(book)] == [f"bad header {n // 10}" for n in range(20)]
    assert refused(log, "x", "y")[1] == 0  # counted alone
    values(book)
    book.now_ms += strangers.WINDOW_MS
    log.look()
    assert values(book) == [(AFAR.address, 9, "bad header 2")]


def test_a_log_in_that_is_missing_is_noted_and_is_no_guess(log: LogIns, book: EventBook) -> None:
    for _ in range(log_ins.FREE_MAX):
        log.refuse(AFAR, "", AccessRefused("authentication is required"))
    assert values(book)[0] == (AFAR.name, "", "HTTP", "authentication is required")
    assert refused(log, "x", "y")[1] == 0
