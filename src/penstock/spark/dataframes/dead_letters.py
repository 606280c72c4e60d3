"""Dead letters as columns: the entries of the ``x-death`` header of a message.

In: a DataFrame of the data source with ``headers``.  Out: the same with

    death_reason        rejected, expired, maxlen, delivery_limit: of the newest death
    death_queue         the queue it died in most recently
    death_exchange, death_routing_key    how it had come there
    death_count         how often it died, all queues and reasons together
    first_death_queue, first_death_reason, first_death_exchange   of its first death ever
    first_death_at      when it first died
    origin_exchange, origin_routing_key  the oldest entry of x-death: how it was published first
    deaths              all entries, the newest first

All are null where a message never died; ``x-death`` may be anything, publishers can write it.  So
``x-first-death-*`` counts only where ``x-death`` tells of such a queue, too: the broker writes both
at the first death.  Counts and times out of range are cut to what a column can hold.

An entry of ``x-death`` counts deaths of one queue and reason; its time is that of the first of
them.  When a message came into the queue one looks at is ``enqueued_at``.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DEATHS_SCHEMA = (
    "array<struct<count bigint, reason string, queue string, time bigint, exchange string, "
    "`routing-keys` array<string>, `original-expiration` string>>"
)

COUNT_MAX = 1_000_000_000
"""Of one entry; so many of them as fit into a message add up to less than a bigint."""
TIME_MAX_S = 253_402_300_799 - 86_400
"""A day before the year 10000, which Python does not know: rows come to it in local time."""

_TOLD = "array_contains(transform(deaths, d -> d.queue), headers['x-first-death-queue'])"

DEATH_COLUMNS = {
    "death_reason": "newest.reason",
    "death_queue": "newest.queue",
    "death_exchange": "newest.exchange",
    "death_routing_key": "get(newest.`routing-keys`, 0)",
    "death_count": (
        "aggregate(deaths, 0L, (sum, d) -> "
        f"sum + greatest(least(coalesce(d.count, 0L), {COUNT_MAX}L), 0L))"
    ),
    "first_death_queue": f"if({_TOLD}, headers['x-first-death-queue'], oldest.queue)",
    "first_death_reason": (
        f"if({_TOLD}, coalesce(headers['x-first-death-reason'], oldest.reason), oldest.reason)"
    ),
    "first_death_exchange": (
        f"if({_TOLD}, coalesce(headers['x-first-death-exchange'], oldest.exchange), "
        "oldest.exchange)"
    ),
    "first_death_at": (
        "timestamp_seconds(array_min(transform(deaths, "
        f"d -> if(d.time between 0L and {TIME_MAX_S}L, d.time, null))))"
    ),
    "origin_exchange": "oldest.exchange",
    "origin_routing_key": "get(oldest.`routing-keys`, 0)",
}


def with_deaths(frame: "DataFrame") -> "DataFrame":
    parsed = f"from_json(headers['x-death'], '{DEATHS_SCHEMA}')"
    frame = frame.selectExpr("*", f"{parsed} as deaths")
    # An array may be empty, of which ``[0]`` is an error.
    ends = ("get(deaths, 0) as newest", "try_element_at(deaths, -1) as oldest")
    frame = frame.selectExpr("*", *ends)
    columns = [f"{how} as {name}" for name, how in DEATH_COLUMNS.items()]
    return frame.selectExpr("*", *columns).drop("newest", "oldest")
