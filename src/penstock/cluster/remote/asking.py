"""Questions and verdicts for the master of a queue that is elsewhere: a part of ``RemoteQueue``.

    purge, counts ... ─► Ask with a ticket's number ─► ``Away``     Answered ─► the ticket is done

    settle, reject ... ─► Settle with the numbers of the deliveries

The session that caught ``Away`` calls the same verb again, which then finds its ticket.  What a
master delivered that is lost now cannot be settled any more: the next one delivers it anew.
"""

from collections import deque
from typing import final

from mypy_extensions import i64

from penstock.backing.delaying import RELEASED_AT_ONCE
from penstock.cluster.remote.publishing import RemotePublishing
from penstock.core import queue_requests as q
from penstock.core.away import Away, Ticket
from penstock.core.errors import BrokerError, NotFound, Unavailable
from penstock.core.message import Message
from penstock.queues.consumers import NO_WINDOW, Consumer
from penstock.queues.context import QueueContext, QueueIdentity
from penstock.queues.leases import Leases


@final
class RemoteConsumer:
    """One consumer here, and what has arrived for it."""

    def __init__(self, number: i64, no_ack: bool) -> None:
        self.number: i64 = number
        self.no_ack = no_ack
        self.consumer: Consumer | None = None  # until its question is answered
        self.told_window: i64 = q.ANY_WINDOW
        self.arrived: deque[Message] = deque()
        self.cancelled: bool = False  # while its question was under way


@final
class RemoteTicket(Ticket):
    """A question to the master's node."""

    def __init__(self, verb: str, queue: "RemoteAsking", no_ack: bool = False) -> None:
        super().__init__(verb, queue)
        self.queue = queue
        self.no_ack = no_ack
        self.dropped: bool = False
        self.remote: RemoteConsumer | None = None
        self.got: Message | None = None
        self.value: i64 = 0
        self.second_value: i64 = 0

    def drop(self) -> None:
        self.dropped = True
        self.queue.dropped(self)


class RemoteAsking(RemotePublishing):
    """See the head of this file."""

    def __init__(self, identity: QueueIdentity, context: QueueContext) -> None:
        super().__init__(identity, context)
        self._answers = context.answers
        self._base: i64 = 0  # of the numbers of deliveries
        self._by_consumer: dict[Consumer, RemoteConsumer] = {}
        self._last_question: i64 = 0
        self._asked: dict[int, RemoteTicket] = {}
        self._unasked: list[RemoteTicket] = []  # there was nobody to ask

    def dropped(self, ticket: RemoteTicket) -> None:
        """Who asked has left."""
        raise NotImplementedError

    # -- what needs an answer ----------------------------------------------------------------

    def _ask(self, ticket: RemoteTicket, verb: i64, flags: i64) -> Away:
        """To be raised."""
        if self._down != "":
            raise self._refusal()
        if self.way is None:
            self._unasked.append(ticket)
        else:
            self._send(q.Ask(self._no, self._question(ticket), verb, flags))
        return Away(ticket)

    def _refusal(self) -> BrokerError:
        """There is no master for some time: to be raised."""
        return NotFound(self._down) if self._away_text == "" else Unavailable(self._away_text)

    def _question(self, ticket: RemoteTicket) -> i64:
        self._last_question += 1
        self._asked[int(self._last_question)] = ticket
        return self._last_question

    def _fail_questions(self, error: BrokerError) -> None:
        tickets = [*self._asked.values(), *self._unasked]
        self._asked = {}
        self._unasked = []
        for ticket in tickets:
            ticket.fail(error)

    def _claim(self, verb: str) -> RemoteTicket | None:
        ticket = self._answers.claim(verb, self)
        return ticket if isinstance(ticket, RemoteTicket) else None

    def _answer_to(self, verb: str, what: i64, flags: i64) -> RemoteTicket:
        ticket = self._claim(verb)
        if ticket is None:
            raise self._ask(RemoteTicket(verb, self), what, flags)
        return ticket

    def purge(self) -> i64:
        return self._answer_to("purge", q.PURGE, 0).value

    def empty(self) -> i64:
        return self._answer_to("empty", q.EMPTY, 0).value

    def counts(self) -> tuple[int, int]:
        ticket = self._answer_to("counts", q.COUNTS, 0)
        return int(ticket.value), int(ticket.second_value)

    def ask_delete(self, if_unused: bool, if_empty: bool) -> int:
        flags = (q.IF_UNUSED if if_unused else 0) | (q.IF_EMPTY if if_empty else 0)
        return int(self._answer_to("delete", q.DELETE, flags).value)

    # -- settling --------------------------------------------------------------------------

    def settle(self, consumer: Consumer, messages: list[Message]) -> None:
        self._let_go_of(consumer, len(messages))
        self.acked_count += len(messages)
        consumer.acked_count += len(messages)
        self._send_settle(consumer, q.ACK, messages, 0)

    def reject(self, consumer: Consumer, messages: list[Message]) -> None:
        self._let_go_of(consumer, len(messages))
        self._send_settle(consumer, q.REJECT, messages, 0)

    def requeue(self, consumer: Consumer, messages: list[Message]) -> None:
        self._let_go_of(consumer, len(messages))
        self.redelivered_count += len(messages)
        self._send_settle(consumer, q.REQUEUE, messages, 0)

    def give_back(
        self, consumer: Consumer, messages: list[Message], delay_ms: i64, now_ms: i64
    ) -> None:
        self._let_go_of(consumer, len(messages))
        self.requeued_count += len(messages)
        self._send_settle(consumer, q.GIVE_BACK, messages, delay_ms)

    def give_back_all(self, owner: i64) -> None:
        leases = self.leases
        assert leases is not None
        for consumer, message in leases.release(owner):
            self._let_go_of(consumer, 1)
            self._send_settle(consumer, q.REQUEUE, [message], 0)

    def _time_out(self, leases: Leases, now_ms: i64) -> bool:
        late = leases.expired(now_ms, RELEASED_AT_ONCE)
        self.timed_out_count += len(late)
        for consumer, message in late:
            self._let_go_of(consumer, 1)
            self._send_settle(consumer, q.GIVE_BACK, [message], 0)
        return len(late) > 0

    def _end_leases(self) -> None:
        """Whoever delivered them is the master no more: the next one delivers them anew."""
        leases = self.leases
        if leases is not None:
            for consumer, _ in leases.clear():
                self._let_go_of(consumer, 1)

    def use_leases(self) -> bool:
        if self.leases is None:
            self.leases = Leases()
            self.defers = True
        return True

    def _let_go_of(self, consumer: Consumer, count: i64) -> None:
        consumer.release(count)
        self.unacked_count -= count
        gone = consumer.cancelled and consumer.outstanding == 0
        if gone and consumer not in self.consumers:
            self._by_consumer.pop(consumer, None)
        self.wake()

    def _send_settle(
        self, consumer: Consumer, kind: i64, messages: list[Message], delay_ms: i64
    ) -> None:
        """Of what this master delivered; what another one did is that one's, or nobody's."""
        numbers = [int(one.seq_id - self._base) for one in messages if one.seq_id > self._base]
        if len(numbers) == 0 or self.deleted:
            return
        remote = self._by_consumer.get(consumer)
        number: i64 = 0 if remote is None else remote.number
        self._send(q.Settle(self._no, number, kind, delay_ms, q.in_runs(numbers)))


def window_of(consumer: Consumer) -> i64:
    """How many it may hold at a time; ``ANY_WINDOW`` = any number."""
    window = q.ANY_WINDOW
    if consumer.no_ack:
        return window
    if consumer.window != NO_WINDOW:
        window = consumer.window
    elif consumer.prefetch > 0:
        window = consumer.prefetch
    limit = consumer.shared.limit
    if limit > 0 and (window == q.ANY_WINDOW or limit < window):
        window = limit
    return window
