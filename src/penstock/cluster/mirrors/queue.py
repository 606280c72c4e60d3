"""``MirroredQueue``: one mirrored queue as one node sees it, and this node's role in it.

In: the queue's view, its ring's view, and whether a synchronisation is wanted, each as the
coordinator says.  Out: the group here (``MirrorGroup``), with its role; which object stands for the
queue in its virtual host:

    master here, and its time has begun    a ``Queue`` with its messages
    else                                   a ``RemoteQueue``, which follows the master

    no copy ─► copy at rest ─► mirror ─► master
                    ▲            │ ▲        │
                    └────────────┘ └────────┘   the master hands over, or its lease has ended

A copy at rest has no role.  One that the disk kept from before this process started may be a
mirror again, which fetches what differs; any other is given up for an empty one before that.  The
member that becomes master of a queue that was down takes its copy as it is.
"""

from collections.abc import Callable, Collection
from typing import final

from mypy_extensions import mypyc_attr

from penstock.backing.interface import BackingQueue
from penstock.broker.broker import Broker
from penstock.broker.rules.ha_policy import HaPolicy
from penstock.broker.topology.mirror_copies import Copy
from penstock.broker.topology.vhost import Vhost
from penstock.cluster.agreement.coordinator import ABSENT, ACCEPTED, PENDING, Proposal, node_of
from penstock.cluster.agreement.mirror_keys import CANCELLED, WANTED, Place
from penstock.cluster.agreement.queue_views import QueueView
from penstock.cluster.agreement.reigns import Holding, Reign
from penstock.cluster.mirrors.group import GroupReady, MirrorGroup
from penstock.cluster.mirrors.joinings import joining_of, member_of
from penstock.cluster.mirrors.replica import begin_term
from penstock.cluster.mirrors.safety import NOTHING_KNOWN, MirrorStates
from penstock.cluster.mirrors.star_group import StarGroup
from penstock.cluster.remote.followed_master import FollowedMaster
from penstock.cluster.remote.queue import RemoteQueue
from penstock.cluster.remote.queue_places import inaccessible, take_place
from penstock.cluster.ring.ring import Ring
from penstock.cluster.ring.views import NO_VIEW, View
from penstock.core.clock_types import MonoMs, WallMs
from penstock.core.confirm_watermark import PendingConfirms
from penstock.core.credit import NODE, Credit, CreditSpec, FlowPeer
from penstock.queues.consumers import Consumer
from penstock.queues.queue import Queue
from penstock.queues.stream_backing import StreamBacking
from penstock.storage.journal.journal import Journal

STRANGER_MS = 3000
_HOLD = CreditSpec(1, 1)

Lives = Callable[[str], bool]
AnyGroup = MirrorGroup | StarGroup
NEW, FOUND, OLD, KNOWN = range(4)


@mypyc_attr(allow_interpreted_subclasses=True)
class QueueDirectory:
    """What the node does for its mirrored queues."""

    def remote(self, queue: Queue) -> RemoteQueue:
        """To take the place of that queue; not entered anywhere yet."""
        raise NotImplementedError

    def follow(self, queue: RemoteQueue, node: str, why: str) -> None:
        """Its master is at that node; "": there is none, and, if ``why``, none to be expected."""
        raise NotImplementedError

    def moved(self, consumers: list[Consumer], queue: Queue) -> None:
        """Theirs from now on."""
        raise NotImplementedError

    def full_links(self) -> Collection[str]:
        """Nodes to which no more should be sent now."""
        raise NotImplementedError

    def send_away(self, consumers: list[Consumer], why: str) -> None:
        """This node cannot serve their queue, another one may."""
        raise NotImplementedError


@final
class MirroredQueue:
    """``active``: the queues that want ``take``; ``new_ring``: under a name never used before.

    ``copy_was``: when this process started: NEW = not there, for the queue was declared since; OLD:
    maybe older than what this node said of it, so it has no vote before it is current.

    ``member`` is this life of this node, ``lives`` whether another one is the present life of its.
    """

    def __init__(
        self,
        broker: Broker,
        vhost: Vhost,
        name: str,
        places: QueueDirectory,
        active: dict[Place, None],
        new_ring: Callable[[], Ring],
        copy_was: int = FOUND,
    ) -> None:
        self.vhost = vhost
        self.name = name
        self.view: QueueView | None = None
        self.view_revision: int = ABSENT
        self.ring_view: View = NO_VIEW
        self.ring_revision: int = ABSENT
        self.sync: str = ""  # WANTED, CANCELLED, or as the policy says
        self.sync_revision: int = ABSENT
        self.group: AnyGroup | None = None
        self.leaving: list[MirrorGroup] = []
        self.mirrors: MirrorStates = NOTHING_KNOWN
        self.why: str = ""  # the last decision
        self.waits: bool = False  # for a node to come back
        self.unfit: bool = False  # the copy here has lost what the view may count on
        self._asked_view: Proposal | None = None
        self._broker = broker
        self._places = places
        self._active = active
        self._new_ring = new_ring
        self._hold: Credit | None = None
        self._followed = FollowedMaster()
        self._sealed: int = 0  # the term of the last vote of this life
        self._copy_was: int = copy_was
        self._strangers: dict[str, MonoMs] = {}  # in the ring, and without a copy: since when
        self._waited_ms = MonoMs(0)  # when it was last told that publishers wait for a mirror

    @property
    def queue(self) -> Queue:
        return self.vhost.queues[self.name]

    def is_gone(self) -> bool:
        """Its virtual host is being deleted: that is heard of when it is over."""
        return self.name not in self.vhost.queues

    def has_copy(self) -> bool:
        return self.name in self.vhost.copies.copies or not self.queue.remote

    def stopped(self) -> str:
        """Why the group here cannot go on; "" = it can, or there is none."""
        return "" if self.group is None else self.group.why_stopped()

    def damage(self) -> str:
        """Why the copy here cannot be read; "" = it can, or there is none."""
        return "" if self.group is None else self.group.why_unreadable()

    def alone(self) -> str:
        """Why the master, which is here, can do nothing that counts; "" = it can."""
        return "" if self.group is None else self.group.safe.why_cut_off()

    def policy(self) -> HaPolicy:
        return self.vhost.policies.ha_policy_of(self.queue)

    # -- decisions -----------------------------------------------------------------------------

    def is_sync_wanted(self) -> bool:
        return self.sync == WANTED or (self.policy().automatic and self.sync != CANCELLED)

    def sync_changed(self, sync: str, revision: int) -> None:
        """The operator's wish, by its key."""
        self.sync, self.sync_revision = sync, revision

    def decided(self, why: str, *, waits: bool, asked: Proposal | None) -> None:
        """``asked``: the proposal of the next view, if one is due."""
        self.why = why or self.why
        self.waits = waits
        self._asked_view = asked
        self._look_what_is_wanted()

    def _look_what_is_wanted(self) -> None:
        if self.group is not None:
            ruled = isinstance(self.group, StarGroup)
            self.group.syncing.want(ruled or self.is_sync_wanted())

    def awaits_view(self) -> bool:
        """It was proposed, and is not here yet."""
        asked = self._asked_view
        if asked is None:
            return False
        if asked.state == ACCEPTED:
            return self.view_revision < asked.revision
        return asked.state == PENDING

    def cut_off(self, why: str) -> None:
        """For ``why`` the master here does not reach its mirrors; "" = it does again."""
        if self.group is not None:
            self.group.safe.cut_off(why)
        if why and not self.is_gone():
            self._places.send_away(list(self.queue.consumers), why)

    # -- the views -----------------------------------------------------------------------------

    def ring_changed(self, view: View, revision: int, lives: Lives) -> None:
        """``revision`` ABSENT: the ring is gone."""
        self.ring_view, self.ring_revision = view, revision
        if revision == ABSENT:
            self.dissolve()
            return
        for group in self._ring_groups():
            group.ring.view_changed(view)
        self.tell_deaths(lives)

    def view_changed(
        self, view: QueueView, revision: int, member: str, lives: Lives, now_ms: WallMs
    ) -> None:
        self.view_revision = revision
        if view.reign is None:
            self._take_view(view, member, now_ms)
        else:
            self._take_reign(view, view.reign, member, now_ms)
        self._follow(view, member, lives)
        self.tell_deaths(lives)
        self._look_what_is_wanted()

    def restart(self, member: str, lives: Lives, now_ms: WallMs) -> None:
        """The ring has no place for this joining of a mirror any more: it joins anew, with nothing.

        A master cannot, for its parcels of this term were numbered: it begins another term alone.
        """
        view = self.view
        if view is None or view.master == member:
            return
        if member in view.synced:
            self.unfit = True  # no member may count on it any more, before it gives up what it has
            return
        self.dissolve()
        self.view_changed(view, self.view_revision, member, lives, now_ms)

    def _take_view(self, view: QueueView, member: str, now_ms: WallMs) -> None:
        before = self.view
        self.view = view
        self.unfit = self.unfit and member in view.synced
        group = self.group
        if isinstance(group, MirrorGroup):
            # It was to be master of what it has, and is not any more: it mirrors another copy.
            never_began = view.master != member and not group.has_role()
            if never_began or self._cannot_go_on(before, view, member):
                self._leave(group, view)
            else:
                if before is not None:
                    for former in before.mirrors():
                        if former not in view.members:
                            group.bar(former)
                group.queue_view_changed(view.term, view.master, view.former, view.synced)
                replica = group.replica
                if member in view.synced and replica is not None and not replica.is_complete():
                    self.unfit = True  # it has begun anew while the view was changed
        if view.master != member and not self.queue.remote:
            self._demote(now_ms)
        if member in view.members and self.group is None:
            self._take_part(view, member, now_ms)
        elif not view.counts_on(node_of(member)):
            self.vhost.copies.drop(self.name)

    def _cannot_go_on(self, before: QueueView | None, view: QueueView, member: str) -> bool:
        if member not in view.members:
            return True
        if before is None or before.version + 1 != view.version:
            return view.master != member  # it missed the masters between
        return view.master == before.master and view.term != before.term  # it begins anew, alone

    def _take_part(self, view: QueueView, member: str, now_ms: WallMs) -> None:
        former = view.former
        if view.master == member:
            former = ""  # it has what it has, and waits for no other member
            if self.queue.remote:
                self._return(view, now_ms)
            if len(view.members) == 1:
                return  # there is no mirror to tell
        group = self.group = self._new_group(view, member)
        group.queue_view_changed(view.term, view.master, former, view.synced)

    def _return(self, view: QueueView, now_ms: WallMs) -> None:
        """The queue was down, and comes back with the copy that is here."""
        begin_term(self.vhost.copies.copies[self.name].use(), view.term)
        self._become_master(now_ms)

    def _new_group(self, view: QueueView, member: str) -> MirrorGroup:
        queue = self.queue
        leads = view.master == member
        assert leads != queue.remote
        backing = queue.backing if leads else self._copy_to_mirror()
        group = MirrorGroup(self._new_ring(), backing, *self._surroundings())
        group.ring.view_changed(self.ring_view)
        if leads:
            queue.await_mirrors(group)
        return group

    def _surroundings(self) -> tuple[Journal, dict[Place, None], Place, PendingConfirms, int]:
        """What a group gets beside its copy."""
        broker, place = self._broker, (self.vhost.name, self.name)
        batch_messages = self.policy().batch_messages
        return broker.engine.journal, self._active, place, broker.waits, batch_messages

    def _copy_to_mirror(self) -> BackingQueue:
        copy = self.vhost.copies.copies.get(self.name)
        if copy is None or not copy.recovered:
            copy = self._copy_again()
        return copy.use()

    def _copy_again(self) -> Copy:
        """It may lack what the master has: an empty one; of a stream that one, to be compared."""
        copy = self.vhost.copies.copies.get(self.name)
        if copy is not None and isinstance(copy.backing, StreamBacking):
            return copy
        return self._open_copy()

    def _open_copy(self) -> Copy:
        queue, copies = self.queue, self.vhost.copies
        return copies.open(queue.name, queue.incarnation, queue.auto_delete, queue.arguments)

    # -- where a majority confirms -------------------------------------------------------------

    def _take_reign(self, view: QueueView, reign: Reign, member: str, now_ms: WallMs) -> None:
        self.view = view
        group = self.group
        has_part = view.counts_on(node_of(member))
        if isinstance(group, StarGroup) and (not has_part or view.master != member):
            group.reign_changed(reign)  # before it ceases to be a queue here
        if view.master != member and not self.queue.remote:
            self._demote(now_ms)
        if not has_part:
            self.dissolve()
            self.vhost.copies.drop(self.name)
        elif isinstance(group, StarGroup):
            group.reign_changed(reign)
        else:
            self._take_star(reign, member)

    def _take_star(self, reign: Reign, member: str) -> None:
        queue = self.queue
        leads = reign.master == member
        copy = self.vhost.copies.copies.get(self.name)
        has_changed = copy is not None and not copy.recovered and self._copy_was in (FOUND, OLD)
        backing = (copy or self._open_copy()).use() if queue.remote else queue.backing
        name = queue.incarnation
        group = StarGroup(member, name, backing, *self._surroundings(), self._sealed)
        if has_changed:
            group.positions.doubt()  # by itself, between the start and the first view
        if self._copy_was == NEW:
            group.positions.begin_new()
        if self._copy_was == OLD and len(reign.copies) > 1:
            group.positions.distrust()
        self.group = group
        if self._copy_was != OLD:
            self._copy_was = KNOWN
        group.reign_changed(reign)
        if leads and not queue.remote:
            queue.await_mirrors(group)

    def seal(self, term: int, now_ms: WallMs) -> None:
        """Before a vote for that term is proposed: the copy here answers no earlier master."""
        self._sealed = max(term, self._sealed)
        group = self.group
        if isinstance(group, StarGroup):
            group.seal(term)
            self._release()
            if not self.queue.remote:
                self._demote(now_ms)
                self._unfollow("")  # until there is a master

    def is_bound(self, term: int) -> bool:
        """The copy here has ceased to follow masters of that term."""
        return self._sealed > term

    def is_current(self) -> bool:
        """The copy here of a queue with a reign."""
        return isinstance(self.group, StarGroup) and self.group.is_current()

    def trust(self) -> None:
        """It was not OLD, or is current."""
        self._copy_was = KNOWN

    def holding(self) -> Holding | None:
        """Of the copy here, which may vote with it; None: it may not."""
        return self.group.holding() if isinstance(self.group, StarGroup) else None

    # -- leaving -------------------------------------------------------------------------------

    def _leave(self, group: MirrorGroup, view: QueueView) -> None:
        """The group goes on without this member, or not at all."""
        self.group = None
        if view.master != "" and group.has_role():
            # A master says its last words: its successor waits for them.
            group.queue_view_changed(view.term, view.master, view.former, view.synced)
        self._let_go(group)
        self.leaving.append(group)

    def _let_go(self, group: AnyGroup) -> None:
        queue = self.vhost.queues.get(self.name)
        if queue is not None and not queue.remote:
            queue.await_mirrors(None)
        self._release()
        group.leave()

    def over(self, now_ms: WallMs) -> None:
        """This life of the node has ended: nothing it says counts any more."""
        self.dissolve()
        self.mirrors = NOTHING_KNOWN
        self._asked_view = None
        if self.view is not None and not self.is_gone() and not self.queue.remote:
            self._demote(now_ms)
            self._unfollow("")

    def dissolve(self) -> None:
        """The ring is gone, and with it whatever was still to be said."""
        self.leaving = []
        group = self.group
        self.group = None
        if group is not None:
            self._let_go(group)

    # -- what stands for the queue ---------------------------------------------------------------

    def _follow(self, view: QueueView, member: str, lives: Lives) -> None:
        if not self.queue.remote:
            return
        if view.master == member or (view.reign is not None and not lives(view.master)):
            self._unfollow("")  # until its time begins, or that of another
        elif view.master == "":
            self._unfollow(inaccessible(self.queue, node_of(view.former)))
        else:
            queue = self.queue
            assert isinstance(queue, RemoteQueue)
            if self._followed.begin(queue, view.master):
                self._places.follow(queue, node_of(view.master), "")

    def _unfollow(self, why: str) -> None:
        queue = self.queue
        assert isinstance(queue, RemoteQueue)
        self._followed.end()
        self._places.follow(queue, "", why)

    def look_for_leader(self, mono_ms: MonoMs) -> None:
        """Of a queue with a reign, several times a second: refuse requests that wait too long."""
        queue, view = self.vhost.queues.get(self.name), self.view
        if not isinstance(queue, RemoteQueue) or view is None or view.reign is None:
            return
        if self._followed.is_missed(queue, mono_ms) and queue.why_down() == "":
            self._unfollow(inaccessible(queue, node_of(view.master or view.former)))

    def _demote(self, now_ms: WallMs) -> None:
        queue = self.queue
        self.vhost.copies.from_queue(queue)
        self._release()
        remote = self._places.remote(queue)
        consumers = take_place(self._broker, queue, remote, now_ms)
        self._places.moved(consumers, remote)

    def _become_master(self, now_ms: WallMs) -> None:
        remote = self.queue
        assert isinstance(remote, RemoteQueue)
        self._places.follow(remote, "", "")
        self._followed = FollowedMaster()
        queue = self.vhost.copies.to_queue(self.name, now_ms)
        queue.await_mirrors(self.group)
        consumers = take_place(self._broker, remote, queue, now_ms)
        self._places.moved(consumers, queue)

    # -- the turn --------------------------------------------------------------------------------

    def take(self, group: AnyGroup, now_ms: WallMs, mono_ms: MonoMs) -> GroupReady:
        """Of one of its groups; what is for others is the caller's."""
        if isinstance(group, StarGroup):
            group.links_are_full(self._places.full_links())
        is_short = self._broker.admission.node_reason() != ""
        ready = group.take(now_ms, mono_ms, is_short=is_short)
        if group is not self.group:
            if group in self.leaving and group.why_stopped():
                self.leaving.remove(group)
            return ready
        self.mirrors = ready.mirrors
        if isinstance(group, StarGroup) and self.unfit:
            self.unfit = not group.is_current()
        if group.has_lost_copy():
            self.unfit = isinstance(group, MirrorGroup) or group.why_unreadable() != ""
            group.begin_again(self._copy_again().backing)
        if group.mirrored is not None and self.queue.remote:
            self._become_master(now_ms)
        self._weigh(group)
        return ready

    def groups(self) -> list[AnyGroup]:
        return [*([] if self.group is None else [self.group]), *self.leaving]

    def _ring_groups(self) -> list[MirrorGroup]:
        return [group for group in self.groups() if isinstance(group, MirrorGroup)]

    def look_for_strangers(self, mono_ms: MonoMs) -> None:
        """A member of the ring without a copy should have left: it counts as dead after a while.

        It cannot leave where it does not hear its neighbours.
        """
        view = self.view
        if not isinstance(self.group, MirrorGroup) or view is None:
            return
        seen, self._strangers = self._strangers, {}
        for name in self.ring_view.live():
            if member_of(name) not in view.members:
                since_ms = self._strangers[name] = seen.get(name, mono_ms)
                if mono_ms - since_ms > STRANGER_MS:
                    self.group.ring.member_died(name)

    def tell_deaths(self, lives: Lives) -> None:
        """Members of the ring that do not live, or have joined it anew under another name."""
        if isinstance(self.group, StarGroup):
            self.group.tell_deaths(lives)
        view = self.view
        follows = self._followed.is_there() and not self.is_gone()
        if follows and view is not None and view.reign is not None:
            self._follow(view, "", lives)
        names = self.ring_view.live()
        newest: dict[str, int] = {}
        for name in names:
            newest[member_of(name)] = max(joining_of(name), newest.get(member_of(name), 0))
        for name in names:
            member = member_of(name)
            if lives(member) and self._is_newest(name, newest[member]):
                continue
            for group in self._ring_groups():
                group.ring.member_died(name)

    def _is_newest(self, name: str, newest: int) -> bool:
        return joining_of(name) == newest or any(group.name == name for group in self.leaving)

    # -- flow --------------------------------------------------------------------------------------

    def _weigh(self, group: AnyGroup) -> None:
        """Publishers wait while the group has too much under way."""
        waiting = group.waiting_bytes()
        if self._hold is None and waiting > group.most_waiting and not self.queue.remote:
            book = self._broker.flow.book
            queue = self.queue
            why = "its mirrors have not yet taken what was published"
            mirrors = FlowPeer(book, NODE, "its mirrors", why)
            self._hold = Credit(queue.flow_stage(), mirrors, _HOLD)
            self._hold.send(1)
        elif self._hold is not None and waiting < group.most_waiting // 2:
            self._release()

    def tell_late_mirror(self) -> None:
        """To the book of flow: for which mirror publishers of the queue wait; several times a s."""
        member, why = ("", "") if self.group is None else self.group.safe.latest()
        if not member or self.queue.remote:
            self._waited_ms = MonoMs(0)
            return
        book = self._broker.flow.book
        mirror = FlowPeer(book, NODE, node_of(member), why)
        self.queue.flow_stage().waited_for(mirror, self._waited_ms or book.now_ms)
        self._waited_ms = book.now_ms

    def _release(self) -> None:
        if self._hold is not None:
            self._hold.close()
            self._hold = None

    def check(self) -> None:
        group = self.group
        if group is not None:
            group.check()
        if self.is_gone():
            return
        queue = self.queue
        assert queue.remote or group is None or queue.mirrors is group
