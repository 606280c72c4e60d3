"""``ClusterChanges``: changes that a node proposes to the coordinator, and waits for.

In: changes that have passed the checks of the virtual host (``broker/topology/changes.py``).  Out:
proposals, of requests (``ClusterAsk`` in ``cluster_ask.py``) and of jobs.

A change without a waiting client (a queue that expires or deletes itself, exclusive queues of a
connection that ended) is a *job*: proposed by the node that has the queue's master, again and
again, until the queue is gone or in use.  Jobs go together; if one is refused, each goes alone.

Invariants:
  P1  every proposal changes a key under the condition that this key is as it was: it happens once
  P2  a node answers a change after it and the nodes that ``is_known`` asks have applied it
  P3  while what was agreed on is being done, nothing is proposed
"""

from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar, final

from penstock.broker.broker import Broker
from penstock.broker.topology.changes import Changes, Plain
from penstock.broker.topology.histories import Gathered
from penstock.broker.topology.vhost import Vhost
from penstock.cluster.agreement import metadata as md
from penstock.cluster.agreement.agreed import Agreed
from penstock.cluster.agreement.cluster_ask import ClusterAsk
from penstock.cluster.agreement.coordinator import (
    ACCEPTED,
    CHANGES_MAX,
    PENDING,
    Coordinator,
    Proposal,
    mark,
)
from penstock.cluster.agreement.draft import Draft
from penstock.cluster.agreement.drafting import Drafting
from penstock.cluster.agreement.locating import Locating
from penstock.cluster.agreement.records_here import record_of
from penstock.core.clock_types import MonoMs
from penstock.core.events.book import NODE, Actor
from penstock.core.pending import Pending
from penstock.queues.queue import Queue
from penstock.routing.exchanges import Exchange
from penstock.storage.definitions.records import (
    BindingRecord,
    PermissionRecord,
    TopicPermissionRecord,
    UserRecord,
    VhostRecord,
)

T = TypeVar("T")

JOBS_AT_ONCE: Final = CHANGES_MAX // 4
"""Queues that go in one proposal."""
JOB_PROPOSALS_MAX: Final = 8
HELD_MAX: Final = 64
"""Exclusive queues of a session, before those it has deleted are forgotten."""
GONE: Final[object] = object()
"""The owner of a queue whose connection ended before it was there."""

AskHistories = Callable[[str, str, Gathered], None]
"""(virtual host, name, where what other nodes have in internal queues of that name is gathered)"""
IsKnown = Callable[[int], bool]
"""Do all living nodes know the changes up to that revision?"""


class Surroundings(NamedTuple):
    """What a node knows beside the metadata; the defaults are of one without neighbours.

    ``is_known``   see ``IsKnown``
    ``is_master``  has this node the master of that queue?  None: if it is the queue's home
    ``locating``   where queues that are declared here are to be; None = here
    ``ask_histories``  see ``Changes.ask_histories``
    """

    is_known: IsKnown = lambda _revision: True
    is_master: Callable[[Queue], bool | None] = lambda _queue: None
    locating: Locating | None = None
    ask_histories: AskHistories = lambda _vhost, _name, _gathered: None


ALONE: Final = Surroundings()


@final
class _Job:
    """A queue that is to go, or an exchange without bindings."""

    def __init__(self, vhost: Vhost, what: Queue | Exchange) -> None:
        self.vhost = vhost
        self.what = what
        self.used_ms = int(what.last_used_ms) if isinstance(what, Queue) else 0
        self.proposal: Proposal | None = None
        self.alone: bool = False

    def proposed(self, proposal: Proposal) -> None:
        self.proposal = proposal

    def may_go(self) -> bool:
        """Not while a proposal with it is under way, or accepted and about to be done."""
        proposal = self.proposal
        if proposal is None:
            return True
        if proposal.state in (PENDING, ACCEPTED):
            return False
        self.proposal = None
        self.alone = True
        return True

    def is_over(self) -> bool:
        """Is it gone, or wanted again?"""
        what = self.what
        if isinstance(what, Exchange):
            return self.vhost.exchanges.get(what.name) is not what or what.has_bindings()
        if what.deleted or self.vhost.queues.get(what.name) is not what:
            return True
        if what.owner is not None:
            return False
        return len(what.consumers) > 0 or what.last_used_ms != self.used_ms


@final
class ClusterChanges(Changes):
    """``home``: this node's name; ``member``: this life of it."""

    def __init__(
        self,
        broker: Broker,
        coordinator: Coordinator,
        agreed: Agreed,
        home: str,
        member: str,
        surroundings: Surroundings = ALONE,
    ) -> None:
        super().__init__(broker.admission, broker.events)
        self.follows = True
        self.proposes = True
        self.coordinator = coordinator
        self.agreed = agreed
        self.home = home
        self.member = member
        self.mono_ms: MonoMs = MonoMs(0)  # of the turn
        self.waiting: list[ClusterAsk] = []
        self.settles: bool = False  # see ``await_round``
        self.draft: Draft | None = None
        self.asking: ClusterAsk | None = None
        self.is_known = surroundings.is_known
        self.locating = surroundings.locating or Locating(agreed, home)
        self._is_master = surroundings.is_master
        self._ask_histories = surroundings.ask_histories
        self._broker = broker
        self._drafting = Drafting(agreed)
        self._owners: dict[str, object] = {}  # of exclusive queues to come, by incarnation
        self._held: dict[int, list[Queue]] = {}  # those that came, by identity of the owner
        self._jobs: dict[int, _Job] = {}  # by identity of the queue or exchange
        self._lonely: dict[str, Proposal] = {}  # without a caller, by key

    def ask(self, actor: Actor = NODE) -> ClusterAsk:
        return ClusterAsk(self, actor)

    def actor_at(self, revision: int, user: str) -> Actor:
        """Whose request that revision is: of a client of this node its address is known, too."""
        for asking in self.waiting:
            if asking.was_accepted_at(revision):
                return asking.actor
        return Actor(user)

    def at_first(self, told: bool) -> bool:
        return told if self.asking is None else self.asking.at_first(told)

    def begin_turn(self, mono_ms: MonoMs) -> None:
        self.mono_ms = mono_ms
        self.settles = False

    def await_round(self) -> None:
        """An ``Ask`` waits for the next round, and for nothing else."""
        self.settles = True

    def fill(self, draft: Draft, asking: ClusterAsk, step: Callable[[], T]) -> T:
        """Run a step of a request: what it hands in goes to this draft."""
        assert self.draft is None
        self.draft, self.asking = draft, asking
        try:
            return self.book.act_for(asking.actor, step)
        finally:
            self.draft = self.asking = None

    def apply(self, function: Callable[[], None]) -> None:
        """Run it: what it asks of the broker is done at once."""
        assert self.draft is None, "P3"
        self.proposes = False
        try:
            function()
        finally:
            self.proposes = True

    def then(self, go_on: Callable[[], T | Pending]) -> T | Pending:
        if self.draft is not None and self.draft.is_empty():
            return go_on()
        return Pending(None, go_on)

    def begin_life(self, member: str) -> None:
        """This node has joined again, as a new member."""
        self.member = member

    def is_master(self, queue: Queue) -> bool:
        """Has this node the master of that queue?"""
        mastered = self._is_master(queue)
        return self.is_at_home(queue) if mastered is None else mastered

    def is_at_home(self, queue: Queue) -> bool:
        meta = self.agreed.queues.get(md.path(md.QUEUES, queue.vhost, queue.name))
        return meta is not None and meta.home == self.home

    def propose(self, draft: Draft) -> Proposal:
        conditions, changes = draft.conditions(), draft.changes()
        changed = {change.key for change in changes}
        assert any(condition.key in changed for condition in conditions), "P1"
        return self.coordinator.propose(conditions, [*changes, mark(draft.user)])

    # -- exclusive queues ------------------------------------------------------------------

    def owner_of(self, meta: md.QueueMeta) -> object:
        """Of an exclusive queue: a session of this node, GONE if that ended, or another member."""
        if meta.owner == self.member:
            return self._owners.pop(meta.incarnation, GONE)
        return meta.owner

    def made(self, vhost: Vhost, queue: Queue, meta: md.QueueMeta) -> None:
        """It is there; the session it is for may have ended meanwhile, or may yet."""
        if queue.owner is GONE:
            self._jobs.setdefault(id(queue), _Job(vhost, queue))
        elif meta.owner == self.member:
            held = self._held.setdefault(id(queue.owner), [])
            if len(held) > HELD_MAX:
                held[:] = [one for one in held if not one.deleted]
            held.append(queue)

    def owner_gone(self, owner: object) -> None:
        for incarnation, known in self._owners.items():
            if known is owner:
                self._owners[incarnation] = GONE
        for queue in self._held.pop(id(owner), []):
            if not queue.deleted:
                self._jobs.setdefault(id(queue), _Job(self._broker.vhosts[queue.vhost], queue))

    def forget(self, draft: Draft) -> None:
        """It has not happened and will not."""
        for incarnation in draft.incarnations:
            self._owners.pop(incarnation, None)

    # -- handed in -------------------------------------------------------------------------

    def hand_in(self, fill: Callable[[Draft], None]) -> None:
        """Into the draft of the request; without one it is proposed and left alone."""
        assert self.proposes, "P3"
        if self.draft is not None:
            fill(self.draft)
            return
        draft = Draft()
        fill(draft)
        if draft.is_empty():
            return
        key = draft.changes()[0].key
        before = self._lonely.get(key)
        if before is None or before.done:
            self._lonely[key] = self.propose(draft)

    def add_exchange(self, exchange: Exchange) -> None:
        self.hand_in(lambda draft: self._drafting.add_exchange(draft, exchange))

    def put_exchange(self, exchange: Exchange, arguments: dict[str, object]) -> None:
        self.hand_in(lambda draft: self._drafting.put_exchange(draft, exchange, arguments))

    def delete_exchange(self, vhost: Vhost, exchange: Exchange) -> None:
        self.hand_in(lambda draft: self._drafting.delete_exchange(draft, vhost, exchange))

    def homes(self) -> list[str]:
        return self.locating.nodes()

    def prefer(self, node: str) -> None:
        self.locating.prefer(node)

    def add_queue(
        self,
        vhost: Vhost,
        name: str,
        incarnation: str,
        durable: bool,
        owner: object,
        auto_delete: bool,
        arguments: dict[str, object],
    ) -> None:
        meta = md.QueueMeta(
            vhost.name,
            name,
            incarnation,
            self.locating.home_of(vhost, name, durable, owner, arguments),
            durable,
            auto_delete,
            arguments,
            "" if owner is None else self.member,
            user=self.book.user,
        )
        view = self.locating.first_view(meta.home, arguments)
        self.hand_in(lambda draft: self._drafting.add_queue(draft, meta, view))
        if owner is not None:
            self._owners[incarnation] = owner
            if self.draft is not None:
                self.draft.incarnations.append(incarnation)

    def pause_queue(self, queue: Queue, paused: bool) -> None:
        if queue.paused != paused:
            self.hand_in(lambda draft: self._drafting.pause_queue(draft, queue, paused))

    def delete_agreed(self, meta: md.QueueMeta) -> bool:
        """As the virtual host does; False: its removal has begun."""
        vhost = self._broker.vhosts.get(meta.vhost)
        queue = None if vhost is None else vhost.queues.get(meta.name)
        if vhost is None or queue is None:
            return False
        vhost.delete_queue(queue)
        return True

    def delete_queue(self, vhost: Vhost, queue: Queue) -> None:
        if self.draft is not None:
            self._drafting.delete_queue(self.draft, vhost, queue)
        elif self.is_master(queue) or queue.owner is not None:
            self._jobs.setdefault(id(queue), _Job(vhost, queue))

    def bind(self, record: BindingRecord, exchange: Exchange, destination: object) -> None:
        self.hand_in(lambda draft: self._drafting.bind(draft, record, exchange, destination))

    def unbind(
        self, vhost: Vhost, record: BindingRecord, exchange: Exchange, destination: object
    ) -> None:
        found = exchange.find(destination, record.routing_key, record.arguments)
        if found is not None:
            there = record_of(vhost, exchange, destination, found.routing_key, found.arguments)
            self.hand_in(lambda draft: self._drafting.unbind(draft, vhost, there, exchange))

    def ask_histories(self, vhost: str, name: str, gathered: Gathered) -> None:
        self._ask_histories(vhost, name, gathered)

    def put(self, record: Plain) -> None:
        if self._is_there(record):
            return
        self.hand_in(lambda draft: self._drafting.put(draft, record))
        if isinstance(record, PermissionRecord | TopicPermissionRecord):
            self._touch_user(record.user)

    def _is_there(self, record: Plain) -> bool:
        """As it is to be: of what may be asked for twice, because something else comes behind."""
        if isinstance(record, UserRecord):
            user = self._broker.users.users.get(record.name)
            given = (record.password_hash, record.hashing_algorithm, record.tags)
            return user is not None and (user.password_hash, user.hashing, user.tags) == given
        if isinstance(record, VhostRecord):
            vhost = self._broker.vhosts.get(record.name)
            if vhost is None or vhost.closing:
                return False
            return bool(vhost.metadata == record.metadata)
        return False

    def delete(self, record: Plain) -> None:
        user = None
        if isinstance(record, UserRecord):
            user = self._broker.users.users[record.name]
        self.hand_in(lambda draft: self._drafting.delete(draft, record, user))

    def put_limits(self, scope: str, owner: str, limits: dict[str, int]) -> None:
        meta = md.LimitsMeta(scope, owner, limits)
        self.hand_in(lambda draft: self._drafting.put_limits(draft, meta))
        if scope == "user":
            self._touch_user(owner)

    def _touch_user(self, name: str) -> None:
        """In the same draft: the client that grants something to a user waits for the answer."""
        if self.draft is not None and not self.draft.is_empty():
            self._drafting.touch_user(self.draft, self._broker.users.users[name])

    def look(self) -> None:
        """Once a turn, when all that came is done: which requests may go on?"""
        self.waiting = [one for one in self.waiting if not one.look()]

    # -- jobs --------------------------------------------------------------------------------

    def lost_bindings(self, vhost: Vhost, exchange: Exchange) -> None:
        """It deletes itself, and has no bindings any more: it should be gone by now."""
        self._jobs.setdefault(id(exchange), _Job(vhost, exchange))

    def is_idle(self) -> bool:
        """No request waits, and no job."""
        return not (self.waiting or self._jobs or self._lonely)

    def job_count(self) -> int:
        return len(self._jobs)

    def work(self) -> None:
        """Once a turn, when all news is done."""
        for key in [key for key, proposal in self._lonely.items() if proposal.done]:
            del self._lonely[key]
        if not self._jobs or self.coordinator.why_not():
            return
        waiting: list[_Job] = []
        under_way: set[int] = set()
        for identity, job in list(self._jobs.items()):
            if job.is_over():
                del self._jobs[identity]
            elif job.may_go():
                waiting.append(job)
            else:
                under_way.add(id(job.proposal))
        room = JOB_PROPOSALS_MAX - len(under_way)
        while waiting and room > 0:
            room -= 1
            self._propose_some(waiting)

    def _propose_some(self, waiting: list[_Job]) -> None:
        """The first, and others that may go with it."""
        draft = Draft()
        taken: list[_Job] = []
        while waiting and len(taken) < JOBS_AT_ONCE and draft.size() < CHANGES_MAX // 2:
            job = waiting[-1]
            if taken and (job.alone or taken[0].alone):
                break
            taken.append(waiting.pop())
            if isinstance(job.what, Exchange):
                self._drafting.strike_unused(draft, job.vhost, job.what)
            else:
                self._drafting.delete_queue(draft, job.vhost, job.what)
        proposal = self.propose(draft)
        for job in taken:
            job.proposed(proposal)
