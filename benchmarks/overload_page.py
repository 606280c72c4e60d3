"""The page an overload run writes: a table, what was promised, what went wrong.

A row's rounds are dictionaries from a broker's name to what its run found, or to an ``error``.
Every figure is a median over the rounds, but for resident memory and losses, of which the worst is
shown and judged.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from benchmarks.storage_page import (
    NAMES,
    NONE,
    OURS,
    THEIRS,
    Rounds,
    cell,
    dig,
    line,
    promise,
    tenths,
    values,
)
from benchmarks.tables import head, plain, thousands

Result = dict[str, Any]

RSS_FACTOR: Final = 1.1
"""Resident memory of all of the broker over the limit it was given."""
CONSUMER_SHARE: Final = 0.9
LOAD_HEAD: Final = (
    *("messages", "consumer", "broker", "confirmed msg/s", "peak RSS MB", "most disk MB"),
    *("told blocked: publishers", "times", "seconds each", "still blocked after the drain"),
)
AFTER_HEAD: Final = (
    *("messages", "consumer", "broker", "consumer msg/s, publishers held", "free"),
    *("resumed: publishers", "last after s", "confirmed", "lost", "twice", "drain msg/s"),
)


def worst(rounds: Rounds, side: str, path: str) -> str:
    found = values(rounds, side, path)
    return thousands(max(found)) if found else NONE


def load_lines(title: str, consumer: str, rounds: Rounds) -> Iterator[str]:
    for side in (OURS, THEIRS):
        yield line(
            [
                *(title, consumer, NAMES[side]),
                cell(values(rounds, side, "overload/rate"), thousands),
                worst(rounds, side, "watched/rss_peak_mb"),
                worst(rounds, side, "watched/disk_peak_mb"),
                cell(values(rounds, side, "blocked/publishers"), thousands),
                cell(values(rounds, side, "blocked/times"), thousands),
                cell(values(rounds, side, "blocked_each_s"), tenths),
                cell(values(rounds, side, "blocked/still"), thousands),
            ]
        )


def after_lines(title: str, consumer: str, rounds: Rounds) -> Iterator[str]:
    for side in (OURS, THEIRS):
        yield line(
            [
                *(title, consumer, NAMES[side]),
                cell(values(rounds, side, "overload/consumer/held_rate"), thousands),
                cell(values(rounds, side, "overload/consumer/free_rate"), thousands),
                cell(values(rounds, side, "resumed"), thousands),
                cell(values(rounds, side, "last_resumed_s"), tenths),
                cell(values(rounds, side, "totals/confirmed"), thousands),
                worst(rounds, side, "totals/lost"),
                worst(rounds, side, "totals/doubled"),
                cell(values(rounds, side, "drain_rate"), thousands),
            ]
        )


def promises(report: Result, rows: list[Any], rounds: dict[str, Rounds]) -> list[str]:
    """Each promise with the figure it is judged by: kept or BROKEN."""
    limit_mb = report["amounts"]["memory_mb"] * RSS_FACTOR
    publishers = report["amounts"]["publishers"]
    found: list[str] = []
    for row in rows:
        runs = rounds.get(row.name, [])
        if not runs:
            continue
        peaks = values(runs, OURS, "watched/rss_peak_mb")
        kept = bool(peaks) and max(peaks) <= limit_mb
        text = f"{row.name}: resident at most {limit_mb:,.0f} MB"
        found += promise(text, peaks, thousands, kept)
        lost = values(runs, OURS, "totals/lost")
        text = f"{row.name}: confirmed messages that are gone"
        found += promise(text, lost, thousands, bool(lost) and max(lost) == 0)
        resumed = values(runs, OURS, "resumed")
        kept = bool(resumed) and min(resumed) == publishers
        text = f"{row.name}: publishers that resume, of {publishers}"
        found += promise(text, resumed, thousands, kept)
        shares = [share for pair in runs if (share := consumer_share(pair)) is not None]
        if row.alarm or shares:
            kept = bool(shares) and min(shares) >= CONSUMER_SHARE
            text = f"{row.name}: a consumer's rate while publishers are held, over that while free"
            found += promise(text, shares, plain, kept)
    return ["", "## Promises", "", *found] if found else []


def consumer_share(pair: Result) -> float | None:
    held = dig(pair.get(OURS), "overload/consumer/held_rate")
    free = dig(pair.get(OURS), "overload/consumer/free_rate")
    return held / free if held is not None and free else None


def problems(rows: list[Any], rounds: dict[str, Rounds]) -> list[str]:
    """What makes a row worthless: said below the tables, never left out."""
    notes: list[str] = []
    for row in rows:
        for number, pair in enumerate(rounds.get(row.name, []), 1):
            for side, result in pair.items():
                where = f"{row.name}, {NAMES[side]}, round {number}"
                notes += [f"- {where}: {text}" for text in wrong(result)]
    return ["", "## What went wrong", "", *notes] if notes else []


def wrong(result: Result) -> Iterator[str]:
    if "error" in result:
        yield f"failed: {result['error']}"
        return
    totals = result["totals"]
    if totals["lost"]:
        yield f"{totals['lost']:,} confirmed messages are gone"
    if totals["refused"]:
        yield f"{totals['refused']:,} messages were refused"
    if totals["unanswered"]:
        yield f"{totals['unanswered']:,} messages were never confirmed"
    if totals["doubled"]:
        yield f"{totals['doubled']:,} messages came again after their acknowledgement"
    if result["drain"]["left"]:
        yield f"{result['drain']['left']:,} messages stayed in the queue"
    if result["overload"]["limit_reached"]:
        yield "publishers paused before the time was over: the row's share of the disk was full"


def introduction(amounts: Result) -> str:
    return (
        f"{amounts['publishers']} publishers with confirms, persistent messages, one durable "
        f"queue, {amounts['seconds']:g} s; memory limit {amounts['memory_mb']} MB for both. "
        "What is done and what the columns say: [README](../README.md)."
    )


def machine_words(machine: Result) -> list[str]:
    words = [f"{machine['cores']} cores", machine["cpu"], f"{machine['memory_gb']} GB"]
    return [*words, machine["kernel"], machine["python"]]


def page(report: Result, rows: list[Any], rounds: dict[str, Rounds]) -> str:
    amounts, ours = report["amounts"], report[OURS]
    shown = [row for row in rows if rounds.get(row.name)]
    text = [
        f"# Overload, {report['date']}",
        "",
        introduction(amounts),
        "",
        f"- command: `{report['command']}`",
        f"- machine: {', '.join(machine_words(report['machine']))}, {report['file_system']}",
        f"- Penstock {ours['version']} ({ours['build']}, commit {ours['commit']}), {ours['cores']}",
        f"- RabbitMQ {report[THEIRS].get('version', '?')}, {report[THEIRS]['cores']}",
        "",
        "## While it lasts",
        "",
        *head(LOAD_HEAD),
        *(x for row in shown for x in load_lines(row.title, row.consumer, rounds[row.name])),
        "",
        "## Consumers meanwhile, and afterwards",
        "",
        *head(AFTER_HEAD),
        *(x for row in shown for x in after_lines(row.title, row.consumer, rounds[row.name])),
        *promises(report, shown, rounds),
        *problems(shown, rounds),
    ]
    return "\n".join(text) + "\n"
