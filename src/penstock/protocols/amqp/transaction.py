"""What a channel in tx mode has said of its deliveries and not committed yet.

    ack, nack, reject  ─► their tags are noted; the deliveries stay open in the ledger
    commit             ─► the publishes are made; the verdicts wait until those are safe
    the commit is safe ─► the verdicts are carried out in the order they came (``settlements``);
                          commit-ok when that is safe
    rollback           ─► what was noted since the last commit is forgotten

So no crash takes a message from one queue before it is in the other.  Publishes are held by
``amqp.publishing``; deliveries and everything else of the channel are no part of a transaction.

A verdict of all deliveries up to a tag is noted at once, whatever their number, and counted in
steps, as a rollback forgets: the channel's ``LongWork``, behind which its connection waits.

    T1  every noted tag is open in the ledger, and noted once
    T2  ``_committed_through`` <= ``_counted_through`` <= ``_through`` < the next tag
    T3  the verdicts of a commit of up to ``AT_ONCE`` deliveries are one share of a turn: they are
        in one block of the journal.  Those of a longer one are carried out in order; a crash in
        between brings the others back, when all that was published is there
"""

from collections import deque
from typing import Final, final

from mypy_extensions import i64

from penstock.core.confirm_watermark import PendingConfirm, all_done, any_lost, any_refused
from penstock.core.errors import PreconditionFailed
from penstock.core.long_work import AT_ONCE, LongWork
from penstock.core.steps import steps
from penstock.protocols.amqp.codec.ledger import DeliveryLedger, Settlement

TAG_STEPS: Final[i64] = 2
"""Of each open delivery that is looked at."""
VERDICT_STEPS: Final[i64] = 6
"""Of each verdict that is forgotten, and each of its tags."""


@final
class TxVerdict:
    """Deliveries first..last are to be acknowledged, rejected or put back.

    Of ``open_only`` those that are open by then, but for the noted ones; else all are, and noted.
    """

    def __init__(
        self, kind: int, first_tag: i64, last_tag: i64, open_only: bool, noted: set[int]
    ) -> None:
        self.kind = kind
        self.first_tag: i64 = first_tag
        self.last_tag: i64 = last_tag
        self.open_only = open_only
        self._noted = noted

    def takes(self, kind: int, first_tag: i64, last_tag: i64) -> bool:
        """So are these; False: not the same, or not the next ones."""
        if self.kind != kind or self.open_only or self.last_tag + 1 != first_tag:
            return False
        self.last_tag = last_tag
        return True

    def cut(self, at_most: i64) -> range:
        """The first tags: they are in it no longer, and not noted."""
        first = self.first_tag
        self.first_tag = min(self.last_tag + 1, first + at_most)
        tags = range(int(first), int(self.first_tag))
        self._noted.difference_update(tags)
        return tags

    def take(self, ledger: DeliveryLedger, at_most: i64) -> list[Settlement]:
        """Close the first of them in the ledger: at most so many."""
        if not self.open_only:
            tags = self.cut(at_most)
            return ledger.take(tags.start, tags.stop - 1)[0]
        if len(self._noted) == 0 and ledger.oldest_tag() >= self.first_tag:
            settled = ledger.take_through(self.last_tag, at_most)
            self.first_tag = ledger.oldest_tag()
            return settled
        settled = []
        found = ledger.open_tags(self.last_tag, self.first_tag, at_most)
        for tag in found:
            if tag not in self._noted:
                settled += ledger.take(tag, tag)[0]
        steps.count(TAG_STEPS * len(found))
        self.first_tag = self.last_tag + 1 if len(found) < at_most else i64(found[-1]) + 1
        return settled

    def is_over(self) -> bool:
        return self.first_tag > self.last_tag


Verdicts = deque[TxVerdict]
"""In the order in which they came."""


@final
class Commit:
    """Its publishes are safe when the journal is on disk up to ``position``, and ``waits`` done."""

    def __init__(self, verdicts: Verdicts, position: i64, waits: list[PendingConfirm]) -> None:
        self.verdicts = verdicts
        self._position: i64 = position
        self._waits = waits

    def is_safe(self, durable_position: i64) -> bool:
        """Raises ``PreconditionFailed`` when a node refused some of its publishes, or was lost."""
        if any_lost(self._waits) or any_refused(self._waits):
            raise PreconditionFailed("partial tx completion")
        return self._position <= durable_position and all_done(self._waits)


@final
class Transaction(LongWork):
    """Of one channel; begins anew after each commit and rollback."""

    def __init__(self, ledger: DeliveryLedger) -> None:
        self.verdicts: Verdicts = deque()  # since the last commit
        self.commits: deque[Commit] = deque()  # whose publishes are not safe yet
        self._ledger = ledger
        self._noted: set[int] = set()
        self._through: i64 = 0  # every open tag up to this one is judged
        self._committed_through: i64 = 0  # and by a commit
        self._counted_through: i64 = 0
        self._count: i64 = 0  # of deliveries judged since the last commit
        self._forgotten: list[Verdicts] = []  # by rollbacks

    def is_open(self, tag: i64) -> bool:
        """Was it delivered, not settled, and not judged within this transaction?"""
        return tag > self._through and self._ledger.is_open(tag) and int(tag) not in self._noted

    def note(self, kind: int, first_tag: i64, last_tag: i64) -> i64:
        """Note the tags first..last; returns the first that is not open, else last + 1."""
        tag = first_tag
        while tag <= last_tag and self.is_open(tag):
            self._noted.add(int(tag))
            tag += 1
        if tag > first_tag:
            self._count += tag - first_tag
            if not self.verdicts or not self.verdicts[-1].takes(kind, first_tag, tag - 1):
                self.verdicts.append(TxVerdict(kind, first_tag, tag - 1, False, self._noted))
        return tag

    def note_through(self, kind: int, last_tag: i64) -> None:
        """Judge every open tag up to and including this one; ``step`` counts them."""
        last_tag = min(last_tag, self._ledger.next_tag - 1)
        if last_tag > self._through:
            self.verdicts.append(TxVerdict(kind, self._through + 1, last_tag, True, self._noted))
            self._through = last_tag

    def spare_judged(self, kind: int) -> TxVerdict:
        """Every open delivery of which nothing is said: it is no part of the transaction."""
        first, last = self._through + 1, self._ledger.next_tag - 1
        self._through = self._counted_through = max(self._through, last)
        return TxVerdict(kind, first, last, True, self._noted)

    def step(self) -> bool:
        """Forget, or count, some; False: all that was to be."""
        left = self._forget_some()
        first = self._counted_through + 1
        if left > 0 and first <= self._through:
            found = self._ledger.open_tags(self._through, first, left)
            self._count += len([tag for tag in found if tag not in self._noted])
            steps.count(TAG_STEPS * len(found))
            self._counted_through = i64(found[-1]) if len(found) == left else self._through
        return len(self._forgotten) > 0 or self._counted_through < self._through

    def _forget_some(self) -> i64:
        """Returns how many more of ``AT_ONCE`` there might have been."""
        left = AT_ONCE
        while len(self._forgotten) > 0 and left > 0:
            verdicts = self._forgotten[-1]
            while len(verdicts) > 0 and left > 0:
                first = verdicts[0]
                left -= 1
                if not first.open_only:
                    left -= len(first.cut(left + 1))
                if first.open_only or first.is_over():
                    verdicts.popleft()
            if len(verdicts) == 0:
                self._forgotten.pop()
        steps.count(VERDICT_STEPS * (AT_ONCE - left))
        return left

    def judged_count(self) -> int:
        """Since the last commit."""
        return int(self._count)

    def roll_back(self) -> None:
        """The verdicts since the last commit hold no longer; ``step`` forgets them."""
        self._forgotten.append(self.verdicts)
        self.verdicts = deque()
        self._through = self._counted_through = self._committed_through
        self._count = 0

    def abandon(self) -> None:
        """The channel ends: nor do commits that are not safe yet."""
        self.roll_back()
        self._forgotten += [commit.verdicts for commit in self.commits]
        self.commits.clear()

    def commit(self, position: i64, waits: list[PendingConfirm]) -> None:
        """``position``, ``waits``: what makes its publishes safe."""
        self.commits.append(Commit(self.verdicts, position, waits))
        self.verdicts = deque()
        self._committed_through = self._through
        self._count = 0

    def take_safe(self, durable_position: i64) -> Commit | None:
        """The first commit, if its publishes are safe.

        Raises as ``Commit.is_safe``.
        """
        if len(self.commits) == 0 or not self.commits[0].is_safe(durable_position):
            return None
        return self.commits.popleft()

    def check(self) -> None:
        """Assert T1 and T2."""
        assert self._committed_through <= self._counted_through <= self._through, "T2"
        assert self._through < self._ledger.next_tag, "T2"
        tags: list[int] = []
        for verdicts in [*(commit.verdicts for commit in self.commits), self.verdicts]:
            for verdict in verdicts:
                if not verdict.open_only:
                    tags.extend(range(int(verdict.first_tag), int(verdict.last_tag) + 1))
        assert len(tags) == len(self._noted), "T1"
        assert set(tags) == self._noted, "T1"
        for tag in tags:
            assert self._ledger.is_open(tag), "T1"
