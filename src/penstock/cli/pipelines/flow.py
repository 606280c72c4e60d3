"""``penstock pipeline flow``: who blocked whom over time, from the event log."""

from typing import TYPE_CHECKING, Any

import click

from penstock.cli.pipelines.common import EXIT_CODES, Common, common_options
from penstock.cli.pipelines.event_source import (
    event_job,
    event_options,
    facts_of,
    moment,
    run_event_job,
    span_of,
)
from penstock.cli.tables import table

if TYPE_CHECKING:
    from penstock.spark.reports.html_report import Section

EPILOG = f"""{EXIT_CODES}
\b
Examples:
  penstock pipeline flow --since 1h
  penstock pipeline flow --window 5m --out flow.html
  penstock pipeline flow --from-events /var/lib/penstock/events -o json
"""
SHOWN = 10


@click.command(epilog=EPILOG)
@event_options
@common_options(stream=False, group=False)
def flow(common: Common, **given: Any) -> None:
    """Show flow control over hours: stages that waited, and the bottlenecks.

    Share of the time in which connections, channels and queues had to wait, who waited for
    whom, alarms, paging, and the bottleneck: of the whole time, and of each stretch of it.
    """
    job = event_job("flow", common, given)
    from penstock.spark.reports.flow import flow_report, summary_of

    run_event_job(job, common, flow_report, flow_html, flow_text, summary_of)


def flow_text(report: dict[str, Any]) -> str:
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
            (alarm["resource"], moment(alarm["from_ms"]), _alarm_end(alarm))
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


def _alarm_end(alarm: dict[str, Any]) -> str:
    return "still set" if alarm["open"] else moment(alarm["until_ms"])


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
    from penstock.spark.reports.html_report import Page, page

    verdict = f"{report['sentence']} {report['advice']}".strip()
    sections = [_shares(report), _waits(report), _shortages(report)]
    return page(Page("Flow control", facts_of(report), sections, verdict))


def _shares(report: dict[str, Any]) -> "Section":
    from penstock.spark.reports.html_report import Bars, HtmlTable, Lines, Section

    windows = report["windows"]
    points = [moment(window["start_ms"]) for window in windows]
    series = [
        (f"{stage}s", [round(100 * window["shares"][stage], 1) for window in windows])
        for stage in ("connection", "channel", "queue")
    ]
    series.append(("alarms", [round(100 * window["alarm_share"], 1) for window in windows]))
    stages = [
        (one["stage"], _percent(one["in_flow_share"]), round(one["blocked_ms"] / 1000, 1))
        for one in report["stages"]
    ]
    periods = [
        (moment(one["from_ms"]), moment(one["until_ms"]), one["bottleneck"], one["sentence"])
        for one in report["periods"]
    ]
    span = span_of(report, windows)
    parts: list[Bars | Lines | HtmlTable] = [
        Lines("Share of each window in flow", points, series, unit="%", span=span),
        HtmlTable("All of the time", ("stage", "in flow", "blocked, all together, s"), stages),
        HtmlTable("When it was", ("from", "until", "bottleneck", "in words"), periods),
    ]
    return Section("The bottleneck over time", " ".join(_notes(report)), parts)


def _waits(report: dict[str, Any]) -> "Section":
    from penstock.spark.reports.html_report import LINES_MAX, HtmlTable, Lines, Section

    windows = report["windows"]
    series = []
    for queue in report["queues"][:LINES_MAX]:
        blocked = {one["start_ms"]: one["blocked_ms"] / 1000 for one in queue["windows"]}
        series.append((queue["queue"], [blocked.get(one["start_ms"], 0) for one in windows]))
    points = [moment(window["start_ms"]) for window in windows]
    queues = [(one["queue"], round(one["blocked_ms"] / 1000, 1)) for one in report["queues"]]
    connections = [
        (one["connection"], one["user"], one["vhost"], round(one["blocked_ms"] / 1000, 1))
        for one in report["connections"]
    ]
    columns = ("connection", "user", "vhost", "blocked, s")
    parts: list[Lines | HtmlTable] = [
        Lines(
            "How long others waited for each queue",
            points,
            series,
            unit="s, all together",
            span=span_of(report, windows),
        ),
        HtmlTable("Queues for which others waited longest", ("queue", "blocked, s"), queues),
        HtmlTable("The longest waits", EDGES, [_edge(edge) for edge in report["edges"]]),
        HtmlTable("Connections that waited longest", columns, connections),
    ]
    return Section("Who waited for whom", parts=parts)


def _shortages(report: dict[str, Any]) -> "Section":
    from penstock.spark.reports.html_report import HtmlTable, Section

    alarms = [
        (
            one["resource"],
            moment(one["from_ms"]),
            _alarm_end(one),
            one["used_bytes"],
            one["limit_bytes"],
        )
        for one in report["alarms"]
    ]
    paging = [
        (one["vhost"], one["queue"], one["times"], one["paged_bytes"], one["lasted_ms"])
        for one in report["paging"]
    ]
    columns = ("alarm", "from", "until", "used (disk: free), bytes", "limit, bytes")
    parts = [
        HtmlTable("Alarms", columns, alarms),
        HtmlTable("Paging", ("vhost", "queue", "times", "paged, bytes", "lasted, ms"), paging),
    ]
    return Section("Memory and disk", parts=parts)
