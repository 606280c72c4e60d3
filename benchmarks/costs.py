"""What a part of the broker costs: the same load with it and without, in turn.

Rows without sockets (``bench_core``) count processor time per message where the kernel hides
nothing, the event log's writer included; the others drive two brokers side by side that differ in
one setting.  ``instructions`` and ``instructions-core`` count instructions under valgrind, which
other load on the machine does not change.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from benchmarks.bench_core import run
from benchmarks.brokers import ROOT, Side, checkout
from benchmarks.brokers import penstock as broker_of
from benchmarks.core_count import FEW, MANY
from benchmarks.harness import Figures, Given, Row, Table, needs
from benchmarks.load import bench
from benchmarks.page import Column, Promise, Section, plain, tenths, thousands
from benchmarks.throughput import LATENCY, SCENARIOS, Scenario, drive, scenario_rows
from penstock.management.statistics.kinds import QUEUE
from penstock.management.statistics.rings import Tracks

CoreLoad = tuple[int, bool, bool, bool]
"""Bytes of a message; varied, acknowledged by itself, persistent."""
CORE: Final[dict[str, tuple[str, CoreLoad]]] = {
    "core-16": ("16 B, auto-ack", (16, False, True, False)),
    "core-1k": ("1 KB, auto-ack", (1024, False, True, False)),
    "core-16-acked": ("16 B, acknowledged", (16, False, False, False)),
    "core-1k-acked": ("1 KB, acknowledged", (1024, False, False, False)),
    "core-varied": ("200 B, each to another key", (200, True, True, False)),
    "core-safe": ("1 KB, persistent, acknowledged", (1024, False, False, True)),
}
TRANSIENT: Final = "core-16 core-1k core-1k-acked core-varied"
EVENTS_PROMISED: Final = 1.02
SAMPLES_PROMISED: Final = 1.01
RING_QUEUES: Final = 10_000
INTERVAL_S: Final = 5


class Setting(NamedTuple):
    """A side that is no process."""

    key: str
    label: str
    on: bool = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return


def on_and_off(what: str) -> list[Setting]:
    return [Setting("with", f"with {what}"), Setting("without", f"without {what}", on=False)]


def core_rows(names: str, **settings: Callable[[bool], bool]) -> list[Row]:
    """``settings`` of ``bench_core.run``, by whether the side has it on."""

    def measure(load: CoreLoad) -> Callable[[Any, Given], Figures]:
        return lambda side, given: {
            "cpu_us": run(
                *load, given.seconds, **{name: of(side.on) for name, of in settings.items()}
            )
            / 1000
        }

    return [Row(name, f"core: {CORE[name][0]}", measure(CORE[name][1])) for name in names.split()]


def broker_rows(names: str) -> list[Row]:
    def measure(scenario: Scenario) -> Callable[[Any, Given], Figures]:
        def found(side: Side, given: Given) -> Figures:
            result = drive(scenario, side, given)
            return {
                "cpu_us": result["broker"]["cpu_us_per_message"],
                "rate": result["rate"],
                "other_cores": result["other_cores"],
                "wrong": result["wrong"],
            }

        return found

    return scenario_rows(measure, names)


def differing(given: Given, what: str, flags: Callable[[bool], tuple[str, ...]]) -> list[Side]:
    """Two brokers; one has it on."""
    found = []
    for setting in on_and_off(what):
        side = broker_of(given, *flags(setting.on), key=setting.key)
        side.label = setting.label
        found.append(side)
    return found


COST: Final = Section(
    "",
    (
        Column("cpu_us", "CPU µs/msg", plain, -1),
        Column("rate", "msg/s", thousands),
        Column("other_cores", "other load, cores"),
    ),
)
IN_TURN: Final = {"rounds": 9, "seconds": 4.0, "warmup": 1.0, "alone": True}


def no_peer(given: Given) -> str | None:
    return needs(given, rabbit=False)


def sides_without_sockets(given: Given, row: Row) -> list[Setting]:
    return [Setting("core", "Penstock without sockets")]


CORE_TABLE: Final = Table(
    "core",
    "The broker without sockets",
    "From decoder to encoder in one process, without the kernel.",
    core_rows(" ".join(CORE)),
    {"": COST},
    sides_without_sockets,
    defaults=IN_TURN | {"seconds": 1.0, "rounds": 3},
)
CREDIT: Final = Table(
    "credit",
    "What credit flow costs",
    "Transient messages in one process without sockets, with credit flow and without it.",
    core_rows(TRANSIENT, credit=lambda on: on),
    {"": COST},
    lambda given, row: on_and_off("credit flow"),
    defaults=IN_TURN | {"seconds": 1.0},
)


# -- the event log --------------------------------------------------------------------------------


def event_sides(given: Given, row: Row) -> list[Any]:
    if row.name.startswith("core"):
        return on_and_off("the log")
    interval = ("--event-log-interval-s", str(given.interval))
    return differing(
        given, "the log", lambda on: (*interval, "--event-log", "true" if on else "false")
    )


EVENTS: Final = Table(
    "events",
    "What the event log costs",
    "The same load with the event log and without it; its writer is counted, and shares the"
    " broker's core.",
    [
        *core_rows("core-16 core-1k core-1k-acked core-16-acked", events=lambda on: on),
        *broker_rows("auto-ack-16 ack-100-1k ack-each-16 safe-through-1k"),
    ],
    {"": COST},
    event_sides,
    options=lambda parser: parser.add_argument(
        "--interval", type=int, default=5, help="event_log_interval_s"
    ),
    defaults=IN_TURN,
    promises=[Promise("with the log at most", "", "cpu_us", most=EVENTS_PROMISED, over="without")],
    lacking=no_peer,
)


# -- statistics -----------------------------------------------------------------------------------


def rings(side: Setting, given: Given) -> Figures:
    """10,000 queues that take, deliver and acknowledge, or use every counter, for an hour."""
    usual = {"publish", "deliver", "ack", "messages_ready", "messages_unacknowledged"}
    names = set(QUEUE.names) if side.key == "every" else usual
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    tracks = Tracks(QUEUE, INTERVAL_S)
    keys = [("/", f"queue{number}") for number in range(RING_QUEUES)]
    moved = [int(name in names) for name in QUEUE.names]
    for tick in range(2):
        walk(tracks, keys, moved, tick)
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    since_s = time.process_time()
    for tick in range(2, 5):
        walk(tracks, keys, moved, tick)
    walk_ms = (time.process_time() - since_s) / 3 * 1000
    return {"bytes_per_queue": used / RING_QUEUES, "walk_ms": walk_ms}


def walk(tracks: Tracks, keys: list[tuple[str, str]], moved: list[int], tick: int) -> None:
    tracks.begin(1_700_000_000 + INTERVAL_S * tick)
    counts = tuple(1000 + one * 1000 * tick if one else 0 for one in moved)
    for key in keys:
        tracks.record(key, counts)
    tracks.end()


def sampling_sides(given: Given, row: Row) -> list[Any]:
    if row.name == "rings":
        return [Setting("usual", "usual counters"), Setting("every", "every counter")]
    return differing(given, "samples", lambda on: ("--rates-mode", "basic" if on else "none"))


SAMPLING: Final = Table(
    "sampling",
    "What statistics cost",
    "The same load on a broker that samples and on one that does not; and what management keeps of"
    " 10,000 queues that do something in every interval.",
    [Row("rings", "10,000 queues", rings, "rings"), *broker_rows("auto-ack-16 ack-100-1k")],
    {
        "": COST,
        "rings": Section(
            "What is kept",
            (
                Column("bytes_per_queue", "bytes per queue", thousands),
                Column("walk_ms", "ms of management per walk", tenths),
            ),
        ),
    },
    sampling_sides,
    defaults=IN_TURN | {"seconds": 6.0},  # one interval and more
    promises=[
        Promise("with samples at most", name, "cpu_us", most=SAMPLES_PROMISED, over="without")
        for name in ("auto-ack", "ack-100")
    ],
    lacking=no_peer,
)


# -- instructions ---------------------------------------------------------------------------------

START_LIMIT_S: Final = 120.0
WARM_UP: Final = 3000
FUNCTIONS_SHOWN: Final = 8
INSTRUCTIONS_SHOWN: Final = 5
"""A function whose cost per message changed by less is not shown."""
FUNCTION: Final = re.compile(
    r"^\s*([\d,]+) \([ \d.]+%\)\s+(?:\S*:)?(\S.*?)(?:'\d+)?(?: \[.*)?$", re.MULTILINE
)


def no_valgrind(given: Given) -> str | None:
    if shutil.which("valgrind") is None:
        return "valgrind is not installed (Debian: apt-get install valgrind)"
    return no_peer(given)


class Counted:
    """A build whose broker runs under callgrind, once for each row."""

    def __init__(self, key: str, root: Path, words: str) -> None:
        self.key = key
        self.label = f"{key} {words}".strip()
        self._root = root
        self._words = words.split()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def count(self, scenario: Scenario, given: Given) -> Figures:
        options = [*scenario.options.split(), *self._words]
        with tempfile.TemporaryDirectory() as directory:
            profile = Path(directory) / "callgrind.out"
            with under_callgrind(self._root, profile, given) as side:
                words = ["--cleanup", *options, "--count"]
                bench(side, [*words, str(WARM_UP)])
                control(side, "on")
                bench(side, [*words, str(given.count)])
                control(side, "off")
            annotate = ["callgrind_annotate", "--threshold=100", str(profile)]
            table = subprocess.run(annotate, check=True, capture_output=True, text=True).stdout
        functions: dict[str, float] = {}
        for instructions, name in FUNCTION.findall(table):
            if name != "PROGRAM TOTALS":
                each = int(instructions.replace(",", "")) / given.count
                functions[name] = functions.get(name, 0.0) + each
        return {"instructions": sum(functions.values()), "functions": functions}


def under_callgrind(root: Path, profile: Path, given: Given) -> Side:
    """Its counter is off at first."""

    class UnderCallgrind(checkout(root)):  # type: ignore[misc]
        def command(self) -> list[str]:
            valgrind = ("valgrind", "--tool=callgrind", "--instr-atstart=no")
            words: list[str] = super().command()
            return [*valgrind, f"--callgrind-out-file={profile}", *words]

    environment = {"PYTHONPATH": str(root / "src")}
    broker = UnderCallgrind(environment=environment, ready_timeout_s=START_LIMIT_S)
    broker.stop_timeout_s = START_LIMIT_S
    return Side("counted", broker, given.broker_cores, given.generator_cores, favoured=False)


def control(side: Side, state: str) -> None:
    words = ["callgrind_control", "-i", state, str(side.pid)]
    subprocess.run(words, check=True, capture_output=True)


def count_row(scenario: Scenario) -> Callable[[Any, Given], Figures]:
    """After the new build, the functions whose share has changed are printed."""
    before: dict[str, float] = {}

    def measure(side: Counted, given: Given) -> Figures:
        found = side.count(scenario, given)
        functions: dict[str, float] = found.pop("functions")
        if before and side.key == "old":
            show_changes(functions, before)
        before.clear()
        before.update(functions if side.key == "new" else {})
        return found

    return measure


def show_changes(old: dict[str, float], new: dict[str, float]) -> None:
    changed = {name: new.get(name, 0) - old.get(name, 0) for name in old.keys() | new.keys()}
    for name in sorted(changed, key=lambda name: -abs(changed[name]))[:FUNCTIONS_SHOWN]:
        if abs(changed[name]) >= INSTRUCTIONS_SHOWN:
            print(f"    {changed[name]:>+8,.0f}  {name}")


def instruction_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--old", type=Path, default=ROOT, help="a checkout, set up (this one)")
    add("--new", type=Path, default=ROOT, help="a checkout, set up (this one)")
    add("--words", default="", help="more options of penstock bench for --new")
    add("--count", type=int, default=30_000, help="messages")


INSTRUCTIONS: Final = Table(
    "instructions",
    "Instructions per message of two builds",
    "Both under callgrind, which counts the instructions of the broker's process. How full batches"
    " were changes with other load. An instruction is not a time: a checksum of 1 KB takes"
    " thousands of them in little time, so a function whose share grew says more than the sum.",
    [Row(one.name, one.title, count_row(one)) for one in SCENARIOS if one.figure != LATENCY],
    {"": Section("", (Column("instructions", "instructions", thousands, -1),))},
    lambda given, row: [
        Counted("new", given.new.resolve(), given.words),
        Counted("old", given.old.resolve(), ""),
    ],
    options=instruction_options,
    defaults={"rounds": 2, "write": "", "alone": True},
    tried={"count": 500},
    guard_base=1.0,
    lacking=no_valgrind,
)


def cachegrind(row: str, part: str, rounds: int) -> tuple[int, int]:
    """(instructions, messages) of a process of ``core_count``."""
    command = ["valgrind", "--tool=cachegrind", "--cache-sim=no"]
    command += ["--cachegrind-out-file=/dev/null", sys.executable, "-m", "benchmarks.core_count"]
    done = subprocess.run(
        [*command, row, part, str(rounds)],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": "0", "PYTHONPATH": str(ROOT / "src")},
    )
    (found,) = re.findall(r"I +refs: +([0-9,]+)", done.stderr)
    return int(found.replace(",", "")), int(done.stdout)


def core_instructions(row: str) -> Callable[[Any, Given], Figures]:
    def measure(side: Setting, given: Given) -> Figures:
        few, many = (cachegrind(row, side.key, rounds) for rounds in (FEW, MANY))
        return {"instructions": (many[0] - few[0]) / (many[1] - few[1])}

    return measure


CORE_INSTRUCTIONS: Final = Table(
    "instructions-core",
    "Instructions per message without sockets",
    "The broker without sockets under cachegrind, for few and for many messages, so that what"
    " starting costs cancels out: with the event log, with samples, and with neither.",
    [
        Row("auto-ack", "16 B, auto-ack", core_instructions("auto-ack")),
        Row("acknowledged", "16 B, acknowledged", core_instructions("acknowledged")),
    ],
    {"": Section("", (Column("instructions", "instructions", tenths, -1),))},
    lambda given, row: [
        Setting("events", "with the event log"),
        Setting("samples", "with samples"),
        Setting("neither", "with neither"),
    ],
    defaults={"rounds": 1, "alone": True},
    lacking=no_valgrind,
)

TABLES: Final = (CORE_TABLE, CREDIT, EVENTS, SAMPLING, INSTRUCTIONS, CORE_INSTRUCTIONS)
