"""A virtual host: the registry of exchanges and queues, and the hall publishes cross.

Everything declared here is durable through ``definitions`` (when it is durable at all)
and takes effect at once; the caller's replies leave only after the definitions were
committed.  ``epoch`` moves with every change of topology: a route is remembered
with its epoch.

Errors are the kinds of ``core.errors`` with RabbitMQ's texts.
"""

from functools import partial
from typing import cast, final

from mypy_extensions import i64

from penstock.backing.interface import BackingQueue
from penstock.broker.rules.arguments import (
    TypeRules,
    check_exchange_arguments,
    check_exchange_type,
    check_local_binding,
    check_properties,
    check_queue_arguments,
    check_stream,
    with_default_type,
)
from penstock.broker.rules.budget import Budget
from penstock.broker.rules.equivalence import check_same_exchange, check_same_queue
from penstock.broker.rules.policies import PolicyBook
from penstock.broker.topology.binding_reaper import BindingReaper, Departure
from penstock.broker.topology.changes import Changes
from penstock.broker.topology.histories import Histories
from penstock.broker.topology.idleness import Idleness
from penstock.broker.topology.internal_queues import InternalQueues, has_internal_queue, is_internal
from penstock.broker.topology.mirror_copies import MirrorCopies
from penstock.broker.topology.queue_maker import IncarnationSource, QueueMaker
from penstock.broker.topology.routes import (
    Route,
    check_not_default,
    count_copies,
    publish_where_room_is,
    queue_limit_reached,
    queues_in,
    record_of,
    share_contents,
    unused,
)
from penstock.broker.topology.topics import Topics, check_topic_exchange
from penstock.core.clock_types import WallMs
from penstock.core.confirm_watermark import PendingConfirms
from penstock.core.counting.traffic import Churn, ExchangeTraffic
from penstock.core.errors import AccessRefused, NotFound, PreconditionFailed
from penstock.core.message import Address, Message
from penstock.core.pending import Pending
from penstock.queues.consumers import Consumer
from penstock.queues.context import QueueIdentity
from penstock.queues.queue import Queue
from penstock.routing.exchanges import (
    NSQ_TOPIC,
    PREDECLARED,
    Exchange,
    Sources,
    inner_type,
    looks_at_headers,
    route,
)
from penstock.routing.matcher import RoutingContext
from penstock.routing.one_of_all import LOCAL_RANDOM
from penstock.routing.steps import RoutingShare
from penstock.storage.definitions.definitions import Definitions
from penstock.storage.definitions.records import (
    NO_METADATA,
    BindingRecord,
    QueueRecord,
    VhostMetadata,
    id_count,
    part_count,
)
from penstock.storage.engine.engine import Engine


@final
class Vhost:
    """One virtual host."""

    def __init__(
        self,
        name: str,
        segment_entries: int,
        definitions: Definitions,
        engine: Engine,
        maker: QueueMaker,
        new_incarnation: IncarnationSource,
        idleness: Idleness,
        sweep: BindingReaper,
        scanned: bool,
        epoch: i64,
        churn: Churn,
        changes: Changes,
        waits: PendingConfirms,
        types: TypeRules,
        histories: Histories,
    ) -> None:
        """``epoch``: above those of earlier ones of this name, whose routes addresses remember."""
        self.name = name
        self.segment_entries = segment_entries
        self.epoch: i64 = epoch
        self.exchanges: dict[str, Exchange] = {}
        self.queues: dict[str, Queue] = {}
        self.queue_ids: dict[str, int] = {}  # of durable queues
        self.policies, self.budget = PolicyBook(), Budget()
        self.metadata = NO_METADATA
        self._types = types
        self.closing: bool = False  # it is being removed: no client enters
        self.tracing: bool = False  # since it was switched on, until the process ends
        self.changes, self.waits = changes, waits
        self._churn = churn
        self.default_traffic = ExchangeTraffic()  # of the exchange without a name
        self.definitions = definitions
        self._engine = engine
        self._maker = maker
        self._new_incarnation = new_incarnation
        self.internal_queues = InternalQueues(
            name, definitions, self._maker.internal, new_incarnation, histories
        )
        self.topics, self.copies = Topics(self, scanned), MirrorCopies(self, maker)
        self.idleness, self._sweep = idleness, sweep
        for exchange_name, kind, internal in PREDECLARED:
            self.exchanges[exchange_name] = Exchange(
                name, exchange_name, kind, True, False, internal, {}, sources=sweep.sources
            )

    @property
    def sources(self) -> Sources:
        """Of all virtual hosts."""
        return self._sweep.sources

    # -- what administrators change --------------------------------------------------------

    def describe(self, metadata: VhostMetadata) -> None:
        self.metadata = metadata

    def trace(self, *, on: bool) -> None:
        self.tracing = on

    def close(self) -> None:
        """It is being removed."""
        self.closing = True

    def keep(self) -> None:
        """It is not removed after all."""
        self.closing = False

    def join(self, changes: Changes) -> None:
        """From now on those of a cluster's node."""
        self.changes = changes

    # -- publishing ----------------------------------------------------------------------

    def route(self, address: Address, context: RoutingContext | None = None) -> Route:
        """Raises NotFound or AccessRefused (internal exchange); hot, remembered in the address.

        ``context``: of the broker's own message.
        """
        if address.route_epoch == self.epoch:
            return cast(Route, address.route)
        found = self._find_route(address, context)
        address.route, address.route_epoch = found, self.epoch
        return found

    def _find_route(self, address: Address, context: RoutingContext | None) -> Route:
        if address.exchange == "":
            queue = self.queues.get(address.routing_key)
            return Route([] if queue is None else [queue], False, self.default_traffic)
        exchange = self.exchange(address.exchange)
        if exchange.internal:
            raise AccessRefused(f"cannot publish to internal {self.exchange_text(exchange.name)}")
        if looks_at_headers(exchange, self.exchanges):
            return Route([], True, exchange.traffic)
        queues = queues_in(route(exchange, address.routing_key, context, self.exchanges))
        return Route(queues, False, exchange.traffic, exchange)

    def publish(self, queues: list[Queue], messages: list[Message], now_ms: WallMs) -> i64:
        """Give the messages to every queue; returns the journal position that makes them safe.

        0 = nothing of it went to the journal.  The first queue takes the objects, the others
        copies that share the bytes, in the message store too.
        """
        journal = self._engine.journal
        before = journal.position
        if len(queues) == 1:
            queues[0].publish(messages, now_ms)
        else:
            count_copies(queues, messages)
            copies = [[message.copy_for_queue() for message in messages] for _ in queues[1:]]
            queues[0].publish(messages, now_ms)
            taken = messages
            for i in range(1, len(queues)):
                share_contents(taken, copies[i - 1])
                taken = copies[i - 1]
                queues[i].publish(taken, now_ms)
        after = journal.position
        return after if after != before else 0

    def publish_some(
        self, queues: list[Queue], messages: list[Message], now_ms: WallMs
    ) -> tuple[i64, set[int]]:
        """As ``publish``, and the places of those that some queue had no room for."""
        before = self._engine.journal.position
        refused = publish_where_room_is(queues, messages, now_ms, self.waits)
        after = self._engine.journal.position
        return after if after != before else 0, refused

    def publish_deferred(
        self, queues: list[Queue], messages: list[Message], until_ms: WallMs, now_ms: WallMs
    ) -> i64:
        """As ``publish``, for consumers from that time on; the objects stay the caller's."""
        before = self._engine.journal.position
        count_copies(queues, messages)
        for queue in queues:
            copies = [message.copy_for_queue() for message in messages]
            queue.publish_deferred(copies, until_ms, now_ms)
            share_contents(copies, messages)
        after = self._engine.journal.position
        return after if after != before else 0

    def reached(
        self, exchange: str, key: str, context: RoutingContext, copies: list[str]
    ) -> list[Queue]:
        """The queues one message reaches, each once; ``copies`` are its further routing keys.

        A missing exchange has none.
        """
        if exchange == "":
            found = [self.queues[one] for one in [key, *copies] if one in self.queues]
            return list(dict.fromkeys(found)) if copies else found
        source = self.exchanges.get(exchange)
        if source is None:
            return []
        return queues_in(route(source, key, context, self.exchanges, copies or None))

    def find_queues(
        self,
        exchange: str,
        key: str,
        headers: dict[str, object],
        copies: list[str],
        now_ms: WallMs,
        share: RoutingShare | None = None,
    ) -> list[Queue]:
        """As ``reached``, of a message of the broker's own: exchanges remember it at once."""
        context = RoutingContext(headers, now_ms, share)
        found = self.reached(exchange, key, context, copies)
        context.remember()
        return found

    def forget_routes(self) -> None:
        """Messages go another way from now on."""
        self.epoch += 1

    # -- names ---------------------------------------------------------------------------

    def exchange(self, name: str) -> Exchange:
        exchange = self.exchanges.get(name)
        if exchange is None:
            raise NotFound(f"no {self.exchange_text(name)}")
        return exchange

    def queue(self, name: str) -> Queue:
        queue = self.queues.get(name)
        if queue is None:
            raise NotFound(f"no {self.queue_text(name)}")
        return queue

    def exchange_text(self, name: str) -> str:
        return f"exchange '{name}' in vhost '{self.name}'"

    def queue_text(self, name: str) -> str:
        return f"queue '{name}' in vhost '{self.name}'"

    # -- exchanges -----------------------------------------------------------------------

    def declare_exchange(
        self,
        name: str,
        kind: str,
        durable: bool,
        auto_delete: bool,
        internal: bool,
        arguments: dict[str, object],
    ) -> None:
        """Create, or check that the existing one is the same."""
        what = self.exchange_text(name)
        check_exchange_type(kind, newer=self._types.newer)
        check_not_default(name)
        existing = self.exchanges.get(name)
        if existing is not None:
            check_same_exchange(existing, what, kind, durable, auto_delete, internal, arguments)
            return
        if name.startswith("amq."):
            raise AccessRefused(f"exchange name '{name}' contains reserved prefix 'amq.*'")
        check_exchange_arguments(kind, arguments, what)
        if kind == NSQ_TOPIC:
            check_topic_exchange(name)
        self.changes.check_memory(arguments)
        if durable:
            self.changes.check_room()
        shape = durable, auto_delete, internal, arguments
        exchange = Exchange(self.name, name, kind, *shape, self._engine.events.user, self.sources)
        if self.changes.proposes:
            self.changes.add_exchange(exchange)
            return
        self.make_exchange(exchange)

    def make_exchange(self, exchange: Exchange) -> None:
        """The declaration was checked."""
        self.add_exchange(exchange)
        shape = exchange.type, exchange.durable, exchange.auto_delete, exchange.internal
        self._note("exchange_declared", (self.name, exchange.name, *shape))
        if exchange.durable:
            self.definitions.put_exchange(record_of(exchange))
        if has_internal_queue(exchange):
            self.internal_queues.open(exchange)
        if exchange.type == NSQ_TOPIC:
            self.topics.attach(exchange)

    def add_exchange(self, exchange: Exchange) -> None:
        self.exchanges[exchange.name] = exchange
        self.policies.apply_to_exchanges([exchange])
        self.forget_routes()

    def delete_exchange(self, name: str, if_unused: bool) -> None:
        """Deleting what does not exist is fine."""
        check_not_default(name)
        if name.startswith("amq."):
            raise AccessRefused(f"deletion of system {self.exchange_text(name)} not allowed")
        exchange = self.exchanges.get(name)
        if exchange is None:
            return
        if if_unused and exchange.has_bindings():
            raise PreconditionFailed(f"{self.exchange_text(name)} in use")
        if self.changes.proposes:
            self.changes.delete_exchange(self, exchange)
            return
        self.remove_exchange(exchange)

    def remove_exchange(self, exchange: Exchange) -> None:
        self._strike(exchange)
        self._forget_destination(exchange)

    def _strike(self, exchange: Exchange) -> None:
        del self.exchanges[exchange.name]
        self._note("exchange_deleted", (self.name, exchange.name))
        if exchange.type == NSQ_TOPIC:
            self.topics.detach(exchange)
        self.internal_queues.close(exchange)
        exchange.close()
        self._sweep.add(exchange)
        if exchange.durable:
            self.definitions.delete_exchange(self.name, exchange.name)

    def _forget_destination(self, destination: object) -> None:
        """Remove what leads there; auto-delete exchanges go with their last binding."""
        self.forget_routes()
        self._maker.start(Departure(self, destination))

    def leave(self, exchange: Exchange, destination: object) -> bool:
        """Remove its bindings to what is deleted; True = it was deleted with the last of them."""
        if not exchange.dismiss(destination):
            return False
        self._sweep.add(exchange)
        if self._is_unused(exchange):
            self._strike(exchange)
            return True
        if exchange.type == NSQ_TOPIC:
            self.topics.binding_changed(exchange, destination)
        return False

    def _is_unused(self, exchange: Exchange) -> bool:
        """Does it go with its last binding?  In a cluster it goes when all agree that it does."""
        return unused(exchange) and not self.changes.follows

    def _note(self, kind: str, facts: tuple[object, ...]) -> None:
        self._engine.events.note(kind, facts)

    # -- bindings ------------------------------------------------------------------------

    def bind_queue(
        self, queue: Queue, source: str, routing_key: str, arguments: dict[str, object]
    ) -> Pending | None:
        """None: all is done that belongs to it."""
        kept = queue.name in self.queue_ids  # not an exclusive one, though it is called durable
        record = BindingRecord(self.name, source, queue.name, "queue", routing_key, arguments)
        return self._bind(record, queue, kept)

    def bind_exchange(
        self, destination: str, source: str, routing_key: str, arguments: dict[str, object]
    ) -> Pending | None:
        check_not_default(destination)
        check_not_default(source)
        self.exchange(source)  # missing both, the source is the one to be told
        target = self.exchange(destination)
        record = BindingRecord(self.name, source, destination, "exchange", routing_key, arguments)
        return self._bind(record, target, target.durable)

    def _bind(self, record: BindingRecord, destination: object, kept: bool) -> Pending | None:
        check_not_default(record.source)
        exchange = self.exchange(record.source)
        key, arguments = record.routing_key, record.arguments
        if exchange.find(destination, key, arguments) is not None:
            return None
        self.changes.check_memory(arguments)
        if exchange.durable and kept:
            self.changes.check_room()
        exchange.matcher.check(key, arguments)
        if LOCAL_RANDOM in (exchange.type, inner_type(exchange.arguments)):
            check_local_binding(destination, key)
        if exchange.type == NSQ_TOPIC and isinstance(destination, Queue):
            self.topics.check_binding(exchange, destination)
        if self.changes.proposes:
            self.changes.bind(record, exchange, destination)
            return self._fill(exchange, destination)
        self._make_binding(record, exchange, destination, exchange.durable and kept)
        return None if self.changes.applies() else self._fill(exchange, destination)

    def _fill(self, exchange: Exchange, destination: object) -> Pending | None:
        """What was bound gets what the exchange remembers."""
        if not exchange.remembers:
            return None
        return self.changes.then(
            partial(self.internal_queues.histories.replay, self, exchange, destination)
        )

    def _make_binding(
        self, record: BindingRecord, exchange: Exchange, destination: object, kept: bool
    ) -> None:
        exchange.bind(destination, record.routing_key, record.arguments)
        self._note("binding_added", _facts_of(record))
        self.forget_routes()
        if exchange.type == NSQ_TOPIC:
            self.topics.binding_changed(exchange, destination)
        if kept:
            self.definitions.put_binding(record)
        if exchange.remembers:
            self.internal_queues.bound(exchange)

    def unbind_queue(
        self, queue: Queue, source: str, routing_key: str, arguments: dict[str, object]
    ) -> None:
        record = BindingRecord(self.name, source, queue.name, "queue", routing_key, arguments)
        self._unbind(record, queue)

    def unbind_exchange(
        self, destination: str, source: str, routing_key: str, arguments: dict[str, object]
    ) -> None:
        check_not_default(destination)
        target = self.exchanges.get(destination)
        if target is not None:
            record = BindingRecord(
                self.name, source, destination, "exchange", routing_key, arguments
            )
            self._unbind(record, target)

    def _unbind(self, record: BindingRecord, destination: object) -> None:
        check_not_default(record.source)
        exchange = self.exchanges.get(record.source)
        # What is not bound need not be unbound: all of these are fine.
        if exchange is None:
            return
        if self.changes.proposes:
            self.changes.unbind(self, record, exchange, destination)
            return
        if not exchange.unbind(destination, record.routing_key, record.arguments):
            return
        self.forget_routes()
        self._note("binding_removed", _facts_of(record))
        self.definitions.delete_binding(record)
        if self._is_unused(exchange):
            self.remove_exchange(exchange)
        elif exchange.type == NSQ_TOPIC:
            self.topics.binding_changed(exchange, destination)

    # -- queues --------------------------------------------------------------------------

    def typed(
        self, arguments: dict[str, object], durable: bool, exclusive: bool, auto_delete: bool
    ) -> dict[str, object]:
        """The arguments that a user gives a queue, and the default type where they name none."""
        kind = self.metadata.default_queue_type or self._types.default_type
        return with_default_type(arguments, kind, durable, exclusive, auto_delete)

    def declare_queue(
        self,
        name: str,
        durable: bool,
        owner: object,
        auto_delete: bool,
        arguments: dict[str, object],
    ) -> Queue | None:
        """Create, or check that the existing one is the same; ``owner`` makes it exclusive.

        None = a cluster has to agree on it first.
        """
        self._churn.queue_declared()
        existing = self.queues.get(name)
        if existing is not None:
            relaxed = self._types.relaxed
            check_same_queue(existing, durable, owner, auto_delete, arguments, relaxed=relaxed)
            self.touch(existing)
            return existing
        limit = self.budget.max_queues
        if 0 <= limit <= len(self.queues):
            raise queue_limit_reached(name, self.name, limit)
        what = self.queue_text(name)
        check_queue_arguments(arguments, what, owner is not None)
        check_properties(arguments, what, durable, owner is not None, auto_delete)
        check_stream(arguments)
        self.changes.check_memory(arguments, part_count(arguments))
        if durable and owner is None:
            self.changes.check_room()
        incarnation = self._new_incarnation()
        if self.changes.proposes:
            self.changes.add_queue(self, name, incarnation, durable, owner, auto_delete, arguments)
            return None
        who, user = (self.name, name, incarnation), self._engine.events.user
        identity = QueueIdentity(*who, durable, auto_delete, arguments, user)
        return self.make_queue(identity, owner)

    def make_queue(self, one: QueueIdentity, owner: object) -> Queue:
        """Its declaration was checked."""
        queue_id = 0
        # An exclusive queue dies with its connection, so with the process: nothing to keep.
        kept = one.durable and owner is None
        if kept:
            queue_id = self.definitions.next_queue_id(id_count(one.arguments))
        queue = self._make_queue(queue_id, kept, one)
        queue.owner = owner
        self._churn.queue_created()
        self.touch(queue)
        if kept:
            who = (queue_id, one.incarnation, self.name, one.name)
            record = QueueRecord(*who, one.auto_delete, one.arguments, user=one.user)
            self.definitions.put_queue(record)
        return queue

    def recover_queue(self, record: QueueRecord) -> Queue:
        """Open a durable queue again; its messages are the node's business."""
        if is_internal(record.name):
            return self.internal_queues.recover(record, self.exchanges)
        who = (self.name, record.name, record.incarnation)
        identity = QueueIdentity(*who, True, record.auto_delete, record.arguments, record.user)
        queue = self._make_queue(record.queue_id, True, identity)
        if record.paused:
            queue.set_paused(True)
        self.touch(queue)
        return queue

    def _make_queue(self, queue_id: int, kept: bool, identity: QueueIdentity) -> Queue:
        queue = self._maker.make(queue_id, kept, identity)
        self.enter_queue(queue)
        if kept:
            self.queue_ids[identity.name] = queue_id
        return queue

    def apply_settings(self, queue: Queue) -> None:
        self.policies.queue_settings(queue.name, queue.arguments).apply_to(queue)

    def enter_queue(self, queue: Queue) -> None:
        self.apply_settings(queue)
        self.queues[queue.name] = queue
        self.forget_routes()

    def durable_backings(self) -> list[BackingQueue]:
        """Of all whose messages the disk keeps, internal queues and copies too."""
        queues = [self.queues[name] for name in self.queue_ids]
        queues += [one for one in self.internal_queues.queues.values() if one.durable]
        return [queue.backing for queue in queues] + self.copies.backings()

    def delete_queue(self, queue: Queue) -> list[Consumer]:
        """Remove it and everything in it; returns the consumers who lost it."""
        if self.changes.proposes:
            self.changes.delete_queue(self, queue)
            return []
        del self.queues[queue.name]
        self._churn.queue_deleted()
        if queue.name in self.queue_ids:
            del self.queue_ids[queue.name]
            self.definitions.delete_queue(self.name, queue.name)
        self.copies.forget(queue)
        consumers = self._maker.end(queue)
        self._forget_destination(queue)
        return consumers

    # -- time ----------------------------------------------------------------------------

    def touch(self, queue: Queue) -> None:
        """The queue was used: its ``x-expires`` starts again."""
        self.idleness.touch(queue)


def _facts_of(binding: BindingRecord) -> tuple[object, ...]:
    """As events name them."""
    target = binding.destination, binding.destination_type
    return binding.vhost, binding.source, *target, binding.routing_key
