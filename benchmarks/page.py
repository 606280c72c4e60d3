"""The page of a table: a line for each row, phase and side, what is promised, what is wrong.

Figures are medians over the rounds, with the smallest and the largest.  A ratio is the median of
the rounds' own ratios: the first side's figure over the one of the line that it stands in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final, NamedTuple

NONE: Final = "–"

Report = dict[str, Any]
Rounds = list[dict[str, Any]]
"""Per round: what was found, by a side's key."""
Show = Callable[[float], str]


def thousands(value: float) -> str:
    return f"{value:,.0f}"


def tenths(value: float) -> str:
    return f"{value:,.1f}"


def plain(value: float) -> str:
    return f"{value:,.2f}"


def thousandths(value: float) -> str:
    return f"{value:.3f}"


class Column(NamedTuple):
    """``better``: 1 if more is better, -1 if less is, 0 if no ratio of it is shown.

    A path that begins with ``/`` is not below the phase.
    """

    path: str
    title: str
    show: Show = plain
    better: int = 0

    def below(self, phase: str) -> str:
        if self.path.startswith("/"):
            return self.path[1:]
        return f"{phase}/{self.path}" if phase else self.path


@dataclass(frozen=True)
class Section:
    """One Markdown table; ``phases`` of a row have a line each, by the name of their figures."""

    title: str
    columns: Sequence[Column]
    phases: dict[str, str] = field(default_factory=lambda: {"": ""})


def columns_with_ratio(section: Section) -> Iterator[tuple[str, Column]]:
    """With the phase that each is below."""
    for phase in section.phases:
        yield from ((phase, column) for column in section.columns if column.better)


class Promise(NamedTuple):
    """What is promised of the rows that begin so, judged by this run.

    ``over`` a side: the median of ratios to it; over ``row NAME``: to the first side's median in
    that row.  Else it is the first side's figure, the worst of the rounds.
    """

    text: str
    rows: str
    path: str
    least: float | None = None
    most: float | None = None
    over: str = ""


# -- reading rounds -----------------------------------------------------------------------------


def dig(found: Any, path: str) -> float | None:
    for part in path.split("/"):
        found = found.get(part) if isinstance(found, dict) else None
    return float(found) if isinstance(found, (int, float)) else None


def values(rounds: Rounds, side: str, path: str) -> list[float]:
    found = [dig(one.get(side), path) for one in rounds]
    return [value for value in found if value is not None]


def ratios(rounds: Rounds, first: str, other: str, path: str) -> list[float]:
    pairs = [(dig(one.get(first), path), dig(one.get(other), path)) for one in rounds]
    return [mine / theirs for mine, theirs in pairs if mine is not None and theirs]


def spread(found: list[float], show: Show) -> str:
    """median [smallest..largest]"""
    if not found:
        return NONE
    middle = show(median(found))
    return middle if len(found) == 1 else f"{middle} [{show(min(found))}..{show(max(found))}]"


def sides_of(rounds: Rounds) -> list[str]:
    return list(rounds[0]) if rounds else []


def ratios_of(report: Report, sections: dict[str, Section]) -> dict[str, float]:
    """The ratio of each figure that has one; turned round where less is better."""
    found: dict[str, float] = {}
    for name, row in report["rows"].items():
        section, rounds = sections[row["section"]], row["rounds"]
        first, *others = sides_of(rounds) or [""]
        for phase, column in columns_with_ratio(section):
            path = column.below(phase)
            for side in others:
                of_rounds = ratios(rounds, first, side, path)
                if of_rounds and median(of_rounds) > 0:
                    label = report["sides"].get(side, side)
                    ratio = median(of_rounds) ** column.better
                    found[f"{name} {path} over {label}"] = round(ratio, 4)
    return found


# -- the page -------------------------------------------------------------------------------------


def page(
    report: Report,
    title: str,
    says: str,
    sections: dict[str, Section],
    promises: Sequence[Promise] = (),
) -> str:
    lines = [f"# {title}, {report['date']}", "", says, "", *facts(report)]
    for name, section in sections.items():
        lines += table_of(name, section, report)
    judged = [text for promise in promises for text in judge(promise, report)]
    lines += ["", "## Promises", "", *judged] if judged else []
    wrong = list(wrongs(report))
    lines += ["", "## Not as it should be", "", *wrong] if wrong else []
    return "\n".join([*lines, "", "How to read it: [benchmarks](../README.md).", ""])


def facts(report: Report) -> list[str]:
    here = report["machine"]
    hardware = f"{here['cores']} cores, {here['cpu']}, {here['memory_gb']} GB"
    own = report["same_cores"] or not set(report["sides"]) - {"penstock"}
    others = "" if own else "; other brokers and their generators use all"
    return [
        f"- {report['date']} {report['time']}, {hardware}, {here['kernel']}, {here['python']},",
        f"  {report['disk']}; run {report['priority']}",
        f"- Penstock {report['penstock']}{report['changed']}; {report['cores']}{others}",
        f"- {report['rounds']} rounds in turn: median [smallest..largest]; a ratio is the median",
        "  of the rounds' own, the first line of a row over this one",
        f"- command: `{report['command']}`",
    ]


def table_of(name: str, section: Section, report: Report) -> list[str]:
    """With its heading; nothing when none of its rows was run."""
    lines: list[str] = []
    for row in report["rows"].values():
        if row["section"] == name:
            for phase, phase_title in section.phases.items():
                title = f"{row['title']}, {phase_title}" if phase_title else row["title"]
                lines += lines_of(title, row["rounds"], section.columns, phase, report["sides"])
    if not lines:
        return []
    heads = ["row", ""]
    for column in section.columns:
        heads.append(column.title)
        if column.better:
            heads.append("ratio" if column.better > 0 else "ratio (less is better)")
    head = [f"| {' | '.join(heads)} |", "|---|---" + "|--:" * (len(heads) - 2) + "|"]
    return ["", f"## {section.title}", "", *head, *lines] if section.title else ["", *head, *lines]


def lines_of(
    title: str, rounds: Rounds, columns: Sequence[Column], phase: str, labels: dict[str, str]
) -> Iterator[str]:
    first = next(iter(sides_of(rounds)), "")
    for side in sides_of(rounds):
        cells: list[str] = []
        for column in columns:
            path = column.below(phase)
            cells.append(spread(values(rounds, side, path), column.show))
            if column.better:
                of_rounds = [] if side == first else ratios(rounds, first, side, path)
                cells.append(f"**{spread(of_rounds, plain)}**" if of_rounds else NONE)
        if any(cell != NONE for cell in cells):
            yield f"| {title} | {labels.get(side, side)} | {' | '.join(cells)} |"


def judge(promise: Promise, report: Report) -> Iterator[str]:
    for name, row in report["rows"].items():
        rounds = row["rounds"]
        if not name.startswith(promise.rows) or not rounds:
            continue
        first = next(iter(sides_of(rounds)))
        found = values(rounds, first, promise.path)
        judged_by = found
        if promise.over.startswith("row "):
            base = report["rows"].get(promise.over[4:], {"rounds": []})["rounds"]
            bases = values(base, first, promise.path)
            found = [median(found) / median(bases)] if found and bases else []
            judged_by = found
        elif promise.over:
            found = ratios(rounds, first, promise.over, promise.path)
            judged_by = [median(found)] if found else []
        what = f"- {promise.text} ({row['title']})"
        if not found:
            yield f"{what}: not measured"
            continue
        kept = (promise.least is None or min(judged_by) >= promise.least) and (
            promise.most is None or max(judged_by) <= promise.most
        )
        yield f"{what}: {spread(found, plain)}, {'kept' if kept else '**BROKEN**'}"


def wrongs(report: Report) -> Iterator[str]:
    """What makes a figure worthless: said below the tables, never left out."""
    for name, row in report["rows"].items():
        for number, found in enumerate(row["rounds"], 1):
            for side, result in found.items():
                where = f"- {name}, round {number}: {report['sides'].get(side, side)}"
                if "error" in result:
                    yield f"{where} failed: {result['error']}"
                for text in wrong_in(result):
                    yield f"{where}: {text}"


def wrong_in(result: dict[str, Any]) -> Iterator[str]:
    """Of a run and of its phases."""
    for name, found in result.items():
        if name == "wrong":
            yield from found
        elif isinstance(found, dict):
            yield from (f"{name}: {text}" for text in wrong_in(found))
