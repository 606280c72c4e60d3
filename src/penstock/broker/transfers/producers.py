"""``Producers``: the producers of batches that a node remembers.

They are ordered by their last message.  Every batch write without a name is one more producer, so
producers must not fill the table; and a batch of a forgotten producer is published twice when it
comes again.  So that no user pays for another, a user has at most ``OF_USER_MAX``, and the user
with the most producers loses one when there are ``PRODUCERS_MAX``.
"""

from collections.abc import Iterator
from typing import Final, final

from penstock.core.clock_types import WallMs
from penstock.storage.definitions.definitions import Definitions
from penstock.storage.definitions.staging import ProducerRecord

PRODUCERS_MAX: Final = 100_000
OF_USER_MAX: Final = 20_000

Key = tuple[str, str, str]
"""(virtual host, user, producer): no user meets the producers of another one."""


@final
class Producers:
    """``known`` and the lists of users have the one whose last word is the longest ago first."""

    def __init__(self, definitions: Definitions) -> None:
        self.known: dict[Key, ProducerRecord] = {}
        self._of_users: dict[str, dict[Key, bool]] = {}
        self._definitions = definitions

    def load(self, producer: ProducerRecord) -> None:
        """As the definitions remember it; those come in order."""
        key = (producer.vhost, producer.user, producer.producer)
        self.known[key] = producer
        self._of_users.setdefault(producer.user, {})[key] = True

    def put(self, producer: ProducerRecord) -> None:
        """It is new, or has changed: of all it is the one seen last."""
        key = (producer.vhost, producer.user, producer.producer)
        if self.known.pop(key, None) is not None:
            del self._of_users[producer.user][key]
        self.load(producer)
        self._definitions.staging.put_producer(producer)

    def forget(self, key: Key) -> None:
        producer = self.known.pop(key)
        mine = self._of_users[producer.user]
        del mine[key]
        if not mine:
            del self._of_users[producer.user]
        self._definitions.staging.delete_producer(producer)

    def surplus(self, user: str) -> Iterator[Key]:
        """Those of which one is to go before ``user`` gets one more; the oldest first."""
        if len(self._of_users.get(user, ())) >= OF_USER_MAX:
            return iter(self._of_users[user])
        if len(self.known) >= PRODUCERS_MAX:
            most = max(self._of_users, key=lambda one: len(self._of_users[one]))
            return iter(self._of_users[most])
        return iter(())

    def silent(self, now_ms: WallMs, ttl_ms: int) -> list[Key]:
        """Whose last word is so long ago."""
        found: list[Key] = []
        for key, producer in self.known.items():
            if now_ms - producer.seen_at_ms <= ttl_ms:
                break
            found.append(key)
        return found
