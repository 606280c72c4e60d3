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
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from operator import itemgetter
from typing import Any, Final, cast

from penstock import __version__
from penstock.broker.topology.topics import Topic, TopicChannel
from penstock.clocks import wall_ms
from penstock.core.counting.histogram import Histogram
from penstock.protocols.nsq.http.admin import NsqAdmin
from penstock.protocols.nsq.http.answers import VERSION, sorted_in_pieces
from penstock.protocols.nsq.session import NsqSession
from penstock.protocols.nsq.shared import NsqClient, NsqShared
from penstock.protocols.peers.queues import PeerSubscriber
from penstock.queues.consumers import Consumer
from penstock.runtime.loop import Loop
from penstock.runtime.session import Session, Subscriber

HEALTHY: Final = "OK"
NS_PER_MS: Final = 1_000_000
SLICE_S: Final = 0.005
"""So long the data loop works on an answer at once."""
Row = dict[str, Any]
Do = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs a function on the data loop."""


class StatsView:
    """Called on the data loop."""

    def __init__(
        self, loop: Loop, admin: NsqAdmin, nsq: NsqShared, targets: tuple[float, ...]
    ) -> None:
        self.started_s = int(time.time())
        self._started_ns = time.monotonic_ns()
        self._loop = loop
        self._admin = admin
        self._targets = list(targets)
        self._nsq = nsq

    def uptime_ns(self) -> int:
        return time.monotonic_ns() - self._started_ns

    def health(self) -> str:
        stalled = self._loop.turn.disk_stalled()
        return f"NOK - {stalled}" if stalled else HEALTHY

    def check(self, visitor: NsqClient) -> None:
        """May he know?  Raises AccessRefused."""
        self._admin.rights(visitor)

    def head(self, memory: bool) -> Row:
        """All but topics and producers."""
        stats: Row = {
            "version": VERSION,
            "health": self.health(),
            "start_time": self.started_s,
            "topics": None,
        }
        if memory:
            stats["memory"] = memory_row()
        stats["producers"] = None
        return stats

    def names(self) -> list[str]:
        """Of all topics, in no order."""
        return list(self._admin.vhost().topics.topics)

    def fill(
        self, stats: Row, names: list[str], topic: str, channel: str, clients: bool
    ) -> Iterator[None]:
        """Add these topics, and the producers, to ``stats``: a row at each step.

        ``topic``, ``channel``: of these only, "" = of all.  A topic or channel that is deleted
        between two steps may be missing.
        """
        topics = self._admin.vhost().topics.topics
        if topic and topic not in topics:
            return
        rows = stats["topics"] = []
        for name in names:
            found = topics.get(name)
            if found is not None and (channel == "" or channel in found.channels):
                row = self._topic(found)
                rows.append(row)
                yield from self._fill_topic(row, found, channel, clients, topic)
        if clients:
            yield from self._fill_producers(stats, topic)

    def _topic(self, topic: Topic) -> Row:
        return {
            "topic_name": topic.name,
            "channels": [],
            "depth": int(topic.depth()),
            "backend_depth": int(topic.backend_depth()),
            "message_count": int(topic.message_count),
            "message_bytes": int(topic.message_bytes),
            "paused": topic.paused,
            "e2e_processing_latency": {},
        }

    def _fill_topic(
        self, row: Row, topic: Topic, channel: str, clients: bool, asked: str
    ) -> Iterator[None]:
        total = Latency(self._targets)
        for name, one in list(topic.channels.items()):
            own = Latency(self._targets)
            for latency in (own, total):
                latency.add(one)
            if channel in ("", name):
                shown = self._channel(one, own.row())
                row["channels"].append(shown)
                yield from self._fill_clients(shown, one, clients, asked)
            yield
        row["e2e_processing_latency"] = total.row()

    def _channel(self, channel: TopicChannel, latency: Row) -> Row:
        queue = channel.queue
        return {
            "channel_name": channel.name,
            **_message_counts(channel),
            "timeout_count": int(queue.statistics.timed_out_count),
            "client_count": 0,
            "clients": None,
            "paused": queue.paused,
            "e2e_processing_latency": latency,
        }

    def _fill_clients(
        self, row: Row, channel: TopicChannel, clients: bool, asked: str
    ) -> Iterator[None]:
        consumers = channel.queue.consumers
        ours = [one for one in consumers if not isinstance(one.holder, PeerSubscriber)]
        row["client_count"] = len(ours)
        if clients:
            row["clients"] = []
            for one in ours:
                row["clients"].append(self._consumer(one, asked))
                yield

    def _consumer(self, consumer: Consumer, asked: str) -> Row:
        session = cast(Subscriber, consumer.holder).session
        if isinstance(session, NsqSession):
            return client_row(session, asked)
        return foreign_client(consumer, session)

    def _fill_producers(self, stats: Row, topic: str) -> Iterator[None]:
        """The sessions that have published, of late or not."""
        rows: list[Row] = []
        for session in list(self._nsq.sessions):
            if isinstance(session, NsqSession) and session.publishing.counts:
                rows.append(client_row(session, topic))
                stats["producers"] = rows
            yield


class Latency:
    """From publish to FIN, of some channels together."""

    def __init__(self, targets: list[float]) -> None:
        self._targets = targets
        self._total: Histogram | None = None  # None: none of them is measured

    def add(self, channel: TopicChannel) -> None:
        measured = channel.queue.statistics.latency
        if measured is not None:
            if self._total is None:
                self._total = Histogram()
            measured.times_ms.add_to(self._total, wall_ms())

    def row(self) -> Row:
        total = self._total
        if total is None:
            return {"count": 0, "percentiles": None}
        percentiles = [
            {"quantile": share, "value": float(total.percentile(share) * NS_PER_MS)}
            for share in self._targets
        ]
        return {"count": int(total.count), "percentiles": percentiles}


async def collect(
    do: Do, view: StatsView, topic: str, channel: str, clients: bool, memory: bool
) -> Row:
    """Everything; the data loop is asked for slices of ``SLICE_S`` (``do``)."""
    stats: Row = await do(partial(view.head, memory))
    names = [topic] if topic else sorted_in_pieces(await do(view.names))
    rows = view.fill(stats, names, topic, channel, clients)
    while not await do(partial(_advance, rows)):
        pass
    for row in stats["topics"] or []:
        row["channels"].sort(key=itemgetter("channel_name"))
    return stats


def _advance(rows: Iterator[None]) -> bool:
    """For one slice; True: that was the last row."""
    until_s = time.perf_counter() + SLICE_S
    return all(time.perf_counter() < until_s for _ in rows)


def _message_counts(channel: TopicChannel) -> Row:
    queue = channel.queue
    if queue.remote:
        fields = ("depth", "backend_depth", "in_flight_count", "deferred_count", "message_count")
        return dict.fromkeys((*fields, "requeue_count"), 0)
    return {
        "depth": int(channel.depth()),
        "backend_depth": int(channel.backend_depth()),
        "in_flight_count": int(queue.unacked_count),
        "deferred_count": int(queue.deferred_count()),
        "message_count": _message_count(channel),
        "requeue_count": int(queue.statistics.requeued_count),
    }


def _message_count(channel: TopicChannel) -> int:
    """What it dropped when it came was for the channel as well, and what is still in a stream."""
    queue = channel.queue
    dropped = queue.dropped_count() if queue.limits.refuses else 0
    return int(queue.statistics.published_count + dropped + channel.behind())


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
