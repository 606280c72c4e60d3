"""The sampler's reads on the data loop: numbers of some dozens of objects at a time.

Objects that never did anything are left out.  A name that has vanished meanwhile is, too.
"""

from collections.abc import Sequence
from typing import Final

from penstock.broker.broker import Broker
from penstock.clocks import wall_ms
from penstock.core.counting.traffic import PROTOCOLS, TRAFFIC_FIELDS, ExchangeTraffic
from penstock.management.facts.on_loop import SLICE, Part
from penstock.management.facts.sessions import SessionInspector, SessionTally
from penstock.management.statistics.kinds import (
    EXCHANGE,
    OCTETS,
    SHOWN_TRAFFIC,
    VHOST,
    CountersSnapshot,
    Key,
)
from penstock.queues.queue import Queue

Counts = tuple[int, ...]
Named = tuple[str, Counts]

SHOWN: Final = len(SHOWN_TRAFFIC)
LOOKED_AT_ONCE: Final = 1000
"""Queues of which a call finds those that were ever used; of these it reads ``SLICE``."""
OCTETS_AT: Final = TRAFFIC_FIELDS.index("recv_oct")


class Reading:
    """Every method is called on the data loop."""

    def __init__(self, broker: Broker, watch: SessionInspector) -> None:
        self._broker = broker
        self._watch = watch

    def vhost_names(self) -> list[str]:
        names = list(self._broker.vhosts)
        self._broker.traffic.retire(set(names))
        return names

    def queue_names(self, vhost: str) -> list[str]:
        found = self._broker.vhosts.get(vhost)
        return [] if found is None else list(found.queues)

    def queues(self, vhost: str, names: list[str]) -> list[Named]:
        """Of the last of ``names``, as many as one call may, which it removes there.

        In the order of ``kinds.QUEUE``; its capacity is measured from one look to the next.
        """
        found = self._broker.vhosts.get(vhost)
        queues = {} if found is None else found.queues
        used: list[Queue] = []
        left = LOOKED_AT_ONCE
        while names and left and len(used) < SLICE:
            left -= 1
            queue = queues.get(names.pop())
            if queue is not None and not is_unused(queue):
                used.append(queue)
        now_ms = wall_ms()
        for queue in used:
            queue.measure_capacity(now_ms)
        return [(queue.name, queue_counts(queue)) for queue in used]

    def exchange_names(self, vhost: str) -> list[str]:
        found = self._broker.vhosts.get(vhost)
        return [] if found is None else ["", *found.exchanges]

    def exchanges(self, vhost: str, names: Sequence[str]) -> list[Named]:
        found = self._broker.vhosts.get(vhost)
        if found is None:
            return []
        rows: list[Named] = []
        for name in names:
            exchange = found.exchanges.get(name)
            if name == "":
                traffic = found.default_traffic
            elif exchange is not None:
                traffic = exchange.traffic
            else:
                continue
            if traffic.taken:
                rows.append((name, (int(traffic.taken), int(traffic.passed))))
        return rows

    def sessions(self) -> list[object]:
        return self._watch.sessions()

    def channel_numbers(self, sessions: Sequence[object]) -> list[tuple[object, list[int]]]:
        return [(session, self._watch.channel_numbers(session)) for session in sessions]

    def traffic_of(self, parts: Sequence[Part]) -> list[SessionTally]:
        return self._watch.tallies(parts)

    def vhost(self, name: str) -> Counts:
        return vhost_counts(self._broker, name)

    def cluster(self) -> Counts:
        return cluster_counts(self._broker)


def cluster_counts(broker: Broker) -> Counts:
    """In the order of the counters of ``kinds.CLUSTER``."""
    totals = [broker.traffic.total(protocol) for protocol in PROTOCOLS]
    churn = broker.traffic.churn
    return (
        *(sum(column) for column in zip(*(total[:SHOWN] for total in totals), strict=True)),
        int(broker.engine.disk_reads),
        int(broker.engine.disk_writes),
        int(churn.connections_opened),
        int(churn.connections_closed),
        int(churn.channels_opened),
        int(churn.channels_closed),
        int(churn.queues_declared),
        int(churn.queues_created),
        int(churn.queues_deleted),
    )


def is_unused(queue: Queue) -> bool:
    counted = queue.statistics
    return not (counted.published_count or counted.empty_count or queue.backing.ready_count())


def queue_counts(queue: Queue) -> Counts:
    counted = queue.statistics
    got, got_no_ack = int(counted.got_count), int(counted.got_no_ack_count)
    no_ack = int(counted.no_ack_count) - got_no_ack
    got -= got_no_ack
    return (
        int(counted.published_count),
        int(counted.delivered_count) - no_ack - got - got_no_ack,
        no_ack,
        got,
        got_no_ack,
        int(counted.empty_count),
        int(counted.again_count),
        int(counted.acked_count),
        int(counted.buried_count),
        int(queue.backing.ready_count()),
        int(queue.unacked_anywhere()),
    )


def channel_tally(name: str, counts: Sequence[int]) -> CountersSnapshot:
    return CountersSnapshot("channel", (name,), SHOWN_TRAFFIC, counts)


def octets_tally(name: str, received_bytes: int, sent_bytes: int) -> CountersSnapshot:
    return CountersSnapshot("connection", (name,), OCTETS, (received_bytes, sent_bytes))


def consumer_tally(key: Key, counts: Sequence[int]) -> CountersSnapshot:
    """To be acknowledged, not to be, and acknowledged."""
    return CountersSnapshot("consumer", key, ("deliver", "deliver_no_ack", "ack"), counts)


def exchange_tally(vhost: str, name: str, traffic: ExchangeTraffic) -> CountersSnapshot:
    counts = (int(traffic.taken), int(traffic.passed))
    return CountersSnapshot("exchange", (vhost, name), EXCHANGE.counters, counts)


def vhost_tally(broker: Broker, name: str) -> CountersSnapshot:
    return CountersSnapshot("vhost", (name,), VHOST.counters, vhost_counts(broker, name))


def vhost_counts(broker: Broker, name: str) -> Counts:
    """Traffic as shown, and octets."""
    counts = broker.traffic.counts_of(name)
    return (*counts[:SHOWN], *counts[OCTETS_AT:])
