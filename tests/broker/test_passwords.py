"""Hashes of the broker's own passwords: slow ones off the loop, older ones renewed, rules."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.broker.rules.access import (
    HASHING,
    SCRYPT,
    PasswordHash,
    User,
    hash_password,
    joined,
)
from penstock.broker.rules.judges import Source
from penstock.broker.rules.log_ins import LogIns
from penstock.broker.rules.passwords import MIN_LENGTH, REGEXP, PasswordRule, Passwords
from penstock.core.clock_types import WallMs
from penstock.core.errors import LoginRefused, PreconditionFailed, Undecided
from penstock.core.events.book import EventBook

HERE = Source("http", "HTTP", "127.0.0.1", is_local=True)
SALT = b"sixteen bytes of"
HASHED = hash_password("right", SALT, SCRYPT)


class Worker:
    """A worker that calculates a hash when the test calls it."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []
        self.is_full = False

    def take(self, work: Callable[[], None], give_up: Callable[[], None]) -> None:
        if self.is_full:
            give_up()
        else:
            self.waiting.append(work)

    def work(self) -> int:
        waiting, self.waiting = self.waiting, []
        for one in waiting:
            one()
        return len(waiting)


def made(hashing: str = SCRYPT) -> tuple[LogIns, Worker]:
    """With the users new (scrypt) and old (SHA-256), whose password is "right"."""
    worker = Worker()
    passwords = Passwords(hashing=hashing, run=worker.take)
    users = LogIns(EventBook(), [], passwords=passwords)
    users.users["new"] = User("new", HASHED, [], SCRYPT)
    users.users["old"] = User("old", hash_password("right", b"salt"), [], HASHING)
    return users, worker


@pytest.mark.parametrize("name, is_right", [("new", True), ("new", False), ("stranger", True)])
def test_a_slow_hash_is_the_workers(name: str, is_right: bool) -> None:
    """A name that is not there takes as long."""
    users, worker = made()
    log_in = users.begin(name, "right" if is_right else "wrong", HERE)
    with pytest.raises(Undecided):
        log_in.user()
    assert worker.work() == 1
    if name == "new" and is_right:
        assert log_in.user().name == "new"
    else:
        with pytest.raises(LoginRefused):
            log_in.user()


def test_who_was_right_once_does_not_wait_again() -> None:
    users, worker = made()
    first, second = (users.begin("new", "right", HERE) for _ in range(2))
    for one in (first, second):
        with pytest.raises(Undecided):
            one.user()
    worker.work()
    assert first.user() is second.user()
    assert users.authenticate("new", "right", HERE).name == "new"
    with pytest.raises(Undecided):
        users.authenticate("new", "wrong", HERE)
    users.users["new"].change(hash_password("other", SALT, SCRYPT), SCRYPT, [])
    with pytest.raises(Undecided):
        users.authenticate("new", "right", HERE)


@pytest.mark.parametrize("name", ["new", "stranger"])
def test_a_log_in_is_refused_when_too_many_wait(name: str) -> None:
    users, worker = made()
    worker.is_full = True
    with pytest.raises(LoginRefused):
        users.authenticate(name, "right", HERE)
    assert worker.waiting == []


def test_an_empty_password_is_none() -> None:
    users, worker = made()
    users.users["new"].change(hash_password("", SALT, SCRYPT), SCRYPT, [])
    log_in = users.begin("new", "", HERE)
    with pytest.raises(Undecided):
        log_in.user()
    worker.work()
    with pytest.raises(LoginRefused):
        log_in.user()


def test_an_older_hash_is_renewed_at_a_log_in_and_only_then() -> None:
    users, worker = made()
    with pytest.raises(LoginRefused):
        users.authenticate("old", "wrong", HERE)
    assert worker.waiting == []
    before = users.users["old"].password_hash
    assert users.authenticate("old", "right", HERE).name == "old"
    assert worker.work() == 1
    made_anew = hash_password("right", bytes(16), SCRYPT)
    assert users.passwords.take_renewed() == [("old", before, made_anew)]
    assert users.passwords.take_renewed() == []


@pytest.mark.parametrize("hashing", [HASHING, "rabbit_password_hashing_sha512"])
def test_without_the_setting_hashes_stay(hashing: str) -> None:
    users, worker = made(hashing)
    assert users.authenticate("old", "right", HERE).name == "old"
    assert worker.waiting == []
    with pytest.raises(LoginRefused):
        users.authenticate("stranger", "right", HERE)


def test_rules() -> None:
    """In RabbitMQ's words; a length is one of bytes."""
    PasswordRule().check("")
    length = PasswordRule(MIN_LENGTH, 6)
    length.check("sechsé")
    with pytest.raises(PreconditionFailed, match="minimum required password length is 6"):
        length.check("seven")
    expression = PasswordRule(REGEXP, regexp="^[a-z]{4,}[0-9]$")
    expression.check("four4")
    with pytest.raises(PreconditionFailed, match="does not match the validator"):
        expression.check("four")


# -- two passwords of one user ---------------------------------------------------------------------


@pytest.mark.parametrize("newer", [HASHING, SCRYPT])
@pytest.mark.parametrize("older", [HASHING, SCRYPT])
def test_both_passwords_log_in_and_each_has_its_time(newer: str, older: str) -> None:
    users, worker = made(HASHING)
    hashes = [
        PasswordHash(hash_password(text, SALT if of == SCRYPT else SALT[:4], of), of)
        for text, of in (("next", newer), ("right", older))
    ]
    ann = users.users["ann"] = User("ann", joined(hashes).text, [], joined(hashes).hashing)
    assert ann.hashes == hashes
    for at_ms, text in ((1, "right"), (2, "next"), (3, "wrong")):
        users._events.now_ms = WallMs(at_ms)
        log_in = users.begin("ann", text, HERE)
        try:
            found = log_in.user()
        except Undecided:
            worker.work()
            found = None
        except LoginRefused:
            assert text == "wrong"
            continue
        if text == "wrong":
            with pytest.raises(LoginRefused):
                log_in.user()
        else:
            assert (found or log_in.user()) is ann
    assert ann.password_used == {hashes[1].text: 1, hashes[0].text: 2}
    ann.change(*hashes[0], [])
    assert ann.password_used == {hashes[0].text: 2}


def test_an_old_hash_of_two_is_renewed() -> None:
    users, worker = made()
    sha = PasswordHash(hash_password("right", b"salt"), HASHING)
    users.users["ann"] = User("ann", f"{HASHED} {sha.text}", [], f"{SCRYPT} {HASHING}")
    assert users.authenticate("ann", "right", HERE).name == "ann"
    worker.work()
    assert [one.before for one in users.passwords.take_renewed()] == [sha.text]
