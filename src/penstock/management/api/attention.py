"""What needs a person, over HTTP.

    GET /api/penstock/attention   {"findings": [...], "left_out": 3, "not_judged": ["..."]}

The findings are those of ``rows/attention``: alarms first, of each kind the largest figures.  They
are gathered at most once in the sampler's interval, for all visitors together, and so rarely that
they take a twentieth of the time at most; a user without a monitoring tag sees those of the open
virtual hosts.  ``left_out``: so many more there are.  ``not_judged``: what no finding can be about.
"""

import asyncio
import time
from collections.abc import Sequence
from itertools import islice
from operator import itemgetter
from typing import Final, cast

from aiohttp import web

from penstock.clocks import wall_ms
from penstock.management.facts.rows import Row
from penstock.management.http.access import Visitor
from penstock.management.http.bodies import json_response
from penstock.management.http.endpoints import Context, Endpoints
from penstock.management.http.lists import Pair, runs, slices
from penstock.management.rows import attention
from penstock.management.rows.attention import Finding, QueueNow
from penstock.management.rows.forecast_view import forecast_row

LOOKED_AT: Final = 500
"""Queues whose trends may need a person, those with the most messages first."""
EACH_MAX: Final = 10
"""Of one kind."""
SHARE: Final = 20
"""So many times as long as it took, gathering waits before it begins again."""


class AttentionApi(Endpoints):
    heading = "attention"
    table = """
        user  penstock/attention  GET=attention  What needs a person
    """

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._found: list[Finding] = []
        self._due_s = 0.0
        self._gathering = asyncio.Lock()

    async def attention(self, request: web.Request, visitor: Visitor) -> web.Response:
        async with self._gathering:
            if (began_s := time.monotonic()) >= self._due_s:
                self._found = await self._gather()
                took_s = time.monotonic() - began_s
                pause_s = max(self._context.statistics.interval_s, SHARE * took_s)
                self._due_s = began_s + pause_s
        vhosts = set(await self.visible_vhosts(visitor))
        seen = [
            one
            for one in self._found
            if (visitor.may_monitor if one.vhost is None else one.vhost in vhosts)
        ]
        shown = _first_of_each(seen)
        return json_response(
            {
                "findings": [one.row() for one in shown],
                "left_out": len(seen) - len(shown),
                "not_judged": self._not_judged(),
            }
        )

    def _not_judged(self) -> list[str]:
        statistics = self._context.statistics
        if statistics.mode == "none":
            return ["queues and connections: rates_mode is none, so nothing is sampled"]
        if not statistics.is_sampled():
            return ["queues and connections: the first sample is not taken yet"]
        return []

    async def _gather(self) -> list[Finding]:
        found = await self._on_loop(self._of_node)
        watch, tracks = self._view.watch, self._context.statistics.tracks
        found += attention.churn_findings(tracks["cluster"], self._context.statistics.socket_count)
        listeners = [*self._context.own_listeners, *await self._on_loop(watch.listeners)]
        found += attention.certificate_findings(listeners, wall_ms())
        found += attention.link_findings("Shovel", watch.links.shovels())
        found += attention.link_findings("Federation link", watch.links.federation_links())
        trends = attention.trends(tracks["queue"])
        order = sorted(trends, key=lambda pair: -trends[pair].ready - trends[pair].unacked)
        for vhost, names in runs(order[:LOOKED_AT]):
            for name, now in await self._on_loop(self._queues_now, vhost, names):
                found += attention.queue_findings(vhost, name, trends[vhost, name], now)
        for some in slices(await self._on_loop(self._broker.mirrors.mirrored)):
            found += await self._on_loop(self._of_mirrors, some)
        return found

    # -- on the data loop --------------------------------------------------------------------

    def _of_node(self) -> list[Finding]:
        view, broker = self._view, self._broker
        row = forecast_row(broker.admission.alarms, broker.engine.ram)
        nodes = cast(list[Row], view.watch.cluster()["nodes"])
        others = [node for node in nodes if node["name"] != view.node_name]
        return [
            *attention.forecast_findings(row, view.node_name),
            *attention.elsewhere_findings(others, broker.admission.elsewhere),
            *attention.held_findings(view.watch.flow()),
        ]

    def _queues_now(self, vhost: str, names: Sequence[str]) -> list[tuple[str, QueueNow]]:
        """Of those that are still there, and run."""
        found = self._broker.vhosts.get(vhost)
        queues = {} if found is None else found.queues
        return [
            (
                name,
                QueueNow(
                    int(queue.consumers_anywhere()),
                    queue.master_node() in ("", self._view.node_name),
                    queue.is_stream,
                    queue.limits.message_ttl_ms >= 0,
                    queue.limits.dead_letter_exchange,
                ),
            )
            for name in names
            if (queue := queues.get(name)) is not None and queue.why_down() == ""
        ]

    def _of_mirrors(self, pairs: Sequence[Pair]) -> list[Finding]:
        found: list[Finding] = []
        for vhost, name in pairs:
            there = self._broker.vhosts.get(vhost)
            queue = None if there is None else there.queues.get(name)
            facts = None if queue is None else self._broker.mirrors.facts(queue)
            if facts is not None:
                found += attention.mirror_findings(vhost, name, facts)
        return found


def _first_of_each(found: Sequence[Finding]) -> list[Finding]:
    """Alarms first, then kind by kind in the order in which they were found."""
    kinds = {one.kind: one.is_alarm for one in found}
    shown: list[Finding] = []
    for kind, _ in sorted(kinds.items(), key=itemgetter(1), reverse=True):
        of_kind = [one for one in found if one.kind == kind]
        of_kind.sort(key=lambda one: -one.figure)
        shown += islice(of_kind, EACH_MAX)
    return shown
