"""``Histories``: what an exchange keeps of its last messages goes to what is bound to it.

In: an ``x-recent-history`` exchange and a queue or exchange that has just been bound to it.  Out:
what was in the exchange's internal queue when the binding was made is published there, oldest
first, one slice in each turn, which ends early when its routes are dear.  On a single node the
first slice goes at once, so before all that follows the binding.

In a cluster each node keeps what it routes itself in an internal queue of its own.  The node that
was asked for the binding gathers those of all nodes that it reaches (``Gathered``), and publishes
the last messages of them by their times of arrival.  What a node that is down has routed is left
out.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from penstock.core.clock_types import WallMs
from penstock.core.events.book import EventBook
from penstock.core.letters import HeaderWriter
from penstock.core.message import PERSISTENT, PRIORITY_BITS, Message
from penstock.core.pending import Pending, Ticket
from penstock.core.turn_part import TurnPart
from penstock.queues.local import LocalQueue
from penstock.queues.queue import Queue
from penstock.routing.exchanges import Exchange
from penstock.routing.recent_history import history_length
from penstock.routing.steps import RouteUnfinished, RoutingShare

if TYPE_CHECKING:
    from penstock.broker.topology.vhost import Vhost

SLICE_MESSAGES: Final[i64] = 200
SLICE_BYTES: Final[i64] = 1024 * 1024
GATHERED_BYTES: Final[i64] = 64 * 1024 * 1024
"""Of a history in a cluster a queue gets the newest messages that fit in there."""

ReadSlice = Callable[[], list[Message]]
"""The next messages, oldest first; none = that was all."""
Targets = Callable[[Message], list[Queue]]
"""A message of the history -> the queues it goes to now."""


@final
class HistoryReader:
    """What an internal queue has before the place ``end``, without taking it."""

    def __init__(self, queue: LocalQueue, end: i64) -> None:
        (self._part,) = queue.backing.parts()
        self.queue = queue
        self._start: i64 = self._part.tiers.floor_seq_id()
        self._end: i64 = end

    def read(self) -> list[Message]:
        """See ``ReadSlice``."""
        if self.queue.deleted or self._start >= self._end:
            return []
        found = self._part.reads.read_range(self._start, self._end, SLICE_MESSAGES, SLICE_BYTES)
        if found:
            self._start = found[-1].seq_id + 1
        return found


@final
class Gathered(Ticket):
    """The last ``length`` messages of the histories of several nodes; done when all are read."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self._length = length
        self._unread: i64 = 0
        self._messages: list[Message] = []

    def await_queue(self) -> None:
        self._unread += 1

    def queue_ended(self) -> None:
        """It is read, or its node is gone."""
        self._unread -= 1
        if self._unread == 0:
            self.answer()

    def take(self, messages: list[Message]) -> None:
        """A slice of a history; of all so far those stay that are the last by their arrival."""
        found = sorted([*self._messages, *messages], key=_arrival)
        size: i64 = 0
        first = len(found)
        while first > 0 and len(found) - first < self._length and size < GATHERED_BYTES:
            first -= 1
            size += len(found[first].content)
        self._messages = found[first:]

    def read(self) -> list[Message]:
        """See ``ReadSlice``."""
        found = self._messages[:SLICE_MESSAGES]
        del self._messages[:SLICE_MESSAGES]
        return found


def _arrival(message: Message) -> int:
    return int(message.enqueued_at_ms)


@final
class Replay:
    """To one destination: what ``read`` finds."""

    def __init__(self, vhost: "Vhost", read: ReadSlice, targets: Targets) -> None:
        self._vhost = vhost
        self._read = read
        self._targets = targets
        self._slice: deque[Message] = deque()

    def step(self, now_ms: WallMs) -> bool:
        """One slice; True = there is more."""
        if not self._slice:
            self._slice.extend(self._read())
        if not self._slice:
            return False
        try:
            while self._slice:
                self._publish(self._slice[0], now_ms)
                self._slice.popleft()
        except RouteUnfinished:
            pass
        return True

    def _publish(self, message: Message, now_ms: WallMs) -> None:
        if 0 < message.expires_at_ms <= now_ms:
            return
        queues = [queue for queue in self._targets(message) if not queue.deleted]
        if queues:
            flags = message.flags & (PERSISTENT | PRIORITY_BITS)
            copy = Message(message.content, message.address, flags, message.expires_at_ms)
            noted = len(self._vhost.waits.noted)
            self._vhost.publish_some(queues, [copy], now_ms)
            self._vhost.waits.forget_after(noted)


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

    def replay(self, vhost: "Vhost", exchange: Exchange, destination: object) -> Pending | None:
        """It has just been bound to the exchange; ``Pending``: other nodes are asked."""
        assert isinstance(exchange.internal_queue, LocalQueue)
        name = exchange.internal_queue.name
        reader = vhost.internal_queues.reader(name)
        assert reader is not None, "the binding was made"
        targets = partial(self._targets, vhost, destination)
        if not vhost.changes.follows:
            self._begin(Replay(vhost, reader.read, targets))
            return None
        gathered = Gathered(history_length(exchange.arguments))
        gathered.await_queue()
        vhost.changes.ask_histories(vhost.name, name, gathered)
        return self._gather(reader, gathered, Replay(vhost, gathered.read, targets))

    def _gather(self, reader: HistoryReader, gathered: Gathered, replay: Replay) -> Pending:
        """Read this node's own history, a slice in each turn, while the others are asked."""
        messages = reader.read()
        if messages:
            gathered.take(messages)
            return Pending(None, partial(self._gather, reader, gathered, replay))
        gathered.queue_ended()
        return Pending(gathered, partial(self._begin, replay))

    def _begin(self, replay: Replay) -> None:
        if replay.step(self._events.now_ms):
            self._replays.append(replay)

    def _targets(self, vhost: "Vhost", destination: object, message: Message) -> list[Queue]:
        if isinstance(destination, Queue):
            found = vhost.queues.get(destination.name)  # its master may have moved meanwhile
            return [] if found is None or found.incarnation != destination.incarnation else [found]
        assert isinstance(destination, Exchange)
        if self._share.is_over():
            raise RouteUnfinished
        share = self._share.of((id(destination), id(message)))
        letter = self._writer.release(message)
        name, keys, now_ms = destination.name, letter.keys, self._events.now_ms
        return vhost.find_queues(name, keys[0], letter.headers, keys[1:], now_ms, share)

    def run(self, now_ms: WallMs, idle: bool) -> bool:
        self._share.begin()
        for replay in list(self._replays):
            if not replay.step(now_ms):
                self._replays.remove(replay)
        return len(self._replays) > 0
