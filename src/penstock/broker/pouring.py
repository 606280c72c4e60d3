"""``Pouring``: messages that were accepted before are published where their addresses lead now.

In: messages of one virtual host, in order, with contents at hand: of a staged set, or just
received.  Out: how many of them the queues took, and how many of those had no queue to go to.

It stops before the first message that a queue has no room for (``x-overflow`` is
``reject-publish``): nobody is there any more to be told "no", so the rest waits until consumers
have made room; ``full`` is then that queue's name.  Two kinds of queues are not waited for: those
that make dead letters of what they refuse, and channels of NSQ, which drop it.

An exchange that is gone by now leads nowhere.
"""

from typing import Final, cast, final

from penstock.backing.variable_queue import VariableQueue
from penstock.broker.routes import Route, any_refuses, count_published
from penstock.broker.vhost import Vhost
from penstock.core.errors import AccessRefused, NotFound
from penstock.core.headers import NOW, HeaderReader
from penstock.core.message import REDELIVERED, STORED, Address, Message
from penstock.queues.queue import Queue
from penstock.storage.engine import Engine

ADDRESSES_MAX: Final = 8192


@final
class Pouring:
    """One for a node."""

    def __init__(self, engine: Engine, reader: HeaderReader) -> None:
        self.full: str = ""
        self.unroutable: int = 0  # of the last call
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

    def pour(self, vhost: Vhost, messages: list[Message], now_ms: int, again: bool) -> int:
        """How many the queues took.  ``again``: they may have been handed out before."""
        self.full = ""
        self.unroutable = 0
        done = 0
        while done < len(messages):
            end = done + 1
            wire = messages[done].address
            while end < len(messages) and messages[end].address == wire:
                end += 1
            run = [self._copy(message, now_ms, again) for message in messages[done:end]]
            done += self._publish(vhost, self.address(vhost, wire), run, now_ms)
            if done < end:
                break
        return done

    def leads_somewhere(self, vhost: Vhost, address: Address, messages: list[Message]) -> bool:
        """Would each of these have a queue now?  Raises NotFound or AccessRefused."""
        route = vhost.route(address)
        if not route.needs_headers:
            return len(route.queues) > 0
        return all(self._queues_for(vhost, address, one, 0) for one in messages)

    def trouble(self) -> str:
        """Why the last call did not take all."""
        full = self.full
        return f"queue '{full}' is full and refuses publishes (x-overflow)" if full else ""

    # -- one address -------------------------------------------------------------------------

    def _copy(self, message: Message, now_ms: int, again: bool) -> Message:
        """For the queues: with the publisher's flags, which no record on disk has."""
        flags, expires_at_ms = self._reader.marks(message.content, now_ms)
        if again:
            flags |= REDELIVERED
        copy = Message(message.content, message.address, flags, expires_at_ms)
        # The store may have been told since to hold only larger ones.
        if message.flags & STORED and message.size >= self._engine.limits.embed_below_bytes:
            copy.msg_id = message.msg_id
        return copy

    def _publish(self, vhost: Vhost, address: Address, run: list[Message], now_ms: int) -> int:
        try:
            route = vhost.route(address)
        except (NotFound, AccessRefused):
            route = Route([], False)
        if route.topic is not None:
            count_published(route.topic, run)
        if not route.needs_headers:
            return self._give(vhost, route.queues, run, now_ms)
        for place, message in enumerate(run):
            queues = self._queues_for(vhost, address, message, now_ms)
            if self._give(vhost, queues, [message], now_ms) == 0:
                return place
        return len(run)

    def _queues_for(
        self, vhost: Vhost, address: Address, message: Message, now_ms: int
    ) -> list[Queue]:
        facts = self._reader.facts(message.content)
        facts[NOW] = now_ms
        return vhost.find_queues(address.exchange, address.routing_key, facts, [])

    def _give(self, vhost: Vhost, queues: list[Queue], run: list[Message], now_ms: int) -> int:
        """To all of these queues as many as each has room for."""
        if not queues:
            self.unroutable += len(run)
            return len(run)
        if any_refuses(queues):
            run = run[: self._room(queues, run)]
            if not run:
                return 0
        parts = [cast(VariableQueue, part) for queue in queues for part in queue.backing.parts()]
        for part in parts:
            part.expect_moved()
        if any_refuses(queues):
            vhost.publish_some(queues, run, now_ms)
        else:
            vhost.publish(queues, run, now_ms)
        for part in parts:
            part.moved_in()
        return len(run)

    def _room(self, queues: list[Queue], run: list[Message]) -> int:
        room = len(run)
        for queue in queues:
            limits = queue.limits
            if limits.refuses and not limits.buries_refused and queue.leases is None:
                over = queue.overflowing(run[:room])
                if over:
                    room = min(over)
                    self.full = queue.name
        return room
