"""Exchanges and bindings over HTTP."""

from aiohttp import web

from penstock.management.access import Visitor
from penstock.management.desk import Route, json_response
from penstock.management.listing import ListQuery
from penstock.management.lists import ListDesk, slices
from penstock.management.rows import Row


class ExchangesApi(ListDesk):
    """See the head of this file."""

    def routes(self) -> list[Route]:
        return [
            Route("/api/exchanges", {"GET": self.exchanges}),
            Route("/api/exchanges/{vhost}", {"GET": self.exchanges}),
            Route("/api/exchanges/{vhost}/{name}", {"GET": self.exchange}),
            Route("/api/bindings", {"GET": self.bindings}),
            Route("/api/bindings/{vhost}", {"GET": self.bindings}),
        ]

    async def exchanges(self, request: web.Request, visitor: Visitor) -> web.Response:
        query = ListQuery(request.query)
        vhosts = await self.asked_vhosts(request, visitor)
        pairs = await self.pairs_of(vhosts, self._view.exchange_names)
        return await self.answer_pairs(query, pairs, self._view.exchange_rows)

    async def exchange(self, request: web.Request, visitor: Visitor) -> web.Response:
        (vhost,) = await self.asked_vhosts(request, visitor)
        name = request.match_info["name"]
        row = await self._on_loop(self._view.exchange_row, vhost, name)
        return json_response(ListQuery(request.query).project(row))

    async def bindings(self, request: web.Request, visitor: Visitor) -> web.Response:
        query = ListQuery(request.query)
        view = self._view
        rows: list[Row] = []
        for vhost in await self.asked_vhosts(request, visitor):
            queues = await self._on_loop(view.queue_names, vhost)
            for part in slices(sorted(queues)):
                rows += await self._on_loop(view.default_binding_rows, vhost, part)
            exchanges = await self._on_loop(view.exchange_names, vhost)
            for exchange in sorted(exchanges):
                tokens = await self._on_loop(view.bindings_from, vhost, exchange)
                for some in slices(tokens):
                    rows += await self._on_loop(view.binding_rows, some)
        return await self.answer_rows(query, rows, pageable=False)
