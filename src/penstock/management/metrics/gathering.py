"""The numbers of a page of metrics, read on the data loop some dozens of objects at a time.

An object is a row of numbers in the order of its families (``Columns``).
"""

import gc
from array import array
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final, NamedTuple, ParamSpec, TypeVar, cast

from penstock.broker.administration import CLUSTER_ID
from penstock.clocks import wall_ms
from penstock.core.counting.histogram import Histogram
from penstock.core.counting.traffic import PROTOCOLS, DropCounters
from penstock.management.facts.on_loop import SLICE, OnLoop, Part, portions
from penstock.management.facts.rows import Row
from penstock.management.facts.sessions import ChannelFacts, ConnectionFacts, ListenerFacts
from penstock.management.facts.storage_view import listed_fields, storage_row
from penstock.management.metrics.families import CHANNEL as CHANNEL_FAMILIES
from penstock.management.metrics.families import CONNECTION as CONNECTION_FAMILIES
from penstock.management.metrics.families import QUEUE as QUEUE_FAMILIES
from penstock.management.metrics.families import labels
from penstock.management.rows.view import BrokerView
from penstock.management.statistics.completing import Statistics
from penstock.management.statistics.node_facts import NodeFacts
from penstock.management.statistics.reading import SHOWN
from penstock.management.statistics.sampler import StatisticsSampler
from penstock.queues.context import queue_type
from penstock.queues.queue import Queue
from penstock.queues.stream_description import stream_numbers

T = TypeVar("T")
P = ParamSpec("P")
Numbers = tuple[int, ...]
Client = tuple[str, str, str, Numbers]
"""Name, virtual host, protocol, numbers."""

PROTOCOL_NAMES: Final = {"AMQP 0-9-1": "amqp091", "NSQ V2": "nsq"}
QUEUE_FIELDS: Final = (
    "messages_ram", "message_bytes_ram", "messages_ready_ram", "messages_unacknowledged_ram",
    "message_bytes", "message_bytes_ready", "message_bytes_unacknowledged", "messages_paged_out",
    "message_bytes_paged_out",
)  # fmt: skip
"""Of a queue's row, in the order of the families from its fifth on."""
STATES: Final = (("alpha", ("q1", "q4")), ("beta", ("q2", "q3")))
"""Where messages rest: with content in memory; with perhaps only a position there.  The third
state, delta, is on disk only."""


NO_STATUS: Final[dict[str, object]] = {
    "delta": [0, 0, 0],
    **dict.fromkeys((name for _, names in STATES for name in names), 0),
}
"""Of a stream."""


class Columns:
    """Numbers of many objects, column by column.

    A page may have a million of them, so they are not objects themselves: those would keep the
    collector of garbage, and with it the data loop, busy for longer than reading them does.
    ``labels`` are spelt once for all families; ``groups``: the protocol, or a queue's type.
    """

    def __init__(self, width: int) -> None:
        self.columns = [array("q") for _ in range(width)]
        self.labels: list[str] = []
        self.more_labels: list[str] = []  # as some families want them
        self.groups: list[str] = []

    def add(self, label_text: str, more: str, group: str, numbers: Sequence[int]) -> None:
        self.labels.append(label_text)
        self.more_labels.append(more)
        self.groups.append(group)
        for column, number in zip(self.columns, numbers, strict=True):
            column.append(number)

    def __len__(self) -> int:
        return len(self.labels)

    def sum(self, place: int) -> int:
        return sum(self.columns[place])

    def sum_of(self, group: str, place: int) -> int:
        pairs = zip(self.groups, self.columns[place], strict=True)
        return sum(number for one, number in pairs if one == group)


QUEUE_WIDTH: Final = len(QUEUE_FAMILIES)
STATES_AT: Final = QUEUE_WIDTH
"""Alpha, beta and delta."""
OWN_AT: Final = STATES_AT + len(STATES) + 1
"""In flight with a deadline, deferred, seconds in flow."""
STREAM_AT: Final = OWN_AT + 3
"""``stream_numbers``."""
PUBLISHES_AT: Final = len(CONNECTION_FAMILIES)
"""Of connections: whether they published, and how many consumers they have."""
CONSUMERS_AT: Final = PUBLISHES_AT + 1


class NodeNumbers(NamedTuple):
    """What is one of a kind."""

    row: Row
    cluster_name: str
    cluster_id: str
    churn: dict[str, int]
    traffic: dict[str, Numbers]
    buried: dict[str, int]
    dropped: dict[str, int]
    storage: Row
    flow: Row
    pipelines: list[Row]
    log_ins: dict[str, tuple[int, int]]  # by protocol: all, and those that failed
    confirms: Histogram
    residence: Histogram
    shovels: dict[str, Counter[str]]  # by kind, then by state
    federation_links: Counter[str]  # by status
    mirror_changes: dict[str, int]
    expiries: list[tuple[str, str, int, int]]
    """Protocol of a listener, the setting of a certificate, the port, and when it expires."""
    refused: dict[str, int]  # connections and log-ins, by reason
    audit_dropped: int
    locked_out: int  # users, or users at an address
    spans: dict[str, int]  # of traces, by what became of them
    asked: list[tuple[str, tuple[int, int]]]
    """Backends that ask servers, and their requests that were answered and were not."""


class Gathering:
    """Of one page; every read is a short call on the data loop."""

    def __init__(
        self,
        view: BrokerView,
        on_loop: OnLoop,
        node: NodeFacts,
        statistics: Statistics,
        sampler: StatisticsSampler,
        own_listeners: Sequence[ListenerFacts] = (),
        refused: Callable[[], dict[str, int]] = dict,
    ) -> None:
        """``own_listeners``: of the management API; ``refused``: connections, by reason."""
        self._refused = refused
        self._own_listeners = own_listeners
        self.view = view
        self.statistics = statistics
        self.sampler = sampler
        self._on_loop = on_loop
        self._node = node

    # -- on management's side ------------------------------------------------------------------

    async def vhosts(self) -> list[str]:
        return await self._on_loop(self.view.vhost_names)

    async def queues(self, vhosts: Sequence[str]) -> Columns:
        table = Columns(STREAM_AT + 4)
        for vhost in vhosts:
            names = await self._on_loop(self._queue_names, vhost)
            for start in range(0, len(names), SLICE):
                some = names[start : start + SLICE]
                for name, kind, numbers in await self._on_loop(self._queues, vhost, some):
                    shown = labels(vhost=vhost, queue=name)
                    table.add(shown, labels(queue_vhost=vhost, queue=name), kind, numbers)
        return table

    async def exchanges(self, vhosts: Sequence[str]) -> Columns:
        """How many bindings leave each, but for the default exchange and internal ones."""
        table = Columns(1)
        for vhost in vhosts:
            names = await self._on_loop(self._exchange_names, vhost)
            for start in range(0, len(names), SLICE):
                some = names[start : start + SLICE]
                for name, kind, count in await self._on_loop(self._exchanges, vhost, some):
                    shown = labels(vhost=vhost, exchange=name, type=kind)
                    table.add(shown, "", "", (count,))
        return table

    async def clients(self, vhosts: Sequence[str]) -> tuple[Columns, Columns]:
        """Connections, and their channels.  RabbitMQ labels both as channels."""
        connections = Columns(CONSUMERS_AT + 1)
        channels = Columns(len(CHANNEL_FAMILIES))
        last: Client | None = None  # as far as its channels were read
        async for some, theirs in self._parts():
            for one in some:
                if last is not None and last[0] == one[0]:
                    last = _with_more_channels(last, one)
                    continue
                if last is not None:
                    _add(connections, last, vhosts)
                last = one
            for one in theirs:
                _add(channels, one, vhosts)
        if last is not None:
            _add(connections, last, vhosts)
        return connections, channels

    async def _parts(self) -> AsyncIterator[tuple[list[Client], list[Client]]]:
        sessions = await self._on_loop(self.view.watch.sessions)
        for start in range(0, len(sessions), SLICE):
            some = sessions[start : start + SLICE]
            for portion in portions(await self._on_loop(self.view.clients.channel_numbers, some)):
                yield await self._on_loop(self._clients, portion)

    async def node(self) -> NodeNumbers:
        return await self._on_loop(self._numbers, self._node.row())

    # -- on the data loop ----------------------------------------------------------------------

    def _queue_names(self, vhost: str) -> list[str]:
        found = self.view.broker.vhosts.get(vhost)
        return [] if found is None else list(found.queues)

    def _queues(self, vhost: str, names: Sequence[str]) -> list[tuple[str, str, Numbers]]:
        found = self.view.broker.vhosts.get(vhost)
        if found is None:
            return []
        queues = [(name, found.queues[name]) for name in names if name in found.queues]
        return [
            # Other queues are reported by the node of their master: scrape all nodes and add up.
            (name, queue_type(queue.arguments), _queue_numbers(queue))
            for name, queue in queues
            if not queue.remote
        ]

    def _exchange_names(self, vhost: str) -> list[str]:
        found = self.view.broker.vhosts.get(vhost)
        return [] if found is None else [name for name in found.exchanges if name != ""]

    def _exchanges(self, vhost: str, names: Sequence[str]) -> list[tuple[str, str, int]]:
        found = self.view.broker.vhosts.get(vhost)
        known = {} if found is None else found.exchanges
        return [
            (name, known[name].type, sum(len(ways) for ways in known[name].bound.values()))
            for name in names
            if name in known and not known[name].internal
        ]

    def _clients(self, parts: Sequence[Part]) -> tuple[list[Client], list[Client]]:
        connections: list[Client] = []
        channels: list[Client] = []
        for session, channel_numbers, _ in parts:
            facts = self.view.watch.connection(session)
            if facts is None:
                continue
            protocol = PROTOCOL_NAMES.get(facts.protocol, facts.protocol)
            publishes, consumers = 0, 0
            for channel in self.view.watch.channels(session, channel_numbers):
                publishes |= int(channel.traffic[0] > 0)
                consumers += channel.consumer_count
                name = f"{facts.name} ({channel.number})"
                channels.append((name, facts.vhost, protocol, _channel_numbers(channel)))
            numbers = (*_connection_numbers(facts), publishes, consumers)
            connections.append((facts.name, facts.vhost, protocol, numbers))
        return connections, channels

    def _numbers(self, row: Row) -> NodeNumbers:
        view = self.view
        broker = view.broker
        row["sockets_used"] = len(view.watch.sessions())
        spans = broker.queue_context.sampling.spans
        return NodeNumbers(
            row,
            broker.cluster_name(),
            str(broker.parameters.value(CLUSTER_ID)),
            view.cluster_counts(),
            {protocol: broker.traffic.total(protocol) for protocol in PROTOCOLS},
            _fates(broker.dead_letters.fates),
            _fates(broker.queue_context.dropped),
            storage_row(broker.engine, view.watch.disk(), None),
            view.watch.flow(),
            broker.pipelines.rows(broker.vhosts, wall_ms()),
            broker.users.counts(),
            broker.traffic.confirm_times,
            broker.queue_context.sampling.times,
            _by_kind(view.watch.links.shovels()),
            Counter(str(row["status"]) for row in view.watch.links.federation_links()),
            broker.mirrors.changes(),
            [
                (one.protocol, key, one.port, min(dates))
                for one in (*view.watch.listeners(), *self._own_listeners)
                for key, dates in one.expiry_dates.items()
                if dates
            ],
            {
                **self._refused(),
                **{reason: int(n) for reason, n in broker.users.entry.counts.items()},
            },
            int(broker.events.unrecorded),
            len(broker.users.lockouts()),
            {"exported": int(spans.exported_count), "dropped": int(spans.dropped_count)},
            [
                (one.name, counts)
                for one in broker.users.backends()
                if (counts := one.requests()) is not None
            ],
        )


def _by_kind(shovels: Sequence[Row]) -> dict[str, Counter[str]]:
    return {
        kind: Counter(str(row["state"]) for row in shovels if row["type"] == kind)
        for kind in ("dynamic", "static")
    }


def _add(table: Columns, client: Client, vhosts: Sequence[str]) -> None:
    name, vhost, protocol, numbers = client
    if vhost in vhosts:
        table.add(labels(channel=name), labels(channel=name, vhost=vhost), protocol, numbers)


def _with_more_channels(before: Client, client: Client) -> Client:
    """A connection of which some channels were read before, and these now."""
    name, vhost, protocol, numbers = client
    publishes, consumers = before[3][PUBLISHES_AT:]
    more = (numbers[PUBLISHES_AT] | publishes, numbers[CONSUMERS_AT] + consumers)
    return name, vhost, protocol, (*numbers[:PUBLISHES_AT], *more)


def _fates(fates: DropCounters) -> dict[str, int]:
    return {
        "expired": int(fates.expired),
        "rejected": int(fates.rejected),
        "too_many": int(fates.too_many),
        "tried_too_often": int(fates.tried_too_often),
    }


def _connection_numbers(facts: ConnectionFacts) -> Numbers:
    return (
        facts.received_bytes,
        facts.sent_bytes,
        facts.received_count,
        facts.sent_count,
        1 if facts.unsent_bytes else 0,
        facts.channel_count,
    )


def _channel_numbers(channel: ChannelFacts) -> Numbers:
    return (
        channel.consumer_count,
        channel.unacknowledged_count,
        channel.unconfirmed_count,
        channel.uncommitted_count,
        channel.uncommitted_ack_count,
        channel.prefetch,
        channel.shared_prefetch,
        *channel.traffic[:SHOWN],
    )


def _queue_numbers(queue: Queue) -> Numbers:
    row = listed_fields(queue.backing)
    ready, unacked = int(queue.backing.ready_count()), int(queue.unacked_count)
    parts = queue.backing.parts()
    status = cast(dict[str, object], row.get("backing_queue_status", NO_STATUS))
    delta = cast(list[int], status["delta"])[2]
    leases, flow = queue.leases, queue.flow
    return (
        ready,
        unacked,
        ready if queue.is_stream else ready + unacked,
        len(queue.consumers),
        *(cast(int, row.get(name, 0)) for name in QUEUE_FIELDS),
        sum(int(part.ram_bytes()) for part in parts),
        sum(int(part.records.disk_reads) for part in parts),
        sum(int(part.records.disk_writes) for part in parts),
        int(queue.statistics.published_count),
        *(sum(cast(int, status[name]) for name in names) for _, names in STATES),
        delta,
        0 if leases is None else int(leases.count()),
        int(queue.deferred_count()),
        0 if flow is None else int(flow.flow_s),
        *stream_numbers(queue),
    )


def collections() -> list[int]:
    """Runs of Python's garbage collector, by generation."""
    return [int(one["collections"]) for one in gc.get_stats()]
