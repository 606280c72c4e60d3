"""Publishing and getting over HTTP, by a loopback client under all rules of AMQP.

    POST /api/exchanges/{vhost}/{name}/publish   properties, routing_key, payload, payload_encoding
    POST /api/queues/{vhost}/{name}/get          count, ackmode, encoding, truncate
    POST /api/queues/{vhost}/{name}/messages/actions
         {"action": "move", "seq_ids": [4, 7], "queue": "other"}

A publish is answered when the message is as safe as a confirm promises, with ``{"routed": …}``:
whether some queue took it.  While publishers are blocked it is refused with 503.

``payload_encoding`` is ``string`` or ``base64``, ``encoding`` ``auto`` or ``base64``.  ``ackmode``
says what becomes of what was got: ``ack_requeue_false`` (gone), ``ack_requeue_true`` and
``reject_requeue_true`` (back to its place), ``reject_requeue_false`` (rejected: a dead letter).

The actions on selected messages:

    move, copy   to ``queue``, or to ``exchange`` with ``routing_key``
    delete
    retry        to the exchange and with the routing key of the newest death in ``x-death``
    dead_letter  as if a consumer had rejected it

``seq_ids`` are places as ``…/messages`` shows them; in a queue with priorities ``priority`` says
which of them is meant (0 without it).  Answered when all of it is on disk, with how many are
``done`` and why others stayed: ``gone`` (not ready there any more), ``unroutable``,
``same_queue`` (they lead back to it), ``duplicate`` (their key is in every queue they lead to),
``without_death`` (no death to believe), ``full`` (a queue that refuses publishes, see ``trouble``).
They want the right to read the queue, and what publishing there would want.
"""

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator
from concurrent.futures import Future
from functools import partial
from typing import Any, Final

from aiohttp import web

from penstock.broker.message_moves import ACTIONS, COPY, MOVE, OUTCOMES, RETRY, MessageMove
from penstock.broker.rules.rights import Rights
from penstock.clocks import wall_ms
from penstock.core.errors import AccessRefused, Blocked
from penstock.core.pending import Pending
from penstock.management.api.exchanges import exchange_asked
from penstock.management.facts.rows import DEFAULT_EXCHANGE_IN_PATHS, Row, jsonable
from penstock.management.facts.sessions import Got, InternalClient, InternalClientRefused
from penstock.management.http.access import Visitor
from penstock.management.http.bodies import (
    ASKED_MAX_BYTES,
    body_of,
    check_fields,
    flag,
    json_body,
    json_response,
    number,
    object_in,
    required,
    text,
    to_json,
    too_large,
)
from penstock.management.http.endpoints import Endpoints, NotThere
from penstock.management.http.listing import BadQuery
from penstock.management.http.lists import in_pieces
from penstock.management.http.long_bodies import TooMuchBesides, base64_decoded, read_publish

DURABLE_S: Final = 30.0
"""How long a publish may wait for the disk."""
HEAD_S: Final = 5.0
"""And a get for a message that is on its way from there."""
HEAD_WAIT_S: Final = 0.002
GOT_AT_ONCE: Final = 64
GOT_BYTES_AT_ONCE: Final = 1024 * 1024
"""Messages of one visit to the data loop."""
SHOWN_BYTES: Final = 65_536
"""Of a payload that is no base64, in the refusal."""
COUNT_MAX: Final = 100_000
GOT_MAX_BYTES: Final = 64 * 1024 * 1024
"""Bodies of one answer; it ends with the message that goes beyond."""
NOT_FOUND: Final = 404
ACCESS_REFUSED: Final = 403
"""As AMQP says them."""
NUMBERS: Final = ("delivery_mode", "priority", "timestamp")
TEXTS: Final = (
    *("content_type", "content_encoding", "correlation_id", "reply_to", "expiration"),
    *("message_id", "type", "user_id", "app_id", "cluster_id"),
)
ACKMODES: Final = (
    "ack_requeue_false",
    "ack_requeue_true",
    "reject_requeue_false",
    "reject_requeue_true",
)
CHOSEN_MAX: Final = 20_000
SEQ_ID_MAX: Final = 1 << 62


class MessagesApi(Endpoints):
    table = """
        user  exchanges/{vhost}/{name}/publish  POST=publish  Publish
        user  queues/{vhost}/{name}/get         POST=get      Take messages
        user  queues/{vhost}/{name}/messages/actions  POST=act  Do something with chosen messages
    """

    @contextlib.asynccontextmanager
    async def _agent(self, visitor: Visitor, vhost: str) -> AsyncIterator[InternalClient]:
        sender = await self._on_loop(self.sender, visitor, vhost)
        watch, entered = self._view.watch, list[InternalClient]()
        try:
            await self._on_loop(lambda: entered.append(watch.enter(sender, vhost, wall_ms())))
            yield entered[0]
        finally:
            # Behind the first on the data loop, so a request that gave up on that one leaves, too.
            await self._on_loop(leave, entered)

    # -- publishing --------------------------------------------------------------------------

    async def publish(self, request: web.Request, visitor: Visitor) -> web.Response:
        vhost, exchange = request.match_info["vhost"], exchange_asked(request)
        await self.must_be_there(vhost, visitor)
        length = request.content_length
        if length is None or length > ASKED_MAX_BYTES:
            # Only for a user with the permission to publish there.
            await self._on_loop(lambda: self.rights(visitor, vhost).write("exchange", exchange))
        most_bytes = self._most_bytes()
        body = await body_of(request, most_bytes) if request.can_read_body else b"{}"
        if len(body) <= ASKED_MAX_BYTES:
            asked = object_in(body)
        else:
            asked = await asyncio.to_thread(_asked_at_length, body)
        del body
        key, properties, payload, encoding = required(
            asked, "routing_key", "properties", "payload", "payload_encoding"
        )
        properties = _properties(properties)
        content = await asyncio.to_thread(_body, payload, encoding)
        await self.learn_rights(
            visitor, vhost, partial(self._ask_to_publish, vhost, exchange, str(key))
        )
        async with self._agent(visitor, vhost) as agent, asyncio.timeout(DURABLE_S):
            routed = await self._on_loop(
                agent.publish, exchange, text("routing_key", key), properties, content, wall_ms()
            )
            answer = await asyncio.shield(asyncio.wrap_future(routed))
        return json_response({"routed": answer})

    def _ask_to_publish(self, vhost: str, exchange: str, key: str, rights: Rights) -> None:
        rights.publish(self._broker.vhost(vhost).exchanges.get(exchange), exchange, key)

    def _most_bytes(self) -> int:
        """Of a publish: the largest message in base64, and what stands around it."""
        return int(self._context.node.settings.max_message_size_bytes) * 4 // 3 + ASKED_MAX_BYTES

    # -- getting -----------------------------------------------------------------------------

    async def get(self, request: web.Request, visitor: Visitor) -> web.Response:
        vhost, name = request.match_info["vhost"], request.match_info["name"]
        await self.must_be_there(vhost, visitor)
        asked = await json_body(request)
        if "ackmode" not in asked and "requeue" in asked:  # as it was asked before 3.7
            asked["ackmode"] = f"ack_requeue_{str(flag(asked['requeue'])).lower()}"
        ackmode, count, encoding = required(asked, "ackmode", "count", "encoding")
        if ackmode not in ACKMODES:
            raise BadQuery(f"unknown ackmode {ackmode}; {', '.join(ACKMODES)}")
        if encoding not in ("auto", "base64"):
            raise BadQuery("Unsupported encoding. Please use auto or base64.")
        cut = _whole(asked["truncate"]) if "truncate" in asked else None
        if cut is not None and cut < 0:
            raise BadQuery(f"truncate is {cut}; a payload has no fewer than 0 bytes")
        rest = _whole(count)
        rest = COUNT_MAX if rest < 0 else min(rest, COUNT_MAX)  # -1: all that there are
        pieces: list[bytes] = []
        size = 0
        await self.learn_rights(visitor, vhost, lambda rights: rights.read("queue", name))
        async with self._agent(visitor, vhost) as agent, _told():
            while rest > 0 and (size < GOT_MAX_BYTES or await self._on_loop(agent.is_waiting)):
                # A get that is under way is answered first: it may bring a message.
                some = await self._get_some(agent, name, rest if size < GOT_MAX_BYTES else 1)
                rest -= len(some)
                if not some:
                    break
                size += sum(len(one.body) for one in some)
                # One by one: between two of them the data loop may have the interpreter.
                rows = [to_json(_row(one, encoding, cut)) for one in some]
                pieces += [b"," if pieces else b"[", b",".join(rows)]
            if ackmode == "ack_requeue_false":
                await self._on_loop(agent.accept, wall_ms())
            else:
                await self._on_loop(agent.refuse, ackmode.endswith("true"), wall_ms())
        return in_pieces([*pieces, b"]"] if pieces else [b"[]"])

    async def _get_some(self, agent: InternalClient, queue: str, count: int) -> list[Got]:
        """At least one, unless the queue is empty."""
        async with asyncio.timeout(HEAD_S):
            while True:
                found = await self._on_loop(_get_at_once, agent, queue, count)
                if found is not None:
                    return found
                await asyncio.sleep(HEAD_WAIT_S)

    async def act(self, request: web.Request, visitor: Visitor) -> web.Response:
        vhost, name = request.match_info["vhost"], request.match_info["name"]
        await self.must_be_there(vhost, visitor)
        asked = await json_body(request)
        action, chosen = required(asked, "action", "seq_ids")
        if action not in ACTIONS:
            raise BadQuery(f"unknown action {action}; known: {', '.join(ACTIONS)}")
        left = _places(chosen)
        priority = number(asked.get("priority", 0))
        target = _target(asked) if action in (COPY, MOVE) else None
        errand = await self._on_loop(
            self._begin, visitor, vhost, name, max(priority, 0), action, target
        )
        while left:
            left = await self._on_loop(errand.step, left, wall_ms())
        await self._on_disk(errand)
        return json_response(_outcome_row(errand))

    def _begin(
        self,
        visitor: Visitor,
        vhost: str,
        name: str,
        priority: int,
        action: str,
        target: tuple[str, str] | None,
    ) -> MessageMove:
        found = self._broker.vhost(vhost)
        blocked = self._broker.admission.reason(vhost)
        if blocked and action in (MOVE, COPY, RETRY):
            raise Blocked(blocked)
        queue = found.queue(name)
        rights = self.rights(visitor, vhost)
        return MessageMove(self._broker, rights, found, queue, priority, action, target)

    async def _on_disk(self, errand: MessageMove) -> None:
        """What was published, and then that the originals are gone."""
        async with asyncio.timeout(DURABLE_S):
            for one in (errand, None):
                safe = await self._on_loop(self._when_safe, one)
                # Shielded: giving up here must not cancel under the data loop's hands.
                await asyncio.shield(asyncio.wrap_future(safe))

    def _when_safe(self, errand: MessageMove | None) -> "Future[None]":
        journal = self._broker.engine.journal
        if errand is None:
            return self._view.watch.when_safe(int(journal.position))
        return self._view.watch.when_safe(errand.position, errand.waits)


def leave(entered: list[InternalClient]) -> None:
    """For use on the data loop: who has come in by now goes."""
    for agent in entered:
        agent.leave(wall_ms())


@contextlib.asynccontextmanager
async def _told() -> AsyncIterator[None]:
    """Answers as RabbitMQ's to what an agent was told while getting."""
    try:
        yield
    except InternalClientRefused as error:
        if error.code == NOT_FOUND:
            raise NotThere(error.told) from error
        if error.code == ACCESS_REFUSED:
            raise AccessRefused(error.told) from error
        raise


def _get_at_once(agent: InternalClient, queue: str, count: int) -> list[Got] | None:
    """None: there are some, but on their way from the disk."""
    found: list[Got] = []
    size = 0
    while len(found) < min(count, GOT_AT_ONCE) and size < GOT_BYTES_AT_ONCE:
        got = agent.get(queue, wall_ms())
        if isinstance(got, Pending):
            return found or None
        if got is None:
            break
        size += len(got.body)
        found.append(got)
    return found


def _properties(given: Any) -> dict[str, Any]:
    """Of the right types; an empty table may be spelt as an empty list."""
    if given in ([], ""):
        return {}
    if not isinstance(given, dict):
        raise BadQuery(f"properties are no object: {given}")
    for name, value in given.items():
        if name in NUMBERS and (isinstance(value, bool) or not isinstance(value, int)):
            raise BadQuery(["not_int", name])
        if name == "headers" and not isinstance(value, dict):
            raise BadQuery(["not_table", name])
        if name in TEXTS and not isinstance(value, str):
            raise BadQuery(["not_string", name])
        if name == "headers":
            check_fields(value)
    return given


def _asked_at_length(body: bytes) -> dict[str, Any]:
    """A publish whose payload is bytes; raises BadQuery where anything else is long."""
    besides = too_large(ASKED_MAX_BYTES, "all but the payload")
    try:
        rest, mark, payload = read_publish(body, ASKED_MAX_BYTES)
    except TooMuchBesides as error:
        raise besides from error
    except ValueError as error:
        raise BadQuery("not_json") from error
    asked = object_in(rest)
    if asked.get("payload") != mark:
        raise besides
    asked["payload"] = payload
    return asked


def _body(payload: Any, encoding: Any) -> bytes:
    """``payload``: bytes when it is long, else as JSON had it."""
    if encoding not in ("string", "base64"):
        raise BadQuery(["unsupported_encoding", str(encoding)])
    if isinstance(payload, bytes):
        data = payload
    else:
        data = text("payload", payload).encode("utf-8", "surrogateescape")
    if encoding == "string":
        return data
    try:
        return base64_decoded(data)
    except ValueError as error:
        shown = data[:SHOWN_BYTES].decode("utf-8", "replace")
        raise BadQuery(["not_base64", shown]) from error


def _whole(value: object) -> int:
    """As RabbitMQ reads it: what follows the point does not count, and digits may have a sign."""
    if isinstance(value, float):
        return int(value)
    if isinstance(value, str) and value[:1] in ("-", "+"):
        size = number(value[1:])
        return -size if value[0] == "-" else size
    return number(value)


def _row(got: Got, encoding: str, cut: int | None) -> Row:
    payload, used = spelt(got.body if cut is None else got.body[:cut], encoding)
    return {
        "payload_bytes": len(got.body),
        "redelivered": got.redelivered,
        "exchange": got.exchange,
        "routing_key": got.routing_key,
        "message_count": got.message_count,
        # An empty table is an empty list here, as everywhere in Erlang.
        "properties": jsonable(got.properties) if got.properties else [],
        "payload": payload,
        "payload_encoding": used,
    }


def spelt(body: bytes, encoding: str) -> tuple[str, str]:
    """A payload as JSON can hold it, and how: what is no text is base64."""
    if encoding == "auto":
        with contextlib.suppress(UnicodeDecodeError):
            return body.decode(), "string"
    return base64.b64encode(body).decode(), "base64"


def _places(chosen: Any) -> list[int]:
    if not isinstance(chosen, list) or not 1 <= len(chosen) <= CHOSEN_MAX:
        raise BadQuery(f"seq_ids: a list of 1 to {CHOSEN_MAX} numbers")
    places = {number(one) for one in chosen}
    if min(places) < 0 or max(places) > SEQ_ID_MAX:
        raise BadQuery(f"seq_ids: numbers from 0 to {SEQ_ID_MAX}")
    return sorted(places)


def _target(asked: dict[str, Any]) -> tuple[str, str]:
    """Exchange and routing key."""
    if ("queue" in asked) == ("exchange" in asked):
        raise BadQuery("say where to: a queue, or an exchange and a routing_key")
    if "queue" in asked:
        return "", text("queue", asked["queue"])
    exchange = text("exchange", asked["exchange"])
    key = text("routing_key", asked.get("routing_key", ""))
    return "" if exchange == DEFAULT_EXCHANGE_IN_PATHS else exchange, key


def _outcome_row(errand: MessageMove) -> Row:
    return {name: errand.counts[name] for name in OUTCOMES} | {"trouble": errand.trouble}
