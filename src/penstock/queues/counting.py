"""Counts and measures of a queue, for management.

Numbers since the queue was opened.  They grow once per batch; single messages are looked at only
while some that were given back have not been handed out again, because then a batch may hold some
of them.
"""

from typing import final

from mypy_extensions import i64

from penstock.core.clock_types import WallMs
from penstock.core.message import REDELIVERED, Message
from penstock.queues.capacity import Capacity
from penstock.queues.consumers import Consumer
from penstock.queues.latency import Latency, PublishTime, enqueue_time
from penstock.queues.sampling import ACKED, RETURNED, Sampler, Sampling


@final
class QueueStatistics:
    """``delivered_count`` is all that was handed out; those below it are parts of it."""

    def __init__(self) -> None:
        self.active_at_ms = WallMs(0)  # when it last took or gave messages
        self.published_count: i64 = 0
        self.delivered_count: i64 = 0
        self.no_ack_count: i64 = 0  # to consumers that acknowledge nothing
        self.got_count: i64 = 0  # one by one, when asked
        self.got_no_ack_count: i64 = 0  # both
        self.again_count: i64 = 0  # not for the first time
        self.empty_count: i64 = 0  # asked, and there was nothing
        self.acked_count: i64 = 0
        self.redelivered_count: i64 = 0  # given back
        self.requeued_count: i64 = 0  # given back before their time
        self.timed_out_count: i64 = 0
        self.returned_count: i64 = 0  # of those given back, so many may still be here
        self.buried_count: i64 = 0  # died, with a dead-letter exchange
        self.capacity = Capacity()
        self.latency: Latency | None = None  # measured when asked for
        self.sampler: Sampler | None = None  # while there is an event log

    def measure_latency(self, window_ms: i64, publish_time: PublishTime = enqueue_time) -> None:
        if self.latency is None:
            self.latency = Latency(window_ms, publish_time)

    def start_sampling(
        self, sampling: Sampling, vhost: str, name: str, of_stream: bool = False
    ) -> None:
        self.sampler = Sampler(sampling, vhost, name, of_stream)

    def published(self, count: i64, now_ms: WallMs) -> None:
        self.published_count += count
        self.active_at_ms = now_ms

    def delivered(self, consumer: Consumer, count: i64, now_ms: WallMs) -> None:
        self.active_at_ms = now_ms
        self.delivered_count += count
        consumer.delivered_count += count
        if consumer.no_ack:
            self.no_ack_count += count

    def got(self, account: Consumer) -> None:
        """One was delivered, because it was asked for."""
        self.delivered_count += 1
        account.delivered_count += 1
        self.got_count += 1
        if account.no_ack:
            self.no_ack_count += 1
            self.got_no_ack_count += 1

    def buried(self, count: i64) -> None:
        """Negative: so many are to be buried again."""
        self.buried_count += count

    def found_nothing(self) -> None:
        self.empty_count += 1

    def again(self, messages: list[Message]) -> i64:
        """How many of these, which are handed out, are not so for the first time."""
        count: i64 = 0
        for message in messages:
            if message.flags & REDELIVERED:
                count += 1
        self.again_count += count
        # After a crash more have the mark than were given back since.
        self.returned_count = self.returned_count - count if self.returned_count > count else 0
        return count

    def acked(self, consumer: Consumer, messages: list[Message]) -> None:
        count: i64 = len(messages)
        self.acked_count += count
        consumer.acked_count += count
        sampler = self.sampler
        if sampler is not None and sampler.open:
            sampler.done(messages, ACKED)

    def dropped_read(self, count: i64) -> None:
        """A reader of ranges is done with so many."""
        self.acked_count += count

    def redelivered(self, messages: list[Message]) -> None:
        """They were given back, to their places."""
        self.redelivered_count += len(messages)
        self.returned(messages)

    def requeued(self, messages: list[Message]) -> None:
        """They were given back before their time."""
        self.requeued_count += len(messages)
        self.settled(messages, RETURNED)

    def timed_out(self, messages: list[Message]) -> None:
        self.timed_out_count += len(messages)
        self.settled(messages, RETURNED)

    def returned(self, messages: list[Message]) -> None:
        """They are ready once more, and marked; some may die of it."""
        self.returned_count += len(messages)
        self.settled(messages, RETURNED)

    def will_come_again(self, count: i64) -> None:
        """So many went to the tail, unmarked: they are counted before it is their turn."""
        self.again_count += count

    def limit_returned(self, ready: i64) -> None:
        """So many are still here: some that came back may have expired, been dropped or moved."""
        if self.returned_count > ready:
            self.returned_count = ready

    def sample(self, consumer: Consumer, messages: list[Message]) -> None:
        """One of these, just handed out, is to have its times in the event log."""
        sampler = self.sampler
        if sampler is not None:
            sampler.take(messages[len(messages) // 2], self.delivered_count, consumer.no_ack)

    def settled(self, messages: list[Message], outcome: str) -> None:
        """These were rejected or given back; was one of them a sample?"""
        sampler = self.sampler
        if sampler is not None and sampler.open:
            sampler.done(messages, outcome)
