"""nsqlookupd's HTTP API: who has a topic, which nodes there are; and keys made by hand.

The registry lives on the data loop (``broker/lookup.py``); each request is one call there.  As
with nsqlookupd there are no users: whoever reaches the port may look up and change the registry.
It is no way to the messages.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from penstock.broker.lookup import Lookup, Producer
from penstock.broker.topics import is_name
from penstock.server.nsq_answers import VERSION, Call, Plain, Refused, Table
from penstock.server.nsq_http import on_loop, topic_and_channel

T = TypeVar("T")


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

    async def _ping(self, _call: Call) -> object:
        return Plain("OK")

    async def _info(self, _call: Call) -> object:
        return {"version": VERSION}

    async def _topics(self, _call: Call) -> object:
        return {"topics": await self._do(self._lookup.topics)}

    async def _channels(self, call: Call) -> object:
        topic = call.argument("topic")
        return {"channels": await self._do(partial(self._lookup.channels, topic))}

    async def _producers(self, call: Call) -> object:
        return await self._do(partial(self._look_up, call.argument("topic")))

    def _look_up(self, topic: str) -> dict[str, object]:
        if not self._lookup.has_topic(topic):
            raise Refused(404, "TOPIC_NOT_FOUND")
        producers = self._lookup.producers(topic, now_ms())
        return {
            "channels": self._lookup.channels(topic),
            "producers": [node.facts() for node in producers],
        }

    async def _nodes(self, _call: Call) -> object:
        return {"producers": await self._do(lambda: self._lookup.nodes(now_ms()))}

    async def _debug(self, _call: Call) -> object:
        keys = await self._do(self._lookup.all_keys)
        return {key: [_debug_row(one) for one in rows] for key, rows in keys.items() if rows}

    async def _create_topic(self, call: Call) -> object:
        topic = call.argument("topic")
        if not is_name(topic):
            raise Refused(400, "INVALID_ARG_TOPIC")
        await self._do(partial(self._lookup.create_topic, topic))
        return None

    async def _delete_topic(self, call: Call) -> object:
        await self._do(partial(self._lookup.delete_topic, call.argument("topic")))
        return None

    async def _tombstone(self, call: Call) -> object:
        topic, node = call.argument("topic"), call.argument("node")
        await self._do(lambda: self._lookup.tombstone(topic, node, now_ms()))
        return None

    async def _create_channel(self, call: Call) -> object:
        topic, channel = topic_and_channel(call)
        await self._do(partial(self._lookup.create_channel, topic, channel))
        return None

    async def _delete_channel(self, call: Call) -> object:
        topic, channel = topic_and_channel(call)
        if not await self._do(partial(self._lookup.delete_channel, topic, channel)):
            raise Refused(404, "CHANNEL_NOT_FOUND")
        return None


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
        "tombstoned_at": int(producer.tombstoned_ms) * 1_000_000,
        "version": node.version,
    }


def now_ms() -> int:
    return time.time_ns() // 1_000_000
