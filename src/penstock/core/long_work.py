"""``LongWork``: what one event asks for and one turn of the loop cannot hold.

    a settlement of very many deliveries ─► ``start`` ─► a share at once, and of each turn the
    the end of a channel or connection   ─►              same, until the ticket is done

All works together have one share of a turn, in steps (``core/steps.py``), and go on in turn: a
peer that leaves a million deliveries makes the works of others longer, and no turn.  What is
started while the share lasts, and fits, is over when ``start`` returns.
"""

from collections import deque
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from penstock.core.clock_types import WallMs
from penstock.core.credit import FlowBook
from penstock.core.message import Message
from penstock.core.pending import Ticket
from penstock.core.steps import STEPS_MAX, steps
from penstock.core.turn_part import TurnPart
from penstock.core.turn_share import TurnShare

AT_ONCE: Final[i64] = 2048
"""Deliveries of one step."""
DELIVERY_STEPS: Final[i64] = 12
"""Of each that is settled."""
DEATH_STEPS: Final[i64] = 40
"""Of each that dies: it may go to other queues in the same turn."""
FREEING_STEPS: Final[i64] = 4
"""Of each message that is freed."""


@mypyc_attr(allow_interpreted_subclasses=True)
class LongWork:
    def step(self) -> bool:
        """Do a little of it, and count that in ``steps``; False = nothing is left."""
        raise NotImplementedError


@final
class Freeing(LongWork):
    """Messages that nothing needs any more: to free a million of them takes long as well."""

    def __init__(self, pieces: list[list[Message]]) -> None:
        self._pieces = pieces

    def step(self) -> bool:
        left = AT_ONCE
        while len(self._pieces) > 0 and left > 0:
            piece = self._pieces[-1]
            count = min(left, i64(len(piece)))
            del piece[len(piece) - count :]
            left -= count
            if len(piece) == 0:
                self._pieces.pop()
        steps.count(FREEING_STEPS * (AT_ONCE - left))
        return len(self._pieces) > 0


@final
class LongWorks(TurnPart):
    """Of one node."""

    def __init__(self, book: FlowBook) -> None:
        self._left: deque[tuple[LongWork, Ticket]] = deque()
        super().__init__(self._left)
        self._book = book
        self._share = TurnShare(STEPS_MAX, STEPS_MAX)

    def start(self, work: LongWork) -> Ticket | None:
        """None: it is over; else the ticket is done when it is."""
        while self._may_go_on():
            if not self._go_on(work):
                return None
        ticket = Ticket()
        self._left.append((work, ticket))
        return ticket

    def run(self, now_ms: WallMs, idle: bool) -> bool:
        left = self._left
        while len(left) > 0 and self._may_go_on():
            work, ticket = left.popleft()
            if self._go_on(work):
                left.append((work, ticket))
            else:
                ticket.answer()
        return len(left) > 0

    def finish(self) -> None:
        """The broker stops: all that is left, at once, and what that starts."""
        while len(self._left) > 0:
            work, _ = self._left.popleft()
            while work.step():
                pass

    def _may_go_on(self) -> bool:
        return self._share.left(self._book.turns, False) > 0

    def _go_on(self, work: LongWork) -> bool:
        before = steps.taken
        more = work.step()
        self._share.spend(steps.taken - before)
        return more
