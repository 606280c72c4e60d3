"""``Mirroring``: this node's part in all mirrored queues.

In: keys of the coordinator, in order; live nodes; what other nodes' groups say; and once a turn the
time.  Out: proposals of views and rings; messages for other members; queues that change their
place (``MirroredQueue``).

A queue with a view has its master where the view says; one without, at its home.  Views are
changed as mirrors/deciding.py says, rings by the groups.  All that is kept for a queue
(mirror_keys.py) goes with it, in the same proposal; a change of that has the queue's key, or that
of its view, among its conditions.

Events of these keys are heard when the applier has done all that came with them and before them:
so the queue they are about is there.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, final

from penstock.broker.broker import Broker
from penstock.cluster.agreement import metadata as md
from penstock.cluster.agreement.agreed import Agreed
from penstock.cluster.agreement.coordinator import (
    ABSENT,
    Change,
    Condition,
    Coordinator,
    Event,
    Proposal,
    node_of,
)
from penstock.cluster.agreement.forgetting import KnownView
from penstock.cluster.agreement.living_nodes import LivingNodes
from penstock.cluster.agreement.mirror_keys import (
    DRAINED,
    OF_A_MIRRORED_QUEUE,
    RINGS,
    SYNC,
    VIEWS,
    Place,
    kind_of,
    last_ends,
    parts_of,
    place_of,
    view_changes,
)
from penstock.cluster.agreement.placement import Chance
from penstock.cluster.agreement.queue_views import (
    LEFT,
    SYNCHRONISED,
    CopyNews,
    QueueView,
    view_from_json,
)
from penstock.cluster.mirrors.changes import CopyChanges
from penstock.cluster.mirrors.deciding import Step, next_step, when_damaged, when_stopping
from penstock.cluster.mirrors.electing import next_step_of_reign
from penstock.cluster.mirrors.first_views import FirstViews
from penstock.cluster.mirrors.isolated_masters import IsolatedMasters
from penstock.cluster.mirrors.masters import ViewedMasters
from penstock.cluster.mirrors.queue import (
    FOUND,
    NEW,
    OLD,
    AnyGroup,
    MirroredQueue,
    QueueDirectory,
)
from penstock.cluster.mirrors.star_group import StarGroup
from penstock.cluster.ring.ring import Ring, RingFault
from penstock.cluster.ring.views import NO_VIEW, View
from penstock.cluster.ring.views import from_json as ring_from_json
from penstock.core.byte_reader import Malformed
from penstock.core.clock_types import MonoMs, WallMs
from penstock.queues.queue import Queue

LOOK_MS: Final = 250
"""Every group is asked so often, whether or not something happened."""
AGAIN_MS: Final = 200
UNREACHED_MS: Final = 1000
"""So long after a link was lost its node is no longer waited for; a new connection takes less."""
UNDER_WAY_MAX: Final = 64
"""Proposals at a time: a node that dies may have had thousands of masters."""
PLACES: Final = 1 << 30

Send = Callable[[str, str, str, str, list[bytes]], None]
"""(member, virtual host, queue, name of the sender in the ring, pieces of what is said)"""


@final
class Mirroring:
    """``member``: this life of this node, until another one begins."""

    def __init__(
        self,
        broker: Broker,
        coordinator: Coordinator,
        agreed: Agreed,
        member: str,
        places: QueueDirectory,
        send: Send,
        chance: Chance,
        masters: ViewedMasters,
        first: FirstViews,
    ) -> None:
        self.queues: dict[Place, MirroredQueue] = {}
        self.nodes = LivingNodes(member, {}, {})
        self.drained: dict[str, int] = {}  # by node: the key's revision
        self.changes = CopyChanges(broker.events)
        self._broker = broker
        self._coordinator = coordinator
        self._agreed = agreed
        self._places = places
        self._send = send
        self._chance = chance
        self._member = member
        self._masters = masters
        self._waiting: list[Event] = []
        self._lost_ms: dict[str, MonoMs] = {}  # by node: since when there is no link
        self._seen_ms: dict[str, MonoMs] = {}  # by member: when it was first seen here
        self._dirty: dict[Place, bool] = {}  # did anything happen since it was last looked at?
        self._active: dict[Place, None] = {}
        self._isolated = IsolatedMasters()
        self._first = first
        self._policies: dict[str, int] = {}  # by virtual host: the epoch that was looked at
        self._own: list[tuple[str, str, str, bytes]] = []  # from one group here to another
        self._joinings: int = 0
        self._looked_ms = MonoMs(0)
        self._again_ms = MonoMs(0)
        self._mono_ms = MonoMs(0)  # of the turn; ``now_ms`` is wall time, of messages

    # -- what the coordinator says -----------------------------------------------------------

    def told(self, events: Sequence[Event]) -> None:
        """News, before the applier has done what belongs to it."""
        self._masters.told(events)
        kinds = (*OF_A_MIRRORED_QUEUE, DRAINED)
        self._waiting += [event for event in events if kind_of(event.key) in kinds]

    def hear(self, now_ms: WallMs) -> int:
        """The applier has done all there was; returns the newest revision among what is heard."""
        waiting, self._waiting = self._waiting, []
        revision = 0
        gone = last_ends(waiting)
        for number, event in enumerate(waiting):
            revision = max(revision, event.revision)
            if kind_of(event.key) == DRAINED:
                self._hear_drained(event)
            elif number >= gone.get(place_of(event.key), 0):
                self._hear(event, now_ms)
        return revision

    def _hear_drained(self, event: Event) -> None:
        node = parts_of(event.key)[0]
        if event.value is None:
            self.drained.pop(node, None)
        else:
            self.drained[node] = event.revision
        self._look_at_all()

    def _hear(self, event: Event, now_ms: WallMs) -> None:
        place = place_of(event.key)
        known = self.queues.get(place)
        if known is None:
            vhost = self._broker.vhosts.get(place[0])
            if event.value is None or vhost is None or place[1] not in vhost.queues:
                self._first.renew(place)
                return  # it is gone again
            known = self.queues[place] = MirroredQueue(
                self._broker,
                vhost,
                place[1],
                self._places,
                self._active,
                self._new_ring,
                self._copy_of(place),
            )
        elif event.value is not None and known.is_gone():
            return
        kind = kind_of(event.key)
        if kind == VIEWS:
            self._hear_view(place, known, event, now_ms)
        elif kind == RINGS:
            self._hear_ring(known, event)
        else:
            revision = ABSENT if event.value is None else event.revision
            known.sync_changed((event.value or "").strip('"'), revision)
        self._touch(place)

    def _new_ring(self) -> Ring:
        self._joinings += 1
        return Ring(f"{self._member}#{self._joinings}", self._chance(PLACES))

    def _hear_view(self, place: Place, known: MirroredQueue, event: Event, now_ms: WallMs) -> None:
        if event.value is None:
            known.dissolve()
            del self.queues[place]
            self._first.renew(place)
            return
        self._first.forget(place)
        view = view_from_json(event.value)
        if known.view is not None:
            decided_here = known.awaits_view()
            why = known.why if decided_here else ""
            leads = view.master == self._member or (view.master == "" and decided_here)
            self.changes.note(place, view.news_since(known.view), why, is_told_here=leads)
        known.view_changed(view, event.revision, self._member, self.nodes.lives, now_ms)

    def _hear_ring(self, known: MirroredQueue, event: Event) -> None:
        if event.value is None:
            known.ring_changed(NO_VIEW, ABSENT, self.nodes.lives)
        else:
            view = ring_from_json(event.value)
            known.ring_changed(view, event.revision, self.nodes.lives)

    # -- live nodes --------------------------------------------------------------------------

    def look_who_lives(
        self,
        mono_ms: MonoMs,
        members: dict[str, str],
        unreached: Collection[str],
        unheard: Mapping[str, Collection[str]],
        *,
        is_cut_off: bool,
    ) -> None:
        """Once a turn, before ``hear``: a node that joins lives before it is in any view.

        ``members``: node to its life; ``unreached``: nodes to which there is no link; ``unheard``:
        by node, those of which it hears nothing;
        ``is_cut_off``: this node's lease is over, as far as it knows.
        """
        self._mono_ms = mono_ms
        self._isolated.told(is_cut_off=is_cut_off)
        lost = self._lost_ms
        self._lost_ms = {node: lost.get(node, mono_ms) for node in unreached if node in members}
        late = [node for node, ms in self._lost_ms.items() if mono_ms - ms > UNREACHED_MS]
        nodes, short = self.nodes, self._broker.admission.elsewhere
        same = members == nodes.members and nodes.unreached == frozenset(late)
        same = same and self.drained.keys() == nodes.drained and unheard == nodes.unheard
        if not same or short != nodes.short:
            self._hear_who_lives(members, late, short, unheard)

    def has_isolated(self) -> bool:
        """Is there a master here that cannot reach its mirrors, and has sent its clients away?"""
        return self._isolated.found

    def begin(self, now_ms: WallMs) -> None:
        """Once a turn, behind ``hear`` and ``arrived``."""
        own, self._own = self._own, []
        for vhost, name, ring_name, data in own:
            self.arrived(self._member, vhost, name, ring_name, data)
        # What came is in the journal before this turn's commit.
        self._work_all(now_ms)
        self._look_at_policies()
        if self._mono_ms - self._again_ms >= AGAIN_MS:
            self._again_ms = self._mono_ms
            self._look(list(self._dirty), now_ms, again=True)
        else:
            new = [place for place, is_new in self._dirty.items() if is_new]
            self._look(new, now_ms, again=False)

    def begin_life(self, member: str, now_ms: WallMs) -> None:
        """The lease of the life before has ended; this node is ``member`` from now on.

        That one may be heard of as living for some time: it takes no part in any queue.
        """
        for known in self.queues.values():
            known.over(now_ms)
        self._active.clear()
        self._own = []
        self._member = member
        self.nodes = self.nodes.seen_by(member)
        self._look_at_all()

    def _hear_who_lives(
        self,
        members: dict[str, str],
        unreached: list[str],
        short: dict[str, list[str]],
        unheard: Mapping[str, Collection[str]],
    ) -> None:
        seen, now_ms = self._seen_ms, self._mono_ms
        self._seen_ms = {member: seen.get(member, now_ms) for member in members.values()}
        joined = {node: self._seen_ms[member] for node, member in members.items()}
        living = dict(members), joined
        self.nodes = LivingNodes(self._member, *living, self.drained, unreached, short, unheard)
        for known in self.queues.values():
            known.tell_deaths(self.nodes.lives)
        self._look_at_all()

    def _look_at_all(self) -> None:
        for place in self.queues:
            self._touch(place)
        self._first.add_all()

    def _touch(self, place: Place) -> None:
        if place in self.queues:
            self._dirty[place] = True
            self._active[place] = None

    def _look_at_policies(self) -> None:
        for vhost in self._broker.vhosts.values():
            epoch = int(vhost.policies.epoch)
            if self._policies.get(vhost.name) != epoch:
                self._policies[vhost.name] = epoch
                self._look_at_all()

    # -- deciding ----------------------------------------------------------------------------

    def _look(self, places: list[Place], now_ms: WallMs, *, again: bool) -> None:
        if self._coordinator.why_not():
            return
        room = UNDER_WAY_MAX - self._first.under_way()
        for place in places:
            known = self.queues.get(place)
            if known is None or known.is_gone():
                del self._dirty[place]
            elif room > 0:
                room -= self._look_at(place, known, now_ms)
        self._first.propose(self.nodes, self.queues, room, again=again)

    def _look_at(self, place: Place, known: MirroredQueue, now_ms: WallMs) -> int:
        """How many proposals that made."""
        view = known.view
        if view is None or known.awaits_view():
            return 0
        if known.group is None and self._has_part(view):
            # Another life of this node: the view names nodes, and does not change with it.
            revision, lives = known.view_revision, self.nodes.lives
            known.view_changed(view, revision, self._member, lives, now_ms)
        step = self._step(known, view)
        if step.seals:
            assert step.view is not None
            known.seal(int(step.view.term), now_ms)
        asked = None if step.view is None else self._propose_view(place, known, step)
        known.decided(step.why, waits=step.look_again, asked=asked)
        self._dirty[place] = False
        if asked is not None:
            return 1
        if not step.look_again and not self._tidy(known, view):
            del self._dirty[place]
        return 0

    def _has_part(self, view: QueueView) -> bool:
        """In a queue with a reign."""
        nodes = self.nodes
        return view.reign is not None and view.counts_on(nodes.here) and nodes.is_here()

    def _propose_view(self, place: Place, known: MirroredQueue, step: Step) -> Proposal:
        assert step.view is not None
        changes = view_changes(place, step.view)
        if step.ends_group and known.ring_revision != ABSENT:
            changes.append(Change(md.path(RINGS, *place), None))
        conditions = [Condition(md.path(VIEWS, *place), known.view_revision)]
        return self._coordinator.propose(conditions, changes)

    def _step(self, known: MirroredQueue, view: QueueView) -> Step:
        why = known.stopped()
        if view.reign is not None:
            trouble = why or known.damage()
            having = known.holding(), known.mirrors, trouble
            is_missed = known.queue.why_down() != ""
            is_bound = known.is_bound(view.reign.term)
            return next_step_of_reign(
                view, view.reign, self.nodes, *having, is_missed=is_missed, is_bound=is_bound
            )
        if why and view.master == self._member and self.nodes.is_here():
            return Step(view.alone(), f"its ring cannot go on: {why}", ends_group=True)
        if known.unfit and self._member in view.mirrors() and self.nodes.is_here():
            return Step(view.without(self._member), f"{self._member} has lost its copy")
        damage = known.damage()
        if damage and self.nodes.is_here():
            step = when_damaged(view, self.nodes, damage)
            if step.view is not None:
                return step
        return next_step(
            view,
            known.policy(),
            self.nodes,
            known.mirrors,
            self._mono_ms,
            self._chance,
            has_copy=known.has_copy(),
            has_ring=known.ring_revision != ABSENT,
        )

    def _tidy(self, known: MirroredQueue, view: QueueView) -> bool:
        """The synchronisation that was asked for is done; True while that is to be said."""
        are_all_synced = len(view.synced) == len(view.members)
        if known.sync == "" or view.master != self._member or not are_all_synced:
            return False
        key = md.path(SYNC, known.vhost.name, known.name)
        conditions = [Condition(key, known.sync_revision)]
        self._coordinator.propose(conditions, [Change(key, None)])
        return True

    def stop(self) -> list[Proposal]:
        """This node is about to leave: others are to be masters in its place."""
        asked: list[Proposal] = []
        for place, known in self.queues.items():
            view = known.view
            if view is None or view.master != self._member or known.is_gone():
                continue
            if view.reign is not None:
                continue  # the others vote when this lease is given back
            step = when_stopping(view, known.policy(), self.nodes)
            asked.append(self._propose_view(place, known, step))
        return asked

    # -- what groups say -----------------------------------------------------------------------

    def arrived(self, sender: str, vhost: str, name: str, ring_name: str, data: bytes) -> None:
        """From a member that lives; ``ring_name``: its name in the ring of that queue."""
        known = self.queues.get((vhost, name))
        if known is None:
            return  # it is gone here, and will be there
        self._active[(vhost, name)] = None
        for group in known.groups():
            try:
                group.receive(sender, ring_name, data)
            except (RingFault, Malformed) as fault:
                group.stop(str(fault))

    def end(self, now_ms: WallMs) -> bool:
        """At the end of a turn: what groups have to say; True = there is more at once."""
        if self._mono_ms - self._looked_ms >= LOOK_MS:
            self._looked_ms = self._mono_ms
            self._isolated.look(self.queues.values(), self.nodes)
            for place, known in self.queues.items():
                known.look_for_leader(self._mono_ms)
                if known.groups():
                    self._active[place] = None
                    known.look_for_strangers(self._mono_ms)
                    known.tell_late_mirror()
                    if known.damage():
                        self._dirty[place] = True
        self._work_all(now_ms)
        return self._prepare_one() or bool(self._own)

    def _copy_of(self, place: Place) -> int:
        if self._masters.is_new(*place):
            return NEW
        return OLD if self._masters.is_old_disk else FOUND

    def trust_copies(self) -> bool:
        """On a disk that is a backup's: all that vote, or are to, are current.  False: not yet."""
        if not self.nodes.is_here() or self._masters.by_place().keys() - self.queues.keys():
            return False
        for known in self.queues.values():
            if known.view is not None and self._has_part(known.view) and not known.is_current():
                return False
        self._masters.disk_is_current()
        for known in self.queues.values():
            known.trust()
        return True

    def _prepare_one(self) -> bool:
        """A step of one copy, however many there are; True = one was done."""
        for place in self._active:
            known = self.queues.get(place)
            if known is not None and any(group.prepare() for group in known.groups()):
                return True
        return False

    def _work_all(self, now_ms: WallMs) -> None:
        for place in list(self._active):
            del self._active[place]  # what it does now may put it there again
            if self._work(place, now_ms):
                self._active[place] = None

    def awaits_disk(self) -> bool:
        """What mirrors here have taken is to be on the disk, and to be answered then."""
        for place in self._active:
            known = self.queues.get(place)
            if known is not None and known.group is not None and known.group.awaits_disk():
                return True
        return False

    def _work(self, place: Place, now_ms: WallMs) -> bool:
        """True: to be asked again in the next turn."""
        known = self.queues.get(place)
        if known is None or known.is_gone():
            return False
        busy = False
        for group in list(known.groups()):
            if group not in known.groups():
                continue  # gone with what was said of another
            before, was_unfit, damage = known.mirrors, known.unfit, known.damage()
            try:
                ready = known.take(group, now_ms, self._mono_ms)
            except RingFault as fault:
                group.stop(str(fault))
                busy = True
                continue
            for member, pieces in ready.messages:
                self._say(member, place, group, pieces)
            if ready.view is not None:
                self._propose_ring(place, known, ready.view)
            if group.why_stopped() and group is known.group:
                self._dirty[place] = True
                if self.nodes.is_here():
                    known.restart(self._member, self.nodes.lives, now_ms)
                continue
            if known.unfit != was_unfit and isinstance(group, StarGroup):
                self._note_repair(place, known, damage)
            mirrors = known.mirrors
            if mirrors != before or mirrors.silent or mirrors.slow or known.unfit:
                self._dirty[place] = True
            busy = busy or group.is_busy()
        return busy

    def _note_repair(self, place: Place, known: MirroredQueue, damage: str) -> None:
        """Of a copy that a majority went on without; no view says so."""
        here = node_of(self._member)
        why = f"{here} cannot read its copy: {damage}" if known.unfit else "it has everything again"
        news = [CopyNews(LEFT if known.unfit else SYNCHRONISED, here)]
        self.changes.note(place, news, why, is_told_here=True)

    def _say(self, member: str, place: Place, group: AnyGroup, pieces: list[bytes]) -> None:
        if member == self._member:
            self._own.append((*place, group.name, b"".join(pieces)))
        else:
            self._send(member, *place, group.name, pieces)

    def _propose_ring(self, place: Place, known: MirroredQueue, view: View) -> None:
        queue_key, ring_key = md.path(md.QUEUES, *place), md.path(RINGS, *place)
        conditions = [
            Condition(queue_key, self._agreed.revision_of(queue_key)),
            Condition(ring_key, known.ring_revision),
        ]
        self._coordinator.propose(conditions, [Change(ring_key, view.to_json())])

    # -- for others ------------------------------------------------------------------------------

    def is_master(self, queue: Queue) -> bool | None:
        """None: it has no view, and is its home's."""
        known = self.queues.get((queue.vhost, queue.name))
        return None if known is None else not queue.remote

    def view_of(self, vhost: str, queue: str) -> KnownView | None:
        known = self.queues.get((vhost, queue))
        if known is None or known.view is None:
            return None
        return KnownView(known.view, known.view_revision)

    def is_drained(self, node: str) -> bool:
        return node in self.drained

    def check(self) -> None:
        for known in self.queues.values():
            known.check()
