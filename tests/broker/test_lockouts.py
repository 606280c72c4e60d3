"""Lock-outs: after wrong passwords, of a user at one address or everywhere, within bounds."""

from __future__ import annotations

import pytest

from penstock.broker.rules.access import User, hash_password
from penstock.broker.rules.judges import NAMELESS, Backend, Credentials, Inquiry, Source
from penstock.broker.rules.lockouts import (
    COUNTED_MAX,
    LOCKED_MAX,
    NEWS_MAX,
    LockoutRule,
    Lockouts,
)
from penstock.broker.rules.log_ins import LOCKED_OUT, InternalBackend, Link, LogIns
from penstock.core.byte_reader import Malformed
from penstock.core.clock_types import WallMs
from penstock.core.errors import LoginRefused
from penstock.core.events.book import EventBook
from penstock.protocols.peers.codec.mirrors import decode_news, encode_news
from penstock.settings.entry import OF_ADDRESS, OF_USER, OFF
from tests.helpers.sources import AFAR

NEAR = Source("amqp091", "PLAIN", "10.0.0.1", is_local=False)
RULE = LockoutRule(OF_ADDRESS, 3, 60_000, 10_000)


@pytest.fixture
def book() -> EventBook:
    made = EventBook()
    made.on = True
    made.now_ms = WallMs(1_763_000_000_000)
    return made


def log_ins(book: EventBook, rule: LockoutRule) -> LogIns:
    made = LogIns(book, [], lockouts=rule)
    for name in ("ann", "bob"):
        made.users[name] = User(name, hash_password("right", b"salt"), [])
    return made


def is_refused(log: LogIns, password: str, source: Source = AFAR, name: str = "ann") -> bool:
    try:
        log.authenticate(name, password, source)
    except LoginRefused as error:
        return str(error) == "Login was refused"
    return False


def kinds(book: EventBook) -> list[str]:
    return [kind for _, kind, _, _ in book.take()]


def test_a_user_is_locked_out_at_that_address_only(book: EventBook) -> None:
    log = log_ins(book, RULE)
    for _ in range(3):
        assert is_refused(log, "wrong")
    assert is_refused(log, "right"), "locked out"
    assert not is_refused(log, "right", NEAR), "the owner is elsewhere"
    assert not is_refused(log, "right", name="bob")
    events = book.take()
    (locked,) = [event for event in events if event[1] == "login_locked_out"]
    assert (locked[2], locked[3].user) == (("ann", AFAR.address, 10), "ann")
    assert [event[2][3] for event in events if event[1] == "login_refused"][-1] == LOCKED_OUT
    assert log.entry.counts["lockout"] == 1
    assert [one.user for one in log.lockouts()] == ["ann"]
    book.now_ms = WallMs(book.now_ms + 10_000)
    assert log.lockouts() == []
    assert not is_refused(log, "right")


def test_the_operator_may_have_a_user_locked_out_everywhere(book: EventBook) -> None:
    log = log_ins(book, RULE._replace(scope=OF_USER))
    for source in (AFAR, AFAR, NEAR):
        assert is_refused(log, "wrong", source)
    assert is_refused(log, "right")
    assert is_refused(log, "right", NEAR)
    assert not is_refused(log, "right", name="bob")
    assert log.trust("ann", NEAR).name == "ann", "a certificate, a session: no password"


def test_a_lockout_is_ended_by_hand(book: EventBook) -> None:
    log = log_ins(book, RULE)
    for source in (AFAR, NEAR):
        for _ in range(3):
            assert is_refused(log, "wrong", source)
    assert (log.end_lockouts("bob"), log.end_lockouts("ann")) == (0, 2)
    assert kinds(book)[-2:] == ["login_unlocked", "login_unlocked"]
    assert not is_refused(log, "right")


def test_what_is_refused_meanwhile_makes_it_no_longer(book: EventBook) -> None:
    log = log_ins(book, RULE)
    for _ in range(9):
        assert is_refused(log, "wrong")
        book.now_ms = WallMs(book.now_ms + 1_000)
    book.now_ms = WallMs(book.now_ms + 3_000)  # 10 s after the third
    assert not is_refused(log, "right")


@pytest.mark.parametrize("between_ms, password", [(30_000, "wrong"), (0, "right")])
def test_only_wrong_ones_within_the_window_count(
    book: EventBook, between_ms: int, password: str
) -> None:
    log = log_ins(book, RULE)
    for _ in range(6):
        is_refused(log, "wrong")
        book.now_ms = WallMs(book.now_ms + between_ms)
        is_refused(log, password)
        book.now_ms = WallMs(book.now_ms + between_ms)
    assert "login_locked_out" not in kinds(book)


def test_it_is_off_unless_it_is_asked_for(book: EventBook) -> None:
    log = log_ins(book, LockoutRule())
    assert all(is_refused(log, "wrong") for _ in range(50))
    assert not is_refused(log, "right")


def test_bad_tokens_lock_no_other_tokens_out(book: EventBook) -> None:
    log = log_ins(book, RULE._replace(scope=OF_USER))
    for name in ("", NAMELESS):
        assert all(is_refused(log, "wrong", name=name) for _ in range(5))
    assert log.lockouts() == []


def test_memory_is_bounded_and_the_oldest_make_room() -> None:
    made, now_ms = Lockouts(RULE._replace(failures=2)), WallMs(1_000)
    made.failed("ann", "10.0.0.1", now_ms)
    for number in range(COUNTED_MAX):
        made.failed(f"x{number}", "10.0.0.1", now_ms)
    assert made.failed("ann", "10.0.0.1", now_ms) is None, "the first failure is forgotten"
    for number in range(LOCKED_MAX + 1):
        for _ in range(2):
            made.failed(f"y{number}", "10.0.0.1", now_ms)
    locked = made.all(now_ms)
    assert (len(locked), locked[0].user) == (LOCKED_MAX, "y1")


def test_addresses_of_one_network_of_ipv6_are_one() -> None:
    made, now_ms = Lockouts(RULE), WallMs(1_000)
    for number in range(3):
        made.failed("ann", f"2001:db8::{number}", now_ms)
    assert made.is_locked("ann", "2001:db8::ffff", now_ms)
    assert not made.is_locked("ann", "2001:db8:0:1::1", now_ms)


def test_nodes_count_together(book: EventBook) -> None:
    """A client that goes from node to node has no more tries than at one."""
    nodes = [log_ins(book, RULE), log_ins(book, RULE)]

    def tell() -> None:
        said = [node.take_news() for node in nodes]
        for node, news in zip(nodes, reversed(said), strict=True):
            node.hear(news)

    for tries in range(3):
        assert is_refused(nodes[tries % 2], "wrong")
        tell()
    for node in nodes:
        assert is_refused(node, "right"), "locked out"
        assert not is_refused(node, "right", NEAR)
    assert kinds(book).count("login_locked_out") == 2, "each says so"
    tell()
    assert [node.take_news() for node in nodes] == [[], []], "what was heard is not passed on"

    assert nodes[0].end_lockouts("ann") == 1
    tell()
    assert not is_refused(nodes[1], "right")
    assert kinds(book).count("login_unlocked") == 2


def test_the_right_password_is_heard_too(book: EventBook) -> None:
    nodes = [log_ins(book, RULE), log_ins(book, RULE)]
    for _ in range(2):
        assert is_refused(nodes[0], "wrong")
    nodes[1].hear(nodes[0].take_news())
    assert not is_refused(nodes[0], "right")
    nodes[1].hear(nodes[0].take_news())
    assert is_refused(nodes[1], "wrong")
    assert not is_refused(nodes[1], "right"), "the count began anew"


def test_news_have_a_bound_and_a_node_without_lockouts_tells_none(book: EventBook) -> None:
    log = Lockouts(RULE)
    for number in range(NEWS_MAX + 5):
        log.failed(f"user{number}", "1.2.3.4", WallMs(0))
    news = log.take_news()
    assert len(news) == NEWS_MAX
    assert news[-1].user == f"user{NEWS_MAX + 4}"
    off = Lockouts(RULE._replace(scope=OFF))
    off.failed("ann", "1.2.3.4", WallMs(0))
    off.end("ann", WallMs(0))
    assert off.take_news() == []
    assert off.hear(news[0], WallMs(0)) == (None, [])


def test_what_nodes_say_of_it_is_read_back(book: EventBook) -> None:
    news = [(0, "ann\udcff", "1.2.3.4"), (2, "", ""), (1, "ü" * 100, "fe80::/64")]
    data = encode_news(news)
    assert decode_news(data) == news
    with pytest.raises(Malformed):
        decode_news(data[:-1])


# -- backends that cannot say ------------------------------------------------------------------


class Away(Backend):
    """A backend whose server cannot be asked."""

    name = "away"

    def authenticate(self, asked: Credentials) -> Inquiry:
        inquiry = Inquiry()
        inquiry.give_up("away")
        return inquiry


@pytest.mark.parametrize("name, is_counted", [("elsewhere", False), ("ann", True)])
def test_a_backend_that_cannot_say_locks_no_user_out(
    book: EventBook, name: str, is_counted: bool
) -> None:
    """But who guesses the password of a user of the broker's own is counted, also then."""
    log = log_ins(book, RULE)
    own = InternalBackend(log.users, log.passwords)
    away = Away()
    log.form([Link(own, own), Link(away, away)])
    for _ in range(3):
        assert is_refused(log, "wrong", name=name)
    assert bool(log.lockouts()) is is_counted
