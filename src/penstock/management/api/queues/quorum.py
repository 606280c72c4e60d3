"""Quorum queues and their members over HTTP, in the form of RabbitMQ 4's API.

    GET     /api/queues/quorum/{vhost}/{name}/status
    POST    /api/queues/quorum/{vhost}/{name}/replicas/add       {"node": "..."}
    DELETE  /api/queues/quorum/{vhost}/{name}/replicas/delete    {"node": "..."}, or ?node=
    POST    /api/queues/quorum/replicas/on/{node}/grow           {"strategy": "all" or "even"}
    DELETE  /api/queues/quorum/replicas/on/{node}/shrink

A quorum queue has one member, on the node where its messages are: to add that one, and to grow onto
it, changes nothing and succeeds; another, and to take it away, is refused.  The indexes of the
status count messages of the queue: there is no log of Raft.
"""

from typing import Final

from aiohttp import web

from penstock.core.errors import NotFound
from penstock.management.facts.rows import Row
from penstock.management.http.access import ADMINISTRATOR, MONITORING, Visitor
from penstock.management.http.bodies import json_body, json_response, text
from penstock.management.http.endpoints import Endpoints, Route
from penstock.management.http.listing import BadQuery
from penstock.queues.context import QUORUM, queue_type
from penstock.queues.queue import Queue

QUORUM_QUEUES: Final = "/api/queues/quorum/"
ONE: Final = QUORUM_QUEUES + "{vhost}/{name}/"
ON_A_NODE: Final = QUORUM_QUEUES + "replicas/on/{node}/"
NOT_SUPPORTED: Final = "classic_queue_not_supported"
LAST_NODE: Final = "last_node"
NO_MEMBER: Final = "Node is not a cluster member"
STRATEGIES: Final = ("all", "even")


class QuorumApi(Endpoints):
    """See the head of this file."""

    heading = "quorum queues"

    def routes(self) -> list[Route]:
        return [
            Route(ONE + "status", {"GET": self.status}, "Its members", MONITORING),
            Route(ONE + "replicas/add", {"POST": self.add}, "Add a member", ADMINISTRATOR),
            Route(ONE + "replicas/delete", {"DELETE": self.delete}, "Remove one", ADMINISTRATOR),
            Route(ON_A_NODE + "grow", {"POST": self.grow}, "A member of each", ADMINISTRATOR),
            Route(ON_A_NODE + "shrink", {"DELETE": self.shrink}, "Remove all", ADMINISTRATOR),
        ]

    async def status(self, request: web.Request, visitor: Visitor) -> web.Response:
        await self.asked_vhosts(request, visitor)
        row = await self._on_loop(self._status, *_asked(request))
        if row is None:
            return json_response({"status": "failed", "reason": NOT_SUPPORTED}, 503)
        return json_response([row])

    def _status(self, vhost: str, name: str) -> Row | None:
        """Of the one member there is; None: the queue has none.  Raises NotFound."""
        queue = self._broker.vhost(vhost).queue(name)
        if not _has_members(queue):
            return None
        last = sum(int(part.next_seq_id()) for part in queue.backing.parts()) - 1
        indexes = ("Last Log Index", "Last Written", "Last Applied", "Commit Index")
        return {
            "Node Name": self._member(queue),
            "Raft State": "leader",
            "Membership": "voter",
            **dict.fromkeys(indexes, last),
            "Snapshot Index": -1,
            "Term": 1,
            "Machine Version": 0,
        }

    async def add(self, request: web.Request, visitor: Visitor) -> web.Response:
        reason = await self._refusal(request)
        return _refused(reason) if reason else web.Response(status=204)

    async def delete(self, request: web.Request, visitor: Visitor) -> web.Response:
        return _refused(await self._refusal(request) or LAST_NODE)

    async def _refusal(self, request: web.Request) -> str:
        """Why the queue cannot have that member, "" = it is its member.  Raises BadQuery."""
        asked = await json_body(request)
        node = text("node", asked.get("node", request.query.get("node", "")))
        if node not in await self._on_loop(self._broker.changes.homes):
            try:
                self._context.must_be_us(node)
            except NotFound as error:
                raise BadQuery("bad_request", NO_MEMBER) from error
            node = self._view.node_name
        try:
            return await self._on_loop(self._why_not, *_asked(request), node)
        except NotFound:
            return "not_found"

    def _why_not(self, vhost: str, name: str, node: str) -> str:
        queue = self._broker.vhost(vhost).queue(name)
        if not _has_members(queue):
            return NOT_SUPPORTED
        member = self._member(queue)
        return "" if node == member else f"its one member is on {member}"

    def _member(self, queue: Queue) -> str:
        return queue.master_node() or self._view.node_name

    async def grow(self, request: web.Request, visitor: Visitor) -> web.Response:
        asked = await json_body(request)
        if asked.get("strategy", "all") not in STRATEGIES:
            raise BadQuery("bad_request", f"strategy: one of {', '.join(STRATEGIES)}")
        self._context.must_be_us(request.match_info["node"])
        return web.Response(status=204)

    async def shrink(self, request: web.Request, visitor: Visitor) -> web.Response:
        """Each queue keeps its last member, as RabbitMQ's do."""
        self._context.must_be_us(request.match_info["node"])
        return web.Response(status=202)


def _asked(request: web.Request) -> tuple[str, str]:
    return request.match_info["vhost"], request.match_info["name"]


def _has_members(queue: Queue) -> bool:
    return queue_type(queue.arguments) == QUORUM


def _refused(reason: str) -> web.Response:
    return json_response({"error": "service_unavailable", "reason": reason}, 503)
