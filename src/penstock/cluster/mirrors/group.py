"""``MirrorGroup``: one mirrored queue at one of its members: ring, role, and safe position.

In: what other members' groups said (``receive``), the ring's views (to ``ring`` directly), the
queue's view (``queue_view_changed``): its term, who is master, who was before, who is synced.
Out: ``take``, once per turn: bytes for members, a view of the ring to propose, mirrors that have
everything now, and who died, each behind its last operations.

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
  U2  what is safe was told, and is durable no further than it was applied
"""

from typing import final

from mypy_extensions import i64

from penstock.backing.interface import BackingQueue
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
    is_former,
    joining_of,
    member_of,
    through_codec,
)
from penstock.cluster.mirrors.operations import read_parcel
from penstock.cluster.mirrors.replica import Replica
from penstock.cluster.mirrors.safety import Answer, GroupReady, SafeLine
from penstock.cluster.mirrors.sync import Joiner
from penstock.cluster.mirrors.syncing import Syncing
from penstock.cluster.ring.codec import decode, encode
from penstock.cluster.ring.ready import BIRTH, DEATH, DELIVER, Delivered, Ready
from penstock.cluster.ring.ring import Ring
from penstock.core.byte_reader import Malformed
from penstock.core.confirm_watermark import PendingConfirms
from penstock.core.message import PERSISTENT, Message
from penstock.queues.publish_notes import PublishNotes
from penstock.storage.journal.journal import Journal


@final
class MirrorGroup(PublishNotes):
    """``backing`` is adopted by role: a master's queue uses it, a mirror's is the group's."""

    def __init__(
        self,
        ring: Ring,
        backing: BackingQueue,
        journal: Journal,
        talkative: list[MirroredBacking],
        waits: PendingConfirms,
        batch_messages: i64,
    ) -> None:
        self.ring: Ring = ring
        self.owner: object = None  # the object that keeps it
        self.me: str = member_of(ring.me)
        self.term: i64 = 0  # of the newest view
        self.master: str = ""
        self.synced: list[str] = []
        self.mirrored: MirroredBacking | None = None
        self.replica: Replica | None = None
        self.joiner: Joiner | None = None
        self.syncing: Syncing = Syncing(batch_messages)
        self.answers: dict[str, Answer] = {}
        self.awaited: dict[str, int] = {}  # complete, not in the view: all told before this counts
        self.applied: SafeLine = SafeLine(waits)
        self.durable: SafeLine = SafeLine(waits)
        self._backing: BackingQueue = backing
        self._journal: Journal = journal
        self._talkative: list[MirroredBacking] = talkative
        self._masters: list[tuple[str, int]] = []  # with terms, that may have something to say
        self._held: dict[str, list[Delivered]] = {}  # by ring name, from a B that comes too early
        self._was_master: bool = False
        self._present: set[str] = set()  # ring names: born, and not dead
        self._through: dict[str, int] = {}  # by member: the last of its terms, as it said
        self._names: dict[str, str] = {}  # by member, the newest ring name
        self._barred: dict[str, int] = {}  # by member: joinings up to this one do not count
        self._speaker: str = ""  # ring name of who last spoke as master
        self._spoken_term: i64 = 0
        self._ended_term: i64 = 0  # we heard all of it
        self._said: bytes = b""  # the last answer
        self._mono_ms: i64 = 0

    # -- the queue's view ----------------------------------------------------------------------

    def queue_view_changed(self, term: i64, master: str, former: str, synced: list[str]) -> None:
        """One after the other.  ``former``: master of the term before; "" = there was none."""
        assert term >= self.term
        if term > self.term:
            self._note_former(term, former)
            self.term = term
            self.master = master
            if self.mirrored is not None:
                self._step_down(self.mirrored)
            elif self._was_master:
                self._say_through(term - 1)  # for who was not here, or does not know yet
            self._was_master = self._was_master or master == self.me
            if self.replica is None and (former or master != self.me):
                self._mirror(is_whole=False)
        self.synced = synced
        self._look_what_is_safe()

    def _note_former(self, term: i64, former: str) -> None:
        for member in (self.master, former):
            if not member or member == self.me or self._through.get(member, 0) >= term - 1:
                continue
            if (member, int(term) - 1) not in self._masters:
                self._masters.append((member, int(term) - 1))
        self._was_master = self._was_master or former == self.me

    def _step_down(self, mirrored: MirroredBacking) -> None:
        """Another member is master now: broadcast the last parcel, and say so."""
        self._broadcast_parcel(mirrored)
        self._say_through(mirrored.term)
        self._ended_term = mirrored.term
        mirrored.end()
        self.mirrored = None
        self.syncing.end()
        self.applied.begin()
        self.durable.begin()
        self._mirror(is_whole=True)
        if self.replica is not None:
            self.replica.follow(self._ended_term, True)

    def _say(self, words: bytes) -> None:
        if not self.ring.stopped and not self.ring.leaving:
            self.ring.broadcast(words)

    def _say_through(self, term: i64) -> None:
        self._say(through_codec.pack(THROUGH, term))

    def _mirror(self, *, is_whole: bool) -> None:
        self.replica = Replica(self._backing, self._journal, is_whole)
        self.joiner = Joiner(self.replica, self._journal)
        if not is_whole:
            self.replica.follow(self.term, False)

    def begin_again(self, backing: BackingQueue) -> None:
        """With a copy that is empty, in the place of the one that was lost."""
        assert self.mirrored is None
        self._backing = backing
        self._mirror(is_whole=False)

    def leave(self) -> None:
        """This member has no part in the queue any more, but for what its ring still asks of it."""
        if self.mirrored is not None:
            self.mirrored.end()
            self.mirrored = None
            self.applied.begin()
            self.durable.begin()
        self.replica = None
        self.joiner = None
        self.ring.leave()

    def _may_begin(self) -> bool:
        """All former masters said that they are through, or died, behind all they did."""
        if self.master != self.me or self.mirrored is not None or not self.ring.full:
            return False
        if self.ring.leaving or self.ring.stopped:
            return False
        return self._are_through(self.term)

    def _are_through(self, term: i64) -> bool:
        """Who was master before that term."""
        here = [member_of(name) for name in self._present]
        return not [1 for one, its_term in self._masters if its_term < term and one in here]

    def _has_heard_all(self) -> bool:
        """Of the former masters; and nothing else is missing here."""
        replica = self.replica
        return replica is not None and self._ended_term >= self._spoken_term > 0

    def _begin(self) -> None:
        heard_all = self._has_heard_all()
        replica = self.replica
        if replica is not None:
            heard_all = heard_all and replica.is_complete()
            replica.promote(self.term)
            self.replica = None
            self.joiner = None
        self.mirrored = MirroredBacking(self._backing, self._talkative)
        self.mirrored.owner = self.owner
        self.mirrored.begin(self.term, 0)
        self.answers = {}
        self.awaited = {}
        self.applied.begin()
        self.durable.begin()
        self.syncing.begin(self.mirrored, [member_of(name) for name in self._present])
        self._speaker = self.ring.me
        self._spoken_term = self.term
        self.ring.broadcast(begin_codec.pack(BEGIN, self.term, heard_all))

    # -- confirms ------------------------------------------------------------------------------

    def is_alone(self) -> bool:
        return self.applied.alone != ""

    def note(self, messages: list[Message]) -> bool:
        """They go into the queue: who published them waits for the synced mirrors."""
        mirrored = self.mirrored
        if mirrored is None or not self._others_synced():
            return True
        line = self.applied
        for message in messages:
            if message.flags & PERSISTENT:
                line = self.durable
                break
        return line.wait_for(mirrored.number + 1)

    def _others_synced(self) -> list[str]:
        others = dict.fromkeys([*self.synced, *self.awaited])
        return [member for member in others if member != self.me]

    def _look_what_is_safe(self) -> None:
        mirrored = self.mirrored
        if mirrored is None:
            return
        applied = mirrored.number
        durable = mirrored.number
        for member in self._others_synced():
            answer = self.answers.get(member)
            if answer is None:
                return
            if answer.applied < applied:
                applied = answer.applied
            if answer.durable < durable:
                durable = answer.durable
        self.applied.reach(applied)
        self.durable.reach(durable)

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
        answer = self.answers.setdefault(sender, Answer())
        answer.progress(applied, durable)
        answer.applied = applied
        answer.durable = durable
        answer.is_complete = is_complete
        if is_complete and sender not in self.synced:
            self.awaited.setdefault(sender, int(mirrored.last_number()))
        self._look_what_is_safe()

    def _hear(self, origin: str, payload: bytes) -> None:
        """What a member broadcast."""
        kind = payload[0]
        if kind == BEGIN and len(payload) == begin_codec.size:
            _, term, heard_all = begin_codec.unpack(payload)
            self._hear_begin(origin, term, heard_all=heard_all)
        elif kind == THROUGH and len(payload) == through_codec.size:
            term = through_codec.unpack(payload)[1]
            self._heard_out(member_of(origin), term)
            self._through[member_of(origin)] = int(term)  # we may not know its successor yet
            if origin == self._speaker and term >= self._spoken_term:
                self._ended_term = self._spoken_term
        elif kind == PARCEL:
            self._hear_parcel(origin, payload)
        else:
            raise Malformed(f"a group hears a broadcast of the kind {kind}")

    def _heard_out(self, member: str, term: i64) -> None:
        self._masters = [one for one in self._masters if one[0] != member or one[1] > term]

    def _hear_begin(self, origin: str, term: i64, *, heard_all: bool) -> None:
        if term <= self._spoken_term:
            return
        if self.replica is not None:
            also = self._has_heard_all() and self.replica.term == self._spoken_term
            self.replica.follow(term, heard_all and also)
        self._speaker = origin
        self._spoken_term = term

    def _hear_parcel(self, origin: str, payload: bytes) -> None:
        replica = self.replica
        if replica is None:
            return
        parcel = read_parcel(payload)
        if parcel.term > self._spoken_term:  # its beginning was before we came
            self._speaker = origin
            self._spoken_term = parcel.term
        replica.apply(parcel)
        if self.joiner is not None:
            self.joiner.advance()

    def _release(self, ready: GroupReady) -> None:
        """What was held back, as long as there is something that need not be."""
        found = len(self._held) > 0
        while found:
            found = False
            for origin in list(self._held):
                if self._may_hear(self._held[origin][0]):
                    found = True
                    self._hear_all(self._held.pop(origin), ready)

    def _hear_all(self, events: list[Delivered], ready: GroupReady) -> None:
        for one in events:
            held = self._held.get(one[1])
            if held is not None:
                held.append(one)
            else:
                self._hear_one(one, ready)

    def _may_hear(self, event: Delivered) -> bool:
        payload = event[3]
        if event[0] != DELIVER or payload[0] != BEGIN or len(payload) != begin_codec.size:
            return True
        term = begin_codec.unpack(payload)[1]
        return bool(term <= self.term and self._are_through(term))

    def _hear_one(self, event: Delivered, ready: GroupReady) -> None:
        kind, origin, _, payload = event
        if kind == BIRTH:
            self._present.add(origin)
            if self._was_master and self.mirrored is None:
                self._say_through(self.term - 1)  # it was said before anybody knew of that one
            if self._meet(origin) and self.mirrored is not None:
                self.syncing.hears(self.mirrored, member_of(origin))
                self._say(begin_codec.pack(BEGIN, self.mirrored.term, False))
        elif kind == DEATH:
            self._present.discard(origin)
            ready.dead.append(member_of(origin))
            if self._names.get(member_of(origin)) == origin:
                self._forget(member_of(origin))
            self._heard_out(member_of(origin), self.term)
            if origin == self._speaker:
                self._ended_term = self._spoken_term
        elif self._may_hear(event):
            self._hear(origin, payload)
        else:
            self._held[origin] = [event]

    def _meet(self, name: str) -> bool:
        """False: it has joined the ring anew since, and what it had counts no more."""
        member = member_of(name)
        known, barred = self._names.get(member, ""), self._barred.get(member, 0)
        if joining_of(name) <= barred or is_former(name, self.ring.view.members):
            return False
        if known == name:
            return True
        if known and joining_of(known) > joining_of(name):
            return False
        self._names[member] = name
        self._forget(member)
        return True

    def bar(self, member: str) -> None:
        """It is no member any more: should it be one again, then with another copy."""
        for name in self.ring.view.members:
            if member_of(name) == member:
                self._barred[member] = max(joining_of(name), self._barred.get(member, 0))
        self._forget(member)

    def _forget(self, member: str) -> None:
        self.syncing.forget(member)
        self.answers.pop(member, None)
        self.awaited.pop(member, None)

    # -- once per turn --------------------------------------------------------------------------

    def take(self, now_ms: i64, mono_ms: i64) -> GroupReady:
        """The caller has emptied its list of talkative backings; ``now_ms`` is wall time."""
        self._mono_ms = mono_ms
        self.ring.tick(mono_ms)
        ready = GroupReady()
        self._release(ready)
        self._pass_on(self.ring.take(), ready)
        if self._may_begin():
            self._begin()
        if not self.ring.stopped:
            if self.mirrored is not None:
                self._speak_as_master(self.mirrored, ready)
            elif self.replica is not None:
                self._speak_as_mirror(self.replica, now_ms, ready)
        self._pass_on(self.ring.take(), ready)
        return ready

    def _pass_on(self, said: Ready, ready: GroupReady) -> None:
        for name, message in said.messages:
            ready.messages.append((member_of(name), encode(message, b"R")))
        self._hear_all(said.delivered, ready)
        self._release(ready)
        if said.proposal is not None:
            ready.view = said.proposal
        ready.stopped = said.stopped

    def _broadcast_parcel(self, mirrored: MirroredBacking) -> None:
        parcel = mirrored.take_operations()
        if parcel is not None:
            self._say(parcel)

    def _speak_as_master(self, mirrored: MirroredBacking, ready: GroupReady) -> None:
        if self.ring.leaving:
            return
        if mirrored.may_tell(self.ring.waiting_bytes()):
            self.syncing.take_questions(mirrored, self._mono_ms)
            self._broadcast_parcel(mirrored)
            for member, chunk in self.syncing.take_chunks():
                ready.messages.append((member, b"C" + chunk))
        self._look_what_is_safe()
        for member, told in self.awaited.items():
            if member not in self.synced and self.answers[member].durable >= told:
                ready.complete.append(member)
        self._look_who_is_stuck(mirrored, ready)

    def _look_who_is_stuck(self, mirrored: MirroredBacking, ready: GroupReady) -> None:
        for member in self._others_synced():
            if self.answers.setdefault(member, Answer()).is_stuck(mirrored.number, self._mono_ms):
                ready.stuck.append(member)

    def _speak_as_mirror(self, replica: Replica, now_ms: i64, ready: GroupReady) -> None:
        replica.tick(now_ms)
        joiner = self.joiner
        if replica.is_lost:
            ready.is_lost = True
            return
        if replica.term != self.term or joiner is None or self.master == self.me:
            return  # no member could answer yet
        question = joiner.ask(self._mono_ms)
        if question is not None:
            ready.messages.append((self.master, b"Q" + question))
        answer = answer_codec.pack(
            ANSWER, replica.term, replica.number, replica.durable_number(), joiner.is_done()
        )
        if answer != self._said:
            self._said = answer
            ready.messages.append((self.master, answer))

    def is_busy(self) -> bool:
        """It is to be asked again in the next turn, although no message came."""
        if self.ring.leaving or self._held or not self.ring.full:
            return True
        replica, joiner = self.replica, self.joiner
        if replica is not None and joiner is not None:
            waits = self.syncing.is_wanted and not joiner.is_done()
            return waits or replica.durable_number() < replica.number
        return len(self.awaited) > 0 or self.syncing.is_waiting()

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
            assert self.durable.safe <= self.applied.safe <= mirrored.number, "U2"
        self.applied.check()
        self.durable.check()
