"""``/stats``: topics, channels and clients as nsqd counts them, as JSON and as text.

In: the broker's topics on the data loop.  Out: dictionaries in nsqd's order of fields, and the text
made of them.  A channel is a queue, so its numbers are the queue's: its messages are those it got,
in flight is what consumers hold, whatever they speak.  An AMQP consumer is shown as a client too;
its ready count is its prefetch.

In a cluster each node tells its own, as each nsqd does, because nsqadmin adds them up: messages of
a channel at the node of its master, clients where they are connected.

Of Go's memory only what has a meaning here is filled in: what the interpreter has allocated, and
how often it collected garbage.
"""

import gc
import sys
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, cast

from penstock import __version__
from penstock.broker.topology.topics import Channel, Topic
from penstock.clocks import wall_ms
from penstock.core.histogram import Histogram
from penstock.protocols.nsq.http.admin import NsqAdmin
from penstock.protocols.nsq.http.answers import VERSION
from penstock.protocols.nsq.session import NsqSession
from penstock.protocols.nsq.shared import NsqShared, Visitor
from penstock.protocols.peers.queues import PeerSubscriber
from penstock.queues.consumers import Consumer
from penstock.queues.queue import Queue
from penstock.runtime.loop import Loop
from penstock.runtime.session import Session, Subscriber

HEALTHY: Final = "OK"
NS_PER_MS: Final = 1_000_000
TOPICS_AT_ONCE: Final = 200
Row = dict[str, Any]
Do = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs a function on the data loop."""


class StatsView:
    """Called on the data loop."""

    def __init__(
        self, loop: Loop, desk: NsqAdmin, nsq: NsqShared, targets: tuple[float, ...]
    ) -> None:
        self.started_s = int(time.time())
        self._started_ns = time.monotonic_ns()
        self._loop = loop
        self._desk = desk
        self._targets = list(targets)
        self._nsq = nsq

    def uptime_ns(self) -> int:
        return time.monotonic_ns() - self._started_ns

    def health(self) -> str:
        stalled = self._loop.turn.disk_stalled()
        return f"NOK - {stalled}" if stalled else HEALTHY

    def check(self, visitor: Visitor) -> None:
        """May he know?  Raises AccessRefused."""
        self._desk.rights(visitor)

    def head(self, topic: str, clients: bool, memory: bool) -> Row:
        """All but the topics: of those the names, None when the one asked for is not there."""
        topics = self._desk.vhost().topics.topics
        names = sorted(topics) if topic == "" else [topic] if topic in topics else None
        stats: Row = {
            "version": VERSION,
            "health": self.health(),
            "start_time": self.started_s,
            "topics": names,
        }
        if memory:
            stats["memory"] = memory_row()
        stats["producers"] = self._producers(topic) if clients and names is not None else None
        return stats

    def rows(self, names: list[str], channel: str, clients: bool, asked: str) -> list[Row]:
        """Of some topics; ``asked``: the one asked for, "" = all."""
        topics = self._desk.vhost().topics.topics
        return [
            self._topic(topics[name], channel, clients, asked)
            for name in names
            if name in topics and (channel == "" or channel in topics[name].channels)
        ]

    def _topic(self, topic: Topic, channel: str, clients: bool, asked: str) -> Row:
        names = [channel] if channel else sorted(topic.channels)
        return {
            "topic_name": topic.name,
            "channels": [self._channel(topic.channels[one], clients, asked) for one in names],
            "depth": int(topic.depth()),
            "backend_depth": int(topic.backend_depth()),
            "message_count": int(topic.message_count),
            "message_bytes": int(topic.message_bytes),
            "paused": topic.paused,
            "e2e_processing_latency": self._latency(list(topic.channels.values())),
        }

    def _channel(self, channel: Channel, clients: bool, asked: str) -> Row:
        queue = channel.queue
        ours = [one for one in queue.consumers if not isinstance(one.holder, PeerSubscriber)]
        return {
            "channel_name": channel.name,
            **_message_counts(channel),
            "timeout_count": int(queue.statistics.timed_out_count),
            "client_count": len(ours),
            "clients": [self._consumer(one, asked) for one in ours] if clients else None,
            "paused": queue.paused,
            "e2e_processing_latency": self._latency([channel]),
        }

    def _consumer(self, consumer: Consumer, asked: str) -> Row:
        session = cast(Subscriber, consumer.holder).session
        if isinstance(session, NsqSession):
            return client_row(session, asked)
        return foreign_client(consumer, session)

    def _producers(self, topic: str) -> list[Row] | None:
        """Who has published, of late or not."""
        rows = [
            client_row(session, topic)
            for session in self._nsq.sessions
            if isinstance(session, NsqSession) and session.publishing.counts
        ]
        return rows or None

    def _latency(self, channels: list[Channel]) -> Row:
        total = Histogram()
        found = [one.queue.statistics.latency for one in channels]
        measured = [one for one in found if one is not None]
        if not measured:
            return {"count": 0, "percentiles": None}
        now_ms = wall_ms()
        for latency in measured:
            latency.times_ms.add_to(total, now_ms)
        percentiles = [
            {"quantile": share, "value": float(total.percentile(share) * NS_PER_MS)}
            for share in self._targets
        ]
        return {"count": int(total.count), "percentiles": percentiles}


async def collect(
    do: Do, view: StatsView, topic: str, channel: str, clients: bool, memory: bool
) -> Row:
    """Everything; the data loop is asked for some topics at a time (``do``)."""
    stats: Row = await do(partial(view.head, topic, clients, memory))
    names = stats["topics"]
    if names is not None:
        stats["topics"] = []
        for place in range(0, len(names), TOPICS_AT_ONCE):
            some = names[place : place + TOPICS_AT_ONCE]
            stats["topics"] += await do(partial(view.rows, some, channel, clients, topic))
    return stats


def _message_counts(channel: Channel) -> Row:
    queue = channel.queue
    if queue.remote:
        fields = ("depth", "backend_depth", "in_flight_count", "deferred_count", "message_count")
        return dict.fromkeys((*fields, "requeue_count"), 0)
    return {
        "depth": int(queue.backing.ready_count()),
        "backend_depth": int(channel.backend_depth()),
        "in_flight_count": int(queue.unacked_count),
        "deferred_count": int(queue.deferred_count()),
        "message_count": _message_count(queue),
        "requeue_count": int(queue.statistics.requeued_count),
    }


def _message_count(queue: Queue) -> int:
    """What it dropped when it came was for the channel as well."""
    dropped = queue.dropped_count() if queue.limits.refuses else 0
    return int(queue.statistics.published_count + dropped)


def client_row(session: NsqSession, topic: str) -> Row:
    """With what it published to that topic only, "" = to all."""
    row = session.client_row()
    counts = [
        one for one in cast(list[Row], row.get("pub_counts", [])) if topic in ("", one["topic"])
    ]
    if counts:
        row["pub_counts"] = counts
    else:
        row.pop("pub_counts", None)
    return row


def foreign_client(consumer: Consumer, session: Session) -> Row:
    """A consumer of another protocol, in the fields nsqd has."""
    peer = getattr(session.carrier, "peer", ("", 0))
    return {
        "client_id": consumer.tag,
        "hostname": peer[0],
        "version": "AMQP 0-9-1",
        "remote_address": f"{peer[0]}:{peer[1]}",
        "state": 3,
        "ready_count": int(consumer.prefetch),
        "in_flight_count": int(consumer.outstanding),
        "message_count": 0,
        "finish_count": 0,
        "requeue_count": 0,
        "connect_ts": int(getattr(session, "connected_at_ms", 0)) // 1000,
        "sample_rate": 0,
        "deflate": False,
        "snappy": False,
        "user_agent": "",
        "tls": False,
        "tls_cipher_suite": "",
        "tls_version": "",
        "tls_negotiated_protocol": "",
        "tls_negotiated_protocol_is_mutual": False,
    }


def memory_row() -> Row:
    runs = sum(generation["collections"] for generation in gc.get_stats())
    return {
        "heap_objects": sys.getallocatedblocks(),
        "heap_idle_bytes": 0,
        "heap_in_use_bytes": resident_bytes(),
        "heap_released_bytes": 0,
        "gc_pause_usec_100": 0,
        "gc_pause_usec_99": 0,
        "gc_pause_usec_95": 0,
        "next_gc_bytes": 0,
        "gc_total_runs": runs,
    }


def resident_bytes() -> int:
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * 4096
    except (OSError, IndexError, ValueError):
        return 0


# -- as text -------------------------------------------------------------------------------


def stats_text(stats: Row, uptime_ns: int) -> str:
    started = datetime.fromtimestamp(stats["start_time"], UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    lines = [
        f"nsqd v{VERSION} (built w/Penstock {__version__})",
        f"start_time {started}",
        f"uptime {go_duration(uptime_ns)}",
        "",
        f"Health: {stats['health']}",
    ]
    if "memory" in stats:
        lines += ["", "Memory:"]
        lines += [f"   {name:<25}\t{value}" for name, value in stats["memory"].items()]
    topics = stats["topics"] or []
    lines += ["", "Topics:" if topics else "Topics: None"]
    for place, topic in enumerate(topics):
        lines += _topic_lines(topic)[1 if place == 0 else 0 :]
    producers = stats["producers"] or []
    lines += ["", "Producers:" if producers else "Producers: None"]
    lines += [f"   {client_text(client)}" for client in producers]
    return "\n".join(lines) + "\n"


def _topic_lines(topic: Row) -> list[str]:
    head = (
        f"{'*P ' if topic['paused'] else '   '}[{topic['topic_name']:<15}]"
        f" depth: {topic['depth']:<5} be-depth: {topic['backend_depth']:<5}"
        f" msgs: {topic['message_count']:<8} e2e%: {_latency_text(topic)}"
    )
    lines = ["", head]
    for one in topic["channels"]:
        lines.append(
            f"   {'*P ' if one['paused'] else '   '}[{one['channel_name']:<25}]"
            f" depth: {one['depth']:<5} be-depth: {one['backend_depth']:<5}"
            f" inflt: {one['in_flight_count']:<4} def: {one['deferred_count']:<4}"
            f" re-q: {one['requeue_count']:<5} timeout: {one['timeout_count']:<5}"
            f" msgs: {one['message_count']:<8} e2e%: {_latency_text(one)}"
        )
        lines += [f"        {client_text(client)}" for client in one["clients"] or []]
    return lines


def _latency_text(row: Row) -> str:
    percentiles = row["e2e_processing_latency"]["percentiles"] or []
    return ", ".join(_human(one["value"]) for one in percentiles)


def _human(value_ns: float) -> str:
    for limit, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
        if value_ns > limit:
            return f"{value_ns / limit:.1f}{unit}"
    return f"{value_ns:.1f}ns"


def client_text(client: Row) -> str:
    port = client["remote_address"].rpartition(":")[2]
    who = f"{client['hostname']}:{port} {client['user_agent']}"
    connected = go_duration((int(time.time()) - client["connect_ts"]) * 1_000_000_000)
    counts = client.get("pub_counts")
    if counts:
        total = sum(one["count"] for one in counts)
        topics = ",".join(f"{one['topic']}={one['count']}" for one in counts)
        return (
            f"[{client['version']} {who:<21}] msgs: {total:<8} topics: {topics}"
            f" connected: {connected}"
        )
    return (
        f"[{client['version']} {who:<21}] state: {client['state']}"
        f" inflt: {client['in_flight_count']:<4} rdy: {client['ready_count']:<4}"
        f" fin: {client['finish_count']:<8} re-q: {client['requeue_count']:<8}"
        f" msgs: {client['message_count']:<8} connected: {connected}"
    )


def go_duration(duration_ns: int) -> str:
    """As Go prints one: ``1h2m3.5s``, ``250ms``, ``0s``."""
    if duration_ns < 1_000_000_000:
        for size, unit in ((1_000_000, "ms"), (1000, "µs")):
            if duration_ns >= size:
                return f"{_decimal(duration_ns, size)}{unit}"
        return f"{duration_ns}ns" if duration_ns else "0s"
    minutes, rest_ns = divmod(duration_ns, 60_000_000_000)
    text = f"{_decimal(rest_ns, 1_000_000_000)}s"
    if minutes == 0:
        return text
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes}m{text}" if hours else f"{minutes}m{text}"


def _decimal(number: int, unit: int) -> str:
    whole, rest = divmod(number, unit)
    digits = str(rest).zfill(len(str(unit)) - 1).rstrip("0") if rest else ""
    return f"{whole}.{digits}" if digits else str(whole)
