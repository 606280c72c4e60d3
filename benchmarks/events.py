"""What the event log costs: the same load on a broker that keeps one and on one that does not.

    .venv/bin/python benchmarks/events.py             rounds in turn, results/DATE-events-*.md
    .venv/bin/python benchmarks/events.py --core      only the rows without sockets

Counted is the processor time of the whole process per message, the log's writer included; the
median of the rounds' own ratios counts, not the figures.

- *core*: one process without sockets, from the decoder to the encoder (``bench_core``), so the
  kernel hides nothing; samples are taken and written as in a broker.
- *brokers*: two run side by side, alike but for the setting ``event_log``; a round drives one,
  then the other, and the next round begins with the other.  Needs a quiet machine.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from benchmarks.bench_core import run  # noqa: E402
from benchmarks.scenarios import chosen  # noqa: E402
from benchmarks.tables import machine  # noqa: E402
from penstock.server.node import is_compiled  # noqa: E402
from tests.helpers.live_broker import LiveBroker  # noqa: E402

ROWS = "auto-ack-16,ack-100-1k,ack-each-16,safe-through-1k"
CORE_ROWS = (
    ("16 B, auto-ack", (16, False, True, False)),
    ("1 KB, auto-ack", (1024, False, True, False)),
    ("1 KB, acknowledged", (1024, False, False, False)),
    ("16 B, acknowledged", (16, False, False, False)),
)
PROMISED = 1.02


class Pinned(LiveBroker):
    """On one core, so that a thread of its own is paid for on the same one."""

    def command(self) -> list[str]:
        return ["taskset", "-c", "0", *super().command()]


def main() -> int:
    parser = argparse.ArgumentParser(description="What the event log costs.")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--warmup", type=float, default=1.0)
    parser.add_argument("--core", action="store_true", help="only the rows without sockets")
    parser.add_argument("--interval", type=int, default=5, help="event_log_interval_s")
    parser.add_argument("--only", default=ROWS, help="names of benchmarks/scenarios.py")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    asked = parser.parse_args()
    build = "compiled" if is_compiled() else "interpreted"
    rows = [told(f"core: {label}", core(words, asked)) for label, words in CORE_ROWS]
    for scenario in [] if asked.core else chosen(asked.only):
        words = scenario.arguments(asked.seconds, asked.warmup)
        rows.append(told(f"brokers: {scenario.title}", measured(words, asked)))
    report = {
        "date": dt.date.today().isoformat(),
        "command": "benchmarks/events.py " + " ".join(sys.argv[1:]),
        "build": build,
        "machine": machine(),
        "rows": rows,
    }
    asked.out.mkdir(parents=True, exist_ok=True)
    name = f"{report['date']}-events-{build}"
    (asked.out / f"{name}.json").write_text(json.dumps(report, indent=1) + "\n")
    (asked.out / f"{name}.md").write_text(page(report))
    return 0


def told(label: str, pairs: list[tuple[float, float]]) -> dict[str, object]:
    ratios = [on / off for on, off in pairs]
    spread = f"[{min(ratios):.3f}..{max(ratios):.3f}]"
    print(f"{label:44} {100 * (median(ratios) - 1):+6.2f} %  {spread}", flush=True)
    return {"row": label, "ratio": round(median(ratios), 4), "us": pairs}


def core(
    words: tuple[int, bool, bool, bool], asked: argparse.Namespace
) -> list[tuple[float, float]]:
    pairs = []
    for number in range(asked.rounds):
        order = (True, False) if number % 2 == 0 else (False, True)
        took = {on: run(*words, asked.seconds, events=on) / 1000 for on in order}
        pairs.append((took[True], took[False]))
    return pairs


def measured(words: list[str], asked: argparse.Namespace) -> list[tuple[float, float]]:
    """Microseconds of the broker's processor per message: (with the log, without)."""
    interval = ("--event-log-interval-s", str(asked.interval))
    with ExitStack() as stack:
        brokers = {
            on: stack.enter_context(Pinned(None, (*interval, "--event-log", str(on).lower())))
            for on in (True, False)
        }
        pairs = []
        for number in range(asked.rounds):
            order = (True, False) if number % 2 == 0 else (False, True)
            took = {on: cost(brokers[on], words) for on in order}
            pairs.append((took[True], took[False]))
        return pairs


def cost(broker: LiveBroker, words: list[str]) -> float:
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "bench.json"
        command = ["taskset", "-c", "1", sys.executable, "-m", "penstock", "bench", *words]
        more = ["--uri", broker.url, "--pid", str(broker.pid), "--cleanup", "--json", str(out)]
        environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
        subprocess.run([*command, *more], env=environment, check=True, capture_output=True)
        found = json.loads(out.read_text())
    return float(found["broker"]["cpu_us_per_message"])


def page(report: dict) -> str:  # type: ignore[type-arg]
    lines = [
        f"# What the event log costs, {report['date']}",
        "",
        f"`{report['command'].strip()}`, {report['build']}, {report['machine']}.",
        "Processor time of the broker per message with the event log over that without, median of",
        f"rounds in turn. Promised: at most {PROMISED}.",
        "",
        "| row | with the log, µs | without, µs | ratio |",
        "|---|---|---|---|",
    ]
    for row in report["rows"]:
        on, off = (median(pair[i] for pair in row["us"]) for i in (0, 1))
        lines.append(f"| {row['row']} | {on:.2f} | {off:.2f} | {row['ratio']:.3f} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
