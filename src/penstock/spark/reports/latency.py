"""Latency of messages: percentiles of each step, per queue and window of time.

    published ─► enqueued ─► delivered ─► acknowledged        (event ``timing``: a sample)
    publishes, deliveries, acknowledgements, redeliveries     (event ``queue_rates``: all)

In: an event log.  Out: a report, as plain dictionaries.  A sampled message stands for ``every``
messages, so percentiles are weighed by that.  Times are the broker's, whole milliseconds of its
turns; when a message was published is what its publisher says (another clock, perhaps seconds
only), so the first step is as good as that.
"""

import fnmatch
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.spark.dataframes.event_frames import NoEvents, read_events

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

STEPS = ("publish_enqueue", "enqueue_deliver", "deliver_ack", "publish_ack")
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
KINDS = ("timing", "queue_rates", "node")
COUNTS = ("published", "delivered", "acked", "redelivered")
_ACKED = "case when outcome = 'acked' then settled_at_ms end"
_FROM_TO = {
    "publish_enqueue": ("published_at_ms", "enqueued_at_ms"),
    "enqueue_deliver": ("enqueued_at_ms", "delivered_at_ms"),
    "deliver_ack": ("delivered_at_ms", _ACKED),
    "publish_ack": ("coalesce(published_at_ms, enqueued_at_ms)", _ACKED),
}

Report = dict[str, Any]


def latency_report(
    spark: "SparkSession",
    directory: Path,
    window_s: float,
    since_s: float | None,
    queues: Sequence[str] = (),
) -> Report:
    """``queues``: patterns as a shell's; none = all.  Raises NoEvents when the log tells nothing
    of such queues.
    """
    events, covered = read_events(spark, directory, KINDS, since_s)
    window_ms = max(1, round(1000 * window_s))
    windowed = events.selectExpr(
        "*", f"at_ms - at_ms % {window_ms} as window_ms", *_steps_and_weight()
    ).persist()
    seconds = {row["window_ms"]: row["s"] for row in _seconds(windowed)}
    found = _queues(_of_queues(windowed, queues), seconds)
    if not found:
        wanted = f" called {', '.join(queues)}" if queues else ""
        raise NoEvents(f"nothing happened in queues{wanted} in the time the log covers")
    return {
        "from_ms": covered.from_ms,
        "until_ms": covered.until_ms,
        "covered_s": sum(seconds.values()),
        "window_s": window_s,
        "broken_lines": covered.broken_lines,
        "queues": found,
    }


def _steps_and_weight() -> list[str]:
    """A step whose begin or end is not known is null; clocks that disagree make it 0."""
    steps = [
        f"case when {begin} is not null and {end} is not null"
        f" then greatest({end} - {begin}, 0) end as {name}"
        for name, (begin, end) in _FROM_TO.items()
    ]
    return [*steps, "cast(greatest(coalesce(every, 1), 1) as int) as weight"]


def _of_queues(events: "DataFrame", patterns: Sequence[str]) -> "DataFrame":
    from pyspark.sql import functions as f

    chosen = events.where("event != 'node'")
    if not patterns:
        return chosen
    # Python writes the end of the text as \z from 3.14 on, which Java knows, too.
    either = "|".join(f"(?:{fnmatch.translate(pattern)})" for pattern in patterns)
    return chosen.where(f.col("queue").rlike(f"^(?:{either})"))


def _seconds(events: "DataFrame") -> "list[Row]":
    """How much of each window the broker was up and writing."""
    from pyspark.sql import functions as f

    nodes = events.where("event = 'node'")
    return nodes.groupBy("window_ms").agg(f.sum("window_s").alias("s")).collect()


def _queues(events: "DataFrame", seconds: dict[int, int]) -> list[Report]:
    windows: dict[tuple[str, str], list[Report]] = {}
    for row in _aggregated(events, "vhost", "queue", "window_ms"):
        at_ms = row["window_ms"]
        figures = {"start_ms": at_ms} | _figures(row, seconds.get(at_ms, 0))
        windows.setdefault((row["vhost"], row["queue"]), []).append(figures)
    total_s = sum(seconds.values())
    return [
        {"vhost": row["vhost"], "queue": row["queue"]}
        | _figures(row, total_s)
        | {"windows": sorted(windows[row["vhost"], row["queue"]], key=lambda one: one["start_ms"])}
        for row in sorted(_aggregated(events, "vhost", "queue"), key=lambda row: row[:2])
    ]


def _aggregated(events: "DataFrame", *by: str) -> "list[Row]":
    from pyspark.sql import functions as f

    shares = ", ".join(str(share) for share in QUANTILES.values())
    steps = []
    for step in STEPS:
        steps += [
            f.expr(f"percentile({step}, array({shares}), weight)").alias(f"{step}_p"),
            f.max(step).alias(f"{step}_max"),
            f.count(step).alias(f"{step}_n"),
        ]
    counts = [f.sum(name).alias(name) for name in COUNTS]
    others = [
        f.sum(f.expr("case when event = 'timing' then 1 else 0 end")).alias("samples"),
        f.max("precision_ms").alias("precision_ms"),
        f.max_by("ready", f.expr("case when event = 'queue_rates' then at_ms end")).alias("ready"),
    ]
    return events.groupBy(*by).agg(*steps, *counts, *others).collect()


def _figures(row: "Row", seconds: int) -> Report:
    figures: Report = {"samples": row["samples"], "steps": {}}
    for step in STEPS:
        if row[f"{step}_n"]:
            values = [round(value, 1) for value in row[f"{step}_p"]]
            shown = dict(zip(QUANTILES, values, strict=True))
            figures["steps"][step] = shown | {
                "max": row[f"{step}_max"],
                "samples": row[f"{step}_n"],
            }
    for name in COUNTS:
        count = row[name] or 0
        figures[name] = count
        figures[f"{name}_per_s"] = round(count / seconds, 1) if seconds else None
    delivered = figures["delivered"]
    figures["redelivery_rate"] = round(figures["redelivered"] / delivered, 4) if delivered else 0.0
    figures["ready"] = row["ready"]
    figures["publish_precision_ms"] = row["precision_ms"]
    return figures


def summary_of(report: Report) -> Report:
    queues = [
        {name: value for name, value in queue.items() if name != "windows"}
        for queue in report["queues"]
    ]
    return report | {"queues": queues}
