"""``penstock pipeline latency``: how long messages took, from the event log."""

from collections.abc import Callable
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.options import option
from penstock.cli.pipelines.common import EXIT_CODES, Common, common_options, one_line
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
  penstock pipeline latency --since 1h
  penstock pipeline latency --queues 'orders.*' --window 5m --out latency.html
  penstock pipeline latency --from-events /var/lib/penstock/events -o json
"""
STEP_NAMES = {
    "publish_enqueue": "publish → enqueue",
    "enqueue_deliver": "enqueue → deliver",
    "deliver_ack": "deliver → ack",
    "publish_ack": "publish → ack",
}
QUANTILES = ("p50", "p90", "p99", "max")
CHARTS_MAX = 24
"""So many queues of a page get charts, those with the most deliveries."""


@click.command(epilog=EPILOG)
@option(
    "--queues",
    "Only queues of such names, repeatable; * and ? as in a shell.",
    metavar="PATTERN",
    multiple=True,
)
@event_options
@common_options(stream=False, group=False)
def latency(common: Common, queues: tuple[str, ...], **given: Any) -> None:
    """How long messages took, per queue and window: publish, enqueue, deliver, ack.

    Percentiles over a sample of the messages, which the broker writes to its event log;
    throughput and redeliveries over all of them.
    """
    job = event_job("latency", common, given)
    from penstock.spark.reports.latency import latency_report, summary_of

    make = partial(latency_report, queues=queues)
    run_event_job(job, common, make, latency_html, latency_text, summary_of)


def latency_text(report: dict[str, Any]) -> str:
    steps = [
        (queue["queue"], STEP_NAMES[name], *(step[key] for key in QUANTILES), step["samples"])
        for queue in report["queues"]
        for name, step in queue["steps"].items()
    ]
    parts = [table(("queue", "step (ms)", *QUANTILES, "samples"), steps)] if steps else []
    rates = [_rates(queue) for queue in report["queues"]]
    parts.append(table(RATES, rates))
    parts += _notes(report)
    return "\n\n".join(parts)


RATES = ("queue", "published/s", "delivered/s", "acked/s", "redelivered", "ready")


def _rates(queue: dict[str, Any]) -> tuple[object, ...]:
    rate = f"{100 * queue['redelivery_rate']:.2f} %"
    per_s = (queue[f"{name}_per_s"] for name in ("published", "delivered", "acked"))
    shown = ("-" if value is None else value for value in per_s)
    return (queue["queue"], *shown, rate, "-" if queue["ready"] is None else queue["ready"])


def _notes(report: dict[str, Any]) -> list[str]:
    notes = []
    rough = [
        one_line(one["queue"]) for one in report["queues"] if (one["publish_precision_ms"] or 0) > 1
    ]
    if rough:
        notes.append(
            "Publishers of these queues say the time to the second only, so what begins with"
            f" publish is too long by up to a second: {', '.join(rough[:10])}"
        )
    if report["broken_lines"]:
        notes.append(f"{report['broken_lines']} lines of the log were not whole and are left out")
    return notes


def latency_html(report: dict[str, Any]) -> str:
    from penstock.spark.reports.html_report import HtmlTable, Page, Section, page

    columns = ("vhost", "queue", "step", *(f"{key}, ms" for key in QUANTILES), "samples")
    steps = [
        (
            queue["vhost"],
            queue["queue"],
            STEP_NAMES[name],
            *(step[key] for key in QUANTILES),
            step["samples"],
        )
        for queue in report["queues"]
        for name, step in queue["steps"].items()
    ]
    rates = [(queue["vhost"], *_rates(queue)) for queue in report["queues"]]
    took = HtmlTable("How long messages took", columns, steps)
    per_s = HtmlTable("Rates", ("vhost", *RATES), rates)
    whole = Section("All of the time", " ".join(_notes(report)), [took, per_s])
    busiest = sorted(report["queues"], key=lambda queue: -queue["delivered"])[:CHARTS_MAX]
    sections = [whole, *(_queue_section(report, queue) for queue in busiest)]
    if len(busiest) > 1:
        sections.insert(1, _side_by_side(report, busiest))
    return page(Page("Latency of queues", facts_of(report), sections))


def _side_by_side(report: dict[str, Any], queues: list[dict[str, Any]]) -> "Section":
    from penstock.spark.reports.html_report import LINES_MAX, Lines, Section

    queues = queues[:LINES_MAX]
    one_vhost = len({queue["vhost"] for queue in queues}) == 1
    starts_ms = sorted({window["start_ms"] for queue in queues for window in queue["windows"]})
    span = span_of(report, [{"start_ms": start_ms} for start_ms in starts_ms])
    points = [moment(start_ms) for start_ms in starts_ms]

    def chart(title: str, unit: str, value: Callable[[dict[str, Any]], Any]) -> Lines:
        series = []
        for queue in queues:
            name = queue["queue"] if one_vhost else f"{queue['queue']} in {queue['vhost']}"
            found = {window["start_ms"]: value(window) for window in queue["windows"]}
            series.append((name, [found.get(start_ms) for start_ms in starts_ms]))
        return Lines(title, points, series, unit=unit, span=span)

    parts = [
        chart(f"{words}, p99", "ms", partial(_p99, step))
        for step, words in STEP_NAMES.items()
        if any(step in queue["steps"] for queue in queues)
    ]
    parts.append(chart("Delivered a second", "1/s", itemgetter("delivered_per_s")))
    parts.append(chart("Messages ready", "messages", itemgetter("ready")))
    return Section("Queues side by side", "Those with the most deliveries.", parts)


def _p99(step: str, window: dict[str, Any]) -> float | None:
    value: float | None = window["steps"].get(step, {}).get("p99")
    return value


def _queue_section(report: dict[str, Any], queue: dict[str, Any]) -> "Section":
    from penstock.spark.reports.html_report import Lines, Section

    windows = queue["windows"]
    span = span_of(report, windows)
    points = [moment(window["start_ms"]) for window in windows]
    parts = []
    for step, words in STEP_NAMES.items():
        if step in queue["steps"]:
            series = [
                (key, [window["steps"].get(step, {}).get(key) for window in windows])
                for key in QUANTILES
            ]
            parts.append(Lines(words, points, series, unit="ms", span=span))
    counts = ("published", "delivered", "acked", "redelivered")
    rates = [(name, [window[f"{name}_per_s"] for window in windows]) for name in counts]
    parts.append(Lines("Messages a second", points, rates, unit="1/s", span=span))
    return Section(f"Queue '{queue['queue']}' in virtual host '{queue['vhost']}'", parts=parts)
