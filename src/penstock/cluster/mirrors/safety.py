"""Safe positions of mirrors as their master knows them, and the confirms that wait for them.

``Answer``: what a mirror last said.  ``SafeLine``: up to which parcel all synced mirrors have said
so, and the publishers' waits.  ``Rests``: which mirrors are not waited for, because they were slow.
``SafePositions``: all of it, for what is applied and what is durable.  With a reign (reigns.py)
what a majority of the copies has is safe, and no copy rests.

Invariants (``check``):
  U2  what is safe was told, and is durable no further than it was applied
  U3  waits ascend with their parcels, and none is of a safe parcel
"""

from collections import deque
from typing import Final, NamedTuple, final

from mypy_extensions import i64

from penstock.cluster.agreement.coordinator import node_of
from penstock.cluster.agreement.reigns import Reign
from penstock.core.clock_types import MonoMs
from penstock.core.confirm_watermark import ConfirmWatermark, PendingConfirm, PendingConfirms
from penstock.core.message import PERSISTENT, Message

STUCK_MS: Final[i64] = 4000
"""A mirror that is behind and makes no progress for so long is stuck: its disk or process stands
still.  Longer than the silence after which a link or a lease ends, so a node that stands as a
whole is found by these."""
LATE_MS: Final[i64] = 500
"""A mirror without progress for so long is named as the one for which publishers wait."""
REST_MS: Final[i64] = 10_000
REST_MAX_MS: Final[i64] = 300_000
GOOD_RESTS: Final[i64] = 6
"""A mirror that was not slow for so many of its last rests begins again with the shortest."""


class MirrorStates(NamedTuple):
    """What the master knows of its mirrors that may call for another view."""

    complete: list[str]  # not among the synced, and could be
    silent: list[str]  # they apply nothing, while publishers wait for them
    slow: list[str]  # they apply everything, and their disks take nothing
    may_change: bool = False  # of a queue with a reign: the copies, now
    following: tuple[str, ...] = ()  # of such: other nodes whose copies vote, and are complete
    is_level: bool = False  # of such: the copies have all operations, and no new one is sent


NOTHING_KNOWN: Final = MirrorStates([], [], [])


def _since(is_there: bool, since_ms: MonoMs, now_ms: MonoMs) -> MonoMs:
    """Since when it is not there; 0 = it is."""
    if is_there:
        return MonoMs(0)
    return now_ms if since_ms == 0 else since_ms


@final
class Answer:
    """What a mirror last said of this term."""

    def __init__(self) -> None:
        self.applied: i64 = 0
        self.durable: i64 = 0
        self.is_complete: bool = False
        self._applies_since_ms = MonoMs(0)  # without progress; 0 = it has applied all there is
        self._writes_since_ms = MonoMs(0)  # the same of its disk

    def hear(self, applied: i64, durable: i64, is_complete: bool) -> None:
        if applied > self.applied:
            self._applies_since_ms = MonoMs(0)
        if durable > self.durable:
            self._writes_since_ms = MonoMs(0)
        self.applied = applied
        self.durable = durable
        self.is_complete = is_complete

    def look(self, told: i64, now_ms: MonoMs) -> None:
        """``told``: the last parcel there is."""
        self._applies_since_ms = _since(self.applied >= told, self._applies_since_ms, now_ms)
        self._writes_since_ms = _since(self.durable >= told, self._writes_since_ms, now_ms)

    def applies_ms(self, now_ms: MonoMs) -> i64:
        """For how long it has applied nothing, though there is more."""
        return now_ms - self._applies_since_ms if self._applies_since_ms > 0 else 0

    def writes_ms(self, now_ms: MonoMs) -> i64:
        """For how long its disk has taken nothing, though there is more."""
        return now_ms - self._writes_since_ms if self._writes_since_ms > 0 else 0

    def is_slow(self, now_ms: MonoMs) -> bool:
        return self.writes_ms(now_ms) > STUCK_MS


@final
class Rests:
    """Mirrors that were slow: each is not waited for during its rest.

    The first rest lasts ``REST_MS``, each further one twice as long as the last, at most
    ``REST_MAX_MS``.
    """

    def __init__(self) -> None:
        self._until_ms: dict[str, MonoMs] = {}
        self._lengths_ms: dict[str, int] = {}

    def begin(self, member: str, now_ms: MonoMs) -> None:
        length_ms: i64 = self._lengths_ms.get(member, 0)
        until_ms = self._until_ms.get(member, MonoMs(0))
        if length_ms == 0 or now_ms - until_ms > GOOD_RESTS * length_ms:
            length_ms = REST_MS
        elif now_ms >= until_ms:
            length_ms = min(2 * length_ms, REST_MAX_MS)
        self._lengths_ms[member] = int(length_ms)
        self._until_ms[member] = MonoMs(now_ms + length_ms)

    def left_ms(self, member: str, now_ms: MonoMs) -> i64:
        """0 = its rest is over, or it had none."""
        return max(self._until_ms.get(member, MonoMs(0)) - now_ms, 0)


@final
class SafeLine:
    """Parcels up to ``safe`` are so at all synced mirrors; confirms wait by parcel."""

    def __init__(self, waits: PendingConfirms) -> None:
        self.safe: i64 = 0
        self.watermark: ConfirmWatermark = ConfirmWatermark(waits)
        self.alone: str = ""  # why no mirror will say anything for some time
        self._waiting: deque[tuple[int, int]] = deque()  # parcel, number on the watermark
        self._waits = waits
        self._refused: list[PendingConfirm] = []

    def wait_for(self, parcel: i64) -> bool:
        """False: the queue is not to take it; ``tell_refused`` says so to the publisher."""
        if self.alone != "":
            self._refuse()
            return False
        wait = self.watermark.number(1)
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
            self.watermark.advance(self._waiting.popleft()[1])

    def begin(self) -> None:
        """Another term: parcels are numbered anew, and what waits will never be said."""
        self.safe = 0
        self.alone = ""
        self._waiting.clear()
        self.watermark.strand(self.watermark.lose())  # the publisher never gives up
        self.tell_refused()

    def cut_off(self, why: str) -> None:
        """For ``why`` no mirror will say anything for some time; "" = they will."""
        self.alone = why
        self.tell_refused()
        if why:
            self.give_up()

    def give_up(self) -> None:
        """Publishers are told no; the broker's own waits, and other nodes', stay open."""
        if not self.watermark.has_open():
            return
        parcel = self._waiting[-1][0]
        self._waiting.clear()
        for wait in self.watermark.take_open():
            if wait.resend or wait.relayed:
                self.watermark.number_again(wait)
                self._waiting.append((parcel, int(wait.last)))
            else:
                self.watermark.give_up([wait])

    def tell_refused(self) -> None:
        """The publishers are told no; the broker publishes its own messages again."""
        refused = self._refused
        self._refused = []
        for wait in refused:
            if wait.resend:
                self.watermark.strand([wait])
            else:
                self.watermark.give_up([wait])

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
    One that was slow is not waited for from the moment the view does not count on it any more until
    its rest is over.  It is dropped with a view and not before: a proposal that counts on it may
    be under way until then.
    """

    def __init__(self, me: str, waits: PendingConfirms) -> None:
        self.applied: SafeLine = SafeLine(waits)
        self.durable: SafeLine = SafeLine(waits)
        self.answers: dict[str, Answer] = {}
        self.awaited: dict[str, int] = {}
        self._me: str = me
        self._synced: list[str] = []
        self._reign: Reign | None = None
        self._own_durable: i64 = -1
        self._rests: Rests = Rests()
        self._now_ms = MonoMs(0)  # of the last look at the mirrors

    def begin(self) -> None:
        """A term begins, or ends: what mirrors said of another one does not count."""
        self.answers = {}
        self.awaited = {}
        self._rests = Rests()
        self._own_durable = -1
        self.applied.begin()
        self.durable.begin()

    def synced_are(self, synced: list[str]) -> None:
        """By the queue's view."""
        for member in self._others():
            if member not in synced:
                self._rest_if_late(member)
        self._synced = synced

    def ruled_by(self, reign: Reign) -> None:
        """By the queue's view: a majority of its copies decides."""
        self._reign = reign

    def _rest_if_late(self, member: str) -> None:
        answer = self.answers.get(member)
        if answer is None:
            return
        late_ms = max(answer.applies_ms(self._now_ms), answer.writes_ms(self._now_ms))
        if late_ms > STUCK_MS:
            self._rests.begin(member, self._now_ms)
            self.awaited.pop(member, None)

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
        if self._reign is None and not self._others():
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
        """``last_number``: of the parcel that has all that happened so far.

        With a reign a copy is complete when it is so on its disk, up to ``durable``.
        """
        answer = self.answers.setdefault(member, Answer())
        answer.hear(applied, durable, is_complete)
        self._await(member, answer, last_number)

    def _await(self, member: str, answer: Answer, last_number: i64) -> None:
        """From now on, if it has everything, and is not resting."""
        if self._reign is not None:
            return
        if answer.is_complete and member not in self._synced and self.rest_ms(member) == 0:
            self.awaited.setdefault(member, int(last_number))

    def rest_ms(self, member: str) -> i64:
        """So long that mirror is not waited for, because it was slow."""
        return self._rests.left_ms(member, self._now_ms)

    def forget(self, member: str) -> None:
        self._rest_if_late(member)
        self.answers.pop(member, None)
        self.awaited.pop(member, None)

    def look(self, told: i64, own_durable: i64 = 0) -> None:
        """What is safe by now, of parcels up to ``told``.

        ``own_durable``: up to there they are on this node's disk, -1 = not even what the term
        began with; of a queue with a reign.  Of others publishers wait for that disk themselves.
        """
        if self._reign is not None:
            self._own_durable = own_durable
            self._look_at_majority(self._reign, told)
            return
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

    def look_at_mirrors(self, told: i64, last_number: i64, now_ms: MonoMs) -> MirrorStates:
        """Once a turn; ``last_number`` as for ``hear``."""
        self._now_ms = now_ms
        reign = self._reign
        if reign is not None:
            for answer in self.answers.values():
                answer.look(told, now_ms)
            may_change = reign.may_change(self._durable(), int(self.durable.safe))
            following = tuple([node for node, _ in self._complete() if node in reign.copies])
            return MirrorStates(self._learned(reign), [], [], may_change, following)
        for member, answer in self.answers.items():
            self._await(member, answer, last_number)
        states = MirrorStates([], [], [])
        for member in self._others():
            answer = self.answers.setdefault(member, Answer())
            answer.look(told, now_ms)
            if answer.applies_ms(now_ms) > STUCK_MS:
                states.silent.append(member)
            elif answer.is_slow(now_ms):
                states.slow.append(member)
        for member, number in self.awaited.items():
            if member not in self._synced and self.answers[member].durable >= number:
                states.complete.append(member)
        return states

    def may_spare(self, reign: Reign) -> bool:
        """A copy that was forgotten."""
        return reign.may_spare(self._durable(), int(self.durable.safe))

    def has_all(self, node: str, told: i64) -> bool:
        """Does the disk there have all parcels up to the last one?"""
        return self._durable().get(node, -1) >= told

    def _look_at_majority(self, reign: Reign, told: i64) -> None:
        applied = {node: int(said.applied) for node, said in self._complete()}
        applied[node_of(self._me)] = int(told)
        self.applied.reach(max(0, reign.confirmed_number(applied)))
        self.durable.reach(max(0, reign.confirmed_number(self._durable())))

    def _complete(self) -> list[tuple[str, Answer]]:
        """Nodes, and what their copies said."""
        return [(node_of(one), said) for one, said in self.answers.items() if said.is_complete]

    def _durable(self) -> dict[str, int]:
        """By node."""
        found = {node: int(said.durable) for node, said in self._complete()}
        return found | {node_of(self._me): int(self._own_durable)}

    def awaits_disks(self, told: i64) -> bool:
        """Parcels up to ``told`` are not yet safe, and publishers wait for no other reason."""
        return self.durable.safe < told and not self.applied.watermark.has_open()

    def _learned(self, reign: Reign) -> list[str]:
        """Complete members whose copies do not vote."""
        return [
            member
            for member, answer in self.answers.items()
            if answer.is_complete and node_of(member) not in reign.copies
        ]

    def latest(self) -> tuple[str, str]:
        """The mirror for which publishers wait longest, and how it is late; ("", "") = for none."""
        late = self.late()
        is_open = self.applied.watermark.has_open() or self.durable.watermark.has_open()
        return late[0] if late and is_open and self._waits_for(dict(late)) else ("", "")

    def late(self) -> list[tuple[str, str]]:
        """Mirrors that have taken nothing for some time, the latest first, and how in words."""
        known = self._others() if self._reign is None else list(self.answers)
        times: list[tuple[i64, str]] = []
        for member in known:
            answer = self.answers.get(member)
            if answer is not None and answer.writes_ms(self._now_ms) > LATE_MS:
                times.append((answer.writes_ms(self._now_ms), member))
        found: list[tuple[str, str]] = []
        for late_ms, member in sorted(times, reverse=True):
            applies_ms = self.answers[member].applies_ms(self._now_ms)
            it = "it" if applies_ms > LATE_MS else "its disk"
            found.append((member, f"{it} has taken nothing for {int(late_ms) / 1000:.1f} s"))
        return found

    def _waits_for(self, late: dict[str, str]) -> bool:
        """Where a majority decides, only if the copies that are not late are none."""
        reign = self._reign
        if reign is None:
            return True
        prompt = {node_of(self._me)}
        for member, answer in self.answers.items():
            if answer.is_complete and member not in late:
                prompt.add(node_of(member))
        return len(prompt & set(reign.copies)) < reign.majority()

    def check(self, told: i64) -> None:
        assert self.durable.safe <= self.applied.safe <= told, "U2"
        self.applied.check()
        self.durable.check()
