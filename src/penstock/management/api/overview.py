"""The node over HTTP: the visitor, the totals, storage and flow."""

import base64
import hashlib
import platform
from collections.abc import Sequence
from html import escape
from typing import Final

from aiohttp import web

from penstock.broker.parameters import CLUSTER_TAGS
from penstock.management.facts.rows import Row
from penstock.management.http.access import Visitor
from penstock.management.http.bodies import json_response
from penstock.management.http.endpoints import DIALECT, Endpoints
from penstock.management.http.listing import ListQuery
from penstock.management.http.lists import in_order
from penstock.management.rows.view import listener_row
from penstock.management.statistics.node_facts import (
    RETENTION_S,
    exchange_type_rows,
    runtime_version,
)

MAX_QUEUES: Final = 500
"""The page shows the first ones; the API has them all."""
STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 64rem; padding: 0 1rem;
       color: #1c2733; background: #fff; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid #d9dfe5; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
p.totals { color: #4a5a69; }
@media (prefers-color-scheme: dark) {
  body { color: #dfe6ec; background: #14191e; }
  th, td { border-color: #2f3942; }
  p.totals { color: #9fb0bf; }
}
"""
STYLE_DIGEST: Final = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{STYLE_DIGEST}';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
COLUMNS: Final = (
    ("virtual host", "vhost"),
    ("queue", "name"),
    ("durable", "durable"),
    ("ready", "messages_ready"),
    ("unacknowledged", "messages_unacknowledged"),
    ("consumers", "consumers"),
)


class OverviewApi(Endpoints):
    has_lists = True
    table = """
        user        whoami            GET=whoami
        user        overview          GET=overview
        monitoring  penstock/storage  GET=storage
        monitoring  penstock/flow     GET=flow
        user        /status           GET=page
    """

    async def whoami(self, request: web.Request, visitor: Visitor) -> web.Response:
        return json_response({"name": visitor.name, "tags": list(visitor.tags)})

    async def overview(self, request: web.Request, visitor: Visitor) -> web.Response:
        query = ListQuery(request.query)
        vhosts = await self.visible_vhosts(visitor)
        ready, unacked, consumers = await self._lists.message_counts(vhosts)
        exchanges, queues = await self._on_loop(self._view.count_entities, vhosts)
        connections = await self._lists.session_rows(self._view.clients.connection_rows, visitor)
        channel_counts = [row["channels"] for row in connections]
        object_totals: Row = {
            "connections": len(connections),
            "channels": sum(count for count in channel_counts if isinstance(count, int)),
            "consumers": consumers,
            "exchanges": exchanges,
            "queues": queues,
        }
        row: Row = {
            "management_version": DIALECT,
            "rabbitmq_version": DIALECT,
            "product_name": "Penstock",
            "product_version": self._context.version,
            "node": self._view.node_name,
            "cluster_name": self._broker.cluster_name(),
            "cluster_tags": await self._on_loop(self._cluster_tags),
            **_about(),
            "object_totals": object_totals,
        }
        statistics = self._context.statistics
        row["rates_mode"] = statistics.mode
        lengths = {
            "messages": ready + unacked,
            "messages_ready": ready,
            "messages_unacknowledged": unacked,
        }
        if visitor.may_monitor:
            counts = await self._on_loop(self._view.cluster_counts)
            row.update(statistics.overview(counts, lengths))
        else:
            tallies = await self._on_loop(self._view.vhost_tallies, vhosts)
            row["queue_totals"] = lengths
            row["message_stats"] = statistics.over_vhosts(tallies)
        if visitor.may_monitor:
            own = [listener_row(one, self._view.node_name) for one in self._context.own_listeners]
            row["listeners"] = await self._on_loop(self._view.listener_rows) + own
            row["contexts"] = self._context.contexts
        return json_response(query.project(row))

    def _cluster_tags(self) -> Row:
        """Those of the global parameter of that name, as in RabbitMQ 4."""
        tags = self._broker.parameters.value(CLUSTER_TAGS)
        return tags if isinstance(tags, dict) else {}

    async def flow(self, request: web.Request, visitor: Visitor) -> web.Response:
        return json_response(await self._on_loop(self._view.watch.flow))

    async def storage(self, request: web.Request, visitor: Visitor) -> web.Response:
        row = await self._on_loop(self._view.storage_row)
        return json_response(ListQuery(request.query).project(row))

    async def page(self, request: web.Request, visitor: Visitor) -> web.Response:
        vhosts = await self.visible_vhosts(visitor)
        pairs = in_order(await self._lists.pairs_of(vhosts, self._view.queues.names))
        rows: list[Row] = []
        async for part in self._lists.read(pairs[:MAX_QUEUES], self._view.queues.rows):
            rows += part
        return web.Response(
            text=status_page(self._view.node_name, self._context.version, len(pairs), rows),
            content_type="text/html",
            headers={"Content-Security-Policy": POLICY},
        )


def _about() -> Row:
    """What does not change while the node runs; keys that tools look for are RabbitMQ's."""
    return {
        "erlang_version": platform.python_version(),
        "erlang_full_version": runtime_version(),
        "release_series_support_status": "supported",
        "exchange_types": exchange_type_rows(),
        "sample_retention_policies": RETENTION_S,
        "statistics_db_event_queue": 0,
        "disable_stats": False,
        "enable_queue_totals": False,
    }


def status_page(node: str, version: str, queue_count: int, rows: Sequence[Row]) -> str:
    """The whole document; ``rows`` are the queues to show, ``queue_count`` all there are."""
    heads = "".join(f"<th{_class(rows, field)}>{title}</th>" for title, field in COLUMNS)
    lines = "\n".join(
        "<tr>"
        + "".join(f"<td{_class(rows, field)}>{_cell(row[field])}</td>" for _, field in COLUMNS)
        + "</tr>"
        for row in rows
    )
    shown = "" if len(rows) == queue_count else f", the first {len(rows)} shown"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{escape(node)} - Penstock</title>
<style>{STYLE}</style>
</head>
<body>
<h1>Penstock</h1>
<p class="totals">{escape(node)}, version {escape(version)}: {queue_count} queues{shown}.
Reload for new numbers; the API is under <code>/api/</code>.</p>
<table>
<thead><tr>{heads}</tr></thead>
<tbody>
{lines}
</tbody>
</table>
</body>
</html>
"""


def _class(rows: Sequence[Row], field: str) -> str:
    numeric = bool(rows) and type(rows[0][field]) is int
    return ' class="number"' if numeric else ""


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return escape(str(value).encode("utf-8", "replace").decode())
