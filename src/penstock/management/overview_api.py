"""The node over HTTP: who asks, the totals, the node, its storage and flow."""

from typing import Final

from aiohttp import web

from penstock.core.errors import NotFound
from penstock.management.access import Visitor
from penstock.management.desk import DIALECT, Route, json_response, must_monitor
from penstock.management.listing import ListQuery
from penstock.management.lists import ListDesk, in_order
from penstock.management.page import MAX_QUEUES, POLICY, status_page
from penstock.management.rows import Row

EXCHANGE_TYPES: Final = ("direct", "fanout", "headers", "topic", "x-consistent-hash")


class OverviewApi(ListDesk):
    """See the head of this file."""

    def routes(self) -> list[Route]:
        return [
            Route("/api/whoami", {"GET": self.whoami}),
            Route("/api/overview", {"GET": self.overview}),
            Route("/api/nodes", {"GET": self.nodes}),
            Route("/api/nodes/{node}", {"GET": self.node}),
            Route("/api/penstock/storage", {"GET": self.storage}),
            Route("/api/penstock/flow", {"GET": self.flow}),
            Route("/status", {"GET": self.page}),
        ]

    async def whoami(self, request: web.Request, visitor: Visitor) -> web.Response:
        return json_response({"name": visitor.name, "tags": list(visitor.tags)})

    async def overview(self, request: web.Request, visitor: Visitor) -> web.Response:
        query = ListQuery(request.query)
        vhosts = await self.visible_vhosts(visitor)
        ready, unacked, consumers = await self.message_counts(vhosts)
        exchanges, queues = await self._on_loop(self._view.count_entities, vhosts)
        connections = await self.session_rows(self._view.connection_rows, visitor)
        channel_counts = [row["channels"] for row in connections]
        object_totals: Row = {
            "connections": len(connections),
            "channels": sum(count for count in channel_counts if isinstance(count, int)),
            "consumers": consumers,
            "exchanges": exchanges,
            "queues": queues,
        }
        row: Row = {
            "management_version": DIALECT,
            "rabbitmq_version": DIALECT,
            "product_name": "Penstock",
            "product_version": self._context.version,
            "node": self._view.node_name,
            "cluster_name": self._view.node_name,
            "rates_mode": "none",
            "exchange_types": [{"name": name, "enabled": True} for name in EXCHANGE_TYPES],
            "queue_totals": {
                "messages": ready + unacked,
                "messages_ready": ready,
                "messages_unacknowledged": unacked,
            },
            "object_totals": object_totals,
            # Tools refuse an overview without the key; nothing is counted over all channels.
            "message_stats": {},
        }
        if visitor.may_monitor:
            row["listeners"] = await self._on_loop(self._view.listener_rows)
            row["contexts"] = self._context.contexts
        return json_response(query.project(row))

    async def nodes(self, request: web.Request, visitor: Visitor) -> web.Response:
        must_monitor(visitor)
        query = ListQuery(request.query)
        return json_response([query.project(self._context.node.row())])

    async def node(self, request: web.Request, visitor: Visitor) -> web.Response:
        must_monitor(visitor)
        asked = request.match_info["node"]
        # Checks written for RabbitMQ spell the name themselves: rabbit@ and the host.
        alias = "rabbit@" + self._view.node_name.partition("@")[2]
        if asked not in (self._view.node_name, alias):
            raise NotFound(f"no node '{asked}'")
        return json_response(ListQuery(request.query).project(self._context.node.row()))

    async def flow(self, request: web.Request, visitor: Visitor) -> web.Response:
        must_monitor(visitor)
        return json_response(await self._on_loop(self._view.flow_row))

    async def storage(self, request: web.Request, visitor: Visitor) -> web.Response:
        must_monitor(visitor)
        row = await self._on_loop(self._view.storage_row)
        return json_response(ListQuery(request.query).project(row))

    async def page(self, request: web.Request, visitor: Visitor) -> web.Response:
        vhosts = await self.visible_vhosts(visitor)
        pairs = in_order(await self.pairs_of(vhosts, self._view.queue_names))
        rows: list[Row] = []
        async for part in self._read(pairs[:MAX_QUEUES], self._view.queue_rows):
            rows += part
        return web.Response(
            text=status_page(self._view.node_name, self._context.version, len(pairs), rows),
            content_type="text/html",
            headers={"Content-Security-Policy": POLICY},
        )
