"""Safe positions of mirrors as their master knows them, and the confirms that wait for them.

``Answer``: what a mirror last said.  ``SafeLine``: up to which parcel all synced mirrors have said
so, and the waits of who published.  ``GroupReady``: what a group has to say to the outside.

Invariants (``check``):
  U3  waits ascend with their parcels, and none is of a safe parcel
"""

from collections import deque
from typing import Final, final

from mypy_extensions import i64

from penstock.cluster.ring.views import View
from penstock.core.confirm_watermark import ConfirmWatermark, PendingConfirm, PendingConfirms

STUCK_MS: Final[i64] = 4000
"""A mirror that is behind and makes no progress for so long is stuck: its disk or process stands
still.  Longer than the silence after which a link or a lease ends, so a node that stands as a
whole is found by these."""


@final
class Answer:
    """What a mirror last said of this term."""

    def __init__(self) -> None:
        self.applied: i64 = 0
        self.durable: i64 = 0
        self.is_complete: bool = False
        self._behind_since_ms: i64 = 0  # and nothing was heard of it since; 0 = it is not

    def progress(self, applied: i64, durable: i64) -> None:
        if applied > self.applied or durable > self.durable:
            self._behind_since_ms = 0

    def is_stuck(self, told: i64, now_ms: i64) -> bool:
        """It has not got further for long, though there is more."""
        if self.durable >= told:
            self._behind_since_ms = 0
        elif self._behind_since_ms == 0:
            self._behind_since_ms = now_ms
        return 0 < self._behind_since_ms < now_ms - STUCK_MS


@final
class SafeLine:
    """Parcels up to ``safe`` are so at all synced mirrors; who waits, by parcel."""

    def __init__(self, waits: PendingConfirms) -> None:
        self.safe: i64 = 0
        self.frontier: ConfirmWatermark = ConfirmWatermark(waits)
        self.alone: str = ""  # why no mirror will say anything for some time
        self._waiting: deque[tuple[int, int]] = deque()  # parcel, number on the frontier
        self._waits = waits
        self._refused: list[PendingConfirm] = []

    def wait_for(self, parcel: i64) -> bool:
        """False: the queue is not to take it; ``tell_refused`` says so to the publisher."""
        if self.alone != "":
            self._refuse()
            return False
        wait = self.frontier.number(1)
        self._waiting.append((int(parcel), int(wait.last)))
        return True

    def _refuse(self) -> None:
        wait = PendingConfirm(0, 0)
        wait.away_text = self.alone
        self._refused.append(wait)
        self._waits.noted.append(wait)

    def reach(self, parcel: i64) -> None:
        if parcel > self.safe:
            self.safe = parcel
        while len(self._waiting) > 0 and self._waiting[0][0] <= self.safe:
            self.frontier.advance(self._waiting.popleft()[1])

    def begin(self) -> None:
        """Another term: parcels are numbered anew, and what waits will never be said."""
        self.safe = 0
        self.alone = ""
        self._waiting.clear()
        self.frontier.strand(self.frontier.lose())  # those of who never gives up
        self.tell_refused()

    def give_up(self) -> None:
        """Publishers are told no; the broker's own waits, and other nodes', stay open."""
        if not self.frontier.has_open():
            return
        parcel = self._waiting[-1][0]
        self._waiting.clear()
        for wait in self.frontier.take_open():
            if wait.resend or wait.relayed:
                self.frontier.number_again(wait)
                self._waiting.append((parcel, int(wait.last)))
            else:
                self.frontier.give_up([wait])

    def tell_refused(self) -> None:
        """The publishers are told no; the broker publishes its own messages again."""
        refused = self._refused
        self._refused = []
        for wait in refused:
            if wait.resend:
                self.frontier.strand([wait])
            else:
                self.frontier.give_up([wait])

    def check(self) -> None:
        last = (int(self.safe), 0)
        for parcel, number in self._waiting:
            assert parcel > self.safe, "U3"
            assert parcel >= last[0], "U3"
            assert number > last[1], "U3"
            last = (parcel, number)


@final
class GroupReady:
    """What is to be done now."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, bytes]] = []
        self.view: View | None = None  # of the ring, to be proposed
        self.stuck: list[str] = []  # synced mirrors that say nothing, while others wait for them
        self.complete: list[str] = []  # mirrors that are not among the synced, and could be
        self.dead: list[str] = []
        self.is_lost: bool = False  # this copy is worth nothing: ``begin_again`` with an empty one
        self.stopped: str = ""
