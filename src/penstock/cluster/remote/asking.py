"""Questions for the master of a queue that is elsewhere: a part of ``RemoteQueue``.

purge, counts ... ─► Ask with a ticket's number ─► Pending      Answered ─► the ticket is done
resumed ─► how the verb goes on, with the ticket; AGAIN if it is lost
"""

from collections.abc import Callable
from functools import partial
from typing import TypeAlias, final

from mypy_extensions import i64

from penstock.cluster.remote.master import Master
from penstock.cluster.remote.subscriptions import (
    RemoteConsumer,
    RemoteSubscriptions,
    number_messages,
)
from penstock.core import queue_requests as q
from penstock.core.errors import BrokerError
from penstock.core.message import Message
from penstock.core.pending import AGAIN, Pending, Ticket
from penstock.queues.consumers import Consumer


@final
class RemoteTicket(Ticket):
    """A question to the master's node; ``remote``: the consumer it is for."""

    def __init__(self, subscriptions: RemoteSubscriptions, no_ack: bool = False) -> None:
        super().__init__()
        self.remote: RemoteConsumer | None = None
        self.got: Message | None = None
        self.value: i64 = 0
        self.second_value: i64 = 0
        self._no_ack = no_ack
        self._dropped: bool = False
        self._subscriptions = subscriptions

    def subscribe(self, consumer: Consumer, question: i64) -> None:
        self.remote = self._subscriptions.subscribe(consumer, question)

    def drop(self) -> None:
        self._dropped = True
        self._give_back()

    def take_answer(self, answer: q.Answered, base: i64) -> None:
        self.value = answer.value
        self.second_value = answer.first
        if len(answer.messages) > 0:
            number_messages(answer.messages, answer.first + base)
            self.got = answer.messages[0]
        self.answer()
        if self._dropped:
            self._give_back()

    def _give_back(self) -> None:
        """The session that asked has left."""
        if not self.done or self.lost:
            return
        if self.got is not None and not self._no_ack:
            self._subscriptions.return_got(self.got)
            self.got = None
        if self.remote is not None and self.error is None:
            self._subscriptions.unsubscribe(self.remote)


GoOn: TypeAlias = Callable[[RemoteTicket], object]


@final
class Questions:
    """Of one queue."""

    def __init__(self, master: Master, subscriptions: RemoteSubscriptions) -> None:
        self._master = master
        self._subscriptions = subscriptions
        self._last: i64 = 0
        self._asked: dict[int, RemoteTicket] = {}
        self._unasked: list[RemoteTicket] = []  # there was no master to ask

    def ask(self, what: i64, go_on: GoOn, no_ack: bool = False) -> Pending:
        """Raises NotFound or Unavailable while no master is expected."""
        ticket = RemoteTicket(self._subscriptions, no_ack)
        if self._has_master():
            flags = q.NO_ACK if no_ack else 0
            self._master.send(q.Ask(self._master.no, self._number(ticket), what, flags))
        else:
            self._unasked.append(ticket)
        return Pending(ticket, partial(_outcome, ticket, go_on))

    def ask_to_consume(self, consumer: Consumer, go_on: GoOn) -> Pending:
        ticket = RemoteTicket(self._subscriptions)
        if self._has_master():
            ticket.subscribe(consumer, self._number(ticket))
        else:
            self._unasked.append(ticket)
        return Pending(ticket, partial(_outcome, ticket, go_on))

    def _has_master(self) -> bool:
        """False: the next one is asked."""
        if self._master.down != "":
            raise self._master.refusal()
        return self._master.way is not None

    def _number(self, ticket: RemoteTicket) -> i64:
        self._last += 1
        self._asked[int(self._last)] = ticket
        return self._last

    # -- answers -------------------------------------------------------------------------------

    def answered(self, answer: q.Answered) -> None:
        ticket = self._asked.pop(int(answer.question), None)
        if ticket is None:
            return
        if answer.error != "":
            if ticket.remote is not None:
                self._subscriptions.forget(ticket.remote)
            ticket.fail(q.ERRORS.get(answer.error, BrokerError)(answer.text))
            return
        ticket.take_answer(answer, self._master.base)

    def fail_all(self, error: BrokerError) -> None:
        tickets = list(self._asked.values())
        self._asked = {}
        for ticket in tickets:
            ticket.fail(error)
        self.fail_unasked(error)

    def fail_unasked(self, error: BrokerError) -> None:
        for ticket in self._take_unasked():
            ticket.fail(error)

    def lose(self) -> None:
        """The master that was asked is lost: the next one is."""
        tickets = list(self._asked.values())
        self._asked = {}
        for ticket in tickets:
            if ticket.remote is not None:
                self._subscriptions.forget(ticket.remote)
            ticket.lose()

    def ask_again(self) -> None:
        """What waited for a master."""
        for ticket in self._take_unasked():
            ticket.lose()

    def _take_unasked(self) -> list[RemoteTicket]:
        tickets = self._unasked
        self._unasked = []
        return tickets


def _outcome(ticket: RemoteTicket, go_on: GoOn) -> object:
    if ticket.lost:
        return AGAIN
    if ticket.error is not None:
        raise ticket.error
    return go_on(ticket)
