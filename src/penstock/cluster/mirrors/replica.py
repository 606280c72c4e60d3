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
queue; a stream is compared.  (A queue cannot begin again with what it has: the journal of this life
knows of places as ended that may live.)

A copy with positions (star_group.py) is not lost: before it follows it knows whether it may go on,
fetch what differs, or is given up.

**Promotion.**  ``promote`` makes a master's backing of it, as a start does: numbers from
``term << 40``, everything marked redelivered, deduplication keys and priorities found again.

Invariants (``check``):
  R3  positions that wait to be durable ascend, with their numbers
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.backing.interface import BackingQueue
from penstock.cluster.mirrors.operations import Parcel
from penstock.cluster.mirrors.part_copy import CopiedPart, PartCopy
from penstock.cluster.mirrors.stream_copy import StreamCopy
from penstock.core.clock_types import WallMs
from penstock.queues.stream_backing import StreamBacking
from penstock.storage.journal.journal import Journal

TERM_SHIFT: Final[i64] = 40


@final
class Replica:
    """``backing`` is new or just adopted, with nothing out of it; ``journal`` is its engine's.

    ``is_whole``: it was the master's until now, and all of its parcels were heard by its successor.
    ``forgets``: else nothing has ended here that its master has, so all that is here is compared.
    """

    def __init__(
        self, backing: BackingQueue, journal: Journal, is_whole: bool = False, forgets: bool = True
    ) -> None:
        self.backing: BackingQueue = backing
        self.parts: list[CopiedPart] = []
        self.term: i64 = 0
        self.number: i64 = 0  # of the last parcel applied; 0 = none of this term yet
        self.is_lost: bool = False
        self.is_ready: bool = is_whole
        self._began: bool = is_whole  # something was applied
        self._journal: Journal = journal
        self._written: list[tuple[int, int]] = []  # (number, the journal's position behind it)
        self._durable: i64 = 0
        self._position: i64 = journal.position  # behind all that was applied
        for one in backing.parts():
            self.parts.append(PartCopy(one))
        if isinstance(backing, StreamBacking):
            self.parts.append(StreamCopy(backing))
        for part in self.parts:
            part.begin(is_whole, forgets)
        self._look_whether_ready()

    def prepare(self) -> bool:
        """One step on the way to be ready; False = there is none to be done now."""
        if self.is_ready:
            return False
        for part in self.parts:
            if part.is_preparing():
                moved = part.prepare()
                self._look_whether_ready()
                return moved
        return False

    def _look_whether_ready(self) -> None:
        for part in self.parts:
            if part.is_preparing():
                return
        if not self.is_ready:
            self.is_ready = True
            for part in self.parts:
                part.resume()

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

    def hear_from(self, term: i64, number: i64) -> None:
        """It hears that term from behind that parcel on: of a copy with positions."""
        self.term = term
        self.number = number
        self._began = True

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
        """See ``CopiedPart``."""
        if self.is_ready:
            for part in self.parts:
                part.tick(now_ms)

    def may_lead(self) -> bool:
        """It could be a master's now."""
        for part in self.parts:  # noqa: SIM110 - a generator costs more than the loop
            if not part.may_lead():
                return False
        return True

    # -- another role ----------------------------------------------------------------------

    def promote(self, term: i64) -> None:
        """A master's backing from now on; this object is done with."""
        assert term > self.term
        begin_term(self.backing, term)

    def check(self) -> None:
        """Assert R3, and what each part promises."""
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
    if isinstance(backing, StreamBacking):
        backing.begin_term(term)
    for part in backing.parts():
        part.replica.begin_at(term << TERM_SHIFT)
        part.replica.begin_master()
    backing.adopted()
