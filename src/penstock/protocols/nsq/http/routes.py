"""nsqd's HTTP API: publishing, topics and channels, statistics, configuration.

Runs on the loop of ``http.services``; the work is done on the data loop, by ``nsq.http.admin``.  A
publish is answered when its messages are on disk.  Paths, parameters, statuses and error texts are
those of nsqd 1.3.0.  Beyond them:

    403  ACCESS_REFUSED ...   the user NSQ acts as may not do that; only /ping asks for no user
    503  BLOCKED ...          memory or disk is short, or the virtual host is over its budget
    GET  /channel/deferred?topic=&channel=&after=&limit=     what waits for its time
    POST /channel/deferred/cancel?topic=&channel=&id=        one of these is to be gone
    POST /channel/create?topic=&channel=&start=              where in a stream it begins

``/debug/*`` is about Go's runtime and is not here.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, TypeVar, cast

from penstock.broker.topology.topics import is_name
from penstock.clocks import wall_ms
from penstock.core.clock_types import WallMs
from penstock.core.errors import AccessRefused, LoginRefused, Undecided
from penstock.core.pending import Pending
from penstock.management.facts.on_loop import AGAIN_S, answered
from penstock.protocols.nsq.http.admin import NsqAdmin
from penstock.protocols.nsq.http.answers import ApiCall, Endpoint, HttpRefused, Plain, Table
from penstock.protocols.nsq.http.config import NsqConfig
from penstock.protocols.nsq.http.stats import StatsView, collect, stats_text
from penstock.protocols.nsq.shared import NsqClient
from penstock.queues.stream_start import age_ms, channel_start
from penstock.settings.settings import Settings

T = TypeVar("T")
NamesOf = Callable[[ApiCall], tuple[str, ...]]
"""Topic, or topic and channel, that a request is about; raises HttpRefused."""

PROMPT_S: Final = 5.0
"""How long the data loop may keep a request waiting."""
DURABLE_S: Final = 30.0
"""And the disk a publish."""
SMALL_BYTES: Final = 16 * 1024
"""Bodies up to there are read before it is known whether they may come: one call less."""
PAGE_ROWS: Final = 100
PAGE_ROWS_MAX: Final = 1000
OK: Final = 200
FORBIDDEN: Final = 403
NO_TEXT: Final = ("false", "0")


async def on_loop(call: Callable[..., Future[Any]], function: Callable[[], T]) -> T:
    """Done by the data loop, between two turns; once more when a backend of users was asked."""
    while True:
        try:
            async with asyncio.timeout(PROMPT_S):
                # Shielded: giving up here must not cancel under the data loop's hands.
                return cast(T, await asyncio.shield(asyncio.wrap_future(call(function))))
        except Undecided as undecided:
            await answered(undecided.ticket)


class NsqdApi:
    """Its endpoints."""

    def __init__(
        self,
        admin: NsqAdmin,
        stats: StatsView,
        config: NsqConfig,
        settings: Settings,
        call_on_loop: Callable[..., Future[Any]],
    ) -> None:
        self._admin = admin
        self._stats = stats
        self._config = config
        self._settings = settings
        self._call = call_on_loop

    def table(self) -> Table:
        admin, noted, verb = self._admin, self._noted, self._verb
        told = partial(noted, is_event=True)
        post: dict[str, Endpoint] = {
            "/pub": self._pub,
            "/mpub": self._mpub,
            "/topic/create": told(verb(_topic_to_publish, admin.create_topic)),
            "/topic/delete": told(verb(_topic, admin.delete_topic)),
            "/topic/empty": noted(verb(_topic_to_publish, admin.empty_topic)),
            "/topic/pause": noted(verb(_topic, admin.pause_topic, True)),
            "/topic/unpause": noted(verb(_topic, admin.pause_topic, False)),
            "/channel/create": told(self._create_channel),
            "/channel/delete": told(verb(topic_and_channel, admin.delete_channel)),
            "/channel/empty": noted(verb(topic_and_channel, admin.empty_channel)),
            "/channel/pause": noted(verb(topic_and_channel, admin.pause_channel, True)),
            "/channel/unpause": noted(verb(topic_and_channel, admin.pause_channel, False)),
            "/channel/deferred/cancel": noted(self._cancel_deferred),
        }
        table: Table = {path: {"POST": endpoint} for path, endpoint in post.items()}
        table["/channel/deferred"] = {"GET": self._deferred}
        table["/ping"] = {"GET": self._ping}
        table["/info"] = {"GET": self._info}
        table["/stats"] = {"GET": self._show_stats}
        table["/config/*"] = {"GET": self._get_option, "PUT": noted(self._put_option)}
        return table

    def _verb(self, names_of: NamesOf, function: Callable[..., object], *more: bool) -> Endpoint:
        """A change of a topic or channel: agreed on, and answered without a body."""

        async def endpoint(call: ApiCall) -> None:
            await self._change(call.visitor, function, *names_of(call), *more)

        return endpoint

    async def _do(self, function: Callable[[], T]) -> T:
        return await on_loop(self._call, function)

    def _noted(self, endpoint: Endpoint, is_event: bool = False) -> Endpoint:
        """For the audit trail; ``is_event``: another event tells of it, if it is not refused."""

        async def noted(call: ApiCall) -> object:
            try:
                result = await endpoint(call)
            except LoginRefused:
                raise  # an event of its own
            except AccessRefused as error:
                await self._note(call, FORBIDDEN, str(error))
                raise
            if not is_event:
                await self._note(call, OK, None)
            return result

        return noted

    async def _note(self, call: ApiCall, status: int, reason: str | None) -> None:
        values = (call.request.method, call.request.raw_path, status, reason)
        await self._do(partial(self._admin.note, call.visitor, values))

    async def _change(
        self, visitor: NsqClient, function: Callable[..., T | Pending], *what: object
    ) -> T:
        """As ``_do``; in a cluster it is done when all have agreed on it."""
        asked = partial(function, *what, visitor)
        outcome: object = await self._do(partial(self._admin.change, visitor, asked))
        while isinstance(outcome, Pending):
            await asyncio.sleep(AGAIN_S)
            outcome = await self._do(outcome.resume)
        return cast(T, outcome)

    # -- how it is ---------------------------------------------------------------------------

    async def _ping(self, _call: ApiCall) -> object:
        health = await self._do(self._stats.health)
        if health != "OK":
            raise HttpRefused(500, health)
        return Plain(health)

    async def _info(self, call: ApiCall) -> object:
        await self._do(partial(self._stats.check, call.visitor))
        return self._config.info()

    async def _show_stats(self, call: ApiCall) -> object:
        topic, channel = call.query.get("topic", ""), call.query.get("channel", "")
        clients = call.boolean("include_clients", default=True)
        memory = call.boolean("include_mem", default=True)
        await self._do(partial(self._stats.check, call.visitor))
        stats = await collect(self._do, self._stats, topic, channel, clients, memory)
        if call.query.get("format") == "json":
            return stats
        return stats_text(stats, self._stats.uptime_ns())

    async def _get_option(self, call: ApiCall) -> object:
        await self._do(partial(self._stats.check, call.visitor))
        return self._config.value(call.option)

    async def _put_option(self, call: ApiCall) -> object:
        await self._do(partial(self._admin.check_manager, call.visitor))
        body = await call.body(self._settings.nsq_max_msg_size_bytes, "INVALID_VALUE")
        if not body:
            raise HttpRefused(413, "INVALID_VALUE")
        self._config.change(call.option, body)
        return self._config.value(call.option)

    # -- publishing --------------------------------------------------------------------------

    async def _check_open(self, call: ApiCall) -> None:
        """Before a body of many bytes is taken into memory."""
        if call.request.content_length is None or call.request.content_length > SMALL_BYTES:
            await self._do(partial(self._admin.check_open, call.visitor))

    async def _pub(self, call: ApiCall) -> object:
        await self._check_open(call)
        body = await call.body(self._settings.nsq_max_msg_size_bytes, "MSG_TOO_BIG")
        if not body:
            raise HttpRefused(400, "MSG_EMPTY")
        (topic,) = _topic_to_publish(call)
        await self._publish(call, topic, [body], self._defer_ms(call))
        return "OK"

    def _defer_ms(self, call: ApiCall) -> int:
        text = call.query.get("defer")
        if text is None:
            return 0
        try:
            defer_ms = int(text) if text.isascii() and text.strip() == text else -1
        except ValueError:
            defer_ms = -1
        if "_" in text or not 0 <= defer_ms <= self._settings.nsq_max_req_timeout_ms:
            raise HttpRefused(400, "INVALID_DEFER")
        return defer_ms

    async def _mpub(self, call: ApiCall) -> object:
        limit = self._settings.nsq_max_body_size_bytes
        length = call.request.content_length
        if length is not None and length > limit:
            raise HttpRefused(413, "BODY_TOO_BIG")
        (topic,) = _topic_to_publish(call)
        binary = call.query.get("binary")
        await self._check_open(call)
        body = await call.body(limit, "BODY_TOO_BIG")
        size_max = self._settings.nsq_max_msg_size_bytes
        if binary is not None and binary not in NO_TEXT:
            bodies = binary_bodies(body, size_max, limit)
        else:
            bodies = lines(body, size_max)
        await self._publish(call, topic, bodies, 0)
        return "OK"

    async def _publish(self, call: ApiCall, topic: str, bodies: list[bytes], defer_ms: int) -> None:
        """Returns when it is safe."""
        safe = await self._change(call.visitor, self._admin.publish, topic, bodies, defer_ms)
        if safe is not None:
            async with asyncio.timeout(DURABLE_S):
                await asyncio.shield(asyncio.wrap_future(safe))

    # -- topics and channels -----------------------------------------------------------------

    async def _create_channel(self, call: ApiCall) -> None:
        topic, channel = topic_and_channel(call)
        start = call.query.get("start", "")
        age = age_ms(start)
        if age is not None:  # a time, which is the same after a restart
            start = str(max(wall_ms() - age, 0) // 1000)
        if start and channel_start(start, WallMs(0)) is None:
            raise HttpRefused(400, "INVALID_ARG_START")
        await self._change(call.visitor, self._admin.create_channel, topic, channel, start)

    # -- beyond nsqd -------------------------------------------------------------------------

    async def _deferred(self, call: ApiCall) -> object:
        """Earliest first; ``next`` is the ``after`` of the next page, "" at the end."""
        topic, channel = topic_and_channel(call)
        limit = _number(call, "limit", PAGE_ROWS, 1, PAGE_ROWS_MAX)
        due, _, place = call.query.get("after", "0-").partition("-")
        after = _whole("after", due), _whole("after", place) if place else -1
        rows = await self._do(
            partial(self._admin.deferred, topic, channel, after, limit, call.visitor)
        )
        last = rows[-1] if len(rows) == limit else None
        return {
            "deferred": [
                {"id": str(place), "due_ms": due_ms, "bytes": size} for due_ms, place, size in rows
            ],
            "next": f"{last[0]}-{last[1]}" if last else "",
        }

    async def _cancel_deferred(self, call: ApiCall) -> None:
        topic, channel = topic_and_channel(call)
        place = _whole("id", call.argument("id"))
        await self._do(partial(self._admin.cancel_deferred, topic, channel, place, call.visitor))


def _number(call: ApiCall, name: str, default: int, least: int, most: int) -> int:
    text = call.query.get(name)
    number = default if text is None else _whole(name, text)
    if not least <= number <= most:
        raise HttpRefused(400, f"INVALID_ARG_{name.upper()}")
    return number


def _whole(name: str, text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else -1
    if not 0 <= number < 1 << 63:  # what compiled code takes
        raise HttpRefused(400, f"INVALID_ARG_{name.upper()}")
    return number


def _topic(call: ApiCall) -> tuple[str]:
    return (call.argument("topic"),)


def _topic_to_publish(call: ApiCall) -> tuple[str]:
    (topic,) = _topic(call)
    if not is_name(topic):
        raise HttpRefused(400, "INVALID_TOPIC")
    return (topic,)


def topic_and_channel(call: ApiCall) -> tuple[str, str]:
    """In nsqd's order of complaints."""
    topic = call.argument("topic")
    if not is_name(topic):
        raise HttpRefused(400, "INVALID_ARG_TOPIC")
    channel = call.argument("channel")
    if not is_name(channel):
        raise HttpRefused(400, "INVALID_ARG_CHANNEL")
    return topic, channel


def lines(body: bytes, size_max: int) -> list[bytes]:
    """One message a line; empty ones are none."""
    bodies = [line for line in body.split(b"\n") if line]
    if any(len(line) > size_max for line in bodies):
        raise HttpRefused(413, "MSG_TOO_BIG")
    return bodies


def binary_bodies(body: bytes, size_max: int, body_max: int) -> list[bytes]:
    """How many, then each with its size before it."""
    count = int.from_bytes(body[:4], "big", signed=True) if len(body) >= 4 else 0
    if not 0 < count <= (body_max - 4) // 5:
        raise HttpRefused(413, "BAD_BODY")
    bodies: list[bytes] = []
    place = 4
    for _ in range(count):
        size = int.from_bytes(body[place : place + 4], "big", signed=True)
        end = place + 4 + size
        if len(body) < place + 4 or not 0 < size <= size_max or len(body) < end:
            raise HttpRefused(413, "BAD_MESSAGE")
        bodies.append(body[place + 4 : end])
        place = end
    return bodies
