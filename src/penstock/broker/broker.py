"""The broker: all virtual hosts, all users, and the one turn that moves messages out.

The node feeds sessions, sessions call virtual hosts, and at the end of each turn of the
loop the node asks ``take_wakeups`` which queues may have something to deliver.
"""

from collections.abc import Callable
from typing import Final, cast, final

from mypy_extensions import i64

from penstock.backing.factory import adopt, found_priorities
from penstock.broker.budgets import Budgets
from penstock.broker.mirrors import Mirrors
from penstock.broker.options import BrokerOptions, default_options
from penstock.broker.parameters import CLUSTER_NAME, Parameters
from penstock.broker.pipelines import PipelineRegistry
from penstock.broker.rules.access import NO_LIMIT, User
from penstock.broker.rules.admission import Admission
from penstock.broker.rules.alarms import Alarms
from penstock.broker.rules.log_ins import LogIns
from penstock.broker.rules.policies import Policy
from penstock.broker.topology.binding_reaper import BindingReaper
from penstock.broker.topology.changes import Changes
from penstock.broker.topology.histories import Histories
from penstock.broker.topology.idleness import Idleness
from penstock.broker.topology.internal_queues import is_backlog, is_staged
from penstock.broker.topology.mirror_copies import is_copy
from penstock.broker.topology.queue_maker import BackingFactory, IncarnationSource, QueueMaker
from penstock.broker.topology.routes import check_connection_limits, check_node_limit
from penstock.broker.topology.vhost import Vhost
from penstock.broker.transfers.batch_claims import BatchClaims
from penstock.broker.transfers.dead_letters import DeadLetters
from penstock.broker.transfers.deferred_trim import DeferredTrim
from penstock.broker.transfers.delays import Delays
from penstock.broker.transfers.replies import Replies
from penstock.broker.transfers.room_routes import RoomRoutes
from penstock.broker.transfers.staged_publisher import StagedPublisher
from penstock.broker.transfers.staging import Staging
from penstock.broker.transfers.traces import Traces
from penstock.core.clock_types import MonoMs, WallMs
from penstock.core.confirm_watermark import PendingConfirms
from penstock.core.errors import AccessRefused, NotFound
from penstock.core.event_book import EventBook
from penstock.core.headers import HeaderReader
from penstock.core.histogram import Histogram
from penstock.core.letters import HeaderWriter
from penstock.core.traffic import Churn, TrafficBook
from penstock.queues.consumers import Consumer
from penstock.queues.context import QueueContext
from penstock.queues.local import LocalQueue
from penstock.queues.queue import Queue
from penstock.queues.sampling import Sampling
from penstock.queues.scan_loop import ScanLoop
from penstock.queues.schedule import Schedule
from penstock.routing.exchanges import NSQ_TOPIC, Exchange
from penstock.storage.definitions.definitions import Definitions
from penstock.storage.definitions.records import Topology
from penstock.storage.engine.engine import Engine
from penstock.storage.engine.recovery import FoundQueue

ROOM_WAITS_MS: Final[i64] = 20
"""A backlog that would move faster than the disk takes it looks again after so long."""
DUE_AT_ONCE: Final[i64] = 64
"""Queues whose time has come, in one turn: with hundreds, the first would wait for the last."""
UNSTAMPED: Final[i64] = 0
KEEP: Final[i64] = 1
OVERWRITE: Final[i64] = 2
"""What ``Broker.stamping`` may be: whether published messages get a timestamp."""


@final
class Broker:
    """What the rooms above share."""

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
        self.changes = Changes(self.admission)
        self.mirrors = Mirrors()
        self.engine = engine
        self.vhosts: dict[str, Vhost] = {}
        self.connection_count: i64 = 0
        self.connection_max: i64 = options.connection_max
        self.consumer_timeout_ms: i64 = options.consumer_timeout_ms
        self.stamping: i64 = options.stamping
        self.flow = options.flow
        self._options = options
        self.types: Final = options.types
        self.events = EventBook()
        self.users = LogIns(self.events, loopback_users)
        self.traffic = TrafficBook()
        self.churn = Churn()
        self.waits = PendingConfirms()  # of publishes, for other nodes
        self.confirm_times = Histogram()
        sampling = Sampling(self.events, options.publish_times)
        self.queue_context = QueueContext(self.waits, self.flow.book, sampling)
        engine.events = self.events
        self.pipelines = PipelineRegistry()
        self.node_name: str = options.node_name
        self._epochs_used: i64 = 0  # by virtual hosts that are gone
        self.policy_epoch: i64 = 0  # moves when any policy changes, anywhere
        self.parameters = Parameters()
        self.schedule = Schedule()  # of messages' times
        self.idleness = Idleness()
        self.scan: ScanLoop | None = options.scan
        self.sweep = BindingReaper(definitions)
        self.letting_go = DeferredTrim()
        self.histories = Histories(self.events, letter_writer)
        self.replies = Replies()
        self.dead_letters = DeadLetters(
            self.vhosts, self.replies, letter_writer, engine.journal, self.queue_context
        )
        self.rooms = RoomRoutes(self.sort_room)
        self.traces = Traces(self.vhosts, letter_writer)
        self.delays = Delays(
            self.vhosts, self.schedule, header_reader, letter_writer, self.dead_letters.settle_later
        )
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
        self._deliver_from: Callable[[Queue, WallMs], None] = _deliver_nothing
        self.header_reader = header_reader
        self._letter_writer = letter_writer
        self._make_backing = make_backing
        self._new_incarnation = new_incarnation

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
            self.vhosts[exchange.vhost].add_exchange(
                Exchange(
                    exchange.vhost,
                    exchange.name,
                    exchange.type,
                    True,
                    exchange.auto_delete,
                    exchange.internal,
                    exchange.arguments,
                )
            )
        for queue_record in topology.queues:
            vhost = self.vhosts[queue_record.vhost]
            if is_copy(queue_record.name):
                vhost.copies.recover(queue_record)
                continue
            queue = vhost.recover_queue(queue_record)
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
            queue = vhost.rooms.rooms.get(record.name) or vhost.queues[record.name]
            if queue.is_quorum and isinstance(queue, LocalQueue):
                for priority in found_priorities(record.queue_id, found):
                    queue.open_priority(priority)
            adopt(queue.backing, found)
            if isinstance(queue, LocalQueue) and queue.releases_to is None:
                queue.defer_what_is_delayed()
            # Ready messages of a waiting room are sorted, those over a length limit are dropped.
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

    def reload(self, connection_max: i64, consumer_timeout_ms: i64) -> None:
        """Settings that may change at run time."""
        self.connection_max = connection_max
        self.consumer_timeout_ms = consumer_timeout_ms

    def cluster_name(self) -> str:
        """As an administrator has set it, else by the settings, else the node's name."""
        named = self.parameters.value(CLUSTER_NAME)
        return str(named or self._options.cluster_name or self.node_name)

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
        maker = QueueMaker(name, segment_entries, self._make_backing, self.queue_context)
        vhost = Vhost(
            name,
            segment_entries,
            self.definitions,
            self.engine,
            maker,
            self._new_incarnation,
            self.idleness,
            self.sweep,
            lambda: self.scan is not None,
            self._epochs_used,
            self.churn,
            self.changes,
            self.waits,
            self.types,
            self.histories,
        )
        vhost.topics.measure(
            list(self._options.latency_targets),
            self._options.latency_window_ms,
            self._options.publish_time,
        )
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
        self._epochs_used = max(self._epochs_used, vhost.epoch + 1)
        self.staging.pouring.forget(vhost.name)

    # -- for sessions --------------------------------------------------------------------

    def vhost(self, name: str) -> Vhost:
        vhost = self.vhosts.get(name)
        if vhost is None or vhost.closing:
            raise NotFound(f"vhost {name} not found")
        return vhost

    def enter(self, user: User, name: str) -> Vhost:
        """Raises NotFound, AccessRefused or NotAllowed."""
        vhost = self.vhost(name)
        check_node_limit(int(self.connection_count), int(self.connection_max))
        used = vhost.budget
        check_connection_limits(user, name, int(used.connection_count), int(used.max_connections))
        if name not in user.vhosts:
            raise AccessRefused(f"access to vhost '{name}' refused for user '{user.name}'")
        return vhost

    def count_connection(self, user: User, vhost: Vhost, more: i64) -> None:
        """1: that user has entered; -1: that connection is over."""
        self.churn.count_connection(more)
        self.connection_count += more
        vhost.budget.count_connection(more)
        user.count_connection(more)

    # -- the turn ------------------------------------------------------------------------

    def deliver_with(self, deliver_from: Callable[[Queue, WallMs], None]) -> None:
        """``deliver_from`` hands what a queue has to the sessions of its consumers."""
        self._deliver_from = deliver_from

    def sort_room(self, room: Queue, now_ms: WallMs) -> None:
        """Something in a waiting room may go on."""
        room.begin_turn()
        if room.deleted:
            return
        if is_staged(room.name):
            self.staging.woken(room)
            return
        exchange = cast(Exchange, room.releases_to)
        if not exchange.delays and self.flow.journal_behind:
            self.schedule.plan(WallMs(now_ms + ROOM_WAITS_MS), room)
            return
        share = self.rooms.share_for(room)
        if share is None:
            return
        if exchange.delays:
            self.delays.sort(room, share, now_ms)
        else:
            topics = self.vhosts[room.vhost].topics
            letters, settle_later = self._letter_writer, self.dead_letters.settle_later
            topics.move(exchange, letters, settle_later, share, now_ms)

    def _release_room(self, room: Queue, now_ms: WallMs) -> None:
        if cast(Exchange, room.releases_to).delays:
            self.delays.release(room, now_ms)
        else:
            room.wake()

    def take_wakeups(self) -> list[Queue]:
        """Queues that may have something to deliver; they ask again when they do."""
        awake = self.queue_context.wakeups[:]
        self.queue_context.wakeups.clear()
        return awake

    def scan_channels(self, now_ms: WallMs) -> bool:
        """Let the scan loop, if there is one, look at some; True = it would go on at once."""
        scan = self.scan
        if scan is None:
            return False
        if scan.wants_channels(now_ms):
            queues: list[Queue] = []
            for vhost in self.vhosts.values():
                queues.extend(vhost.topics.channel_queues())
            scan.refresh(queues, now_ms)
        return scan.step(now_ms)

    def next_due_ms(self) -> WallMs:
        """When something is due, as far as time alone makes it; 0 = nothing is."""
        next_ms = WallMs(self.schedule.next_ms())
        scan = self.scan
        if scan is None or 0 < next_ms < scan.next_ms():
            return next_ms
        return scan.next_ms()

    def wake_readers(self) -> None:
        """Queues for which the disk has brought something."""
        for reader in self.engine.take_readers():
            cast(Queue, reader).wake()

    def take_wakeup(self, queue: Queue) -> None:
        """This one, which is awake, out of its turn."""
        self.queue_context.wakeups.remove(queue)
        queue.begin_turn()

    def wake_behind(self, queue: Queue) -> None:
        """Its turn comes after those of queues that have asked already."""
        if queue.awake:
            self.take_wakeup(queue)
        queue.wake()

    def serve_consumers(self, queue: Queue, now_ms: WallMs) -> None:
        """Before a client polls the queue: consumers that wait with room have their turn first."""
        while queue.spare_room() > 0:
            if queue.awake:
                self.take_wakeup(queue)
            self._deliver_from(queue, now_ms)
            if not queue.awake:
                break

    def wake_refills(self) -> None:
        """The moment is over: consumers with nearly full windows get their refill now."""
        for queue in self.queue_context.refills:
            queue.refilled()
        self.queue_context.refills.clear()

    def expire_messages(self, queue: Queue, now_ms: WallMs) -> None:
        """Drop what is over its time, and be called again when the next one is."""
        queue.expire(now_ms)
        self.schedule.plan(queue.next_due_ms(), queue)

    def delete_unused(self) -> list[Consumer]:
        """Delete queues whose ``x-expires`` is over; returns who lost one."""
        lost: list[Consumer] = []
        for queue in self.idleness.take_expired():
            lost.extend(self.vhosts[queue.vhost].delete_queue(queue))
        return lost

    def visit_due(self, now_ms: WallMs) -> None:
        """Expire or release messages whose time has come.

        Of many queues that are due the first ones: what they let out leaves before the next are
        looked at, and the schedule says that there are more.  All are taken before any is visited:
        a queue that is due again at once waits for its next turn.
        """
        for queue in self._due(now_ms):
            if not queue.deleted:
                self._visit_due(queue, now_ms)

    def _due(self, now_ms: WallMs) -> list[Queue]:
        """Entries that a later one has replaced cost nothing and do not count."""
        found: list[Queue] = []
        while len(found) < DUE_AT_ONCE:
            entries = self.schedule.take_due(now_ms, DUE_AT_ONCE - len(found))
            if len(entries) == 0:
                break
            for when_ms, queue in entries:
                if not queue.deleted and when_ms == queue.expiry_due_ms:
                    found.append(queue)
        return found

    def _visit_due(self, queue: Queue, now_ms: WallMs) -> None:
        queue.visited()
        if queue.releases_to is not None:
            self._release_room(queue, now_ms)
        else:
            self.expire_messages(queue, now_ms)


def _deliver_nothing(queue: Queue, now_ms: WallMs) -> None:
    """In a broker without a turn."""
