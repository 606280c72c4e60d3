"""Users, their passwords, and their limits.

Password hashes have RabbitMQ's form, so that definitions can move between the two:
base64 of a 4-byte salt followed by sha256(salt + password), or another of ``HASHINGS``.  With the
setting ``password_hashing`` they are scrypt's, which RabbitMQ does not know.

While a password is rotated a user has two.  Their hashes are one text then, the newer first, with a
blank between, and so are the names of their hashings: where users are kept and agreed on, a user
is the same record with one password or two.
"""

import base64
import hashlib
import hmac
from typing import Final, NamedTuple, final

from mypy_extensions import i64

from penstock.broker.rules.judges import Account, Judge
from penstock.core.clock_types import MonoMs, WallMs

HASHING: Final = "rabbit_password_hashing_sha256"
HASHINGS: Final = {
    HASHING: "sha256",
    "rabbit_password_hashing_sha512": "sha512",
    "rabbit_password_hashing_md5": "md5",
}
"""What RabbitMQ's users may have been hashed with; ours are hashed with the first, or with
``SCRYPT``, which RabbitMQ does not import.
"""
SCRYPT: Final = "penstock_password_hashing_scrypt"
KNOWN_HASHINGS: Final = (*HASHINGS, SCRYPT)
SALT_BYTES: Final = 4
SALTS_BYTES: Final = {SCRYPT: 16}
"""By hashing, where it is another number."""
NO_LIMIT: Final[i64] = -1
"""As a number of connections, channels or queues: as many as come."""


def hash_password(password: str, salt: bytes, algorithm: str = HASHING) -> str:
    """A salted hash; ``salt`` has 4 bytes, of ``SCRYPT`` 16.  That one takes 0.2 s and 16 MB."""
    given = password.encode("utf-8", "surrogateescape")
    if algorithm == SCRYPT:
        digest = hashlib.scrypt(given, salt=salt, n=1 << 14, r=8, p=5, maxmem=1 << 26, dklen=32)
    else:
        digest = hashlib.new(HASHINGS[algorithm], salt + given, usedforsecurity=True).digest()
    return base64.b64encode(salt + digest).decode()


class PasswordHash(NamedTuple):
    """One password of a user."""

    text: str
    hashing: str


def hashes_in(password_hash: str, hashing: str) -> list[PasswordHash]:
    """The newer first; one that is empty is no password."""
    texts, hashings = password_hash.split(" "), hashing.split(" ")
    return [PasswordHash(*one) for one in zip(texts, hashings, strict=True)]


def joined(hashes: list[PasswordHash]) -> PasswordHash:
    """What ``hashes_in`` reads."""
    return PasswordHash(*(" ".join(one) for one in zip(*hashes, strict=True)))


def is_password(password: str, password_hash: str, hashing: str) -> bool:
    """Is the hash that of the password?  Never of the empty one."""
    if password == "":
        return False
    salt = base64.b64decode(password_hash)[: SALTS_BYTES.get(hashing, SALT_BYTES)]
    return hmac.compare_digest(hash_password(password, salt, hashing), password_hash)


@final
class User:
    """A name that may log in, with its tags and permissions.

    A user of the broker's own is one object for all its sessions.  A user of another backend is one
    for each log-in: ``judge`` says what it may, until ``expires_at_ms`` (0 = for ever), and
    ``own`` is the broker's own user in whose name it acts, if a chain of backends ends there.
    """

    def __init__(
        self,
        name: str,
        password_hash: str,
        tags: list[str],
        hashing: str = HASHING,
        account: Account | None = None,
        address: str = "",
    ) -> None:
        self.name = name
        self.password_hash = password_hash
        self.hashing = hashing
        self.tags = tags
        self.password_used: dict[str, WallMs] = {}  # when each was last used, by hash
        self.passwords_lost: i64 = 0  # how often one was changed or taken
        self._renewal = ("", "")  # a hash, and another one of the same password
        self.vhosts: dict[str, tuple[str, str, str]] = {}  # configure, write, read patterns
        # By virtual host and exchange: write and read patterns of routing keys.
        self.topics: dict[tuple[str, str], tuple[str, str]] = {}
        self.address: Final = address  # of a log-in
        self.issuer: Final = "" if account is None else account.issuer  # of its token
        self.judge: Judge | None = None
        self.expires_at_ms = WallMs(0)
        self.own: Final[User | None] = None if account is None else account.user
        if account is not None:
            self.judge = account.judge
            self.expires_at_ms = account.expires_at_ms
        if self.own is not None:
            self.vhosts = self.own.vhosts
            self.topics = self.own.topics
        self.max_connections: i64 = NO_LIMIT
        self.max_channels: i64 = NO_LIMIT
        self.connection_count: i64 = 0
        self.channel_count: i64 = 0
        self.deleted: bool = False  # sessions of this one end, at the next look at the clock
        self.rights_lost: i64 = 0  # how often rights were taken or changed: sessions look then

    def change(self, password_hash: str, hashing: str, tags: list[str]) -> None:
        here = [one.text for one in hashes_in(password_hash, hashing)]
        gone = [one.text for one in self.hashes if one.text not in here]
        if gone and not (gone == [self._renewal[0]] and self._renewal[1] in here):
            self.passwords_lost += 1
        if not set(self.tags) <= set(tags):
            self.rights_lost += 1
        self.password_hash = password_hash
        self.hashing = hashing
        self.tags = tags
        self.password_used = {text: at for text, at in self.password_used.items() if text in here}

    @property
    def hashes(self) -> list[PasswordHash]:
        """Of its passwords, the newer first."""
        return hashes_in(self.password_hash, self.hashing)

    def renew_hash(self, before: str, after: str) -> None:
        """A change that puts ``after`` in the place of ``before`` changes no password."""
        self._renewal = (before, after)

    def use_password(self, text: str, now_ms: WallMs) -> None:
        """A log-in with the password of that hash; "" = of none that is known."""
        if text != "":
            self.password_used[text] = now_ms

    def delete(self) -> None:
        """Sessions that are there may do nothing more, and end soon."""
        self.deleted = True
        self.vhosts.clear()
        self.topics.clear()
        self.tags = []

    @property
    def counted(self) -> "User":
        """The user whose limits hold, and whose lost rights are counted."""
        return self if self.own is None else self.own

    def renew(self, account: Account) -> None:
        """The backend has seen a new secret; what rests on the old one is judged anew."""
        self.tags = account.tags
        self.judge = account.judge
        self.expires_at_ms = account.expires_at_ms
        self.rights_lost += 1

    def has_expired(self, now_ms: WallMs) -> bool:
        return 0 < self.expires_at_ms <= now_ms

    def look(self, now_ms: MonoMs) -> None:
        """Once a second: its backend may have other answers by now."""
        judge = self.judge
        if judge is not None and judge.look(now_ms):
            self.rights_lost += 1

    def limit(self, name: str, value: i64) -> None:
        if name == "max-connections":
            self.max_connections = value
        else:
            self.max_channels = value

    def count_connection(self, more: i64) -> None:
        self.connection_count += more

    def count_channel(self, more: i64) -> None:
        self.channel_count += more

    def permit(self, vhost: str, configure: str, write: str, read: str) -> None:
        self.vhosts[vhost] = (configure, write, read)
        self.rights_lost += 1

    def forbid(self, vhost: str) -> None:
        self.vhosts.pop(vhost, None)
        self.rights_lost += 1

    @property
    def may_impersonate(self) -> bool:
        """May publish with another user's name in ``user-id``."""
        return "impersonator" in self.tags

    def has_password(self, password: str) -> bool:
        """Never the empty one, as in RabbitMQ, whatever the hash."""
        return any(is_password(password, *one) for one in self.hashes)
