"""The aliveness test over HTTP: a test message is published and got, as in RabbitMQ.

    GET  /api/aliveness-test/{vhost}

declares the queue ``aliveness-test``, publishes a message to it and gets one from it, by the rights
of who asks.  The queue stays: RabbitMQ leaves it too, and the next test finds it.
"""

import asyncio
from typing import Final

from aiohttp import web

from penstock.broker.rules.judges import CONFIGURE
from penstock.broker.topology import declaring
from penstock.clocks import wall_ms
from penstock.core.errors import AccessRefused
from penstock.core.pending import Pending
from penstock.management.api.queues.messages import leave
from penstock.management.facts.sessions import ManagementClient
from penstock.management.http.access import Visitor
from penstock.management.http.bodies import json_response
from penstock.management.http.endpoints import Endpoints, Route

QUEUE: Final = "aliveness-test"
BODY: Final = b"test_message"
PATIENCE_S: Final = 5.0
HEAD_WAIT_S: Final = 0.002


class AlivenessApi(Endpoints):
    heading = "health checks"

    def routes(self) -> list[Route]:
        what = "Publishes and gets a test message"
        path = "/api/aliveness-test/{vhost}"
        return [Route(path, {"GET": self.aliveness}, what)]

    async def aliveness(self, request: web.Request, visitor: Visitor) -> web.Response:
        vhost = request.match_info["vhost"]
        await self.must_be_there(vhost, visitor)
        if not await self._on_loop(visitor.may, CONFIGURE, vhost, QUEUE):
            raise AccessRefused("User not authorised to access object")
        await self.change(self._declare, vhost, visitor)
        await self.learn_rights(visitor, vhost, lambda rights: rights.publish(None, "", QUEUE))
        await self.learn_rights(visitor, vhost, lambda rights: rights.read("queue", QUEUE))
        sender = await self._on_loop(self.sender, visitor, vhost)
        watch, entered = self._view.watch, list[ManagementClient]()
        try:
            await self._on_loop(lambda: entered.append(watch.enter(sender, vhost, wall_ms())))
            agent = entered[0]
            async with asyncio.timeout(PATIENCE_S):
                routed = await self._on_loop(agent.publish, "", QUEUE, {}, BODY, wall_ms())
                await asyncio.shield(asyncio.wrap_future(routed))
                await self._get_one(agent)
        finally:
            await self._on_loop(leave, entered)
        return json_response({"status": "ok"})

    async def _get_one(self, agent: ManagementClient) -> None:
        while True:
            if await self._on_loop(_got_one, agent):
                return
            await asyncio.sleep(HEAD_WAIT_S)

    def _declare(self, vhost: str, visitor: Visitor) -> None:
        found, rights = self._broker.vhost(vhost), self.rights(visitor, vhost)
        declaring.declare_queue(found, rights, QUEUE, False, None, False, {})


def _got_one(agent: ManagementClient) -> bool:
    """For use on the data loop; a test at the same time may have got our message, and we its."""
    found = agent.get(QUEUE, wall_ms())
    if found is None or isinstance(found, Pending):
        return False
    agent.accept(wall_ms())
    return True
