"""Users, passwords, what each of them may have at a time, and who may log in.

Password hashes have RabbitMQ's form, so that definitions can move between the two:
base64 of a 4-byte salt followed by sha256(salt + password), or another of ``HASHINGS``.
"""

import base64
import hashlib
import hmac
from typing import Final, final

from mypy_extensions import i64

from penstock.core.errors import AccessRefused

HASHING: Final = "rabbit_password_hashing_sha256"
HASHINGS: Final = {
    HASHING: "sha256",
    "rabbit_password_hashing_sha512": "sha512",
    "rabbit_password_hashing_md5": "md5",
}
"""What RabbitMQ's users may have been hashed with; ours are hashed with the first."""
SALT_BYTES: Final = 4
NO_LIMIT: Final[i64] = -1
"""As a number of connections, channels or queues: as many as come."""


def hash_password(password: str, salt: bytes, algorithm: str = HASHING) -> str:
    """RabbitMQ's salted hash; ``salt`` has 4 bytes."""
    salted = salt + password.encode("utf-8", "surrogateescape")
    digest = hashlib.new(HASHINGS[algorithm], salted, usedforsecurity=True).digest()
    return base64.b64encode(salt + digest).decode()


@final
class User:
    """Somebody who may log in."""

    def __init__(
        self, name: str, password_hash: str, tags: list[str], hashing: str = HASHING
    ) -> None:
        self.name = name
        self.password_hash = password_hash
        self.hashing = hashing
        self.tags = tags
        self.vhosts: dict[str, tuple[str, str, str]] = {}  # configure, write, read patterns
        # By virtual host and exchange: write and read patterns of routing keys.
        self.topics: dict[tuple[str, str], tuple[str, str]] = {}
        self.max_connections: i64 = NO_LIMIT
        self.max_channels: i64 = NO_LIMIT
        self.connection_count: i64 = 0
        self.channel_count: i64 = 0

    @property
    def may_impersonate(self) -> bool:
        """May publish with somebody else's name in ``user-id``."""
        return "impersonator" in self.tags

    def has_password(self, password: str) -> bool:
        salt = base64.b64decode(self.password_hash)[:SALT_BYTES]
        hashed = hash_password(password, salt, self.hashing)
        return hmac.compare_digest(hashed, self.password_hash)


@final
class UserRegistry:
    """All users, and the one place where a login is judged."""

    def __init__(self, loopback_users: list[str]) -> None:
        self.users: dict[str, User] = {}
        self.attempt_count: i64 = 0  # log-ins, those that failed among them
        self.failed_count: i64 = 0
        self._loopback_users = loopback_users

    def forget_attempts(self) -> None:
        self.attempt_count = 0
        self.failed_count = 0

    def authenticate(self, name: str, password: str, peer_is_loopback: bool) -> User:
        """Raises AccessRefused; the text never says which of name and password was wrong."""
        user = self.users.get(name)
        known = user is not None and user.has_password(password)
        return self._judged(user if known else None, peer_is_loopback)

    def trust(self, name: str, peer_is_loopback: bool) -> User:
        """Somebody else has made sure who it is; raises AccessRefused all the same."""
        return self._judged(self.users.get(name), peer_is_loopback)

    def _judged(self, user: User | None, peer_is_loopback: bool) -> User:
        """None = it is nobody whom we know."""
        self.attempt_count += 1
        if user is not None and (peer_is_loopback or user.name not in self._loopback_users):
            return user
        self.failed_count += 1
        if user is None:
            raise AccessRefused("Login was refused")
        raise AccessRefused(f"user '{user.name}' can only log in via localhost")
