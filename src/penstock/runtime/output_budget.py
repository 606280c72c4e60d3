"""``OutputBudget``: how much may wait for sockets that are not read, over all sessions together.

    what a socket left over (``wrote``, at each write) ─► the share of each (``tick``)

A queue delivers to a session until what that session has not sent is over its outlet's limit; the
outlet opens again when all of it has left.  One limit for each session would have to be small, or a
thousand consumers that stopped reading would cost a thousand times a large one.  So all of them
have one budget, an eighth of the memory limit and at most ``BUDGET_MOST_BYTES``.  What is left
of it is divided by the sessions that are delivered to in a round, from one tick to the next: with
few of them each has the full ``SHARE_MOST_BYTES``, and one that does not read any more is not
delivered to, so it gives its part up and keeps only what it has.  A share shrinks at once when more
sessions come into the round, or the budget is used up; it grows at a tick.

No session gets less than ``SHARE_LEAST_BYTES``.  One that was delivered to in each round of the
last second must have been reading, and gets no less than ``READER_LEAST_BYTES``: small shares cost
time, and those that read shall not pay for those that do not.  One that had nothing in the last
round begins with the least: it is not known whether it still reads, and a thousand may be woken
in one turn.

A share bounds what a queue hands to a session at once as well, but never to less than one message:
so a session costs its share, and one pass of another queue or one large message more.  In
the kernel it may cost ``KERNEL_UNSENT_BYTES`` more, and the peer's receive buffer; left alone, the
kernel takes 4 MB for each that does not read.

What waits here counts as memory (``RamAccount.output_bytes``): queues page in its place, and
publishers are held when it is too much.

Invariants (``check``):
  O1  ``unsent_bytes`` is the sum over the outlets, none of them negative
  O2  the share lies between the least and the most
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.queues.consumers import OUTLET_BYTES, OutputWindow
from penstock.storage.engine.ram import RamAccount

SHARE_MOST_BYTES: Final[i64] = OUTLET_BYTES
SHARE_LEAST_BYTES: Final[i64] = 32 * 1024
READER_LEAST_BYTES: Final[i64] = 128 * 1024
READER_ROUNDS: Final[i64] = 4
BUDGET_MOST_BYTES: Final[i64] = 64 * 1024 * 1024
LIMIT_PART: Final[i64] = 8
KERNEL_UNSENT_BYTES: Final = 256 * 1024
"""As TCP_NOTSENT_LOWAT of every socket: above this it takes no more before some was sent."""


@final
class OutputBudget:
    """What all sessions have not sent, and how much more each may have."""

    def __init__(self, ram: RamAccount) -> None:
        self.unsent_bytes: i64 = 0
        self.share_bytes: i64 = SHARE_MOST_BYTES
        self._ram: RamAccount = ram
        self._takers: i64 = 0  # sessions delivered to since the last tick
        self._round: i64 = 2

    def budget_bytes(self) -> i64:
        part = self._ram.limit_bytes // LIMIT_PART
        return part if part < BUDGET_MOST_BYTES else BUDGET_MOST_BYTES

    def wrote(self, outlet: OutputWindow, left: i64) -> None:
        """A session's output went to its socket, but for so many bytes."""
        more = outlet.wrote(left)
        self.unsent_bytes += more
        if more > 0 and self.unsent_bytes > self.budget_bytes():
            self.share_bytes = SHARE_LEAST_BYTES
        if outlet.busy and outlet.enter_round(self._round):
            self._takers += 1
            share = self._divide()
            if share < self.share_bytes:
                self.share_bytes = share
        self.limit(outlet)

    def limit(self, outlet: OutputWindow) -> None:
        """Tell an outlet what it may have now."""
        limit = SHARE_LEAST_BYTES
        if outlet.round + 1 >= self._round:
            limit = self.share_bytes
            if limit < READER_LEAST_BYTES and outlet.round - outlet.since_round >= READER_ROUNDS:
                limit = READER_LEAST_BYTES
        outlet.grant(limit)

    def tick(self) -> None:
        """A few times a second; then ``limit`` for every outlet."""
        self.share_bytes = self._divide()
        self._takers = 0
        self._round += 1
        self._ram.count_output(self.unsent_bytes)

    def _divide(self) -> i64:
        share = self.budget_bytes() - self.unsent_bytes
        if self._takers > 1:
            share //= self._takers
        if share > SHARE_MOST_BYTES:
            share = SHARE_MOST_BYTES
        return share if share > SHARE_LEAST_BYTES else SHARE_LEAST_BYTES

    def check(self, outlets: list[OutputWindow]) -> None:
        """Assert the invariants; ``outlets`` are those of all sessions."""
        total: i64 = 0
        for outlet in outlets:
            assert outlet.unsent_bytes >= 0, "O1"
            total += outlet.unsent_bytes
        assert total == self.unsent_bytes, "O1"
        assert SHARE_LEAST_BYTES <= self.share_bytes <= SHARE_MOST_BYTES, "O2"
