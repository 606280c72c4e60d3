"""Deliveries with a deadline: the part of ``Queue`` that takes messages back.

A queue with ``leases`` counts every attempt to deliver a message, whoever gets it, and gives it
again when its time is over (``leases.py`` knows the times).  On top of what every queue can do:

    give_back   to the tail, or as if it had not been there, not before some time has passed
    expire      what is over its deadline goes to the tail; what was delayed for long enough is
                ready again at the place it had, so it does not wait behind a backlog (or at the
                tail, where a reader of ranges may have passed that place and would acknowledge
                what it never read: after a start, and once there was one).  Some
                thousand at a time: ``next_due_ms`` says when there are more.  Where the queue is
                ``scanned``, the scan loop asks for that (``release_due``)
    empty       lets go of everything, what is in flight and what is delayed too

A message that comes back was tried too often when the queue has a ``delivery_limit`` and its
attempts are over it: then it dies (``limiting.py``).

Only a plain backing can delay messages, so only a queue that has one may have leases.
"""

from typing import cast

from mypy_extensions import i64

from penstock.backing.delaying import RELEASED_AT_ONCE
from penstock.backing.interface import BackingQueue
from penstock.backing.variable_queue import VariableQueue
from penstock.core.message import ATTEMPTS_MAX, ONE_ATTEMPT, Message, attempts_of
from penstock.queues.capacity import Capacity
from penstock.queues.consumers import Consumer
from penstock.queues.context import QueueContext
from penstock.queues.latency import Latency
from penstock.queues.leases import Leases
from penstock.queues.limiting import LimitedMessages
from penstock.queues.sampling import RETURNED, Sampler


class LeasedMessages(LimitedMessages):
    """See the head of this file; ``leases`` is None where deliveries have no deadlines."""

    def __init__(self, backing: BackingQueue, context: QueueContext) -> None:
        super().__init__(backing, context)
        self.leases: Leases | None = None
        self.capacity = Capacity()
        self.latency: Latency | None = None  # measured when somebody wants to know it
        self.sampler: Sampler | None = None  # while there is an event log
        self.scanned: bool = False  # its deadlines are found by the scan loop
        self.defers: bool = False  # something may be delayed, or in flight with a deadline
        self.defers_to_tail: bool = False  # readers by position may have passed what is delayed
        self.on_disconnect: str = (
            ""  # timeout or requeue: what a lost consumer held; else its choice
        )
        self.deleted: bool = False
        self.unacked_count: i64 = 0

    def wake(self) -> None:
        """Something may be deliverable: ask for a turn."""
        raise NotImplementedError

    def measure_capacity(self, now_ms: i64) -> None:
        """An interval ends."""
        if self.backing.ready_count() == 0:
            self.capacity.note(False, now_ms)  # what waited was purged, or its time was over
        self.capacity.look(now_ms)

    def ask_delete(self, if_unused: bool, if_empty: bool) -> int:
        """Where it is remote: it is gone, with so many messages; raises Away."""
        raise NotImplementedError

    def use_leases(self) -> bool:
        """From now on deliveries have deadlines; False where the backing cannot do that."""
        if self.leases is None and isinstance(self.backing, VariableQueue):
            self.leases = Leases()
            self.counts_attempts = True
            self.defers = True
        return self.leases is not None

    def defer_what_is_delayed(self) -> None:
        """Its backing has a life behind it: readers by position may have passed these."""
        if self.backing.count_delayed() > 0:
            self.defers = True
            self.defers_to_tail = True
            self.wake()

    def _count_attempts(self, messages: list[Message]) -> None:
        """They are being handed out."""
        for message in messages:
            if attempts_of(message) < ATTEMPTS_MAX:
                message.flags += ONE_ATTEMPT
        self.backing.note_attempts(messages)

    def _sample(self, consumer: Consumer, messages: list[Message]) -> None:
        """One of these, just handed out, is to have its times in the event log."""
        sampler = self.sampler
        if sampler is not None:
            sampler.take(messages[len(messages) // 2], self.delivered_count, consumer.no_ack)

    def _sampled(self, messages: list[Message], outcome: str) -> None:
        """These are settled; was one of them a sample?"""
        sampler = self.sampler
        if sampler is not None and sampler.open:
            sampler.done(messages, outcome)

    # -- coming back -----------------------------------------------------------------------

    def give_back(
        self, consumer: Consumer, messages: list[Message], delay_ms: i64, now_ms: i64
    ) -> None:
        """Its consumer could not deal with these; 0 = to the tail at once."""
        consumer.release(len(messages))
        self.requeued_count += len(messages)
        self._take_back(messages, delay_ms, now_ms)

    def give_back_all(self, owner: i64) -> None:
        """A consumer left and its messages need not wait: to the places they had."""
        leases = self.leases
        assert leases is not None
        messages: list[Message] = []
        for consumer, message in leases.release(owner):
            consumer.release(1)
            messages.append(message)
        if messages:
            self.unacked_count -= len(messages)
            self._sampled(messages, RETURNED)
            if self.deleted:
                return
            messages = self._living(messages)
            self._returned += len(messages)
            self.backing.requeue(messages)
            if self._counts_bodies():
                self._count_bodies(messages, 1)
            self.wake()

    def _take_back(self, messages: list[Message], delay_ms: i64, now_ms: i64) -> None:
        self.unacked_count -= len(messages)
        self._sampled(messages, RETURNED)
        if self.deleted:
            return
        messages = self._living(messages)
        self.again_count += len(messages)  # they will be, when it is their turn
        backing = cast(VariableQueue, self.backing)
        if messages and delay_ms > 0:
            backing.delay(messages, now_ms + delay_ms)
        elif messages:
            backing.requeue_to_tail(messages, now_ms)
            if self._counts_bodies():
                self._count_bodies(messages, 1)
        self.wake()

    def _living(self, messages: list[Message]) -> list[Message]:
        return self._live_on(messages) if self.limits.delivery_limit >= 0 else messages

    # -- time ------------------------------------------------------------------------------

    def expire(self, now_ms: i64) -> None:
        super().expire(now_ms)
        if self.defers and not self.scanned:
            self.release_due(now_ms)

    def release_due(self, now_ms: i64) -> bool:
        """What is over its deadline or was delayed for long enough is ready; True = some was."""
        leases = self.leases
        some = leases is not None and self._time_out(leases, now_ms)
        if 0 < self.backing.next_due_ms() <= now_ms and self._end_delays(now_ms):
            self.wake()
            return True
        return some

    def _end_delays(self, now_ms: i64) -> bool:
        """Some of what was delayed for long enough is ready; False = there is none."""
        backing = self.backing
        if not isinstance(backing, VariableQueue):
            return backing.release_due(now_ms, RELEASED_AT_ONCE) > 0
        backing.counts_bodies = self._counts_bodies()
        if self.defers_to_tail:
            count = backing.release_to_tail(now_ms, RELEASED_AT_ONCE)
        else:
            count = backing.release_due(now_ms, RELEASED_AT_ONCE)
        self._body_bytes += backing.released_body_bytes
        return count > 0

    def _time_out(self, leases: Leases, now_ms: i64) -> bool:
        late = leases.expired(now_ms, RELEASED_AT_ONCE)
        if len(late) == 0:
            return False
        for consumer, _ in late:
            consumer.release(1)
        self.timed_out_count += len(late)
        self._take_back([message for _, message in late], 0, now_ms)
        return True

    def next_due_ms(self) -> i64:
        due_ms = super().next_due_ms()
        if not self.defers or self.scanned:
            return due_ms
        leases = self.leases
        if leases is not None:
            due_ms = _earlier(due_ms, leases.first_ms())
        return _earlier(due_ms, self.backing.next_due_ms())

    # -- another master -------------------------------------------------------------------

    def hand_over(self) -> None:
        """It is none any more, and its backing somebody else's: nothing of it waits for a time."""
        leases = self.leases
        if leases is not None:
            ended = leases.clear()
            for consumer, _ in ended:
                consumer.release(1)
            self.unacked_count -= len(ended)
        self.deleted = True

    # -- letting go ------------------------------------------------------------------------

    def deferred_count(self) -> i64:
        """How many wait for their time."""
        return self.backing.count_delayed()

    def empty(self) -> i64:
        """Let go of everything but what consumers without a deadline hold; returns how many."""
        backing = cast(VariableQueue, self.backing)
        count = backing.purge() + backing.drop_delayed()
        self._body_bytes = 0
        self._returned = 0
        leases = self.leases
        if leases is not None:
            messages: list[Message] = []
            for consumer, message in leases.clear():
                consumer.release(1)
                messages.append(message)
            self.unacked_count -= len(messages)
            backing.ack(messages)
            count += len(messages)
        self.wake()
        return count


def _earlier(one_ms: i64, other_ms: i64) -> i64:
    """The earlier of two times, 0 = never."""
    if one_ms == 0 or 0 < other_ms < one_ms:
        return other_ms
    return one_ms
