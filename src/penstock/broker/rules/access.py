"""Users, their passwords, and their limits.

Password hashes have RabbitMQ's form, so that definitions can move between the two:
base64 of a 4-byte salt followed by sha256(salt + password), or another of ``HASHINGS``.
"""

import base64
import hashlib
import hmac
from typing import Final, final

from mypy_extensions import i64

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
    """A name that may log in, with its tags and permissions."""

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
        self.deleted: bool = False  # sessions of this one end, at the next look at the clock
        self.rights_lost: i64 = 0  # how often rights were taken or changed: sessions look then

    def change(self, password_hash: str, hashing: str, tags: list[str]) -> None:
        self.password_hash = password_hash
        self.hashing = hashing
        self.tags = tags

    def delete(self) -> None:
        """Sessions that are there may do nothing more, and end soon."""
        self.deleted = True
        self.vhosts.clear()
        self.topics.clear()
        self.tags = []

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
        if password == "":
            return False
        salt = base64.b64decode(self.password_hash)[:SALT_BYTES]
        hashed = hash_password(password, salt, self.hashing)
        return hmac.compare_digest(hashed, self.password_hash)
