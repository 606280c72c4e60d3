"""Operation of a node over HTTP: its log, drain, stop.  Administrators only, the log excepted.

    GET   /api/penstock/log?lines=100         the last lines, from memory (monitoring)
    GET   /api/penstock/log-level             {"level": "info", "categories": {"queue": "debug"}}
    PUT   /api/penstock/log-level             the same with "category" for one of them
    GET   /api/penstock/drain                 {"draining": true, "connections": 3,
                                               "masters_to_go": 2,
                                               "first_to_go": ["queue 'orders' in vhost '/'", ...]}
    POST  /api/penstock/drain                 no new clients; who is connected goes on
    POST  /api/penstock/revive                clients are let in again
    POST  /api/penstock/stop                  an orderly stop; 204 comes before it
    POST  /api/penstock/backup                {"directory": "/mnt/backup/n1"}: a copy of the data
                                              directory; answers {"bytes": 1234} when it is whole;
                                              from this machine only

None of this outlives the process: a restart reads the settings.  In a cluster a drained node also
hands its masters over to synchronised mirrors and takes no new ones; that is kept by the cluster,
until the node is revived.
"""

import asyncio
from typing import Any, Final

from aiohttp import web

from penstock.core.errors import AccessRefused
from penstock.management.http.access import ADMINISTRATOR, MONITORING, Visitor
from penstock.management.http.bodies import DIGITS_MAX, json_body, json_response
from penstock.management.http.control import NodeControl
from penstock.management.http.endpoints import Endpoints, Route
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


class OperatingApi(Endpoints):
    heading = "Operating"

    def routes(self) -> list[Route]:
        return [
            Route("/api/penstock/log", {"GET": self.log}, "The last lines of the log", MONITORING),
            Route(
                "/api/penstock/log-level",
                {"GET": self.level, "PUT": self.put_level},
                "Least important line that is logged, of all or of a category",
                MONITORING,
                writer=ADMINISTRATOR,
            ),
            Route(
                "/api/penstock/drain",
                {"GET": self.drained, "POST": self.drain},
                "Refuse new clients; the connections that are left",
                MONITORING,
                writer=ADMINISTRATOR,
            ),
            Route(
                "/api/penstock/revive", {"POST": self.revive}, "Let clients in again", ADMINISTRATOR
            ),
            Route("/api/penstock/stop", {"POST": self.stop}, "Stop in good order", ADMINISTRATOR),
            Route(
                "/api/penstock/backup",
                {"POST": self.back_up},
                "Copy the data directory while the node runs",
                ADMINISTRATOR,
            ),
        ]

    @property
    def _control(self) -> NodeControl:
        return self._context.control

    # -- the log -------------------------------------------------------------------------

    async def log(self, request: web.Request, visitor: Visitor) -> web.Response:
        text = request.query.get("lines", str(LINES))
        if not text.isdecimal() or len(text) > DIGITS_MAX or not 0 < int(text) <= LINES_MAX:
            raise BadQuery("bad_request", f"lines: a whole number from 1 to {LINES_MAX}")
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
            raise BadQuery("bad_request", f"level: one of {', '.join(LEVELS)}")
        if category and category not in CATEGORIES:
            raise BadQuery("bad_request", f"category: one of {', '.join(CATEGORIES)}")
        self._control.set_log_level(level, category)

    # -- backup ----------------------------------------------------------------------------

    async def back_up(self, request: web.Request, visitor: Visitor) -> web.Response:
        asked = await json_body(request)
        directory = asked.get("directory")
        if set(asked) != {"directory"} or not isinstance(directory, str):
            raise BadQuery("bad_request", "directory: an absolute path on the node's machine")
        if not is_loopback(request.remote or ""):
            raise AccessRefused("a backup is asked for on the node's own machine")
        await self._on_loop(self._control.back_up, directory)
        state = self._control.backup()
        while state["under_way"]:
            await asyncio.sleep(LOOK_S)
            state = self._control.backup()
        if state["error"]:
            raise BadQuery("bad_request", state["error"])
        return json_response({"bytes": state["bytes"]})

    # -- doors and end ---------------------------------------------------------------------

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
            raise BadQuery("bad_request", str(error)) from error
        await self.change(self._broker.mirrors.revive, self._view.node_name)
        return json_response(await self._on_loop(self._drained))

    async def stop(self, _request: web.Request, visitor: Visitor) -> None:
        self._control.stop()
