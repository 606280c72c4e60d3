"""``Histories``: what an exchange keeps of its last messages goes to what is bound to it.

In: an ``x-recent-history`` exchange and a queue or exchange that has just been bound to it.  Out:
what is in the exchange's room at that time is published there, oldest first: the first slice at
once, so before all that follows the binding, and one more slice in each turn, which ends early when
its routes are dear.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from penstock.core.clock_types import WallMs
from penstock.core.event_book import EventBook
from penstock.core.letters import HeaderWriter
from penstock.core.message import PERSISTENT, PRIORITY_BITS, Message
from penstock.core.turn_part import TurnPart
from penstock.queues.local import LocalQueue
from penstock.queues.queue import Queue
from penstock.routing.exchanges import Exchange
from penstock.routing.steps import RouteUnfinished, RoutingShare

if TYPE_CHECKING:
    from penstock.broker.topology.vhost import Vhost

SLICE_MESSAGES: Final[i64] = 200
SLICE_BYTES: Final[i64] = 1024 * 1024

Targets = Callable[[Message], list[Queue]]
"""A message of the history -> the queues it goes to now."""


@final
class Replay:
    """To one destination: messages of the room from the place ``start`` on, before ``end``."""

    def __init__(self, vhost: "Vhost", room: LocalQueue, targets: Targets) -> None:
        (self._part,) = room.backing.parts()
        self._vhost = vhost
        self._room = room
        self._targets = targets
        self._start: i64 = self._part.floor_seq_id()
        self._end: i64 = self._part.next_seq_id()

    def step(self, now_ms: WallMs) -> bool:
        """One slice; True = there is more."""
        if self._room.deleted or self._start >= self._end:
            return False
        messages = self._part.read_range(self._start, self._end, SLICE_MESSAGES, SLICE_BYTES)
        for message in messages:
            try:
                if not 0 < message.expires_at_ms <= now_ms:
                    self._publish(message, now_ms)
            except RouteUnfinished:
                return True
            self._start = message.seq_id + 1
        return len(messages) > 0

    def _publish(self, message: Message, now_ms: WallMs) -> None:
        queues = [queue for queue in self._targets(message) if not queue.deleted]
        if queues:
            flags = message.flags & (PERSISTENT | PRIORITY_BITS)
            copy = Message(message.content, message.address, flags, message.expires_at_ms)
            self._vhost.publish_some(queues, [copy], now_ms)


@final
class Histories(TurnPart):
    """Of one node."""

    def __init__(self, events: EventBook, writer: HeaderWriter) -> None:
        self._replays: list[Replay] = []
        super().__init__(self._replays)
        self._share = RoutingShare()
        self._share.begin()
        self._events = events
        self._writer = writer

    def replay(self, vhost: "Vhost", exchange: Exchange, destination: object) -> None:
        """It has just been bound to the exchange."""
        assert isinstance(exchange.room, LocalQueue)
        replay = Replay(vhost, exchange.room, partial(self._targets, vhost, destination))
        if replay.step(self._events.now_ms):
            self._replays.append(replay)

    def _targets(self, vhost: "Vhost", destination: object, message: Message) -> list[Queue]:
        if isinstance(destination, Queue):
            return [destination]
        assert isinstance(destination, Exchange)
        if self._share.is_over():
            raise RouteUnfinished
        share = self._share.of((id(destination), message.seq_id))
        letter = self._writer.release(message)
        name, keys, now_ms = destination.name, letter.keys, self._events.now_ms
        return vhost.find_queues(name, keys[0], letter.headers, keys[1:], now_ms, share)

    def run(self, now_ms: WallMs, idle: bool) -> bool:
        self._share.begin()
        for replay in list(self._replays):
            if not replay.step(now_ms):
                self._replays.remove(replay)
        return len(self._replays) > 0
