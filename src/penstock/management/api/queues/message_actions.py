"""Actions on selected messages of a queue over HTTP: move, copy, delete, retry.

    POST /api/queues/{vhost}/{name}/messages/actions
         {"action": "move", "seq_ids": [4, 7], "queue": "other"}

    move, copy   to ``queue``, or to ``exchange`` with ``routing_key``
    delete
    retry        to the exchange and with the routing key of the newest death in ``x-death``
    dead_letter  as if a consumer had rejected it

``seq_ids`` are places as ``…/messages`` shows them; in a queue with priorities ``priority`` says
which of them is meant (0 without it).  Answered when all of it is on disk, with how many are
``done`` and why others stayed: ``gone`` (not ready there any more), ``unroutable``,
``same_queue`` (they lead back to it), ``duplicate`` (their key is in every queue they lead to),
``without_death`` (no death to believe), ``full`` (a queue that refuses publishes, see ``trouble``).

Wants the right to read the queue, and what publishing there would want.
"""

import asyncio
from concurrent.futures import Future
from typing import Any, Final

from aiohttp import web

from penstock.broker.message_moves import ACTIONS, COPY, MOVE, OUTCOMES, RETRY, MessageMove
from penstock.clocks import wall_ms
from penstock.core.errors import Blocked
from penstock.management.facts.rows import DEFAULT_EXCHANGE_IN_PATHS, Row
from penstock.management.http.access import Visitor
from penstock.management.http.bodies import json_body, json_response, number, required, text
from penstock.management.http.endpoints import Endpoints, Route
from penstock.management.http.listing import BadQuery

CHOSEN_MAX: Final = 20_000
SEQ_ID_MAX: Final = 1 << 62
DURABLE_S: Final = 30.0
"""How long the disk may take."""


class MessageActionsApi(Endpoints):
    def routes(self) -> list[Route]:
        path = "/api/queues/{vhost}/{name}/messages/actions"
        return [Route(path, {"POST": self.act}, "Do something with chosen messages")]

    async def act(self, request: web.Request, visitor: Visitor) -> web.Response:
        vhost, name = request.match_info["vhost"], request.match_info["name"]
        await self.must_be_there(vhost, visitor)
        asked = await json_body(request)
        action, chosen = required(asked, "action", "seq_ids")
        if action not in ACTIONS:
            raise BadQuery("bad_request", f"unknown action {action}; known: {', '.join(ACTIONS)}")
        left = _places(chosen)
        priority = number(asked.get("priority", 0))
        target = _target(asked) if action in (COPY, MOVE) else None
        errand = await self._on_loop(
            self._begin, visitor, vhost, name, max(priority, 0), action, target
        )
        while left:
            left = await self._on_loop(errand.step, left, wall_ms())
        await self._on_disk(errand)
        return json_response(_row(errand))

    def _begin(
        self,
        visitor: Visitor,
        vhost: str,
        name: str,
        priority: int,
        action: str,
        target: tuple[str, str] | None,
    ) -> MessageMove:
        found = self._broker.vhost(vhost)
        blocked = self._broker.admission.reason(vhost)
        if blocked and action in (MOVE, COPY, RETRY):
            raise Blocked(blocked)
        queue = found.queue(name)
        rights = self.rights(visitor, vhost)
        return MessageMove(self._broker, rights, found, queue, priority, action, target)

    async def _on_disk(self, errand: MessageMove) -> None:
        """What was published, and then that the originals are gone."""
        async with asyncio.timeout(DURABLE_S):
            for one in (errand, None):
                safe = await self._on_loop(self._when_safe, one)
                # Shielded: giving up here must not cancel under the data loop's hands.
                await asyncio.shield(asyncio.wrap_future(safe))

    def _when_safe(self, errand: MessageMove | None) -> "Future[None]":
        journal = self._broker.engine.journal
        if errand is None:
            return self._view.watch.when_safe(int(journal.position))
        return self._view.watch.when_safe(errand.position, errand.waits)


def _places(chosen: Any) -> list[int]:
    if not isinstance(chosen, list) or not 1 <= len(chosen) <= CHOSEN_MAX:
        raise BadQuery("bad_request", f"seq_ids: a list of 1 to {CHOSEN_MAX} numbers")
    places = {number(one) for one in chosen}
    if min(places) < 0 or max(places) > SEQ_ID_MAX:
        raise BadQuery("bad_request", f"seq_ids: numbers from 0 to {SEQ_ID_MAX}")
    return sorted(places)


def _target(asked: dict[str, Any]) -> tuple[str, str]:
    """Exchange and routing key."""
    if ("queue" in asked) == ("exchange" in asked):
        raise BadQuery("bad_request", "say where to: a queue, or an exchange and a routing_key")
    if "queue" in asked:
        return "", text("queue", asked["queue"])
    exchange = text("exchange", asked["exchange"])
    key = text("routing_key", asked.get("routing_key", ""))
    return "" if exchange == DEFAULT_EXCHANGE_IN_PATHS else exchange, key


def _row(errand: MessageMove) -> Row:
    return {name: errand.counts[name] for name in OUTCOMES} | {"trouble": errand.trouble}
