"""Actions on one queue over HTTP: pause, resume, browse, search.

    POST /api/queues/{vhost}/{name}/actions    {"action": "pause"} or {"action": "resume"}
                                               "sync", "cancel_sync"; "hand_over" with "node";
                                               "forget_position" with "name"
    GET  /api/queues/{vhost}/{name}/messages   ?from=SEQ_ID&count=N&truncate=BYTES&encoding=auto
                                               &priority=P
    GET  /api/queues/{vhost}/{name}/messages/search   the same with ?text=TEXT

A paused queue takes messages and gives none, to consumers and to ``basic.get`` alike; a durable
one stays paused over a restart.  All actions want the right to configure the queue.

``sync`` and ``cancel_sync`` are about a queue's mirrors; one without mirrors has nothing to
synchronise, and they answer so, as RabbitMQ does.  ``hand_over`` makes the synchronised copy on
``node`` the master.

``forget_position``: a stream no longer keeps the position of its consumers of that name; 404 where
it keeps none, 400 at another node than its master's.

Looking takes nothing from the queue, marks nothing as redelivered, and wants the right to
read.  ``from`` is a position (``seq_id``); without it the head of the queue.  A queue with
priorities numbers each priority for itself: ``priority`` says which, without it the
highest that has messages.

``text`` is looked for in bodies, routing keys, exchanges, properties and headers, names and values,
without regard to case.  A queue may hold millions, some of them on disk, so a search looks at
``LOOKED_MAX`` messages or ``LOOKED_BYTES_MAX`` at most, and says in ``next`` where to go on (null:
it came to the end).  What is read from the disk is read on the data loop, a slice of a few hundred
kilobytes at a time with everybody else's turns in between.
"""

import base64
import contextlib
from collections.abc import Callable
from typing import Final, NamedTuple

from aiohttp import web

from penstock.backing.interface import BackingQueue
from penstock.broker.broker import Broker
from penstock.broker.mirrors import NotMirrored
from penstock.broker.rules.judges import CONFIGURE
from penstock.core.errors import AccessRefused, NotFound, PreconditionFailed
from penstock.core.message import REDELIVERED, Message
from penstock.management.facts.rows import Row, jsonable
from penstock.management.http.access import Visitor
from penstock.management.http.bodies import DIGITS_MAX, json_body, json_response, required, text
from penstock.management.http.endpoints import Endpoints, queue_asked
from penstock.management.http.listing import BadQuery
from penstock.queues.queue import Queue
from penstock.queues.refusals import check_parts, check_read
from penstock.queues.stream import StreamQueue

COUNT: Final = 10
COUNT_MAX: Final = 1000
BYTES_MAX: Final = 8 * 1024 * 1024
"""Of messages in one answer; one message always goes, however large."""
TRUNCATE_BYTES: Final = 50_000
EVERY_SEQ_ID: Final = 1 << 62
ENCODINGS: Final = ("auto", "base64")
SLICE: Final = 100
SLICE_BYTES: Final = 256 * 1024
LOOKED_MAX: Final = 2000
LOOKED_BYTES_MAX: Final = 8 * 1024 * 1024
FOUND: Final = 20
FOUND_MAX: Final = 200
TRUNCATE: Final = 2000
TRUNCATE_MAX: Final = 50_000
TEXT_MAX: Final = 1000
Opened = Callable[[Message], tuple[dict[str, object], bytes]]


class QueueActionsApi(Endpoints):
    table = """
        user  queues/{vhost}/{name}/actions   POST=act      Pause, resume, synchronise it
        user  queues/{vhost}/{name}/messages  GET=messages
        user  queues/{vhost}/{name}/messages/search  GET=search
    """

    async def act(self, request: web.Request, visitor: Visitor) -> None:
        vhost, name = queue_asked(request, visitor)
        if not await self._on_loop(visitor.may, CONFIGURE, vhost, name):
            raise AccessRefused(f"access to queue '{name}' in vhost '{vhost}' refused")
        asked = await json_body(request)
        (action,) = required(asked, "action")
        mirrors = self._broker.mirrors

        def queue() -> Queue:
            return self._broker.vhost(vhost).queue(name)

        if action in ("pause", "resume"):
            await self.change(self.admin().pause_queue, vhost, name, action == "pause")
        elif action == "sync":
            with contextlib.suppress(NotMirrored):
                await self.change(lambda: mirrors.sync(queue()))
        elif action == "cancel_sync":
            await self.change(lambda: mirrors.cancel_sync(queue()))
        elif action == "hand_over":
            node = text("node", required(asked, "action", "node")[1])
            await self.change(lambda: mirrors.hand_over(queue(), node))
        elif action == "forget_position":
            _, reader = required(asked, "action", "name")
            await self.change(self._forget_position, vhost, name, text("name", reader))
        else:
            raise BadQuery(["unknown", str(action)])

    def _forget_position(self, vhost: str, name: str, reader: str) -> None:
        queue = self._broker.vhost(vhost).queue(name)
        if queue.remote:
            home = queue.master_node()
            raise PreconditionFailed(
                f"the master of queue '{name}' in vhost '{vhost}' is on node '{home}': ask there"
            )
        if not isinstance(queue, StreamQueue) or not queue.forget_position(reader):
            raise NotFound(f"queue '{name}' in vhost '{vhost}' keeps no position of '{reader}'")

    async def messages(self, request: web.Request, visitor: Visitor) -> web.Response:
        vhost, name = await self.readable_queue(request, visitor)
        encoding = request.query.get("encoding", "auto")
        if encoding not in ENCODINGS:
            raise BadQuery(f"encoding: one of {', '.join(ENCODINGS)}")
        start = number_asked(request, "from", -1, EVERY_SEQ_ID)
        count = number_asked(request, "count", COUNT, COUNT_MAX)
        priority = number_asked(request, "priority", -1, 255)
        truncate = number_asked(request, "truncate", TRUNCATE_BYTES, BYTES_MAX)
        part = await self._on_loop(
            read_slice, self._broker, vhost, name, start, count, BYTES_MAX, priority
        )
        more = part.messages and part.messages[-1].seq_id + 1 < part.end
        page: Row = {
            "first": part.first,
            "next": int(part.messages[-1].seq_id) + 1 if more else None,
            "end": part.end,
        }
        if part.priorities > 1:
            page["priority"] = part.priority
        page["messages"] = [
            message_row(message, *self._view.watch.opened(message), truncate, encoding)
            for message in part.messages
        ]
        return json_response(page)

    async def search(self, request: web.Request, visitor: Visitor) -> web.Response:
        vhost, name = await self.readable_queue(request, visitor)
        asked = _Asked(request)
        walk = _Walk(asked)
        while True:
            part = await self._on_loop(
                read_slice, self._broker, vhost, name, walk.start, SLICE, SLICE_BYTES, walk.priority
            )
            walk.take(part, self._view.watch.opened)
            if walk.over():
                break
        rows = [
            message_row(message, *self._view.watch.opened(message), asked.truncate, asked.encoding)
            | {"matched": place}
            for message, place in walk.found
        ]
        return json_response(walk.row() | {"messages": rows})


class Slice(NamedTuple):
    """Some messages, the first position there is, the one behind the last, and of what."""

    messages: list[Message]
    first: int
    end: int
    priority: int
    priorities: int


def read_slice(
    broker: Broker, vhost: str, name: str, start: int, count: int, most_bytes: int, priority: int
) -> Slice:
    """Messages of a queue from position ``start`` on, for use on the data loop.

    ``priority``: -1 = the highest that has messages.  Raises NotFound, BadQuery, AccessRefused.
    """
    queue = broker.vhost(vhost).queue(name)
    queue.check_owner(None)
    check_parts(queue.backing, name, vhost)
    priorities = queue.backing.priorities()
    if priority < 0:
        priority = _highest_with_messages(queue.backing)
    part = queue.backing.part(priority)
    if part is None:
        raise BadQuery(f"the queue's priorities end at {priorities[-1]}")
    floor, end = int(part.tiers.floor_seq_id()), int(part.records.next_seq_id)
    failed = part.records.failed_reads
    messages = part.reads.read_range(max(start, floor), end, count, most_bytes)
    if not messages:
        check_read(part, failed, queue.name, queue.vhost)
    return Slice(snapshots(messages), floor, end, priority, len(priorities))


def message_row(
    message: Message, properties: dict[str, object], body: bytes, truncate: int, encoding: str
) -> Row:
    """In the shape of RabbitMQ's ``/get``, and the position."""
    shown = body[:truncate]
    payload, used = base64.b64encode(shown).decode(), "base64"
    if encoding == "auto":
        with contextlib.suppress(UnicodeDecodeError):
            payload, used = shown.decode(), "string"
    size = message.address[0]
    return {
        "seq_id": int(message.seq_id),
        "payload_bytes": len(body),
        "payload": payload,
        "payload_encoding": used,
        "redelivered": bool(message.flags & REDELIVERED),
        "exchange": message.address[1 : 1 + size].decode("utf-8", "replace"),
        "routing_key": message.address[2 + size :].decode("utf-8", "replace"),
        "properties": jsonable(properties),
        "enqueued_at_ms": int(message.enqueued_at_ms),
        "expires_at_ms": int(message.expires_at_ms) or None,
    }


def snapshots(messages: list[Message]) -> list[Message]:
    """For use on the data loop, which goes on to change its own: paging takes their contents."""
    copies: list[Message] = []
    for message in messages:
        copy = Message(message.content, message.address, message.flags, message.expires_at_ms)
        copy.place(message.seq_id, message.enqueued_at_ms)
        copies.append(copy)
    return copies


def _highest_with_messages(backing: BackingQueue) -> int:
    """The lowest where there are no messages."""
    priorities = backing.priorities()
    filled = [
        priority
        for priority, part in zip(priorities, backing.parts(), strict=True)
        if part.ready_count() > 0
    ]
    return max(filled, default=priorities[0])


def number_asked(request: web.Request, key: str, default: int, largest: int) -> int:
    """Python refuses to read thousands of digits, so they are counted first."""
    digits = request.query.get(key)
    if digits is None:
        return default
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= DIGITS_MAX
    if not is_number or int(digits) > largest:
        raise BadQuery(f"{key}: a number from 0 to {largest}")
    return int(digits)


class _Asked:
    def __init__(self, request: web.Request) -> None:
        self.text = request.query.get("text", "")
        if not self.text or len(self.text) > TEXT_MAX:
            raise BadQuery(f"text: 1 to {TEXT_MAX} characters")
        self.encoding = request.query.get("encoding", "auto")
        if self.encoding not in ENCODINGS:
            raise BadQuery(f"encoding: one of {', '.join(ENCODINGS)}")
        self.start = number_asked(request, "from", -1, EVERY_SEQ_ID)
        self.count = max(number_asked(request, "count", FOUND, FOUND_MAX), 1)
        self.truncate = number_asked(request, "truncate", TRUNCATE, TRUNCATE_MAX)
        self.priority = number_asked(request, "priority", -1, 255)


class _Walk:
    def __init__(self, asked: _Asked) -> None:
        self.start = asked.start
        self.priority = asked.priority
        self.found: list[tuple[Message, str]] = []
        self._wanted = asked.text.casefold()
        self._count = asked.count
        self._looked = 0
        self._looked_bytes = 0
        self._last: Slice | None = None
        self._at_end = False

    def over(self) -> bool:
        return (
            self._at_end
            or len(self.found) >= self._count
            or self._looked >= LOOKED_MAX
            or self._looked_bytes >= LOOKED_BYTES_MAX
        )

    def take(self, part: Slice, opened: Opened) -> None:
        self._last = part
        self.priority = part.priority  # each is numbered for itself: the first one stays
        for message in part.messages:
            self.start = int(message.seq_id) + 1
            self._looked += 1
            self._looked_bytes += int(message.size)
            place = match(message, self._wanted, *opened(message))
            if place is not None:
                self.found.append((message, place))
                if len(self.found) >= self._count:
                    break
        self._at_end = not part.messages or self.start >= part.end

    def row(self) -> Row:
        assert self._last is not None, "at least one slice was read"
        row: Row = {
            "looked_at": self._looked,
            "first": self._last.first,
            "next": None if self._at_end else self.start,
            "end": self._last.end,
        }
        if self._last.priorities > 1:
            row["priority"] = self.priority
        return row


def match(message: Message, wanted: str, properties: dict[str, object], body: bytes) -> str | None:
    """Where ``wanted``, which is casefolded, is in it; None = nowhere."""
    if wanted in body.decode("utf-8", "replace").casefold():
        return "body"
    if wanted in message.address.decode("utf-8", "replace").casefold():
        return "address"
    for name, value in properties.items():
        if wanted in f"{name} {value}".casefold():
            return name
    return None
