"""The delayed exchange (``x-delayed-message``): its messages wait in an internal queue.

    published ─► internal queue, ready ─ sort ─► delayed until enqueued + x-delay
                                         └───► routed from the exchange on, when that time is over
    due ─ release ─► ready ─ sort ─► routed

Routing is bounded (``internal_routes``): what is due and dear to route goes on in the next turn.
The delays of NSQ (REQ, DPUB) are in ``queues/deferring.py``.

A message has its time from its own header and from when it came, so nothing more has to be
remembered: an internal queue with ready messages, new ones or after a crash, looks at each.  A
routed message is acknowledged in it when it is on disk in its target queues; a crash in between
can duplicate it, never lose it.

On its way out ``x-delay`` becomes negative, as the community's plug-in for RabbitMQ has it: a
message is delayed once, whatever exchanges it passes.  Its own time to live begins when it
leaves the internal queue.
"""

from collections.abc import Callable
from typing import Final, cast, final

from mypy_extensions import i64

from penstock.backing.delaying import RELEASED_AT_ONCE
from penstock.broker.topology.routes import queues_in
from penstock.broker.topology.vhost import Vhost
from penstock.core.clock_types import WallMs
from penstock.core.headers import DELAY_HEADER, HeaderReader, delay_in
from penstock.core.letters import HeaderWriter
from penstock.core.message import PERSISTENT, Message, priority_flags
from penstock.queues.queue import Queue
from penstock.queues.schedule import Schedule
from penstock.routing.exchanges import Exchange, route
from penstock.routing.matcher import RoutingContext
from penstock.routing.steps import RouteUnfinished, RoutingShare

SORTED_AT_ONCE: Final[i64] = 1024
SORTED_BYTES_MAX: Final[i64] = 4 * 1024 * 1024

SettleLater = Callable[[i64, Queue, list[Message]], None]
"""(position, queue, messages): acknowledge them when the journal is on disk so far."""


@final
class Delays:
    """``vhosts`` is the broker's own registry."""

    def __init__(
        self,
        vhosts: dict[str, Vhost],
        schedule: Schedule,
        reader: HeaderReader,
        writer: HeaderWriter,
        settle_later: SettleLater,
    ) -> None:
        self._vhosts = vhosts
        self._schedule = schedule
        self._reader = reader
        self._writer = writer
        self._settle_later = settle_later

    def sort(self, queue: Queue, share: RoutingShare, now_ms: WallMs) -> None:
        """Look at what is ready: delay it, or route it if its time is over."""
        (backing,) = queue.backing.parts()
        messages = backing.fetch(SORTED_AT_ONCE, SORTED_BYTES_MAX)
        due: list[tuple[int, int, Message]] = []
        for message in messages:
            delay_ms = delay_in(self._reader.read(message, DELAY_HEADER))
            until_ms = WallMs(message.enqueued_at_ms + delay_ms)
            if until_ms > now_ms:
                backing.delay([message], until_ms)
            else:
                due.append((int(until_ms), int(message.seq_id), message))
        if due:
            due.sort()
            self._route(queue, [message for _, _, message in due], share, now_ms)
        if messages and backing.ready_count() > 0:
            queue.wake()
        self._schedule.plan(queue.backing.next_due_ms(), queue)

    def release(self, queue: Queue, now_ms: WallMs) -> i64:
        """Its time may have come: what is due becomes ready, and is sorted in this turn.

        Returns how many messages.
        """
        count = queue.backing.release_due(now_ms, RELEASED_AT_ONCE)
        if count > 0:
            queue.wake()
        self._schedule.plan(queue.backing.next_due_ms(), queue)
        return count

    def _route(
        self, queue: Queue, messages: list[Message], share: RoutingShare, now_ms: WallMs
    ) -> None:
        """What this turn has no time for is ready again."""
        last: i64 = 0
        done = 0
        for message in messages:
            if share.is_over():
                break
            try:
                position = self._publish(queue, message, share, now_ms)
            except RouteUnfinished:
                break
            last = position if position > 0 else last
            done += 1
        if done > 0:
            self._settle_later(last, queue, messages[:done])
        queue.backing.unfetch(messages[done:])

    def _publish(self, queue: Queue, message: Message, share: RoutingShare, now_ms: WallMs) -> i64:
        """The journal's position behind it; 0 = none is needed."""
        vhost = self._vhosts[queue.vhost]
        exchange = cast(Exchange, queue.releases_to)
        letter = self._writer.release(message)
        context = RoutingContext(letter.headers, now_ms, share.of((id(queue), message.seq_id)))
        queues = queues_in(
            route(exchange, letter.keys[0], context, vhost.exchanges, letter.keys[1:])
        )
        context.remember()
        if len(queues) == 0:
            return 0
        flags = (message.flags & PERSISTENT) | priority_flags(letter.priority)
        expires = letter.lasts_ms >= 0
        expires_at_ms = WallMs(now_ms + letter.lasts_ms) if expires else WallMs(0)
        copy = Message(letter.content, letter.address, flags, expires_at_ms)
        position, _ = vhost.publish_some(queues, [copy], now_ms)
        return position
