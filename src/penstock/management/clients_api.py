"""Connections, channels and consumers over HTTP."""

from typing import Final

from aiohttp import web

from penstock.core.errors import AccessRefused
from penstock.management.access import Visitor
from penstock.management.desk import Route, json_response
from penstock.management.listing import ListQuery
from penstock.management.lists import ListDesk, runs
from penstock.management.rows import Row

CLOSED_HERE: Final = "Closed via management plugin"
"""What RabbitMQ tells a client whose connection somebody closed without a word."""


class ClientsApi(ListDesk):
    """See the head of this file."""

    def routes(self) -> list[Route]:
        return [
            Route("/api/connections", {"GET": self.connections}),
            Route(
                "/api/connections/{name}",
                {"GET": self.connection, "DELETE": self.close_connection},
            ),
            Route("/api/channels", {"GET": self.channels}),
            Route("/api/consumers", {"GET": self.consumers}),
            Route("/api/consumers/{vhost}", {"GET": self.consumers}),
        ]

    async def consumers(self, request: web.Request, visitor: Visitor) -> web.Response:
        query = ListQuery(request.query)
        vhosts = await self.asked_vhosts(request, visitor)
        pairs = await self.pairs_of(vhosts, self._view.queue_names)
        rows: list[Row] = []
        for vhost, names in runs(pairs):
            rows += await self._on_loop(self._view.consumer_rows, vhost, names)
        return await self.answer_rows(query, rows, pageable=False)

    async def connections(self, request: web.Request, visitor: Visitor) -> web.Response:
        query = ListQuery(request.query)
        rows = await self.session_rows(self._view.connection_rows, visitor)
        return await self.answer_rows(query, rows, pageable=True)

    async def connection(self, request: web.Request, visitor: Visitor) -> web.Response:
        row = await self._known_connection(request, visitor, visitor.may_monitor)
        return json_response(ListQuery(request.query).project(row))

    async def close_connection(self, request: web.Request, visitor: Visitor) -> web.Response:
        row = await self._known_connection(request, visitor, visitor.is_administrator)
        given = request.headers.get("X-Reason", CLOSED_HERE)
        reason = given.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        await self._on_loop(self._view.close_connection, str(row["name"]), reason)
        return web.Response(status=204)

    async def _known_connection(
        self, request: web.Request, visitor: Visitor, others_too: bool
    ) -> Row:
        """That of the path; raises AccessRefused when it is somebody else's."""
        row = await self._on_loop(self._view.connection_row, request.match_info["name"])
        if not others_too and row["user"] != visitor.name:
            raise AccessRefused("User not authorised to access object")
        return row

    async def channels(self, request: web.Request, visitor: Visitor) -> web.Response:
        query = ListQuery(request.query)
        rows = await self.session_rows(self._view.channel_rows, visitor)
        return await self.answer_rows(query, rows, pageable=True)
