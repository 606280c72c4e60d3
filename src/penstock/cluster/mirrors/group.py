"""``MirrorGroup``: one mirrored queue at one of its members: ring, role, and safe position.

In: what other members' groups said (``receive``), the ring's views (to ``ring`` directly), the
queue's view (``queue_view_changed``): its term, its master, the one before, the synced members.
Out: ``take``, once per turn: bytes for members, a view of the ring to propose, mirrors that have
everything now, say nothing, or are slow.

    master   MirroredBacking ─► parcels ─► ring          ◄─ answers, questions ◄─ mirrors
    mirror   ring ─► Replica, which answers "term, applied up to, durable up to, complete"
             Joiner ─► question to the master, straight; ◄─ chunk

**What is safe.**  Not what went round: a mirror that knows of a newer term passes an older master's
parcels on as a member of the ring, and does nothing with them.  Its answers say the term they are
of, so a master that was replaced hears nothing that counts (K2).  A transient publish waits
until all synced mirrors applied its parcel, a persistent one until it is on their disks.

**Change of master.**  A master that learns of its successor tells what it still has, says that it
is through (T), and becomes a mirror whose copy is whole.  The successor begins (B) when it heard
that, or the death (K6), of all masters there were: the last but one may have died with more under
way than the last, who never began.  The ring keeps no order between members, so everybody else
holds back what the successor says from its B on, until it has heard the same.  B says whether the
successor has all that was told until then; if a mirror has it too, it goes on.  Joiners hear B too.

**Becoming synced.**  From the moment a mirror says that it is complete, confirms wait for it; when
it has all that was told before that moment it may be added to the synced ones of the queue's view.
The other way round something could be confirmed without it while the view has it already.

Invariants (``check``):
  U1  a master has a mirrored backing of the newest term it began, a mirror a replica, none has both
"""

from typing import Final, NamedTuple, final

from mypy_extensions import i64

from penstock.backing.interface import BackingQueue
from penstock.cluster.agreement.mirror_keys import Place
from penstock.cluster.mirrors.backing import MirroredBacking
from penstock.cluster.mirrors.group_codec import (
    ANSWER,
    BEGIN,
    CHUNK,
    PARCEL,
    QUESTION,
    RING,
    THROUGH,
    answer_codec,
    begin_codec,
    through_codec,
)
from penstock.cluster.mirrors.joinings import Joinings, member_of
from penstock.cluster.mirrors.operations import read_parcel
from penstock.cluster.mirrors.replica import Replica
from penstock.cluster.mirrors.safety import NOTHING_KNOWN, MirrorStates, SafePositions
from penstock.cluster.mirrors.succession import Succession
from penstock.cluster.mirrors.sync import Joiner
from penstock.cluster.mirrors.syncing import Syncing
from penstock.cluster.ring.codec import decode, encode
from penstock.cluster.ring.ready import BIRTH, DEATH, DELIVER, Delivered
from penstock.cluster.ring.ring import Ring
from penstock.cluster.ring.views import View
from penstock.core.byte_reader import Malformed
from penstock.core.clock_types import MonoMs, WallMs
from penstock.core.confirm_watermark import PendingConfirms
from penstock.core.message import Message
from penstock.queues.publish_notes import PublishNotes
from penstock.storage.journal.journal import Journal

BEHIND_BYTES: Final[i64] = 16 * 1024 * 1024
"""So much of its parcels on the way round, and publishers wait until it is half."""


class Said(NamedTuple):
    """To be said to a member; the pieces of one message are joined by what carries it."""

    member: str
    pieces: list[bytes]


class GroupReady(NamedTuple):
    """The output of a group; all of it is to be done."""

    messages: list[Said]
    view: View | None  # of the ring, to be proposed
    mirrors: MirrorStates  # as the master knows them


@final
class MirrorGroup(PublishNotes):
    """``backing`` is adopted by role: a master's queue uses it, a mirror's is the group's.

    ``active``: the queues that want ``take`` in this turn; ``place``: this one's.
    """

    def __init__(
        self,
        ring: Ring,
        backing: BackingQueue,
        journal: Journal,
        active: dict[Place, None],
        place: Place,
        waits: PendingConfirms,
        batch_messages: i64,
    ) -> None:
        self.ring: Ring = ring
        self.name: str = ring.me  # under which it speaks to the others
        self.me: str = member_of(ring.me)
        self.most_waiting: i64 = BEHIND_BYTES
        self.term: i64 = 0  # of the newest view
        self.master: str = ""
        self.mirrored: MirroredBacking | None = None
        self.replica: Replica | None = None
        self.joiner: Joiner | None = None
        self.syncing: Syncing = Syncing(batch_messages)
        self.safe: SafePositions = SafePositions(self.me, waits)
        self._backing: BackingQueue = backing
        self._journal: Journal = journal
        self._active: dict[Place, None] = active
        self._place: Place = place
        self._held: dict[str, list[Delivered]] = {}  # by ring name, from a B that comes too early
        self._was_master: bool = False
        self._succession: Succession = Succession(self.me)
        self._joinings: Joinings = Joinings()
        self._said: bytes = b""  # the last answer
        self._mono_ms = MonoMs(0)

    # -- the queue's view ----------------------------------------------------------------------

    def queue_view_changed(self, term: i64, master: str, former: str, synced: list[str]) -> None:
        """One after the other.  ``former``: master of the term before; "" = there was none."""
        assert term >= self.term
        if term > self.term:
            self._succession.replaced(term, self.master)
            self._succession.replaced(term, former)
            self._was_master = self._was_master or former == self.me
            self.term = term
            self.master = master
            if self.mirrored is not None:
                self._step_down(self.mirrored)
            elif self._was_master:
                self._say_through(term - 1)  # for members that were not here, or do not know yet
            self._was_master = self._was_master or master == self.me
            if self.replica is None and (former or master != self.me):
                self._mirror(is_whole=False).follow(term, False)
        self.safe.synced_are(synced)
        if self.mirrored is not None:
            self.safe.look(self.mirrored.number)

    def _step_down(self, mirrored: MirroredBacking) -> None:
        """Another member is master now: broadcast the last parcel, and say so."""
        self._broadcast_parcel(mirrored)
        self._say_through(mirrored.term)
        self._succession.stepped_down(mirrored.term)
        mirrored.end()
        self.mirrored = None
        self.syncing.end()
        self.safe.begin()
        self._mirror(is_whole=True).follow(mirrored.term, True)

    def _say(self, words: bytes) -> None:
        if not self.ring.stopped and not self.ring.leaving:
            self.ring.broadcast(words)

    def _say_through(self, term: i64) -> None:
        self._say(through_codec.pack(THROUGH, term))

    def _mirror(self, *, is_whole: bool) -> Replica:
        replica = self.replica = Replica(self._backing, self._journal, is_whole)
        self.joiner = Joiner(replica, self._journal)
        return replica

    def begin_again(self, backing: BackingQueue) -> None:
        """With a copy that is empty, in the place of the one that was lost."""
        assert self.mirrored is None
        self._backing = backing
        self._mirror(is_whole=False).follow(self.term, False)

    def leave(self) -> None:
        """This member has no part in the queue any more, but for what its ring still asks of it."""
        if self.mirrored is not None:
            self.mirrored.end()
            self.mirrored = None
            self.safe.begin()
        self.replica = None
        self.joiner = None
        self.ring.leave()

    def stop(self, why: str) -> None:
        """It is out of the group for ever; the first reason counts."""
        self.ring.stop(why)

    def why_stopped(self) -> str:
        """Empty: it goes on."""
        return self.ring.stopped

    def waiting_bytes(self) -> i64:
        """For so much of what was told publishers may have to wait."""
        return self.ring.waiting_bytes()

    def has_role(self) -> bool:
        """Master or mirror."""
        return self.mirrored is not None or self.replica is not None

    def why_unreadable(self) -> str:
        """What the disk answered when the copy was read last; "" = nothing is wrong."""
        return self._backing.why_stopped()

    def has_lost_copy(self) -> bool:
        """This copy is worth nothing: ``begin_again`` with an empty one."""
        return self.replica is not None and self.replica.is_lost and not self.ring.stopped

    def _may_begin(self) -> bool:
        if self.master != self.me or self.mirrored is not None or not self.ring.full:
            return False
        if self.ring.leaving or self.ring.stopped:
            return False
        if self.replica is not None and not self.replica.may_lead():
            return False
        return self._succession.are_through(self.term)

    def _begin(self) -> None:
        heard_all = False
        replica = self.replica
        if replica is not None:
            heard_all = self._succession.heard_all() and replica.is_complete()
            replica.promote(self.term)
            self.replica = None
            self.joiner = None
        self.mirrored = MirroredBacking(self._backing, self._active, self._place)
        self.mirrored.begin(self.term, 0)
        self.safe.begin()
        self.syncing.begin(self.mirrored, self._succession.present())
        self._succession.speaks(self.ring.me, self.term)
        self.ring.broadcast(begin_codec.pack(BEGIN, self.term, heard_all))

    # -- confirms ------------------------------------------------------------------------------

    def is_alone(self) -> bool:
        return self.safe.why_cut_off() != ""

    def note(self, messages: list[Message]) -> bool:
        """They go into the queue: their publisher waits for the synced mirrors."""
        mirrored = self.mirrored
        return mirrored is None or self.safe.wait_for(messages, mirrored.number + 1)

    # -- what members say -----------------------------------------------------------------------

    def receive(self, sender: str, ring_name: str, data: bytes) -> None:
        """From that member, under the name it has in the ring; raises if it is no message."""
        kind = data[0] if data else 0
        if kind == RING:
            self.ring.step(ring_name, decode(data, 1))
        elif kind == ANSWER and len(data) == answer_codec.size:
            if self._meet(ring_name):
                self._hear_answer(sender, data)
        elif kind == QUESTION:
            if self._meet(ring_name):
                self.syncing.ask(sender, data[1:])
        elif kind == CHUNK:
            if self.joiner is not None and ring_name in self.ring.view.members:
                self.joiner.take_chunk(data[1:])
        else:
            raise Malformed(f"a group hears a message of the kind {kind}")

    def _hear_answer(self, sender: str, data: bytes) -> None:
        _, term, applied, durable, is_complete = answer_codec.unpack(data)
        mirrored = self.mirrored
        if mirrored is None or term != mirrored.term:
            return
        if durable > applied or applied > mirrored.number:
            raise Malformed(f"{durable} durable, {applied} applied, {int(mirrored.number)} told")
        self.safe.hear(sender, applied, durable, is_complete, mirrored.last_number())
        self.safe.look(mirrored.number)

    def _hear(self, origin: str, payload: bytes) -> None:
        """What a member broadcast."""
        kind = payload[0]
        if kind == BEGIN and len(payload) == begin_codec.size:
            _, term, heard_all = begin_codec.unpack(payload)
            self._hear_begin(origin, term, heard_all=heard_all)
        elif kind == THROUGH and len(payload) == through_codec.size:
            self._succession.through(origin, through_codec.unpack(payload)[1])
        elif kind == PARCEL:
            self._hear_parcel(origin, payload)
        else:
            raise Malformed(f"a group hears a broadcast of the kind {kind}")

    def _hear_begin(self, origin: str, term: i64, *, heard_all: bool) -> None:
        spoken_term = self._succession.spoken_term
        if term <= spoken_term:
            return
        replica = self.replica
        if replica is not None:
            also = self._succession.heard_all() and replica.term == spoken_term
            replica.follow(term, heard_all and also)
        self._succession.speaks(origin, term)

    def _hear_parcel(self, origin: str, payload: bytes) -> None:
        replica = self.replica
        if replica is None:
            return
        parcel = read_parcel(payload)
        if parcel.term > self._succession.spoken_term:  # its beginning was before we came
            self._succession.speaks(origin, parcel.term)
        replica.apply(parcel)
        if self.joiner is not None:
            self.joiner.advance()

    def _release(self) -> None:
        """What was held back, as long as there is something that need not be."""
        found = len(self._held) > 0
        while found:
            found = False
            for origin in list(self._held):
                if self._may_hear(self._held[origin][0]):
                    found = True
                    self._hear_all(self._held.pop(origin))

    def _hear_all(self, events: list[Delivered]) -> None:
        for one in events:
            held = self._held.get(one[1])
            if held is not None:
                held.append(one)
            else:
                self._hear_one(one)

    def _may_hear(self, event: Delivered) -> bool:
        payload = event[3]
        if event[0] != DELIVER or payload[0] != BEGIN or len(payload) != begin_codec.size:
            return True
        term = begin_codec.unpack(payload)[1]
        return bool(term <= self.term and self._succession.are_through(term))

    def _hear_one(self, event: Delivered) -> None:
        kind, origin, _, payload = event
        if kind == BIRTH:
            self._succession.born(origin)
            if self._was_master and self.mirrored is None:
                self._say_through(self.term - 1)  # it was said before that one was known
            if self._meet(origin) and self.mirrored is not None:
                self.syncing.hears(self.mirrored, member_of(origin))
                self._say(begin_codec.pack(BEGIN, self.mirrored.term, False))
        elif kind == DEATH:
            if self._joinings.is_newest(origin):
                self._forget(member_of(origin))
            self._succession.died(origin, self.term)
        elif self._may_hear(event):
            self._hear(origin, payload)
        else:
            self._held[origin] = [event]

    def _meet(self, name: str) -> bool:
        """False: it has joined the ring anew since, and what it had counts no more."""
        if not self._joinings.counts(name, self.ring.view.members):
            return False
        if self._joinings.meet(name):
            self._forget(member_of(name))
        return True

    def bar(self, member: str) -> None:
        """It is no member any more: should it be one again, then with another copy."""
        self._joinings.bar(member, self.ring.view.members)
        self._forget(member)

    def _forget(self, member: str) -> None:
        self.syncing.forget(member)
        self.safe.forget(member)

    # -- once per turn --------------------------------------------------------------------------

    def take(self, now_ms: WallMs, mono_ms: MonoMs, *, is_short: bool = False) -> GroupReady:
        """``now_ms`` is wall time; ``is_short``: this node has no room for what a mirror lacks."""
        self._mono_ms = mono_ms
        self.ring.tick(mono_ms)
        messages: list[Said] = []
        mirrors = NOTHING_KNOWN
        self._release()
        view = self._take_ring(messages)
        if self._may_begin():
            self._begin()
        mirrored = self.mirrored
        if self.ring.stopped:
            pass
        elif mirrored is not None and not self.ring.leaving:
            self._speak_as_master(mirrored, messages)
            told, last = mirrored.number, mirrored.last_number()
            mirrors = self.safe.look_at_mirrors(told, last, mono_ms)
        elif self.replica is not None:
            self._speak_as_mirror(self.replica, now_ms, messages, is_short=is_short)
        newer = self._take_ring(messages)
        return GroupReady(messages, view if newer is None else newer, mirrors)

    def _take_ring(self, messages: list[Said]) -> View | None:
        """Returns the view it proposes."""
        said = self.ring.take()
        for name, message in said.messages:
            messages.append(Said(member_of(name), [b"R", *encode(message)]))
        self._hear_all(said.delivered)
        self._release()
        return said.proposal

    def _broadcast_parcel(self, mirrored: MirroredBacking) -> None:
        parcel = mirrored.take_operations()
        if parcel is not None:
            self._say(parcel)

    def _speak_as_master(self, mirrored: MirroredBacking, messages: list[Said]) -> None:
        is_under_way = self.ring.waiting_bytes() > 0
        waits = waits_for_disks(self.safe, self.syncing, mirrored)
        if mirrored.may_tell(self._mono_ms, is_under_way=is_under_way, awaits_disks=waits):
            self.syncing.take_questions(mirrored, self._mono_ms)
            self._broadcast_parcel(mirrored)
            for member, chunk in self.syncing.take_chunks():
                messages.append(Said(member, [b"C", chunk]))
        self.safe.look(mirrored.number)
        mirrored.all_have(self.safe.durable.safe)

    def _speak_as_mirror(
        self, replica: Replica, now_ms: WallMs, messages: list[Said], *, is_short: bool
    ) -> None:
        replica.tick(now_ms)
        joiner = self.joiner
        if replica.is_lost or replica.term != self.term or joiner is None or self.master == self.me:
            return  # no member could answer yet
        question = None if is_short else joiner.ask(self._mono_ms)
        if question is not None:
            messages.append(Said(self.master, [b"Q", question]))
        answer = answer_codec.pack(
            ANSWER, replica.term, replica.number, replica.durable_number(), joiner.is_done()
        )
        if answer != self._said:
            self._said = answer
            messages.append(Said(self.master, [answer]))

    def prepare(self) -> bool:
        """A step of a copy that was found at the start; False = none is to be done now."""
        return self.replica is not None and self.replica.prepare()

    def is_busy(self) -> bool:
        """It is to be asked again in the next turn, although no message came."""
        if self.ring.leaving or self._held or not self.ring.full:
            return True
        replica, joiner = self.replica, self.joiner
        if replica is not None and not replica.is_ready:
            return True
        if replica is not None and joiner is not None:
            waits = self.syncing.is_wanted and not joiner.is_done()
            return waits or replica.durable_number() < replica.number
        return len(self.safe.awaited) > 0 or self.syncing.is_waiting()

    def awaits_disk(self) -> bool:
        """What was told, or the last chunk, behind which the next one is asked for."""
        if self.replica is None or not self.replica.is_durable():
            return self.replica is not None
        return self.joiner is not None and self.joiner.awaits_disk()

    def check(self) -> None:
        assert self.mirrored is None or self.replica is None, "U1"
        mirrored = self.mirrored
        if mirrored is not None:
            assert mirrored.term <= self.term, "U1"
            self.safe.check(mirrored.number)


def waits_for_disks(safe: SafePositions, syncing: Syncing, mirrored: MirroredBacking) -> bool:
    """Are the last parcels on their way to disks, and no copy asks for what it lacks?"""
    return not syncing.is_asked() and safe.awaits_disks(mirrored.number)
