"""``Replica``: the mirror's side of a mirrored queue's messages.

In: the master's parcels (operations.py), in order, each once; chunks of a synchronisation
(sync.py).  Out: an ordinary backing, on this node's own disk, with the same set of messages:
each at the master's seq_id, ready or delayed, none delivered; and up to which number that is
on disk.

**What is known.**  For each part there is a set of places of which this copy *knows*: whatever the
master has there is here, and nothing else.  A place is known once a publish of it was heard, once
its end was heard, or once a chunk covered it.  The copy is complete when all places are known.

    publish   at a place no parcel ever reached: here now, known
    end       gone if it was here; known from now on.  So a chunk that still has it, read before
              the end, brings nothing back: that the place is known is its tombstone
    delay,    done if it is here; and while the place is not known, remembered for the chunk
    attempts  that will cover it, because that may have been read before

**After a restart** it is not known which of what lies on the disk still is the master's: nothing is
known, and what is here is said in ranges, so that only what differs is sent.  What has ended here
may live at the master, if that was never told to it (this was a master, say, or heard more than
the survivors); so segments in which something ended are not kept, they are fetched again.  They are
read before they go, some in a turn (``prepare``); until then the copy hears nothing and asks
nothing, as if it joined when that is done.

**Terms.**  Parcels of a term are numbered from 1 without a gap.  If the new master has heard all of
the old term, which K6 promises to every survivor, a copy that has heard it too goes on as it is,
complete or on the way.  If the new master came back with what its disk had, it may lack what this
copy heard; then, and after a gap, the copy *is lost*: its place takes a new one, with an empty
queue.  (It cannot begin again with what it has: the journal of this life knows of places as ended
that may live.)

**Promotion.**  ``promote`` makes a master's backing of it, as a start does: numbers from
``term << 40``, everything marked redelivered, deduplication keys and priorities found again.

Invariants (``check``):
  R1  what is remembered for a chunk is at no known place
  R2  a complete copy remembers nothing
  R3  positions that wait to be durable ascend, with their numbers
"""

from typing import Any, Final, final

from mypy_extensions import i64

from penstock.backing.interface import BackingQueue
from penstock.backing.variable_queue import VariableQueue
from penstock.cluster.mirrors.operations import (
    ATTEMPTS,
    DELAY,
    LET_GO,
    PUBLISH,
    SEQ_ID_MAX,
    Operation,
    Parcel,
    Ranges,
    ranges_of,
)
from penstock.core.clock_types import WallMs
from penstock.core.message import Message, mark_redelivered
from penstock.storage.common.seq_ranges import SeqRanges
from penstock.storage.journal.journal import Journal

TERM_SHIFT: Final[i64] = 40
RELEASED_AT_ONCE: Final[i64] = 2048
SPARSE: Final[i64] = 1024
"""Of a stretch as long as that what is remembered is filtered, and not looked up by place."""


@final
class PartCopy:
    """The copy of one part."""

    def __init__(self, queue: VariableQueue) -> None:
        self.queue: VariableQueue = queue
        self.known: SeqRanges = SeqRanges()
        self.is_complete: bool = False
        self.delays: dict[int, WallMs] = {}  # of places not known: until when
        self.attempts: dict[int, int] = {}
        self._top: i64 = 0  # no parcel has reached this place
        self._adopted: i64 = queue.next_seq_id()  # below it the disk may have had something

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
        """What has not gone round is told again, also what this copy's earlier life has heard."""
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

    def check(self) -> None:
        if self.is_complete:
            assert not self.delays, "R2"
            assert not self.attempts, "R2"
        for seq_id in [*self.delays, *self.attempts]:
            assert not self.known.contains(seq_id), "R1"
        self.known.check()
        self.queue.check()


@final
class Replica:
    """``backing`` is new or just adopted, with nothing out of it; ``journal`` is its engine's.

    ``is_whole``: it was the master's until now, and all of its parcels were heard by its successor.
    """

    def __init__(self, backing: BackingQueue, journal: Journal, is_whole: bool = False) -> None:
        self.backing: BackingQueue = backing
        self.parts: list[PartCopy] = [PartCopy(part) for part in backing.parts()]
        self.term: i64 = 0
        self.number: i64 = 0  # of the last parcel applied; 0 = none of this term yet
        self.is_lost: bool = False
        self.is_ready: bool = is_whole
        self._began: bool = is_whole  # something was applied
        self._journal: Journal = journal
        self._written: list[tuple[int, int]] = []  # (number, the journal's position behind it)
        self._durable: i64 = 0
        self._position: i64 = journal.position  # behind all that was applied
        for part in self.parts:
            if is_whole:
                part.know_all(part.queue.next_seq_id())
            else:
                assert part.queue.tiers.pending.count == 0
                part.queue.replica.begin_to_forget()
        self._look_whether_ready()

    def prepare(self) -> bool:
        """One step on the way to be ready; False = there is none to be done now."""
        if self.is_ready:
            return False
        for part in self.parts:
            if part.queue.replica.is_forgetting():
                moved = part.queue.replica.forget_some()
                self._look_whether_ready()
                return moved
        return False

    def _look_whether_ready(self) -> None:
        for part in self.parts:
            if part.queue.replica.is_forgetting():
                return
        if not self.is_ready:
            self.is_ready = True
            for part in self.parts:
                part.queue.replica.resume_at_last()

    def is_complete(self) -> bool:
        for part in self.parts:  # noqa: SIM110 - a generator costs more than the loop
            if not part.is_complete:
                return False
        return True

    # -- parcels ---------------------------------------------------------------------------

    def follow(self, term: i64, heard_all: bool) -> None:
        """Another master's time begins; ``heard_all``: of the former one's parcels, as we have."""
        if term <= self.term:
            return
        self.term = term
        self.number = 0
        self._written = []
        self._durable = 0
        if not heard_all and self._began:
            self.is_lost = True

    def apply(self, parcel: Parcel) -> bool:
        """False = some before it is missing: the copy is lost.

        ``follow`` comes before the first parcel of a term.
        """
        if parcel.term < self.term or (parcel.term == self.term and parcel.number <= self.number):
            return True  # of a master that is none any more, or heard before
        self.follow(parcel.term, False)
        if not self.is_ready:
            return True
        if self._began and parcel.number != self.number + 1:
            self.is_lost = True
        if self.is_lost:
            return False
        self._began = True
        for operation in parcel.operations:
            if operation.part < len(self.parts):
                self.parts[operation.part].apply(operation)
        self.number = parcel.number
        self._position = self._journal.position
        self._written.append((int(parcel.number), int(self._position)))
        return True

    def durable_number(self) -> i64:
        """All parcels up to this one are on this node's disk, as far as they are to be."""
        durable = self._journal.durable_position
        count = 0
        while count < len(self._written) and self._written[count][1] <= durable:
            self._durable = self._written[count][0]
            count += 1
        if count > 0:
            del self._written[:count]
        return self._durable

    def is_durable(self) -> bool:
        """All that was applied, in whatever term."""
        return self._position <= self._journal.durable_position

    def tick(self, now_ms: WallMs) -> None:
        """Several times a second: what is due is ready, what the disk has brought is taken in."""
        if not self.is_ready:
            return
        for part in self.parts:
            queue = part.queue
            queue.release_due(now_ms, RELEASED_AT_ONCE)
            if queue.ahead.is_reading():
                queue.ahead.absorb()

    # -- another role ----------------------------------------------------------------------

    def promote(self, term: i64) -> None:
        """A master's backing from now on; this object is done with."""
        assert term > self.term
        begin_term(self.backing, term)

    def check(self) -> None:
        """Assert R1 to R3, and what each part promises."""
        for part in self.parts:
            part.check()
        last = (int(self._durable), -1)
        for number, position in self._written:
            assert number > last[0], "R3"
            assert position >= last[1], "R3"
            last = (number, position)


def begin_term(backing: BackingQueue, term: i64) -> None:
    """A master's backing from now on: of a replica, or of a node that has come back.

    Of the latter nothing is forgotten, as a ``Replica`` would: what its disk has is the truth.
    """
    for part in backing.parts():
        part.replica.begin_at(term << TERM_SHIFT)
        part.replica.redeliver_all()
    backing.adopted()


def _forget(remembered: dict[int, Any], start: i64, end: i64) -> None:
    if end - start < SPARSE:
        for seq_id in range(int(start), int(end)):
            remembered.pop(seq_id, None)
        return
    for seq_id in list(remembered):
        if start <= seq_id < end:
            del remembered[seq_id]
