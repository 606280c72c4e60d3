"""Mirrored queues over HTTP: their copies and masters, and commands on them.

What only the master's node knows (how far each mirror is) is null when another is asked.

Rebalancing answers 204 as RabbitMQ does; with ``?moves=true`` it tells what it began.  The body may
have ``vhost_pattern`` and ``queue_pattern``, regular expressions, and ``type``.
"""

from functools import partial
from typing import Final

from aiohttp import web

from penstock.broker.mirrors import ALL_KINDS
from penstock.management.facts.rows import Row
from penstock.management.http.access import Visitor
from penstock.management.http.bodies import json_body, json_response, text
from penstock.management.http.endpoints import Endpoints, NotThere
from penstock.management.http.listing import ListQuery

EVERYTHING: Final = ".*"


class MirrorsApi(Endpoints):
    has_lists = True
    heading = "mirrored queues"
    table = """
        user           penstock/mirrors  GET=mirrors  All mirrored queues
        user           penstock/mirrors/{vhost}  GET=mirrors  Those of one virtual host
        user           penstock/queues/{vhost}/{name}/mirrors  GET=queue  \
            Copies and ring of one queue
        administrator  rebalance/queues  POST=rebalance  Spread masters
    """

    async def mirrors(self, request: web.Request, visitor: Visitor) -> web.Response:
        query = ListQuery(request.query)
        vhosts = await self.asked_vhosts(request, visitor)
        pairs = await self._lists.pairs_of(vhosts, self._view.mirrors.names)
        return await self._lists.answer_pairs(query, pairs, self._view.mirrors.rows)

    async def queue(self, request: web.Request, visitor: Visitor) -> web.Response:
        (vhost,) = await self.asked_vhosts(request, visitor)
        row = await self._on_loop(self._row, vhost, request.match_info["name"])
        return json_response(row)

    def _row(self, vhost: str, name: str) -> Row:
        row = self._view.mirrors.row(self._broker.vhost(vhost).queue(name))
        if row is None:
            raise NotThere(f"queue '{name}' in vhost '{vhost}' is not mirrored")
        return row

    async def rebalance(self, request: web.Request, visitor: Visitor) -> web.Response:
        asked = await json_body(request)
        patterns = [
            text(key, asked.get(key, EVERYTHING)) for key in ("vhost_pattern", "queue_pattern")
        ]
        kind = text("type", asked.get("type", ALL_KINDS))
        moves = await self.change(partial(self._broker.mirrors.rebalance, kind=kind), *patterns)
        if request.query.get("moves") != "true":
            return web.Response(status=204)
        rows = [
            {"vhost": move.vhost, "name": move.queue, "from": move.source, "to": move.target}
            for move in moves
        ]
        return json_response(rows)
