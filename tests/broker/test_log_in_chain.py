"""A log-in walks the chain of backends: in order, in pairs, and at whatever pace they answer."""

from __future__ import annotations

import pytest

from penstock.broker.rules.access import User, hash_password
from penstock.broker.rules.judges import Judge, Question
from penstock.broker.rules.log_ins import FAR, InternalBackend, Link, LogIns
from penstock.broker.rules.rights import Rights, check_enter, open_to
from penstock.core.clock_types import WallMs
from penstock.core.errors import AccessRefused, LoginRefused, Undecided
from penstock.core.events.book import EventBook
from tests.helpers.slow_judge import SlowBackend, SlowJudge
from tests.helpers.sources import AFAR, HERE


@pytest.fixture
def book() -> EventBook:
    made = EventBook()
    made.on = True
    return made


@pytest.fixture
def users(book: EventBook) -> LogIns:
    made = LogIns(book, ["guest"])
    for name in ("guest", "ann", "own"):
        made.users[name] = User(name, hash_password("secret", b"salt"), ["management"])
    made.users["ann"].permit("/", "", "", "^mine$")
    return made


def why(book: EventBook) -> list[object]:
    return [values[3] for _, kind, values, _ in book.take() if kind == "login_refused"]


def test_backends_are_asked_in_order_until_one_knows(users: LogIns, book: EventBook) -> None:
    first, second = SlowBackend(name="first"), SlowBackend(name="second")
    own = InternalBackend(users.users, users.passwords)
    users.form([Link(first, first), Link(own, own), Link(second, second)])
    assert users.authenticate("own", "secret", HERE) is users.users["own"]
    assert (len(first.asked), len(second.asked)) == (1, 0)
    by_first = users.authenticate("ann", "secret", HERE)
    assert by_first is not users.users["ann"]
    assert by_first.judge is first.judge
    with pytest.raises(LoginRefused):
        users.authenticate("eve", "secret", HERE)
    assert why(book) == ["first says no; invalid credentials; second says no"]
    assert users.counts()["http"] == (3, 1)


def test_a_log_in_waits_for_its_backend_and_is_asked_once(users: LogIns) -> None:
    slow = SlowBackend()
    slow.holds = True
    users.form([Link(slow, slow)])
    log_in = users.begin("ann", "secret", HERE)
    for _ in range(3):
        with pytest.raises(Undecided) as undecided:
            log_in.user()
        assert not undecided.value.ticket.done
    slow.answer()
    assert undecided.value.ticket.done
    assert log_in.user() is log_in.user()
    assert len(slow.asked) == 1
    assert users.counts()["http"] == (1, 0)


def test_of_a_pair_one_checks_the_password_and_one_has_the_rights(users: LogIns) -> None:
    slow = SlowBackend()
    slow.tags, slow.expires_at_ms = ["administrator", "management"], WallMs(5000)
    own = InternalBackend(users.users, users.passwords)
    users.form([Link(slow, own)])
    user = users.authenticate("ann", "of the server", HERE)
    assert user.tags == ["administrator", "management"]
    assert (user.judge, user.expires_at_ms) == (None, 5000)
    Rights(user, "/").read("queue", "mine")
    with pytest.raises(AccessRefused):
        Rights(user, "/").read("queue", "yours")
    assert user.counted is users.users["ann"]
    users.users["ann"].forbid("/")
    with pytest.raises(AccessRefused):
        check_enter(user, "/")
    with pytest.raises(LoginRefused):
        users.authenticate("ann", "no", HERE)


def test_the_other_pair_has_the_password_checked_here(users: LogIns) -> None:
    slow = SlowBackend()
    users.form([Link(InternalBackend(users.users, users.passwords), slow)])
    assert users.authenticate("ann", "secret", HERE).judge is slow.judge
    assert slow.asked[0].vouched
    with pytest.raises(LoginRefused):
        users.authenticate("ann", "wrong", HERE)
    assert len(slow.asked) == 1


def test_a_loopback_user_is_refused_before_any_backend(users: LogIns, book: EventBook) -> None:
    slow = SlowBackend()
    users.form([Link(slow, slow)])
    with pytest.raises(LoginRefused):
        users.authenticate("guest", "secret", AFAR)
    assert (why(book), slow.asked) == ([FAR], [])


def test_internal_loopback_lets_in_from_here_only(users: LogIns) -> None:
    own = InternalBackend(users.users, users.passwords, loopback_only=True)
    users.form([Link(own, own)])
    assert users.authenticate("own", "secret", HERE).name == "own"
    with pytest.raises(LoginRefused):
        users.authenticate("own", "secret", AFAR)


def test_no_backend_lets_nobody_in_and_no_judge_allows_nothing(users: LogIns) -> None:
    users.form([])
    with pytest.raises(LoginRefused):
        users.authenticate("own", "secret", HERE)
    with pytest.raises(AccessRefused):
        Judge().check(Question("queue", "/", "q"))


def test_all_virtual_hosts_are_asked_for_at_once() -> None:
    judge = SlowJudge()
    judge.holds = True
    judge.denied = {("vhost", "")}
    slow = SlowBackend(judge)
    users = LogIns(EventBook(), [])
    users.form([Link(slow, slow)])
    user = users.authenticate("ann", "x", HERE)
    with pytest.raises(Undecided):
        open_to(user, ["a", "b", "c"])
    assert [question.vhost for question in judge.asked] == ["a", "b", "c"]
    assert {question.address for question in judge.asked} == {HERE.address}
    judge.answer()
    assert open_to(user, ["a", "b", "c"]) == []
    judge.denied = set()
    assert open_to(user, ["a", "b", "c"]) == ["a", "b", "c"]
