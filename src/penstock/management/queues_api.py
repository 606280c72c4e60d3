"""Queues over HTTP: lists, one of them, purging."""

from typing import Final

from aiohttp import web

from penstock.core.errors import AccessRefused
from penstock.management.access import Visitor
from penstock.management.desk import Route, json_response
from penstock.management.listing import ListQuery
from penstock.management.lists import ListDesk

BASIC_QUEUE_COLUMNS: Final = [
    "arguments",
    "auto_delete",
    "durable",
    "exclusive",
    "name",
    "node",
    "state",
    "type",
    "vhost",
]
QUEUE_TOTAL_COLUMNS: Final = ["messages", "messages_ready", "messages_unacknowledged"]


class QueuesApi(ListDesk):
    """See the head of this file."""

    def routes(self) -> list[Route]:
        return [
            Route("/api/queues", {"GET": self.queues}),
            Route("/api/queues/{vhost}", {"GET": self.queues}),
            Route("/api/queues/{vhost}/{name}", {"GET": self.queue}),
            Route("/api/queues/{vhost}/{name}/contents", {"DELETE": self.purge}),
        ]

    async def queues(self, request: web.Request, visitor: Visitor) -> web.Response:
        query = ListQuery(request.query)
        if request.query.get("disable_stats") == "true" and not query.columns:
            query.columns = [[column] for column in BASIC_QUEUE_COLUMNS]
            if request.query.get("enable_queue_totals") == "true":
                query.columns += [[column] for column in QUEUE_TOTAL_COLUMNS]
        vhosts = await self.asked_vhosts(request, visitor)
        pairs = await self.pairs_of(vhosts, self._view.queue_names)
        return await self.answer_pairs(query, pairs, self._view.queue_rows)

    async def queue(self, request: web.Request, visitor: Visitor) -> web.Response:
        (vhost,) = await self.asked_vhosts(request, visitor)
        name = request.match_info["name"]
        row = await self._on_loop(self._view.queue_row, vhost, name)
        return json_response(ListQuery(request.query).project(row))

    async def purge(self, request: web.Request, visitor: Visitor) -> web.Response:
        (vhost,) = await self.asked_vhosts(request, visitor)
        name = request.match_info["name"]
        if not visitor.may_read(vhost, name):
            raise AccessRefused(f"access to queue '{name}' in vhost '{vhost}' refused")
        await self._on_loop(self._view.purge_queue, vhost, name)
        return web.Response(status=204)
