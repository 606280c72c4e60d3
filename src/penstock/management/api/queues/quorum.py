"""Copies of queues over HTTP: members of quorum queues as RabbitMQ 4 has them, and mirrors.

    add, delete   {"node": "..."}, or ?node=
    grow          {"strategy": "all" or "even", "vhost_pattern": ".*", "queue_pattern": ".*"}

Alone, a node has the one member of each queue: to add that one, and to grow onto it, changes
nothing and succeeds; another, and to take it away, is refused.  In a cluster members are copies
(docs/design/majority.md): each is added when it has everything, and the leader's cannot be taken
away.  The indexes of the status count messages of the queue, or parcels: there is no log of Raft.

What only the master's node knows of mirrors (how far each is) is null when another is asked.
Rebalancing answers 204 as RabbitMQ does; with ``?moves=true`` it tells what it began.  The body may
have ``vhost_pattern`` and ``queue_pattern``, regular expressions, and ``type``.
"""

import contextlib
import re
from functools import partial
from typing import Final

from aiohttp import web

from penstock.broker.mirrors import ALL_KINDS, MASTER, CopyFacts, MirrorFacts
from penstock.core import patterns
from penstock.core.errors import NotFound, PreconditionFailed
from penstock.management.facts.rows import Row
from penstock.management.http.access import Visitor
from penstock.management.http.bodies import json_body, json_response, text
from penstock.management.http.endpoints import Endpoints, NotThere
from penstock.management.http.listing import BadQuery, ListQuery
from penstock.queues.context import QUORUM, queue_type
from penstock.queues.queue import Queue

NOT_SUPPORTED: Final = "classic_queue_not_supported"
LAST_NODE: Final = "last_node"
NO_MEMBER: Final = "Node is not a cluster member"
STRATEGIES: Final = ("all", "even")
PATTERNS: Final = ("vhost_pattern", "queue_pattern")


class QuorumApi(Endpoints):
    heading = "quorum queues"
    table = """
        monitoring     queues/quorum/{vhost}/{name}/status           GET=status     Its members
        administrator  queues/quorum/{vhost}/{name}/replicas/add     POST=add       Add a member
        administrator  queues/quorum/{vhost}/{name}/replicas/delete  DELETE=delete  Remove one
        administrator  queues/quorum/replicas/on/{node}/grow         POST=grow      A member of each
        administrator  queues/quorum/replicas/on/{node}/shrink       DELETE=shrink  Remove all
    """

    async def status(self, request: web.Request, visitor: Visitor) -> web.Response:
        await self.asked_vhosts(request, visitor)
        rows = await self._on_loop(self._status, *_asked(request))
        if not rows:
            return json_response({"status": "failed", "reason": NOT_SUPPORTED}, 503)
        return json_response(rows)

    def _status(self, vhost: str, name: str) -> list[Row]:
        """One for each member; none: the queue has no members.  Raises NotFound."""
        queue = self._broker.vhost(vhost).queue(name)
        if not _has_members(queue):
            return []
        facts = self._broker.mirrors.facts(queue)
        if facts is not None:
            return [_of_copy(copy, facts) for copy in facts.copies]
        last = sum(int(part.records.next_seq_id) for part in queue.backing.parts()) - 1
        return [_row(self._member(queue), "leader", "voter", last, last, 1)]

    async def add(self, request: web.Request, visitor: Visitor) -> web.Response:
        reason = await self._change(request, is_wanted=True)
        return _refused(reason) if reason else web.Response(status=204)

    async def delete(self, request: web.Request, visitor: Visitor) -> web.Response:
        reason = await self._change(request, is_wanted=False)
        return _refused(reason) if reason else web.Response(status=204)

    async def _change(self, request: web.Request, *, is_wanted: bool) -> str:
        """Why the queue cannot have that member, or be without it; "" = it will.

        Raises BadQuery.
        """
        asked = await json_body(request)
        node = text("node", asked.get("node", request.query.get("node", "")))
        try:
            node = await self._node(node)
        except NotFound as error:
            raise BadQuery(NO_MEMBER) from error
        try:
            return await self.change(self._want, *_asked(request), node, is_wanted=is_wanted)
        except NotFound:
            return "not_found"
        except PreconditionFailed as error:
            return str(error)

    async def _node(self, node: str) -> str:
        """One that runs.  Raises NotFound."""
        if node in await self._on_loop(self._broker.changes.homes):
            return node
        self._context.must_be_us(node)
        return self._view.node_name

    def _want(self, vhost: str, name: str, node: str, *, is_wanted: bool) -> str:
        queue = self._broker.vhost(vhost).queue(name)
        if not _has_members(queue):
            return NOT_SUPPORTED
        wanted = self._broker.mirrors.copies_wanted(queue)
        if not wanted:
            member = self._member(queue)
            other = "" if node == member else f"its one member is on {member}"
            return other if is_wanted else other or LAST_NODE
        if is_wanted == (node in wanted):
            return ""
        left = [*wanted, node] if is_wanted else [one for one in wanted if one != node]
        if not left:
            return LAST_NODE
        self._broker.mirrors.want_copies(queue, left)
        return ""

    def _member(self, queue: Queue) -> str:
        return queue.master_node() or self._view.node_name

    async def grow(self, request: web.Request, visitor: Visitor) -> None:
        asked = await json_body(request)
        strategy = asked.get("strategy", "all")
        if strategy not in STRATEGIES:
            raise BadQuery(f"strategy: one of {', '.join(STRATEGIES)}")
        node = await self._node(request.match_info["node"])
        vhosts, queues = (_expression(text(key, asked.get(key, ".*"))) for key in PATTERNS)
        even = strategy == "even"
        for place in await self._on_loop(self._with_copies, node, has=False, even=even):
            if vhosts.search(place[0]) and queues.search(place[1]):
                await self.change(self._want, *place, node, is_wanted=True)

    async def shrink(self, request: web.Request, visitor: Visitor) -> web.Response:
        """Each queue keeps its leader's member, as RabbitMQ's keep the last."""
        node = await self._node(request.match_info["node"])
        for place in await self._on_loop(self._with_copies, node, has=True, even=False):
            with contextlib.suppress(PreconditionFailed):
                await self.change(self._want, *place, node, is_wanted=False)
        return web.Response(status=202)

    def _with_copies(self, node: str, *, has: bool, even: bool) -> list[tuple[str, str]]:
        """Queues with copies of which that node has one, or has none; ``even`` of how many."""
        found: list[tuple[str, str]] = []
        for vhost in self._broker.vhosts.values():
            for queue in vhost.queues.values():
                wanted = self._broker.mirrors.copies_wanted(queue)
                if wanted and (node in wanted) == has and not (even and len(wanted) % 2):
                    found.append((vhost.name, queue.name))
        return found


def _of_copy(copy: CopyFacts, facts: MirrorFacts) -> Row:
    told, durable = copy.applied or 0, copy.durable or 0
    state = "leader" if copy.role == MASTER else "follower"
    kind = "voter" if copy.votes else "promotable"
    return _row(copy.node, state, kind, told, durable, facts.term)


def _row(node: str, state: str, kind: str, last: int, written: int, term: int) -> Row:
    return {
        "Node Name": node,
        "Raft State": state,
        "Membership": kind,
        "Last Log Index": last,
        "Last Written": written,
        "Last Applied": last,
        "Commit Index": last,
        "Snapshot Index": -1,
        "Term": term,
        "Machine Version": 0,
    }


def _expression(pattern: str) -> "re.Pattern[str]":
    try:
        return patterns.compiled(pattern)
    except patterns.Refused as error:
        raise BadQuery(f"{pattern!r} is no regular expression: {error}") from error


def _asked(request: web.Request) -> tuple[str, str]:
    return request.match_info["vhost"], request.match_info["name"]


def _has_members(queue: Queue) -> bool:
    return queue_type(queue.arguments) == QUORUM


def _refused(reason: str) -> web.Response:
    return json_response({"error": "service_unavailable", "reason": reason}, 503)


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
        patterns = [text(key, asked.get(key, ".*")) for key in PATTERNS]
        kind = text("type", asked.get("type", ALL_KINDS))
        moves = await self.change(partial(self._broker.mirrors.rebalance, kind=kind), *patterns)
        if request.query.get("moves") != "true":
            return web.Response(status=204)
        rows = [
            {"vhost": move.vhost, "name": move.queue, "from": move.source, "to": move.target}
            for move in moves
        ]
        return json_response(rows)
