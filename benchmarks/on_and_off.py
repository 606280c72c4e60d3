"""Two brokers side by side, alike but for one setting: what does it cost to have it on?

Used by ``events.py`` and ``sampling.py``.  A round drives one, then the other, and the next round
begins with the other.  Counted is the processor time of the whole process per message; the median
of the rounds' own ratios counts, not the figures.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.tables import machine
from penstock.node.node import is_compiled
from tests.helpers.live_broker import LiveBroker

ROOT = Path(__file__).resolve().parents[1]

Pairs = list[tuple[float, float]]
"""Microseconds per message of each round: with it on, with it off."""


class Pinned(LiveBroker):
    """On one core, so that a thread of its own is paid for on the same one."""

    def command(self) -> list[str]:
        return ["taskset", "-c", "0", *super().command()]


def parser(what: str, seconds: float, rows: str) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=what)
    made.add_argument("--rounds", type=int, default=9)
    made.add_argument("--seconds", type=float, default=seconds)
    made.add_argument("--warmup", type=float, default=1.0)
    made.add_argument("--only", default=rows, help="names of benchmarks/scenarios.py")
    made.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    return made


def in_turn(rounds: int, one: Callable[[bool], float]) -> Pairs:
    """``one`` drives it with the setting on or off, and says what a message cost."""
    pairs = []
    for number in range(rounds):
        order = (True, False) if number % 2 == 0 else (False, True)
        took = {on: one(on) for on in order}
        pairs.append((took[True], took[False]))
    return pairs


def measured(words: list[str], rounds: int, flags: Callable[[bool], tuple[str, ...]]) -> Pairs:
    """``flags`` of the broker that has it on, and of the one that has not."""
    with ExitStack() as stack:
        brokers = {on: stack.enter_context(Pinned(None, flags(on))) for on in (True, False)}
        return in_turn(rounds, lambda on: cost(brokers[on], words))


def cost(broker: LiveBroker, words: list[str]) -> float:
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "bench.json"
        command = ["taskset", "-c", "1", sys.executable, "-m", "penstock", "bench", *words]
        more = ["--uri", broker.url, "--pid", str(broker.pid), "--cleanup", "--json", str(out)]
        environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
        subprocess.run([*command, *more], env=environment, check=True, capture_output=True)
        found = json.loads(out.read_text())
    return float(found["broker"]["cpu_us_per_message"])


def told(label: str, pairs: Pairs) -> dict[str, Any]:
    ratios = [on / off for on, off in pairs]
    spread = f"[{min(ratios):.3f}..{max(ratios):.3f}]"
    print(f"{label:44} {100 * (median(ratios) - 1):+6.2f} %  {spread}", flush=True)
    return {"row": label, "ratio": round(median(ratios), 4), "us": pairs}


def write(
    out: Path,
    name: str,
    rows: list[dict[str, Any]],
    page: Callable[[dict[str, Any]], str],
    **more: Any,
) -> None:
    """``DATE-name-build.json`` and ``.md``."""
    report = {
        "date": dt.date.today().isoformat(),
        "command": f"benchmarks/{name}.py " + " ".join(sys.argv[1:]),
        "build": "compiled" if is_compiled() else "interpreted",
        "machine": machine(),
        "rows": rows,
        **more,
    }
    out.mkdir(parents=True, exist_ok=True)
    file = f"{report['date']}-{name}-{report['build']}"
    (out / f"{file}.json").write_text(json.dumps(report, indent=1) + "\n")
    (out / f"{file}.md").write_text(page(report))


def page(report: dict[str, Any], title: str, says: list[str], words: str) -> str:
    """``words``: what is on, as "the log"; ``says``: lines about what is compared."""
    lines = [
        f"# {title}, {report['date']}",
        "",
        f"`{report['command'].strip()}`, {report['build']}, {report['machine']}.",
        *says,
        "",
        f"| row | with {words}, µs | without, µs | ratio |",
        "|---|---|---|---|",
    ]
    for row in report["rows"]:
        on, off = (median(pair[i] for pair in row["us"]) for i in (0, 1))
        lines.append(f"| {row['row']} | {on:.2f} | {off:.2f} | {row['ratio']:.3f} |")
    return "\n".join(lines) + "\n"
