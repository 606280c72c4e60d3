"""One virtual host over HTTP: made, described and traced, in the form of RabbitMQ's API.

    GET  /api/vhosts/{vhost}
    PUT  /api/vhosts/{vhost}    {"description": "...", "tags": "a,b" or ["a", "b"],
                                 "tracing": true or false}

``PUT`` makes a virtual host that is not there (201) and changes one that is (204); what the body
does not name stays as it is.  Only administrators may.  Nobody has permissions in a new one.
``tracing`` switches the firehose, until the node ends or is told otherwise.
"""

import json
from typing import Final

from aiohttp import web

from penstock.broker.administration import Administration
from penstock.broker.broker import Broker
from penstock.broker.definitions_json import tags_in
from penstock.core.errors import AccessRefused, PreconditionFailed
from penstock.management.access import Visitor
from penstock.management.api import OnLoop, json_response
from penstock.management.listing import BadQuery
from penstock.management.view import BrokerView

KNOWN: Final = ("description", "tags", "tracing", "default_queue_type")
SPELT: Final = {"true": True, "false": False}


class VhostApi:
    """See the head of this file."""

    def __init__(
        self, broker: Broker, view: BrokerView, on_loop: OnLoop, segment_entries: int
    ) -> None:
        self._broker = broker
        self._view = view
        self._on_loop = on_loop
        self._segment_entries = segment_entries

    async def get(self, request: web.Request, visitor: Visitor) -> web.Response:
        name = request.match_info["vhost"]
        row = await self._on_loop(self._view.vhost_row, name)
        if not (visitor.may_monitor or visitor.may_enter(name)):
            raise AccessRefused("User not authorised to access virtual host")
        return json_response(row)

    async def put(self, request: web.Request, visitor: Visitor) -> web.Response:
        if not visitor.is_administrator:
            raise AccessRefused("Not administrator user")
        body = await request.read()
        try:
            asked = json.loads(body) if body else {}
        except (ValueError, RecursionError) as error:
            raise BadQuery("bad_request", "not_json") from error
        if not isinstance(asked, dict):
            raise BadQuery("bad_request", "not_json")
        _check(asked)
        is_new = await self._on_loop(self._put, request.match_info["vhost"], asked)
        # Once more around: what was changed is on disk when the loop comes here.
        await self._on_loop(len, "")
        return web.Response(status=201 if is_new else 204)

    def _put(self, name: str, asked: dict[str, object]) -> bool:
        admin = Administration(self._broker, self._segment_entries)
        known = self._broker.vhosts.get(name)
        described = "description" in asked or "tags" in asked
        if known is None or described:
            description = "" if known is None else known.description
            tags = [] if known is None else known.tags
            admin.put_vhost(
                name,
                str(asked.get("description", description)),
                tags_in(asked["tags"]) if "tags" in asked else tags,
            )
        if "tracing" in asked:
            admin.trace(name, on=_flag(asked["tracing"]))
        return known is None


def _check(asked: dict[str, object]) -> None:
    """All of it is right, or nothing is done."""
    for key in asked:
        if key not in KNOWN:
            raise BadQuery("bad_request", f"unknown field '{key}'; known: {', '.join(KNOWN)}")
    if not isinstance(asked.get("description", ""), str):
        raise BadQuery("bad_request", "'description' is no text")
    if asked.get("default_queue_type") not in (None, "classic", "undefined"):
        raise BadQuery("bad_request", "its default_queue_type has no use here")
    try:
        tags_in(asked.get("tags", []))
    except PreconditionFailed as error:
        raise BadQuery("bad_request", str(error)) from error
    if "tracing" in asked:
        _flag(asked["tracing"])


def _flag(value: object) -> bool:
    found = SPELT.get(value) if isinstance(value, str) else value
    if not isinstance(found, bool):
        raise BadQuery("bad_request", f"not_boolean: {value}")
    return found
