"""Runs a table: starts what is compared, drives it row by row in turn, and writes what was found.

A ``Table`` says which rows there are, which sides are compared in each, which figures are shown
and what is promised of them.  A row's ``measure`` gets one side that runs and returns figures, in
dictionaries of dictionaries; a figure's path in them is written ``fill/watched/rss_peak_mb``.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import resource
import shlex
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.brokers import ROOT
from benchmarks.page import (
    Promise,
    Report,
    Section,
    columns_with_ratio,
    dig,
    page,
    ratios,
    ratios_of,
    spread,
    thousandths,
)
from penstock import __version__
from penstock.node.node import is_compiled
from tests.helpers.rabbit import missing_reason

RESULTS: Final = ROOT / "benchmarks" / "results"
RATIOS: Final = "ratios.json"
"""The last recorded ratio of each row, by table and build."""
PAUSE_S: Final = 0.5
ERROR_LENGTH: Final = 400
LOST: Final = 0.05
PLACES: Final = ("--dir", "--out", "--old", "--new", "--nsqd", "--generator", "--peer")
"""Options whose values name places of a machine, which a result must not."""

Given = argparse.Namespace
Figures = dict[str, Any]


@dataclass(frozen=True)
class Row:
    name: str
    title: str
    measure: Callable[[Any, Given], Figures]
    section: str = ""
    room_bytes: Callable[[Given], float] = lambda given: 0.0
    """What it may take of the disk."""


@dataclass(frozen=True)
class Table:
    """``lives``: what is compared is started for the ``table``, each ``row`` or each ``run``.

    With ``run``, one side is there at a time.  ``sides`` gives those of a row, each a context
    manager with ``key`` and ``label``; the first is what the others are compared with.
    """

    name: str
    title: str
    says: str
    rows: Sequence[Row]
    sections: dict[str, Section]
    sides: Callable[[Given, Row], Sequence[Any]]
    lives: str = "row"
    options: Callable[[argparse.ArgumentParser], object] = lambda parser: None
    defaults: dict[str, Any] = field(default_factory=dict)
    tried: dict[str, Any] = field(default_factory=dict)
    """What ``--try`` makes of the options, so that each row takes seconds."""
    promises: Sequence[Promise] = ()
    guard_base: float = 0.0
    """What ratios are held against; 0 = the recorded ones."""
    lacking: Callable[[Given], str | None] = lambda given: None
    """Why it cannot run here."""


def arguments(table: Table, words: Sequence[str]) -> Given:
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks {table.name}",
        description=table.says,
        epilog="What the numbers mean: benchmarks/README.md",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--rounds", type=int, default=3, help="turns of each row")
    add("--seconds", type=float, default=4.0, help="measured in a timed run")
    add("--warmup", type=float, default=1.5, help="seconds before them")
    add("--only", default="", help="names of rows or their beginnings, with commas")
    add("--alone", action="store_true", help="without the RabbitMQ of this machine")
    add("--peer", action="append", default=[], help="AMQP URL of another broker; repeatable")
    add("--pure", action="store_true", help="run Penstock interpreted")
    add("--broker-cores", default="0", help="Penstock's, like 0 or 0,1")
    add("--generator-cores", default="1", help="the generator's beside Penstock")
    add("--rabbit-same-cores", action="store_true", help="place RabbitMQ as Penstock")
    add("--favoured", action="store_true", help="go before other work (needs root)")
    add("--guard", action="store_true", help=f"fail if a row lost over {LOST:.0%}% of its ratio")
    add("--try", action="store_true", dest="tried", help="one short round; nothing is written")
    add("--dir", type=Path, help="where files are made")
    add("--write", default=table.name, help="name of the result; empty = it is not written")
    add("--out", type=Path, default=RESULTS, help="where results go")
    table.options(parser)
    parser.set_defaults(**table.defaults)
    given = parser.parse_args(words)
    if given.tried:
        vars(given).update({"rounds": 1, "seconds": 0.5, "warmup": 0.2} | table.tried)
    if given.rounds < 1 or given.seconds <= 0 or given.warmup < 0:
        parser.error("--rounds and --seconds must be positive, --warmup not negative")
    known = os.sched_getaffinity(0)
    if not {*map(int, f"{given.broker_cores},{given.generator_cores}".split(","))} <= known:
        parser.error(f"there are only the cores {sorted(known)}")
    if given.dir is not None:
        tempfile.tempdir = str(given.dir.resolve())
    return given


def chosen(rows: Sequence[Row], names: str) -> list[Row]:
    """The rows named, comma separated; a beginning chooses all that begin with it."""
    found: list[Row] = []
    for name in names.split(","):
        matching = [row for row in rows if row.name.startswith(name)]
        if not matching:
            known = ", ".join(row.name for row in rows)
            raise SystemExit(f"no row begins with {name!r}; there are: {known}")
        found += [row for row in matching if row not in found]
    return found


def needs(given: Given, *, rabbit: bool = True) -> str | None:
    """Why brokers cannot be compared here."""
    if not given.pure and not is_compiled():
        return "this checkout is not compiled: run `make setup` first, or give --pure"
    return missing_reason() if rabbit and not given.alone else None


# -- the run ------------------------------------------------------------------------------------


def run(table: Table, words: Sequence[str]) -> int:
    given = arguments(table, words)
    rows = chosen(table.rows, given.only)
    reason = table.lacking(given)
    if reason:
        print(f"error: {reason}", file=sys.stderr)
        return 1
    raise_descriptor_limit()
    book = Book(table, given, rows, words)
    with ExitStack() as stack:
        sides = started(stack, table.sides(given, rows[0])) if table.lives == "table" else []
        for row in rows:
            if table.lives == "table":
                book.drive(row, sides)
            else:
                with ExitStack() as stack_of_row:
                    found = table.sides(given, row)
                    if table.lives == "row":
                        started(stack_of_row, found)
                    book.drive(row, found)
            book.write()
    print(book.text())
    return book.verdict()


def started(stack: ExitStack, sides: Sequence[Any]) -> Sequence[Any]:
    for side in sides:
        stack.enter_context(side)
    return sides


def raise_descriptor_limit() -> None:
    """As far as it goes, for this process and those it starts."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


class Book:
    """What was found, and where it goes."""

    def __init__(
        self, table: Table, given: Given, rows: Sequence[Row], words: Sequence[str]
    ) -> None:
        self._table = table
        self._given = given
        self._before = recorded(given.out, table.name, build_of(given))
        self._failed = False
        self.report: Report = describe(table, given, words)
        self.report["rows"] = {
            row.name: {"title": row.title, "section": row.section, "rounds": []} for row in rows
        }

    def drive(self, row: Row, sides: Sequence[Any]) -> None:
        """All rounds of a row, each in the other order than the one before."""
        for number in range(self._given.rounds):
            found: Figures = {}
            for side in sides if number % 2 == 0 else sides[::-1]:
                found[side.key] = self._attempt(row, side)
                self.report["sides"][side.key] = side.label
                self._failed = self._failed or "error" in found[side.key]
                said = self._shown(row, found[side.key])
                print(f"{row.name:<24} round {number + 1}  {side.label:<18} {said}", flush=True)
                time.sleep(PAUSE_S)
            self.report["rows"][row.name]["rounds"].append(
                {side.key: found[side.key] for side in sides}
            )
        for line in self._compared(row, sides):
            print(f"{row.name:<24} {line}", flush=True)

    def _attempt(self, row: Row, side: Any) -> Figures:
        """What goes wrong is a result too, and the other rows go on."""
        free, wanted = free_bytes(), row.room_bytes(self._given)
        if free < wanted:
            return {"error": f"{wanted / 1e9:.1f} GB of disk may be needed, {free / 1e9:.1f} free"}
        try:
            if self._table.lives != "run":
                return row.measure(side, self._given)
            begin_s = time.monotonic()
            with side:
                empty = {"empty": {"seconds": time.monotonic() - begin_s}}
                return empty | row.measure(side, self._given)
        except Exception as error:
            traceback.print_exc()
            return {"error": shortened(str(error) or repr(error))}

    def _shown(self, row: Row, found: Figures) -> str:
        if "error" in found:
            return f"failed: {found['error']}"
        section = self._table.sections[row.section]
        parts = []
        for phase, column in columns_with_ratio(section):
            value = dig(found, column.below(phase))
            if value is not None:
                parts.append(f"{section.phases[phase]} {column.show(value)} {column.title}")
        return "; ".join(part.strip() for part in parts)

    def _compared(self, row: Row, sides: Sequence[Any]) -> Iterator[str]:
        """The ratios of a row whose rounds are over."""
        section, rounds = self._table.sections[row.section], self.report["rows"][row.name]["rounds"]
        for side in sides[1:]:
            for phase, column in columns_with_ratio(section):
                found = ratios(rounds, sides[0].key, side.key, column.below(phase))
                if found:
                    what = f"{section.phases[phase]} {column.title}".strip()
                    ratio = spread(found, thousandths)
                    yield f"{sides[0].label} / {side.label}  {what} {ratio}"

    def text(self) -> str:
        table = self._table
        return page(self.report, table.title, table.says, table.sections, table.promises)

    def write(self) -> None:
        if self._given.tried or not self._given.write:
            return
        out: Path = self._given.out
        out.mkdir(parents=True, exist_ok=True)
        name = [self._given.write, *filter(None, self._given.only.split(","))]
        path = out / f"{self.report['date']}-{'-'.join([*name, self.report['build']])}"
        path.with_suffix(".json").write_text(json.dumps(self.report, indent=1) + "\n")
        path.with_suffix(".md").write_text(self.text())
        file = out / RATIOS
        kept = json.loads(file.read_text()) if file.exists() else {}
        rows = kept.setdefault(f"{self._table.name} {self.report['build']}", {})
        rows.update(ratios_of(self.report, self._table.sections))
        file.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")

    def verdict(self) -> int:
        """1 if something failed, or with ``--guard`` if a row lost too much."""
        lost = []
        if self._given.guard:
            now = ratios_of(self.report, self._table.sections)
            base = self._table.guard_base
            lost = losses(dict.fromkeys(now, base) if base else self._before, now)
            print("\n".join(lost) or f"no row lost more than {LOST:.0%}")
        return 1 if lost or self._failed else 0


def build_of(given: Given) -> str:
    return "interpreted" if given.pure or not is_compiled() else "compiled"


def recorded(out: Path, name: str, build: str) -> dict[str, float]:
    file = out / RATIOS
    rows = json.loads(file.read_text()) if file.exists() else {}
    found: dict[str, float] = rows.get(f"{name} {build}", {})
    return found


def losses(before: dict[str, float], now: dict[str, float]) -> list[str]:
    """Ratios that are smaller than recorded by more than what is allowed; more is better."""
    return [
        f"LOST {row}: {now[row]:.3f}, {ratio:.3f} before ({now[row] / ratio - 1:+.1%})"
        for row, ratio in before.items()
        if row in now and now[row] < ratio * (1 - LOST)
    ]


# -- results of a run ----------------------------------------------------------------------------


def describe(table: Table, given: Given, words: Sequence[str]) -> Report:
    shown = shlex.join(["python", "-m", "benchmarks", table.name, *without_places(words)])
    changed = "+changes" if git("status", "--porcelain", "--untracked-files=no") else ""
    now = dt.datetime.now(tz=dt.UTC)
    return {
        "date": now.date().isoformat(),
        "time": f"{now:%H:%M} UTC",
        "machine": machine(),
        "disk": file_system(Path(tempfile.gettempdir())),
        "command": shown,
        "rounds": given.rounds,
        "build": build_of(given),
        "penstock": f"{__version__} ({build_of(given)}), {git('rev-parse', '--short', 'HEAD')}",
        "changed": changed,
        "cores": f"Penstock on {given.broker_cores}, its generator on {given.generator_cores}",
        "same_cores": bool(given.rabbit_same_cores),
        "priority": "before other work" if given.favoured else "like other work",
        "sides": {},
    }


def git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def without_places(words: Sequence[str]) -> list[str]:
    shown: list[str] = []
    hide = False
    for word in words:
        name, _, value = word.partition("=")
        shown.append("PLACE" if hide else f"{name}=PLACE" if value and name in PLACES else word)
        hide = not value and name in PLACES
    return shown


def shortened(text: str) -> str:
    """One line without the places of this machine; the whole went to standard error."""
    line = " ".join(text.split())
    for place in (tempfile.gettempdir(), str(ROOT), str(Path.home())):
        line = line.replace(place, "…")
    return line[:ERROR_LENGTH]


def machine() -> Figures:
    """What may be told about the machine: nothing that names it."""
    cpu = "unknown"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    system = os.uname()
    return {
        "cores": os.cpu_count(),
        "cpu": cpu,
        "memory_gb": round(memory_bytes / 1e9, 1),
        "kernel": f"{system.sysname} {system.release.partition('-')[0]}",
        "python": f"CPython {sys.version.split()[0]}",
    }


def free_bytes() -> int:
    found = os.statvfs(tempfile.gettempdir())
    return found.f_bavail * found.f_frsize


def file_system(directory: Path) -> str:
    """The kind of file system, like ext4: a benchmark of storage in memory says nothing."""
    best, kind = "", "unknown"
    here = str(directory.resolve())
    for line in Path("/proc/mounts").read_text().splitlines():
        _, mounted, found = line.split()[:3]
        inside = here == mounted or here.startswith(mounted.rstrip("/") + "/")
        if inside and len(mounted) >= len(best):
            best, kind = mounted, found
    return kind
