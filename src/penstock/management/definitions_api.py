"""``/api/definitions``: everything declared, as RabbitMQ's JSON, out and in; administrators only.

An import is done on the data loop in slices, between which clients are served.  It answers 204
when all was taken, as RabbitMQ does, and else 200 with ``{"left_out": [...]}``: what was not, and
why.  It adds and changes; it removes nothing.
"""

import json
import secrets
import time
from typing import Final

from aiohttp import web

from penstock.broker.administration import Administration
from penstock.broker.broker import Broker
from penstock.broker.definitions_json import DefinitionsImport, export_definitions
from penstock.core.errors import AccessRefused, NotFound
from penstock.management.access import Visitor
from penstock.management.api import DIALECT, OnLoop, json_response
from penstock.management.listing import BadQuery

STEPS: Final = 50
"""Rows per slice: a declared queue costs some tens of microseconds."""
BODY_MAX_BYTES: Final = 256 * 1024 * 1024


class DefinitionsApi:
    """Export and import, of all or of one virtual host."""

    def __init__(self, broker: Broker, on_loop: OnLoop, version: str, segment_entries: int) -> None:
        self._broker = broker
        self._on_loop = on_loop
        self._version = version
        self._segment_entries = segment_entries

    async def export(self, request: web.Request, visitor: Visitor) -> web.Response:
        name = await self._vhost(request, visitor)
        exported = await self._on_loop(
            export_definitions, self._broker, DIALECT, self._version, name
        )
        return json_response(exported)

    async def take(self, request: web.Request, visitor: Visitor) -> web.Response:
        name = await self._vhost(request, visitor)
        body = await request.clone(client_max_size=BODY_MAX_BYTES).read()
        try:
            definitions = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise BadQuery("bad_request", "failed_to_parse_json") from error
        work = await self._on_loop(self._begin, definitions, name)
        while not await self._on_loop(work.run, time.time_ns() // 1_000_000, STEPS):
            pass
        # Once more around: what was declared is on disk when the loop comes here.
        await self._on_loop(len, work.left_out)
        if work.left_out:
            return json_response({"left_out": work.left_out})
        return web.Response(status=204)

    def _begin(self, definitions: object, vhost: str) -> DefinitionsImport:
        admin = Administration(self._broker, self._segment_entries)
        return DefinitionsImport(
            self._broker, admin, definitions, lambda: secrets.token_bytes(4), vhost
        )

    async def _vhost(self, request: web.Request, visitor: Visitor) -> str:
        """The one in the path, "" = all; raises unless an administrator asks."""
        if "administrator" not in visitor.tags:
            raise AccessRefused("Not administrator user")
        name = request.match_info.get("vhost", "")
        if name and not await self._on_loop(self._broker.vhosts.__contains__, name):
            raise NotFound(f"vhost {name} not found")
        return name
