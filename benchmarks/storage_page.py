"""The page a storage run writes: one table per kind of row, what was promised, what went wrong.

A row's rounds are dictionaries from a broker's name to what its run found, or to an ``error``.
Every figure is a median over the rounds; a ratio is the median of the rounds' own ratios.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from typing import Any, Final

from benchmarks.storage_rows import Row
from benchmarks.tables import head, plain, spread, thousands

OURS: Final = "penstock"
THEIRS: Final = "rabbitmq"
NAMES: Final = {OURS: "Penstock", THEIRS: "RabbitMQ"}
NONE: Final = "–"

FILL_RATIO: Final = 5.0
DRAIN_RATIO: Final = 4.0
LAZY_RSS_MB: Final = 200.0
KILLED_RATIO: Final = 1 / 3
CLEAN_S: Final = 1.0
ANSWER_P99_MS: Final = 5.0
FILL_COUNT: Final = 10_000_000
RESTART_COUNT: Final = 1_000_000

Result = dict[str, Any]
Rounds = list[Result]
Show = Callable[[float], str]

FILL_HEAD: Final = (
    *("queue", "kind", "messages P / R", "Penstock msg/s", "RabbitMQ msg/s", "ratio"),
    *("until all are counted P / R", "peak RSS MB P / R", "RSS at the end MB P / R"),
    *("disk MB P / R", "disk bytes per message P / R", "CPU µs/msg P / R"),
    *("memory limit of Penstock", "other load, cores"),
)
DRAIN_HEAD: Final = (
    *("queue", "messages P / R", "Penstock msg/s", "RabbitMQ msg/s", "ratio"),
    *("peak RSS MB P / R", "disk MB left P / R", "CPU µs/msg P / R", "other load, cores"),
)
RESTART_HEAD: Final = (
    *("queue", "messages", "how", "Penstock s", "RabbitMQ s", "ratio (less is better)"),
    *("peak RSS MB P / R", "stopping took s P / R"),
)
SPACE_HEAD: Final = (
    *("messages", "size", "left", "disk / live, all there P / R", "disk / live, half acked P / R"),
    *("disk MB before P / R", "disk MB after P / R", "live MB", "most disk MB P / R"),
    *("settled after s P / R", "peak RSS MB P / R"),
)
PROBE_HEAD: Final = (
    *("queue", "meanwhile", "question", "broker", "p50", "p99", "p99.9", "max"),
    *("answer p99", "answer max", "load msg/s", "other load, cores"),
)
SECTIONS: Final = {
    "fill": ("Fill: nobody consumes", FILL_HEAD),
    "drain": ("Drain: prefetch 1000, ack every 100", DRAIN_HEAD),
    "restart": ("Open again, seconds until the queue answers with all messages", RESTART_HEAD),
    "space": ("Space after a random half is acknowledged", SPACE_HEAD),
    "responsiveness": ("Small questions to another queue meanwhile, ms", PROBE_HEAD),
}
QUESTIONS: Final = {"get": "basic.get, empty queue", "through": "publish 1 KB, receive it"}


# -- reading rounds ---------------------------------------------------------------------------


def dig(found: Any, path: str) -> float | None:
    for part in path.split("/"):
        found = found.get(part) if isinstance(found, dict) else None
    return float(found) if isinstance(found, (int, float)) else None


def values(rounds: Rounds, side: str, path: str) -> list[float]:
    found = [dig(pair.get(side), path) for pair in rounds]
    return [value for value in found if value is not None]


def ratios(rounds: Rounds, path: str) -> list[float]:
    found = []
    for pair in rounds:
        mine, other = (dig(pair.get(side), path) for side in (OURS, THEIRS))
        if mine is not None and other:
            found.append(mine / other)
    return found


def cell(found: list[float], show: Show) -> str:
    return spread(found, show) if found else NONE


def both(rounds: Rounds, path: str, show: Show) -> str:
    """The medians of both, Penstock's first."""
    shown = []
    for side in (OURS, THEIRS):
        found = values(rounds, side, path)
        shown.append(show(statistics.median(found)) if found else NONE)
    return " / ".join(shown)


def bold(text: str) -> str:
    return text if text == NONE else f"**{text}**"


def compared(rounds: Rounds, path: str, show: Show) -> list[str]:
    return [
        cell(values(rounds, OURS, path), show),
        cell(values(rounds, THEIRS, path), show),
        bold(cell(ratios(rounds, path), plain)),
    ]


def line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def other_load(rounds: Rounds, path: str) -> str:
    found = [value for side in (OURS, THEIRS) for value in values(rounds, side, path)]
    return plain(max(found)) if found else NONE


def tenths(value: float) -> str:
    return f"{value:.1f}"


# -- the tables -------------------------------------------------------------------------------


def fill_lines(row: Row, rounds: Rounds, limit_mb: int) -> Iterator[str]:
    confirmed = row.name.endswith("confirm")
    yield line(
        [
            row.title,
            "confirmed" if confirmed else "publish only",
            both(rounds, "fill/count", thousands),
            *compared(rounds, "fill/publish_rate", thousands),
            both(rounds, "fill/counted_rate", thousands),
            both(rounds, "fill/watched/rss_peak_mb", thousands),
            both(rounds, "fill/watched/rss_end_mb", thousands),
            both(rounds, "fill/watched/disk_end_mb", thousands),
            both(rounds, "fill/disk_per_message", thousands),
            both(rounds, "fill/broker/cpu_us_per_message", plain),
            limit_text(row, limit_mb),
            other_load(rounds, "fill/other_cores"),
        ]
    )


def limit_text(row: Row, limit_mb: int) -> str:
    return f"{limit_mb} MB" if row.limited and limit_mb else "default"


def drain_lines(row: Row, rounds: Rounds, limit_mb: int) -> Iterator[str]:
    if not any(values(rounds, side, "drain/count") for side in (OURS, THEIRS)):
        return
    yield line(
        [
            row.title,
            both(rounds, "drain/count", thousands),
            *compared(rounds, "drain/consume_rate", thousands),
            both(rounds, "drain/watched/rss_peak_mb", thousands),
            both(rounds, "drain/watched/disk_end_mb", thousands),
            both(rounds, "drain/broker/cpu_us_per_message", plain),
            other_load(rounds, "drain/other_cores"),
        ]
    )


def restart_lines(row: Row, rounds: Rounds, limit_mb: int) -> Iterator[str]:
    for how, shown in (("kill", "after kill -9"), ("clean", "after a clean stop")):
        yield line(
            [
                row.title,
                both(rounds, "count", thousands),
                shown,
                *compared(rounds, f"{how}/seconds", plain),
                both(rounds, f"{how}/rss_mb", thousands),
                both(rounds, "stop_s", plain) if how == "clean" else NONE,
            ]
        )
    yield line(
        [row.title, "0", "empty node", *compared(rounds, "empty_start_s", plain), NONE, NONE]
    )


def space_lines(row: Row, rounds: Rounds, limit_mb: int) -> Iterator[str]:
    yield line(
        [
            both(rounds, "count", thousands),
            row.title,
            both(rounds, "left", thousands),
            both(rounds, "filled_amplification", plain),
            bold(both(rounds, "amplification", plain)),
            both(rounds, "filled_mb", thousands),
            both(rounds, "used_mb", thousands),
            both(rounds, "live_mb", thousands),
            both(rounds, "watched/disk_peak_mb", thousands),
            both(rounds, "settled_s", tenths),
            both(rounds, "watched/rss_peak_mb", thousands),
        ]
    )


def responsiveness_lines(row: Row, rounds: Rounds, limit_mb: int) -> Iterator[str]:
    for phase, kind in ((phase, kind) for phase in ("idle", "fill", "drain") for kind in QUESTIONS):
        for side in (OURS, THEIRS):
            found = f"{phase}/probes/{kind}"
            latencies = [
                cell(values(rounds, side, f"{found}/latency_ms/{which}"), plain)
                for which in ("p50", "p99", "p99.9", "max")
            ]
            answers = [
                cell(values(rounds, side, f"{found}/answer_ms/{which}"), plain)
                for which in ("p99", "max")
            ]
            rate = {"fill": "publish_rate", "drain": "consume_rate"}.get(phase, "")
            load = cell(values(rounds, side, f"{phase}/{rate}"), thousands) if rate else NONE
            others = cell(values(rounds, side, f"{phase}/other_cores"), plain)
            names = [row.title, phase, QUESTIONS[kind], NAMES[side]]
            yield line([*names, *latencies, *answers, load, others])


LINES: Final = {
    "fill": fill_lines,
    "drain": drain_lines,
    "restart": restart_lines,
    "space": space_lines,
    "responsiveness": responsiveness_lines,
}


def table_of(section: str, rows: list[Row], rounds: dict[str, Rounds], limit_mb: int) -> list[str]:
    """A section with its heading; nothing when none of its rows was run."""
    source = "fill" if section == "drain" else section
    lines = [
        text
        for row in rows
        if row.section == source and rounds.get(row.name)
        for text in LINES[section](row, rounds[row.name], limit_mb)
    ]
    title, columns = SECTIONS[section]
    return ["", f"## {title}", "", *head(columns), *lines] if lines else []


# -- what was promised --------------------------------------------------------------------------


def promises(rows: list[Row], rounds: dict[str, Rounds], limit_mb: int) -> list[str]:
    """Each promise with the figure it is judged by: kept or BROKEN."""
    found: list[str] = []
    for row in rows:
        runs = rounds.get(row.name, [])
        judge = PROMISES.get(row.section)
        if runs and judge is not None:
            found += judge(row, runs, limit_mb)
    return ["", "## Promises", "", *found] if found else []


def promise(text: str, figures: list[float], show: Show, kept: bool, note: str = "") -> list[str]:
    if not figures:
        return [f"- {text}: not measured"]
    verdict = "kept" if kept else "**BROKEN**"
    return [f"- {text}: {spread(figures, show)}, {verdict}{note}"]


def fewer(rounds: Rounds, path: str, wanted: int) -> str:
    counts = values(rounds, OURS, path)
    if not counts or min(counts) >= wanted:
        return ""
    return f" (with {min(counts):,.0f} messages; promised for {wanted:,})"


def at_least(text: str, found: list[float], least: float, note: str) -> list[str]:
    return promise(text, found, plain, bool(found) and statistics.median(found) >= least, note)


def fill_promises(row: Row, rounds: Rounds, limit_mb: int) -> list[str]:
    note = fewer(rounds, "fill/count", FILL_COUNT)
    kind = "confirmed" if row.name.endswith("confirm") else "publish only"
    what = f"fill, {row.title}, {kind}"
    speed = f"{what}: at least {FILL_RATIO:g} times RabbitMQ's messages/s"
    found = at_least(speed, ratios(rounds, "fill/publish_rate"), FILL_RATIO, note)
    peaks = values(rounds, OURS, "fill/watched/rss_peak_mb")
    most_mb = limit_mb if row.limited else LAZY_RSS_MB
    if most_mb:
        text = f"{what}: resident below {most_mb:.0f} MB"
        found += promise(text, peaks, thousands, bool(peaks) and max(peaks) < most_mb, note)
    drained = ratios(rounds, "drain/consume_rate")
    if drained:
        text = f"drain, {row.title}: at least {DRAIN_RATIO:g} times RabbitMQ's messages/s"
        found += at_least(text, drained, DRAIN_RATIO, note)
    return found


def restart_promises(row: Row, rounds: Rounds, limit_mb: int) -> list[str]:
    note = fewer(rounds, "count", RESTART_COUNT)
    shares = ratios(rounds, "kill/seconds")
    text = f"open, {row.title}, after kill -9: at most a third of RabbitMQ's time"
    kept = bool(shares) and statistics.median(shares) <= KILLED_RATIO
    found = promise(text, shares, plain, kept, note)
    seconds = values(rounds, OURS, "clean/seconds")
    text = f"open, {row.title}, after a clean stop: below {CLEAN_S:g} s"
    return found + promise(text, seconds, plain, bool(seconds) and max(seconds) < CLEAN_S, note)


def responsiveness_promises(row: Row, rounds: Rounds, limit_mb: int) -> list[str]:
    found: list[str] = []
    for phase in ("fill", "drain"):
        p99s = values(rounds, OURS, f"{phase}/probes/get/answer_ms/p99")
        text = f"basic.get of another queue during {phase}, {row.title}: p99 of the answer below"
        kept = bool(p99s) and max(p99s) < ANSWER_P99_MS
        found += promise(f"{text} {ANSWER_P99_MS:g} ms", p99s, plain, kept)
    return found


PROMISES: Final[dict[str, Callable[[Row, Rounds, int], list[str]]]] = {
    "fill": fill_promises,
    "restart": restart_promises,
    "responsiveness": responsiveness_promises,
}


# -- what is wrong ------------------------------------------------------------------------------


def problems(rows: list[Row], rounds: dict[str, Rounds]) -> list[str]:
    """What makes a row worthless: said below the tables, never left out."""
    notes = []
    for row in rows:
        for number, pair in enumerate(rounds.get(row.name, []), 1):
            for side, result in pair.items():
                where = f"- {row.name}, round {number}: {NAMES[side]}"
                notes += [f"{where} {wrong}" for wrong in wrongs(result)]
    return ["", "## Not as it should be", "", *notes] if notes else []


def wrongs(result: Result) -> list[str]:
    if "error" in result:
        return [f"failed: {result['error']}"]
    found = []
    for phase in ("fill", "drain"):
        load = result.get(phase)
        if not load:
            continue
        names = ("out_of_order", "redelivered", "foreign", "nacked", "left")
        found += [f"{phase}: {name} {load[name]:,}" for name in names if load.get(name)]
        if load["confirm"] and load["confirmed"] < load["published"]:
            found.append(f"{phase}: confirmed {load['confirmed']:,} of {load['published']:,}")
        if load.get("blocked_s"):
            found.append(f"{phase}: publishers were blocked for {load['blocked_s']:.1f} s")
        wanted = load.get("count")
        seen = load["published"] if phase == "fill" else load["consumed"]
        if wanted is not None and seen != wanted:
            found.append(f"{phase}: {seen:,} of {wanted:,} messages")
    return found


# -- the page -----------------------------------------------------------------------------------


def page(report: Result, rows: list[Row], rounds: dict[str, Rounds]) -> str:
    limit_mb = report["amounts"]["memory_limit_mb"]
    lines = [f"# Storage: Penstock and RabbitMQ side by side, {report['date']}", "", *facts(report)]
    for section in SECTIONS:
        lines += table_of(section, rows, rounds, limit_mb)
    lines += promises(rows, rounds, limit_mb)
    lines += problems(rows, rounds)
    lines += ["", "What each column means and how to read it: `benchmarks/README.md`."]
    return "\n".join(lines) + "\n"


def facts(report: Result) -> list[str]:
    where, ours, theirs = report["machine"], report[OURS], report[THEIRS]
    generator, amounts = report["generator"], report["amounts"]
    messages = f"{amounts['size']} B unless a row says otherwise, persistent, durable queue"
    hardware = f"{where['cores']} cores, {where['cpu']}, {where['memory_gb']} GB"
    disk = f"{report['file_system']}, {report['disk_free_gb']} GB free"
    version = f"RabbitMQ {theirs.get('version', '?')}, {theirs.get('platform', '?')}"
    return [
        f"- machine: {hardware}, {where['kernel']}, {where['python']}; disk: {disk}",
        f"- Penstock {ours['version']} ({ours['build']}), commit {ours['commit']}, {ours['cores']}",
        f"- {version}, defaults, {theirs['cores']}",
        f"- generator: {generator['build']}; brokers and generator run {generator['priority']}",
        f"- messages: {messages}; where confirmed, at most {amounts['window']} unconfirmed",
        f"- {report['rounds']} rounds, RabbitMQ and Penstock in turn, each alone and started anew",
        f"- command: `{report['command']}`",
    ]
