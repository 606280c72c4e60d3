"""Deadlines of one queue, as JSON-able dicts: deliveries with a deadline, and
messages that were put off.

    in flight   handed out; given again (leases, NSQ) or the end of the channel (AMQP) when due
    deferred    neither ready nor handed out until due

In: a queue, on the data loop.  Out: of each heap its size, how long it is until what is in it is
due, the ten soonest, and how often the messages were tried.  A heap may hold a hundred thousand,
so the histograms are those of ``SAMPLED`` messages from all over it, scaled to its size; the ten
soonest are exact.
"""

from collections import OrderedDict, deque
from typing import Final, NamedTuple

from penstock.broker.broker import Broker
from penstock.core.clock_types import WallMs
from penstock.core.message import Message, attempts_of
from penstock.management.facts.rows import Row
from penstock.management.facts.sessions import OpenDelivery
from penstock.queues.leases import Lease, Leases
from penstock.queues.queue import Queue

SAMPLED: Final = 500
SOONEST: Final = 10
DUE_WITHIN_MS: Final = (0, 1000, 5000, 15_000, 30_000, 60_000, 300_000, 900_000, 3_600_000)
ATTEMPTS: Final = (1, 2, 3, 5, 10, 100)
WINDOW_MS: Final = 10_000
APART_MS: Final = 500
"""Looks closer together than this are one."""
KEYS_MAX: Final = 256
Counts = dict[str, int]


class Waiting(NamedTuple):
    """One message, and when its time is over; 0 = never."""

    message: Message
    due_ms: WallMs
    since_ms: WallMs
    consumer: str


def heaps_row(queue: Queue, given: list[OpenDelivery], broker: Broker, now_ms: WallMs) -> Row:
    """``given``: what AMQP consumers of it hold, who have a timeout and no lease."""
    some = [Waiting(one.message, one.due_ms, one.delivered_ms, one.consumer_tag) for one in given]
    soonest = [one for one in some if one.due_ms]
    leases = queue.leases
    if leases is not None:
        some += [_lease(leases, one) for one in leases.sample(SAMPLED)]
        soonest += [_lease(leases, one) for one in leases.soonest(SOONEST)]
    soonest.sort(key=lambda one: one.due_ms)
    in_flight = _heap_row(int(queue.unacked_count), some, soonest[:SOONEST], now_ms)
    return {
        "now_ms": now_ms,
        "in_flight": {"kind": "consumer timeouts" if leases is None else "leases", **in_flight},
        "deferred": _deferred_row(queue, now_ms),
        "requeued": int(queue.statistics.requeued_count),
        "timed_out": int(queue.statistics.timed_out_count),
        "consumers": len(queue.consumers),
        "scan": _scan_row(queue, broker),
    }


def _lease(leases: Leases, lease: Lease) -> Waiting:
    tag = leases.consumer(lease).tag
    return Waiting(lease.message, lease.due_ms, lease.delivered_ms, tag)


def _deferred_row(queue: Queue, now_ms: WallMs) -> Row:
    backing = queue.backing.plain()
    if backing is None:
        # Of several parts only the number is known without looking at each.
        return _heap_row(int(queue.deferred_count()), [], [], now_ms)
    delayed = backing.tiers.delayed
    some = [Waiting(one.message, one.due_ms, WallMs(0), "") for one in delayed.sample(SAMPLED)]
    soonest = [Waiting(one.message, one.due_ms, WallMs(0), "") for one in delayed.soonest(SOONEST)]
    return _heap_row(int(delayed.waiting_count()), some, soonest, now_ms)


def _heap_row(count: int, some: list[Waiting], soonest: list[Waiting], now_ms: WallMs) -> Row:
    scale = count / len(some) if some else 0.0
    return {
        "count": count,
        "sampled": len(some),
        "due": _due_histogram(some, scale, now_ms),
        "attempts": _attempts_histogram(some, scale),
        "soonest": [_soonest_row(one, now_ms) for one in soonest],
    }


def _due_histogram(some: list[Waiting], scale: float, now_ms: WallMs) -> list[Row]:
    """``within_ms``: 0 = overdue, None = later than all others, or never."""
    counts = [0] * (len(DUE_WITHIN_MS) + 1)
    for one in some:
        counts[_place(one.due_ms - now_ms, DUE_WITHIN_MS) if one.due_ms else -1] += 1
    return _histogram("within_ms", DUE_WITHIN_MS, counts, scale)


def _attempts_histogram(some: list[Waiting], scale: float) -> list[Row]:
    """``at_most``: None = more than that."""
    counts = [0] * (len(ATTEMPTS) + 1)
    for one in some:
        counts[_place(int(attempts_of(one.message)), ATTEMPTS)] += 1
    return _histogram("at_most", ATTEMPTS, counts, scale)


def _histogram(name: str, bounds: tuple[int, ...], counts: list[int], scale: float) -> list[Row]:
    return [
        {name: bound, "count": round(count * scale)}
        for bound, count in zip([*bounds, None], counts, strict=True)
    ]


def _place(value: int, bounds: tuple[int, ...]) -> int:
    for place, bound in enumerate(bounds):
        if value <= bound:
            return place
    return len(bounds)


def _soonest_row(one: Waiting, now_ms: WallMs) -> Row:
    return {
        "seq_id": int(one.message.seq_id),
        "due_in_ms": one.due_ms - now_ms,
        "out_for_ms": now_ms - one.since_ms if one.since_ms else None,
        "attempts": int(attempts_of(one.message)),
        "bytes": int(one.message.size),
        "consumer_tag": one.consumer or None,
    }


def _scan_row(queue: Queue, broker: Broker) -> Row | None:
    """Nsqd's scan loop, if the node has it; None = every deadline is known, in one heap."""
    scan = broker.queue_turns.scan
    if scan is None:
        return None
    return {
        "scanned": queue.scanned,
        "channels": int(scan.count()),
        "workers": int(scan.workers),
        "workers_max": int(scan.worker_pool_max),
        "interval_ms": int(scan.interval_ms),
        "refresh_interval_ms": int(scan.refresh_interval_ms),
        "selection_count": int(scan.selection_count),
        "dirty_share": scan.dirty_percent,
        "last_dirty_share": round(scan.last_dirty_share, 3),
        "last_round_ms": int(scan.last_round_ms),
        "rounds": int(scan.rounds),
    }


class Recent:
    """Rates of counters by any key over the last seconds, computed by the reader.

    The caller passes the counters; the samples of the last ten seconds are kept, so several
    visitors of one page see the same rate, and the broker keeps nothing for them.  The first look
    knows no rate.  The memory is bounded: the thing least recently looked at is forgotten.
    """

    def __init__(self) -> None:
        self._seen: OrderedDict[object, deque[tuple[WallMs, Counts]]] = OrderedDict()

    def rates(self, key: object, counts: Counts, now_ms: WallMs) -> dict[str, float | None]:
        """A second, of each counter; None = not known yet."""
        looks = self._looks(key)
        while looks and (now_ms - looks[0][0] > WINDOW_MS or now_ms < looks[0][0]):
            looks.popleft()
        if looks and any(counts[name] < looks[-1][1].get(name, 0) for name in counts):
            looks.clear()  # it is another one of the same name
        if not looks or now_ms - looks[-1][0] >= APART_MS:
            looks.append((now_ms, counts))
        then_ms, then = looks[0]
        if now_ms - then_ms < APART_MS:
            return dict.fromkeys(counts)
        passed_s = (now_ms - then_ms) / 1000
        return {name: round((count - then[name]) / passed_s, 2) for name, count in counts.items()}

    def _looks(self, key: object) -> deque[tuple[WallMs, Counts]]:
        looks = self._seen.setdefault(key, deque())
        self._seen.move_to_end(key)
        if len(self._seen) > KEYS_MAX:
            self._seen.popitem(last=False)
        return looks
