"""How long deliveries of one channel may stay unacknowledged, and more time for those who ask.

    delivered ─► stamp ─ timeout ─► the channel is closed with 406, as RabbitMQ closes it
                   ▲
    a publish to the default exchange with the routing key ``amq.penstock.extend``

The timeout is the consumer's ``x-consumer-timeout``, else the queue's (argument or policy), else
the node's ``consumer_timeout_ms``.  RabbitMQ knows no way to ask for more time.  Here the body of
such a publish names delivery tags of the same channel, in digits, apart by commas or blanks;
0 names all open ones.  Their time begins anew.

Times are those of the monotonic clock, kept to a second or two, one stamp for all deliveries of a
second: ``stamp`` is called for each batch, and mostly does nothing.
"""

from bisect import bisect_right
from typing import Final, cast, final

from mypy_extensions import i64

from penstock.core.clock_types import MonoMs
from penstock.core.errors import PreconditionFailed
from penstock.protocols.amqp.codec.ledger import DeliveryLedger
from penstock.queues.consumers import Consumer
from penstock.queues.queue import Queue

EXTEND_KEY: Final = "amq.penstock.extend"
STAMP_INTERVAL_MS: Final[i64] = 1000
NEVER_MS: Final[i64] = 1 << 60


def timeout_of(consumer: Consumer, default_ms: i64) -> i64:
    """0 = it has all the time in the world."""
    if consumer.timeout_ms > 0:
        return consumer.timeout_ms
    queue = cast(Queue, consumer.queue)
    return queue.limits.consumer_timeout_ms if queue.limits.consumer_timeout_ms > 0 else default_ms


@final
class Deadlines:
    """Of the deliveries in ``ledger``; their holders are consumers."""

    def __init__(self, ledger: DeliveryLedger) -> None:
        self._ledger = ledger
        # Parallel: tags from _tags[i] on, up to _tags[i + 1], were delivered at _times[i].
        self._tags: list[int] = []
        self._times: list[MonoMs] = []
        self._stamped_ms = MonoMs(-STAMP_INTERVAL_MS)
        self._extended: dict[int, MonoMs] = {}
        self._shortest_ms: i64 = NEVER_MS  # that any consumer here ever had

    def stamp(self, now_ms: MonoMs) -> None:
        """What is numbered from here on was delivered now."""
        if 0 <= now_ms - self._stamped_ms < STAMP_INTERVAL_MS:
            return
        self._stamped_ms = now_ms
        oldest = self._ledger.oldest_tag()
        done = bisect_right(self._tags, int(oldest)) - 1
        if done > 0:
            del self._tags[:done]
            del self._times[:done]
        self._tags.append(int(self._ledger.next_tag))
        self._times.append(now_ms)

    def begun_ms(self, tag: int) -> MonoMs:
        """When the time of an open delivery began, to a second."""
        extended = self._extended.get(tag)
        if extended is not None:
            return extended
        place = bisect_right(self._tags, tag) - 1
        return self._times[max(place, 0)]

    def note(self, consumer: Consumer) -> None:
        """It takes deliveries here: none may stay open for longer than it may."""
        timeout_ms = timeout_of(consumer, 0)
        if 0 < timeout_ms < self._shortest_ms:
            self._shortest_ms = timeout_ms

    def extend(self, named: bytes, now_ms: MonoMs) -> None:
        """Raises PreconditionFailed for a tag that is not open, and for what is no tag."""
        for word in named.replace(b",", b" ").split():
            if not word.isdigit() or len(word) > 19:
                raise PreconditionFailed(f"no delivery tag: {word[:20]!r}")
            tag = int(word)
            if tag == 0:
                for one in self._ledger.open_tags(self._ledger.next_tag):
                    self._extended[one] = now_ms
            elif self._ledger.is_open(tag):
                self._extended[tag] = now_ms
            else:
                raise PreconditionFailed(f"unknown delivery tag {tag}")

    def check(
        self, now_ms: MonoMs, default_ms: i64, consumers: list[Consumer], number: i64
    ) -> None:
        """Raises PreconditionFailed, in RabbitMQ's words, when one of channel ``number`` is."""
        timeout_ms = self.overdue(now_ms, default_ms, consumers)
        if timeout_ms > 0:
            raise PreconditionFailed(
                f"delivery acknowledgement on channel {int(number)} timed out. Timeout value"
                f" used: {int(timeout_ms)} ms. This timeout value can be configured, see consumers"
                " doc guide to learn more"
            )

    def overdue(self, now_ms: MonoMs, default_ms: i64, consumers: list[Consumer]) -> i64:
        """The timeout that some delivery has passed; 0 = none has.

        ``consumers`` are those who take deliveries now; those who did before are remembered.
        """
        for consumer in consumers:
            self.note(consumer)
        shortest_ms = min(self._shortest_ms, default_ms if default_ms > 0 else NEVER_MS)
        place = bisect_right(self._times, int(now_ms - shortest_ms))
        if place == 0 or self._ledger.oldest_tag() >= self._end_of(place):
            return 0  # even the oldest is younger
        for tag in self._ledger.open_tags(self._end_of(place) - 1):
            timeout_ms = timeout_of(cast(Consumer, self._ledger.holder(tag)), default_ms)
            if 0 < timeout_ms <= now_ms - self.begun_ms(tag):
                return timeout_ms
        if len(self._extended) > self._ledger.open_count:
            self._extended = {
                tag: at for tag, at in self._extended.items() if self._ledger.is_open(tag)
            }
        return 0

    def _end_of(self, place: int) -> i64:
        """The first tag of the stamp at ``place``."""
        return self._tags[place] if place < len(self._tags) else self._ledger.next_tag
