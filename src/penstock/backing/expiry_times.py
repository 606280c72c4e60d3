"""What is known of the times at which the messages of one queue expire.

Mostly messages expire in the order they came, all with the queue's own time to live.  A message
that expires before one ahead of it makes the queue *unordered*: ``soonest_ms`` is then the time at
which a sweep must look for it (expiring.py).
"""

from typing import final

from mypy_extensions import i64

from penstock.backing.disk_records import DiskRecords
from penstock.core.clock_types import WallMs
from penstock.core.message import INDEXED, Message
from penstock.storage.index.queue_index import QueueIndex
from penstock.storage.index.segment import NEVER_MS


@final
class ExpiryTimes:
    def __init__(self, records: DiskRecords) -> None:
        self._records = records
        self.expiring: bool = False  # some message may expire
        self.unordered: bool = False  # some message expires before one that is ahead of it
        self.latest_ms = WallMs(0)  # in the order they came, none expires later
        self.soonest_ms = NEVER_MS  # of those behind one that expires later
        self.is_sweeping: bool = False
        self.sweep_soonest_ms = NEVER_MS  # of what the sweep under way has left

    def want_sweep(self) -> bool:
        """A sweep is under way, or will have something to find one day."""
        return self.is_sweeping or self.soonest_ms < NEVER_MS

    def note_new(self, messages: list[Message], before: i64) -> None:
        """New at the tail, some with a time; ``before`` messages were here, in any state."""
        if before == 0:
            self.latest_ms = WallMs(0)
            self.unordered = False
            self.soonest_ms = NEVER_MS
            self.is_sweeping = False
        elif not self.expiring:
            self.latest_ms = NEVER_MS
        self.expiring = True
        for message in messages:
            expires_at_ms = message.expires_at_ms if message.expires_at_ms > 0 else NEVER_MS
            if expires_at_ms >= self.latest_ms:
                self.latest_ms = expires_at_ms
            else:
                self.unordered = True
                self.note_soonest(expires_at_ms)

    def note_return(self, messages: list[Message]) -> None:
        """Ready again; a sweep did not see them while they were not."""
        for message in messages:
            if message.expires_at_ms == 0:
                continue
            if self.unordered:
                self.note_soonest(message.expires_at_ms)
            if message.flags & INDEXED:
                self._records.the_index().note_expiry(message.seq_id, message.expires_at_ms)

    def note_soonest(self, expires_at_ms: WallMs) -> None:
        if expires_at_ms < self.soonest_ms:
            self.soonest_ms = expires_at_ms
        self.note_left(expires_at_ms)

    def adopt(self, index: QueueIndex, may_expire: bool) -> None:
        """After a start nothing is known but whether there is any time at all."""
        self.expiring = may_expire
        self.latest_ms = NEVER_MS
        self.unordered = may_expire
        self.soonest_ms = WallMs(1) if may_expire else NEVER_MS
        for segment in index.segments.values():
            segment.soonest_ms = WallMs(0) if may_expire else NEVER_MS

    def note_any(self) -> None:
        """A message with a time was read from the disk."""
        self.expiring = True

    def note_disorder(self) -> None:
        """The order of times is not known any more."""
        if self.expiring:
            self.unordered = True
            self.note_soonest(WallMs(1))

    # -- sweeps ----------------------------------------------------------------------------

    def begin_sweep(self) -> None:
        self.is_sweeping = True
        self.sweep_soonest_ms = NEVER_MS

    def note_left(self, expires_at_ms: WallMs) -> None:
        """A message that the sweep leaves expires then."""
        if expires_at_ms < self.sweep_soonest_ms:
            self.sweep_soonest_ms = expires_at_ms

    def end_sweep(self) -> None:
        self.is_sweeping = False
        self.soonest_ms = self.sweep_soonest_ms
