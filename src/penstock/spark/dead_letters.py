"""Dead letters as columns: what the ``x-death`` header says about a message.

In: a DataFrame of the data source with ``headers``.  Out: the same with

    death_reason        rejected, expired, maxlen, delivery_limit: of the newest death
    death_queue         the queue it died in most recently
    death_exchange, death_routing_key    how it had come there
    death_count         how often it died, all queues and reasons together
    first_death_queue, first_death_reason, first_death_exchange   of its first death ever
    first_death_at      when it first died
    origin_exchange, origin_routing_key  the oldest entry of x-death: how it was published first
    deaths              all entries, the newest first

All are null where a message never died; ``x-death`` may be anything, publishers can write it.

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

DEATH_COLUMNS = {
    "death_reason": "deaths[0].reason",
    "death_queue": "deaths[0].queue",
    "death_exchange": "deaths[0].exchange",
    "death_routing_key": "deaths[0].`routing-keys`[0]",
    "death_count": "aggregate(deaths, 0L, (sum, d) -> sum + coalesce(d.count, 0L))",
    "first_death_queue": "coalesce(headers['x-first-death-queue'], oldest.queue)",
    "first_death_reason": "coalesce(headers['x-first-death-reason'], oldest.reason)",
    "first_death_exchange": "coalesce(headers['x-first-death-exchange'], oldest.exchange)",
    "first_death_at": "timestamp_seconds(array_min(transform(deaths, d -> d.time)))",
    "origin_exchange": "oldest.exchange",
    "origin_routing_key": "oldest.`routing-keys`[0]",
}


def with_deaths(frame: "DataFrame") -> "DataFrame":
    """See the head of this file."""
    parsed = f"from_json(headers['x-death'], '{DEATHS_SCHEMA}')"
    frame = frame.selectExpr("*", f"{parsed} as deaths")
    frame = frame.selectExpr("*", "try_element_at(deaths, -1) as oldest")
    columns = [f"{how} as {name}" for name, how in DEATH_COLUMNS.items()]
    return frame.selectExpr("*", *columns).drop("oldest")
