"""The pages of metrics, piece by piece: each piece is freed before the next is made.

    overall     /metrics             the node, and sums over its queues, channels and connections
    each        /metrics/per-object  the same, but a line for every object
    detailed    /metrics/detailed    only the families asked for, as ``rabbitmq_detailed_...``

All samples of a family must follow one another, so objects are read first (in slices) and their
families written then.
"""

import asyncio
import platform
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Final, cast

from aiohttp import web

from penstock import __version__
from penstock.core.counting.traffic import PROTOCOLS, TRAFFIC_FIELDS
from penstock.management.metrics import families as f
from penstock.management.metrics import own
from penstock.management.metrics.families import CONTENT_TYPE, Family, labels, prefixed, spelt
from penstock.management.metrics.gathering import (
    CONSUMERS_AT,
    PUBLISHES_AT,
    Columns,
    Gathering,
    NodeNumbers,
)
from penstock.management.statistics.kinds import DELIVERIES

DIALECT: Final = "3.10.8"
PIECE: Final = 500
"""Lines made in one go."""
Samples = Iterable[tuple[str, int]]
CONSUMERS: Final = 3
"""The place of that family among those of queues."""
CLASSIC: Final = "rabbit_classic_queue"
DETAILED: Final = "rabbitmq_detailed_"
QUEUE_GROUPS: Final = {
    "queue_coarse_metrics": (0, 1, 2),
    "queue_consumer_count": (3,),
    "queue_metrics": tuple(range(3, len(f.QUEUE) - 1)),
    "channel_queue_exchange_metrics": (len(f.QUEUE) - 1,),
}
CHANNEL_GROUPS: Final = {
    "channel_metrics": tuple(range(f.CHANNEL_COUNTERS_AT)),
    "channel_exchange_metrics": (7, 8, 9, 10),
    "channel_queue_metrics": tuple(range(11, len(f.CHANNEL))),
}
CONNECTION_GROUPS: Final = {"connection_coarse_metrics": (0, 1), "connection_metrics": (2, 3, 4, 5)}
FRESH_S: Final = 1.0
SEND_S: Final = 20.0
"""So long a scraper may take to read a page; Prometheus waits 10 s for it."""
Key = tuple[str, tuple[str, ...], tuple[str, ...]]
"""Page, families and virtual hosts."""


class Pages:
    def __init__(self, gathering: Gathering) -> None:
        self._gathering = gathering

    async def overall(self) -> AsyncIterator[str]:
        node, queues, connections, channels = await self._read()
        yield from_node(node)
        yield "".join(_totals(queues, connections, channels))
        yield "".join(_global(node, connections))
        yield "".join(_sums(f.QUEUE, queues))
        yield "".join(_sums(f.CHANNEL[: f.CHANNEL_COUNTERS_AT], channels))
        counts = [sum(column) for column in zip(*node.traffic.values(), strict=True)]
        for place, family in enumerate(f.CHANNEL[f.CHANNEL_COUNTERS_AT :]):
            yield family.alone(counts[place])
        octets = (counts[-2], counts[-1])
        for place, family in enumerate(f.CONNECTION):
            value = octets[place] if place < len(octets) else connections.sum(place)
            yield family.alone(value)
        yield "".join(own.queue_totals(queues))
        for piece in own.node_pieces(node, self._gathering):
            yield piece

    async def each(self) -> AsyncIterator[str]:
        node, queues, connections, channels = await self._read()
        yield from_node(node)
        yield "".join(_totals(queues, connections, channels))
        yield "".join(_global(node, connections))
        for family, samples in self._objects(queues, connections, channels):
            async for piece in written(family, samples):
                yield piece
        for family, some in own.each_queue(queues):
            async for piece in written(family, some):
                yield piece
        for piece in own.node_pieces(node, self._gathering):
            yield piece

    async def _read(self) -> tuple[NodeNumbers, Columns, Columns, Columns]:
        vhosts = await self._gathering.vhosts()
        node = await self._gathering.node()
        queues = await self._gathering.queues(vhosts)
        return node, queues, *await self._gathering.clients(vhosts)

    def _objects(
        self, queues: Columns, connections: Columns, channels: Columns
    ) -> Iterator[tuple[Family, Samples]]:
        for place, family in enumerate(f.QUEUE):
            yield family, _of_queues(queues, place)
        for place, family in enumerate(f.CHANNEL):
            yield family, _of_channels(channels, place)
        for place, family in enumerate(f.CONNECTION):
            yield family, _of(connections, place)

    async def detailed(self, wanted: Sequence[str], vhosts: Sequence[str]) -> AsyncIterator[str]:
        """Of families that are not here there are no samples, as in RabbitMQ."""
        there = await self._gathering.vhosts()
        asked = [vhost for vhost in there if not vhosts or vhost in vhosts]
        node = await self._gathering.node()
        yield identity(node)
        if "connection_churn_metrics" in wanted:
            for name, family in f.CHURN.items():
                yield _alone(family, node.churn[name])
        if "node_metrics" in wanted or "node_coarse_metrics" in wanted:
            for name, family in f.NODE.items():
                yield _alone(family, _of_row(node, name))
        if "node_persister_metrics" in wanted:
            for family, value in _io(node):
                yield _alone(family, value)
        if "auth_attempt_metrics" in wanted:
            yield "".join(_log_ins(node, DETAILED))
        if "vhost_status" in wanted:
            yield f.VHOST_STATUS.labelled([(labels(vhost=vhost), 1) for vhost in there])
        if "exchange_names" in wanted or "exchange_bindings" in wanted:
            exchanges = await self._gathering.exchanges(asked)
            if "exchange_names" in wanted:
                async for piece in written(f.EXCHANGE_NAME, ((one, 1) for one in exchanges.labels)):
                    yield piece
            if "exchange_bindings" in wanted:
                async for piece in written(f.EXCHANGE_BINDINGS, _of(exchanges, 0)):
                    yield piece
        async for piece in self._detailed_objects(wanted, asked):
            yield piece

    async def _detailed_objects(
        self, wanted: Sequence[str], vhosts: Sequence[str]
    ) -> AsyncIterator[str]:
        places = _places(QUEUE_GROUPS, wanted)
        if places:
            queues = await self._gathering.queues(vhosts)
            for place in places:
                async for piece in written(f.QUEUE[place], _of_queues(queues, place), DETAILED):
                    yield piece
        on_channels, on_connections = (
            _places(groups, wanted) for groups in (CHANNEL_GROUPS, CONNECTION_GROUPS)
        )
        if not on_channels and not on_connections:
            return
        connections, channels = await self._gathering.clients(vhosts)
        for place in on_channels:
            async for piece in written(f.CHANNEL[place], _of_channels(channels, place), DETAILED):
                yield piece
        for place in on_connections:
            async for piece in written(f.CONNECTION[place], _of(connections, place), DETAILED):
                yield piece


# -- pieces -----------------------------------------------------------------------------------


def identity(node: NodeNumbers) -> str:
    """RabbitMQ's dashboards choose the nodes of a cluster by its name."""
    build = labels(
        rabbitmq_version=DIALECT,
        prometheus_plugin_version=DIALECT,
        prometheus_client_version=__version__,
        erlang_version=platform.python_version(),
        product_name="Penstock",
        product_version=__version__,
    )
    own_name = labels(
        rabbitmq_node=str(node.row["name"]),
        rabbitmq_cluster=node.cluster_name,
        rabbitmq_cluster_permanent_id=node.cluster_id,
    )
    return f.BUILD_INFO.labelled([(build, 1)]) + f.IDENTITY_INFO.labelled([(own_name, 1)])


def from_node(node: NodeNumbers) -> str:
    pieces = [identity(node)]
    pieces += [family.alone(_of_row(node, name)) for name, family in f.NODE.items()]
    pieces += [family.alone(node.churn[name]) for name, family in f.CHURN.items()]
    pieces += _log_ins(node)
    pieces += [family.alone(value) for family, value in _io(node)]
    return "".join(pieces)


def _io(node: NodeNumbers) -> Iterator[tuple[Family, int | float]]:
    for name, family in f.IO_COUNTS.items():
        yield family, _of_row(node, name)
    for name, family in f.IO_TIMES.items():
        average_ms = cast(float, node.row[f"{name}_avg_time"])
        yield family, average_ms * _of_row(node, f"{name}_count") / 1000


def _of_row(node: NodeNumbers, name: str) -> int | float:
    if name == "fd_alarm":  # a node that is short of them takes no connection, and goes on
        return 0
    value = node.row.get(name, 0)
    return float(value) if isinstance(value, str) else int(cast(int, value))


def _totals(queues: Columns, connections: Columns, channels: Columns) -> Iterator[str]:
    counts = (len(connections), len(channels), queues.sum(CONSUMERS), len(queues))
    for family, count in zip(f.TOTALS, counts, strict=True):
        yield family.alone(count)


def _global(node: NodeNumbers, connections: Columns) -> Iterator[str]:
    fields = {name: place for place, name in enumerate(TRAFFIC_FIELDS)}
    for name, family in f.GLOBAL_PUBLISHED.items():
        yield family.labelled(
            (labels(protocol=one), node.traffic[one][fields[name]]) for one in PROTOCOLS
        )
    for name, family in f.GLOBAL_DELIVERED.items():
        names = DELIVERIES if name == "deliver_get" else (name,)
        yield family.labelled(
            (
                labels(protocol=one, queue_type=CLASSIC),
                sum(node.traffic[one][fields[part]] for part in names),
            )
            for one in PROTOCOLS
        )
    for family, place in ((f.GLOBAL_PUBLISHERS, PUBLISHES_AT), (f.GLOBAL_CONSUMERS, CONSUMERS_AT)):
        yield family.labelled(
            (labels(protocol=one), connections.sum_of(one, place)) for one in PROTOCOLS
        )
    for reason, family in f.DEAD_LETTERED.items():
        yield family.labelled(
            (labels(queue_type=CLASSIC, dead_letter_strategy=strategy), counts[reason])
            for strategy, counts in (("at_least_once", node.buried), ("disabled", node.dropped))
        )


def _log_ins(node: NodeNumbers, prefix: str = "") -> Iterator[str]:
    counts = {name: (all_, all_ - failed, failed) for name, (all_, failed) in node.log_ins.items()}
    for place, family in enumerate(f.AUTH_ATTEMPTS):
        shown = family._replace(name=prefixed(family.name, prefix))
        yield shown.labelled((labels(protocol=name), one[place]) for name, one in counts.items())


def _sums(families: Sequence[Family], table: Columns) -> Iterator[str]:
    for place, family in enumerate(families):
        yield family.alone(table.sum(place))


def _of(table: Columns, place: int) -> Samples:
    return zip(table.labels, table.columns[place], strict=True)


def _of_queues(queues: Columns, place: int) -> Samples:
    if place == len(f.QUEUE) - 1:
        return zip(queues.more_labels, queues.columns[place], strict=True)
    return _of(queues, place)


def _of_channels(channels: Columns, place: int) -> Samples:
    if place >= f.CHANNEL_COUNTERS_AT:
        return zip(channels.more_labels, channels.columns[place], strict=True)
    return _of(channels, place)


def _places(groups: dict[str, tuple[int, ...]], wanted: Sequence[str]) -> list[int]:
    return sorted({place for group in wanted for place in groups.get(group, ())})


def _alone(family: Family, value: float) -> str:
    name = prefixed(family.name, DETAILED)
    return f"{family.head(DETAILED)}{name} {spelt(value)}\n"


async def written(family: Family, samples: Samples, prefix: str = "") -> AsyncIterator[str]:
    """A family with its samples; between two pieces the data loop may have the interpreter."""
    name = prefixed(family.name, prefix)
    lines = [family.head(prefix)]
    for label_text, value in samples:
        lines.append(f"{name}{label_text} {spelt(value)}\n")
        if len(lines) >= PIECE:
            yield "".join(lines)
            lines = []
            await asyncio.sleep(0)
    yield "".join(lines)


class Scrapes:
    """Answers of both ports: one page is made at a time, and shared for a second.

    With 10,000 queues a page takes seconds of the management thread and megabytes.  So requests
    within ``FRESH_S`` of a page that was made get the same one, and others wait for their turn.
    """

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._turn = asyncio.Lock()
        self._fresh: dict[Key, list[bytes]] = {}

    async def answer(self, request: web.Request, page: str) -> web.StreamResponse:
        """``page``: the last part of the path."""
        query = request.query
        key = page, tuple(query.getall("family", [])), tuple(query.getall("vhost", []))
        pieces = await self._page(key if page == "detailed" else (page, (), ()))
        response = web.StreamResponse(headers={"Content-Type": CONTENT_TYPE})
        await response.prepare(request)
        try:
            async with asyncio.timeout(SEND_S):
                for piece in pieces if request.method != "HEAD" else ():
                    await response.write(piece)
                await response.write_eof()
        except TimeoutError as error:
            if request.transport is not None:
                request.transport.abort()
            raise ConnectionResetError("a scraper does not read") from error
        return response

    async def _page(self, key: Key) -> list[bytes]:
        async with self._turn:
            fresh = self._fresh.get(key)
            if fresh is not None:
                return fresh
            made = [piece.encode() async for piece in self._made(key)]
            self._fresh[key] = made
            asyncio.get_running_loop().call_later(FRESH_S, self._fresh.pop, key)
            return made

    def _made(self, key: Key) -> AsyncIterator[str]:
        page, families, vhosts = key
        if page == "metrics":
            return self._pages.overall()
        if page == "per-object":
            return self._pages.each()
        return self._pages.detailed(families, vhosts)
