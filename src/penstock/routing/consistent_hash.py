"""``x-consistent-hash`` exchanges: each message to one destination, the same for the same key.

In: bindings whose key is a weight, a whole number above 0.  Out: for each message the one
destination its routing key leads to, or its header ``hash-header`` or its property
``hash-property`` when the exchange has such an argument (without a value: all to one).  The
destinations' shares are as their weights; several bindings of one destination add up.

This is rendezvous hashing.  Every destination draws a number for the key, from the key and its own
name, and the highest draw wins; a weight bends the draw (``log(draw) / weight``).  So

    a destination that leaves moves only the keys it had, spread over the others;
    one that comes takes its share from all, and no key moves between the others;
    it is the same in every process and after every restart, in whatever order was bound.

A match costs a draw per destination; the broker remembers the outcome per routing key.

RabbitMQ's plug-in counts buckets instead and moves most keys when a queue leaves from the middle.
Which queue a key leads to is not the same there and here.
"""

from math import log
from typing import Final, final

from mypy_extensions import i64

from penstock.core.checksum import crc32
from penstock.core.errors import PreconditionFailed
from penstock.core.message import PROPERTY_PREFIX
from penstock.routing.headers import as_bytes, binary_term, canonical
from penstock.routing.matcher import Matcher, RoutingContext

CONSISTENT_HASH: Final = "x-consistent-hash"
HASH_HEADER: Final = "hash-header"
HASH_PROPERTY: Final = "hash-property"
HASHED_PROPERTIES: Final = ("correlation_id", "message_id", "timestamp")

_DRAWS: Final = 4294967296.0
_MASK: Final[i64] = 0xFFFFFFFF


@final
class Share:
    """A destination, its seeds (from its name) and the sum of its weights."""

    __slots__ = ("bindings", "destination", "second_seed", "seed", "weight")

    def __init__(self, destination: object) -> None:
        name = f"{type(destination).__name__} {destination.name}"  # type: ignore[attr-defined]
        data = name.encode("utf-8", "surrogateescape")
        self.destination: object = destination
        self.seed: i64 = crc32(data)
        # Two names with the same checksum must not draw alike.
        self.second_seed: i64 = crc32(data[::-1] + b"/2")
        self.weight: int = 0
        self.bindings: int = 0

    def bind(self, weight: int) -> None:
        self.bindings += 1
        self.weight += weight

    def unbind(self, weight: int) -> None:
        self.bindings -= 1
        self.weight -= weight

    def draw(self, key: i64) -> i64:
        """0 to 2^32 - 1, for every key and destination another."""
        return mixed(mixed(key ^ self.seed) ^ self.second_seed)


@final
class HashMatcher(Matcher):
    """The destinations of one such exchange."""

    def __init__(self, arguments: dict[str, object]) -> None:
        super().__init__()
        check_hash_arguments(arguments)
        # What is looked at in the headers; "" = the routing key.
        self.hashed: str = ""
        if HASH_HEADER in arguments:
            self.hashed = str(arguments[HASH_HEADER])
            self.needs_headers = True
        elif HASH_PROPERTY in arguments:
            self.hashed = PROPERTY_PREFIX + str(arguments[HASH_PROPERTY])
            self.needs_headers = True
        self.shares: dict[int, Share] = {}
        self.weights: dict[int, int] = {}  # how many shares have it

    def check(self, routing_key: str, arguments: dict[str, object]) -> None:
        parse_weight(routing_key)

    def add(self, destination: object, routing_key: str, arguments: dict[str, object]) -> None:
        weight = parse_weight(routing_key)
        share = self.shares.get(id(destination))
        if share is None:
            share = Share(destination)
            self.shares[id(destination)] = share
        self.reweigh(share, share.weight + weight)
        share.bind(weight)

    def remove(self, destination: object, routing_key: str, arguments: dict[str, object]) -> None:
        share = self.shares[id(destination)]
        weight = parse_weight(routing_key)
        self.reweigh(share, share.weight - weight)
        share.unbind(weight)
        if share.bindings == 0:
            del self.shares[id(destination)]

    def drop(self, destination: object) -> bool:
        share = self.shares.pop(id(destination), None)
        if share is not None:
            self.reweigh(share, 0)
        return True

    def reweigh(self, share: Share, weight: int) -> None:
        count = self.weights.pop(share.weight, 0)
        if count > 1:
            self.weights[share.weight] = count - 1
        if weight > 0:
            self.weights[weight] = self.weights.get(weight, 0) + 1

    def match(self, routing_key: str, context: RoutingContext | None, found: list[object]) -> None:
        if not self.shares:
            return
        key: i64
        if self.needs_headers:
            key = hash_of(None if context is None else context.headers.get(self.hashed))
        else:
            key = crc32(routing_key.encode("utf-8", "surrogateescape"))
        is_even = len(self.weights) == 1
        found.append(self.winner(key) if is_even else self.weighted_winner(key))

    def winner(self, key: i64) -> object:
        best: i64 = -1
        chosen: object = None
        for share in self.shares.values():
            draw = share.draw(key)
            if draw > best:
                best = draw
                chosen = share.destination
        return chosen

    def weighted_winner(self, key: i64) -> object:
        best = 0.0
        chosen: object = None
        for share in self.shares.values():
            bent = log(float(share.draw(key) + 1) / _DRAWS) / share.weight
            if chosen is None or bent > best:
                best = bent
                chosen = share.destination
        return chosen


def mixed(x: i64) -> i64:
    """A 32-bit number in which every bit depends on every bit of ``x``, which has 32."""
    x = ((x ^ (x >> 16)) * 0x21F0AAAD) & _MASK
    x = ((x ^ (x >> 15)) * 0x735A2D97) & _MASK
    return x ^ (x >> 15)


def hash_of(value: object) -> i64:
    """Text and its octets are the same; other values count with their type."""
    if isinstance(value, (str, bytes)):
        return crc32(as_bytes(value))
    return 0 if value is None else crc32(canonical(value).encode("utf-8", "surrogateescape"))


def parse_weight(binding_key: str) -> int:
    """As Erlang reads an integer: a sign, then digits."""
    digits = binding_key[1:] if binding_key[:1] in ("+", "-") else binding_key
    if not (digits.isascii() and digits.isdigit()):
        raise PreconditionFailed(
            f"The binding key must be an integer: {binary_term(as_bytes(binding_key))}"
        )
    weight = int(binding_key)
    if weight < 1:
        raise PreconditionFailed("The binding key must be greater than 0")
    return weight


def check_hash_arguments(arguments: dict[str, object]) -> None:
    """Raises PreconditionFailed."""
    if HASH_HEADER in arguments and HASH_PROPERTY in arguments:
        raise PreconditionFailed("hash-header and hash-property are mutually exclusive")
    if HASH_PROPERTY in arguments and arguments[HASH_PROPERTY] not in HASHED_PROPERTIES:
        raise PreconditionFailed(f"Unsupported property: {arguments[HASH_PROPERTY]}")
