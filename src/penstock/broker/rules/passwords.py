"""``Passwords``: how the broker's own passwords are hashed, checked and judged.

    a new password ─► check (a rule of the administrator) ─► hashed, by the setting
    a log-in ─► verify ─► at once (a hash of RabbitMQ's), or in a worker thread (scrypt)
                     └─► the hash is an older one than the setting's: a new one is made later

scrypt takes a fifth of a second and 16 MB on purpose, so it never runs on the data loop: ``run`` is
the worker's.  A password that was right is known from then on by a keyed digest that stays in
memory: clients that log in with each request (HTTP) wait for their first only.
"""

import hashlib
import hmac
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, final

from penstock.broker.rules.access import (
    HASHING,
    SALT_BYTES,
    SALTS_BYTES,
    SCRYPT,
    User,
    hash_password,
    is_password,
)
from penstock.core import patterns
from penstock.core.errors import PreconditionFailed

MIN_LENGTH: Final = "min_password_length"
REGEXP: Final = "password_regexp"
KNOWN_MAX: Final = 10_000


Run = Callable[[Callable[[], None], Callable[[], None]], None]
"""The first function in a worker thread, or the second one where that has too much to do."""


def at_once(work: Callable[[], None], _give_up: Callable[[], None]) -> None:
    work()


def later() -> None:
    """It was given up: the hash is renewed at another log-in."""


class PasswordRule(NamedTuple):
    """What a new password has to be like; ``kind``: "" = anything, MIN_LENGTH or REGEXP."""

    kind: str = ""
    min_length: int = 8
    regexp: str = ""

    def check(self, password: str) -> None:
        """Raises PreconditionFailed, in RabbitMQ's words; the length is one of bytes."""
        if self.kind == MIN_LENGTH and len(password.encode()) < self.min_length:
            raise PreconditionFailed(f"minimum required password length is {self.min_length}")
        if self.kind == REGEXP and not patterns.found(self.regexp, password):
            raise PreconditionFailed(
                "provided password does not match the validator regular expression"
            )


ANYTHING: Final = PasswordRule()


class Renewed(NamedTuple):
    """A user whose password was right and has a new hash; ``before``: the one it takes over."""

    name: str
    before: str
    password_hash: str


@final
class Passwords:
    """Of one node.  ``new_salt``: so many random bytes."""

    def __init__(
        self,
        rule: PasswordRule = ANYTHING,
        hashing: str = HASHING,
        run: Run = at_once,
        new_salt: Callable[[int], bytes] = bytes,
    ) -> None:
        self.rule: Final = rule
        self.hashing: Final = hashing
        self._run: Final = run
        self._new_salt: Final = new_salt
        self._key: Final = new_salt(32)
        self._known: dict[str, bytes] = {}  # hash of a user ─► digest of the password
        self._renewed: deque[Renewed] = deque()  # the worker appends

    def verify(self, user: User | None, password: str, tell: Callable[[bool | None], None]) -> None:
        """``tell`` whether it is the user's: now, or later in the worker; None: it is too busy.

        An unknown user takes as long as one with one password, so that the time tells no names.
        """
        if user is None:
            if self.hashing == SCRYPT:
                self._run(lambda: tell(self._waste(password)), lambda: tell(None))
            else:
                tell(False)
            return
        slow: list[str] = []
        for one in user.hashes:
            if one.hashing == SCRYPT and not self._is_known(one.text, password):
                slow.append(one.text)
            elif one.hashing == SCRYPT or is_password(password, *one):
                if one.hashing != SCRYPT and self.hashing == SCRYPT:
                    self._run(partial(self._renew, user.name, one.text, password), later)
                tell(True)
                return
        if slow:
            self._run(
                lambda: tell(any(self._verify(text, password) for text in slow)),
                lambda: tell(None),
            )
        else:
            tell(False)

    def used(self, user: User, password: str) -> str:
        """The hash of the one that has just been right; "" = it is not known any more."""
        for one in user.hashes:
            if one.hashing == SCRYPT:
                is_right = self._is_known(one.text, password)
            else:
                is_right = is_password(password, *one)
            if is_right:
                return one.text
        return ""

    def hashed(self, password: str) -> str:
        """Of a new password, by the setting; may take a fifth of a second."""
        salt = self._new_salt(SALTS_BYTES.get(self.hashing, SALT_BYTES))
        return hash_password(password, salt, self.hashing)

    def take_renewed(self) -> list[Renewed]:
        """Hashes that were made since the last time, for the data loop to keep."""
        return [self._renewed.popleft() for _ in range(len(self._renewed))]

    def _waste(self, password: str) -> bool:
        hash_password(password, bytes(SALTS_BYTES[SCRYPT]), SCRYPT)
        return False

    def _renew(self, name: str, before: str, password: str) -> None:
        self._renewed.append(Renewed(name, before, self.hashed(password)))

    def _verify(self, password_hash: str, password: str) -> bool:
        # It may have become known while this waited for the worker.
        if self._is_known(password_hash, password):
            return True
        if not is_password(password, password_hash, SCRYPT):
            return False
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        self._known[password_hash] = self._digest(password)
        return True

    def _is_known(self, password_hash: str, password: str) -> bool:
        known = self._known.get(password_hash)
        return known is not None and hmac.compare_digest(known, self._digest(password))

    def _digest(self, password: str) -> bytes:
        given = password.encode("utf-8", "surrogateescape")
        return hmac.new(self._key, given, hashlib.sha256).digest()
