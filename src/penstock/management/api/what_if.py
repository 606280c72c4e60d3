"""Dry runs over HTTP: questions to the router and to policies that change nothing.

    GET /api/penstock/route/{vhost}/{exchange}   ?routing_key=KEY&headers={JSON}
        {"queues": [names], "hops": […], "reached": […], "publishers_wait": null}: the way of a
        message; only queues the visitor may read
    GET /api/penstock/covered/{vhost}            ?pattern=REGEX&apply_to=queues
        {"count": N, "names": [the first hundred], "of": M}: what a policy would reach

The answers come from what routes and matches in earnest, so no second opinion can differ.  Names
are matched here, on management's own thread, with a copy of them: a pattern can be slow.
"""

import asyncio
import re
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, cast

from aiohttp import web

from penstock.broker.rules.judges import READ
from penstock.broker.rules.policies import APPLY_TO, EXCHANGES, QUEUES_OF
from penstock.broker.topology.vhost import Vhost
from penstock.broker.topology.way import Hop, explain, hold_ups
from penstock.clocks import wall_ms
from penstock.core import patterns
from penstock.core.json_reading import json_of
from penstock.core.steps import steps
from penstock.management.facts.rows import DEFAULT_EXCHANGE_IN_PATHS, Row, jsonable
from penstock.management.http.access import Visitor
from penstock.management.http.bodies import json_response
from penstock.management.http.endpoints import Endpoints, Route
from penstock.management.http.listing import BadQuery
from penstock.queues.context import queue_type
from penstock.queues.queue import Queue
from penstock.routing.matcher import RoutingContext

NAMES_SHOWN: Final = 100
QUEUES_SHOWN: Final = 200
"""That a message reaches, with what holds it up there."""


class WhatIfApi(Endpoints):
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
        name = "" if exchange == DEFAULT_EXCHANGE_IN_PATHS else exchange
        row = await self._on_loop(self._way, vhost, name, routing_key, headers)
        queues = cast(list[str], row["queues"])
        closed = [q for q in queues if not await self._on_loop(visitor.may, READ, vhost, q)]
        open_to_visitor = {
            "queues": [name for name in queues if name not in closed],
            "hops": [
                hop
                for hop in cast(list[Row], row["hops"])
                if hop["destination_type"] == "exchange" or hop["destination"] not in closed
            ],
            "reached": [
                one for one in cast(list[Row], row["reached"]) if one["name"] not in closed
            ],
        }
        return json_response(row | open_to_visitor)

    def _way(self, vhost_name: str, name: str, key: str, headers: dict[str, Any]) -> Row:
        vhost = self._broker.vhost(vhost_name)
        steps.limit()
        try:
            way = explain(vhost, name, key, RoutingContext(headers, wall_ms()))
        finally:
            steps.unlimit()
        return {
            "hops": [_hop_row(hop) for hop in way.hops],
            "queues": [queue.name for queue in way.queues],
            "reached": [self._reached_row(vhost, queue) for queue in way.queues[:QUEUES_SHOWN]],
            "publishers_wait": self._broker.admission.reason(vhost_name) or None,
        }

    def _reached_row(self, vhost: Vhost, queue: Queue) -> Row:
        kind = queue_type(queue.arguments)
        exchange = queue.limits.dead_letter_exchange
        return {
            "name": queue.name,
            "type": kind,
            **vhost.policies.queue_row(queue.name, kind),
            "hold_ups": hold_ups(queue),
            "dead_letter_exchange": exchange,
            "dead_letter_routing_key": None if exchange is None else queue.limits.dead_letter_key,
        }

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


def _hop_row(hop: Hop) -> Row:
    bindings = [
        {"routing_key": one.routing_key, "arguments": jsonable(one.arguments)}
        for one in hop.bindings
    ]
    return {
        "source": hop.source,
        "by": hop.by,
        "destination": hop.destination,
        "destination_type": "exchange" if hop.to_exchange else "queue",
        "bindings": bindings,
    }


def _found(pattern: re.Pattern[str], names: list[str]) -> list[str]:
    return sorted(name for name in names if pattern.search(name))


def _headers(text: str) -> dict[str, Any]:
    try:
        headers = json_of(text)
    except ValueError as error:
        raise BadQuery("bad_request", "headers: not_json") from error
    if not isinstance(headers, dict):
        raise BadQuery("bad_request", "headers: not_json")
    return headers
