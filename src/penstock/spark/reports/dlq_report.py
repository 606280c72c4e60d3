"""Counts the messages of a dead-letter queue by reason, origin and content.

In: a queue's extent and a session.  Out: a dictionary of plain values, which is the JSON report,
and from which ``dlq_page`` makes the HTML one.  The queue stays as it is.

Messages are read once: what the questions need of each, a few hundred bytes, is kept by Spark
(``persist``), bodies are not, but for the first bytes of those that may become samples.  Questions
are asked together: a job of Spark costs half a second however little there is to count.
"""

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.spark.dataframes.browsing import Extent, browse
from penstock.spark.dataframes.dead_letters import with_deaths

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = (
    *("seq_id", "body", "exchange", "routing_key", "enqueued_at", "message_id"),
    *("content_type", "headers"),
)
ERROR_HEADERS = ("x-exception-message", "x-exception", "x-error", "x-error-message", "error")
"""Where frameworks put what a consumer died of; the first one a message has counts."""
TOP = 20
TEXT_MAX = 200
"""The publisher decides what is in an x-death, down to its length."""
KEYS_MAX = 200
"""Of one JSON object, each of which is counted."""
REASONS_MAX = 7
SAMPLE_BYTES = 512
SAMPLES_PER_KIND = 2
TIMES_MAX = 48
WIDTHS_S = (60, 300, 900, 3600, 6 * 3600, 86_400, 7 * 86_400, 30 * 86_400)
DEATHS_NAMES = ("never", "1", "2", "3", "4", "5", "6 to 10", "11 to 100", "more than 100")
SIZES_NAMES = ("empty", "below 100 B", "below 1 KB", "below 10 KB", "below 100 KB", "below 1 MB",
               "below 10 MB", "10 MB and more")  # fmt: skip


@dataclass(frozen=True)
class ReportJob:
    """``samples`` 0 = no bodies in the report."""

    error_headers: Sequence[str] = ERROR_HEADERS
    samples: int = 10
    url: str | None = None  # where the session does not know it


def report(spark: "SparkSession", extent: Extent, job: ReportJob) -> dict[str, Any]:
    with _few_partitions(spark):
        letters = _letters(browse(spark, extent, COLUMNS, job.url), job).persist()
        try:
            return _asked(letters, extent, job)
        finally:
            letters.unpersist()


@contextmanager
def _few_partitions(spark: "SparkSession") -> Iterator[None]:
    """Counts are few rows; Spark's two hundred tasks for them would cost more than the reading."""
    name = "spark.sql.shuffle.partitions"
    before = spark.conf.get(name)
    spark.conf.set(name, spark.sparkContext.defaultParallelism)
    try:
        yield
    finally:
        spark.conf.set(name, before or "200")


def _asked(letters: "DataFrame", extent: Extent, job: ReportJob) -> dict[str, Any]:
    whole = _whole(letters)
    counted = _counts(letters)
    reasons = [row["value"] for row in counted["reasons"][:REASONS_MAX]]
    found = {
        "queue": extent.queue,
        "from_seq_id": extent.start,
        "upto_seq_id": extent.end,
        "ready": extent.ready,
        **whole,
        **{name: counted[name] for name in COUNTED},
        "deaths_per_message": _in_order(counted["deaths_per_message"], DEATHS_NAMES),
        "body_sizes": _in_order(counted["body_sizes"], SIZES_NAMES),
        "over_time": _over_time(letters, whole, reasons),
        **_repeated(letters),
    }
    if job.samples:
        found["samples"] = _samples(letters, job.samples)
    return found


# -- one row per letter ----------------------------------------------------------------------

_KIND = """
    case when octet_length(body) = 0 then 'empty'
         when not is_valid_utf8(cast(body as string)) then 'binary'
         when json_object_keys(cast(body as string)) is not null then 'JSON object'
         when json_array_length(cast(body as string)) is not null then 'JSON array'
         else 'text' end
"""
_KEYS = f"""
    case when body_kind = 'JSON object'
         then transform(slice(json_object_keys(cast(body as string)), 1, {KEYS_MAX}),
                        k -> substring(k, 1, {TEXT_MAX})) end
"""


def _letters(frame: "DataFrame", job: ReportJob) -> "DataFrame":
    from pyspark.sql import functions as sql

    headers = [sql.col("headers")[name] for name in job.error_headers]
    error = sql.coalesce(*headers) if headers else sql.lit(None).cast("string")
    frame = with_deaths(frame).withColumn("error", sql.substring(error, 1, TEXT_MAX))
    frame = frame.selectExpr("*", f"{_KIND} as body_kind")
    texts = ("death_reason", "death_queue", "origin_exchange", "origin_routing_key")
    return frame.selectExpr(
        *("seq_id", "enqueued_at", "message_id", "content_type", "exchange", "routing_key"),
        *("error", "death_count", "first_death_at", "body_kind"),
        *(f"substring({name}, 1, {TEXT_MAX}) as {name}" for name in texts),
        f"{_KEYS} as json_keys",
        "octet_length(body) as size",
        "case when octet_length(body) > 0 then sha2(body, 256) end as body_sha256",
        f"substring(body, 1, {SAMPLE_BYTES if job.samples else 0}) as head",
    )


# -- the questions ---------------------------------------------------------------------------


def _whole(letters: "DataFrame") -> dict[str, Any]:
    row = letters.selectExpr(
        "count(*) as messages",
        "coalesce(sum(size), 0) as body_bytes",
        "count(death_reason) as died",
        "min(first_death_at) as first_death_at",
        "min(enqueued_at) as first_arrival_at",
        "max(enqueued_at) as last_arrival_at",
    ).first()
    assert row is not None
    return {name: _plain(value) for name, value in row.asDict().items()}


_DEATHS = """
    case when death_count is null then 0 when death_count <= 5 then death_count
         when death_count <= 10 then 6 when death_count <= 100 then 7 else 8 end
"""
_SIZES = """
    case when size = 0 then 0 when size < 100 then 1 when size < 1000 then 2
         when size < 10000 then 3 when size < 100000 then 4 when size < 1000000 then 5
         when size < 10000000 then 6 else 7 end
"""
COUNTED = {
    "reasons": "death_reason",
    "source_queues": "death_queue",
    "exchanges": "origin_exchange",
    "routing_keys": "origin_routing_key",
    "errors": "error",
    "body_kinds": "body_kind",
    "content_types": "content_type",
    "deaths_per_message": _DEATHS,
    "body_sizes": _SIZES,
    "json_keys": "",  # several of a message
}


def _counts(letters: "DataFrame") -> dict[str, list[dict[str, Any]]]:
    """Of each question the most frequent values; ``value`` None = the message has none."""
    single = ", ".join(
        f"struct('{name}' as question, cast({how} as string) as value)"
        for name, how in COUNTED.items()
        if how
    )
    keys = (
        "transform(coalesce(json_keys, array()), k -> struct('json_keys' as question, k as value))"
    )
    pairs = letters.selectExpr(f"explode(concat(array({single}), {keys})) as pair").select("pair.*")
    return _top(pairs.groupBy("question", "value").count(), COUNTED)


def _top(rows: "DataFrame", questions: Iterable[str]) -> dict[str, list[dict[str, Any]]]:
    """Of each question the values with the highest ``count``."""
    from pyspark.sql import Window
    from pyspark.sql import functions as sql

    ranked = Window.partitionBy("question").orderBy(sql.col("count").desc(), "value")
    rows = rows.withColumn("place", sql.row_number().over(ranked)).where(f"place <= {TOP}")
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in questions}
    for row in rows.orderBy("place").drop("place").collect():
        one = row.asDict()
        found[one.pop("question")].append(one)
    return found


def _in_order(rows: list[dict[str, Any]], names: Sequence[str]) -> list[dict[str, Any]]:
    """Of numbered classes all, also those with nothing in them."""
    counts = {int(row["value"]): row["count"] for row in rows}
    return [{"value": name, "count": counts.get(at, 0)} for at, name in enumerate(names)]


def _over_time(
    letters: "DataFrame", whole: dict[str, Any], reasons: list[str | None]
) -> dict[str, Any]:
    """Arrivals in the queue by these reasons, in equal stretches of time, empty ones too."""
    first, last = whole["first_arrival_at"], whole["last_arrival_at"]
    if first is None:
        return {"width_seconds": 0, "times": [], "messages": [], "reasons": {}}
    start_s, end_s = (int(dt.datetime.fromisoformat(at).timestamp()) for at in (first, last))
    width = width_of(start_s, end_s)
    place = f"cast(floor(unix_timestamp(enqueued_at) / {width}) as bigint) as place"
    rows = letters.selectExpr(place, "death_reason as reason").groupBy("reason", "place").count()
    counts = {(row["reason"], row["place"]): row["count"] for row in rows.collect()}
    totals: Counter[int] = Counter()
    for (_, at), count in counts.items():
        totals[at] += count
    places = range(start_s // width, end_s // width + 1)
    return {
        "width_seconds": width,
        "times": [_plain(dt.datetime.fromtimestamp(p * width, dt.UTC)) for p in places],
        "messages": [totals[place] for place in places],
        "reasons": {
            reason or "none": [counts.get((reason, place), 0) for place in places]
            for reason in reasons
        },
    }


def width_of(start_s: int, end_s: int) -> int:
    """Of the stretches, in seconds, in which so much time is shown."""
    fitting = [width for width in WIDTHS_S if (end_s - start_s) // width < TIMES_MAX]
    return fitting[0] if fitting else (end_s - start_s) // TIMES_MAX + 1


def _repeated(letters: "DataFrame") -> dict[str, list[dict[str, Any]]]:
    from pyspark.sql import functions as sql

    both = (
        "explode(array(struct('same_message_id' as question, message_id as value), "
        "struct('same_body' as question, body_sha256 as value))) as pair"
    )
    rows = (
        letters.selectExpr("seq_id", "death_count", both)
        .where("pair.value is not null")
        .groupBy("pair.question", "pair.value")
        .agg(
            sql.count("*").alias("count"),
            sql.min("seq_id").alias("first_seq_id"),
            sql.max("seq_id").alias("last_seq_id"),
            sql.max("death_count").alias("deaths_max"),
        )
        .where("count > 1")
    )
    return _top(rows, ("same_message_id", "same_body"))


def _samples(letters: "DataFrame", count: int) -> list[dict[str, Any]]:
    from pyspark.sql import Window
    from pyspark.sql import functions as sql

    kind = Window.partitionBy("death_reason", "death_queue").orderBy("seq_id")
    numbered = letters.withColumn("place", sql.row_number().over(kind))
    rows = numbered.where(f"place <= {SAMPLES_PER_KIND}").orderBy("place", "seq_id").limit(count)
    return [_sample(row.asDict()) for row in rows.collect()]


def _sample(row: dict[str, Any]) -> dict[str, Any]:
    names = (
        *("seq_id", "message_id", "death_reason", "death_queue", "death_count", "exchange"),
        *("routing_key", "content_type", "enqueued_at", "error"),
    )
    body = preview(bytes(row["head"]), row["size"])
    return {name: _plain(row[name]) for name in names} | {"body_bytes": row["size"]} | body


def preview(head: bytes, size: int) -> dict[str, Any]:
    cut = size > len(head)
    try:
        text = head.decode()
    except UnicodeDecodeError as error:
        # A cut may go through the middle of a character.
        if not cut or error.start < len(head) - 3:
            return {"body_hex": head[:64].hex(" "), "cut": size > 64}
        text = head[: error.start].decode()
    return {"body": text, "cut": cut}


def _plain(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC).isoformat(timespec="seconds")
    return value
