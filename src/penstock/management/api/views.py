"""Storage, flow and deadlines over HTTP: the data of the web UI's pictures.

    flow      q1 to q4, what moves between them, the RAM line
    storage   the index segment by segment, and the journal
    heaps     what is in flight or deferred, by when due; of an NSQ channel with ?vhost=NAME
    chain     every link of the credit chain
    forecast  when memory or disk will be short
    pipelines the reports of those that report to this node (``broker/pipelines``), of every virtual
              host the user may enter; of all with the tag monitoring or administrator

Each is one short call on the data loop and costs the same whatever the queue holds.
"""

from collections.abc import Callable
from typing import Final

from aiohttp import web

from penstock.backing.description import describe_segments
from penstock.broker.topology.topics import queue_name
from penstock.clocks import wall_ms
from penstock.core.errors import NotFound
from penstock.management.facts.rows import Row
from penstock.management.http.access import Visitor
from penstock.management.http.bodies import json_response
from penstock.management.http.endpoints import Context, Endpoints
from penstock.management.rows.forecast_view import forecast_row
from penstock.management.rows.heaps_view import SAMPLED, Recent, heaps_row
from penstock.management.rows.queue_flow import flow_facts
from penstock.queues.refusals import check_parts

SEGMENTS_SHOWN: Final = 200
"""Of one queue; of more those in the middle are left out."""


class ViewsApi(Endpoints):
    table = """
        user        penstock/queues/{vhost}/{name}/flow     GET=queue_flow
        user        penstock/queues/{vhost}/{name}/storage  GET=queue_storage
        user        penstock/queues/{vhost}/{name}/heaps    GET=queue_heaps
        user        penstock/heaps/{topic}/{channel}        GET=channel_heaps
        monitoring  penstock/flow/chain                     GET=chain
        monitoring  penstock/forecast                       GET=forecast
        user        penstock/pipelines                      GET=pipelines
    """

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._recent = Recent()

    # -- one queue ---------------------------------------------------------------------------

    async def queue_flow(self, request: web.Request, visitor: Visitor) -> web.Response:
        return await self._of_queue(self._queue_flow, request, visitor)

    async def _of_queue(
        self, row_of: Callable[[str, str], Row], request: web.Request, visitor: Visitor
    ) -> web.Response:
        vhost, name = request.match_info["vhost"], request.match_info["name"]
        await self.must_be_there(vhost, visitor)
        return json_response(await self._on_loop(row_of, vhost, name))

    def _queue_flow(self, vhost: str, name: str) -> Row:
        queue = self._broker.vhost(vhost).queue(name)
        check_parts(queue.backing, name, vhost)
        return {"vhost": vhost, "name": name, **flow_facts(queue.backing)}

    async def queue_storage(self, request: web.Request, visitor: Visitor) -> web.Response:
        return await self._of_queue(self._queue_storage, request, visitor)

    def _queue_storage(self, vhost: str, name: str) -> Row:
        """The index; of a queue with priorities that of each which has one."""
        queue = self._broker.vhost(vhost).queue(name)
        check_parts(queue.backing, name, vhost)
        parts, priorities = queue.backing.parts(), queue.backing.priorities()
        limits = self._broker.engine.limits
        rows: list[Row] = []
        for number, part in zip(priorities, parts, strict=True):
            segments, left_out = describe_segments(part, max(SEGMENTS_SHOWN // len(parts), 2))
            if segments or len(parts) == 1:
                rows.append(
                    {
                        "priority": number if len(parts) > 1 else None,
                        "segments": segments,
                        "segments_left_out": left_out,
                    }
                )
        return {
            "vhost": vhost,
            "name": name,
            "segment_entries": int(parts[0].segment_entries()),
            "journal_entries": sum(int(part.journal_only_count()) for part in parts),
            "journal_entries_limit": int(limits.journal_entries),
            "embed_below_bytes": int(limits.embed_below_bytes),
            "parts": rows,
        }

    async def queue_heaps(self, request: web.Request, visitor: Visitor) -> web.Response:
        return await self._of_queue(self._queue_heaps, request, visitor)

    def _queue_heaps(self, vhost: str, name: str) -> Row:
        queue = self._broker.vhost(vhost).queue(name)
        at_ms = wall_ms()
        given = self._view.watch.open_deliveries(queue, SAMPLED)
        row = {"vhost": vhost, "name": name, **heaps_row(queue, given, self._broker, at_ms)}
        counts = {
            "requeued": int(queue.statistics.requeued_count),
            "timed_out": int(queue.statistics.timed_out_count),
        }
        row["rates"] = self._recent.rates(queue.incarnation, counts, at_ms)
        return row

    async def channel_heaps(self, request: web.Request, visitor: Visitor) -> web.Response:
        topic, channel = request.match_info["topic"], request.match_info["channel"]
        asked = request.query.get("vhost")
        vhosts = await self._on_loop(self._view.vhost_names) if asked is None else [asked]
        open_to = [name for name in sorted(vhosts) if visitor.may_enter(name)]
        row = await self._on_loop(self._channel_heaps, open_to, topic, channel)
        return json_response(row)

    def _channel_heaps(self, vhosts: list[str], topic: str, channel: str) -> Row:
        """Of the first virtual host that has it."""
        for name in vhosts:
            vhost = self._broker.vhosts.get(name)
            found = None if vhost is None else vhost.topics.topics.get(topic)
            if found is not None and channel in found.channels:
                row = self._queue_heaps(name, queue_name(topic, channel))
                return {"topic": topic, "channel": channel, **row}
        raise NotFound(f"no channel '{channel}' of a topic '{topic}'")

    # -- the node ----------------------------------------------------------------------------

    async def chain(self, _request: web.Request, visitor: Visitor) -> web.Response:
        return json_response(await self._on_loop(self._view.watch.chain))

    async def forecast(self, _request: web.Request, visitor: Visitor) -> web.Response:
        alarms, ram = self._broker.admission.alarms, self._broker.engine.ram
        return json_response(await self._on_loop(forecast_row, alarms, ram))

    async def pipelines(self, _request: web.Request, visitor: Visitor) -> web.Response:
        return json_response(await self._on_loop(self._rows, visitor))

    def _rows(self, visitor: Visitor) -> list[Row]:
        vhosts = {
            name: vhost
            for name, vhost in self._broker.vhosts.items()
            if visitor.may_monitor or visitor.may_enter(name)
        }
        return self._broker.pipelines.rows(vhosts, wall_ms())
