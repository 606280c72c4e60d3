"""``Checkpoint``: writes to segments what lives only in files of the journal that are to go.

Usually a younger message has a younger record, and ``flush_file`` stops at the first that is too
young.  In a mirror's copy an older place may have a younger record (placing.py): ``_mixed_upto``
says up to which file that may be so; until that file is retired, ``flush_file`` looks at all, for
one file at a time.

In a mirror's copy contents leave memory as soon as they rest (``Tiers.cool``): no client reads them
there.  The messages stay, as betas, so that nothing is read when they end.
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.backing.disk_records import DiskRecords
from penstock.backing.message_deque import ascending
from penstock.backing.paging import Pager
from penstock.backing.pending import may_rest
from penstock.backing.tiers import Tiers
from penstock.core.message import (
    INDEXED,
    LOGGED,
    REDELIVERED,
    Message,
    mark_redelivered,
)
from penstock.storage.engine.resting_queue import FLUSHED, MORE_TO_FLUSH, WAITS_FOR_DISK
from penstock.storage.index.queue_index import QueueIndex

ALL_CONTENTS: Final[i64] = 1 << 62


@final
class Checkpoint:
    """Of one queue."""

    def __init__(self, records: DiskRecords, tiers: Tiers, pager: Pager) -> None:
        self._records: Final = records
        self._tiers: Final = tiers
        self._pager: Final = pager
        self._pass_file: i64 = 0  # for which file ``flush_file`` is looking at all, if it is
        self._mixed_upto: i64 = 0  # up to that file of the journal a later place may be older
        self._cools: bool = False

    def cool(self, cools: bool) -> None:
        """Of a copy: from now on contents leave memory when they rest, for no client reads them."""
        self._cools = cools

    def note_mixed(self) -> None:
        """An older place than some here gets a record in the journal's current file."""
        self._mixed_upto = self._records.engine.journal.current.number
        self._tiers.pending.look_anew()

    def _begin_pass(self, file_no: i64) -> i64:
        """Of ``flush_file`` over all; returns for which file it is.

        A pass for a younger file begins anew: the one before left out what was too young for it.
        """
        if file_no > self._pass_file:
            self._pass_file = file_no
            self._tiers.note_flushed(0)
        return self._pass_file

    def _end_pass(self) -> None:
        self._pass_file = 0
        self._tiers.note_flushed(0)  # some below may be of younger files

    def flush_file(self, file_no: i64, quota: i64) -> i64:
        if self._mixed_upto > 0:
            file_no = self._begin_pass(file_no)
        outcome = self._flush(file_no, self._records.next_seq_id, ALL_CONTENTS, quota)
        if outcome == FLUSHED and self._mixed_upto > 0:
            self._end_pass()
        return outcome

    def flush_safe(self, quota: i64) -> i64:
        if self._mixed_upto > 0:
            return FLUSHED  # until that file is retired
        newest = self._records.engine.journal.current.number
        return self._flush(
            newest, self._records.first_unsafe(), self._records.engine.store.durable_msg_id, quota
        )

    def _flush(self, file_no: i64, below: i64, durable_msg_id: i64, quota: i64) -> i64:
        """What is below that position, and of a large one the content within that number."""
        if self._records.deleted:
            return FLUSHED
        self._records.settle_left()
        unwritten: list[Message] = []
        upto = self._tiers.flushed_seq_id
        at_once = quota
        done = False
        for run in self._tiers.runs_and_tail():
            place = run.first_at(self._tiers.flushed_seq_id)
            end: i64 = len(run.messages)
            while place < end and quota > 0 and not done:
                message = run.messages[place]
                if message.flags & (LOGGED | INDEXED) == LOGGED:
                    if may_rest(message, file_no, below, durable_msg_id):
                        unwritten.append(message)
                    elif self._mixed_upto == 0:
                        done = True  # those behind it are younger still
                        break
                upto = message.seq_id + 1
                place += 1
                quota -= 1
        done = done or quota > 0
        if done:
            # In the same step, for what was handed out or delayed meanwhile; of many of them the
            # last step is the one that finds no more than its share.
            share = max(quota, 1)
            held = self._tiers.pending.restless(file_no, below, durable_msg_id, share + 1)
            left = share + 1 - len(held)
            held += self._tiers.delayed.restless(file_no, below, durable_msg_id, left)
            unwritten.extend(held[:share])
            done = len(held) <= share
        for message in unwritten:
            if not self._records.the_index().can_append(message.seq_id):
                return WAITS_FOR_DISK
        if unwritten:
            self._records.the_index().append(ascending(unwritten))
            if self._tiers.delayed.count() > 0:
                self._pager.index_delays(unwritten)
        if self._cools:
            self._tiers.cool(at_once)
        self._tiers.note_flushed(upto)
        return FLUSHED if done else MORE_TO_FLUSH

    def flushed(self, file_no: i64) -> None:
        self._records.flushed(file_no)
        if 0 < self._mixed_upto <= file_no:
            self._end_pass()
            self._mixed_upto = 0

    def note_delivered(self) -> None:
        """Before a clean stop: what was handed out is to be marked so after the start."""
        self._records.settle_left()
        index = self._records.index
        for run in self._tiers.runs_and_tail():
            _mark_delivered(index, run.live())
        pending = self._tiers.pending.live()
        mark_redelivered(pending)
        _mark_delivered(index, pending)
        _mark_delivered(index, self._tiers.delayed.messages())


def _mark_delivered(index: QueueIndex | None, messages: list[Message]) -> None:
    if index is None:
        return
    for message in messages:
        if message.flags & INDEXED and message.flags & REDELIVERED:
            index.mark_delivered(message.seq_id)
