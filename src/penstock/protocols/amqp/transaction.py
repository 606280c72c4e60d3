"""What a channel in tx mode has said of its deliveries and not committed yet.

    ack, nack, reject  ─► their tags are noted; the deliveries stay open in the ledger
    commit             ─► the publishes are made; the tags wait until those are safe
    the commit is safe ─► the tags are settled in the order they came; commit-ok when that is safe
    rollback           ─► what was noted since the last commit is forgotten

So no crash takes a message from one queue before it is in the other.  Publishes are held by
``amqp.publishing``; deliveries and everything else of the channel are no part of a transaction.

    T1  every noted tag is open in the ledger, and noted once
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.core.confirm_watermark import PendingConfirm, all_done, any_lost, any_refused
from penstock.core.errors import PreconditionFailed
from penstock.protocols.amqp.codec.ledger import DeliveryLedger

ACK: Final = 0
REJECT: Final = 1
REQUEUE: Final = 2
FAILED: Final = 3
"""Put back by basic.reject: a quorum queue counts it as a failed delivery."""


@final
class Verdict:
    """The deliveries first..last are to be acknowledged, rejected or put back."""

    def __init__(self, kind: int, first_tag: i64, last_tag: i64) -> None:
        self.kind = kind
        self.first_tag = first_tag
        self.last_tag = last_tag

    def takes(self, kind: int, first_tag: i64, last_tag: i64) -> bool:
        """So are these; False: not the same, or not the next ones."""
        if self.kind != kind or self.last_tag + 1 != first_tag:
            return False
        self.last_tag = last_tag
        return True

    def tags(self) -> range:
        return range(int(self.first_tag), int(self.last_tag) + 1)


@final
class Commit:
    """Its publishes are safe when the journal is on disk up to ``position``, and ``waits`` done."""

    def __init__(self, verdicts: list[Verdict], position: i64, waits: list[PendingConfirm]) -> None:
        self.verdicts = verdicts
        self._position: i64 = position
        self._waits = waits

    def is_safe(self, durable_position: i64) -> bool:
        """Raises ``PreconditionFailed`` when a node refused some of its publishes, or was lost."""
        if any_lost(self._waits) or any_refused(self._waits):
            raise PreconditionFailed("partial tx completion")
        return self._position <= durable_position and all_done(self._waits)


@final
class Transaction:
    """Of one channel; begins anew after each commit and rollback."""

    def __init__(self, ledger: DeliveryLedger) -> None:
        self.verdicts: list[Verdict] = []  # since the last commit
        self.commits: list[Commit] = []  # whose publishes are not safe yet
        self._ledger = ledger
        self._noted: set[int] = set()

    def is_open(self, tag: i64) -> bool:
        """Was it delivered, not settled, and not judged within this transaction?"""
        return self._ledger.is_open(tag) and int(tag) not in self._noted

    def note(self, kind: int, first_tag: i64, last_tag: i64) -> i64:
        """Note the tags first..last; returns the first that is not open, else last + 1."""
        tag = first_tag
        while tag <= last_tag and self.is_open(tag):
            self._noted.add(int(tag))
            tag += 1
        if tag > first_tag:
            self._judge(kind, first_tag, tag - 1)
        return tag

    def note_through(self, kind: int, last_tag: i64) -> None:
        """Note every open tag up to and including this one."""
        for tag in self.open_tags(last_tag):
            self._noted.add(tag)
            self._judge(kind, tag, tag)

    def _judge(self, kind: int, first_tag: i64, last_tag: i64) -> None:
        if not self.verdicts or not self.verdicts[-1].takes(kind, first_tag, last_tag):
            self.verdicts.append(Verdict(kind, first_tag, last_tag))

    def open_tags(self, last_tag: i64) -> list[int]:
        """The deliveries up to this one that this transaction has said nothing of."""
        return [tag for tag in self._ledger.open_tags(last_tag) if tag not in self._noted]

    def noted_count(self) -> int:
        return len(self._noted)

    def roll_back(self) -> None:
        """The verdicts since the last commit are forgotten."""
        for verdict in self.verdicts:
            self._noted.difference_update(verdict.tags())
        self.verdicts = []

    def commit(self, position: i64, waits: list[PendingConfirm]) -> None:
        """``position``, ``waits``: what makes its publishes safe."""
        self.commits.append(Commit(self.verdicts, position, waits))
        self.verdicts = []

    def take_safe(self, durable_position: i64) -> list[Commit]:
        """The first commits, as far as their publishes are safe.

        Raises as ``Commit.is_safe``.
        """
        count = 0
        while count < len(self.commits) and self.commits[count].is_safe(durable_position):
            for verdict in self.commits[count].verdicts:
                self._noted.difference_update(verdict.tags())
            count += 1
        safe = self.commits[:count]
        del self.commits[:count]
        return safe

    def check(self) -> None:
        """Assert T1."""
        tags: list[int] = []
        for verdicts in [*(commit.verdicts for commit in self.commits), self.verdicts]:
            for verdict in verdicts:
                tags.extend(verdict.tags())
        assert len(tags) == len(self._noted), "T1"
        assert set(tags) == self._noted, "T1"
        for tag in tags:
            assert self._ledger.is_open(tag), "T1"
