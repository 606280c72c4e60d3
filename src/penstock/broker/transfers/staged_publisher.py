"""``StagedPublisher``: publishes messages that were accepted before, by the present bindings.

In: messages of one virtual host, in order, with contents at hand: of a staged set, or just
received.  Out: how many of them the queues took, and how many of those had no queue to go to.

It stops before the first message that a queue has no room for (``x-overflow`` is
``reject-publish``): the writer can no longer be told "no", so the rest waits until consumers
have made room; ``full`` is then that queue's name.  Two kinds of queues are not waited for: those
that make dead letters of what they refuse, and channels of NSQ, which drop it.

What a queue could not take were it empty (larger than its ``x-max-length-bytes``, or its
``x-max-length`` is 0), and has no consumer to take it past the limit, would be waited for for
ever, and all later batches with it.  When it is decided already (``decided``) it goes to the
other queues only, and counts as unroutable.

It stops as well when the caller's share of steps is used up (``routing/steps``), within one route
if that is dear; ``full`` is "" then, and the next call goes on.

An exchange that is gone by now leads nowhere.
"""

from typing import Final, final

from penstock.broker.topology.routes import Route, any_refuses, count_published
from penstock.broker.topology.vhost import Vhost
from penstock.core.clock_types import WallMs
from penstock.core.counting.traffic import ExchangeTraffic
from penstock.core.errors import AccessRefused, NotFound
from penstock.core.headers import HeaderReader
from penstock.core.message import REDELIVERED, STORED, Address, Message, body_size
from penstock.queues.queue import Queue
from penstock.routing.matcher import RoutingContext
from penstock.routing.steps import RouteUnfinished, RoutingShare
from penstock.storage.engine.engine import Engine

ADDRESSES_MAX: Final = 8192
NOWHERE: Final = Route([], False, ExchangeTraffic())


@final
class StagedPublisher:
    """One for a node."""

    def __init__(self, engine: Engine, reader: HeaderReader) -> None:
        self.full: str = ""
        self.unroutable: int = 0  # of the last call
        self._route = NOWHERE  # of those being published
        self._share = RoutingShare()  # of the caller
        self._decided: bool = False  # the writer can no longer be told "no"
        self._engine = engine
        self._reader = reader
        self._addresses: dict[tuple[str, bytes], Address] = {}

    def address(self, vhost: Vhost, wire: bytes) -> Address:
        """The one object for it, which remembers its route."""
        address = self._addresses.get((vhost.name, wire))
        if address is None:
            exchange, key = self._reader.names(wire)
            address = Address(exchange, key, wire, False)
            if len(self._addresses) >= ADDRESSES_MAX:
                self._addresses.clear()
            self._addresses[(vhost.name, wire)] = address
        return address

    def forget(self, vhost_name: str) -> None:
        """That virtual host is gone."""
        for key in [key for key in self._addresses if key[0] == vhost_name]:
            del self._addresses[key]

    def publish(
        self,
        vhost: Vhost,
        messages: list[Message],
        now_ms: WallMs,
        again: bool,
        share: RoutingShare,
        decided: bool = False,
    ) -> int:
        """How many the queues took.  ``again``: they may have been handed out before.

        ``decided``: the writer has its answer, so they do not wait for what can never be.
        """
        self._share, self._decided = share, decided
        self.full = ""
        self.unroutable = 0
        done = 0
        while done < len(messages) and not share.is_over():
            end = done + 1
            wire = messages[done].address
            while end < len(messages) and messages[end].address == wire:
                end += 1
            run = [self._copy(message, now_ms, again) for message in messages[done:end]]
            try:
                done += self._publish(vhost, self.address(vhost, wire), run, now_ms)
            except RouteUnfinished:
                break
            if done < end:
                break
        return done

    def queues_for(
        self,
        vhost: Vhost,
        address: Address,
        message: Message,
        now_ms: WallMs,
        share: RoutingShare | None = None,
    ) -> list[Queue]:
        """Where it would go now; nothing is remembered of it.

        Raises NotFound, AccessRefused, or RouteUnfinished as the share is used up.
        """
        if share is not None:
            share.of(message.content)
        route = vhost.route(address, RoutingContext({}, now_ms, share))
        if not route.needs_headers:
            return route.queues
        facts = self._reader.facts(message.content)
        return _find(vhost, address, RoutingContext(facts, now_ms, share))

    def trouble(self) -> str:
        """Why the last call did not take all."""
        full = self.full
        return f"queue '{full}' is full and refuses publishes (x-overflow)" if full else ""

    # -- one address -------------------------------------------------------------------------

    def _copy(self, message: Message, now_ms: WallMs, again: bool) -> Message:
        """For the queues: with the publisher's flags, which no record on disk has."""
        flags, expires_at_ms = self._reader.marks(message.content, now_ms)
        if again:
            flags |= REDELIVERED
        copy = Message(message.content, message.address, flags, expires_at_ms)
        # The store may have been told since to hold only larger ones.
        if message.flags & STORED and message.size >= self._engine.limits.embed_below_bytes:
            copy.msg_id = message.msg_id
        return copy

    def _publish(self, vhost: Vhost, address: Address, run: list[Message], now_ms: WallMs) -> int:
        """Raises RouteUnfinished when none of them has a route yet."""
        share = self._share
        try:
            route = vhost.route(address, RoutingContext({}, now_ms, share.of(run[0].content)))
        except (NotFound, AccessRefused):
            route = NOWHERE
        self._route = route
        if not route.needs_headers:
            return self._give_all(vhost, route.queues, run, now_ms)
        for place, message in enumerate(run):
            if place > 0 and share.is_over():
                return place
            facts = self._reader.facts(message.content)
            context = RoutingContext(facts, now_ms, share.of(message.content))
            try:
                queues = _find(vhost, address, context)
            except RouteUnfinished:
                if place == 0:
                    raise
                return place
            if self._give(vhost, queues, [message], now_ms) == 0:
                return place  # it comes again, and must not be a duplicate then
            context.remember()
        return len(run)

    def _give_all(
        self, vhost: Vhost, queues: list[Queue], run: list[Message], now_ms: WallMs
    ) -> int:
        """Until they have no room, and may have some later."""
        done = self._give(vhost, queues, run, now_ms)
        while done < len(run) and self._decided:
            count = self._give(vhost, queues, run[done:], now_ms)
            if count == 0:
                break
            done += count
        return done

    def _give(self, vhost: Vhost, queues: list[Queue], run: list[Message], now_ms: WallMs) -> int:
        """To all of these queues as many as each has room for."""
        if not queues:
            self.unroutable += len(run)
            self._count(run, 0)
            return len(run)
        if any_refuses(queues):
            room = self._room(queues, run)
            if room == 0:
                return self._go_around(vhost, queues, run, now_ms) if self._decided else 0
            run = run[:room]
        self._count(run, len(queues))
        parts = [part for queue in queues for part in queue.backing.parts()]
        for part in parts:
            part.records.expect_moved()
        if any_refuses(queues):
            vhost.publish_some(queues, run, now_ms)
        else:
            vhost.publish(queues, run, now_ms)
        for part in parts:
            part.records.moved_in()
        return len(run)

    def _go_around(
        self, vhost: Vhost, queues: list[Queue], run: list[Message], now_ms: WallMs
    ) -> int:
        """The first messages pass those queues that can never take them."""
        never = [queue for queue in queues if _never_takes(queue, run[0])]
        if not never:
            return 0
        end = 1
        while end < len(run) and [one for one in queues if _never_takes(one, run[end])] == never:
            end += 1
        self.full = ""
        left = [queue for queue in queues if queue not in never]
        count = self._give(vhost, left, run[:end], now_ms)
        if left:
            self.unroutable += count
        return count

    def _count(self, run: list[Message], queue_count: int) -> None:
        """These are not published again: they go to so many queues."""
        route = self._route
        route.traffic.count(len(run), len(run) * queue_count)
        if route.topic is not None:
            count_published(route.topic, run)

    def _room(self, queues: list[Queue], run: list[Message]) -> int:
        room = len(run)
        for queue in queues:
            if _is_waited_for(queue):
                over = queue.overflowing(run[:room])
                if over:
                    room = min(over)
                    self.full = queue.name
        return room


def _find(vhost: Vhost, address: Address, context: RoutingContext) -> list[Queue]:
    return vhost.reached(address.exchange, address.routing_key, context, [])


def _is_waited_for(queue: Queue) -> bool:
    return queue.limits.refuses and not queue.limits.buries_refused and queue.leases is None


def _never_takes(queue: Queue, message: Message) -> bool:
    """Even if it becomes empty."""
    if not _is_waited_for(queue) or queue.consumers:
        return False
    limits = queue.limits
    return limits.max_length == 0 or 0 <= limits.max_length_bytes < body_size(message.content)
