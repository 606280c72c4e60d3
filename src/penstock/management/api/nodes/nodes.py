"""Nodes over HTTP; for the tags monitoring and administrator.

The row of one node tells with ?memory=true and ?binary=true where its memory is.  ``rabbit@HOST``
is understood as the node's name.

In a cluster the others follow the node that is asked, with what is known of them here: whether they
run.  RabbitMQ's row of a node that is stopped, or whose statistics are not available, is the same.
"""

from operator import itemgetter
from typing import cast

from aiohttp import web

from penstock.broker.broker import Broker
from penstock.broker.rules import admission
from penstock.management.facts.node_memory import binary_row, counted_bytes, memory_row
from penstock.management.facts.rows import Row
from penstock.management.http.access import Visitor
from penstock.management.http.bodies import json_response
from penstock.management.http.endpoints import Endpoints
from penstock.management.http.listing import ListQuery
from penstock.management.statistics.node_facts import thread_rows


class NodesApi(Endpoints):
    has_lists = True
    heading = "nodes"
    table = """
        monitoring  nodes                         GET=nodes   All nodes
        monitoring  nodes/{node}                  GET=node    Process and machine of one node
        monitoring  nodes/{node}/memory           GET=memory  Where its memory is
        monitoring  nodes/{node}/memory/relative  GET=memory  The same in percent
        monitoring  top/{node}                    GET=top     Its threads, the busiest first
    """

    async def nodes(self, request: web.Request, visitor: Visitor) -> web.Response:
        query = ListQuery(request.query)
        others = [_other_row(node) for node in await self._others()]
        return json_response([query.project(row) for row in (await self._row(), *others)])

    async def _others(self) -> list[Row]:
        return await self._on_loop(self._other_nodes)

    def _other_nodes(self) -> list[Row]:
        """What the cluster tells of all nodes but this one: whether drained, and their alarms."""
        nodes = cast(list[Row], self._view.watch.cluster()["nodes"])
        drained = self._broker.mirrors.drained()
        elsewhere = self._broker.admission.elsewhere
        return [
            node
            | {
                "being_drained": node["name"] in drained,
                "short_of": elsewhere.get(str(node["name"]), []),
            }
            for node in nodes
            if node["name"] != self._view.node_name
        ]

    async def node(self, request: web.Request, visitor: Visitor) -> web.Response:
        name = request.match_info["node"]
        for other in await self._others():
            if other["name"] == name:
                return json_response(ListQuery(request.query).project(_other_row(other)))
        self._context.must_be_us(name)
        row = await self._row()
        counted = await self._on_loop(counted_bytes, self._broker)
        if request.query.get("memory") == "true":
            row["memory"] = memory_row(counted, self._context.node.resident_bytes())
        if request.query.get("binary") == "true":
            row["binary"] = binary_row(counted)
        return json_response(ListQuery(request.query).project(row))

    async def memory(self, request: web.Request, visitor: Visitor) -> web.Response:
        self._context.must_be_us(request.match_info["node"])
        counted = await self._on_loop(counted_bytes, self._broker)
        found = memory_row(counted, self._context.node.resident_bytes())
        if request.path.endswith("/relative"):
            found = _in_percent(found)
        row: Row = {"memory": found}
        return json_response(ListQuery(request.query).project(row))

    async def top(self, request: web.Request, visitor: Visitor) -> web.Response:
        self._context.must_be_us(request.match_info["node"])
        rows = sorted(thread_rows(), key=lambda row: str(row["pid"]))
        rows.sort(key=itemgetter("cpu_time_ms"), reverse=True)
        query = ListQuery(request.query)
        row: Row = {"node": self._view.node_name, "row_count": len(rows), "processes": rows}
        return json_response(query.project(row))

    async def _row(self) -> Row:
        row = self._context.node.row()
        row["contexts"] = self._context.contexts
        row["being_drained"] = not self._context.control.is_open()
        row.update(await self._on_loop(_from_broker, self._broker))
        others = await self._others()
        links = [_link_row(node) for node in others]
        row["partitions"] = [str(node["name"]) for node in others if _is_away(node)]
        row["cluster_links"] = [link for link in links if link is not None]
        counts = await self._on_loop(self._view.cluster_counts)
        # What came and went at this node: each counts its own.
        row.update(self._context.statistics.overview(counts, {})["churn_rates"])
        return row


def _in_percent(memory: Row) -> Row:
    """Rounded up, as RabbitMQ's: what is there at all has one percent."""
    parts = {name: size for name, size in memory.items() if isinstance(size, int)}
    total = sum(parts.values()) or 1
    shares: Row = {name: -(-100 * size // total) for name, size in parts.items()}
    return {"total": 100} | shares


def _other_row(node: Row) -> Row:
    short_of = cast(list[str], node["short_of"])
    return {
        "name": node["name"],
        "type": "disc",
        "running": node["running"],
        "being_drained": node["being_drained"],
        "mem_alarm": admission.MEMORY in short_of,
        "disk_free_alarm": admission.DISK in short_of,
        "partitions": [],
        "cluster_links": [],
    }


def _is_away(node: Row) -> bool:
    """It has a lease, and cannot be reached from here."""
    link = node.get("link")
    return bool(node["running"]) and isinstance(link, dict) and not link["connected"]


def _link_row(node: Row) -> Row | None:
    """None: it is not connected."""
    link = node.get("link")
    if not isinstance(link, dict) or not link["connected"]:
        return None
    addresses = cast(dict[str, str], node["addresses"])
    host, _, port = addresses["peer"].rpartition(":")
    counts: Row = {"recv_bytes": link["bytes_in"], "send_bytes": link["bytes_out"]}
    return {
        "name": node["name"],
        "peer_addr": host.strip("[]"),
        "peer_port": int(port),
        "stats": counts,
        **counts,
    }


def _from_broker(broker: Broker) -> Row:
    """For use on the data loop."""
    stores = (broker.engine.store, broker.engine.transient_store)
    return {
        "sockets_used": int(broker.connection_count),
        "msg_store_write_count": sum(one.statistics()["messages_written"] for one in stores),
    }
