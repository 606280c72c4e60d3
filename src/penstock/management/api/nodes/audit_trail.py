"""The audit trail of this node over HTTP, for administrators.

    GET  /api/penstock/audit?user=ann&action=queue_deleted&limit=50
         {"records": [{"at": "2026-11-27T19:10:00.123Z", "user": "ann", ...}, ...],
          "next": "3-1048576"}

The newest records come first.  ``user``, ``protocol``, ``address``, ``action`` and ``answer`` are
equal to those given; ``object`` is a text in the object; ``since_ms`` and ``until_ms`` are points
in time.  Others follow while ``next`` is not null: it is the ``before`` of the request for them.
One answer reads a bounded part of the files, so it may have fewer records than asked, or none.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

from aiohttp import web

from penstock.core.clock_types import WallMs
from penstock.management.http.access import ADMINISTRATOR, Visitor
from penstock.management.http.bodies import json_response
from penstock.management.http.control import TIME_MAX_MS, TrailQuery
from penstock.management.http.endpoints import Endpoints, Route
from penstock.management.http.listing import BadQuery

FIELDS: Final = ("user", "protocol", "address", "action", "answer")
NUMBERS: Final = ("since_ms", "until_ms", "limit")
LIMIT: Final = 100
LIMIT_MAX: Final = 1000
DIGITS_MAX: Final = 18


class AuditTrailApi(Endpoints):
    heading = "Operating"

    def routes(self) -> list[Route]:
        about = "Who did what, from where, when, with what answer"
        return [Route("/api/penstock/audit", {"GET": self.records}, about, ADMINISTRATOR)]

    async def records(self, request: web.Request, _visitor: Visitor) -> web.Response:
        asked = request.query
        unknown = asked.keys() - {*FIELDS, *NUMBERS, "object", "before"}
        if unknown:
            raise BadQuery("bad_request", f"unknown: {', '.join(sorted(unknown))}")
        query = TrailQuery(
            {name: asked[name] for name in FIELDS if name in asked},
            asked.get("object", ""),
            WallMs(_number(asked, "since_ms", 0)),
            WallMs(_number(asked, "until_ms", int(TIME_MAX_MS))),
            asked.get("before", ""),
            _number(asked, "limit", LIMIT),
        )
        if not 0 < query.limit <= LIMIT_MAX:
            raise BadQuery("bad_request", f"limit: from 1 to {LIMIT_MAX}")
        try:
            found = await asyncio.to_thread(self._context.control.audit_records, query)
        except ValueError as error:
            raise BadQuery("bad_request", "before: the value that next had") from error
        return json_response(found)


def _number(asked: Mapping[str, str], name: str, default: int) -> int:
    text = asked.get(name, str(default))
    if not text.isdecimal() or len(text) > DIGITS_MAX:
        raise BadQuery("bad_request", f"{name}: a whole number")
    return min(int(text), int(TIME_MAX_MS))
