"""``x-message-deduplication`` exchanges: route each key once.

In: messages with the header ``x-deduplication-header``; one without it goes to everybody.
Out: the destinations, or none when the key was seen before and is still known.  What has no
destination is as unroutable as any message: returned if mandatory, offered to an alternate.

    x-cache-size         keys that are known at a time; the oldest goes first
    x-cache-ttl          how long each is known, in ms; for ever without it
    x-cache-persistence  "memory", the plug-in's default and all there is here

A message may bring its own ``x-cache-ttl``.  Spelt as the community's plug-in for RabbitMQ
spells it.  Keys are forgotten with the process.

Rooms without a clock are told the time with the message (``NOW``).  Who only asks where a message
would go says so (``LOOKING``): then its key stays as unknown as it was.  So does who publishes, and
routes once more when the queues took it: what was refused may come again.
"""

from typing import Final, final

from penstock.core.headers import CACHE_TTL_HEADER, DEDUPLICATION_HEADER, LOOKING, NOW
from penstock.routing.matcher import FanoutMatcher, Matcher

ONCE: Final = "x-message-deduplication"
CACHE_SIZE: Final = "x-cache-size"
NEVER_MS: Final = 1 << 62


@final
class OnceMatcher(Matcher):
    """See the head of this file."""

    def __init__(self, arguments: dict[str, object]) -> None:
        super().__init__()
        self.needs_headers = True
        self._all = FanoutMatcher()
        self._size = _number(arguments.get(CACHE_SIZE), 1)
        self._ttl_ms = _number(arguments.get(CACHE_TTL_HEADER), NEVER_MS)
        self._known: dict[str, int] = {}  # key -> known until, the oldest first

    def add(self, destination: object, routing_key: str, arguments: dict[str, object]) -> None:
        self._all.add(destination, routing_key, arguments)

    def remove(self, destination: object, routing_key: str, arguments: dict[str, object]) -> None:
        self._all.remove(destination, routing_key, arguments)

    def drop(self, destination: object) -> bool:
        return self._all.drop(destination)

    def match(
        self, routing_key: str, headers: dict[str, object] | None, found: list[object]
    ) -> None:
        if headers is not None and self._is_duplicate(headers):
            return
        self._all.match(routing_key, headers, found)

    def _is_duplicate(self, headers: dict[str, object]) -> bool:
        """And if it is none, it is known from now on, unless this is a dry run."""
        value = headers.get(DEDUPLICATION_HEADER)
        if value is None:
            return False
        key = f"{type(value).__name__} {value}"
        now_ms = _number(headers.get(NOW), 0)
        if self._known.get(key, 0) > now_ms:
            return True
        if LOOKING in headers:
            headers[LOOKING] = True
            return False
        self._known.pop(key, None)
        while len(self._known) >= self._size:
            del self._known[next(iter(self._known))]
        ttl_ms = _number(headers.get(CACHE_TTL_HEADER), self._ttl_ms)
        self._known[key] = now_ms + ttl_ms
        return False


def _number(value: object, absent: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        return absent
    return value
