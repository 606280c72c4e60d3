"""nsqlookupd's HTTP API: producers of a topic, nodes, and keys made by hand.

The registry lives on the data loop (``broker/lookup.py``); each request is one call there.  As
with nsqlookupd there are no users: a client that reaches the port may look up and change the
registry.  The port gives no access to messages.
"""

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, TypeVar

from penstock.broker.lookup import Lookup, Producer
from penstock.broker.topology.topics import is_name
from penstock.clocks import wall_ms
from penstock.protocols.nsq.http.answers import (
    VERSION,
    ApiCall,
    Encoded,
    HttpRefused,
    Plain,
    Table,
    go_json,
    pieces,
    sorted_in_pieces,
)
from penstock.protocols.nsq.http.routes import on_loop, topic_and_channel

T = TypeVar("T")

DEBUG_ROWS_MAX: Final = 5_000
"""Of ``/debug``: the data loop and the interpreter belong to it for so long."""
ZERO_TIME_NS = -6_795_364_578_871_345_152
"""Go's zero time in nanoseconds since 1970, as far as 64 bits go: never."""


class LookupApi:
    """Its endpoints."""

    def __init__(self, lookup: Lookup, call_on_loop: Callable[..., Future[Any]]) -> None:
        self._lookup = lookup
        self._call = call_on_loop

    def table(self) -> Table:
        return {
            "/ping": {"GET": self._ping},
            "/info": {"GET": self._info},
            "/topics": {"GET": self._topics},
            "/channels": {"GET": self._channels},
            "/lookup": {"GET": self._producers},
            "/nodes": {"GET": self._nodes},
            "/debug": {"GET": self._debug},
            "/topic/create": {"POST": self._create_topic},
            "/topic/delete": {"POST": self._delete_topic},
            "/topic/tombstone": {"POST": self._tombstone},
            "/channel/create": {"POST": self._create_channel},
            "/channel/delete": {"POST": self._delete_channel},
        }

    async def _do(self, function: Callable[[], T]) -> T:
        return await on_loop(self._call, function)

    async def _ping(self, _call: ApiCall) -> object:
        return Plain("OK")

    async def _info(self, _call: ApiCall) -> object:
        return {"version": VERSION}

    async def _topics(self, _call: ApiCall) -> object:
        return {"topics": sorted_in_pieces(await self._do(self._lookup.topics))}

    async def _channels(self, call: ApiCall) -> object:
        topic = call.argument("topic")
        return {"channels": sorted_in_pieces(await self._do(partial(self._lookup.channels, topic)))}

    async def _producers(self, call: ApiCall) -> object:
        channels, producers = await self._do(partial(self._look_up, call.argument("topic")))
        return {"channels": sorted_in_pieces(channels), "producers": producers}

    def _look_up(self, topic: str) -> tuple[list[str], list[dict[str, object]]]:
        if not self._lookup.has_topic(topic):
            raise HttpRefused(404, "TOPIC_NOT_FOUND")
        producers = self._lookup.producers(topic, wall_ms())
        return self._lookup.channels(topic), [node.facts() for node in producers]

    async def _nodes(self, _call: ApiCall) -> object:
        nodes = await self._do(lambda: self._lookup.nodes(wall_ms()))
        rows: list[str] = []
        for node in nodes:  # encoded one at a time: each may have very many topics
            topics = sorted_in_pieces(await self._do(partial(list, node.topics)))
            tombstones: list[bool] = []
            for some in pieces(topics):
                tombstones += await self._do(
                    partial(self._lookup.tombstones, node, some, wall_ms())
                )
            rows.append(go_json({**node.facts(), "tombstones": tombstones, "topics": topics}))
        return Encoded(f'{{"producers":[{",".join(rows)}]}}')

    async def _debug(self, _call: ApiCall) -> object:
        keys = await self._do(partial(self._lookup.some_keys, DEBUG_ROWS_MAX))
        return {key: [_debug_row(one) for one in keys[key]] for key in sorted(keys) if keys[key]}

    async def _create_topic(self, call: ApiCall) -> None:
        topic = call.argument("topic")
        if not is_name(topic):
            raise HttpRefused(400, "INVALID_ARG_TOPIC")
        await self._do(partial(self._lookup.create_topic, topic))

    async def _delete_topic(self, call: ApiCall) -> None:
        await self._do(partial(self._lookup.delete_topic, call.argument("topic")))

    async def _tombstone(self, call: ApiCall) -> None:
        topic, node = call.argument("topic"), call.argument("node")
        await self._do(lambda: self._lookup.tombstone(topic, node, wall_ms()))

    async def _create_channel(self, call: ApiCall) -> None:
        topic, channel = topic_and_channel(call)
        await self._do(partial(self._lookup.create_channel, topic, channel))

    async def _delete_channel(self, call: ApiCall) -> None:
        topic, channel = topic_and_channel(call)
        if not await self._do(partial(self._lookup.delete_channel, topic, channel)):
            raise HttpRefused(404, "CHANNEL_NOT_FOUND")


def _debug_row(producer: Producer) -> dict[str, object]:
    node = producer.node
    return {
        "broadcast_address": node.broadcast_address,
        "hostname": node.hostname,
        "http_port": node.http_port,
        "id": node.id,
        "last_update": int(node.heard_ms) * 1_000_000,
        "tcp_port": node.tcp_port,
        "tombstoned": producer.tombstoned_ms > 0,
        "tombstoned_at": int(producer.tombstoned_ms) * 1_000_000 or ZERO_TIME_NS,
        "version": node.version,
    }
