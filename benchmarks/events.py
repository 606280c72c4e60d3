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
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from benchmarks import on_and_off  # noqa: E402
from benchmarks.bench_core import run  # noqa: E402
from benchmarks.scenarios import chosen  # noqa: E402

ROWS = "auto-ack-16,ack-100-1k,ack-each-16,safe-through-1k"
CORE_ROWS = (
    ("16 B, auto-ack", (16, False, True, False)),
    ("1 KB, auto-ack", (1024, False, True, False)),
    ("1 KB, acknowledged", (1024, False, False, False)),
    ("16 B, acknowledged", (16, False, False, False)),
)
PROMISED = 1.02


def main() -> int:
    parser = on_and_off.parser("What the event log costs.", 4.0, ROWS)
    parser.add_argument("--core", action="store_true", help="only the rows without sockets")
    parser.add_argument("--interval", type=int, default=5, help="event_log_interval_s")
    asked = parser.parse_args()
    rows = [on_and_off.told(f"core: {label}", core(words, asked)) for label, words in CORE_ROWS]
    interval = ("--event-log-interval-s", str(asked.interval))
    for scenario in [] if asked.core else chosen(asked.only):
        words = scenario.arguments(asked.seconds, asked.warmup)
        pairs = on_and_off.measured(
            words, asked.rounds, lambda on: (*interval, "--event-log", str(on).lower())
        )
        rows.append(on_and_off.told(f"brokers: {scenario.title}", pairs))
    on_and_off.write(asked.out, "events", rows, page)
    return 0


def core(words: tuple[int, bool, bool, bool], asked: argparse.Namespace) -> on_and_off.Pairs:
    return on_and_off.in_turn(asked.rounds, lambda on: run(*words, asked.seconds, events=on) / 1000)


def page(report: dict[str, Any]) -> str:
    says = [
        "Processor time of the broker per message with the event log over that without, median of",
        f"rounds in turn. Promised: at most {PROMISED}.",
    ]
    return on_and_off.page(report, "What the event log costs", says, "the log")


if __name__ == "__main__":
    sys.exit(main())
