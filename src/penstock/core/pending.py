"""``Pending``: the outcome of a verb whose answer comes later.

    verb ─► the answer, or Pending(ticket, resume)      resume() ─► the answer, or Pending

The session that called the verb holds the ``Pending`` and what came behind the verb, and calls
``resume`` when ``ticket`` is done, in the next turn if there is none.  A session that ends drops
its ticket.  A verb that needs the answer of another verb returns

    then(queue.counts(), go_on, again)

``go_on`` gets the answer, now or later, and may return another ``Pending``.  ``again`` is called if
there is none: the node that was asked is not the queue's master any more, or the head of the queue
has to come from the disk.  It looks the queue up by its name, and asks the one that has it by then.
Without ``again`` the caller's is called.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar, cast, final

from mypy_extensions import mypyc_attr

from penstock.core.errors import BrokerError

T = TypeVar("T")
U = TypeVar("U")

AGAIN: Final = object()
"""In place of an answer: there is none, ask again."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Ticket:
    """``done``: answered, refused with ``error``, or ``lost`` with the node that was asked."""

    def __init__(self) -> None:
        self.done: bool = False
        self.lost: bool = False
        self.error: BrokerError | None = None

    def answer(self) -> None:
        self.done = True

    def fail(self, error: BrokerError) -> None:
        self.error = error
        self.done = True

    def lose(self) -> None:
        """No answer will come; ask another node."""
        self.lost = True
        self.done = True

    def drop(self) -> None:
        """It is not wanted any more, be it done or not."""


@final
class Pending:
    """``resume`` returns the answer or another ``Pending``; it raises what the verb raises."""

    def __init__(self, ticket: Ticket | None, resume: Callable[[], object]) -> None:
        self.ticket: Final[Ticket | None] = ticket
        self.resume: Final[Callable[[], object]] = resume


def then(
    outcome: T | Pending,
    go_on: Callable[[T], U | Pending],
    again: Callable[[], U | Pending] | None = None,
) -> U | Pending:
    """Go on with the answer of a verb: see the head of this file."""
    if isinstance(outcome, Pending):
        return Pending(outcome.ticket, partial(_resume, outcome, go_on, again))
    if outcome is AGAIN:
        return cast(U, AGAIN) if again is None else again()
    return go_on(outcome)


def _resume(
    pending: Pending, go_on: Callable[[T], U | Pending], again: Callable[[], U | Pending] | None
) -> U | Pending:
    return then(cast(T, pending.resume()), go_on, again)


def after(ticket: Ticket | None, go_on: Callable[[], None]) -> Pending | None:
    """Go on when the ticket is done, at once if there is none."""
    if ticket is not None:
        return Pending(ticket, go_on)
    go_on()
    return None


def ask_again() -> object:
    """To be resumed by: what is asked for was not here."""
    return AGAIN
