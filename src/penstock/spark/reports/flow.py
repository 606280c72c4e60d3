"""Flow control over hours, and the bottleneck in words: ``penstock flow`` over a whole log.

    node          each interval: seconds in which connections, channels, queues were in flow
    wait          each interval: who waited for whom, for how many milliseconds, and why
    alarm_…       when memory or disk was short        paging_…   when queues went to disk

In: an event log.  Out: a report, as plain dictionaries: the shares of time, the edges, the alarms,
the connections that waited longest, and a verdict; one for the whole time, and one for each stretch
of it in which something was the bottleneck, since an hour's average hides a bad minute.
"""

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.core.counting.bottleneck import LEAST, NOTHING, Verdict, bottleneck
from penstock.spark.dataframes.event_frames import Covered, NoEvents, read_events

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

KINDS = (
    *("node", "wait", "alarm_set", "alarm_cleared", "paging_begun", "paging_ended"),
    *("connection_opened", "node_started", "node_stopped", "events_dropped"),
)
STAGES = ("connection", "channel", "queue")
EDGES_MAX = 50
CONNECTIONS_MAX = 20
QUEUES_MAX = 20
PERIODS_MAX = 200

Report = dict[str, Any]


def flow_report(
    spark: "SparkSession", directory: Path, window_s: float, since_s: float | None
) -> Report:
    """Raises NoEvents when the log does not cover any time."""
    events, covered = read_events(spark, directory, KINDS, since_s)
    events = events.persist()
    window_ms = max(1, round(1000 * window_s))
    windows = _windows(events, window_ms)
    if not windows:
        raise NoEvents("the log covers no interval yet")
    marks = events.where("event like 'alarm_%' or event in ('node_started', 'node_stopped')")
    rows = marks.orderBy("at_ms").collect()
    alarms = _alarms(rows, covered)
    for window in windows:
        _judge(window, _alarm_in(alarms, window["start_ms"], window["start_ms"] + window_ms))
    covered_s = sum(window["covered_s"] for window in windows)
    whole = in_words(_whole(windows, alarms, covered_s), windows)
    edges = _edges(events, covered_s)
    return {
        "from_ms": covered.from_ms,
        "until_ms": covered.until_ms,
        "covered_s": covered_s,
        "window_s": window_s,
        "broken_lines": covered.broken_lines,
        "bottleneck": whole.stage,
        "sentence": whole.sentence,
        "advice": whole.advice,
        "stages": _stages(windows, edges, covered_s),
        "periods": _periods(windows, window_ms),
        "edges": edges[:EDGES_MAX],
        "queues": _waited_for(events, window_ms),
        "connections": _connections(events, edges),
        "alarms": alarms,
        "paging": _paging(events),
        "starts": sum(row["event"] == "node_started" for row in rows),
        "events_dropped": _dropped(events),
        "windows": windows,
    }


# -- windows -----------------------------------------------------------------------------------


def _windows(events: "DataFrame", window_ms: int) -> list[Report]:
    from pyspark.sql import functions as f

    nodes = events.where("event = 'node'")
    rows = (
        nodes.groupBy(f.expr(f"at_ms - at_ms % {window_ms}").alias("start_ms"))
        .agg(
            f.sum("window_s").alias("covered_s"),
            *(f.sum(f"{stage}s_in_flow_s").alias(stage) for stage in STAGES),
            f.expr("max_by(because, channels_in_flow_s)").alias("because"),
            f.max("memory_used_bytes").alias("memory_used_bytes"),
            f.min("disk_free_bytes").alias("disk_free_bytes"),
            *(f.avg(f"{stage}s_cpu").alias(f"{stage}_cpu") for stage in STAGES),
        )
        .orderBy("start_ms")
        .collect()
    )
    return [_window(row) for row in rows]


def _window(row: "Row") -> Report:
    seconds = row["covered_s"]
    return {
        "start_ms": row["start_ms"],
        "covered_s": seconds,
        "shares": {stage: round(min(row[stage] / seconds, 1.0), 3) for stage in STAGES},
        "because": row["because"] or "",
        "processor": {stage: round(row[f"{stage}_cpu"] or 0.0, 2) for stage in STAGES},
        "memory_used_bytes": row["memory_used_bytes"],
        "disk_free_bytes": row["disk_free_bytes"],
    }


def _judge(window: Report, alarm: tuple[str, int]) -> None:
    resource, alarm_ms = alarm
    share = alarm_ms / (1000 * window["covered_s"])
    window["alarm_share"] = round(min(share, 1.0), 3)
    verdict = _verdict(window["shares"], window["because"], resource, share)
    window |= {"bottleneck": verdict.stage, "sentence": verdict.sentence, "advice": verdict.advice}


def _verdict(shares: dict[str, float], why: str, resource: str, alarm_share: float) -> Verdict:
    """While an alarm holds publishers, that is why they wait, whatever else is in flow."""
    held = alarm_share >= LEAST and alarm_share >= shares["connection"]
    blocked = f"the {resource} alarm was set {round(100 * min(alarm_share, 1))} % of the time"
    return bottleneck(
        shares["connection"], shares["channel"], shares["queue"], blocked if held else "", why
    )


def _whole(windows: list[Report], alarms: list[Report], covered_s: int) -> Verdict:
    shares = {stage: _average(windows, stage, covered_s) for stage in STAGES}
    worst = max(windows, key=lambda window: window["shares"]["channel"])
    resource, alarm_ms = _alarm_in(alarms, 0, 1 << 62)
    return _verdict(shares, worst["because"], resource, alarm_ms / (1000 * covered_s))


def in_words(whole: Verdict, windows: list[Report]) -> Verdict:
    """The average can be nothing where single windows had a bottleneck: those are counted."""
    waited = [window for window in windows if window["bottleneck"] != NOTHING]
    if whole.stage != NOTHING or not waited:
        return whole
    worst = max(waited, key=lambda window: window["shares"]["connection"])
    sentence = (
        f"Publishers waited in {len(waited)} of {len(windows)} windows;"
        f" on the average of all the time nothing made them wait for long."
    )
    return Verdict(NOTHING, sentence, worst["advice"])


def _average(windows: list[Report], stage: str, covered_s: int) -> float:
    inside: float = sum(window["shares"][stage] * window["covered_s"] for window in windows)
    return round(inside / covered_s, 3)


def _periods(windows: list[Report], window_ms: int) -> list[Report]:
    """Neighbouring windows with the same bottleneck are one."""
    periods: list[Report] = []
    for window in windows:
        start_ms, stage = window["start_ms"], window["bottleneck"]
        last = periods[-1] if periods else None
        if last and last["until_ms"] == start_ms and last["bottleneck"] == stage:
            last["until_ms"] += window_ms
        else:
            periods.append(
                {
                    "from_ms": start_ms,
                    "until_ms": start_ms + window_ms,
                    "bottleneck": stage,
                    "sentence": window["sentence"],
                    "advice": window["advice"],
                }
            )
    return [one for one in periods if one["bottleneck"] != NOTHING][:PERIODS_MAX]


# -- who and what ------------------------------------------------------------------------------


def _stages(windows: list[Report], edges: list[Report], covered_s: int) -> list[Report]:
    return [
        {
            "stage": stage,
            "in_flow_share": _average(windows, stage, covered_s),
            "blocked_ms": sum(edge["blocked_ms"] for edge in edges if edge["waiter_kind"] == stage),
        }
        for stage in STAGES
    ]


def _edges(events: "DataFrame", covered_s: int) -> list[Report]:
    from pyspark.sql import functions as f

    by = ("waiter_kind", "waiter", "waits_for_kind", "waits_for")
    rows = (
        events.where("event = 'wait'")
        .groupBy(*by)
        .agg(
            f.sum("blocked_ms").alias("blocked_ms"),
            f.expr("max_by(because, blocked_ms)").alias("because"),
            f.min("at_ms").alias("first_ms"),
            f.max("at_ms").alias("last_ms"),
        )
        .orderBy(f.desc("blocked_ms"), *by)
        .collect()
    )
    return [
        row.asDict() | {"share": round(min(row["blocked_ms"] / (1000 * covered_s), 1.0), 3)}
        for row in rows
    ]


def _waited_for(events: "DataFrame", window_ms: int) -> list[Report]:
    """The queues for which others waited longest, by windows; those without a wait are left out."""
    from pyspark.sql import functions as f

    found: dict[str, dict[int, int]] = {}
    waits = events.where("event = 'wait' and waits_for_kind = 'queue'")
    by = ("waits_for", f.expr(f"at_ms - at_ms % {window_ms}").alias("start_ms"))
    for row in waits.groupBy(*by).agg(f.sum("blocked_ms").alias("blocked_ms")).collect():
        found.setdefault(row["waits_for"], {})[row["start_ms"]] = row["blocked_ms"]
    longest = sorted(found, key=lambda name: (-sum(found[name].values()), name))[:QUEUES_MAX]
    return [
        {
            "queue": name,
            "blocked_ms": sum(found[name].values()),
            "windows": [
                {"start_ms": start_ms, "blocked_ms": blocked_ms}
                for start_ms, blocked_ms in sorted(found[name].items())
            ],
        }
        for name in longest
    ]


def _connections(events: "DataFrame", edges: list[Report]) -> list[Report]:
    opened = events.where("event = 'connection_opened'").select("connection", "user", "vhost")
    who = {row["connection"]: row for row in opened.collect()}
    blocked: dict[str, int] = {}
    for edge in edges:
        if edge["waiter_kind"] == "connection":
            blocked[edge["waiter"]] = blocked.get(edge["waiter"], 0) + edge["blocked_ms"]
    longest = sorted(blocked, key=lambda name: -blocked[name])[:CONNECTIONS_MAX]
    return [
        {
            "connection": name,
            "user": who[name]["user"] if name in who else None,
            "vhost": who[name]["vhost"] if name in who else None,
            "blocked_ms": blocked[name],
        }
        for name in longest
    ]


def _alarms(rows: "list[Row]", covered: Covered) -> list[Report]:
    """When each was set; one that is set at the end of the log has ``open``."""
    found: list[Report] = []
    still: dict[str, Report] = {}
    for row in rows:
        if row["event"] == "alarm_set":
            still[row["resource"]] = period = _alarm(row, row["at_ms"])
            found.append(period)
        elif row["event"] == "alarm_cleared":
            if row["resource"] not in still:  # set before the time that was asked for
                found.append(_alarm(row, max(covered.from_ms, row["at_ms"] - row["lasted_ms"])))
                still[row["resource"]] = found[-1]
            still.pop(row["resource"])["until_ms"] = row["at_ms"]
        else:  # a node that starts or stops has no alarm
            for period in still.values():
                period["until_ms"] = row["at_ms"]
            still = {}
    for period in still.values():
        period |= {"until_ms": covered.until_ms, "open": True}
    return found


def _alarm(row: "Row", from_ms: int) -> Report:
    return {
        "resource": row["resource"],
        "from_ms": from_ms,
        "until_ms": from_ms,
        "used_bytes": row["used_bytes"],
        "limit_bytes": row["limit_bytes"],
        "open": False,
    }


def _alarm_in(alarms: list[Report], from_ms: int, until_ms: int) -> tuple[str, int]:
    """Of that time: which alarm was set longest, and how long any of them was."""
    longest: dict[str, int] = {}
    spans = []
    for alarm in alarms:
        start, end = max(alarm["from_ms"], from_ms), min(alarm["until_ms"], until_ms)
        if end > start:
            longest[alarm["resource"]] = longest.get(alarm["resource"], 0) + end - start
            spans.append((start, end))
    if not spans:
        return "", 0
    return max(longest, key=lambda name: longest[name]), _union_ms(sorted(spans))


def _union_ms(spans: list[tuple[int, int]]) -> int:
    total, reached = 0, 0
    for start, end in spans:
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total


def _paging(events: "DataFrame") -> list[Report]:
    from pyspark.sql import functions as f

    rows = (
        events.where("event in ('paging_begun', 'paging_ended')")
        .groupBy("vhost", "queue")
        .agg(
            f.count_if(f.col("event") == "paging_begun").alias("times"),
            f.sum("lasted_ms").alias("lasted_ms"),
            f.sum("paged_bytes").alias("paged_bytes"),
            f.max("held_bytes").alias("held_bytes"),
        )
        .orderBy(f.desc_nulls_last("paged_bytes"), "vhost", "queue")
        .collect()
    )
    return [row.asDict() for row in itertools.islice(rows, EDGES_MAX)]


def _dropped(events: "DataFrame") -> int:
    from pyspark.sql import functions as f

    row = events.where("event = 'events_dropped'").agg(f.sum("count")).first()
    return int(row[0] or 0) if row else 0


def summary_of(report: Report) -> Report:
    kept = ("windows", "edges", "queues", "connections", "paging", "alarms")
    counts = {
        "edges": len(report["edges"]),
        "alarms": len(report["alarms"]),
        "paged_queues": len(report["paging"]),
    }
    return {name: value for name, value in report.items() if name not in kept} | counts
