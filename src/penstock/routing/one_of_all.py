"""Exchanges of which each message goes to one of the bound destinations.

    x-random         any of them, message by message
    x-local-random   likewise; all are classic queues, bound with an empty key, and of a cluster's
                     those whose master is on another node are left out
    x-modulus-hash   the routing key's hash, modulo how many there are, chooses

Keys and arguments of bindings mean nothing, as in RabbitMQ's plug-ins.  Destinations count in the
order in which they were bound; one that is bound twice counts once.  With every destination that
comes or goes most keys of the modulus move: ``x-consistent-hash`` moves only a share.
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.core.checksum import crc32
from penstock.routing.consistent_hash import mixed
from penstock.routing.matcher import Matcher, RoutingContext

RANDOM: Final = "x-random"
LOCAL_RANDOM: Final = "x-local-random"
MODULUS_HASH: Final = "x-modulus-hash"


@final
class OneOfAllMatcher(Matcher):
    """``by_key``: the same key leads to the same destination, as long as there are the same.

    ``only_local``: only a queue of this node is chosen.
    """

    def __init__(self, by_key: bool, only_local: bool = False) -> None:
        super().__init__()
        self.needs_headers = not by_key  # a route that was found is no route for the next message
        self._by_key = by_key
        self._only_local = only_local
        self._bound: dict[int, object] = {}  # by identity
        self._bindings: dict[int, int] = {}  # of each, how many
        self._order: list[object] | None = None  # None = to be made of ``_bound``
        self._draws: i64 = 0

    def add(self, destination: object, routing_key: str, arguments: dict[str, object]) -> None:
        identity = id(destination)
        self._bindings[identity] = self._bindings.get(identity, 0) + 1
        if identity not in self._bound:
            self._bound[identity] = destination
            self._order = None

    def remove(self, destination: object, routing_key: str, arguments: dict[str, object]) -> None:
        identity = id(destination)
        self._bindings[identity] -= 1
        if self._bindings[identity] == 0:
            self.drop(destination)

    def drop(self, destination: object) -> bool:
        self._bindings.pop(id(destination), None)
        self._bound.pop(id(destination), None)
        self._order = None
        return True

    def match(self, routing_key: str, context: RoutingContext | None, found: list[object]) -> None:
        order = self._order
        if order is None:
            order = list(self._bound.values())
            if self._only_local:  # a queue that moves is bound anew as another object
                order = [one for one in order if not getattr(one, "remote", False)]
            self._order = order
        count: i64 = len(order)
        if count == 0:
            return
        if self._by_key:
            chosen = i64(crc32(routing_key.encode("utf-8", "surrogateescape")))
        else:
            # A row of numbers in which each is as likely to follow as any other.
            self._draws = (self._draws + 0x9E3779B1) & 0xFFFFFFFF
            chosen = mixed(self._draws)
        found.append(order[chosen % count])
