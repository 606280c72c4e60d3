"""Pipelines over HTTP: what those that report to this node have said of themselves.

    GET  /api/penstock/pipelines    of every virtual host the user may enter; of all with the
                                    tag monitoring or administrator

The rows are those of ``broker/pipelines``.
"""

import time

from aiohttp import web

from penstock.broker.broker import Broker
from penstock.management.access import Visitor
from penstock.management.api import OnLoop, json_response
from penstock.management.view import Row


class PipelinesApi:
    """See the head of this file."""

    def __init__(self, broker: Broker, on_loop: OnLoop) -> None:
        self._broker = broker
        self._on_loop = on_loop

    async def pipelines(self, _request: web.Request, visitor: Visitor) -> web.Response:
        return json_response(await self._on_loop(self._rows, visitor))

    def _rows(self, visitor: Visitor) -> list[Row]:
        vhosts = {
            name: vhost
            for name, vhost in self._broker.vhosts.items()
            if visitor.may_monitor or visitor.may_enter(name)
        }
        return self._broker.pipelines.rows(vhosts, time.time_ns() // 1_000_000)
