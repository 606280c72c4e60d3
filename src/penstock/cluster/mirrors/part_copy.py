"""``CopiedPart``: what a mirror's copy has, told by the master and fetched where it is lacking.

    PartCopy    one part of a queue: a set of places, known or not (``replica.py`` says how)
    StreamCopy  a stream: a log that grows at its end               (``stream_copy.py``)

In: operations of parcels, in order; chunks that answer its questions.  Out: the same messages.

Invariants (``check``, of a ``PartCopy``):
  R1  what is remembered for a chunk is at no known place
  R2  a complete copy remembers nothing
"""

from typing import Any, Final, final

from mypy_extensions import i64

from penstock.backing.placing import A_MOMENT_AGO_MS
from penstock.backing.variable_queue import VariableQueue
from penstock.cluster.mirrors.operations import (
    ATTEMPTS,
    DELAY,
    END,
    LET_GO,
    PUBLISH,
    SEQ_ID_MAX,
    Operation,
    Ranges,
    ranges_of,
    spelled,
)
from penstock.cluster.mirrors.sync_codec import PLACES_ASKED, Chunk, SyncAsk
from penstock.core.clock_types import WallMs
from penstock.core.message import Message, mark_redelivered
from penstock.storage.common.seq_ranges import SeqRanges

RELEASED_AT_ONCE: Final[i64] = 2048
RANGES_ASKED: Final[i64] = 1024
SPARSE: Final[i64] = 1024
"""Of a stretch as long as that what is remembered is filtered, and not looked up by place."""


class CopiedPart:
    """``is_complete``: everything that the master has told is here."""

    def __init__(self) -> None:
        self.is_complete: bool = False

    def begin(self, is_whole: bool, forgets: bool) -> None:
        """A mirror begins with it; ``is_whole``: it was the master's until now.

        ``forgets``: what ended here may live at the master.
        """
        raise NotImplementedError

    def is_preparing(self) -> bool:
        """Nothing can be applied yet: ``prepare`` is to be called first."""
        return False

    def prepare(self) -> bool:
        """One step; False = none can be done now."""
        return False

    def resume(self) -> None:
        """It is prepared."""

    def tick(self, now_ms: WallMs) -> None:
        """Several times a second: what is due is ready, what the disk has brought is taken in."""

    def apply(self, operation: Operation) -> None:
        """Of the next parcel."""
        raise NotImplementedError

    def question(self, term: i64, number: i64, part: i64) -> SyncAsk | None:
        """What to ask the master, as of that parcel; None = nothing, or not now."""
        raise NotImplementedError

    def cover(self, chunk: Chunk) -> i64:
        """Take over the answer, as of a parcel that was applied; returns how many messages came."""
        raise NotImplementedError

    def may_lead(self) -> bool:
        """It could be a master's now."""
        return True

    def check(self) -> None:
        raise NotImplementedError


@final
class PartCopy(CopiedPart):
    """Of one part of a queue."""

    def __init__(self, queue: VariableQueue) -> None:
        super().__init__()
        self.queue: VariableQueue = queue
        self.known: SeqRanges = SeqRanges()
        self.delays: dict[int, WallMs] = {}  # of places not known: until when
        self.attempts: dict[int, int] = {}
        self._is_fresh: bool = True  # nothing was done with it since the start
        self._top: i64 = 0  # no parcel has reached this place
        self._adopted: i64 = queue.records.next_seq_id  # below it the disk may have had something

    # -- its begin -------------------------------------------------------------------------

    def begin(self, is_whole: bool, forgets: bool) -> None:
        self.queue.replica.begin_copy()
        if is_whole:
            self.know_all(self.queue.records.next_seq_id)
            return
        assert self.queue.tiers.pending.count == 0
        if forgets:
            self.queue.replica.begin_to_forget()
        else:
            self._is_fresh = self.queue.replica.is_fresh()

    def is_preparing(self) -> bool:
        return self.queue.replica.is_forgetting()

    def prepare(self) -> bool:
        return self.queue.replica.forget_some()

    def resume(self) -> None:
        if self._is_fresh:
            self.queue.replica.resume_at_last()

    def tick(self, now_ms: WallMs) -> None:
        self.queue.release_due(now_ms, RELEASED_AT_ONCE)
        self.queue.absorb()

    # -- what is known ---------------------------------------------------------------------

    def knows(self, seq_id: i64) -> bool:
        return self.is_complete or self.known.contains(seq_id)

    def know(self, start: i64, end: i64) -> None:
        """All there is from ``start`` up to and without ``end`` is here."""
        if self.is_complete:
            return
        self.known.add(start, end)
        if self.delays:
            _forget(self.delays, start, end)
        if self.attempts:
            _forget(self.attempts, start, end)

    def know_all(self, top: i64) -> None:
        self.is_complete = True
        self.known = SeqRanges()
        self.delays = {}
        self.attempts = {}
        self.reached(top)

    def complete_if_known(self) -> None:
        """The last place may have become known by a chunk, or by a parcel that ended it."""
        if not self.is_complete and self.unknown_below_top()[1] == 0:
            self.know_all(self._top)

    def reached(self, top: i64) -> None:
        if top > self._top:
            self._top = top

    def unknown_below_top(self) -> tuple[int, int]:
        """The highest stretch of places that are not known; (0, 0) = there is none."""
        if self.is_complete:
            return 0, 0
        self.known.settle()
        starts, ends = self.known.starts, self.known.ends
        if not ends:
            return 0, int(SEQ_ID_MAX)
        if ends[-1] < SEQ_ID_MAX:
            return ends[-1], int(SEQ_ID_MAX)
        if starts[-1] == 0:
            return 0, 0
        return (ends[-2] if len(ends) > 1 else 0), starts[-1]

    # -- operations ------------------------------------------------------------------------

    def apply(self, operation: Operation) -> None:
        kind = operation.kind
        if kind == PUBLISH:
            self._publish(operation.messages, operation.until_ms)
        elif kind == DELAY:
            self._delay(operation.ranges, operation.until_ms)
        elif kind == ATTEMPTS:
            self._count(operation.counts)
        else:
            self._end(operation.ranges, kind == LET_GO)

    def _publish(self, messages: list[Message], until_ms: WallMs) -> None:
        new = messages
        if messages[0].seq_id < self._top:
            new = [message for message in messages if message.seq_id >= self._top]
            if len(new) == 0:
                return
        start = new[0].seq_id
        end = new[len(new) - 1].seq_id + 1
        if not self.is_complete and start < self._adopted:
            new = self._not_here(new, start, end, until_ms)
        mark_redelivered(new)
        if len(new) > 0:
            self.queue.replica.publish_at(new, until_ms)
        self.know(start, end)
        self.reached(end)

    def _not_here(
        self, messages: list[Message], start: i64, end: i64, until_ms: WallMs
    ) -> list[Message]:
        """The messages that this copy lacks; the master tells some again that it has already."""
        here = set(self.queue.copies.places(start, end))
        again = [int(one.seq_id) for one in messages if int(one.seq_id) in here]
        if until_ms > 0 and again:
            self.queue.replica.delay_at(ranges_of(again), until_ms)
        return [one for one in messages if int(one.seq_id) not in here]

    def _end(self, ranges: Ranges, lives_on: bool) -> None:
        if lives_on:
            self.queue.let_go_at(ranges)
        else:
            self.queue.replica.end_at(ranges)
        if not self.is_complete:
            for start, end in ranges:
                self.know(start, end)

    def _delay(self, ranges: Ranges, until_ms: WallMs) -> None:
        self.queue.replica.delay_at(ranges, until_ms)
        if self.is_complete:
            return
        for start, end in ranges:
            for seq_id in range(start, end):
                if not self.known.contains(seq_id):
                    self.delays[seq_id] = until_ms

    def _count(self, counts: list[tuple[int, int]]) -> None:
        self.queue.replica.count_at(counts)
        if self.is_complete:
            return
        for seq_id, attempts in counts:
            if not self.known.contains(seq_id):
                self.attempts[seq_id] = attempts

    # -- synchronisation -------------------------------------------------------------------

    def question(self, term: i64, number: i64, part: i64) -> SyncAsk | None:
        """As much of what is not known, from the end, as can be said with few ranges."""
        self.complete_if_known()
        low, upto = self.unknown_below_top()
        if upto == 0:
            return None
        queue = self.queue
        have: Ranges = []
        last = queue.copies.last_place(upto)
        if last >= low:
            if low < last + 1 - PLACES_ASKED:
                low = last + 1 - PLACES_ASKED
            have = ranges_of(queue.copies.places(low, upto))
            if len(have) > RANGES_ASKED:
                have = have[len(have) - RANGES_ASKED :]
                low = have[0][0]
        return SyncAsk(term, number, part, low, upto, have)

    def cover(self, chunk: Chunk) -> i64:
        count: i64 = 0
        self._end_delays(chunk)
        for operation in chunk.operations:
            if operation.kind == END:
                self.queue.replica.end_at(operation.ranges)
            elif operation.kind == PUBLISH:
                count += self._cover_published(operation)
            elif operation.kind == DELAY:
                for seq_id in spelled(operation.ranges):
                    if not self.knows(seq_id) and seq_id not in self.delays:
                        self.queue.replica.delay_at([(seq_id, seq_id + 1)], operation.until_ms)
            elif operation.kind == ATTEMPTS:
                self.queue.replica.count_at(
                    [
                        (seq_id, attempts)
                        for seq_id, attempts in operation.counts
                        if not self.knows(seq_id) and seq_id not in self.attempts
                    ]
                )
        self.know(chunk.low, chunk.upto)
        self.reached(chunk.next_seq_id)
        self.complete_if_known()
        return count

    def _end_delays(self, chunk: Chunk) -> None:
        """What waits here, and not at the master: it was delayed before a crash that forgot it."""
        waiting = self.queue.copies.waiting_places(chunk.low, chunk.upto)
        if len(waiting) == 0:
            return
        told: set[int] = set()
        for operation in chunk.operations:
            if operation.kind == DELAY:
                told.update(spelled(operation.ranges))
        ready = [
            seq_id
            for seq_id in waiting
            if seq_id not in told and seq_id not in self.delays and not self.knows(seq_id)
        ]
        self.queue.replica.delay_at(ranges_of(ready), A_MOMENT_AGO_MS)

    def _cover_published(self, operation: Operation) -> i64:
        count: i64 = 0
        by_time: dict[WallMs, list[Message]] = {}
        for message in operation.messages:
            if self.knows(message.seq_id):
                continue
            seq_id = int(message.seq_id)
            attempts = self.attempts.get(seq_id)
            if attempts is not None:
                message.set_counts(attempts)
            until_ms = self.delays.get(seq_id, operation.until_ms)
            by_time.setdefault(until_ms, []).append(message)
        for until_ms, messages in by_time.items():
            mark_redelivered(messages)
            count += len(messages)
            self.queue.replica.publish_at(messages, until_ms)
        return count

    def check(self) -> None:
        if self.is_complete:
            assert not self.delays, "R2"
            assert not self.attempts, "R2"
        for seq_id in [*self.delays, *self.attempts]:
            assert not self.known.contains(seq_id), "R1"
        self.known.check()
        self.queue.check()


def _forget(remembered: dict[int, Any], start: i64, end: i64) -> None:
    if end - start < SPARSE:
        for seq_id in range(int(start), int(end)):
            remembered.pop(seq_id, None)
        return
    for seq_id in list(remembered):
        if start <= seq_id < end:
            del remembered[seq_id]
