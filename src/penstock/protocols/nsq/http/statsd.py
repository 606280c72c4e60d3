"""The numbers of topics and channels, pushed to a statsd as nsqd pushes them.

In: what ``/stats`` shows, each interval.  Out: UDP packets of lines, none cut in two:

    topic.T.message_count, message_bytes                          counters: what came since
    topic.T.depth, backend_depth, e2e_processing_latency_99       gauges
    topic.T.channel.C.message_count, requeue_count, timeout_count counters
    topic.T.channel.C.depth, backend_depth, in_flight_count, deferred_count, clients, e2e_...
    mem.*                                                         if it is asked for

The packets of one interval are spread over it, so that a small receiver is not run over.  A packet
that cannot be sent is lost, as UDP is.  An interval that fails, as when the receiver's name has no
address or the virtual host is missing, is in the log once for each kind, and the next comes.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from penstock.broker.topology.topics import is_ephemeral
from penstock.settings.settings import Settings

HOST: Final = "%s"
"""In the prefix: where the name of the node goes."""
TOPIC_COUNTERS: Final = ("message_count", "message_bytes")
TOPIC_GAUGES: Final = ("depth", "backend_depth")
CHANNEL_COUNTERS: Final = ("message_count", "requeue_count", "timeout_count")
CHANNEL_GAUGES: Final = ("depth", "backend_depth", "in_flight_count", "deferred_count")
MEMORY_GAUGES: Final = (
    *("heap_objects", "heap_idle_bytes", "heap_in_use_bytes", "heap_released_bytes"),
    *("gc_pause_usec_100", "gc_pause_usec_99", "gc_pause_usec_95", "next_gc_bytes"),
)

Row = dict[str, Any]

log = logging.getLogger("penstock.nsq")


def full_prefix(prefix: str, host: str, port: int) -> str:
    """With the node in it, and a dot at its end."""
    place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    prefix = prefix.replace(HOST, place.replace(".", "_").replace(":", "_"))
    return prefix if prefix == "" or prefix.endswith(".") else prefix + "."


class Report:
    """Lines of what has changed since the report before."""

    def __init__(self, prefix: str, exclude_ephemeral: bool) -> None:
        self._prefix = prefix
        self._exclude_ephemeral = exclude_ephemeral
        self._counted: dict[str, int] = {}

    def lines(self, stats: Row) -> list[str]:
        counted, self._counted = self._counted, {}
        lines: list[str] = []
        for topic in stats["topics"]:
            if self._exclude_ephemeral and is_ephemeral(topic["topic_name"]):
                continue
            name = f"topic.{topic['topic_name']}"
            lines += self._row(name, topic, TOPIC_COUNTERS, TOPIC_GAUGES, counted)
            for channel in topic["channels"]:
                if self._exclude_ephemeral and is_ephemeral(channel["channel_name"]):
                    continue
                inner = f"{name}.channel.{channel['channel_name']}"
                row = {**channel, "clients": channel["client_count"]}
                gauges = (*CHANNEL_GAUGES, "clients")
                lines += self._row(inner, row, CHANNEL_COUNTERS, gauges, counted)
        if "memory" in stats:
            memory = {**stats["memory"], "gc_runs": stats["memory"]["gc_total_runs"]}
            lines += self._row("mem", memory, ("gc_runs",), MEMORY_GAUGES, counted)
        return lines

    def _row(
        self,
        name: str,
        row: Row,
        counters: tuple[str, ...],
        gauges: tuple[str, ...],
        counted: dict[str, int],
    ) -> list[str]:
        lines = []
        for counter in counters:
            key = f"{name}.{counter}"
            self._counted[key] = row[counter]
            # One made anew begins at nothing.
            before = counted.get(key, 0)
            change = row[counter] - before if row[counter] >= before else row[counter]
            lines.append(f"{self._prefix}{key}:{change}|c\n")
        lines += [f"{self._prefix}{name}.{gauge}:{row[gauge]}|g\n" for gauge in gauges]
        latency = row.get("e2e_processing_latency") or {}
        for one in latency.get("percentiles") or []:
            key = f"{name}.e2e_processing_latency_{one['quantile'] * 100:.0f}"
            lines.append(f"{self._prefix}{key}:{int(one['value'])}|g\n")
        return lines


def packets(lines: list[str], size: int) -> list[bytes]:
    """As many whole lines in each as there is room for."""
    found: list[bytes] = []
    packet = b""
    for line in lines:
        data = line.encode()
        if packet and len(packet) + len(data) > size:
            found.append(packet)
            packet = b""
        packet += data
    return [*found, packet] if packet else found


class Statsd:
    """Pushes until it is cancelled."""

    def __init__(
        self, settings: Settings, host: str, port: int, stats: Callable[[bool], Awaitable[Row]]
    ) -> None:
        """``host``, ``port``: of this node; ``stats``: with memory or without."""
        prefix = full_prefix(settings.nsq_statsd_prefix, host, port)
        self._report = Report(prefix, settings.nsq_statsd_exclude_ephemeral)
        self._address = settings.nsq_statsd_address
        self._interval_s = settings.nsq_statsd_interval_s
        self._packet_bytes = settings.nsq_statsd_udp_packet_size_bytes
        self._memory = settings.nsq_statsd_mem_stats
        self._stats = stats

    async def run(self) -> None:
        host, _, port = self._address.rpartition(":")
        told: set[type[Exception]] = set()
        while True:
            await asyncio.sleep(1)  # and a push takes the rest of the interval
            try:
                await self._push(host.strip("[]"), int(port))
                told.clear()
            except Exception as error:  # noqa: BLE001 - whatever it is, the next may go
                if type(error) not in told:
                    told.add(type(error))
                    log.warning(
                        "statsd %s: %s; trying again",
                        self._address,
                        str(error) or type(error).__name__,
                    )
                await asyncio.sleep(self._interval_s - 1)

    async def _push(self, host: str, port: int) -> None:
        """Takes the interval, but for a second."""
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(
            asyncio.DatagramProtocol, remote_addr=(host, port)
        )
        try:
            lines = self._report.lines(await self._stats(self._memory))
            waiting = packets(lines, self._packet_bytes)
            pause_s = (self._interval_s - 1) / max(1, len(waiting))
            for packet in waiting:
                transport.sendto(packet)
                await asyncio.sleep(pause_s)
            if not waiting:
                await asyncio.sleep(pause_s)
        finally:
            transport.close()
