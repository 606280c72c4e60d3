"""``Applier``: applies what the cluster has agreed on to this node, in order.

In: events of the coordinator.  Out: the same virtual hosts, users, queues ... on every node, made
and deleted by the methods that a single node uses, so ``definitions.db`` follows, with queue ids
of this node's own; and the consumers that lost their queue by that.

Events are done in the order of their revisions, so whatever something rests on is there before it
and goes after it; that is asserted.  What is there already is no change.  They are done some at a
time (``EVENTS_AT_ONCE``): a virtual host with a hundred thousand queues may go at once elsewhere.

At a start (``begin``) the node has what it knew last.  What the cluster does not have is deleted,
the youngest kinds first, then all it has is done as if it had just happened.  A queue that was
deleted and declared anew while the node was away has another incarnation: the old one goes with
its messages, the new one is empty.

A virtual host goes step by step (``VhostRemoval``), because connections to it must end first.
If another of its name is agreed on before that is over, everything behind waits.

Invariants (``check``):
  A1  exchanges, queues with their incarnations, and living bindings are those that are agreed on
  A2  so are virtual hosts, users, permissions, policies, limits and global parameters
  A3  what was agreed on refers only to what is there when it is done
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, final

from penstock.broker.administration import Administration
from penstock.broker.broker import Broker
from penstock.broker.rules.policies import Policy
from penstock.broker.topology.topics import PAUSED
from penstock.broker.topology.vhost import Vhost
from penstock.broker.vhost_removal import CloseSome, VhostRemoval
from penstock.cluster.agreement import metadata as md
from penstock.cluster.agreement.agreed import Agreed
from penstock.cluster.agreement.coordinator import CHANGED, Entry, Event
from penstock.cluster.agreement.proposing import ClusterChanges
from penstock.cluster.agreement.records_here import record_of, records_of
from penstock.core.errors import BrokerError, Corrupt
from penstock.queues.consumers import Consumer
from penstock.queues.context import QueueIdentity
from penstock.queues.queue import Queue
from penstock.routing.exchanges import Exchange
from penstock.storage.definitions.parameters import ParameterRecord
from penstock.storage.definitions.records import (
    BindingRecord,
    PermissionRecord,
    PolicyRecord,
    TopicPermissionRecord,
    UserRecord,
    VhostRecord,
)
from penstock.storage.definitions.values import arguments_to_json

EVENTS_AT_ONCE: Final = 200
"""Of a turn: a declared queue costs some tens of microseconds."""

MakeQueue = Callable[[Vhost, md.QueueMeta, object], Queue]
"""(virtual host, queue, owner) -> it is there, here or as one whose master is elsewhere."""


def make_here(vhost: Vhost, meta: md.QueueMeta, owner: object) -> Queue:
    """With its messages on this node."""
    return vhost.make_queue(identity_of(vhost, meta), owner)


def identity_of(vhost: Vhost, meta: md.QueueMeta) -> QueueIdentity:
    who = (vhost.name, meta.name, meta.incarnation)
    return QueueIdentity(*who, meta.durable, meta.auto_delete, meta.arguments, meta.user)


@final
class Applier:
    """``lost``: consumers whose queue is gone; the turn takes them and cancels them.

    ``close_some`` ends the connections to a virtual host that goes.
    """

    def __init__(
        self,
        broker: Broker,
        changes: ClusterChanges,
        administration: Administration,
        close_some: CloseSome,
        make_queue: MakeQueue = make_here,
    ) -> None:
        self.lost: list[Consumer] = []
        self.agreed: Agreed = changes.agreed
        self._broker = broker
        self._changes = changes
        self._admin = administration
        self._close_some = close_some
        self._make_queue = make_queue
        self._waiting: list[tuple[Event, str]] = []  # and the user whose change it is
        self._removals: dict[str, VhostRemoval] = {}

    # -- at a start ------------------------------------------------------------------------

    def begin(self, entries: Sequence[Entry], keeps_copies: bool = False) -> None:
        """All the coordinator has; the broker has what this node knew last.

        ``keeps_copies``: those of queues that are not agreed on, for they may yet be.
        """
        self.agreed.begin(entries)
        self._changes.apply(partial(self._take_all, entries))
        if not keeps_copies:
            self._drop_copies()

    def _take_all(self, entries: Sequence[Entry]) -> None:
        self._keep_vhosts()
        self._delete_all_but(self.agreed.living())
        for entry in sorted(entries, key=_rank):
            if md.kind_of(entry.key) and entry.key not in self.agreed.dead:
                self._put(md.read(entry.key, entry.value))
        self._find_unused(entries)

    def _drop_copies(self) -> None:
        """Of queues that are gone, or were declared anew while the node was away."""
        for vhost in self._broker.vhosts.values():
            elsewhere = [queue for queue in vhost.queues.values() if queue.remote]
            vhost.copies.drop_all_but({queue.name: queue.incarnation for queue in elsewhere})

    def _keep_vhosts(self) -> None:
        """The end of the process interrupted a removal; another may have been made meanwhile.

        Then what is left of the former differs from the new one, and goes with all that does.
        Else the removal goes on, and sees to all that is in it.
        """
        for vhost in self._broker.vhosts.values():
            if not vhost.closing:
                continue
            if self.agreed.revision_of(md.path(md.VHOSTS, vhost.name)):
                vhost.keep()
                self._broker.definitions.vhost_stays(vhost.name)
            else:
                self._delete_vhost(vhost.name)

    def _find_unused(self, entries: Sequence[Entry]) -> None:
        """Exchanges that delete themselves, and had a binding, but have none any more.

        Their last binding went while no node was there, or with a lease.
        """
        for entry in entries:
            if md.kind_of(entry.key) == md.EXCHANGES and entry.revision > entry.made:
                vhost_name, name = md.parts_of(entry.key)
                vhost = self._broker.vhosts[vhost_name]
                exchange = vhost.exchanges[name]
                if exchange.auto_delete and not exchange.has_bindings():
                    self._changes.lost_bindings(vhost, exchange)

    def _delete_all_but(self, wanted: set[str]) -> None:
        """What refers to something goes before it; queues of an earlier incarnation go, too."""
        there = self.present()
        kinds = list(md.FIELDS)
        for key in sorted(there - wanted, key=lambda one: kinds.index(md.kind_of(one)))[::-1]:
            self._delete(key)

    # -- news ------------------------------------------------------------------------------

    def take(self, events: Sequence[Event]) -> None:
        users = {event.revision: event.value or "" for event in events if event.key == CHANGED}
        self._waiting += [
            (event, users.get(event.revision, "")) for event in events if md.kind_of(event.key)
        ]

    def run(self) -> bool:
        """Do some of what has come; True when there is more to do at once."""
        self._changes.apply(self._do_some)
        if not self._waiting:
            self.agreed.end_round()
        return bool(self._waiting or self._removals)

    def take_lost(self) -> list[Consumer]:
        lost, self.lost = self.lost, []
        return lost

    def _do_some(self) -> None:
        self._go_on_removing()
        count = 0
        while count < min(EVENTS_AT_ONCE, len(self._waiting)):
            event, user = self._waiting[count]
            actor = self._changes.actor_at(event.revision, user)
            if not self._broker.events.act_for(actor, partial(self._do, event)):
                break
            count += 1
        del self._waiting[:count]

    def _go_on_removing(self) -> None:
        for name, removal in list(self._removals.items()):
            done, lost = removal.step()
            self.lost += lost
            if done:
                del self._removals[name]

    def _do(self, event: Event) -> bool:
        """False: not yet."""
        key, value = event.key, event.value
        agreed = self.agreed
        if value is None:
            if agreed.revision_of(key) != 0:
                agreed.delete(key)
                self._delete(key)
        elif event.revision > agreed.revision_of(key):
            record = md.read(key, value)
            if isinstance(record, VhostRecord) and record.name in self._removals:
                return False
            queue = record if isinstance(record, md.QueueMeta) else None
            agreed.put(key, event.revision, queue)
            if key not in agreed.dead:
                self._put(record)
        agreed.done(event.revision)
        return True

    # -- put -------------------------------------------------------------------------------

    def _put(self, record: md.Record) -> None:
        try:
            self._put_checked(record)
        except BrokerError as error:
            # Its checks were passed where it was asked for: this is another release, or damage.
            text = f"what the cluster agreed on cannot be done here: {md.key_of(record)}: {error}"
            raise Corrupt(text) from error

    def _put_checked(self, record: md.Record) -> None:
        admin = self._admin
        if isinstance(record, md.QueueMeta):
            self._put_queue(record)
        elif isinstance(record, md.ExchangeMeta):
            self._put_exchange(record)
        elif isinstance(record, BindingRecord):
            self._bind(record)
        elif isinstance(record, VhostRecord):
            admin.put_vhost(record.name, record.metadata)
        elif isinstance(record, UserRecord):
            hashed, hashing = record.password_hash, record.hashing_algorithm
            admin.put_user(record.name, hashed, hashing, record.tags)
        elif isinstance(record, PermissionRecord):
            rights = (record.configure, record.write, record.read)
            admin.put_permission(record.user, record.vhost, *rights)
        elif isinstance(record, TopicPermissionRecord):
            patterns = (record.write, record.read)
            admin.put_topic_permission(record.user, record.vhost, record.exchange, *patterns)
        elif isinstance(record, PolicyRecord):
            self._put_policy(record)
        elif isinstance(record, md.LimitsMeta):
            self._put_limits(record.scope, record.owner, record.limits)
        else:
            self._put_parameter(record)

    def _put_policy(self, record: PolicyRecord) -> None:
        policy = Policy(
            record.name, record.pattern, record.apply_to, record.priority, record.definition
        )
        operator = record.kind == "operator"
        self._admin.put_policy(record.vhost, policy, operator)

    def _put_limits(self, scope: str, owner: str, limits: dict[str, int]) -> None:
        if scope == "vhost":
            self._admin.set_vhost_limits(owner, limits)
        else:
            self._admin.set_user_limits(owner, limits)

    def _put_parameter(self, record: ParameterRecord) -> None:
        if record.vhost:
            self._admin.put_parameter(record)
            return
        self._broker.parameters.remove(record.name)  # one identity in place of another
        self._admin.put_global_parameter(record.name, record.value)

    def _put_exchange(self, meta: md.ExchangeMeta) -> None:
        vhost = self._broker.vhost(meta.vhost)
        there = vhost.exchanges.get(meta.name)
        if there is not None and _is_same(there, meta):
            topic = vhost.topics.topics.get(there.name.partition(".")[2])
            if topic is not None and topic.exchange is there and there.arguments != meta.arguments:
                vhost.topics.pause(topic, meta.arguments.get(PAUSED) is True)
            return
        if there is not None:
            vhost.remove_exchange(there)
        vhost.make_exchange(
            Exchange(
                meta.vhost,
                meta.name,
                meta.type,
                meta.durable,
                meta.auto_delete,
                meta.internal,
                meta.arguments,
                meta.user,
                vhost.sources,
            )
        )

    def _put_queue(self, meta: md.QueueMeta) -> None:
        vhost = self._broker.vhost(meta.vhost)
        queue = vhost.queues.get(meta.name)
        if queue is not None and queue.incarnation != meta.incarnation:
            self.lost += vhost.delete_queue(queue)
            queue = None
        if queue is None:
            owner = None if meta.owner == "" else self._changes.owner_of(meta)
            queue = self._make_queue(vhost, meta, owner)
            if owner is not None:
                self._changes.made(vhost, queue, meta)
        if queue.paused != meta.paused:
            queue.set_paused(meta.paused)
            if meta.name in vhost.queue_ids:
                self._broker.definitions.pause_queue(meta.vhost, meta.name, meta.paused)

    def _bind(self, record: BindingRecord) -> None:
        vhost = self._broker.vhost(record.vhost)
        source, key, arguments = record.source, record.routing_key, record.arguments
        if record.destination_type == "queue":
            vhost.bind_queue(vhost.queue(record.destination), source, key, arguments)
        else:
            vhost.bind_exchange(record.destination, source, key, arguments)

    # -- delete ----------------------------------------------------------------------------

    def _delete(self, key: str) -> None:
        """What is gone already, with what it was in, is no change."""
        kind, parts = md.kind_of(key), md.parts_of(key)
        users = self._broker.users.users
        if kind == md.VHOSTS:
            self._delete_vhost(parts[0])
        elif kind == md.USERS and parts[0] in users:
            self._admin.delete_user(parts[0])
        elif kind == md.GLOBAL_PARAMETERS and self._broker.parameters.find(parts[0]) is not None:
            self._admin.delete_global_parameter(parts[0])
        elif kind == md.LIMITS and parts[0] == "user" and parts[1] in users:
            self._admin.set_user_limits(parts[1], {})
        elif kind == md.LIMITS and parts[0] == "vhost" and self._is_open(parts[1]):
            self._admin.set_vhost_limits(parts[1], {})
        elif kind in (md.USERS, md.GLOBAL_PARAMETERS, md.LIMITS) or not self._is_open(parts[0]):
            return
        else:
            self._delete_in(self._broker.vhosts[parts[0]], kind, key, parts)

    def _is_open(self, vhost: str) -> bool:
        return vhost in self._broker.vhosts and vhost not in self._removals

    def _delete_vhost(self, name: str) -> None:
        vhost = self._broker.vhosts.get(name)
        if vhost is not None and name not in self._removals:
            self._removals[name] = VhostRemoval(self._broker, vhost, self._close_some)

    def _delete_in(self, vhost: Vhost, kind: str, key: str, parts: list[str]) -> None:
        name = parts[1]
        if kind == md.QUEUES and name in vhost.queues:
            self.lost += vhost.delete_queue(vhost.queues[name])
        elif kind == md.EXCHANGES and name in vhost.exchanges:
            exchange = vhost.exchanges[name]
            for one in exchange.bindings():
                ends = (one.destination, one.routing_key, one.arguments)
                self.agreed.bury(md.key_of(record_of(vhost, exchange, *ends)))
            vhost.remove_exchange(vhost.exchanges[name])
        elif kind == md.BINDINGS:
            self._unbind(vhost, key, parts)
        elif kind in (md.POLICIES, md.OPERATOR_POLICIES):
            operator = kind == md.OPERATOR_POLICIES
            book = vhost.policies.operator_policies if operator else vhost.policies.policies
            if name in book:
                self._admin.delete_policy(vhost.name, name, operator)
        elif kind == md.PARAMETERS and self._broker.parameters.find(parts[2], *parts[:2]):
            self._admin.delete_parameter(*parts)
        elif kind == md.PERMISSIONS and name in self._broker.users.users:
            self._admin.delete_permission(name, vhost.name)
        elif kind == md.TOPIC_PERMISSIONS and name in self._broker.users.users:
            self._admin.delete_topic_permissions(name, vhost.name, parts[2])

    def _unbind(self, vhost: Vhost, key: str, parts: list[str]) -> None:
        """The key has a hash of what it was: it is one of those between its ends."""
        _, letter, destination, source, _ = parts
        exchange = vhost.exchanges.get(source)
        if exchange is None:
            return
        target: Queue | Exchange | None = vhost.exchanges.get(destination)
        if letter == "q":
            target = vhost.queues.get(destination)
        for one in exchange.bindings_to(target):
            record = record_of(vhost, exchange, target, one.routing_key, one.arguments)
            if md.key_of(record) != key:
                continue
            if isinstance(target, Queue):
                vhost.unbind_queue(target, source, one.routing_key, one.arguments)
            else:
                vhost.unbind_exchange(destination, source, one.routing_key, one.arguments)
        if exchange.auto_delete and not exchange.has_bindings():
            self._changes.lost_bindings(vhost, exchange)

    # -- what is there ---------------------------------------------------------------------

    def present(self) -> set[str]:
        """The keys of all this node has, as far as it is the cluster's."""
        records = records_of(self._broker, "", self._removals)
        return {md.key_of(record) for record in records}

    def check(self) -> None:
        """Assert the invariants; everything that came is done."""
        assert not self._waiting
        assert self._changes.proposes, "P3"
        agreed = self.agreed
        there = self.present()
        odd = there ^ agreed.living()
        routing = [key for key in odd if md.kind_of(key) in (md.EXCHANGES, md.QUEUES, md.BINDINGS)]
        assert not routing, f"A1: {sorted(routing)}"
        assert not odd, f"A2: {sorted(odd)}"
        for meta in agreed.queues.values():
            queue = self._broker.vhosts[meta.vhost].queues[meta.name]
            assert queue.incarnation == meta.incarnation, "A1"
            assert queue.paused == meta.paused, "A1"


def _is_same(there: Exchange, meta: md.ExchangeMeta) -> bool:
    """But for what may change."""
    arguments, wanted = dict(there.arguments), dict(meta.arguments)
    for table in (arguments, wanted):
        table.pop(PAUSED, None)
    return (
        (there.type, there.durable) == (meta.type, meta.durable)
        and (there.auto_delete, there.internal) == (meta.auto_delete, meta.internal)
        and arguments_to_json(arguments) == arguments_to_json(wanted)
    )


def _rank(entry: Entry) -> tuple[int, int]:
    kind = md.kind_of(entry.key)
    return (list(md.FIELDS).index(kind) if kind else -1, entry.made)
