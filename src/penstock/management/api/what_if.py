"""Dry runs over HTTP: questions to the router that change nothing.

    GET /api/penstock/route/{vhost}/{exchange}   ?routing_key=KEY&headers={JSON}
        {"queues": [names], "hops": […], "reached": […], "publishers_wait": null}: the way of a
        message; only queues the visitor may read

The answers come from what routes in earnest, so no second opinion can differ.
"""

from typing import Any, Final, cast

from aiohttp import web

from penstock.broker.rules.judges import READ
from penstock.broker.topology.explain import Hop, explain, hold_ups
from penstock.broker.topology.vhost import Vhost
from penstock.clocks import wall_ms
from penstock.core.json_reading import json_of
from penstock.core.steps import steps
from penstock.management.facts.rows import DEFAULT_EXCHANGE_IN_PATHS, Row, jsonable
from penstock.management.http.access import Visitor
from penstock.management.http.bodies import json_response
from penstock.management.http.endpoints import Endpoints
from penstock.management.http.listing import BadQuery
from penstock.queues.context import queue_type
from penstock.queues.queue import Queue
from penstock.routing.matcher import RoutingContext

QUEUES_SHOWN: Final = 200
"""That a message reaches, with what holds it up there."""


class WhatIfApi(Endpoints):
    heading = "what if"
    table = """
        user  penstock/route/{vhost}/{exchange}  GET=route  Where a message would go
    """

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
            **vhost.policies.queue_row(queue.limits.policies),
            "hold_ups": hold_ups(queue),
            "dead_letter_exchange": exchange,
            "dead_letter_routing_key": None if exchange is None else queue.limits.dead_letter_key,
        }


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


def _headers(text: str) -> dict[str, Any]:
    try:
        headers = json_of(text)
    except ValueError as error:
        raise BadQuery("headers: not_json") from error
    if not isinstance(headers, dict):
        raise BadQuery("headers: not_json")
    return headers
