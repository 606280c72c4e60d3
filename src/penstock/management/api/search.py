"""Searching a queue's messages without taking them.

    GET /api/queues/{vhost}/{name}/messages/search
        ?text=TEXT&from=SEQ_ID&count=N&priority=P&truncate=BYTES&encoding=auto

``text`` is looked for in bodies, routing keys, exchanges, properties and headers, names and values,
without regard to case.  Nothing is taken from the queue or marked; it wants the right to read.

A queue may hold millions, some of them on disk, so a call looks at ``LOOKED_MAX`` messages or
``LOOKED_BYTES_MAX`` at most, and says in ``next`` where to go on (null: it came to the end).  What
is read from the disk is read on the data loop, a slice of a few hundred kilobytes at a time with
everybody else's turns in between.
"""

from collections.abc import Callable
from typing import Final

from aiohttp import web

from penstock.core.message import Message
from penstock.management.api.queues.queue_actions import (
    ENCODINGS,
    Slice,
    message_row,
    number_asked,
    read_slice,
)
from penstock.management.facts.rows import Row
from penstock.management.http.access import Visitor
from penstock.management.http.bodies import json_response
from penstock.management.http.endpoints import Endpoints, Route
from penstock.management.http.listing import BadQuery

SLICE: Final = 100
SLICE_BYTES: Final = 256 * 1024
LOOKED_MAX: Final = 2000
LOOKED_BYTES_MAX: Final = 8 * 1024 * 1024
FOUND: Final = 20
FOUND_MAX: Final = 200
TRUNCATE: Final = 2000
TRUNCATE_MAX: Final = 50_000
TEXT_MAX: Final = 1000
LARGEST: Final = 1 << 62

Opened = Callable[[Message], tuple[dict[str, object], bytes]]


class SearchApi(Endpoints):
    def routes(self) -> list[Route]:
        path = "/api/queues/{vhost}/{name}/messages/search"
        return [Route(path, {"GET": self.search})]

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


class _Asked:
    """The query."""

    def __init__(self, request: web.Request) -> None:
        self.text = request.query.get("text", "")
        if not self.text or len(self.text) > TEXT_MAX:
            raise BadQuery("bad_request", f"text: 1 to {TEXT_MAX} characters")
        self.encoding = request.query.get("encoding", "auto")
        if self.encoding not in ENCODINGS:
            raise BadQuery("bad_request", f"encoding: one of {', '.join(ENCODINGS)}")
        self.start = number_asked(request, "from", -1, LARGEST)
        self.count = max(number_asked(request, "count", FOUND, FOUND_MAX), 1)
        self.truncate = number_asked(request, "truncate", TRUNCATE, TRUNCATE_MAX)
        self.priority = number_asked(request, "priority", -1, 255)


class _Walk:
    """From position to position, with what was found on the way."""

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
