"""Exchanges of which each message goes to one of the bound destinations.

    x-random         any of them, message by message
    x-local-random   likewise; all are classic queues, bound with an empty key
    x-modulus-hash   the routing key's hash, modulo how many there are, chooses

Keys and arguments of bindings mean nothing, as in RabbitMQ's plug-ins.  Destinations count in the
order in which they were bound; one that is bound twice counts once.  With every destination that
comes or goes most keys of the modulus move: ``x-consistent-hash`` moves only a share.
"""

from typing import Final, final
from zlib import crc32

from mypy_extensions import i64

from penstock.routing.consistent_hash import mixed
from penstock.routing.matcher import Matcher, RoutingContext

RANDOM: Final = "x-random"
LOCAL_RANDOM: Final = "x-local-random"
MODULUS_HASH: Final = "x-modulus-hash"


@final
class OneOfAllMatcher(Matcher):
    """``by_key``: the same key leads to the same destination, as long as there are the same."""

    def __init__(self, by_key: bool) -> None:
        super().__init__()
        self.needs_headers = not by_key  # a route that was found is no route for the next message
        self._by_key = by_key
        self._bound: dict[int, object] = {}  # by identity
        self._bindings: dict[int, int] = {}  # of each, how many
        self._order: list[object] = []  # empty = to be made of ``_bound``
        self._draws: i64 = 0

    def add(self, destination: object, routing_key: str, arguments: dict[str, object]) -> None:
        identity = id(destination)
        self._bindings[identity] = self._bindings.get(identity, 0) + 1
        if identity not in self._bound:
            self._bound[identity] = destination
            self._order = []

    def remove(self, destination: object, routing_key: str, arguments: dict[str, object]) -> None:
        identity = id(destination)
        self._bindings[identity] -= 1
        if self._bindings[identity] == 0:
            self.drop(destination)

    def drop(self, destination: object) -> bool:
        self._bindings.pop(id(destination), None)
        self._bound.pop(id(destination), None)
        self._order = []
        return True

    def match(self, routing_key: str, context: RoutingContext | None, found: list[object]) -> None:
        if len(self._order) == 0:
            self._order = list(self._bound.values())
        count: i64 = len(self._order)
        if count == 0:
            return
        if self._by_key:
            chosen = i64(crc32(routing_key.encode("utf-8", "surrogateescape")))
        else:
            # A row of numbers in which each is as likely to follow as any other.
            self._draws = (self._draws + 0x9E3779B1) & 0xFFFFFFFF
            chosen = mixed(self._draws)
        found.append(self._order[chosen % count])
