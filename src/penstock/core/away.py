"""``Away``: the answer is not here yet.  The session holds its client's input, and asks again.

A verb raises ``Away`` when it needs something from elsewhere: the head of a queue from the disk, a
queue's master or the coordinator from another node.  The session puts the request back in front of
the input behind it, and runs it again when the answer may be there:

    plain            in the next turn (the disk brings things soon)
    with a Ticket    not before that is done.  The session shows it to ``Answers`` while it runs the
                     request again; the verb finds it there (``claim``), by its name and the object
                     it was for, and answers with it in place of asking again

So a verb is written as if it were here, but for two lines:

    ticket = answers.claim("purge", queue)
    if ticket is None: ask, raise Away(ticket)

A verb may need several answers one after the other if each step, once done, is done when it is
met again: declaring what exists already is.  A ticket that failed raises its error from ``claim``;
one that is ``again`` was lost with who should have answered: it is asked for anew.  A session that
ends drops its ticket.
"""

from typing import final

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
class Away(Exception):
    """See the head of this file."""

    def __init__(self, ticket: Ticket | None = None) -> None:
        super().__init__("the answer is elsewhere")
        self.ticket = ticket


@final
class Answers:
    """Of one node: the ticket of who asks again at this moment."""

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
