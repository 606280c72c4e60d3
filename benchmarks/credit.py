"""What credit flow costs on the hot path: the same publishes with it and without, in turn.

    .venv/bin/python benchmarks/credit.py            rounds in turn, results/DATE-credit-*.md

Measured in one process without sockets (``bench_core``), so the kernel hides nothing: processor
time per message from the decoder to the encoder.  The ratio of each round counts, not the figures.
Messages here are transient: without credit nothing would keep persistent ones from piling up before
the disk, and the two would not do the same work.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import sys
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from benchmarks.bench_core import run  # noqa: E402
from benchmarks.tables import machine  # noqa: E402
from penstock.node.node import is_compiled  # noqa: E402

ROWS = (
    ("16 B, auto-ack", (16, False, True, False)),
    ("1 KB, auto-ack", (1024, False, True, False)),
    ("1 KB, acknowledged", (1024, False, False, False)),
    ("200 B, each to another key", (200, True, True, False)),
)


def main() -> None:
    parser = argparse.ArgumentParser(description="What credit flow costs.")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default="", help="rows whose name has this")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    asked = parser.parse_args()
    build = "compiled" if is_compiled() else "interpreted"
    rows = []
    for label, arguments in [row for row in ROWS if asked.only in row[0]]:
        pairs = []
        for number in range(asked.rounds):
            order = (True, False) if number % 2 == 0 else (False, True)
            took = {on: run(*arguments, asked.seconds, on) for on in order}
            pairs.append((took[True], took[False]))
        ratio = median(on / off for on, off in pairs)
        rows.append({"row": label, "ratio": round(ratio, 4), "ns": pairs})
        print(f"{label:32} {100 * (ratio - 1):+6.1f} %", flush=True)
    report = {
        "date": dt.date.today().isoformat(),
        "command": "benchmarks/credit.py " + " ".join(sys.argv[1:]),
        "build": build,
        "machine": machine(),
        "rows": rows,
    }
    asked.out.mkdir(parents=True, exist_ok=True)
    name = f"{report['date']}-credit-{build}"
    (asked.out / f"{name}.json").write_text(json.dumps(report, indent=1) + "\n")
    (asked.out / f"{name}.md").write_text(page(report))


def page(report: dict) -> str:  # type: ignore[type-arg]
    lines = [
        f"# What credit flow costs, {report['date']}",
        "",
        f"`{report['command'].strip()}`, {report['build']}, {report['machine']}.",
        "Processor time per message with credit flow over that without, median of rounds in turn.",
        "",
        "| row | with credit, ns | without, ns | ratio |",
        "|---|---|---|---|",
    ]
    for row in report["rows"]:
        on, off = (median(pair[i] for pair in row["ns"]) for i in (0, 1))
        lines.append(f"| {row['row']} | {on:.0f} | {off:.0f} | {row['ratio']:.3f} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
