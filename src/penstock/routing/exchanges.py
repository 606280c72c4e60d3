"""Exchanges and the bindings that leave them: a name and a key become destinations.

An ``Exchange`` is what clients declare; how it matches is its ``Matcher``, chosen by its
type.  A destination is a queue or another exchange.  This package knows exchanges, and takes
every other object for a queue; it tells destinations apart by identity alone.

The default exchange has no bindings: its owner looks the queue up by name.

A binding is told from others of its exchange by destination, routing key and arguments;
binding again what is bound, or unbinding what is not, changes nothing and says so.

An exchange that finds no destination for a message asks its alternate exchange, if it has one
and it exists: ``route`` is given the exchanges by name.  A bound exchange is a destination, so
an exchange with a binding to one has found a destination, even if that one then finds none.

A message may carry further routing keys, ``copies``.  Types that look at the key look at each;
no destination gets a message twice.

Cost: ``bind``, ``unbind`` and ``dismiss`` depend on the bindings of that destination only, not
on how many others the exchange has.  A destination that has very many is dismissed at once,
and what the matcher knows of it goes later, some at a time (``sweep``); meanwhile it is left
out of what the matcher finds.  It is deleted, or the exchange is, so it is not bound again.
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.core.counting.traffic import ExchangeTraffic
from penstock.core.headers import DELAY_HEADER, delay_in
from penstock.core.steps import steps
from penstock.routing.consistent_hash import CONSISTENT_HASH, HashMatcher
from penstock.routing.headers import HeadersMatcher, arguments_key
from penstock.routing.matcher import DirectMatcher, FanoutMatcher, Matcher, RoutingContext
from penstock.routing.once import ONCE, OnceMatcher
from penstock.routing.one_of_all import LOCAL_RANDOM, MODULUS_HASH, RANDOM, OneOfAllMatcher
from penstock.routing.recent_history import NO_STORE, RECENT_HISTORY
from penstock.routing.topic_trie import TopicTrie

DELAYED: Final = "x-delayed-message"
NSQ_TOPIC: Final = "x-nsq-topic"
EXCHANGE_TYPES: Final = (
    *("direct", "fanout", "topic", "headers"),
    *(CONSISTENT_HASH, DELAYED, LOCAL_RANDOM, MODULUS_HASH, NSQ_TOPIC, ONCE, RANDOM),
    RECENT_HISTORY,
)

PREDECLARED: Final = (
    ("amq.direct", "direct", False),
    ("amq.fanout", "fanout", False),
    ("amq.headers", "headers", False),
    ("amq.match", "headers", False),
    ("amq.rabbitmq.trace", "topic", True),
    ("amq.topic", "topic", False),
)
"""Name, type and whether internal, of what every virtual host has."""


def inner_type(arguments: dict[str, object]) -> str:
    """How an exchange that delays routes; "" when its arguments do not say."""
    value = arguments.get("x-delayed-type")
    has_queue = value in (DELAYED, RECENT_HISTORY)  # and an exchange has one of its own
    return value if isinstance(value, str) and value in EXCHANGE_TYPES and not has_queue else ""


REMOVED_AT_ONCE: Final = 100
"""Bindings of a destination that are not worth a second visit."""
EXCHANGE_STEPS: Final[i64] = 10
"""To ask an exchange for one key takes about as long."""


def make_matcher(exchange_type: str, arguments: dict[str, object]) -> Matcher:
    if exchange_type == "direct":
        return DirectMatcher()
    if exchange_type in ("fanout", NSQ_TOPIC, RECENT_HISTORY):
        return FanoutMatcher()
    if exchange_type == "topic":
        return TopicTrie()
    if exchange_type == "headers":
        return HeadersMatcher()
    if exchange_type == DELAYED:
        return make_matcher(inner_type(arguments), arguments)
    if exchange_type == ONCE:
        return OnceMatcher(arguments)
    if exchange_type in (LOCAL_RANDOM, MODULUS_HASH, RANDOM):
        return OneOfAllMatcher(exchange_type == MODULUS_HASH, exchange_type == LOCAL_RANDOM)
    assert exchange_type == CONSISTENT_HASH, exchange_type
    return HashMatcher(arguments)


@final
class Binding:
    """One way from an exchange to a destination."""

    __slots__ = ("arguments", "destination", "routing_key", "source")

    def __init__(
        self,
        source: "Exchange",
        destination: object,
        routing_key: str,
        arguments: dict[str, object],
    ) -> None:
        self.source: Exchange = source
        self.destination: object = destination
        self.routing_key: str = routing_key
        self.arguments: dict[str, object] = arguments


@final
class Sources:
    """The exchanges that lead to each destination: a deletion does not look at all there are.

    By identity of the destination.  An exchange that was deleted may be among them, until its
    bindings are swept.  ``leaving``: what was deleted while many exchanges still lead there.
    """

    def __init__(self) -> None:
        self._known: dict[int, dict[Exchange, None]] = {}
        self.leaving: set[int] = set()

    def of(self, destination: object) -> "list[Exchange]":
        return list(self._known.get(id(destination), ()))

    def leave(self, destination: object, leaving: bool) -> None:
        """Nothing is routed there from now on, or all that led there is gone."""
        if leaving:
            self.leaving.add(id(destination))
        else:
            self.leaving.discard(id(destination))

    def add(self, destination: int, exchange: "Exchange") -> None:
        known = self._known.get(destination)
        if known is None:
            self._known[destination] = {exchange: None}
        else:
            known[exchange] = None

    def discard(self, destination: int, exchange: "Exchange") -> None:
        known = self._known.get(destination)
        if known is not None and exchange in known:
            del known[exchange]
            if not known:
                del self._known[destination]


@final
class Exchange:
    """A named exchange of one of ``EXCHANGE_TYPES``.

    ``needs_headers``  messages have to be opened to be routed here
    ``alternate``      name of the exchange that gets what finds no destination here
    ``delays``         messages with a delay go to its ``internal_queue``, and from there on later
    ``holds``          all messages go to its ``internal_queue``, for now
    ``remembers``      messages go to its ``internal_queue`` too, and stay there
    ``publish_mode``   of a topic: when its publishers are answered; "" = as the node says
    ``user``           who declared it, "" = it is not known, or the node itself
    ``sources``        of the node it is on, which has what leads where
    """

    def __init__(
        self,
        vhost: str,
        name: str,
        type: str,  # noqa: A002 - the word of AMQP
        durable: bool,
        auto_delete: bool,
        internal: bool,
        arguments: dict[str, object],
        user: str = "",
        sources: Sources | None = None,
    ) -> None:
        self.vhost: str = vhost
        self.name: str = name
        self.type: str = type
        self.durable: bool = durable
        self.auto_delete: bool = auto_delete
        self.internal: bool = internal
        self.arguments: dict[str, object] = arguments
        self.user: str = user
        self.alternate: str | None = None
        self.matcher: Matcher = make_matcher(type, arguments)
        self.delays: bool = type == DELAYED
        self.holds: bool = False
        self.remembers: bool = type == RECENT_HISTORY
        self.publish_mode: str = ""
        self.internal_queue: object = None
        self.published_count: i64 = 0  # by publishers that named it
        self.published_bytes: i64 = 0
        self.traffic = ExchangeTraffic()
        self.needs_headers: bool = self.delays or self.remembers or self.matcher.needs_headers
        # By identity of the destination, then by (routing key, arguments).
        self.bound: dict[int, dict[tuple[str, str], Binding]] = {}
        self.bound_exchanges: dict[int, Exchange] = {}
        # As ``bound``: what the matcher still has to be told.
        self.dismissed: dict[int, dict[tuple[str, str], Binding]] = {}
        self.apart: set[int] = set()  # by identity: bound, but nothing is routed there
        self._sources = Sources() if sources is None else sources

    def count(self, messages: i64, size_bytes: i64) -> None:
        """Of publishers that named it; ``size_bytes``: of the bodies."""
        self.published_count += messages
        self.published_bytes += size_bytes

    def hold(self, holds: bool) -> None:
        """What is published stays in its internal queue from now on, or no longer."""
        self.holds = holds

    def take_settings(self, alternate: str | None, publish_mode: str) -> None:
        """Those of its arguments and policies that hold now."""
        self.alternate = alternate
        self.publish_mode = publish_mode

    def bind(self, destination: object, routing_key: str, arguments: dict[str, object]) -> bool:
        """True when the binding is new; ``PreconditionFailed`` for wrong arguments."""
        ways = self.bound.get(id(destination))
        key = (routing_key, arguments_key(arguments))
        if ways is not None and key in ways:
            return False
        self.matcher.add(destination, routing_key, arguments)
        if ways is None:
            ways = {}
            self.bound[id(destination)] = ways
            self._sources.add(id(destination), self)
            if isinstance(destination, Exchange):
                self.bound_exchanges[id(destination)] = destination
        ways[key] = Binding(self, destination, routing_key, arguments)
        return True

    def find(
        self, destination: object, routing_key: str, arguments: dict[str, object]
    ) -> Binding | None:
        ways = self.bound.get(id(destination))
        return None if ways is None else ways.get((routing_key, arguments_key(arguments)))

    def unbind(self, destination: object, routing_key: str, arguments: dict[str, object]) -> bool:
        """True when there was such a binding."""
        binding = self.find(destination, routing_key, arguments)
        if binding is None:
            return False
        ways = self.bound[id(destination)]
        del ways[(routing_key, arguments_key(arguments))]
        self.matcher.remove(destination, routing_key, binding.arguments)
        if not ways:
            self.forget(destination)
        return True

    def unbind_destination(self, destination: object) -> list[Binding]:
        """Removes and returns every binding to ``destination``."""
        removed = self.bindings_to(destination)
        for binding in removed:
            self.matcher.remove(destination, binding.routing_key, binding.arguments)
        if removed:
            self.forget(destination)
        return removed

    def dismiss(self, destination: object) -> bool:
        """It is deleted: remove every binding to it.  False when there was none."""
        ways = self.bound.get(id(destination))
        if ways is None:
            return False
        if self.matcher.drop(destination):
            self.forget(destination)
        elif len(ways) <= REMOVED_AT_ONCE:
            self.unbind_destination(destination)
        else:
            self.forget(destination)
            self.dismissed[id(destination)] = ways
        return True

    def close(self) -> None:
        """It is deleted itself: every binding is to go."""
        if not self.dismissed:
            self.dismissed = self.bound
        else:
            self.dismissed.update(self.bound)
        self.bound = {}
        self.bound_exchanges = {}

    def sweep(self, limit: i64) -> i64:
        """Tell the matcher of up to so many bindings that are no more; returns how many."""
        count: i64 = 0
        while self.dismissed and count < limit:
            identity, ways = self.dismissed.popitem()
            while ways and count < limit:
                _, binding = ways.popitem()
                self.matcher.remove(binding.destination, binding.routing_key, binding.arguments)
                count += 1
            if ways:
                self.dismissed[identity] = ways
            else:
                self._sources.discard(identity, self)
        return count

    def set_apart(self, destination: object, apart: bool) -> None:
        """A destination gets what is published here in another way, or does not any more."""
        if apart:
            self.apart.add(id(destination))
        else:
            self.apart.discard(id(destination))

    def forget(self, destination: object) -> None:
        self.apart.discard(id(destination))
        del self.bound[id(destination)]
        self._sources.discard(id(destination), self)
        self.bound_exchanges.pop(id(destination), None)

    def bindings(self) -> list[Binding]:
        """All bindings that leave here, those of one destination next to each other."""
        found: list[Binding] = []
        leaving = self._sources.leaving
        for destination, ways in self.bound.items():
            if destination not in leaving:
                found.extend(ways.values())
        return found

    def bindings_to(self, destination: object) -> list[Binding]:
        ways = self.bound.get(id(destination))
        return [] if ways is None else list(ways.values())

    def leads_to(self, destination: object) -> bool:
        """Is it bound here?"""
        return id(destination) in self.bound

    def has_bindings(self) -> bool:
        return len(self.bound) > 0

    def exchange_destinations(self) -> list["Exchange"]:
        """The exchanges bound to this one."""
        return list(self.bound_exchanges.values())

    def match(self, routing_key: str, context: RoutingContext | None, found: list[object]) -> None:
        """Append the destinations of this exchange alone, each once."""
        self.matcher.match(routing_key, context, found)
        if self.dismissed or self.apart or self._sources.leaving:
            left_out = self.apart.union(self.dismissed, self._sources.leaving)
            found[:] = [one for one in found if id(one) not in left_out]


def route(
    exchange: Exchange,
    routing_key: str,
    context: RoutingContext | None,
    exchanges: dict[str, Exchange] | None = None,
    copies: list[str] | None = None,
) -> list[object]:
    """The queues a message reaches from ``exchange``, each once, first found first.

    Follows bindings between exchanges and alternate exchanges; an exchange met again (a
    cycle, or two ways that lead to it) is not asked again.
    """
    found = next_hops(exchange, routing_key, context, exchanges, copies)
    if copies is None and exchange.alternate is None and not exchange.bound_exchanges:
        return found
    queues: list[object] = []
    seen: set[int] = {id(exchange)}
    ahead = found
    while ahead:
        behind: list[object] = []
        for destination in ahead:
            if id(destination) in seen:
                continue
            seen.add(id(destination))
            if isinstance(destination, Exchange):
                behind.extend(next_hops(destination, routing_key, context, exchanges, copies))
            else:
                queues.append(destination)
        ahead = behind
    return queues


def next_hops(
    exchange: Exchange,
    routing_key: str,
    context: RoutingContext | None,
    exchanges: dict[str, Exchange] | None,
    copies: list[str] | None,
) -> list[object]:
    """Where one exchange leads: its destinations (with copies, some of them twice), or its
    alternate when it has none.
    """
    found: list[object] = []
    steps.count(EXCHANGE_STEPS if copies is None else EXCHANGE_STEPS * (1 + len(copies)))
    if exchange.holds:
        return [exchange.internal_queue]
    headers = None if context is None else context.headers
    if exchange.delays and headers is not None and delay_in(headers.get(DELAY_HEADER)) > 0:
        return [exchange.internal_queue]
    exchange.match(routing_key, context, found)
    if copies is not None and exchange.matcher.takes_copies:
        for key in copies:
            exchange.match(key, context, found)
    if not found and exchanges is not None and exchange.alternate is not None:
        alternate = exchanges.get(exchange.alternate)
        if alternate is not None:
            found.append(alternate)
    if exchange.remembers and (headers is None or headers.get(NO_STORE) is not True):
        found.append(exchange.internal_queue)
    return found


def looks_at_headers(exchange: Exchange, exchanges: dict[str, Exchange]) -> bool:
    """Does any exchange that a message may pass from here on?"""
    if not exchange.bound_exchanges and exchange.alternate is None:
        return exchange.needs_headers
    ahead = [exchange]
    seen: set[int] = {id(exchange)}
    while ahead:
        here = ahead.pop()
        if here.needs_headers:
            return True
        following = here.exchange_destinations()
        alternate = None if here.alternate is None else exchanges.get(here.alternate)
        if alternate is not None:
            following.append(alternate)
        for target in following:
            if id(target) not in seen:
                seen.add(id(target))
                ahead.append(target)
    return False
