"""``StarGroup``: a queue whose confirms need a majority of its copies, at one node with a copy.

docs/design/majority.md has the whole of it, ``reigns.py`` the rules.  In: the reign, as the queue's
view has it (``reign_changed``); what other copies' groups said (``receive``).  Out: ``take``, once
per turn: bytes for members, and what the master knows of the others.

    master   MirroredBacking ─► parcels ─► each copy, straight (Telling)
    mirror   parcels ─► Replica, which answers "term, applied up to, complete on disk up to"
             Joiner ─► question to the master; ◄─ chunk

**Following.**  A copy says J to the master of a new term, again and again, until the master says G:
"you hear from behind parcel n on".  If the copy goes on (``Reign.how_to_follow``) and has heard all
parcels up to n, it does them.  Else it knows nothing of what it has and fetches what differs, as of
n; or it is given up, and asks again.  G also comes to a copy that was left behind.  What comes of
a term before the view that has it waits for that.  The master says G when what its term began with
is on its disk, and keeps its first parcel until a majority hears, if it is not large.

**Positions.**  What a parcel does is between ``heard`` and ``complete`` in the journal
(copy_positions.py), here and in ``MirroredBacking``.

**Damage.**  A copy that cannot be read hears no more parcels, has no vote, and says D instead of J,
again and again.  What it said counts no more then.  When each majority has another copy with all
that was confirmed on its disk the master says E: the damaged one may be given up, for this term.

**Sealed.**  A copy that votes for a term has no part in earlier ones: it does no parcel of them,
answers none, and if it was the master confirms nothing more.  So does each that sees the vote.

Invariants (``check``):
  W1  a master has a mirrored backing, a mirror a replica, none has both; of no term that it is
      sealed against
  W2  a copy that follows has heard as many parcels as its replica
  W3  a copy that is to be given up follows no master and is none
"""

from collections.abc import Callable, Collection
from typing import Final, final

from penstock.backing.interface import BackingQueue
from penstock.cluster.agreement.coordinator import node_of
from penstock.cluster.agreement.mirror_keys import Place
from penstock.cluster.agreement.reigns import GIVE_UP, GO_ON, Holding, Position, Reign
from penstock.cluster.mirrors.backing import MirroredBacking
from penstock.cluster.mirrors.copy_positions import CopyPositions
from penstock.cluster.mirrors.group import GroupReady, Said, waits_for_disks
from penstock.cluster.mirrors.group_codec import (
    ANSWER,
    BEGIN_AGAIN,
    CHUNK,
    FOLLOW,
    GO_ON_BEHIND,
    PARCEL,
    QUESTION,
    UNREADABLE,
    answer_codec,
    follow_codec,
    go_on_codec,
)
from penstock.cluster.mirrors.operations import Parcel, read_parcel
from penstock.cluster.mirrors.replica import Replica, begin_term
from penstock.cluster.mirrors.safety import NOTHING_KNOWN, SafePositions
from penstock.cluster.mirrors.sync import Joiner
from penstock.cluster.mirrors.syncing import Syncing
from penstock.cluster.mirrors.telling import (
    BEHIND_BYTES,
    HAND_OVER_AGAIN_MS,
    QUIET_MS,
    Telling,
)
from penstock.core.byte_reader import Malformed
from penstock.core.clock_types import MonoMs, WallMs
from penstock.core.confirm_watermark import PendingConfirms
from penstock.core.message import Message
from penstock.queues.publish_notes import PublishNotes
from penstock.storage.journal.journal import Journal

FOLLOW_AGAIN_MS: Final = 1000
NO_REIGN: Final = Reign(0, (), "")


@final
class StarGroup(PublishNotes):
    """``backing`` and ``active`` as for ``MirrorGroup``; ``me``: this life of this node.

    ``name``: of the queue and no other one, as its groups at all nodes have it: what is said of an
    earlier queue in the same place is not heard.  ``sealed``: the term of the last vote of this
    life.
    """

    def __init__(
        self,
        me: str,
        name: str,
        backing: BackingQueue,
        journal: Journal,
        active: dict[Place, None],
        place: Place,
        waits: PendingConfirms,
        batch_messages: int,
        sealed: int = 0,
    ) -> None:
        self.me: str = me
        self.name: str = name
        self.most_waiting: int = int(BEHIND_BYTES) - 1
        self.reign: Reign = NO_REIGN
        self.mirrored: MirroredBacking | None = None
        self.replica: Replica | None = None
        self.joiner: Joiner | None = None
        self.syncing: Syncing = Syncing(batch_messages)
        self.safe: SafePositions = SafePositions(me, waits)
        self.telling: Telling = Telling()
        self._journal: Journal = journal
        self._active: dict[Place, None] = active
        self._place: Place = place
        self._sealed: int = sealed
        self._stopped: str = ""
        self._gives_up_for: int = 0  # a term; 0 = it need not
        self._followers: dict[str, int] = {}  # that said J: of which term; D: minus that
        # Parcels, and numbers of a G, of a term that is not known here yet.
        self._early: list[tuple[int, Parcel | int]] = []
        self._parcels: list[Parcel] = []  # before the first G of a term
        self._said: bytes = b""  # the last answer
        self._asked_ms: MonoMs = MonoMs(0)  # when it said J last
        self._mono_ms: MonoMs = MonoMs(0)
        self._full: Collection[str] = ()  # members whose links take no more
        self._take_copy(backing)

    def _take_copy(self, backing: BackingQueue) -> None:
        parts = backing.parts()
        for part in parts:
            part.records.await_journal()
        self._backing: BackingQueue = backing
        self.positions: CopyPositions = CopyPositions(self._journal, int(parts[0].queue_id))

    # -- the reign -----------------------------------------------------------------------------

    def reign_changed(self, reign: Reign) -> None:
        before, self.reign = self.reign, reign
        self.safe.ruled_by(reign)
        if (before.term, before.master) == (reign.term, reign.master):
            return
        self.seal(reign.term)
        if reign.master not in ("", self.me):
            self._ask_to_follow()

    def seal(self, term: int) -> None:
        """It has no part in terms before that one, nor in this one but under its master."""
        self._sealed = max(term, self._sealed)
        mirrored = self.mirrored
        if mirrored is not None:
            mirrored.take_operations()  # they are done: it votes with them
            mirrored.end()
            self.mirrored = None
            self.syncing.end()
            self.telling = Telling()
            self.safe.begin()
        self.replica = None
        self.joiner = None
        self._parcels = []

    def holding(self) -> Holding | None:
        """What it may vote with; None: nothing."""
        if self._gives_up_for or self.why_unreadable():
            return None
        return self.reign.may_vote_with(self.positions.holding())

    def is_current(self) -> bool:
        """The disk says that the copy is complete in this term."""
        return self.positions.durable_number(self.reign.term) >= 0

    def _ask_to_follow(self) -> None:
        self._gives_up_for = 0
        self._asked_ms = MonoMs(0)
        early, self._early = self._early, []
        for term, said in early:
            self._hear_master(term, said)

    def _awaits_master(self) -> bool:
        """It is to follow, and the master has not said from where on."""
        away = self.reign.master in ("", self.me) or self.reign.term < self._sealed
        return self.replica is None and not (away or self._gives_up_for or self._stopped)

    def has_lost_copy(self) -> bool:
        """It has more than was decided, or is damaged: ``begin_again`` with an empty one."""
        return self._gives_up_for > 0 and not self._stopped

    def begin_again(self, backing: BackingQueue) -> None:
        """With a copy that is empty, and complete nowhere, in the place of the one given up."""
        was_old = self.positions.is_old
        self._take_copy(backing)
        if not was_old:  # else it may lack what was confirmed in that term
            self.positions.give_up_for(self._gives_up_for)
        self._ask_to_follow()

    def leave(self) -> None:
        """This node has no copy any more, or no part in the cluster."""
        self.seal(self._sealed)
        self.stop("left")

    def stop(self, why: str) -> None:
        """As of ``MirrorGroup``."""
        self._stopped = self._stopped or why

    def why_stopped(self) -> str:
        if self.reign.master == self.me and self._sealed > self.reign.term:
            return "it has stepped down"
        return self._stopped

    def why_unreadable(self) -> str:
        return self._backing.why_stopped()

    def tell_deaths(self, lives: Callable[[str], bool]) -> None:
        """A member that lives no more hears nothing, and what it said does not count."""
        for member in [*self.telling.lines, *self._followers]:
            if not lives(member):
                self._followers.pop(member, None)
                self._forget(member)

    def _forget(self, member: str) -> None:
        self.telling.forget(member)
        self.syncing.forget(member)
        self.safe.forget(member)

    # -- the master ----------------------------------------------------------------------------

    def _may_begin(self) -> bool:
        if self.reign.master != self.me or self.mirrored is not None or self._stopped:
            return False
        return self.reign.term >= self._sealed

    def _begin(self) -> None:
        term = self.reign.term
        if self.positions.heard.term >= term:
            self.stop(f"parcels of term {term} were numbered before")
            return
        begin_term(self._backing, term)
        self.positions.begin(term)
        mirrored = MirroredBacking(self._backing, self._active, self._place, self.positions)
        mirrored.begin(term, 0)
        self.mirrored = mirrored
        self.safe.begin()
        self.syncing.begin(mirrored, [])

    def _tell_followers(self, mirrored: MirroredBacking, messages: list[Said]) -> None:
        """From where on they hear: new ones, and such as were behind.

        Not before it is on disk what the term began with: some of them give up what they have.
        """
        term, number = int(mirrored.term), int(mirrored.number)
        members = self.telling.going_on(number, self._full)
        if self.positions.durable_number(term) >= 0:
            new = [member for member, theirs in self._followers.items() if theirs == term]
            for member in new:
                self.telling.begin(member, number)
            members += new
            damaged = [member for member, theirs in self._followers.items() if theirs == -term]
            if damaged and self.safe.may_spare(self.reign):
                begin_again = follow_codec.pack(BEGIN_AGAIN, term)
                messages += [Said(member, [begin_again]) for member in damaged]
            self._followers = {
                one: theirs for one, theirs in self._followers.items() if theirs > term
            }
        for member in members:
            self.syncing.hears(mirrored, member)
            messages.append(Said(member, [go_on_codec.pack(GO_ON_BEHIND, term, number)]))

    def _needed(self) -> int:
        """So many others are a majority with the master."""
        return self.reign.majority() - 1

    def waiting_bytes(self) -> int:
        """That a majority has not answered."""
        return 0 if self.mirrored is None else self.telling.waiting_bytes(self._needed())

    def is_alone(self) -> bool:
        return self.safe.why_cut_off() != ""

    def note(self, messages: list[Message]) -> bool:
        """They go into the queue: their publisher waits for a majority of the copies."""
        mirrored = self.mirrored
        return mirrored is None or self.safe.wait_for(messages, mirrored.number + 1)

    # -- what members say ----------------------------------------------------------------------

    def receive(self, sender: str, name: str, data: bytes) -> None:
        """From that member's group of that name; raises if it is no message."""
        if name != self.name:
            return
        kind = data[0] if data else 0
        if kind == PARCEL:
            parcel = read_parcel(data)
            self._hear_master(int(parcel.term), parcel)
        elif kind == GO_ON_BEHIND and len(data) == go_on_codec.size:
            _, term, number = go_on_codec.unpack(data)
            self._hear_master(term, number)
        elif kind == CHUNK:
            self._hear_chunk(data)
        elif kind == FOLLOW and len(data) == follow_codec.size:
            self._followers[sender] = follow_codec.unpack(data)[1]
        elif kind == UNREADABLE and len(data) == follow_codec.size:
            self._followers[sender] = -follow_codec.unpack(data)[1]
            self._forget(sender)
        elif kind == BEGIN_AGAIN and len(data) == follow_codec.size:
            self._hear_begin_again(follow_codec.unpack(data)[1])
        elif kind == ANSWER and len(data) == answer_codec.size:
            self._hear_answer(sender, data)
        elif kind == QUESTION:
            if sender in self.telling.lines:
                self.syncing.ask(sender, data[1:])
        else:
            raise Malformed(f"a group hears a message of the kind {kind}")

    def _hear_answer(self, sender: str, data: bytes) -> None:
        _, term, applied, durable, is_complete = answer_codec.unpack(data)
        mirrored = self.mirrored
        if mirrored is None or term != mirrored.term or sender not in self.telling.lines:
            return
        if durable > applied or applied > mirrored.number:
            raise Malformed(f"{durable} durable, {applied} applied, {int(mirrored.number)} told")
        self.telling.answered(sender, applied)
        self.safe.hear(sender, applied, durable, is_complete, mirrored.last_number())
        self._look(mirrored)

    def _look(self, mirrored: MirroredBacking) -> None:
        self.safe.look(mirrored.number, self.positions.durable_number(int(mirrored.term)))

    # -- the mirror ----------------------------------------------------------------------------

    def _hear_master(self, term: int, said: Parcel | int) -> None:
        """A parcel, or the number behind which parcels follow."""
        if term > self.reign.term or (term == self.reign.term and self.reign.master == ""):
            self._early.append((term, said))
        elif term == self.reign.term >= self._sealed and self.reign.master != self.me:
            if isinstance(said, Parcel):
                self._hear_parcel(said)
            else:
                self._hear_go_on(said)

    def _hear_begin_again(self, term: int) -> None:
        is_masters = term == self.reign.term >= self._sealed and self.mirrored is None
        if is_masters and self.replica is None and self.why_unreadable():
            self._gives_up_for = term

    def _hear_parcel(self, parcel: Parcel) -> None:
        replica = self.replica
        if replica is None:
            self._parcels.append(parcel)
        elif parcel.number == replica.number + 1:
            self._apply(replica, parcel)
        elif parcel.number > replica.number:
            raise Malformed(f"parcel {int(parcel.number)} behind {int(replica.number)}")

    def _hear_go_on(self, number: int) -> None:
        replica = self.replica
        if replica is not None and replica.number == number:
            return
        parcels, self._parcels = self._parcels, []
        numbers = [int(parcel.number) for parcel in parcels]
        how = self.reign.how_to_follow(self.positions.holding())
        if how == GIVE_UP:
            self._gives_up_for = self.reign.term
            return
        if how == GO_ON and replica is None and numbers[:number] == list(range(1, number + 1)):
            replica = self._mirror(0, is_whole=True)
            self.positions.begin(self.reign.term)
        else:
            replica = self._mirror(number, is_whole=False)
            self.positions.hear(Position(self.reign.term, number))
        for parcel in parcels:
            self._hear_parcel(parcel)
        self._note_complete(replica)

    def _mirror(self, number: int, *, is_whole: bool) -> Replica:
        replica = Replica(self._backing, self._journal, is_whole, forgets=False)
        replica.hear_from(self.reign.term, number)
        self.replica = replica
        self.joiner = Joiner(replica, self._journal)
        return replica

    def _apply(self, replica: Replica, parcel: Parcel) -> None:
        self.positions.hear(Position(int(parcel.term), int(parcel.number)))
        replica.apply(parcel)
        self._note_complete(replica)

    def _hear_chunk(self, data: bytes) -> None:
        if self.joiner is not None and self.replica is not None:
            self.joiner.take_chunk(data[1:])
            self._note_complete(self.replica)

    def _note_complete(self, replica: Replica) -> None:
        if self.joiner is not None:
            self.joiner.advance()
        if replica.is_complete():
            self.positions.reach(Position(int(replica.term), int(replica.number)))

    def links_are_full(self, nodes: Collection[str]) -> None:
        """The links to these nodes, and no others, take no more now."""
        self._full = [one for one in self.telling.lines if node_of(one) in nodes] if nodes else ()

    # -- once per turn -------------------------------------------------------------------------

    def take(self, now_ms: WallMs, mono_ms: MonoMs, *, is_short: bool = False) -> GroupReady:
        """As of ``MirrorGroup``; there is no view of a ring."""
        self._mono_ms = mono_ms
        if self._may_begin():
            self._begin()
        messages: list[Said] = []
        mirrors = NOTHING_KNOWN
        mirrored, replica = self.mirrored, self.replica
        if mirrored is not None:
            self._speak_as_master(mirrored, messages)
            mirrors = self.safe.look_at_mirrors(mirrored.number, mirrored.last_number(), mono_ms)
            mirrors = mirrors._replace(is_level=self._is_quiet() and self._are_level(mirrored))
        elif replica is not None and not self._puts_down_damaged():
            self._speak_as_mirror(replica, now_ms, messages, is_short=is_short)
        elif self._awaits_master() and mono_ms - self._asked_ms >= FOLLOW_AGAIN_MS:
            self._asked_ms = mono_ms
            kind = UNREADABLE if self.why_unreadable() else FOLLOW
            asked = follow_codec.pack(kind, self.reign.term)
            messages.append(Said(self.reign.master, [asked]))
        return GroupReady(messages, None, mirrors)

    def _puts_down_damaged(self) -> bool:
        """True: the copy cannot be read, and hears no more parcels."""
        if self.why_unreadable() == "":
            return False
        self.replica = None
        self.joiner = None
        self._said = b""
        self._asked_ms = MonoMs(0)
        return True

    def _are_level(self, mirrored: MirroredBacking) -> bool:
        """No copy that hears has more than the favoured one, which does not fetch any more."""
        node = self.reign.favoured
        return self.telling.are_level(node) and self.safe.has_all(node, mirrored.number)

    def _is_quiet(self) -> bool:
        """It tells nothing, to hand over."""
        favoured = self.reign.favoured not in ("", node_of(self.me))
        return favoured and self._mono_ms % HAND_OVER_AGAIN_MS < QUIET_MS

    def _speak_as_master(self, mirrored: MirroredBacking, messages: list[Said]) -> None:
        self._tell_followers(mirrored, messages)
        self._look(mirrored)
        is_under_way = self.waiting_bytes() > 0
        waits = waits_for_disks(self.safe, self.syncing, mirrored)
        if not self._is_quiet() and mirrored.may_tell(
            self._mono_ms, is_under_way=is_under_way, awaits_disks=waits
        ):
            self.syncing.take_questions(mirrored, self._mono_ms)
            parcel = mirrored.take_operations()
            if parcel is not None:
                told = self.telling.receivers(int(mirrored.number), len(parcel), self._full)
                messages += [Said(member, [parcel]) for member in told]
            for member, chunk in self.syncing.take_chunks():
                messages.append(Said(member, [b"C", chunk]))
        self._look(mirrored)

    def _speak_as_mirror(
        self,
        replica: Replica,
        now_ms: WallMs,
        messages: list[Said],
        *,
        is_short: bool,
    ) -> None:
        replica.tick(now_ms)
        assert self.joiner is not None
        question = None if is_short else self.joiner.ask(self._mono_ms)
        if question is not None:
            messages.append(Said(self.reign.master, [b"Q", question]))
        self._note_complete(replica)  # that it lacks nothing may be found when it is to ask
        durable = self.positions.durable_number(int(replica.term))
        answer = answer_codec.pack(
            ANSWER, replica.term, replica.number, max(durable, 0), durable >= 0
        )
        if answer != self._said:
            self._said = answer
            messages.append(Said(self.reign.master, [answer]))

    def has_role(self) -> bool:
        """Master or mirror."""
        return self.mirrored is not None or self.replica is not None

    def prepare(self) -> bool:
        """A copy with positions needs no steps before it fetches."""
        return False

    def is_busy(self) -> bool:
        """It is to be asked again in the next turn, although no message came."""
        if self.joiner is not None:
            return not self.joiner.is_done() or self.positions.awaits_disk()
        return self.awaits_disk() or self.syncing.is_waiting()

    def awaits_disk(self) -> bool:
        """What was told, or done, or what it begins with; of a master while others wait for it."""
        if self.mirrored is not None:
            waits = self.safe.durable.watermark.has_open() or self.safe.applied.watermark.has_open()
            waits = waits or self.mirrored.held or len(self._followers) > 0
            return waits and self.positions.awaits_disk()
        joiner = self.joiner
        return self.positions.awaits_disk() or (joiner is not None and joiner.awaits_disk())

    def check(self) -> None:
        """Assert W1 and W2."""
        mirrored, replica = self.mirrored, self.replica
        assert mirrored is None or replica is None, "W1"
        self.positions.check()
        self.telling.check()
        if mirrored is not None:
            assert mirrored.term >= self._sealed, "W1"
            self.safe.check(mirrored.number)
        if self._gives_up_for:
            assert not self.has_role(), "W3"
        if replica is not None:
            assert replica.term >= self._sealed, "W1"
            assert self.positions.heard == Position(int(replica.term), int(replica.number)), "W2"
