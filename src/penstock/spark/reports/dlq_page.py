"""The report of a dead-letter queue as an HTML page."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from penstock.spark.reports.dlq_report import width_of
from penstock.spark.reports.html_report import Bars, HtmlTable, Lines, Page, Section, Value, page

NONE = "(none)"
COMPARED = (("reasons", "reason"), ("source_queues", "queue"), ("errors", "error"))


def dlq_page(reports: Sequence[dict[str, Any]]) -> str:
    if len(reports) == 1:
        (found,) = reports
        title = f"Dead letters in {found['queue']}"
        return page(Page(title, _facts(found), sections_of(found), verdict(found)))
    sections = [side_by_side(reports)]
    for found in reports:
        kept = [replace(one, title=f"{found['queue']}: {one.title}") for one in sections_of(found)]
        sections += [Section(f"Queue '{found['queue']}'", verdict(found)), *kept]
    facts = [("Queues", len(reports)), ("Messages", sum(one["messages"] for one in reports))]
    return page(Page("Dead letters of several queues", facts, sections))


def side_by_side(reports: Sequence[dict[str, Any]]) -> Section:
    columns = ("queue", "messages", "before", "most frequent reason", "most frequent error")
    rows = [
        [
            found["queue"],
            found["messages"],
            found["before"]["messages"] if "before" in found else None,
            *(_most_frequent(found[name], found["messages"]) for name in ("reasons", "errors")),
        ]
        for found in reports
    ]
    return Section(
        "Queues side by side", parts=[_together(reports), HtmlTable("All", columns, rows)]
    )


def _most_frequent(rows: list[dict[str, Any]], messages: int) -> str | None:
    named = [row for row in rows if row["value"] is not None]
    return f"{named[0]['value']} ({_percent(named[0]['count'], messages)})" if named else None


def _together(reports: Sequence[dict[str, Any]]) -> Lines:
    """Arrivals of all queues in stretches as wide as the widest, over the time of all."""
    arrived: list[Counter[int]] = []
    for found in reports:
        over_time = found["over_time"]
        pairs = zip(over_time["times"], over_time["messages"], strict=True)
        counts: Counter[int] = Counter()
        for text, count in pairs:
            counts[int(datetime.fromisoformat(text).timestamp())] += count
        arrived.append(counts)
    seconds = [at_s for counts in arrived for at_s in counts]
    if not seconds:
        return Lines("Arrivals over time", [], [])
    widest = max(found["over_time"]["width_seconds"] for found in reports)
    width = max(widest, width_of(min(seconds), max(seconds)))
    places = range(min(seconds) // width, max(seconds) // width + 1)
    series = []
    for found, counts in zip(reports, arrived, strict=True):
        placed: Counter[int] = Counter()
        for at_s, count in counts.items():
            placed[at_s // width] += count
        series.append((found["queue"], [placed[place] for place in places]))
    times = [datetime.fromtimestamp(place * width, UTC).isoformat() for place in places]
    return Lines("Arrivals over time", times, series, unit=f"messages per {width} s")


def sections_of(found: dict[str, Any]) -> list[Section]:
    sections = [
        Section(
            "Why messages died",
            "The newest death of each message decides. Errors are what consumers wrote into a "
            "header before they gave the message up.",
            [
                _bars("By reason", found["reasons"], "reason"),
                _arrivals(found["over_time"]),
                _bars("Deaths per message", found["deaths_per_message"], "deaths"),
                _bars("By the consumer's error", found["errors"], "error"),
            ],
        ),
        Section(
            "Where they came from",
            "Queue: where a message died last. Exchange and routing key: how it was published "
            "before its first death.",
            [
                _bars("By queue", found["source_queues"], "queue"),
                _bars("By exchange", _default_named(found["exchanges"]), "exchange"),
                _bars("By routing key", found["routing_keys"], "routing key"),
            ],
        ),
        Section(
            "Repeated offenders",
            "Messages that are in the queue more than once.",
            [
                _offenders("Same message_id", found["same_message_id"]),
                _offenders("Same body (SHA-256)", found["same_body"]),
            ],
        ),
        Section(
            "What is in them",
            parts=[
                _bars("Kind of body", found["body_kinds"], "kind"),
                _bars("Content type", found["content_types"], "content type"),
                _bars("Size of body", found["body_sizes"], "size"),
                _bars("Keys of JSON objects", found["json_keys"], "key"),
            ],
        ),
    ]
    if "before" in found:
        sections.insert(0, since(found["before"]))
    if "samples" in found:
        sections.append(Section("Samples", parts=[_samples(found["samples"])]))
    return sections


def verdict(found: dict[str, Any]) -> str:
    messages = found["messages"]
    if not messages:
        return "The queue is empty."
    kind = found["reasons"][0]
    place = found["source_queues"][0]
    reason = kind["value"] or "no recorded death"
    share = _percent(kind["count"], messages)
    text = f"{messages:,} messages; {share} of them: {reason}"
    if place["value"] is not None:
        text += f"; {_percent(place['count'], messages)} came from queue {place['value']}"
    error = next((row for row in found["errors"] if row["value"] is not None), None)
    if error is not None:
        text += f"; most frequent error ({_percent(error['count'], messages)}): {error['value']}"
    return text + "."


def compared(found: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """What changed since another report of the same queue; values of either, largest change first.

    Raises KeyError or TypeError when ``before`` is no such report.
    """
    rows = []
    for name, label in COMPARED:
        was, now = ({row["value"]: row["count"] for row in one[name]} for one in (before, found))
        rows += [
            {"what": label, "value": value, "before": was.get(value, 0), "now": now.get(value, 0)}
            for value in {**was, **now}
        ]
    rows.sort(key=lambda row: -abs(row["now"] - row["before"]))
    return {
        "messages": before["messages"],
        "last_arrival_at": before["last_arrival_at"],
        "rows": rows,
    }


def since(before: dict[str, Any]) -> Section:
    columns = ("what", "value", "before", "now", "change")
    rows = [
        [
            row["what"],
            NONE if row["value"] is None else row["value"],
            row["before"],
            row["now"],
            f"{row['now'] - row['before']:+,}",
        ]
        for row in before["rows"]
    ]
    return Section(
        "Since the report before",
        f"It had {before['messages']:,} messages, the last from {before['last_arrival_at']}."
        " Values beyond the most frequent of a report count as 0 there.",
        [HtmlTable("What changed", columns, rows)],
    )


def _percent(count: int, of: int) -> str:
    return f"{100 * count / of:.0f} %"


def _facts(found: dict[str, Any]) -> list[tuple[str, Value]]:
    return [
        ("Queue", found["queue"]),
        ("Messages looked at", found["messages"]),
        ("Messages in the queue", found["ready"]),
        ("Of them with a recorded death", found["died"]),
        ("Bytes of bodies", found["body_bytes"]),
        ("First death", found["first_death_at"]),
        ("First arrival in this queue", found["first_arrival_at"]),
        ("Last arrival in this queue", found["last_arrival_at"]),
        ("Sequence ids", f"{found['from_seq_id']} to {found['upto_seq_id'] - 1}"),
    ]


def _default_named(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row | {"value": "(default)"} if row["value"] == "" else row for row in rows]


def _bars(title: str, rows: list[dict[str, Any]], label: str) -> Bars:
    named = [(NONE if row["value"] is None else row["value"], row["count"]) for row in rows]
    return Bars(title, named, label)


def _arrivals(over_time: dict[str, Any]) -> Lines:
    return Lines(
        "Arrivals in this queue over time",
        over_time["times"],
        [*over_time["reasons"].items()],
        unit=f"messages per {over_time['width_seconds']} s",
    )


def _offenders(title: str, rows: list[dict[str, Any]]) -> HtmlTable:
    columns = ("value", "messages", "first seq_id", "last seq_id", "most deaths")
    names = ("value", "count", "first_seq_id", "last_seq_id", "deaths_max")
    return HtmlTable(title, columns, [[row[name] for name in names] for row in rows])


def _samples(samples: list[dict[str, Any]]) -> HtmlTable:
    names = ("seq_id", "message_id", "death_reason", "death_queue", "routing_key", "error")
    rows = [[*(one[name] for name in names), _body(one)] for one in samples]
    return HtmlTable("The oldest of each kind", [*names, "body"], rows, ["body"])


def _body(one: dict[str, Any]) -> str:
    text = one["body"] if "body" in one else f"binary: {one['body_hex']}"
    return f"{text} … ({one['body_bytes']} bytes)" if one["cut"] else text
