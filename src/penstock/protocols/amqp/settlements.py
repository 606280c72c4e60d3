"""``Settlements``: the deliveries of one channel that are settled together, in shares of a turn.

    ack, nack of all up to a tag, recover ─► ``through``: the first of them at once
    a commit that is safe                 ─► ``carry_out``: its verdicts, and then commit-ok
    the end of the channel                ─► ``end``: what is open goes back

While a verdict is carried out in shares, what comes behind it on the connection waits, but for
those of commits, whose clients wait for commit-ok if they want to.  No share has verdicts of two
commits, so that those of a short one are in one block of the journal.  Verdicts of one channel are
carried out in the order in which they came, also when the connection is gone: what was acknowledged
does not come back because the line broke.

A queue that gets messages back in shares delivers nothing before the last: they come back in their
order, as if in one piece.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, cast, final

from mypy_extensions import i64

from penstock.core.long_work import AT_ONCE, DEATH_STEPS, DELIVERY_STEPS, LongWork
from penstock.core.pending import Ticket
from penstock.core.steps import steps
from penstock.protocols.amqp.codec.ledger import DeliveryLedger, Settlement
from penstock.protocols.amqp.link import Link
from penstock.protocols.amqp.transaction import TxVerdict, Verdicts
from penstock.queues.consumers import Consumer
from penstock.queues.queue import Queue

ACK: Final = 0
REJECT: Final = 1
REQUEUE: Final = 2
FAILED: Final = 3
"""Put back by basic.reject: a quorum queue counts it as a failed delivery."""
LEFT: Final = 4
"""Put back because the channel ends: its consumers take nothing more."""

SETTLEMENT_STEPS: Final[i64] = 20
"""A queue is called for each settlement, whatever the number of its messages."""


@final
class Settlements(LongWork):
    """Of the deliveries in ``ledger``; ``carry_out``: what a verdict is for these."""

    def __init__(
        self, link: Link, ledger: DeliveryLedger, carry_out: Callable[[int, list[Settlement]], None]
    ) -> None:
        self._link = link
        self._ledger = ledger
        self._carry_out = carry_out
        # With what is done behind them.
        self._left: deque[tuple[Verdicts, Callable[[], None] | None]] = deque()
        self._holding: dict[Queue, None] = {}  # deliver nothing before the last has come back

    def under_way(self) -> bool:
        return len(self._left) > 0

    def through(self, kind: int, last_tag: i64) -> Ticket | None:
        """Every open delivery up to this one; None: it is done."""
        settled = self._count(kind, self._ledger.take_through(last_tag, AT_ONCE))
        more = self._ledger.oldest_tag() <= last_tag
        if more and kind >= REQUEUE:
            self._hold(settled)
        self._carry_out(kind, settled)
        if not more:
            return None
        self._left.append((deque([_all(kind, last_tag)]), None))
        return self._link.broker.queue_turns.long_works.start(self)

    def carry_out(self, verdicts: Verdicts, done: Callable[[], None]) -> None:
        """At once, as far as the turn's share goes, or behind those that are under way."""
        self._left.append((verdicts, done))
        if len(self._left) == 1:
            self._link.broker.queue_turns.long_works.start(self)

    def end(self) -> None:
        """The channel ends: ``step`` gives back what is open."""
        self._left.append((deque([_all(LEFT, self._ledger.next_tag - 1)]), None))

    def step(self) -> bool:
        if len(self._left) > 0:
            verdicts, done = self._left[0]
            self._some(verdicts)
            if len(verdicts) > 0:
                return True
            self._left.popleft()
            if done is not None:
                done()
        if len(self._left) > 0:
            return True
        for queue in self._holding:
            queue.hold(False)
        self._holding = {}
        return False

    def _some(self, verdicts: Verdicts) -> None:
        left = AT_ONCE
        while len(verdicts) > 0 and left > 0:
            verdict = verdicts[0]
            kind, count = verdict.kind, self._ledger.open_count
            settled = self._count(kind, verdict.take(self._ledger, left))
            left -= max(1, count - self._ledger.open_count)
            if verdict.is_over():
                verdicts.popleft()
            if len(verdicts) > 0 and kind >= REQUEUE:
                self._hold(settled)
            self._carry_out(kind, settled)

    def _count(self, kind: int, settled: list[Settlement]) -> list[Settlement]:
        count = 0
        for settlement in settled:
            count += len(settlement.messages)
        each = DEATH_STEPS if kind == REJECT else DELIVERY_STEPS
        steps.count(count * each + len(settled) * SETTLEMENT_STEPS)
        return settled

    def _hold(self, settled: list[Settlement]) -> None:
        for settlement in settled:
            queue = cast(Queue, cast(Consumer, settlement.holder).queue)
            if queue not in self._holding:
                self._holding[queue] = None
                queue.hold(True)


def _all(kind: int, last_tag: i64) -> TxVerdict:
    """Of a channel without transactions, or at its end."""
    return TxVerdict(kind, 0, last_tag, True, set())
