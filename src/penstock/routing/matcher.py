"""``Matcher``: the interface by which an exchange finds destinations, and its two simple forms.

A matcher holds bindings in the shape that makes matching fast.  It knows a destination
only as an object that is or is not the same one: queue or exchange makes no difference
here.  In: ``add`` and ``remove``, called once per distinct binding.  Out: ``match``
appends every destination with at least one matching binding, once, in the order of
their first binding.
"""

from typing import Final, final

from penstock.core.clock_types import WallMs
from penstock.routing.steps import RoutingShare


@final
class Destinations:
    """A set of objects by identity, in order of arrival, that counts how often each came.

    A destination comes twice when it has two bindings that differ only in what the
    matcher does not look at; it leaves with the last of them.
    """

    __slots__ = ("members", "repeats")

    def __init__(self) -> None:
        self.members: dict[int, object] = {}
        self.repeats: dict[int, int] | None = None  # further comings; seldom needed

    def add(self, destination: object) -> None:
        identity = id(destination)
        if identity not in self.members:
            self.members[identity] = destination
            return
        if self.repeats is None:
            self.repeats = {}
        self.repeats[identity] = self.repeats.get(identity, 0) + 1

    def remove(self, destination: object) -> None:
        """Takes back one ``add``; there must have been one."""
        identity = id(destination)
        repeats = self.repeats
        if repeats is not None and identity in repeats:
            repeats[identity] -= 1
            if repeats[identity] == 0:
                del repeats[identity]
            return
        del self.members[identity]

    def is_empty(self) -> bool:
        return not self.members

    def append_to(self, found: list[object]) -> None:
        found.extend(self.members.values())


@final
class RoutingContext:
    """One message that is routed: its headers and properties by name, and the wall time in ms.

    Routing changes no exchange.  A matcher that is to know a message which was published is in
    ``passed``; the publisher calls ``remember`` when the queues took the message.  ``share``: of
    the broker's own message, whose route may stop with ``RouteUnfinished``.
    """

    def __init__(
        self, headers: dict[str, object], now_ms: WallMs, share: RoutingShare | None = None
    ) -> None:
        self.headers: Final[dict[str, object]] = headers
        self.now_ms: Final[WallMs] = now_ms
        self.share: Final[RoutingShare | None] = share
        self.passed: list[Matcher] | None = None  # seldom needed

    def pass_by(self, matcher: "Matcher") -> None:
        if self.passed is None:
            self.passed = []
        self.passed.append(matcher)

    def remember(self) -> None:
        if self.passed is not None:
            for matcher in self.passed:
                matcher.remember(self)


class Matcher:
    """What every exchange type can do with the bindings that leave the exchange.

    ``needs_headers``  ``match`` looks at the headers, so the message has to be opened
    ``takes_copies``   a message's further routing keys are to be matched too
    """

    def __init__(self) -> None:
        self.needs_headers: bool = False
        self.takes_copies: bool = False

    def check(self, routing_key: str, arguments: dict[str, object]) -> None:
        """Raises ``PreconditionFailed`` if a binding cannot have these."""

    def add(self, destination: object, routing_key: str, arguments: dict[str, object]) -> None:
        """Raises as ``check``, and changes nothing then."""
        raise NotImplementedError

    def remove(self, destination: object, routing_key: str, arguments: dict[str, object]) -> None:
        """Takes back one ``add`` with equal arguments."""
        raise NotImplementedError

    def drop(self, destination: object) -> bool:
        """Takes back every ``add`` of it, where that costs no more than one; else False."""
        return False

    def match(self, routing_key: str, context: RoutingContext | None, found: list[object]) -> None:
        """Appends destinations to ``found``; without a context the message has no headers."""
        raise NotImplementedError

    def remember(self, context: RoutingContext) -> None:
        """The message was published: it is in the context's ``passed``."""


@final
class DirectMatcher(Matcher):
    """The routing key is the binding key."""

    def __init__(self) -> None:
        super().__init__()
        self.takes_copies = True
        self.by_key: dict[str, Destinations] = {}

    def add(self, destination: object, routing_key: str, arguments: dict[str, object]) -> None:
        destinations = self.by_key.get(routing_key)
        if destinations is None:
            destinations = Destinations()
            self.by_key[routing_key] = destinations
        destinations.add(destination)

    def remove(self, destination: object, routing_key: str, arguments: dict[str, object]) -> None:
        destinations = self.by_key[routing_key]
        destinations.remove(destination)
        if destinations.is_empty():
            del self.by_key[routing_key]

    def match(self, routing_key: str, context: RoutingContext | None, found: list[object]) -> None:
        destinations = self.by_key.get(routing_key)
        if destinations is not None:
            destinations.append_to(found)


@final
class FanoutMatcher(Matcher):
    """Every binding matches."""

    def __init__(self) -> None:
        super().__init__()
        self.destinations: Destinations = Destinations()

    def add(self, destination: object, routing_key: str, arguments: dict[str, object]) -> None:
        self.destinations.add(destination)

    def remove(self, destination: object, routing_key: str, arguments: dict[str, object]) -> None:
        self.destinations.remove(destination)

    def match(self, routing_key: str, context: RoutingContext | None, found: list[object]) -> None:
        self.destinations.append_to(found)


def append_once(batch: list[object], seen: set[int], found: list[object]) -> None:
    """Append what is not in ``seen`` yet; for matchers with several places to look."""
    for destination in batch:
        identity = id(destination)
        if identity not in seen:
            seen.add(identity)
            found.append(destination)
