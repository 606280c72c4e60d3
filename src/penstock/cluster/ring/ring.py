"""``Ring``: guaranteed multicast among the members of one group, seen from one of them.

The promise
-----------
What a member broadcasts, all members deliver that live on, or none of them: each once, and in the
order in which that member broadcast it.  A dead member's broadcasts are all delivered before its
death is heard (K6).  A joiner delivers everything that a member broadcasts after it knows of
the joiner.  The origin is told when a broadcast *went round*: every live member of its view has
it, whichever members die from then on.  Between two origins no order is promised.

In: messages of neighbours (``step``), views (``view_changed``), deaths by the coordinator's word
(``member_died``), the time (``tick``).  Out: ``take`` gives a ``Ready`` after any number of these
and of ``broadcast``, so a turn costs one message.  Link sessions below lose nothing between two
members that live.  Views are changed by compare-and-set: ``Ready.proposal`` is to be put in place
of the view before it; where that is refused, a newer one arrives anyway.

The idea
--------
Members stand in a circle (views.py).  Each numbers its broadcasts from 1 and gives them to its
right neighbour, which delivers them and gives them to its own, until they come back to their
*owner*: the origin, or the right neighbour of the dead, which goes on in its name.  The owner sends
an acknowledgement round, behind which all members forget them.  Until then all members keep them,
and a new right neighbour gets a *catch-up* from its left: all that has, in place of what was lost
in the gap.  The last hop, back to a living origin, has numbers only.

Every message says of some origins: "up to ``last`` I have its broadcasts, up to ``ack`` all have;
here are those from ``first``" (ring/stream.py).  That remains true, so hearing it twice or late
does no harm: what a member has is skipped, and nothing goes back.  A catch-up says it of all
origins.

A dead member's last broadcast is its *end*: the owner adds it in its name, behind all that came
from it, and it goes round like any other.  A member that delivers the end hears of the death there.
When its acknowledgement has come round too, the owner proposes a view without that member.

A member that joins is *blank* until its left neighbour's catch-up, which another one sends if the
first dies before.  It delivers of that what not all have, passes it on, and is *full*.  If it owns
dead members from the beginning, its right neighbour may have more of them (it had it directly):
then it is *unsure* of them.  It sends a *sweep*, a broadcast without content, round behind all it
has of them, again and again until one has returned and nothing new came before it: now all have
what it has, and it adds the end.  Where all live members are blank, a word that came from the
first of them, through blank ones only, back to it makes it the founder of an empty ring.

Views
-----
A message carries its sender's version.  Newer than ours: it is held until we have that view.  Not
from our left neighbour, or older than its being that: dropped, because the catch-up by which a
neighbourhood begins has all of it.  Such a catch-up is due whenever the right neighbour changed,
or might have in a version not seen.  A member that finds itself missing or dead in a view stops for
ever, and says so (``stopped``).

Why it is true
--------------
  Lemma 1 (upstream).  Y left of X, and X no owner of O's: what X has of O, Y has, by induction over
      the path from O's owner; where the path was cut, the catch-up restores it.  Hence no gaps,
      and ``ack`` never exceeds what X has.  (Not if Y is unsure of O: then X ignores the less.)
  Lemma 2 (behind).  If b came to Y behind a, then X on its right has a when it has b, whatever
      their origins: links keep the order, and a message, a catch-up too, is taken as a whole.
  Lemma 3 (round).  When O's n comes back to the owner, all live members of its view have n: it came
      through each, or in a catch-up from one who had it.  It also came through every J that O knew
      when it broadcast n: no member takes a message before it has the view that goes with it.
  Lemma 4 (owner).  Once the owner has the view in which D is dead, D's words enter the ring through
      it alone.  If it was full before, all words of D that any survivor has came through it.  If
      it is unsure, a sweep without news returned behind whatever the others had (Lemma 2).
  Lemma 5 (keeping).  No member forgets n before its owner heard that it came round; the owner does
      not say so of what it is unsure of.
Atomicity: what any survivor has of D's, the owner has (4) or all have (5); it goes round, and the
end behind it.  Order, and once: numbers.  Joiners: 3.  Deaths: nothing is behind the end (4).

Invariants (``check``; those of a stream are in ring/stream.py)
  G1  a full member has a stream for exactly the members of its view, a blank one for itself
  G2  what is held was sent with a newer view than ours
  G3  left, right and the dead we answer for are those of the view

Rejected
--------
- Deaths by a timer or a closed connection, as the peer's ring has them: two members would disagree
  about a third.  Only the coordinator's word counts.
- Hearing of deaths when the view arrives, as there: the view can overtake the last broadcasts.
- The joiner's left neighbour writing the view (there): it can die before its catch-up all the same.
- Numbers only on the last hop to the owner of a dead one too: if it was blank, it needs the rest.
- Delivering one's own: the origin has done what it told the others.
"""

from collections.abc import Iterable
from typing import Final, final

from mypy_extensions import i64

from penstock.cluster.ring.codec import ACTIVITY, BLANK, CATCH_UP, END, RingEntry, RingMessage
from penstock.cluster.ring.ready import BIRTH, DEATH, DELIVER, Delivered, Ready
from penstock.cluster.ring.stream import Stream
from penstock.cluster.ring.views import NO_VIEW, View, joined_view, who_reports
from penstock.core.clock_types import MonoMs

RETRY_MS: Final[i64] = 1000
"""After so long the same change of the view is proposed again."""


class RingFault(Exception):
    """A neighbour said what cannot be; this member leaves the group rather than guess."""


class RingStopped(Exception):
    """Nothing can be broadcast: see ``Ring.stopped``."""


@final
class Ring:
    """One group at ``me``, a name used once: a member that joins again has another one.

    ``place``: any number, by chance: where it joins.
    Until ``leave`` it wants to be in the group, and proposes so as soon as it knows a view
    (``NO_VIEW``: that there is none).
    """

    def __init__(self, me: str, place: int) -> None:
        self.me = me
        self.view = NO_VIEW
        self.left = me
        self.right = me
        self.full: bool = False
        self.leaving: bool = False
        self.stopped: str = ""
        self._place = place
        self._own = Stream()
        self._streams: dict[str, Stream] = {me: self._own}
        self._aliases: list[str] = []
        self._changed: dict[str, None] = {}  # since the right neighbour heard
        self._held: list[tuple[str, RingMessage]] = []
        self._died: set[str] = set()
        self._left_since: i64 = 0
        self._awaits_catch_up: bool = True
        self._catch_up_due: bool = False
        self._blank_due: bool = False
        self._known: bool = False  # whether there is a view
        self._proposed: View | None = None
        self._proposed_at_ms = MonoMs(0)
        self._now_ms = MonoMs(0)
        self._messages: list[tuple[str, RingMessage]] = []
        self._delivered: list[Delivered] = []

    # -- what comes in ----------------------------------------------------------------------

    def broadcast(self, payload: bytes) -> int:
        """To all others; its number, to be found in ``went_round`` later."""
        if self.stopped or self.leaving:
            raise RingStopped(self.stopped or f"{self.me} is leaving")
        assert payload, "an empty broadcast is a sweep"
        self._add_own(payload)
        return self._own.published

    def step(self, sender: str, message: RingMessage) -> None:
        if self.stopped:
            return
        if message.version > self.view.version:
            self._held.append((sender, message))
        elif sender != self.left or message.version < self._left_since:
            return
        elif message.kind == BLANK:
            self._hear_of_blank(message)
        elif message.kind == CATCH_UP:
            self._catch_up(message)
        elif self._awaits_catch_up:
            self._fault(f"{sender} begins without a catch-up")
        else:
            for entry in message.entries:
                self._take_entry(entry)

    def view_changed(self, view: View) -> None:
        """Of views that came together the newest is enough."""
        if self.stopped or (self._known and view.version <= self.view.version):
            return
        self._known = True
        was_in = self.me in self.view.members
        if not was_in and self.me not in view.members:
            self._look_from_outside(view)
        elif not view.is_live(self.me):
            self.stop("left" if self.leaving else f"view {view.version} is without {self.me}")
        else:
            self._enter(view, was_in=was_in)

    def _look_from_outside(self, view: View) -> None:
        asked = self._proposed
        if asked is not None and self.view.version < asked.version < view.version:
            self.stop(f"{self.me} may have been in view {asked.version}, and no member joins twice")
        self.view = view

    def member_died(self, member: str) -> None:
        """The coordinator said that its lease has ended; it may be in no view, or come to be."""
        if member == self.me:
            self.stop(f"the lease of {self.me} ended")
        self._died.add(member)

    def leave(self) -> None:
        """Nothing is broadcast any more; it goes when all it is answerable for has gone round."""
        self.leaving = True

    def tick(self, now_ms: MonoMs) -> None:
        self._now_ms = now_ms

    # -- what goes out ------------------------------------------------------------------------

    def take(self) -> Ready:
        if not self.stopped and self.view.is_live(self.me):
            self._tend()
            self._speak()
        proposal = None if self.stopped else self._due_proposal()
        ready = Ready(self._messages, self._delivered, self._own.acked, proposal, self.stopped)
        self._messages = []
        self._delivered = []
        return ready

    def broadcast_count(self) -> int:
        """The number of the last own broadcast, sweeps among them."""
        return self._own.published

    def waiting_bytes(self) -> int:
        """Own broadcasts that have not gone round; the caller bounds it."""
        return self._own.size_bytes

    def kept_bytes(self) -> int:
        return sum(stream.size_bytes for stream in self._streams.values())

    def is_at_rest(self) -> bool:
        """Everything that is known here has gone round, and is forgotten everywhere."""
        return (
            self.full
            and self._is_drained()
            and not self._changed
            and not any(stream.items for stream in self._streams.values())
            and len(self.view.dead) == 0
        )

    # -- views --------------------------------------------------------------------------------

    def _enter(self, view: View, *, was_in: bool) -> None:
        old = self.view.version
        self.view = view
        left, right = view.left_of(self.me), view.right_of(self.me)
        if left != self.left or not was_in:
            self.left = left
            self._awaits_catch_up = True
            self._left_since = old + 1 if was_in else 0
        if right != self.right or view.version > old + 1 or not was_in:
            self.right = right
            self._catch_up_due = True
        self._blank_due = not self.full
        self._aliases = view.aliases_of(self.me)
        if self.full:
            self._hear_of_births()
            self._forget_erased()
        held, self._held = self._held, []
        for sender, message in held:
            self.step(sender, message)

    def _hear_of_births(self) -> None:
        for member in self.view.members:
            if member not in self._streams:
                self._streams[member] = Stream()
                self._delivered.append((BIRTH, member, 0, b""))

    def _forget_erased(self) -> None:
        members = self.view.members
        for member in [one for one in self._streams if one not in members]:
            stream = self._streams.pop(member)
            self._died.discard(member)
            self._changed.pop(member, None)
            if not stream.ended or stream.acked < stream.published:
                self._fault(f"{member} was erased before its end went round")

    # -- what neighbours say ------------------------------------------------------------------

    def _catch_up(self, message: RingMessage) -> None:
        self._awaits_catch_up = False
        if not self.full:
            self._become_full(message.entries, message.names)
            return
        for entry in message.entries:
            self._take_entry(entry)

    def _become_full(self, entries: list[RingEntry], unsure: list[str]) -> None:
        """Begin with what the left neighbour has; all blank: with nothing."""
        self.full = True
        self._catch_up_due = True
        given = {entry.origin: entry for entry in entries}
        for member in self.view.members:
            if member != self.me:
                stream = Stream(member in unsure or member in self._aliases)
                self._streams[member] = stream
                if member not in given or stream.start_with(given[member]):
                    self._delivered.append((BIRTH, member, 0, b""))
        for entry in entries:
            self._take_entry(entry)

    def _take_entry(self, entry: RingEntry) -> None:
        """The left neighbour has, and knows that all have, so much of one member's."""
        origin = entry.origin
        stream = self._streams.get(origin)
        if stream is None:
            return  # erased here already, there not yet
        if entry.last() > stream.published:
            known = stream.published + 1 - entry.first
            if known < 0 or len(entry.items) == 0 or origin == self.me:
                self._fault(f"{origin}: {entry.first}-{entry.last()} after {stream.published}")
            self._add(origin, stream, entry.items[known:])
        self._hear_of_ack(origin, stream, entry)

    def _hear_of_ack(self, origin: str, stream: Stream, entry: RingEntry) -> None:
        if origin == self.me or origin in self._aliases:
            # unsure, only what an owner before us said
            self._acknowledge(origin, stream, entry.ack if stream.unsure else entry.last())
            stream.came_round(entry.ack)
        else:
            self._acknowledge(origin, stream, entry.ack)

    def _add(self, origin: str, stream: Stream, items: list[bytes | None]) -> None:
        if stream.ended:
            self._fault(f"{origin} goes on behind its end")
        number = stream.published
        delivered = self._delivered
        for item in items:
            number += 1
            if item is None:
                delivered.append((DEATH, origin, number, b""))
            elif item:
                delivered.append((DELIVER, origin, number, item))
        stream.add(items)
        self._changed[origin] = None

    def _add_own(self, item: bytes) -> None:
        self._own.add([item])
        self._changed[self.me] = None

    def _acknowledge(self, origin: str, stream: Stream, ack: i64) -> None:
        if ack > stream.published:
            self._fault(f"{origin}: {ack} went round, {stream.published} came here")
        if ack > stream.acked:
            stream.acknowledge(ack)
            self._changed[origin] = None

    def _hear_of_blank(self, message: RingMessage) -> None:
        """No member on the way from that one to here knows anything."""
        if self.full or message.version != self.view.version:
            return
        if message.names[0] == self.me:
            self._become_full([], [])
        else:
            self._messages.append((self.right, message))

    # -- dead members we answer for -----------------------------------------------------------

    def _tend(self) -> None:
        alone = self.right == self.me
        if alone and not self.full:
            self._become_full([], [])
        if self.full:
            for member in self._aliases:
                self._tend_dead(member, self._streams[member], alone=alone)
            if alone:
                for member in [self.me, *self._aliases]:
                    stream = self._streams[member]
                    self._acknowledge(member, stream, stream.published)
                    stream.came_round(stream.acked)

    def _tend_dead(self, member: str, stream: Stream, *, alone: bool) -> None:
        own = self._own
        if stream.unsure and (alone or stream.was_swept(own.acked)):
            stream.become_sure()
            self._acknowledge(member, stream, stream.published)
        elif stream.unsure and stream.sweep <= own.acked:  # none is under way
            self._add_own(b"")
            stream.begin_sweep(own.published)
        if not (stream.unsure or stream.ended):
            self._add(member, stream, [END])

    def _is_drained(self) -> bool:
        own = self._own
        return own.ack_round == own.published and not self._aliases

    # -- what the right neighbour hears -------------------------------------------------------

    def _speak(self) -> None:
        if self.right == self.me:
            self._said(self._streams)
        elif not self.full:
            if self._blank_due and self.view.live()[0] == self.me:
                word = RingMessage(BLANK, self.view.version, [self.me], [])
                self._messages.append((self.right, word))
            self._blank_due = False
        elif self._catch_up_due:
            self._catch_up_due = False
            unsure = [one for one, stream in self._streams.items() if stream.unsure]
            entries = [self._whole_entry(one, stream) for one, stream in self._streams.items()]
            catch_up = RingMessage(CATCH_UP, self.view.version, unsure, entries)
            self._messages.append((self.right, catch_up))
            self._said(self._streams)
        elif self._changed:
            entries = [self._new_entry(one) for one in self._changed]
            activity = RingMessage(ACTIVITY, self.view.version, [], entries)
            self._messages.append((self.right, activity))
            self._said(self._changed)

    def _whole_entry(self, origin: str, stream: Stream) -> RingEntry:
        if origin == self.right:
            return stream.numbers_only(origin)
        return stream.all_of_it(origin)

    def _new_entry(self, origin: str) -> RingEntry:
        stream = self._streams[origin]
        if origin == self.right:
            return stream.numbers_only(origin)
        return stream.entry(origin, stream.told + 1)

    def _said(self, origins: Iterable[str]) -> None:
        for origin in origins:
            self._streams[origin].said()
        self._changed = {}

    # -- proposals ------------------------------------------------------------------------------

    def _due_proposal(self) -> View | None:
        """The view wanted in place of the present one; again only after a while."""
        proposal = self._wanted_view()
        if proposal is None:
            return None
        again = proposal == self._proposed
        if again and self._now_ms - self._proposed_at_ms < RETRY_MS:
            return None
        self._proposed = proposal
        self._proposed_at_ms = self._now_ms
        return proposal

    def _wanted_view(self) -> View | None:
        view = self.view
        if self.me not in view.members:
            return self._wish_to_join()
        dead = [
            one
            for one in self._died
            if view.is_live(one) and who_reports(view, one, self._died) == self.me
        ]
        if self.leaving and self._is_drained():
            dead.append(self.me)
        gone = [one for one in self._aliases if self.full and self._streams[one].is_over()]
        if not dead and not gone:
            return None
        return view.with_dead(dead).without(gone).same_version(view.version + 1)

    def _wish_to_join(self) -> View | None:
        if not self._known:
            return None
        if not self.leaving:
            return joined_view(self.view, self.me, self._place, self._died)
        if self._proposed is not None and self._proposed.version > self.view.version:
            return self.view.same_version(self.view.version + 1)  # then it is decided
        self.stop("left")  # and no proposal of ours is under way that might let us in
        return None

    # -- ends -----------------------------------------------------------------------------------

    def stop(self, why: str) -> None:
        """It is out of the group for ever; the first reason counts."""
        self.stopped = self.stopped or why

    def _fault(self, what: str) -> None:
        self.stop(what)
        raise RingFault(f"{self.me}, view {self.view.version}: {what}")

    def check(self) -> None:
        if self.stopped or self.me not in self.view.members:
            return
        alone = self.right == self.me
        for origin, stream in self._streams.items():
            dead = origin in self.view.dead
            stream.check(dead=dead, telling=self.full and not alone and not self._catch_up_due)
        wanted = set(self.view.members) if self.full else {self.me}
        assert set(self._streams) == wanted, "G1"
        assert all(one.version > self.view.version for _, one in self._held), "G2"
        neighbours = (self.view.left_of(self.me), self.view.right_of(self.me))
        assert (self.left, self.right) == neighbours, "G3"
        assert self._aliases == self.view.aliases_of(self.me), "G3"
