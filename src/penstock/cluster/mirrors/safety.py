"""Safe positions of mirrors as their master knows them, and the confirms that wait for them.

``Answer``: what a mirror last said.  ``SafeLine``: up to which parcel all synced mirrors have said
so, and the publishers' waits.  ``SafePositions``: both, for what is applied and what is durable.

Invariants (``check``):
  U2  what is safe was told, and is durable no further than it was applied
  U3  waits ascend with their parcels, and none is of a safe parcel
"""

from collections import deque
from typing import Final, final

from mypy_extensions import i64

from penstock.core.clock_types import MonoMs
from penstock.core.confirm_watermark import ConfirmWatermark, PendingConfirm, PendingConfirms
from penstock.core.message import PERSISTENT, Message

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
        self._behind_since_ms = MonoMs(0)  # and nothing was heard of it since; 0 = it is not

    def hear(self, applied: i64, durable: i64, is_complete: bool) -> None:
        if applied > self.applied or durable > self.durable:
            self._behind_since_ms = MonoMs(0)
        self.applied = applied
        self.durable = durable
        self.is_complete = is_complete

    def is_stuck(self, told: i64, now_ms: MonoMs) -> bool:
        """It has not got further for long, though there is more."""
        if self.durable >= told:
            self._behind_since_ms = MonoMs(0)
        elif self._behind_since_ms == 0:
            self._behind_since_ms = now_ms
        return 0 < self._behind_since_ms < now_ms - STUCK_MS


@final
class SafeLine:
    """Parcels up to ``safe`` are so at all synced mirrors; confirms wait by parcel."""

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
        wait = PendingConfirm(0, 0, self.alone)
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
        self.frontier.strand(self.frontier.lose())  # the publisher never gives up
        self.tell_refused()

    def cut_off(self, why: str) -> None:
        """For ``why`` no mirror will say anything for some time; "" = they will."""
        self.alone = why
        self.tell_refused()
        if why:
            self.give_up()

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
class SafePositions:
    """Of one queue, whose master is ``me``.

    From the moment a mirror says that it is complete confirms wait for it, as for the synced ones
    of the queue's view: ``awaited`` says up to which parcel it has to be durable to become one.
    """

    def __init__(self, me: str, waits: PendingConfirms) -> None:
        self.applied: SafeLine = SafeLine(waits)
        self.durable: SafeLine = SafeLine(waits)
        self.answers: dict[str, Answer] = {}
        self.awaited: dict[str, int] = {}
        self._me: str = me
        self._synced: list[str] = []

    def begin(self) -> None:
        """A term begins, or ends: what mirrors said of another one does not count."""
        self.answers = {}
        self.awaited = {}
        self.applied.begin()
        self.durable.begin()

    def synced_are(self, synced: list[str]) -> None:
        """By the queue's view."""
        self._synced = synced

    def cut_off(self, why: str) -> None:
        """See ``SafeLine``."""
        self.applied.cut_off(why)
        self.durable.cut_off(why)

    def why_cut_off(self) -> str:
        """Empty: it is not."""
        return self.applied.alone

    def wait_for(self, messages: list[Message], parcel: i64) -> bool:
        """Until the mirrors have these, which will be in that parcel; False: see ``SafeLine``.

        A transient publish waits until they applied it, a persistent one for their disks.
        """
        if not self._others():
            return True
        line = self.applied
        for message in messages:
            if message.flags & PERSISTENT:
                line = self.durable
                break
        return line.wait_for(parcel)

    def _others(self) -> list[str]:
        others = dict.fromkeys([*self._synced, *self.awaited])
        return [member for member in others if member != self._me]

    def hear(
        self, member: str, applied: i64, durable: i64, is_complete: bool, last_number: i64
    ) -> None:
        """``last_number``: of the parcel that has all that happened so far."""
        self.answers.setdefault(member, Answer()).hear(applied, durable, is_complete)
        if is_complete and member not in self._synced:
            self.awaited.setdefault(member, int(last_number))

    def forget(self, member: str) -> None:
        self.answers.pop(member, None)
        self.awaited.pop(member, None)

    def look(self, told: i64) -> None:
        """What is safe by now, of parcels up to ``told``."""
        applied = told
        durable = told
        for member in self._others():
            answer = self.answers.get(member)
            if answer is None:
                return
            if answer.applied < applied:
                applied = answer.applied
            if answer.durable < durable:
                durable = answer.durable
        self.applied.reach(applied)
        self.durable.reach(durable)

    def complete(self) -> list[str]:
        """Mirrors that are not among the synced, and could be."""
        return [
            member
            for member, told in self.awaited.items()
            if member not in self._synced and self.answers[member].durable >= told
        ]

    def stuck(self, told: i64, now_ms: MonoMs) -> list[str]:
        """Synced mirrors that say nothing, while publishers wait for them."""
        return [
            member
            for member in self._others()
            if self.answers.setdefault(member, Answer()).is_stuck(told, now_ms)
        ]

    def check(self, told: i64) -> None:
        assert self.durable.safe <= self.applied.safe <= told, "U2"
        self.applied.check()
        self.durable.check()
