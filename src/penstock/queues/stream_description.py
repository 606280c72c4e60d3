"""Streams and their consumers as JSON-able dicts: where they are, how far behind, what goes next.

Called on the data loop, by the management, or for that of another node.

Not compiled: it runs when a person asks.
"""

from typing import NamedTuple

from penstock.backing.description import Facts
from penstock.queues.consumers import Consumer
from penstock.queues.queue import Queue
from penstock.queues.range_groups import RangeGroups
from penstock.queues.stream import StreamQueue
from penstock.queues.stream_backing import StreamBacking
from penstock.streams.log import StreamLog


def describe_stream(backing: StreamBacking) -> Facts:
    log = backing.log
    duplicates = {"duplicates": int(backing.duplicate_count)}
    return _log_facts(log) | _group_facts(log, backing.groups) | duplicates


def _log_facts(log: StreamLog) -> Facts:
    segments = log.segments
    is_empty = log.next_offset == log.first_offset
    return {
        "first_offset": int(log.first_offset),
        "next_offset": int(log.next_offset),
        "durable_offset": int(log.durable_offset),
        "segments": len(segments),
        "bytes": int(segments.total_bytes),
        "first_ms": None if is_empty else int(segments.time(0)),
        "last_ms": None if is_empty else int(log.last_ms),
        "retention": _retention(log),
        "positions": [_position(log, name) for name in log.marks.positions.names()],
        "publishers": [_publisher(log, name) for name in log.marks.publishers.names()],
    }


def _group_facts(log: StreamLog, groups: RangeGroups) -> Facts:
    """Readers of ranges: where they are, and what retention leaves to them."""
    return {
        "groups": [
            {
                "name": name,
                "position": int(one.position),
                "behind": int(log.next_offset - one.position),
                "lost": int(max(log.first_offset - one.position, 0)),
            }
            for name, one in groups.by_name.items()
        ],
        "held_bytes": int(log.held_bytes()),
        "hold_max_bytes": int(groups.hold_bytes),
    }


def _retention(log: StreamLog) -> Facts:
    """``next``: the oldest file, which goes at a time, or when so many more bytes have come.

    None as well while readers hold it.
    """
    limits, segments = log.limits, log.segments
    by_bytes, by_age = limits.max_bytes > 0, limits.max_age_ms > 0
    spare = int(limits.max_bytes - segments.total_bytes)
    next_step: Facts | None = None
    if len(segments) > 1 and (by_bytes or by_age) and log.held_bytes() == 0:
        next_step = {
            "messages": int(segments.first(1) - log.first_offset),
            "bytes": int(segments.size(0)),
            "at_ms": int(log.next_retirement_ms()) if by_age else None,
            "after_bytes": max(spare, 0) if by_bytes else None,
        }
    return {
        "max_bytes": int(limits.max_bytes) if by_bytes else None,
        "max_age_ms": int(limits.max_age_ms) if by_age else None,
        "segment_bytes": int(limits.segment_bytes),
        "next": next_step,
    }


def _position(log: StreamLog, name: str) -> Facts:
    kept = log.marks.positions.find(name)
    assert kept is not None
    lag = _lag(log, kept.number, kept.beside)
    return {"name": name, "offset": int(kept.number), **lag._asdict()}


def _publisher(log: StreamLog, name: str) -> Facts:
    """``offset``: of its last message."""
    mark = log.marks.publishers.find(name)
    assert mark is not None
    return {"name": name, "number": int(mark.number), "offset": int(mark.beside)}


class Lag(NamedTuple):
    """``lag_ms``: how much older the message that was taken last is than the newest.

    None = that is not known: none was taken yet.
    """

    lag_messages: int
    lag_ms: int | None


def _lag(log: StreamLog, offset: int, came_ms: int, unsettled: int = 0) -> Lag:
    behind = max(int(log.durable_offset) - int(offset), 0)
    if behind == 0:
        return Lag(unsettled, 0)
    lag_ms = max(int(log.last_ms) - int(came_ms), 0) if came_ms > 0 else None
    return Lag(behind + unsettled, lag_ms)


def _lag_of(queue: StreamQueue, consumer: Consumer) -> Lag:
    cursor = queue.cursor_of(consumer)
    return _lag(queue.log, cursor.offset, cursor.came_ms, int(consumer.outstanding))


def consumer_fields(queue: Queue, consumer: Consumer) -> Facts:
    """What a consumer of a stream has beside those of other queues."""
    if not isinstance(queue, StreamQueue):
        return {}
    cursor = queue.cursor_of(consumer)
    numbers = {
        "offset": int(cursor.offset),
        "overtaken": int(cursor.overtaken),
        "delivered": int(consumer.delivered_count),
        "credit": int(consumer.room()),
    }
    return {"penstock": numbers | _lag_of(queue, consumer)._asdict()}


def stream_numbers(queue: Queue) -> tuple[int, int, int, int]:
    """Bytes and files, and of the consumers that are furthest behind the messages and seconds."""
    if not isinstance(queue, StreamQueue):
        return 0, 0, 0, 0
    lags = [_lag_of(queue, consumer) for consumer in queue.consumers]
    segments = queue.log.segments
    return (
        int(segments.total_bytes),
        len(segments),
        max((lag.lag_messages for lag in lags), default=0),
        max((lag.lag_ms or 0 for lag in lags), default=0) // 1000,
    )
