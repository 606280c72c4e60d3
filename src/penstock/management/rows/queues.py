"""Queues and their consumers, as JSON-able dicts.

Called on the data loop; see ``view``.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, cast

from penstock.clocks import wall_ms
from penstock.cluster.remote.queue import RemoteQueue
from penstock.core.credit import QUEUE, FlowPeer
from penstock.core.pending import Pending, then
from penstock.management.facts.rows import Row, Rows, activity, jsonable
from penstock.management.facts.sessions import ConnectionFacts
from penstock.management.facts.storage_view import listed_fields, shown_fields
from penstock.management.rows.mirrors import member_fields, queue_fields
from penstock.management.statistics.kinds import QUEUE as QUEUE_KIND
from penstock.management.statistics.kinds import CountersSnapshot
from penstock.management.statistics.reading import Counts, consumer_tally, queue_counts
from penstock.queues.consumers import Consumer
from penstock.queues.context import queue_type
from penstock.queues.queue import Queue
from penstock.queues.stream_description import consumer_fields


def _messages(queue: Queue) -> int:
    ready = queue.backing.ready_count()
    return ready if queue.is_stream else ready + queue.unacked_anywhere()


NUMBERS: Final[Mapping[str, Callable[[Queue], int]]] = {
    "messages": _messages,
    "messages_ready": lambda queue: queue.backing.ready_count(),
    "messages_unacknowledged": lambda queue: queue.unacked_anywhere(),
    "messages_deferred": lambda queue: int(queue.deferred_count()),
    "consumers": lambda queue: int(queue.consumers_anywhere()),
}
"""Fields of a row that are known without the others: long lists are sorted by them."""


class QueueRows(Rows):
    def names(self, vhost: str) -> list[str]:
        return list(self.vhost(vhost).queues)

    def names_by(self, user: str, vhost: str) -> list[str]:
        queues = self.vhost(vhost).queues
        return [name for name, queue in queues.items() if queue.user == user]

    def rows(self, vhost_name: str, names: Sequence[str]) -> list[Row]:
        vhost = self.broker.vhosts.get(vhost_name)
        if vhost is None:
            return []
        queues = [vhost.queues[name] for name in names if name in vhost.queues]
        return [
            self._down_row(queue)
            if queue.why_down() != ""
            else self._queue_row(queue) | listed_fields(queue.backing)
            for queue in queues
        ]

    def numbers(self, field: str, vhost_name: str, names: Sequence[str]) -> list[Row]:
        """Of each queue its names and one of ``NUMBERS``, which one that is down lacks."""
        vhost = self.broker.vhosts.get(vhost_name)
        queues, number = {} if vhost is None else vhost.queues, NUMBERS[field]
        found: list[Row] = []
        for name in names:
            queue = queues.get(name)
            if queue is not None:
                row: Row = {"vhost": vhost_name, "name": name}
                if queue.why_down() == "":
                    row[field] = number(queue)
                found.append(row)
        return found

    def row(self, vhost: str, name: str) -> Row:
        """One queue with all that is known of its storage; raises NotFound."""
        queue = self.vhost(vhost).queue(name)
        if queue.why_down() != "":
            return self._down_row(queue)
        row = self._queue_row(queue) | shown_fields(queue.backing)
        row["head_message_timestamp"] = self._head_timestamp(queue)
        return row

    def facts_elsewhere(self, vhost: str, name: str) -> dict[str, object] | Pending:
        """The object ``penstock`` of a stream whose master is on another node; else nothing."""
        queue = self.vhost(vhost).queue(name)
        if not isinstance(queue, RemoteQueue) or not queue.is_stream or queue.why_down() != "":
            return {}
        again = partial(self.facts_elsewhere, vhost, name)
        return then(queue.facts(), lambda facts: {"penstock": facts}, again)

    def _head_timestamp(self, queue: Queue) -> object:
        """What its publisher gave the first message, if that is at hand."""
        for part in reversed(queue.backing.parts()):
            if part.ready_count() > 0:
                first = part.tiers.floor_seq_id()
                for message in part.reads.peek_range(first, first + 1, 1, 1):
                    if message.content:
                        return self.watch.opened(message)[0].get("timestamp")
                break
        return None

    def purge(self, vhost: str, name: str) -> int | Pending:
        """Returns how many messages it had; raises NotFound or ResourceLocked (exclusive)."""
        queue = self.vhost(vhost).queue(name)
        queue.check_owner(None)
        return then(queue.purge(), int, partial(self.purge, vhost, name))

    def _queue_state(self, queue: Queue) -> Row:
        """``stopped``: something of it is damaged, and nothing is delivered any more."""
        book = self.broker.flow.book
        stage = queue.flow if queue.flow is not None else FlowPeer(book, QUEUE, queue)
        stopped = queue.backing.why_stopped() != ""
        now_ms = wall_ms()
        used_ms = self.broker.idleness.unused_since_ms(queue, now_ms)
        active_at_ms = max(queue.statistics.active_at_ms, used_ms)
        state = "stopped" if stopped else stage.state(now_ms - active_at_ms)
        return activity(state, active_at_ms) | {"time_in_flow_s": int(stage.flow_s)}

    def _down_row(self, queue: Queue) -> Row:
        """Its content is not known, and RabbitMQ's row has no counts either."""
        mirrors = self._mirror_fields(queue)
        return self._lasting_fields(queue) | mirrors | {"state": "down", "why": queue.why_down()}

    def _mirror_fields(self, queue: Queue) -> Row:
        facts = self.broker.mirrors.facts(queue)
        fields = queue_fields(facts)
        if queue.is_quorum:
            fields |= member_fields(facts, queue.master_node() or self.node_name)
        return fields

    def _lasting_fields(self, queue: Queue) -> Row:
        return {
            "name": queue.name,
            "vhost": queue.vhost,
            "type": queue_type(queue.arguments),
            "node": queue.master_node() or self.node_name,
            "paused": queue.paused,
            "durable": queue.durable,
            "auto_delete": queue.auto_delete,
            "exclusive": queue.exclusive,
            "arguments": jsonable(queue.arguments) if queue.arguments else {},
            **self.broker.vhosts[queue.vhost].policies.queue_row(queue.limits.policies),
        }

    def _queue_row(self, queue: Queue) -> Row:
        ready = queue.backing.ready_count()
        unacked = queue.unacked_anywhere()
        first = next(iter(queue.consumers), None)
        parts = queue.backing.parts()
        active = queue.active_consumer()
        capacity = queue.statistics.capacity.share(wall_ms()) if queue.consumers else 0
        return {
            **self._lasting_fields(queue),
            **self._queue_state(queue),
            "messages": _messages(queue),
            "messages_ready": ready,
            "messages_unacknowledged": unacked,
            "messages_deferred": int(queue.deferred_count()),
            "consumers": int(queue.consumers_anywhere()),
            "consumer_capacity": capacity,
            "consumer_utilisation": capacity,
            "exclusive_consumer_tag": first.tag if first and first.exclusive else None,
            "single_active_consumer_tag": None if active is None else active.tag,
            "memory": sum(int(part.ram_bytes()) for part in parts),
            "message_stats": CountersSnapshot(
                "queue", (queue.vhost, queue.name), QUEUE_KIND.counters, queue_counts(queue)
            ),
            **self._mirror_fields(queue),
        }

    def consumers_of(self, vhost_name: str, names: Sequence[str]) -> list[Consumer]:
        """All consumers of these queues; tokens for the next two, which take some of them."""
        vhost = self.broker.vhosts.get(vhost_name)
        queues = {} if vhost is None else vhost.queues
        return [one for name in names if name in queues for one in queues[name].consumers]

    def consumer_rows(self, consumers: Sequence[Consumer]) -> list[Row]:
        return [row for row, _ in self.consumers_with_counts(consumers)]

    def consumers_with_counts(self, consumers: Sequence[Consumer]) -> list[tuple[Row, Counts]]:
        found: list[tuple[Row, Counts]] = []
        known: dict[int, ConnectionFacts | None] = {}  # asking a session costs system calls
        for consumer in consumers:
            if not consumer.cancelled:
                details = self._channel_details(consumer, known)
                delivered, acked = int(consumer.delivered_count), int(consumer.acked_count)
                counts = (0, delivered, acked) if consumer.no_ack else (delivered, 0, acked)
                timeout_ms = self.broker.options.consumer_timeout_ms
                row = _consumer_row(consumer, details, timeout_ms)
                found.append((row, counts))
        return found

    def _channel_details(self, consumer: Consumer, known: dict[int, ConnectionFacts | None]) -> Row:
        place = self.watch.place_of(consumer)
        if place is None:
            return {}
        session, number = place
        if id(session) not in known:
            known[id(session)] = self.watch.connection(session)
        facts = known[id(session)]
        if facts is None:
            return {}
        return {
            "name": f"{facts.name} ({number})",
            "number": number,
            "connection_name": facts.name,
            "user": facts.user,
            "peer_host": facts.peer_host,
            "peer_port": facts.peer_port,
            "node": self.node_name,
        }


def delivery_rows(vhost: str, name: str, consumers: Sequence[tuple[Row, Counts]]) -> list[Row]:
    """What each channel got from a queue, as far as its consumers are still there."""
    by_channel: dict[str, Counts] = {}
    details: dict[str, object] = {}
    for row, counts in consumers:
        channel = cast(Row, row["channel_details"])
        key = str(channel.get("name", ""))
        before = by_channel.get(key, (0, 0, 0))
        by_channel[key] = tuple(map(sum, zip(before, counts, strict=True)))
        details[key] = channel
    return [
        {"channel_details": details[key], "stats": consumer_tally((vhost, name, key), counts)}
        for key, counts in by_channel.items()
        if any(counts)
    ]


def _consumer_row(consumer: Consumer, channel_details: Row, timeout_ms: int) -> Row:
    """``timeout_ms``: the node's, for a delivery where neither consumer nor queue says it."""
    queue = cast(Queue, consumer.queue)
    return {
        "queue": {"name": queue.name, "vhost": queue.vhost},
        "consumer_tag": consumer.tag,
        "channel_details": channel_details,
        "ack_required": not consumer.no_ack,
        "prefetch_count": int(consumer.prefetch if consumer.window < 0 else consumer.window),
        "exclusive": consumer.exclusive,
        "active": queue.active_consumer() in (None, consumer),
        "activity_status": _activity_status(queue, consumer),
        "arguments": jsonable(consumer.arguments),
        "consumer_timeout": int(
            consumer.timeout_ms or queue.limits.consumer_timeout_ms or timeout_ms
        ),
        **consumer_fields(queue, consumer),
    }


def _activity_status(queue: Queue, consumer: Consumer) -> str:
    active = queue.active_consumer()
    if active is None:
        return "up"
    return "single_active" if active is consumer else "waiting"
