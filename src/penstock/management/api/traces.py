"""The way of one message over HTTP: follow a trace, and ask what was seen of it so far.

    PUT /api/penstock/traces/{trace}   from now on the spans of that trace are kept
    GET /api/penstock/traces/{trace}   {"now_ms": …, "steps": […], "open": […]}

``trace`` are the 32 digits in the header ``traceparent`` of a message.  A step is a span
(``core/counting/spans.py``); ``open`` says where the message is now: ``in_queue``, or
``at_consumer``.  Only queues that the visitor may read are shown.  A trace is followed for ten
minutes, on the node that is asked; of too many, the oldest of the user who follows most is
forgotten.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from aiohttp import web

from penstock.broker.rules.judges import READ
from penstock.clocks import wall_ms
from penstock.core.counting.spans import PUBLISH, QUEUE, Span
from penstock.management.http.access import Visitor
from penstock.management.http.bodies import json_response
from penstock.management.http.endpoints import Endpoints, NotThere
from penstock.management.http.listing import BadQuery
from penstock.queues.sampling import OPEN, RETURNED

Row = dict[str, Any]
_TRACE: Final = re.compile(r"(?!0{32})[0-9a-f]{32}")
_PREFIX: Final = re.compile(r".*\.")


class TracesApi(Endpoints):
    heading = "traces"
    table = """
        user  penstock/traces/{trace}  PUT=follow GET=steps  The way of the messages of a trace
    """

    async def follow(self, request: web.Request, visitor: Visitor) -> None:
        book = self._broker.queue_context.sampling.spans
        await self._on_loop(book.follow, _asked(request), visitor.name, wall_ms())

    async def steps(self, request: web.Request, visitor: Visitor) -> web.Response:
        trace = _asked(request)
        book = self._broker.queue_context.sampling.spans
        spans = await self._on_loop(book.spans_of, trace, visitor.name)
        if spans is None:
            raise NotThere(f"trace {trace} is not followed")
        shown: list[Row] = []
        for span in spans:
            if not visitor.may_enter(span.vhost):
                continue
            row = _row(span)
            if span.step == PUBLISH:
                names = row["queues"]
                row["queues"] = [one for one in names if await self._may_read(visitor, span, one)]
            elif not await self._may_read(visitor, span, span.name):
                continue
            shown.append(row)
        return json_response({"now_ms": wall_ms(), "steps": shown, "open": _open(shown)})

    async def _may_read(self, visitor: Visitor, span: Span, name: str) -> bool:
        if span.vhost not in self._broker.vhosts:
            return False
        return await self._on_loop(visitor.may, READ, span.vhost, name)


def _asked(request: web.Request) -> str:
    trace = request.match_info["trace"]
    if not _TRACE.fullmatch(trace):
        raise BadQuery("a trace is 32 digits of 0-9 and a-f, not all of them 0")
    return trace


def _row(span: Span) -> Row:
    facts: Mapping[str, Any] = dict(span.facts)
    row: Row = {
        "step": span.step,
        "vhost": span.vhost,
        "name": span.name,
        "start_ms": span.start_ms,
        "end_ms": span.end_ms,
    }
    return row | {_PREFIX.sub("", key): value for key, value in facts.items()}


def _open(rows: list[Row]) -> list[Row]:
    """Where each queue's message is since when; of several messages of a trace, the last one."""
    found: dict[tuple[object, object], tuple[str, object] | None] = {}
    for row in rows:
        place = row["vhost"], row["name"]
        if row["step"] == PUBLISH:
            for name in row["queues"]:
                found[row["vhost"], name] = "in_queue", row["end_ms"]
        elif row["step"] == QUEUE:
            found[place] = "at_consumer", row["end_ms"]
        elif row["outcome"] == RETURNED:
            found[place] = "in_queue", row["end_ms"]
        elif row["outcome"] == OPEN:
            found[place] = "at_consumer", row["start_ms"]
        else:
            found[place] = None
    return [
        {"vhost": vhost, "queue": name, "state": now[0], "since_ms": now[1]}
        for (vhost, name), now in found.items()
        if now is not None
    ]
