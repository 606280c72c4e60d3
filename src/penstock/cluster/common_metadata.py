"""``CommonMetadata``: one node's share in what the cluster agrees on, for who turns the node.

    join(...)            before anything is served: the first node founds the cluster with what
                         its own definitions hold; every other one takes what is agreed on, and
                         loses what it had alone
    turn(now_ms)         once a turn: news is done, what nobody waits for is proposed
    is_ready             joined: from now on clients may come

Founding: whoever finds no cluster puts a key bound to its lease, so that it is alone at it, then
all it has, some at a time, and last the key that says that there is a cluster.  If it dies before
that, the next one begins again; what is there already is put once more.
"""

from collections.abc import Sequence
from typing import Final, final

from penstock.broker.administration import (
    CLUSTER_ID,
    Administration,
    limits_of,
    user_limits_of,
)
from penstock.broker.broker import Broker
from penstock.broker.vhost_removal import CloseSome
from penstock.cluster import metadata as md
from penstock.cluster.agreed import ALWAYS_THERE, Agreed
from penstock.cluster.applying import Applier, MakeQueue, make_here
from penstock.cluster.coordinator import (
    ABSENT,
    ACCEPTED,
    Change,
    Condition,
    Coordinator,
    Entry,
    Event,
    Proposal,
)
from penstock.cluster.drafting import exchange_meta, record_of
from penstock.cluster.proposing import ClusterChanges
from penstock.core.errors import ForeignData
from penstock.queues.consumers import Consumer
from penstock.queues.queue import Queue
from penstock.storage.definition_parameters import GlobalParameterRecord
from penstock.storage.definition_records import (
    BindingRecord,
    PermissionRecord,
    PolicyRecord,
    TopicPermissionRecord,
    UserRecord,
    VhostRecord,
)

FOUNDED: Final = "cluster/founded"
FOUNDING: Final = "cluster/founding"
PUT_AT_ONCE: Final = 50
CATCH_UP_MS: Final = 200
"""News mostly comes by itself: this long at least from one inquiry to the next."""


@final
class CommonMetadata:
    """``changes`` is what the broker hands in to, once it has joined."""

    def __init__(
        self,
        broker: Broker,
        coordinator: Coordinator,
        home: str,
        member: str,
        segment_entries: int,
        close_some: CloseSome,
        make_queue: MakeQueue = make_here,
    ) -> None:
        """``broker``: opened, with its messages; ``segment_entries`` of virtual hosts to come."""
        self.agreed = Agreed()
        self.changes = ClusterChanges(broker, coordinator, self.agreed, home, member)
        broker.join(self.changes)
        admin = Administration(broker, segment_entries)
        self.applier = Applier(broker, self.changes, admin, close_some, make_queue)
        self.is_ready: bool = False
        self.is_begun: bool = False  # what was agreed on when we came is done
        self._barrier: Proposal | None = None
        self._round: int = -1
        self._wanted: int = 0  # revision that another node asks for
        self._caught_up_ms: int = 0
        self._broker = broker
        self._coordinator = coordinator
        self._home = home
        self._entries = {entry.key: entry for entry in coordinator.snapshot()}
        self._made = max((entry.made for entry in self._entries.values()), default=0)
        self._founding: Proposal | None = None
        self._to_put: list[md.Record] | None = None  # None: not alone at it yet

    def turn(self, now_ms: int, events: Sequence[Event]) -> bool:
        """True when there is more to do at once."""
        self.changes.now_ms = now_ms
        if not self.is_begun:
            self._join(now_ms, events)
            return False
        if not self.is_ready or self._wanted > self.agreed.revision:
            self._catch_up(now_ms)
        self.applier.take(events)
        more = self.applier.run(now_ms)
        if not more:
            self.changes.work(now_ms)
            self.changes.look()
        return more

    def heard(self, revision: int) -> None:
        """What is not the applier's has been done up to there, too."""
        self.agreed.revision = max(self.agreed.revision, revision)
        self.agreed.changed = max(self.agreed.changed, revision)

    def has(self, revision: int) -> bool:
        """Is everything up to that revision done here?  Some other node wants to know."""
        if self.agreed.revision >= revision:
            return True
        self._wanted = max(self._wanted, revision)
        return False

    def _catch_up(self, now_ms: int) -> None:
        """To the revision of a proposal that changes nothing: all before it has come then.

        A snapshot does not say how new it is, if what was last done was to delete; neither does
        what a coordinator tells who was cut off.
        """
        barrier = self._barrier
        if barrier is None:
            if now_ms - self._caught_up_ms >= CATCH_UP_MS and not self._coordinator.why_not():
                self._barrier = self._coordinator.propose([], [])
                self._round = -1
        elif barrier.state != ACCEPTED:
            if barrier.done:
                self._barrier = None
        elif self._round < 0:
            self._round = self.agreed.rounds + 1
        elif self.agreed.rounds >= self._round:
            self.agreed.revision = max(self.agreed.revision, barrier.revision)
            self._caught_up_ms = now_ms
            self._barrier = None
            self.is_ready = self.is_ready or self.changes.job_count() == 0

    def take_lost(self) -> list[Consumer]:
        """Consumers whose queue has gone."""
        lost, self.applier.lost = self.applier.lost, []
        return lost

    # -- joining ---------------------------------------------------------------------------

    def _join(self, now_ms: int, events: Sequence[Event]) -> None:
        for event in events:
            if event.value is None:
                self._entries.pop(event.key, None)
            else:
                known = self._entries.get(event.key)
                if event.created or known is None:
                    # When it was made is not told, but what was made before comes before.
                    self._made += 1
                made = self._made if event.created or known is None else known.made
                self._entries[event.key] = Entry(event.key, event.value, event.revision, made)
        if FOUNDED in self._entries:
            self._check_identity()
            self.applier.begin(list(self._entries.values()), now_ms)
            self._entries = {}
            self.is_begun = True
            self._end_transient()
        elif self._founding is None or self._founding.done:
            self._found()

    def _end_transient(self) -> None:
        """Queues that were ours and not to outlive our last process, as RabbitMQ does it."""
        for meta in self.agreed.queues.values():
            if meta.home != self._home or meta.durable or meta.owner != "":
                continue
            vhost = self._broker.vhosts[meta.vhost]
            queue = vhost.queues[meta.name]
            if self.changes.is_master(queue):
                self.changes.delete_queue(vhost, queue)

    def _check_identity(self) -> None:
        """What is not the cluster's is about to be deleted: it must not be somebody's data."""
        entry = self._entries.get(md.path(md.PARAMETERS, CLUSTER_ID))
        agreed = None if entry is None else md.read(entry.key, entry.value)
        theirs = agreed.value if isinstance(agreed, GlobalParameterRecord) else None
        ours = self._broker.global_parameters.get(CLUSTER_ID)
        vhosts = self._broker.vhosts.values()
        has_queues = any(vhost.queues or vhost.copies.copies for vhost in vhosts)
        if has_queues and ours != theirs:
            raise ForeignData(
                f"the data directory has queues of another cluster ({ours}) than this one"
                f" ({theirs}): they would be deleted; begin with an empty directory"
            )

    def _found(self) -> None:
        """The next step, as far as the last one has been seen."""
        last, self._founding = self._founding, None
        if self._coordinator.why_not():
            return
        mine = self._entries.get(FOUNDING)
        if mine is None:
            # Also when it was ours, and our lease has ended.
            self._to_put = None
            change = Change(FOUNDING, f'"{self.changes.member}"', leased=True)
            self._founding = self._propose([Condition(FOUNDING, ABSENT)], [change])
            return
        if mine.value != f'"{self.changes.member}"':
            return  # somebody else is at it
        if self._to_put is None:
            self._to_put = self._all_there_is()
        elif last is not None and last.state == ACCEPTED:
            del self._to_put[: len(last.changes)]
        some = self._to_put[:PUT_AT_ONCE]
        if some and not isinstance(some[0], BindingRecord):
            # What bindings rest on is made before them, and seen to be.
            some = [one for one in some if not isinstance(one, BindingRecord)]
        alone = [Condition(FOUNDING, mine.revision)]
        puts = [Change(md.key_of(record), md.value_of(record)) for record in some]
        if not puts:
            puts = [Change(FOUNDED, '{"v":1}'), Change(FOUNDING, None)]
        self._founding = self._propose(alone, puts)

    def _propose(self, conditions: list[Condition], changes: list[Change]) -> Proposal:
        return self._coordinator.propose(conditions, changes)

    def _all_there_is(self) -> list[md.Record]:
        """What this node has had alone."""
        broker = self._broker
        records: list[md.Record] = [
            GlobalParameterRecord(name, value) for name, value in broker.global_parameters.items()
        ]
        records += [
            VhostRecord(vhost.name, 0, vhost.description, vhost.tags)
            for vhost in broker.vhosts.values()
        ]
        for user in broker.users.users.values():
            records.append(UserRecord(user.name, user.password_hash, user.hashing, user.tags))
            records += [
                PermissionRecord(user.name, vhost_name, *rights)
                for vhost_name, rights in user.vhosts.items()
            ]
            records += [
                TopicPermissionRecord(user.name, *place, *patterns)
                for place, patterns in user.topics.items()
            ]
        records += self._limits()
        return records + self._in_vhosts()

    def _limits(self) -> list[md.Record]:
        broker = self._broker
        scopes = [("vhost", vhost.name, limits_of(vhost)) for vhost in broker.vhosts.values()]
        scopes += [
            ("user", user.name, user_limits_of(user)) for user in broker.users.users.values()
        ]
        return [md.LimitsMeta(*one) for one in scopes if one[2]]

    def _in_vhosts(self) -> list[md.Record]:
        records: list[md.Record] = []
        for vhost in self._broker.vhosts.values():
            book = vhost.policies
            for kind, policies in (("policy", book.policies), ("operator", book.operator_policies)):
                records += [
                    PolicyRecord(
                        vhost.name,
                        kind,
                        policy.name,
                        policy.pattern,
                        policy.apply_to,
                        policy.priority,
                        policy.definition,
                    )
                    for policy in policies.values()
                ]
            exchanges = vhost.exchanges.values()
            records += [
                exchange_meta(exchange, exchange.arguments)
                for exchange in exchanges
                if exchange.name not in ALWAYS_THERE
            ]
            records += [self._queue_meta(queue) for queue in vhost.queues.values()]
        return records + [
            record_of(vhost, exchange, one.destination, one.routing_key, one.arguments)
            for vhost in self._broker.vhosts.values()
            for exchange in vhost.exchanges.values()
            for one in exchange.bindings()
        ]

    def _queue_meta(self, queue: Queue) -> md.QueueMeta:
        return md.QueueMeta(
            queue.vhost,
            queue.name,
            queue.incarnation,
            self._home,
            queue.durable,
            queue.auto_delete,
            queue.arguments,
            paused=queue.paused,
        )
