"""Queues and their consumers, as JSON-able dicts.

Called on the data loop; see ``view``.
"""

from collections.abc import Sequence
from typing import cast

from penstock.backing.variable_queue import VariableQueue
from penstock.core.credit import QUEUE, Stage
from penstock.management.rows import Row, Rows, activity, jsonable
from penstock.management.statistics.kinds import QUEUE as QUEUE_KIND
from penstock.management.statistics.reading import consumer_tally, queue_counts
from penstock.management.statistics.tally import Tally
from penstock.management.storage_view import listed_fields, shown_fields
from penstock.queues.consumers import Consumer
from penstock.queues.queue import Queue


class QueueRows(Rows):
    """See the head of this file."""

    def queue_names(self, vhost: str) -> list[str]:
        return list(self.vhost(vhost).queues)

    def queue_rows(self, vhost_name: str, names: Sequence[str]) -> list[Row]:
        vhost = self._broker.vhosts.get(vhost_name)
        if vhost is None:
            return []
        queues = [vhost.queues[name] for name in names if name in vhost.queues]
        return [self._queue_row(queue) | listed_fields(queue.backing) for queue in queues]

    def queue_row(self, vhost: str, name: str) -> Row:
        """One queue with its consumers and all that is known of its storage; raises NotFound."""
        queue = self.vhost(vhost).queue(name)
        row = self._queue_row(queue) | shown_fields(queue.backing)
        row["consumer_details"] = self._consumer_rows(queue)
        row["head_message_timestamp"] = self._head_timestamp(queue)
        row["deliveries"] = self._delivery_rows(queue)
        return row

    def _head_timestamp(self, queue: Queue) -> object:
        """What its publisher gave the first message, if that is at hand."""
        for part in reversed(queue.backing.parts()):
            if part.ready_count() > 0:
                first = part.floor_seq_id()
                for message in part.peek_range(first, first + 1, 1, 1):
                    if message.content:
                        return self._watch.opened(message)[0].get("timestamp")
                break
        return None

    def flow_row(self) -> Row:
        return self._watch.flow()

    def purge_queue(self, vhost: str, name: str) -> None:
        """Raises NotFound, or ResourceLocked when the queue is somebody's own."""
        queue = self.vhost(vhost).queue(name)
        queue.check_owner(None)
        queue.purge()

    def _queue_state(self, queue: Queue) -> Row:
        """``stopped``: something of it is damaged, and nothing is delivered any more."""
        book = self._broker.flow.book
        stage = queue.flow if queue.flow is not None else Stage(book, QUEUE, queue)
        stopped = queue.backing.why_stopped() != ""
        active_at_ms = max(int(queue.active_at_ms), int(queue.last_used_ms))
        state = "stopped" if stopped else stage.state(active_at_ms)
        return activity(state, active_at_ms) | {"time_in_flow_s": int(stage.flow_s)}

    def _queue_row(self, queue: Queue) -> Row:
        ready = queue.backing.ready_count()
        unacked = queue.unacked_count
        consumers = queue.consumers
        alone = len(consumers) == 1 and consumers[0].exclusive
        parts = queue.backing.parts()
        return {
            "name": queue.name,
            "vhost": queue.vhost,
            "type": "classic",
            "node": self.node_name,
            **self._queue_state(queue),
            "paused": queue.paused,
            "durable": queue.durable,
            "auto_delete": queue.auto_delete,
            "exclusive": queue.exclusive,
            "arguments": jsonable(queue.arguments) if queue.arguments else {},
            **self._broker.vhosts[queue.vhost].policies.queue_row(queue.name),
            "messages": ready + unacked,
            "messages_ready": ready,
            "messages_unacknowledged": unacked,
            "consumers": len(consumers),
            "exclusive_consumer_tag": consumers[0].tag if alone else None,
            "single_active_consumer_tag": None if queue.active is None else queue.active.tag,
            "recoverable_slaves": None,  # of a queue without mirrors
            "memory": sum(int(cast(VariableQueue, part).ram_bytes()) for part in parts),
            "message_stats": Tally(
                "queue", (queue.vhost, queue.name), QUEUE_KIND.counters, queue_counts(queue)
            ),
        }

    def consumer_rows(self, vhost_name: str, names: Sequence[str]) -> list[Row]:
        """Consumers of these queues."""
        vhost = self._broker.vhosts.get(vhost_name)
        if vhost is None:
            return []
        rows: list[Row] = []
        for name in names:
            queue = vhost.queues.get(name)
            if queue is not None and queue.consumers:
                rows.extend(self._consumer_rows(queue))
        return rows

    def consumer_rows_of(self, vhost: str, names: Sequence[str], channel: str) -> list[Row]:
        """Those of a channel, as far as they are on these queues."""
        found: list[Row] = []
        for row in self.consumer_rows(vhost, names):
            details = row["channel_details"]
            if isinstance(details, dict) and details.get("name") == channel:
                found.append(row)
        return found

    def _consumer_rows(self, queue: Queue) -> list[Row]:
        return [
            {
                "queue": {"name": queue.name, "vhost": queue.vhost},
                "consumer_tag": consumer.tag,
                "channel_details": self._channel_details(consumer),
                "ack_required": not consumer.no_ack,
                "prefetch_count": int(
                    consumer.prefetch if consumer.window < 0 else consumer.window
                ),
                "exclusive": consumer.exclusive,
                "active": queue.active in (None, consumer),
                "activity_status": _activity_status(queue, consumer),
                "arguments": jsonable(consumer.arguments),
            }
            for consumer in queue.consumers
        ]

    def _delivery_rows(self, queue: Queue) -> list[Row]:
        """What each channel got from it, as far as its consumers are still there."""
        by_channel: dict[str, list[int]] = {}
        details: dict[str, Row] = {}
        for consumer in queue.consumers:
            row = self._channel_details(consumer)
            name = str(row.get("name", ""))
            counts = by_channel.setdefault(name, [0, 0, 0])
            details[name] = row
            counts[1 if consumer.no_ack else 0] += int(consumer.delivered_count)
            counts[2] += int(consumer.acked_count)
        return [
            {
                "channel_details": details[name],
                "stats": consumer_tally((queue.vhost, queue.name, name), counts),
            }
            for name, counts in by_channel.items()
            if any(counts)
        ]

    def _channel_details(self, consumer: Consumer) -> Row:
        place = self._watch.place_of(consumer)
        facts = None if place is None else self._watch.connection(place[0])
        if place is None or facts is None:
            return {}
        return {
            "name": f"{facts.name} ({place[1]})",
            "number": place[1],
            "connection_name": facts.name,
            "user": facts.user,
            "peer_host": facts.peer_host,
            "peer_port": facts.peer_port,
            "node": self.node_name,
        }


def _activity_status(queue: Queue, consumer: Consumer) -> str:
    if queue.active is None:
        return "up"
    return "single_active" if queue.active is consumer else "waiting"
