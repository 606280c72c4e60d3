"""``penstock pipeline flow``: who blocked whom over time, from the event log."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.inspect import table
from penstock.cli.pipelines.common import EXIT_CODES, Common, common_options
from penstock.cli.pipelines.event_source import EventJob, event_job, event_options, run_event_job
from penstock.core.bottleneck import NOTHING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EPILOG = f"""{EXIT_CODES}
\b
Examples:
  penstock pipeline flow --since 1h
  penstock pipeline flow --window 5m --out flow.html
  penstock pipeline flow --from-events /var/lib/penstock/events -o json
"""
SHOWN = 10


@click.command(epilog=EPILOG, short_help="Who blocked whom over time, and why, in words.")
@event_options
@common_options(stream=False, group=False)
def flow(common: Common, **given: Any) -> None:
    """Who blocked whom over time, and why, in words.

    Share of the time in which connections, channels and queues had to wait, who waited for
    whom, alarms, paging, and the bottleneck: of the whole time, and of each stretch of it.
    """
    job = event_job("flow", common, given)
    from penstock.spark.flow import summary_of

    run_event_job(job, common, partial(_make, job), flow_html, flow_text, summary_of)


def _make(job: EventJob, spark: "SparkSession", directory: Path) -> dict[str, Any]:
    from penstock.spark.flow import FlowJob, flow_report

    return flow_report(spark, FlowJob(directory, job.window_s, job.since_s))


def flow_text(report: dict[str, Any]) -> str:
    from penstock.spark.html_page import moment

    stages = [
        (one["stage"], _percent(one["in_flow_share"]), _seconds(one["blocked_ms"]))
        for one in report["stages"]
    ]
    parts = [table(("stage", "in flow", "blocked, all together"), stages)]
    if report["edges"]:
        rows = [_edge(edge) for edge in report["edges"][:SHOWN]]
        parts.append(table(EDGES, rows))
    if report["alarms"]:
        alarms = [
            (alarm["resource"], moment(alarm["from_ms"]), _alarm_end(alarm, moment))
            for alarm in report["alarms"][-SHOWN:]
        ]
        parts.append(table(("alarm", "from", "until"), alarms))
    if report["paging"]:
        paged = [
            (one["queue"], one["times"], one["paged_bytes"] or 0)
            for one in report["paging"][:SHOWN]
        ]
        parts.append(table(("paged queue", "times", "bytes"), paged))
    for period in report["periods"][-SHOWN:]:
        span = f"{moment(period['from_ms'])} to {moment(period['until_ms'])}"
        parts.append(f"{span}: {period['sentence']}")
    parts += _notes(report)
    parts.append(f"{report['sentence']}\n{report['advice']}".rstrip())
    return "\n\n".join(parts)


EDGES = ("who waited", "for", "because", "blocked", "share")


def _edge(edge: dict[str, Any]) -> tuple[str, ...]:
    return (
        edge["waiter"],
        edge["waits_for"],
        edge["because"] or "",
        _seconds(edge["blocked_ms"]),
        _percent(edge["share"]),
    )


def _alarm_end(alarm: dict[str, Any], moment: Any) -> str:
    return "still set" if alarm["open"] else str(moment(alarm["until_ms"]))


def _notes(report: dict[str, Any]) -> list[str]:
    notes = []
    if report["starts"] > 1:
        notes.append(f"The broker was started {report['starts']} times.")
    if report["events_dropped"]:
        notes.append(f"{report['events_dropped']} events were dropped by the broker.")
    if report["broken_lines"]:
        notes.append(f"{report['broken_lines']} lines of the log were not whole and are left out.")
    return notes


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _seconds(ms: int) -> str:
    return f"{ms / 1000:.1f} s"


def flow_html(report: dict[str, Any]) -> str:
    from penstock.spark import html_page as h

    times = f"{h.moment(report['from_ms'])} to {h.moment(report['until_ms'])}"
    sub = f"{times}; windows of {report['window_s']:g} s; {report['covered_s']} s covered"
    good = report["bottleneck"] == NOTHING
    parts = [h.verdict(report["sentence"], report["advice"], good=good)]
    parts += [h.paragraph(note) for note in _notes(report)]
    parts += [h.heading("Share of the time in flow"), _shares(report)]
    rows = [
        (one["stage"], _percent(one["in_flow_share"]), round(one["blocked_ms"] / 1000, 1))
        for one in report["stages"]
    ]
    parts.append(h.table(("stage", "in flow", "blocked, all together, s"), rows))
    parts.append(h.heading("When something was the bottleneck"))
    periods = [
        (h.moment(one["from_ms"]), h.moment(one["until_ms"]), one["bottleneck"], one["sentence"])
        for one in report["periods"]
    ]
    parts.append(h.table(("from", "until", "bottleneck", "in words"), periods))
    parts.append(h.heading("Who waited for whom"))
    parts.append(h.table(EDGES, [_edge(edge) for edge in report["edges"]]))
    parts.append(h.heading("Connections that waited longest"))
    waited = [
        (one["connection"], one["user"], one["vhost"], round(one["blocked_ms"] / 1000, 1))
        for one in report["connections"]
    ]
    parts.append(h.table(("connection", "user", "vhost", "blocked, s"), waited))
    parts.append(h.heading("Alarms"))
    alarms = [
        (
            one["resource"],
            h.moment(one["from_ms"]),
            _alarm_end(one, h.moment),
            one["used_bytes"],
            one["limit_bytes"],
        )
        for one in report["alarms"]
    ]
    parts.append(h.table(("alarm", "from", "until", "used or free, bytes", "limit"), alarms))
    parts.append(h.heading("Paging"))
    paging = [
        (one["vhost"], one["queue"], one["times"], one["paged_bytes"], one["lasted_ms"])
        for one in report["paging"]
    ]
    parts.append(h.table(("vhost", "queue", "times", "paged, bytes", "lasted, ms"), paging))
    return h.page("Flow control", sub, parts)


def _shares(report: dict[str, Any]) -> str:
    from penstock.spark import html_page as h

    series = {
        f"{stage}s": [
            (window["start_ms"], 100 * window["shares"][stage]) for window in report["windows"]
        ]
        for stage in ("connection", "channel", "queue")
    }
    series["alarms"] = [
        (window["start_ms"], 100 * window["alarm_share"]) for window in report["windows"]
    ]
    return h.lines(series, "%", "share of each window in flow")
