"""Dry runs over HTTP: questions to the router and to policies that change nothing.

    GET /api/penstock/route/{vhost}/{exchange}   ?routing_key=KEY&headers={JSON}
        {"queues": [names]}: where a message would go; only queues the visitor may read
    GET /api/penstock/covered/{vhost}            ?pattern=REGEX&apply_to=queues
        {"count": N, "names": [the first hundred], "of": M}: what a policy would reach

The answers come from what routes and matches in earnest, so no second opinion can differ.  Names
are matched here, on management's own thread, with a copy of them: a pattern can be slow.
"""

import asyncio
import json
import re
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, cast

from aiohttp import web

from penstock.broker.rules.policies import APPLY_TO, EXCHANGES, QUEUES_OF
from penstock.clocks import wall_ms
from penstock.core import patterns
from penstock.core.errors import NotFound
from penstock.management.facts.rows import DEFAULT_EXCHANGE_IN_PATHS
from penstock.management.http.access import Visitor
from penstock.management.http.bodies import json_response
from penstock.management.http.endpoints import Endpoints, Route
from penstock.management.http.listing import BadQuery
from penstock.queues.context import queue_type
from penstock.queues.queue import Queue
from penstock.routing.exchanges import route
from penstock.routing.matcher import RoutingContext
from penstock.routing.steps import steps

NAMES_SHOWN: Final = 100


class WhatIfApi(Endpoints):
    """See the head of this file."""

    heading = "what if"

    def routes(self) -> list[Route]:
        return [
            Route(
                "/api/penstock/route/{vhost}/{exchange}",
                {"GET": self.route},
                "Where a message would go",
            ),
            Route(
                "/api/penstock/covered/{vhost}", {"GET": self.covered}, "What a policy would reach"
            ),
        ]

    # -- where a message would go ------------------------------------------------------------

    async def route(self, request: web.Request, visitor: Visitor) -> web.Response:
        vhost, exchange = request.match_info["vhost"], request.match_info["exchange"]
        await self.must_be_there(vhost, visitor)
        routing_key = request.query.get("routing_key", "")
        headers = _headers(request.query.get("headers", "{}"))
        names = await self._on_loop(self._reached, vhost, exchange, routing_key, headers)
        return json_response({"queues": [name for name in names if visitor.may_read(vhost, name)]})

    def _reached(
        self, vhost_name: str, name: str, routing_key: str, headers: dict[str, Any]
    ) -> list[str]:
        vhost = self._broker.vhost(vhost_name)
        if name == DEFAULT_EXCHANGE_IN_PATHS:
            return [routing_key] if routing_key in vhost.queues else []
        exchange = vhost.exchanges.get(name)
        if exchange is None:
            raise NotFound(f"no exchange '{name}'")
        context = RoutingContext(headers, wall_ms())
        steps.limit()
        try:
            found = cast(list[Queue], route(exchange, routing_key, context, vhost.exchanges))
        finally:
            steps.unlimit()
        # An internal queue (delays, a topic's backlog) is not shown.
        return [queue.name for queue in found if queue.releases_to is None]

    # -- what a policy would reach -----------------------------------------------------------

    async def covered(self, request: web.Request, visitor: Visitor) -> web.Response:
        vhost = request.match_info["vhost"]
        await self.must_be_there(vhost, visitor)
        apply_to = request.query.get("apply_to", "queues")
        if apply_to not in APPLY_TO:
            raise BadQuery("bad_request", f"apply_to: one of {', '.join(APPLY_TO)}")
        try:
            pattern = patterns.compiled(request.query.get("pattern", ""))
        except patterns.Refused as error:
            raise BadQuery("bad_request", f"pattern: {error}") from error
        kinds = APPLY_TO[apply_to]
        view = self._view
        queues = await self._on_loop(view.queues.names, vhost)
        names = await self._lists.gathered(queues, partial(self._of_kinds, vhost, kinds))
        if EXCHANGES in kinds:
            exchanges = await self._on_loop(view.exchanges.names, vhost)
            names += [name for name in exchanges if name != ""]
        found = await asyncio.to_thread(_found, pattern, names)
        return json_response({"count": len(found), "names": found[:NAMES_SHOWN], "of": len(names)})

    def _of_kinds(self, vhost_name: str, kinds: Sequence[str], names: Sequence[str]) -> list[str]:
        queues = self._broker.vhost(vhost_name).queues
        here = [queues[name] for name in names if name in queues]
        return [one.name for one in here if QUEUES_OF[queue_type(one.arguments)] in kinds]


def _found(pattern: re.Pattern[str], names: list[str]) -> list[str]:
    return sorted(name for name in names if pattern.search(name))


def _headers(text: str) -> dict[str, Any]:
    try:
        headers = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadQuery("bad_request", "headers: not_json") from error
    if not isinstance(headers, dict):
        raise BadQuery("bad_request", "headers: not_json")
    return headers
