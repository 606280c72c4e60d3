"""What a channel in tx mode has said of its deliveries and not committed yet.

    ack, nack, reject  ─► their tags are noted; the deliveries stay open in the ledger
    commit             ─► they are handed out in the order they came, behind the publishes
    rollback           ─► they are forgotten: what was delivered is unsettled as before

Publishes are held by ``amqp_publishing``; deliveries and everything else of the channel
are no part of a transaction.

    T1  every noted tag is open in the ledger, and noted once
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.wire.amqp.ledger import DeliveryLedger

ACK: Final = 0
REJECT: Final = 1
REQUEUE: Final = 2


@final
class Verdict:
    """The deliveries first..last are to be acknowledged, rejected or put back."""

    def __init__(self, kind: int, first_tag: i64, last_tag: i64) -> None:
        self.kind = kind
        self.first_tag = first_tag
        self.last_tag = last_tag


@final
class Transaction:
    """Of one channel; begins anew after each commit and rollback."""

    def __init__(self, ledger: DeliveryLedger) -> None:
        self.verdicts: list[Verdict] = []
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
        if self.verdicts:
            last = self.verdicts[-1]
            if last.kind == kind and last.last_tag + 1 == first_tag:
                last.last_tag = last_tag
                return
        self.verdicts.append(Verdict(kind, first_tag, last_tag))

    def open_tags(self, last_tag: i64) -> list[int]:
        """The deliveries up to this one that this transaction has said nothing of."""
        return [tag for tag in self._ledger.open_tags(last_tag) if tag not in self._noted]

    def noted_count(self) -> int:
        return len(self._noted)

    def take_verdicts(self) -> list[Verdict]:
        verdicts = self.verdicts
        self.verdicts = []
        self._noted = set()
        return verdicts

    def check(self) -> None:
        """Assert T1."""
        tags: list[int] = []
        for verdict in self.verdicts:
            tags.extend(range(verdict.first_tag, verdict.last_tag + 1))
        assert len(tags) == len(self._noted), "T1"
        assert set(tags) == self._noted, "T1"
        for tag in tags:
            assert self._ledger.is_open(tag), "T1"
