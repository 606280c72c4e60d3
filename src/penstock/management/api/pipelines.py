"""Pipelines over HTTP: the reports of those that report to this node.

    GET  /api/penstock/pipelines    of every virtual host the user may enter; of all with the
                                    tag monitoring or administrator

The rows are those of ``broker/pipelines``.
"""

from aiohttp import web

from penstock.clocks import wall_ms
from penstock.management.facts.rows import Row
from penstock.management.http.access import Visitor
from penstock.management.http.bodies import json_response
from penstock.management.http.endpoints import Endpoints, Route


class PipelinesApi(Endpoints):
    def routes(self) -> list[Route]:
        return [Route("/api/penstock/pipelines", {"GET": self.pipelines})]

    async def pipelines(self, _request: web.Request, visitor: Visitor) -> web.Response:
        return json_response(await self._on_loop(self._rows, visitor))

    def _rows(self, visitor: Visitor) -> list[Row]:
        vhosts = {
            name: vhost
            for name, vhost in self._broker.vhosts.items()
            if visitor.may_monitor or visitor.may_enter(name)
        }
        return self._broker.pipelines.rows(vhosts, wall_ms())
