"""Counters of traffic: they only grow, and are incremented once per batch.

    Traffic          of a channel, and of all sessions of a virtual host that speak one protocol
    TrafficBook      of a node: the latter by virtual host and protocol
    ExchangeTraffic  of an exchange
    Churn            what came and went
    DropCounters     messages that were over, by the reason that dead letters have

A count for a channel counts for its virtual host in the same call.  Management takes the numbers
from here at intervals and makes rates of them on its own side; there is no queue of events that
could pile up.
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.core.counting.histogram import Histogram
from penstock.core.letters import DELIVERY_LIMIT, EXPIRED, MAXLEN, REJECTED

AMQP: Final = "amqp091"
NSQ: Final = "nsq"
PROTOCOLS: Final = (AMQP, NSQ)
"""As metrics name them."""

TRAFFIC_FIELDS: Final = (
    "publish", "confirm", "return_unroutable", "drop_unroutable", "deliver", "deliver_no_ack",
    "get", "get_no_ack", "get_empty", "redeliver", "ack", "routed", "publish_confirm", "recv_oct",
    "send_oct",
)  # fmt: skip
"""What ``Traffic.counts`` returns, in this order, as management names it; the last four are not
shown by its name: ``routed`` messages times queues, ``publish_confirm`` by publishers that want
confirms, and bytes."""


@final
class Traffic:
    """``total``: counts along, once it is known."""

    def __init__(self, total: "Traffic | None") -> None:
        self.total = total
        self.published: i64 = 0
        self.published_confirm: i64 = 0
        self.routed: i64 = 0
        self.confirmed: i64 = 0
        self.returned: i64 = 0
        self.dropped: i64 = 0
        self.delivered: i64 = 0  # to be acknowledged
        self.delivered_no_ack: i64 = 0
        self.got: i64 = 0  # to be acknowledged
        self.got_no_ack: i64 = 0
        self.got_empty: i64 = 0
        self.redelivered: i64 = 0  # of all these, not for the first time
        self.acked: i64 = 0
        self.received_bytes: i64 = 0
        self.sent_bytes: i64 = 0

    def add_to(self, total: "Traffic") -> None:
        """From now on it counts along."""
        self.total = total

    def publish(self, count: i64, wants_confirms: bool) -> None:
        self.published += count
        if wants_confirms:
            self.published_confirm += count
        total = self.total
        if total is not None:
            total.publish(count, wants_confirms)

    def route(self, count: i64) -> None:
        """So many messages times queues."""
        self.routed += count
        total = self.total
        if total is not None:
            total.routed += count

    def unroutable(self, count: i64, mandatory: bool) -> None:
        if mandatory:
            self.returned += count
        else:
            self.dropped += count
        total = self.total
        if total is not None:
            total.unroutable(count, mandatory)

    def confirm(self, count: i64) -> None:
        self.confirmed += count
        total = self.total
        if total is not None:
            total.confirmed += count

    def deliver(self, count: i64, again: i64, no_ack: bool) -> None:
        """``again``: so many of them not for the first time."""
        self.redelivered += again
        if no_ack:
            self.delivered_no_ack += count
        else:
            self.delivered += count
        total = self.total
        if total is not None:
            total.deliver(count, again, no_ack)

    def get(self, count: i64, again: i64, no_ack: bool) -> None:
        """``count`` is 0 when there was nothing to get."""
        self.redelivered += again
        if count == 0:
            self.got_empty += 1
        elif no_ack:
            self.got_no_ack += count
        else:
            self.got += count
        total = self.total
        if total is not None:
            total.get(count, again, no_ack)

    def ack(self, count: i64) -> None:
        self.acked += count
        total = self.total
        if total is not None:
            total.acked += count

    def receive(self, size: i64) -> None:
        self.received_bytes += size
        total = self.total
        if total is not None:
            total.receive(size)

    def send(self, size: i64) -> None:
        self.sent_bytes += size
        total = self.total
        if total is not None:
            total.send(size)

    def counts(self) -> tuple[int, ...]:
        """In the order of ``TRAFFIC_FIELDS``."""
        return (
            int(self.published),
            int(self.confirmed),
            int(self.returned),
            int(self.dropped),
            int(self.delivered),
            int(self.delivered_no_ack),
            int(self.got),
            int(self.got_no_ack),
            int(self.got_empty),
            int(self.redelivered),
            int(self.acked),
            int(self.routed),
            int(self.published_confirm),
            int(self.received_bytes),
            int(self.sent_bytes),
        )


@final
class TrafficBook:
    """Of one node.  What a virtual host has seen stays in the totals when it goes."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], Traffic] = {}
        self._gone: dict[str, tuple[int, ...]] = {}
        self.churn: Final = Churn()
        self.confirm_times: Final = Histogram()

    def of(self, vhost: str, protocol: str) -> Traffic:
        traffic = self._kept.get((vhost, protocol))
        if traffic is None:
            traffic = Traffic(None)
            self._kept[(vhost, protocol)] = traffic
        return traffic

    def counts_of(self, vhost: str) -> tuple[int, ...]:
        """Of all protocols."""
        found = [self._kept[key].counts() for key in self._kept if key[0] == vhost]
        return _sum(found)

    def total(self, protocol: str) -> tuple[int, ...]:
        found = [self._kept[key].counts() for key in self._kept if key[1] == protocol]
        if protocol in self._gone:
            found.append(self._gone[protocol])
        return _sum(found)

    def retire(self, vhosts: set[str]) -> None:
        """Only these virtual hosts are left.  Sessions that end late are not counted."""
        for key in list(self._kept):
            if key[0] not in vhosts:
                last = self._kept.pop(key).counts()
                before = self._gone.get(key[1])
                self._gone[key[1]] = last if before is None else _sum([before, last])


def _sum(counts: list[tuple[int, ...]]) -> tuple[int, ...]:
    if len(counts) == 1:
        return counts[0]
    sums = [0] * len(TRAFFIC_FIELDS)
    for one in counts:
        for place in range(len(sums)):
            sums[place] += one[place]
    return tuple(sums)


@final
class ExchangeTraffic:
    """``taken`` from publishers that named it, ``passed`` on: once for each queue."""

    def __init__(self) -> None:
        self.taken: i64 = 0
        self.passed: i64 = 0

    def count(self, taken: i64, passed: i64) -> None:
        self.taken += taken
        self.passed += passed


@final
class Churn:
    """Of one node, since its start."""

    def __init__(self) -> None:
        self.connections_opened: i64 = 0
        self.connections_closed: i64 = 0
        self.channels_opened: i64 = 0
        self.channels_closed: i64 = 0
        self.queues_declared: i64 = 0  # every declaration, also of a queue that exists
        self.queues_created: i64 = 0
        self.queues_deleted: i64 = 0

    def count_connection(self, more: i64) -> None:
        """1: one was opened; -1: one was closed."""
        if more > 0:
            self.connections_opened += more
        else:
            self.connections_closed -= more

    def open_connections(self) -> i64:
        return self.connections_opened - self.connections_closed

    def open_channels(self) -> i64:
        return self.channels_opened - self.channels_closed

    def queue_declared(self) -> None:
        self.queues_declared += 1

    def queue_created(self) -> None:
        self.queues_created += 1

    def queue_deleted(self) -> None:
        self.queues_deleted += 1

    def count_channel(self, more: i64) -> None:
        """1: one was opened; -1: one was closed."""
        if more > 0:
            self.channels_opened += more
        else:
            self.channels_closed -= more


@final
class DropCounters:
    """Messages of one node that were over, by the reason that dead letters have."""

    def __init__(self) -> None:
        self.expired: i64 = 0
        self.rejected: i64 = 0
        self.too_many: i64 = 0
        self.tried_too_often: i64 = 0

    def count(self, reason: str, count: i64) -> None:
        if reason == EXPIRED:
            self.expired += count
        elif reason == REJECTED:
            self.rejected += count
        elif reason == MAXLEN:
            self.too_many += count
        elif reason == DELIVERY_LIMIT:
            self.tried_too_often += count
