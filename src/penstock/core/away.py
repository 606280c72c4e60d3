"""Verbs whose answer comes later: ``Pending`` goes on, ``Away`` is run again.

    Pending   is returned.  The session holds it, keeps what came behind the verb, and calls
              ``resume``, which goes on where the verb stopped: what a cluster has to agree on
              (``broker/topology/changes.py``)
    Away      is raised.  The session puts the command back in front of what came behind it and
              runs it again from its first line: the head of a queue on its way from the disk, a
              question to a queue's master on another node

Both go on in the next turn, or, with a ``Ticket``, when that is done.  A session that ends drops
its ticket.  A verb that asks a master finds its ticket when it is run again, because the session
shows it to ``Answers`` meanwhile:

    ticket = answers.claim("purge", queue)
    if ticket is None: ask, raise Away(ticket)

A ticket that failed raises its error from ``claim``.  One that is ``again`` was lost with the node
that should have answered: the verb asks anew, of the queue that has the name by then.
"""

from collections.abc import Callable
from typing import Final, final

from penstock.core.errors import BrokerError


class Ticket:
    """An answer to come, for ``verb`` of ``subject``."""

    def __init__(self, verb: str, subject: object) -> None:
        self.verb = verb
        self.subject = subject
        self.done: bool = False
        self.again: bool = False
        self.error: BrokerError | None = None
        self.result: object = None

    def answer(self, result: object) -> None:
        self.result = result
        self.done = True

    def fail(self, error: BrokerError) -> None:
        self.error = error
        self.done = True

    def drop(self) -> None:
        """It is not wanted any more, be it done or not."""

    def lose(self) -> None:
        """No answer will come; ask another node."""
        self.again = True
        self.done = True


@final
class Pending:
    """The outcome of a verb whose answer comes later, and how the verb goes on.

    ``resume`` is called when ``ticket`` is done, in the next turn if there is none.  It returns the
    answer or another ``Pending``; it raises what the verb raises.
    """

    def __init__(self, ticket: Ticket | None, resume: Callable[[], object]) -> None:
        self.ticket = ticket
        self.resume: Final[Callable[[], object]] = resume


@final
class Away(Exception):
    """See the head of this file."""

    def __init__(self, ticket: Ticket | None = None) -> None:
        super().__init__("the answer is elsewhere")
        self.ticket = ticket


@final
class Answers:
    """Of one node: the ticket of the session that asks again at this moment."""

    def __init__(self) -> None:
        self.shown: Ticket | None = None

    def claim(self, verb: str, subject: object) -> Ticket | None:
        """The answer, if this was asked before; raises the error it brought."""
        ticket = self.shown
        if ticket is None or ticket.subject is not subject or ticket.verb != verb:
            return None
        self.shown = None
        if ticket.again:
            return None
        if ticket.error is not None:
            raise ticket.error
        return ticket
