"""``Stream``: one member's broadcasts as another member of the ring has them.

    1 … acked            all members have them: gone from here
    acked + 1 … published   here, in ``items``
    … told               of these the right neighbour has heard

Which member answers for which, and what neighbours say, is in ring.py.

Invariants (``check``):
  B1  it keeps exactly the items published and not acknowledged; their bytes are counted
  B2  what the right neighbour was told lies between acknowledged and published
  B3  an end is the last item, of a dead member; only of a dead one can a member be unsure
  B4  what came round as acknowledged was acknowledged
"""

from typing import final

from mypy_extensions import i64

from penstock.cluster.ring.codec import RingEntry


@final
class Stream:
    """``unsure``: there may be more on the right, or not all have what is here."""

    def __init__(self, unsure: bool = False) -> None:
        self.acked: i64 = 0
        self.published: i64 = 0
        self.items: list[bytes | None] = []
        self.size_bytes: i64 = 0  # of the items
        self.told: i64 = 0
        self.ack_round: i64 = 0  # see ``came_round``
        self.ended: bool = False  # END is in it
        self.unsure: bool = unsure
        self.sweep: i64 = 0  # own broadcast that looks for more; 0 = none
        self.swept: i64 = 0  # what was published when that went

    def add(self, items: list[bytes | None]) -> None:
        for item in items:
            if item is None:
                self.ended = True
            else:
                self.size_bytes += len(item)
        self.items += items
        self.published += len(items)

    def acknowledge(self, ack: i64) -> None:
        """Everybody has those up to ``ack``; more than before, and not more than is here."""
        gone = self.items[: ack - self.acked]
        for item in gone:
            if item is not None:
                self.size_bytes -= len(item)
        del self.items[: ack - self.acked]
        self.acked = ack

    def came_round(self, ack: i64) -> None:
        """To the member that answers for it: all have heard of that acknowledgement."""
        if ack > self.ack_round:
            self.ack_round = ack

    def said(self) -> None:
        """The right neighbour has heard of all there is."""
        self.told = self.published

    # -- sweeps --------------------------------------------------------------------------------

    def begin_sweep(self, number: i64) -> None:
        """That broadcast looks for more."""
        self.sweep = number
        self.swept = self.published

    def was_swept(self, acked: i64) -> bool:
        """Nothing new came before the sweep returned; ``acked`` of our own broadcasts."""
        return 0 < self.sweep <= acked and self.published == self.swept

    def become_sure(self) -> None:
        self.unsure = False

    # -- entries -------------------------------------------------------------------------------

    def start_with(self, entry: RingEntry) -> bool:
        """A joiner's first sight of it; False = all is over, and no member need hear of it."""
        last = entry.last()
        over = len(entry.items) > 0 and entry.items[-1] is None and entry.ack >= last
        base = last if over else entry.first - 1
        self.acked = base
        self.published = base
        self.ended = over
        self.unsure = self.unsure and not over
        return not over

    def is_over(self) -> bool:
        """All have its end, and have forgotten it."""
        return self.ended and self.ack_round == self.published

    def entry(self, origin: str, first: i64) -> RingEntry:
        """From ``first`` on, which is not yet gone."""
        return RingEntry(origin, first, self.items[first - self.acked - 1 :], self.acked)

    def all_of_it(self, origin: str) -> RingEntry:
        """For a member that may know nothing: an end is told even when it is acknowledged."""
        if self.ended and self.acked == self.published:
            return RingEntry(origin, self.published, [None], self.acked)
        return self.entry(origin, self.acked + 1)

    def numbers_only(self, origin: str) -> RingEntry:
        return RingEntry(origin, self.published + 1, [], self.acked)

    def check(self, *, dead: bool, telling: bool) -> None:
        """``telling``: the right neighbour hears what is new, and is not due to hear all."""
        assert len(self.items) == self.published - self.acked, "B1"
        assert self.size_bytes == sum(len(one or b"") for one in self.items), "B1"
        assert not telling or self.acked <= self.told <= self.published, "B2"
        assert None not in self.items[:-1], "B3"
        assert dead or not (self.ended or self.unsure), "B3"
        assert self.ack_round <= self.acked, "B4"
