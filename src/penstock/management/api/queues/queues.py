"""Queues over HTTP: lists, one of them, declaring, deleting, purging.

    PUT         durable, auto_delete, arguments; as AMQP declares; ``node``: as if a client of that
                node did
    DELETE      ?if-empty=true  ?if-unused=true

A request belongs to no AMQP connection, so ``exclusive`` has no meaning here.
"""

import asyncio
import contextlib
from functools import partial
from typing import Any, Final

from aiohttp import web

from penstock.broker.topology import declaring
from penstock.core.errors import BrokerError
from penstock.core.pending import Pending, then
from penstock.management.facts.rows import Row
from penstock.management.http.access import Visitor
from penstock.management.http.bodies import (
    arguments_in,
    flag,
    json_body,
    json_response,
    name_of,
    text,
)
from penstock.management.http.endpoints import Endpoints
from penstock.management.http.listing import BadQuery, ListQuery
from penstock.management.http.lists import slices
from penstock.management.rows.queues import NUMBERS, delivery_rows
from penstock.management.statistics.reading import Counts

BASIC_QUEUE_COLUMNS: Final = [
    "arguments", "auto_delete", "durable", "exclusive", "name", "node", "state", "type", "vhost",
]  # fmt: skip
FACTS_S: Final = 2.0
"""So long another node is waited for, to say what it knows of a stream."""
QUEUE_TOTAL_COLUMNS: Final = ["messages", "messages_ready", "messages_unacknowledged"]


class QueuesApi(Endpoints):
    has_lists = True
    table = """
        user  queues                          GET=queues  All queues
        user  queues/detailed                 GET=queues  All queues
        user  queues/{vhost}                  GET=queues  In one virtual host
        user  users/{user}/queues             GET=queues  That one user declared
        user  queues/{vhost}/{name}           GET=queue PUT=put DELETE=delete  One queue
        user  queues/{vhost}/{name}/contents  DELETE=purge  Drop its ready messages
    """

    async def queues(self, request: web.Request, visitor: Visitor) -> web.Response:
        columns: list[str] = []
        if request.query.get("disable_stats") == "true":
            columns = [*BASIC_QUEUE_COLUMNS]
            if request.query.get("enable_queue_totals") == "true":
                columns += QUEUE_TOTAL_COLUMNS
        query = ListQuery(request.query, columns)
        vhosts = await self.asked_vhosts(request, visitor)
        names, user = self._view.queues.names, request.match_info.get("user")
        if user is not None:
            names = partial(self._view.queues.names_by, user)
        pairs = await self._lists.pairs_of(vhosts, names)
        keys = partial(self._view.queues.numbers, query.sort) if query.sort in NUMBERS else None
        return await self._lists.answer_pairs(query, pairs, self._view.queues.rows, keys)

    async def queue(self, request: web.Request, visitor: Visitor) -> web.Response:
        (vhost,) = await self.asked_vhosts(request, visitor)
        name = request.match_info["name"]
        row = await self._on_loop(self._view.queues.row, vhost, name)
        with contextlib.suppress(TimeoutError, BrokerError):
            facts = self._agreed(partial(self._view.queues.facts_elsewhere, vhost, name))
            row |= await asyncio.wait_for(facts, FACTS_S)
        consumers: list[tuple[Row, Counts]] = []
        for some in slices(await self._on_loop(self._view.queues.consumers_of, vhost, [name])):
            consumers += await self._on_loop(self._view.queues.consumers_with_counts, some)
        row["consumer_details"] = [one for one, _ in consumers]
        row["deliveries"] = delivery_rows(vhost, name, consumers)
        self._context.statistics.complete({"deliveries": row["deliveries"]})
        return json_response(ListQuery(request.query).project(row))

    async def put(self, request: web.Request, visitor: Visitor) -> bool:
        vhost = await self.changed_vhost(request, visitor)
        asked = await json_body(request)
        name = name_of("queue", request.match_info["name"])
        return await self.change(self._declare_at, vhost, name, asked, visitor)

    def _declare_at(self, vhost: str, name: str, asked: dict[str, Any], visitor: Visitor) -> bool:
        changes, own = self._broker.changes, self._view.node_name
        node = text("node", asked.get("node") or own)
        if node == "rabbit@" + own.partition("@")[2]:
            node = own  # checks written for RabbitMQ spell it so
        homes = changes.homes() or [own]
        if node not in homes:
            raise BadQuery(f"node '{node}' does not run here; nodes: {', '.join(homes)}")
        changes.prefer(node)
        try:
            return self._declare(vhost, name, asked, visitor)
        finally:
            changes.prefer("")

    def _declare(self, vhost: str, name: str, asked: dict[str, Any], visitor: Visitor) -> bool:
        found = self._broker.vhost(vhost)
        is_new = self._broker.changes.at_first(name not in found.queues)
        declaring.declare_queue(
            found,
            self.rights(visitor, vhost),
            name,
            flag(asked.get("durable", False)),
            None,
            flag(asked.get("auto_delete", False)),
            arguments_in(asked),
        )
        return is_new

    async def delete(self, request: web.Request, visitor: Visitor) -> None:
        (vhost,) = await self.asked_vhosts(request, visitor)
        if_empty = flag(request.query.get("if-empty", False))
        if_unused = flag(request.query.get("if-unused", False))
        name = request.match_info["name"]
        await self.change(self._delete, vhost, name, visitor, if_unused, if_empty)

    def _delete(
        self, vhost: str, name: str, visitor: Visitor, if_unused: bool, if_empty: bool
    ) -> object:
        found = self._broker.vhost(vhost)
        found.queue(name)
        rights = self.rights(visitor, vhost)
        deleted = declaring.delete_queue(found, rights, name, None, if_unused, if_empty)
        return then(deleted, lambda outcome: self._view.watch.cancelled(outcome[1]))

    async def purge(self, request: web.Request, visitor: Visitor) -> None:
        (vhost,) = await self.asked_vhosts(request, visitor)
        await self.change(self._purge, vhost, request.match_info["name"], visitor)

    def _purge(self, vhost: str, name: str, visitor: Visitor) -> int | Pending:
        self.rights(visitor, vhost).read("queue", name)
        return self._view.queues.purge(vhost, name)
