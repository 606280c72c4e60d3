"""``x-message-deduplication`` exchanges: route each key once.

In: messages with the header ``x-deduplication-header``; one without it goes to all.
Out: the destinations, or none when the key was seen before and is still known.  What has no
destination is as unroutable as any message: returned if mandatory, offered to an alternate.

    x-cache-size         keys that are known at a time; the oldest goes first
    x-cache-ttl          how long each is known, in ms; for ever without it
    x-cache-persistence  "memory", the plug-in's default and all there is here

A message may bring its own ``x-cache-ttl``.  Spelt as the community's plug-in for RabbitMQ
spells it.  Keys are forgotten with the process.

A key becomes known when its message was published (``RoutingContext.remember``).  The key of a
message that the queues refused, or of a question where a message would go, stays unknown.
"""

from typing import Final, final

from penstock.core.headers import CACHE_TTL_HEADER, DEDUPLICATION_HEADER
from penstock.routing.matcher import FanoutMatcher, Matcher, RoutingContext

ONCE: Final = "x-message-deduplication"
CACHE_SIZE: Final = "x-cache-size"
NEVER_MS: Final = 1 << 62


@final
class OnceMatcher(Matcher):
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

    def match(self, routing_key: str, context: RoutingContext | None, found: list[object]) -> None:
        if context is not None:
            key = _key(context)
            if key != "":
                if self._known.get(key, 0) > int(context.now_ms):  # a client may ask for any ttl
                    return
                context.pass_by(self)
        self._all.match(routing_key, context, found)

    def remember(self, context: RoutingContext) -> None:
        key = _key(context)
        self._known.pop(key, None)
        while len(self._known) >= self._size:
            del self._known[next(iter(self._known))]
        ttl_ms = _number(context.headers.get(CACHE_TTL_HEADER), self._ttl_ms)
        self._known[key] = int(context.now_ms) + ttl_ms


def _key(context: RoutingContext) -> str:
    """By type and value; "" when the message has none."""
    value = context.headers.get(DEDUPLICATION_HEADER)
    return "" if value is None else f"{type(value).__name__} {value}"


def _number(value: object, absent: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        return absent
    return value
