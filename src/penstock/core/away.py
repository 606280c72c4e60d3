"""``Away``: the answer is not here yet.  Whoever asked holds its peer's input, and asks again.

Who is asked raises ``Away`` out of any verb that needs something from elsewhere: the head of a
queue from the disk, a queue's master or the coordinator from another node.  A session puts what it
was doing back in front of what came behind it, and does it anew when there is hope:

    plain            in the next turn (the disk brings things soon)
    with a Ticket    not before that is done.  The session shows it to ``Answers`` while it does the
                     same thing once more; whoever raised it finds it there (``claim``), by the verb
                     and the thing it was for, and answers with it in place of asking again

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
        """Nobody wants it any more, be it done or not."""

    def lose(self) -> None:
        """Nobody will answer; ask somebody else."""
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
