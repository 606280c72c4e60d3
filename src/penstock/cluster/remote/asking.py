"""Questions for the master of a queue that is elsewhere: a part of ``RemoteQueue``.

    purge, counts ... ─► Ask with a ticket's number ─► ``Away``     Answered ─► the ticket is done

The session that caught ``Away`` calls the same verb again, which then finds its ticket.
"""

from typing import final

from mypy_extensions import i64

from penstock.cluster.remote.master import Master
from penstock.cluster.remote.subscriptions import RemoteConsumer, RemoteSubscriptions
from penstock.core import queue_requests as q
from penstock.core.away import Answers, Away, Ticket
from penstock.core.errors import BrokerError
from penstock.core.message import Message
from penstock.queues.consumers import Consumer


@final
class RemoteTicket(Ticket):
    """A question to the master's node."""

    def __init__(self, verb: str, questions: "Questions", no_ack: bool = False) -> None:
        super().__init__(verb, questions)
        self.no_ack = no_ack
        self.dropped: bool = False
        self.remote: RemoteConsumer | None = None
        self.got: Message | None = None
        self.value: i64 = 0
        self.second_value: i64 = 0
        self._questions = questions

    def drop(self) -> None:
        self.dropped = True
        self._questions.take_back(self)

    def take_answer(self, answer: q.Answered, base: i64) -> None:
        self.value = answer.value
        self.second_value = answer.first
        if len(answer.messages) > 0:
            self.got = answer.messages[0]
            self.got.seq_id = answer.first + base
        self.answer(None)


@final
class Questions:
    """Of one queue."""

    def __init__(
        self, master: Master, subscriptions: RemoteSubscriptions, answers: Answers
    ) -> None:
        self._master = master
        self._subscriptions = subscriptions
        self._answers = answers
        self._last: i64 = 0
        self._asked: dict[int, RemoteTicket] = {}
        self._unasked: list[RemoteTicket] = []  # there was no master to ask

    def claim(self, verb: str) -> RemoteTicket | None:
        """The answer, if this was asked before; raises the error it brought."""
        ticket = self._answers.claim(verb, self)
        return ticket if isinstance(ticket, RemoteTicket) else None

    def answer_to(self, verb: str, what: i64, flags: i64) -> RemoteTicket:
        """Raises Away when it is not here yet."""
        ticket = self.claim(verb)
        if ticket is None:
            raise self.ask(RemoteTicket(verb, self), what, flags)
        return ticket

    def ask(self, ticket: RemoteTicket, what: i64, flags: i64) -> Away:
        """To be raised."""
        if self._may_ask(ticket):
            self._master.send(q.Ask(self._master.no, self._number(ticket), what, flags))
        return Away(ticket)

    def ask_to_consume(self, consumer: Consumer) -> Away:
        """To be raised."""
        ticket = RemoteTicket("consume", self)
        if self._may_ask(ticket):
            remote = self._subscriptions.new(consumer.no_ack)
            ticket.remote = remote
            self._subscriptions.subscribe(remote, consumer, self._number(ticket))
        return Away(ticket)

    def _may_ask(self, ticket: RemoteTicket) -> bool:
        """False: the next master is asked."""
        if self._master.down != "":
            raise self._master.refusal()
        if self._master.way is None:
            self._unasked.append(ticket)
            return False
        return True

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
        if ticket.dropped:
            self.take_back(ticket)

    def take_back(self, ticket: RemoteTicket) -> None:
        """The session that asked has left: what it was given goes back."""
        if not ticket.done or ticket.again:
            return
        if ticket.got is not None and not ticket.no_ack:
            self._subscriptions.return_got(ticket.got)
            ticket.got = None
        if ticket.remote is not None and ticket.error is None:
            self._subscriptions.unsubscribe(ticket.remote)

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
