"""The page a topology run writes: a table per kind of row, what was promised, what went wrong.

A row's rounds are dictionaries from a broker's name to what its run found, or to an ``error``.
Every figure is a median over the rounds.  *Ratio* always says how many times better Penstock is:
its rate over RabbitMQ's, or RabbitMQ's time or memory over its own.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from typing import Any, Final

from benchmarks.storage_page import (
    NAMES,
    NONE,
    OURS,
    THEIRS,
    Rounds,
    Show,
    at_least,
    bold,
    both,
    cell,
    dig,
    line,
    other_load,
    promise,
    ratios,
    tenths,
    values,
)
from benchmarks.tables import head, plain, thousands
from benchmarks.topology_rows import DECLARE_WINDOW, OPENING_AT_ONCE, PROBE_MS, Row

RATIO: Final = 3.0
GROWTH: Final = 0.7
"""What is left at least of a rate when bindings grow: a trie's depth does not grow with them,
only the share of it that a processor's caches do not hold."""
STALL_MS: Final = 20.0
BUSY: Final = 0.9
"""A generator that works this much of its cores' time may be slower than the broker."""
MANY_BINDINGS: Final = 100_000
MANY_QUEUES: Final = 10_000
MANY_CONNECTIONS: Final = 5000
FEW_BINDINGS: Final = 1000

Result = dict[str, Any]
PHASES: Final = {"turn": "keys in turn", "fresh": "ever-new keys"}
WAYS: Final = {"single": "one at a time", "pipelined": f"{DECLARE_WINDOW} at a time"}

ROUTING_HEAD: Final = (
    *("exchange", "messages", "bindings P / R", "Penstock msg/s", "RabbitMQ msg/s", "ratio"),
    *("published P / R", "CPU µs/msg P / R", "cores P / R", "generator's cores P / R"),
    "other load, cores",
)
BIND_HEAD: Final = (
    *("row", "bindings P / R", "Penstock bindings/s", "RabbitMQ bindings/s", "ratio"),
    *("seconds P / R", "bytes of RSS per binding P / R"),
)
DECLARE_HEAD: Final = (
    *("what", "how", "count P / R", "Penstock s", "RabbitMQ s", "ratio"),
    *("per second P / R", "KB of RSS each P / R", "other load, cores"),
)
CONNECTIONS_HEAD: Final = (
    *("each with", "count P / R", "Penstock KB each", "RabbitMQ KB each", "ratio"),
    *("before settling P / R", "Penstock s to open", "RabbitMQ s to open", "ratio"),
    *("per second P / R", "other load, cores"),
)
STALL_HEAD: Final = (
    *("request", "broker", "bindings", "took s", "when", "pings"),
    *("answer p99", "longest answer", "latency p99", "latency max", "other load, cores"),
)
SECTIONS: Final = {
    "routing": ("Routing: transient, auto-ack, 10 queues, one consumer", ROUTING_HEAD),
    "bind": ("Binding", BIND_HEAD),
    "declare": ("Declaring queues", DECLARE_HEAD),
    "connections": (f"Idle connections, {OPENING_AT_ONCE} opened at once", CONNECTIONS_HEAD),
    "stall": (
        f"Confirms of a publisher meanwhile, ms (a message every {PROBE_MS:g} ms)",
        STALL_HEAD,
    ),
}


# -- the tables -------------------------------------------------------------------------------


def fewer_times(rounds: Rounds, path: str) -> list[float]:
    """Ratios of what should be little: theirs over ours."""
    found = []
    for pair in rounds:
        mine, other = (dig(pair.get(side), path) for side in (OURS, THEIRS))
        if other is not None and mine and mine > 0:
            found.append(other / mine)
    return found


def versus(rounds: Rounds, path: str, show: Show, times: list[float]) -> list[str]:
    return [
        cell(values(rounds, OURS, path), show),
        cell(values(rounds, THEIRS, path), show),
        bold(cell(times, plain)),
    ]


def routing_lines(row: Row, rounds: Rounds) -> Iterator[str]:
    for phase, title in PHASES.items():
        rate = f"{phase}/consume_rate"
        yield line(
            [
                row.title,
                title,
                both(rounds, "bindings", thousands),
                *versus(rounds, rate, thousands, ratios(rounds, rate)),
                both(rounds, f"{phase}/publish_rate", thousands),
                both(rounds, f"{phase}/broker/cpu_us_per_message", plain),
                both(rounds, f"{phase}/broker/cpu_cores", plain),
                both(rounds, f"{phase}/generator/cpu_cores", plain),
                other_load(rounds, f"{phase}/other_cores"),
            ]
        )


def bind_lines(row: Row, rounds: Rounds) -> Iterator[str]:
    yield line(
        [
            row.name,
            both(rounds, "bindings", thousands),
            *versus(rounds, "bind/rate", thousands, ratios(rounds, "bind/rate")),
            both(rounds, "bind/seconds", plain),
            both(rounds, "bind/bytes_per_binding", thousands),
        ]
    )


def declare_lines(row: Row, rounds: Rounds) -> Iterator[str]:
    for how, title in WAYS.items():
        seconds = f"{how}/seconds"
        yield line(
            [
                row.title,
                title,
                both(rounds, f"{how}/count", thousands),
                *versus(rounds, seconds, plain, fewer_times(rounds, seconds)),
                both(rounds, f"{how}/rate", thousands),
                both(rounds, f"{how}/kb_per_queue", tenths),
                other_load(rounds, f"{how}/other_cores"),
            ]
        )


def connections_lines(row: Row, rounds: Rounds) -> Iterator[str]:
    yield line(
        [
            row.title,
            both(rounds, "count", thousands),
            *versus(rounds, "kb_each", tenths, fewer_times(rounds, "kb_each")),
            both(rounds, "kb_each_at_once", tenths),
            *versus(rounds, "seconds", plain, fewer_times(rounds, "seconds")),
            both(rounds, "rate", thousands),
            other_load(rounds, "other_cores"),
        ]
    )


def stall_lines(row: Row, rounds: Rounds) -> Iterator[str]:
    for side in (OURS, THEIRS):
        for when in ("before", "during"):
            seen = [
                cell(values(rounds, side, f"{when}/{which}"), plain)
                for which in ("answer_ms/p99", "answer_ms/max", "latency_ms/p99", "latency_ms/max")
            ]
            meanwhile = when == "during"
            yield line(
                [
                    row.title,
                    NAMES[side],
                    cell(values(rounds, side, "bindings"), thousands),
                    cell(values(rounds, side, "seconds"), plain) if meanwhile else NONE,
                    when,
                    cell(values(rounds, side, f"{when}/pings"), thousands),
                    *seen,
                    cell(values(rounds, side, "other_cores"), plain) if meanwhile else NONE,
                ]
            )


LINES: Final[dict[str, Callable[[Row, Rounds], Iterator[str]]]] = {
    "routing": routing_lines,
    "bind": bind_lines,
    "declare": declare_lines,
    "connections": connections_lines,
    "stall": stall_lines,
}


def table_of(section: str, rows: list[Row], rounds: dict[str, Rounds]) -> list[str]:
    """A section with its heading; nothing when none of its rows was run."""
    sources = {"routing", "stall"} if section == "bind" else {section}
    lines = [
        text
        for row in rows
        if row.section in sources and rounds.get(row.name)
        for text in LINES[section](row, rounds[row.name])
    ]
    title, columns = SECTIONS[section]
    return ["", f"## {title}", "", *head(columns), *lines] if lines else []


# -- what was promised --------------------------------------------------------------------------


def promises(rows: list[Row], rounds: dict[str, Rounds]) -> list[str]:
    """Each promise with the figure it is judged by: kept or BROKEN."""
    found: list[str] = []
    for row in rows:
        runs = rounds.get(row.name, [])
        if runs:
            found += PROMISES[row.section](row, runs)
    found += growth_promises(rounds)
    return ["", "## Promises", "", *found] if found else []


def note_of(rounds: Rounds, path: str, wanted: int, what: str, *, pair: bool = True) -> str:
    """What a reader must know of the counts: too few of ours, or not as many of theirs."""
    ours, theirs = (values(rounds, side, path) for side in (OURS, THEIRS))
    notes = []
    if ours and min(ours) < wanted:
        notes.append(f"with {min(ours):,.0f} {what}; promised for {wanted:,}")
    if pair and ours and theirs and min(theirs) != min(ours):
        notes.append(f"RabbitMQ with {min(theirs):,.0f} only")
    return f" ({'; '.join(notes)})" if notes else ""


def routing_promises(row: Row, rounds: Rounds) -> list[str]:
    wanted = MANY_BINDINGS if row.name == "topic-many" else FEW_BINDINGS
    note = note_of(rounds, "bindings", wanted, "bindings")
    found: list[str] = []
    for phase, title in PHASES.items():
        count = cell(values(rounds, OURS, "bindings"), thousands)
        text = f"{row.title}, {count} bindings, {title}: at least {RATIO:g} times RabbitMQ's rate"
        found += at_least(text, ratios(rounds, f"{phase}/consume_rate"), RATIO, note)
    return found


def declare_promises(row: Row, rounds: Rounds) -> list[str]:
    found: list[str] = []
    for how, title in WAYS.items():
        note = note_of(rounds, f"{how}/count", MANY_QUEUES, "queues")
        text = f"{row.title}, {title}: at least {RATIO:g} times as fast"
        found += at_least(text, fewer_times(rounds, f"{how}/seconds"), RATIO, note)
    return found


def connections_promises(row: Row, rounds: Rounds) -> list[str]:
    note = note_of(rounds, "count", MANY_CONNECTIONS, "connections")
    what = f"idle connections, {row.title}"
    text = f"{what}: RabbitMQ takes at least {RATIO:g} times the memory"
    found = at_least(text, fewer_times(rounds, "kb_each"), RATIO, note)
    text = f"{what}: opened at least {RATIO:g} times as fast"
    return found + at_least(text, fewer_times(rounds, "seconds"), RATIO, note)


def stall_promises(row: Row, rounds: Rounds) -> list[str]:
    found = values(rounds, OURS, "during/answer_ms/max")
    count = cell(values(rounds, OURS, "bindings"), thousands)
    text = f"{row.title}, {count} bindings: no confirm takes more than {STALL_MS:g} ms"
    note = note_of(rounds, "bindings", MANY_BINDINGS, "bindings", pair=False)
    before = values(rounds, OURS, "before/answer_ms/max")
    if before and max(before) > STALL_MS:
        note += f" (the machine is not quiet: {max(before):.2f} ms with nothing going on)"
    return promise(text, found, plain, bool(found) and max(found) <= STALL_MS, note)


PROMISES: Final[dict[str, Callable[[Row, Rounds], list[str]]]] = {
    "routing": routing_promises,
    "declare": declare_promises,
    "connections": connections_promises,
    "stall": stall_promises,
}


def growth_promises(rounds: dict[str, Rounds]) -> list[str]:
    """Penstock's rate with many bindings over its own with few."""
    few, many = rounds.get("topic-few", []), rounds.get("topic-many", [])
    found: list[str] = []
    if not few or not many:
        return found
    counts = [cell(values(runs, OURS, "bindings"), thousands) for runs in (many, few)]
    for phase, title in PHASES.items():
        rates = [values(runs, OURS, f"{phase}/consume_rate") for runs in (many, few)]
        shares = []
        if all(rates) and statistics.median(rates[1]):
            shares = [statistics.median(rates[0]) / statistics.median(rates[1])]
        text = f"topic, {title}: with {counts[0]} bindings at least {GROWTH:g} of the rate with"
        note = note_of(many, "bindings", MANY_BINDINGS, "bindings", pair=False)
        found += at_least(f"{text} {counts[1]}", shares, GROWTH, note)
    return found


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
    for phase, title in PHASES.items():
        load = result.get(phase)
        if load and load["consumed"] != load["published"]:
            found.append(f"{title}: {load['consumed']:,} of {load['published']:,} were delivered")
        if load and load["generator"]["cpu_cores"] > BUSY * load["generator"]["cores"]:
            found.append(f"{title}: the generator had no time left and may have been the limit")
    return found


# -- the page -----------------------------------------------------------------------------------


def page(report: Result, rows: list[Row], rounds: dict[str, Rounds]) -> str:
    lines = [f"# Topology: Penstock and RabbitMQ side by side, {report['date']}", ""]
    lines += facts(report)
    for section in SECTIONS:
        lines += table_of(section, rows, rounds)
    lines += promises(rows, rounds)
    lines += problems(rows, rounds)
    lines += ["", "What each column means and how to read it: `benchmarks/README.md`."]
    return "\n".join(lines) + "\n"


def facts(report: Result) -> list[str]:
    where, ours, theirs = report["machine"], report[OURS], report[THEIRS]
    generator, amounts = report["generator"], report["amounts"]
    hardware = f"{where['cores']} cores, {where['cpu']}, {where['memory_gb']} GB"
    version = f"RabbitMQ {theirs.get('version', '?')}, {theirs.get('platform', '?')}"
    counts = f"{amounts['keys']:,} keys in turn or ever-new ones"
    disk = f"disk: {report['file_system']}"
    found = [
        f"- machine: {hardware}, {where['kernel']}, {where['python']}; {disk}",
        f"- Penstock {ours['version']} ({ours['build']}), commit {ours['commit']}, {ours['cores']}",
        f"- {version}, defaults, {theirs['cores']}",
        f"- generator: {generator['build']}; brokers and generator run {generator['priority']}",
        f"- routing: bodies of {amounts['size']} B, each message matches one binding, {counts}",
        f"- routing: at most {amounts['in_flight']:,} messages published and not yet consumed",
        f"- {report['rounds']} rounds, RabbitMQ and Penstock in turn, each alone and started anew",
        f"- ratio: how many times better Penstock is; promised are {RATIO:g}",
        f"- command: `{report['command']}`",
    ]
    if amounts["peer_bindings"] != amounts["bindings"]:
        ours_count, peer_count = amounts["bindings"], amounts["peer_bindings"]
        unequal = f"Penstock has {ours_count:,} bindings where RabbitMQ has {peer_count:,}"
        why = "which takes long to make more; those ratios are of unequal work"
        found.append(f"- **not the same counts**: {unequal}, {why}")
    return found
