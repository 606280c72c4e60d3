"""Turns the rounds of a comparison into a Markdown page; says on what machine it ran."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.scenarios import LATENCY, Scenario

Result = dict[str, Any]
Rounds = list[tuple[Result, Result]]
"""Per round: Penstock's result and RabbitMQ's."""
PERCENTILES = ("p50", "p99", "p99.9")


def machine() -> Result:
    """What may be told about the machine: nothing that names it."""
    return {
        "cores": os.cpu_count(),
        "cpu": first_value(Path("/proc/cpuinfo"), "model name"),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "kernel": f"{platform.system()} {platform.release().partition('-')[0]}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
    }


def first_value(path: Path, key: str) -> str:
    for line in path.read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return "unknown"


def spread(values: list[float], show: Callable[[float], str]) -> str:
    """median [smallest..largest]"""
    middle = show(statistics.median(values))
    if len(values) == 1:
        return middle
    return f"{middle} [{show(min(values))}..{show(max(values))}]"


def thousands(value: float) -> str:
    return f"{value:,.0f}"


def milliseconds(value_us: float) -> str:
    return f"{value_us / 1000:.2f}"


def plain(value: float) -> str:
    return f"{value:.2f}"


def throughput_row(scenario: Scenario, rounds: Rounds) -> str:
    ours = [mine[scenario.figure] for mine, _ in rounds]
    theirs = [other[scenario.figure] for _, other in rounds]
    ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    cells = [
        scenario.title,
        spread(ours, thousands),
        spread(theirs, thousands),
        f"**{spread(ratios, plain)}**",
        " / ".join(thousands(median_rate(rounds, which)) for which in (0, 1)),
        *costs(rounds),
    ]
    return f"| {' | '.join(cells)} |"


def median_rate(rounds: Rounds, which: int) -> float:
    values: list[float] = [pair[which]["publish_rate"] for pair in rounds]
    return statistics.median(values)


def latency_row(scenario: Scenario, rounds: Rounds, percentile: str) -> str:
    ours = [mine[LATENCY][percentile] for mine, _ in rounds]
    theirs = [other[LATENCY][percentile] for _, other in rounds]
    ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    title = f"{scenario.title}: {percentile}"
    cells = [
        title,
        spread(ours, milliseconds),
        spread(theirs, milliseconds),
        f"**{spread(ratios, plain)}**",
        *costs(rounds),
    ]
    return f"| {' | '.join(cells)} |"


def costs(rounds: Rounds) -> list[str]:
    """CPU per message, cores and memory of both, and how busy everything else was."""
    cells = []
    for name, show in (("cpu_us_per_message", plain), ("cpu_cores", plain)):
        pair = [median_of(rounds, which, name) for which in (0, 1)]
        cells.append(f"{show(pair[0])} / {show(pair[1])}")
    peaks = [max(pair[which]["broker"]["rss_peak_mb"] for pair in rounds) for which in (0, 1)]
    cells.append(f"{peaks[0]:.0f} / {peaks[1]:.0f}")
    other = max(result["other_cores"] for pair in rounds for result in pair)
    cells.append(plain(other))
    return cells


def median_of(rounds: Rounds, which: int, name: str) -> float:
    values: list[float] = [pair[which]["broker"][name] for pair in rounds]
    return statistics.median(values)


COSTS = ("CPU µs/msg P / R", "cores P / R", "peak RSS MB P / R", "other load, cores")
THROUGHPUT_HEAD = ("scenario", "Penstock", "RabbitMQ", "ratio", "published P / R", *COSTS)
LATENCY_HEAD = ("scenario", "Penstock", "RabbitMQ", "ratio (less is better)", *COSTS)


def head(columns: tuple[str, ...]) -> list[str]:
    return [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]


def page(report: Result, scenarios: list[Scenario], rounds: dict[str, Rounds]) -> str:
    """The whole Markdown page."""
    throughput = [throughput_row(s, rounds[s.name]) for s in scenarios if s.figure != LATENCY]
    latency = [
        latency_row(s, rounds[s.name], percentile)
        for s in scenarios
        if s.figure == LATENCY
        for percentile in PERCENTILES
    ]
    lines = [f"# Penstock and RabbitMQ side by side, {report['date']}", "", *facts(report)]
    if throughput:
        lines += ["", "## Throughput, messages per second", "", *head(THROUGHPUT_HEAD)]
        lines += throughput
    if latency:
        lines += ["", "## Latency, milliseconds", "", *head(LATENCY_HEAD)]
        lines += latency
    lines += ["", *problems(scenarios, rounds)]
    if report["self_test"]:
        lines += ["## The generator alone", "", "| case | msg/s |", "|---|---|"]
        for case in report["self_test"]:
            lines.append(f"| {case['case']} | {thousands(case['messages_per_s'])} |")
        lines.append("")
    lines += ["What each column means and how to read it: `benchmarks/README.md`."]
    return "\n".join(lines) + "\n"


def facts(report: Result) -> list[str]:
    where, ours, theirs = report["machine"], report["penstock"], report["rabbitmq"]
    generator = report["generator"]
    hardware = f"{where['cores']} cores, {where['cpu']}, {where['memory_gb']} GB"
    return [
        f"- machine: {hardware}, {where['kernel']}, {where['python']}",
        f"- Penstock {ours['version']} ({ours['build']}), commit {ours['commit']}, {ours['cores']}",
        f"- RabbitMQ {theirs['version']}, {theirs['platform']}, defaults, {theirs['cores']}",
        f"- generator: {generator['build']}; brokers and generator run {generator['priority']}",
        f"- {report['rounds']} rounds, alternating: median [smallest..largest]",
        "- ratio: median of the rounds' own ratios, Penstock over RabbitMQ",
        f"- command: `{report['command']}`",
    ]


def problems(scenarios: list[Scenario], rounds: dict[str, Rounds]) -> list[str]:
    """What would make a row worthless: said below the tables, never left out."""
    notes: list[str] = []
    for scenario in scenarios:
        for number, pair in enumerate(rounds[scenario.name], 1):
            for name, result in zip(("Penstock", "RabbitMQ"), pair, strict=True):
                where = f"- {scenario.title}, round {number}: {name}"
                notes += [f"{where} {wrong}" for wrong in wrongs(result)]
    return ["Not as it should be:", "", *notes, ""] if notes else []


def wrongs(result: Result) -> list[str]:
    counts = ("out_of_order", "redelivered", "foreign", "nacked")
    found = [f"{name} {result[name]}" for name in counts if result[name]]
    if result["plan"]["confirm"] and result["confirmed"] < result["published"]:
        found.append(f"confirmed {result['confirmed']} of {result['published']}")
    if result["plan"]["count"] and result["published"] < result["plan"]["count"]:
        found.append(f"published {result['published']} of {result['plan']['count']}")
    return found
