"""``QueueParts``: what a queue needs for messages; ``RareParts``: what most queues never need.

An idle queue is small, and a node may have a hundred thousand: ``VariableQueue`` makes the first
when it gets its first message, the second when one of them is used.
"""

from typing import Final, final

from penstock.backing.checkpointing import Checkpoint
from penstock.backing.copying import ReplicaReader
from penstock.backing.delaying import QueueDelays
from penstock.backing.disk_records import DiskRecords
from penstock.backing.ending import QueueSettlement
from penstock.backing.expiring import Expiry
from penstock.backing.expiry_times import ExpiryTimes
from penstock.backing.paging import Pager
from penstock.backing.peeking import RangeReader
from penstock.backing.placing import ReplicaWriter
from penstock.backing.read_ahead import ReadAhead
from penstock.backing.returning import TailMoves
from penstock.backing.tiers import Tiers


@final
class RareParts:
    """Of one queue; each part uses those before it."""

    def __init__(
        self, records: DiskRecords, times: ExpiryTimes, tiers: Tiers, ahead: ReadAhead
    ) -> None:
        self.reads: Final = RangeReader(records, tiers)
        self.pager: Final = Pager(records, tiers, ahead)
        self.settlement: Final = QueueSettlement(records, tiers, ahead)
        self.moves: Final = TailMoves(records, tiers, times, ahead, self.reads, self.pager)
        self.delays: Final = QueueDelays(
            records, tiers, ahead, self.pager, self.settlement, self.moves
        )
        self.expiry: Final = Expiry(records, tiers, times, ahead, self.settlement)
        self.checkpoint: Final = Checkpoint(records, tiers, self.pager)
        self.copies: Final = ReplicaReader(records, tiers, self.reads)
        self.replica: Final = ReplicaWriter(
            records,
            tiers,
            times,
            ahead,
            self.reads,
            self.pager,
            self.settlement,
            self.delays,
            self.checkpoint,
            self.copies,
        )


@final
class QueueParts:
    """Of one queue; each part uses those before it."""

    def __init__(self, records: DiskRecords) -> None:
        self._records: Final = records
        self.times: Final = ExpiryTimes(records)
        self.tiers: Final = Tiers(records, self.times)
        self.ahead: Final = ReadAhead(records, self.tiers)
        self._rare: RareParts | None = None

    def rare(self) -> RareParts:
        rare = self._rare
        if rare is None:
            rare = RareParts(self._records, self.times, self.tiers, self.ahead)
            self._rare = rare
        return rare
