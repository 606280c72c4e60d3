"""Operation of a node over HTTP: its log, drain, stop.  Administrators only, the log excepted.

    GET   /api/penstock/log?lines=100         the last lines, from memory (monitoring)
    GET   /api/penstock/log-level             {"level": "info", "categories": {"queue": "debug"}}
    PUT   /api/penstock/log-level             the same with "category" for one of them
    GET   /api/penstock/drain                 {"draining": true, "connections": 3,
                                               "masters_to_go": 2,
                                               "first_to_go": ["queue 'orders' in vhost '/'", ...]}
    POST  /api/penstock/stop                  an orderly stop; 204 comes before it
    POST  /api/penstock/backup                {"directory": "/mnt/backup/n1"}: a copy of the data
                                              directory; answers {"bytes": 1234} when it is whole;
                                              from this machine only
    GET   /api/penstock/audit?user=ann&action=queue_deleted&limit=50    the audit trail
          {"records": [{"at": "2026-11-27T19:10:00.123Z", "user": "ann", ...}, ...],
           "next": "3-1048576"}

None of this outlives the process: a restart reads the settings.  In a cluster a drained node also
hands its masters over to synchronised mirrors and takes no new ones; that is kept by the cluster,
until the node is revived.

The newest records of the trail come first.  ``user``, ``protocol``, ``address``, ``action`` and
``answer`` are equal to those given; ``object`` is a text in the object; ``since_ms`` and
``until_ms`` are points in time.  Others follow while ``next`` is not null: it is the ``before`` of
the request for them.  One answer reads a bounded part of the files, so it may have fewer records
than asked, or none.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from aiohttp import web

from penstock.core.clock_types import WallMs
from penstock.core.errors import AccessRefused
from penstock.management.http.access import Visitor
from penstock.management.http.bodies import DIGITS_MAX, json_body, json_response
from penstock.management.http.control import TIME_MAX_MS, NodeControl, TrailQuery
from penstock.management.http.endpoints import Endpoints
from penstock.management.http.listing import BadQuery
from penstock.settings.listener_table import is_loopback

LEVELS: Final = ("debug", "info", "warning", "error", "critical", "none")
CATEGORIES: Final = (
    "alarm", "channel", "connection", "events", "loop", "management", "node", "policy", "queue",
    "tls", "user", "vhost",
)  # fmt: skip
LINES: Final = 100
LINES_MAX: Final = 2000
LOOK_S: Final = 0.1
SHOWN: Final = 5
"""Of the queues whose masters are to go."""
TRAIL_FIELDS: Final = ("user", "protocol", "address", "action", "answer")
TRAIL_NUMBERS: Final = ("since_ms", "until_ms", "limit")
RECORDS: Final = 100
RECORDS_MAX: Final = 1000
TIME_DIGITS_MAX: Final = 18


class OperatingApi(Endpoints):
    heading = "Operating"
    table = """
        monitoring                penstock/log  GET=log  The last lines of the log
        monitoring/administrator  penstock/log-level  GET=level PUT=put_level  \
            Least important line that is logged, of all or of a category
        monitoring/administrator  penstock/drain  GET=drained POST=drain  \
            Refuse new clients; the connections that are left
        administrator             penstock/revive  POST=revive  Let clients in again
        administrator             penstock/stop  POST=stop  Stop in good order
        administrator             penstock/backup  POST=back_up  \
            Copy the data directory while the node runs
        administrator             penstock/audit  GET=records  \
            Who did what, from where, when, with what answer
    """

    @property
    def _control(self) -> NodeControl:
        return self._context.control

    # -- the log -------------------------------------------------------------------------

    async def log(self, request: web.Request, visitor: Visitor) -> web.Response:
        text = request.query.get("lines", str(LINES))
        if not text.isdecimal() or len(text) > DIGITS_MAX or not 0 < int(text) <= LINES_MAX:
            raise BadQuery(f"lines: a whole number from 1 to {LINES_MAX}")
        return json_response({"lines": self._control.log_lines(int(text))})

    async def level(self, _request: web.Request, visitor: Visitor) -> web.Response:
        levels = self._control.log_levels()
        level = levels.pop("", "info")
        return json_response({"level": level, "categories": levels})

    async def put_level(self, request: web.Request, visitor: Visitor) -> None:
        asked = await json_body(request)
        unknown = set(asked) - {"level", "category"}
        level, category = asked.get("level"), asked.get("category", "")
        if unknown or level not in (*LEVELS, *([""] if category else [])):
            raise BadQuery(f"level: one of {', '.join(LEVELS)}")
        if category and category not in CATEGORIES:
            raise BadQuery(f"category: one of {', '.join(CATEGORIES)}")
        self._control.set_log_level(level, category)

    # -- backup ----------------------------------------------------------------------------

    async def back_up(self, request: web.Request, visitor: Visitor) -> web.Response:
        asked = await json_body(request)
        directory = asked.get("directory")
        if set(asked) != {"directory"} or not isinstance(directory, str):
            raise BadQuery("directory: an absolute path on the node's machine")
        if not is_loopback(request.remote or ""):
            raise AccessRefused("a backup is asked for on the node's own machine")
        await self._on_loop(self._control.back_up, directory)
        state = self._control.backup()
        while state["under_way"]:
            await asyncio.sleep(LOOK_S)
            state = self._control.backup()
        if state["error"]:
            raise BadQuery(state["error"])
        return json_response({"bytes": state["bytes"]})

    # -- listeners and end -----------------------------------------------------------------

    async def drained(self, _request: web.Request, visitor: Visitor) -> web.Response:
        return json_response(await self._on_loop(self._drained))

    def _drained(self) -> dict[str, Any]:
        """Who and what is still here; masters that no other node could have are not counted."""
        to_go = self._broker.mirrors.leaving(self._view.node_name)
        return self._control.drained() | {
            "masters_to_go": len(to_go),
            "first_to_go": [f"queue '{name}' in vhost '{vhost}'" for vhost, name in to_go[:SHOWN]],
        }

    async def drain(self, _request: web.Request, visitor: Visitor) -> web.Response:
        await self._on_loop(self._control.drain)
        await self.change(self._broker.mirrors.drain, self._view.node_name)
        return json_response(await self._on_loop(self._drained))

    async def revive(self, _request: web.Request, visitor: Visitor) -> web.Response:
        try:
            await self._on_loop(self._control.revive)
        except OSError as error:
            raise BadQuery(str(error)) from error
        await self.change(self._broker.mirrors.revive, self._view.node_name)
        return json_response(await self._on_loop(self._drained))

    async def stop(self, _request: web.Request, visitor: Visitor) -> None:
        self._control.stop()

    async def records(self, request: web.Request, _visitor: Visitor) -> web.Response:
        asked = request.query
        unknown = asked.keys() - {*TRAIL_FIELDS, *TRAIL_NUMBERS, "object", "before"}
        if unknown:
            raise BadQuery(f"unknown: {', '.join(sorted(unknown))}")
        query = TrailQuery(
            {name: asked[name] for name in TRAIL_FIELDS if name in asked},
            asked.get("object", ""),
            WallMs(_number(asked, "since_ms", 0)),
            WallMs(_number(asked, "until_ms", int(TIME_MAX_MS))),
            asked.get("before", ""),
            _number(asked, "limit", RECORDS),
        )
        if not 0 < query.limit <= RECORDS_MAX:
            raise BadQuery(f"limit: from 1 to {RECORDS_MAX}")
        try:
            found = await asyncio.to_thread(self._context.control.audit_records, query)
        except ValueError as error:
            raise BadQuery("before: the value that next had") from error
        return json_response(found)


def _number(asked: Mapping[str, str], name: str, default: int) -> int:
    text = asked.get(name, str(default))
    if not text.isdecimal() or len(text) > TIME_DIGITS_MAX:
        raise BadQuery(f"{name}: a whole number")
    return min(int(text), int(TIME_MAX_MS))
