"""The way of a message that is not published: exchanges, bindings, queues, and what holds it up.

Each exchange is asked what the router asks it (``next_hops``), so no second opinion differs.
Nothing changes, and no exchange remembers the message.
"""

from typing import Final, NamedTuple

from penstock.broker.topology.vhost import Vhost
from penstock.core.errors import NotFound
from penstock.queues.queue import Queue
from penstock.routing.exchanges import Binding, Exchange, make_matcher, next_hops
from penstock.routing.matcher import RoutingContext

BINDINGS_SHOWN: Final = 20
"""Of one destination."""
BINDINGS_TRIED: Final = 100
"""Of one destination, whether they match: there may be very many."""
HOPS_SHOWN: Final = 200
BY_BINDING: Final = ("direct", "fanout", "topic", "headers")
"""Types whose bindings match one by one; the others choose among all they have."""
NAME: Final = "name"
BINDING: Final = "binding"
ALTERNATE: Final = "alternate exchange"
INTERNAL: Final = "delay"


class Hop(NamedTuple):
    """``by``: NAME (of the default exchange), BINDING, ALTERNATE or INTERNAL, where it waits.

    ``bindings``: those that match, of the first BINDINGS_TRIED; ``destination``: "" for
    INTERNAL.
    """

    source: str
    by: str
    destination: str
    to_exchange: bool
    bindings: list[Binding]


class Way(NamedTuple):
    """``queues``: each once, in the router's order; ``hops``: the first HOPS_SHOWN."""

    hops: list[Hop]
    queues: list[Queue]


def explain(vhost: Vhost, name: str, key: str, context: RoutingContext) -> Way:
    """From the exchange of that name on, "" = the default one.  Raises NotFound."""
    if name == "":
        queue = vhost.queues.get(key)
        if queue is None:
            return Way([], [])
        return Way([Hop("", NAME, key, False, [])], [queue])
    first = vhost.exchanges.get(name)
    if first is None:
        raise NotFound(f"no exchange '{name}'")
    way = Way([], [])
    ahead, seen = [first], {id(first)}
    for exchange in ahead:  # which grows
        for destination in next_hops(exchange, key, context, vhost.exchanges, None):
            if len(way.hops) < HOPS_SHOWN:
                way.hops.append(_hop(exchange, destination, key, context))
            if id(destination) in seen:
                continue
            seen.add(id(destination))
            if isinstance(destination, Exchange):
                ahead.append(destination)
            elif isinstance(destination, Queue) and destination.releases_to is None:
                way.queues.append(destination)
    return way


def _hop(exchange: Exchange, destination: object, key: str, context: RoutingContext) -> Hop:
    if destination is exchange.internal_queue:
        return Hop(exchange.name, INTERNAL, "", False, [])
    assert isinstance(destination, Exchange | Queue)
    bindings = exchange.bindings_to(destination)
    if bindings and exchange.type in BY_BINDING:
        tried = bindings[:BINDINGS_TRIED]
        bindings = [one for one in tried if _matches(exchange, one, key, context)]
    by = BINDING if exchange.leads_to(destination) else ALTERNATE
    to_exchange = isinstance(destination, Exchange)
    return Hop(exchange.name, by, destination.name, to_exchange, bindings[:BINDINGS_SHOWN])


def _matches(exchange: Exchange, binding: Binding, key: str, context: RoutingContext) -> bool:
    matcher = make_matcher(exchange.type, exchange.arguments)
    matcher.add(binding.destination, binding.routing_key, binding.arguments)
    found: list[object] = []
    matcher.match(key, context, found)
    return bool(found)


def hold_ups(queue: Queue) -> list[str]:
    """Why a message would not leave this queue at once, or would not stay: sentences."""
    if queue.why_down() != "":
        return [f"The queue is down: {queue.why_down()}."]
    found: list[str] = []
    limits, ready = queue.limits, int(queue.backing.ready_count())
    if queue.paused:
        found.append("The queue is paused: it takes messages and delivers none.")
    if queue.consumers_anywhere() == 0 and not queue.is_stream:
        found.append("The queue has no consumer.")
    elif (unacked := int(queue.unacked_anywhere())) > 0:
        found.append(f"Its consumers hold {unacked:,} unacknowledged messages.")
    if ready > 0 and not queue.is_stream:
        found.append(f"{ready:,} ready {'message is' if ready == 1 else 'messages are'} before it.")
    if 0 <= limits.max_length <= ready:
        after = "the oldest message goes" if limits.drops else "the publish is refused"
        found.append(f"The queue is full ({int(limits.max_length):,} messages): {after}.")
    if limits.message_ttl_ms >= 0:
        found.append(f"The message expires after {int(limits.message_ttl_ms):,} ms.")
    return found
