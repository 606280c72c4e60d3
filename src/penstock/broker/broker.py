"""The broker: all virtual hosts, all users, and the one turn that moves messages out.

The node feeds sessions, sessions call virtual hosts, and at the end of each turn of the
loop ``queue_turns`` has the queues that may have something to deliver.
"""

from typing import Final, cast, final

from mypy_extensions import i64

from penstock.backing.factory import adopt, found_priorities
from penstock.broker.budgets import Budgets
from penstock.broker.mirrors import Mirrors
from penstock.broker.options import BrokerOptions, default_options
from penstock.broker.parameters import CLUSTER_NAME, Parameters
from penstock.broker.pipelines import PipelineRegistry
from penstock.broker.queue_turns import QueueTurns
from penstock.broker.rules.access import NO_LIMIT, User
from penstock.broker.rules.admission import Admission
from penstock.broker.rules.alarms import Alarms
from penstock.broker.rules.entry import LIMIT, EntryRules
from penstock.broker.rules.log_ins import LogIns
from penstock.broker.rules.policies import Policy
from penstock.broker.rules.rights import check_enter
from penstock.broker.topology.changes import Changes
from penstock.broker.topology.idleness import Idleness
from penstock.broker.topology.internal_queues import is_backlog
from penstock.broker.topology.mirror_copies import is_copy
from penstock.broker.topology.queue_maker import BackingFactory, IncarnationSource
from penstock.broker.topology.routes import check_connection_limits, check_node_limit
from penstock.broker.topology.vhost import Vhost
from penstock.broker.transfers.batch_claims import BatchClaims
from penstock.broker.transfers.dead_letters import DeadLetters
from penstock.broker.transfers.deferred_trim import DeferredTrim
from penstock.broker.transfers.replies import Replies
from penstock.broker.transfers.staged_publisher import StagedPublisher
from penstock.broker.transfers.staging import Staging
from penstock.broker.transfers.traces import Traces
from penstock.broker.vhost_maker import VhostMaker
from penstock.core.clock_types import MonoMs
from penstock.core.confirm_watermark import PendingConfirms
from penstock.core.counting.traffic import TrafficBook
from penstock.core.errors import NotAllowed, NotFound
from penstock.core.events.book import EventBook
from penstock.core.headers import HeaderReader
from penstock.core.letters import HeaderWriter
from penstock.queues.consumers import Consumer
from penstock.queues.context import QueueContext
from penstock.queues.local import LocalQueue
from penstock.queues.queue import Queue
from penstock.queues.sampling import Sampling
from penstock.queues.stream import StreamQueue
from penstock.routing.exchanges import NSQ_TOPIC, Exchange
from penstock.settings.entry import AddressRules
from penstock.storage.definitions.definitions import Definitions
from penstock.storage.definitions.records import Topology
from penstock.storage.engine.engine import Engine
from penstock.storage.engine.recovery import FoundQueue

UNSTAMPED: Final[i64] = 0
KEEP: Final[i64] = 1
OVERWRITE: Final[i64] = 2
"""What ``BrokerOptions.stamping`` may be: whether published messages get a timestamp."""


@final
class Broker:
    """What the packages above share."""

    def __init__(
        self,
        definitions: Definitions,
        engine: Engine,
        make_backing: BackingFactory,
        new_incarnation: IncarnationSource,
        loopback_users: list[str],
        letter_writer: HeaderWriter,
        header_reader: HeaderReader,
        options: BrokerOptions | None = None,
    ) -> None:
        options = options or default_options()
        self.definitions = definitions
        self.admission = Admission(Alarms(engine.ram))
        self.events = EventBook()
        self.changes = Changes(self.admission, self.events)
        self.mirrors = Mirrors()
        self.engine = engine
        self.vhosts: dict[str, Vhost] = {}
        self.options = options
        self.flow = options.flow
        entry = EntryRules(self.options.plain_text_passwords, self.options.address_rules)
        self.users = LogIns(self.events, loopback_users, entry, options.passwords, options.lockouts)
        self.traffic = TrafficBook()
        sampling = Sampling(self.events, options.publish_times, options.spans)
        self.waits = PendingConfirms()  # of publishes, for other nodes
        context = QueueContext(self.waits, self.flow.book, sampling)
        self.queue_context = context
        engine.events = self.events
        self.pipelines = PipelineRegistry()
        self.policy_epoch: i64 = 0  # moves when any policy changes, anywhere
        self.parameters = Parameters()
        self.idleness = Idleness()
        self.vhost_maker = VhostMaker(
            definitions,
            engine,
            make_backing,
            new_incarnation,
            context,
            self.idleness,
            self.traffic.churn,
            letter_writer,
            options,
        )
        self.letting_go = DeferredTrim()
        self.replies = Replies()
        self.dead_letters = DeadLetters(
            self.vhosts, self.replies, letter_writer, header_reader, engine.journal, context
        )
        self.traces = Traces(self.vhosts, letter_writer)
        self.budgets = Budgets(self.vhosts, self.admission.vhost_reasons)
        self.staging = Staging(
            self.vhosts,
            definitions,
            engine,
            StagedPublisher(engine, header_reader),
            self.admission,
            lambda: len(self.queue_context.deaths) > 0,
            self.flow,
            options.staging,
        )
        self.queue_turns = QueueTurns(
            context,
            options.scan,
            self.vhosts,
            header_reader,
            self.dead_letters,
            self.staging,
            self.flow,
        )

    # -- opening -------------------------------------------------------------------------

    def open(self, topology: Topology, range_lease_epoch: i64, mono_ms: MonoMs) -> None:
        """Build everything the definitions hold; queues come up empty, and unused from now on."""
        self.idleness.set_now(mono_ms)
        for vhost_record in topology.vhosts:
            vhost = self.add_vhost(vhost_record.name, vhost_record.segment_entries)
            vhost.describe(vhost_record.metadata)
            if vhost_record.closing:
                vhost.close()
        for parameter in topology.parameters:
            self.parameters.put(parameter)
        for user_record in topology.users:
            self.users.users[user_record.name] = User(
                user_record.name,
                user_record.password_hash,
                user_record.tags,
                user_record.hashing_algorithm,
            )
        for grant in topology.permissions:
            user = self.users.users[grant.user]
            user.permit(grant.vhost, grant.configure, grant.write, grant.read)
        self._take_rules(topology)
        for exchange in topology.exchanges:
            vhost = self.vhosts[exchange.vhost]
            vhost.add_exchange(
                Exchange(
                    exchange.vhost,
                    exchange.name,
                    exchange.type,
                    True,
                    exchange.auto_delete,
                    exchange.internal,
                    exchange.arguments,
                    exchange.user,
                    vhost.sources,
                )
            )
        for queue_record in topology.queues:
            vhost = self.vhosts[queue_record.vhost]
            if is_copy(queue_record.name):
                vhost.copies.recover(queue_record)
                continue
            queue = vhost.recover_queue(queue_record)
            if isinstance(queue, LocalQueue):
                queue.range_lease.begin(range_lease_epoch)
            if is_backlog(queue.name):
                vhost.topics.attach(cast(Exchange, queue.releases_to))
        self._bind_all(topology)
        self.staging.open(topology)

    def adopt(self, topology: Topology, found: dict[int, FoundQueue]) -> None:
        """Give the queues the messages the disk remembers."""
        for record in topology.queues:
            vhost = self.vhosts[record.vhost]
            if is_copy(record.name):
                vhost.copies.adopt(record, found)
                continue
            queue = vhost.internal_queues.queues.get(record.name) or vhost.queues[record.name]
            if queue.is_quorum and isinstance(queue, LocalQueue):
                for priority in found_priorities(record.queue_id, found):
                    queue.open_priority(priority)
            adopt(queue.backing, found)
            if isinstance(queue, LocalQueue) and queue.releases_to is None:
                queue.defer_what_is_delayed()
            # Ready messages of an internal queue are sorted, those over a length limit are dropped.
            if queue.releases_to is not None or queue.limits.drops:
                queue.wake()
        for vhost in self.vhosts.values():
            for topic in vhost.topics.topics.values():
                topic.look()
        self.staging.adopt()

    def _take_rules(self, topology: Topology) -> None:
        """Before there are queues: they are made by what holds."""
        for topic in topology.topic_permissions:
            user = self.users.users[topic.user]
            user.topics[(topic.vhost, topic.exchange)] = (topic.write, topic.read)
        for record in topology.policies:
            book = self.vhosts[record.vhost].policies
            policies = book.policies if record.kind == "policy" else book.operator_policies
            policies[record.name] = Policy(
                record.name, record.pattern, record.apply_to, record.priority, record.definition
            )
        for vhost in self.vhosts.values():
            # Those every virtual host has were there before its policies.
            vhost.policies.apply_to_exchanges(list(vhost.exchanges.values()))
        for limit in topology.limits:
            self.limit(limit.scope, limit.owner, limit.name, limit.value)

    def reload(
        self,
        connection_max: int,
        consumer_timeout_ms: int,
        channel_max: int,
        plain_text_passwords: bool,
        address_rules: AddressRules,
    ) -> None:
        """Settings that may change at run time."""
        self.options = self.options._replace(
            connection_max=connection_max,
            consumer_timeout_ms=consumer_timeout_ms,
            channel_max=channel_max,
        )
        self.users.entry.renew(plain_text_passwords, address_rules)

    def cluster_name(self) -> str:
        """As an administrator has set it, else by the settings, else the node's name."""
        named = self.parameters.value(CLUSTER_NAME)
        return str(named or self.options.cluster_name or self.options.node_name)

    def next_policy_epoch(self) -> i64:
        """A virtual host that is made anew under the same name never had the former one's."""
        self.policy_epoch += 1
        return self.policy_epoch

    def limit(self, scope: str, owner: str, name: str, value: int) -> None:
        """How much a user or virtual host may have: connections, channels, queues, budgets."""
        value = max(value, NO_LIMIT)
        if scope == "user":
            self.users.users[owner].limit(name, value)
        else:
            self.vhosts[owner].budget.set(name, value)

    def _bind_all(self, topology: Topology) -> None:
        for binding in topology.bindings:
            vhost = self.vhosts[binding.vhost]
            destination: object
            if binding.destination_type == "queue":
                destination = vhost.queue(binding.destination)
            else:
                destination = vhost.exchange(binding.destination)
            source = vhost.exchange(binding.source)
            source.bind(destination, binding.routing_key, binding.arguments)
            vhost.forget_routes()
            if source.type == NSQ_TOPIC:
                vhost.topics.binding_changed(source, destination)

    def add_vhost(self, name: str, segment_entries: int) -> Vhost:
        """``segment_entries``: of its queues' index, the same as long as it has data."""
        vhost = self.vhost_maker.make(name, segment_entries, self.changes)
        self.vhosts[name] = vhost
        return vhost

    def join(self, changes: Changes) -> None:
        """From now on a node of a cluster: what is asked for is handed in there."""
        self.changes = changes
        for vhost in self.vhosts.values():
            vhost.join(changes)

    def share(self, mirrors: Mirrors, claims: BatchClaims) -> None:
        """From now on queues may have mirrors, and batches are claimed in the cluster."""
        self.mirrors = mirrors
        self.staging.claim_in(claims)

    def remove_vhost(self, vhost: Vhost) -> None:
        """With all that is remembered of its routes; what was in it is gone already."""
        del self.vhosts[vhost.name]
        self.events.note("vhost_deleted", (vhost.name,))
        self.parameters.remove_vhost(vhost.name)
        self.vhost_maker.forget(vhost)
        self.staging.publisher.forget(vhost.name)

    def keep_positions(self) -> None:
        """Of readers of streams, as they are now: the node stops."""
        for vhost in self.vhosts.values():
            for queue in vhost.queues.values():
                if isinstance(queue, StreamQueue):
                    queue.keep_positions()

    # -- for sessions --------------------------------------------------------------------

    def vhost(self, name: str) -> Vhost:
        vhost = self.vhosts.get(name)
        if vhost is None or vhost.closing:
            raise NotFound(f"vhost {name} not found")
        return vhost

    @property
    def connection_count(self) -> int:
        return int(self.traffic.churn.open_connections())

    def enter(self, user: User, name: str) -> Vhost:
        """Raises NotFound, AccessRefused or NotAllowed; Undecided."""
        vhost = self.vhost(name)
        used = vhost.budget
        counts = int(used.connection_count), int(used.max_connections)
        try:
            check_node_limit(self.connection_count, self.options.connection_max)
            check_connection_limits(user.counted, name, *counts)
        except NotAllowed:
            self.users.entry.count(LIMIT)
            raise
        check_enter(user, name)
        return vhost

    def count_connection(self, user: User, vhost: Vhost, more: i64) -> None:
        """1: that user has entered; -1: that connection is over."""
        self.traffic.churn.count_connection(more)
        vhost.budget.count_connection(more)
        user.counted.count_connection(more)

    # -- the turn ------------------------------------------------------------------------

    def wake_readers(self) -> None:
        """Queues for which the disk has brought something."""
        for reader in self.engine.take_readers():
            cast(Queue, reader).disk_came()

    def delete_unused(self) -> list[Consumer]:
        """Delete queues whose ``x-expires`` is over; returns who lost one."""
        lost: list[Consumer] = []
        for queue in self.idleness.take_expired():
            lost.extend(self.vhosts[queue.vhost].delete_queue(queue))
        return lost
