"""What the event log costs in instructions, counted by valgrind: exact where a clock is not.

    .venv/bin/python benchmarks/events_count.py        about a minute a row on a quiet machine

``bench_core`` runs under cachegrind with the log and without, each for few and for many messages,
so that what starting costs cancels out.  Time goes by the messages, ``NS_PER_MESSAGE`` each, or
what is done four times a second would be counted as if the broker were as slow as it is here.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from benchmarks import bench_core  # noqa: E402

NS_PER_MESSAGE = 4000
START_NS = 1_700_000_000 * 10**9
FEW, MANY = 10, 60


class MessageClock:
    """Stands in for ``time`` in ``bench_core``; ends the run after so many rounds."""

    process_time = staticmethod(time.process_time)

    def __init__(self, rounds: int) -> None:
        self._left = rounds + 1
        self.benches: list[bench_core.Bench] = []

    def monotonic(self) -> float:
        self._left -= 1
        return 0.0 if self._left >= 0 else 1e9

    def time_ns(self) -> int:
        return START_NS + self.messages() * NS_PER_MESSAGE

    def messages(self) -> int:
        queues = [one.broker.vhosts["/"].queues.get("q") for one in self.benches]
        return sum(int(queue.statistics.delivered_count) for queue in queues if queue is not None)


def load(no_ack: bool, events: bool, rounds: int) -> int:
    """The load itself, in the process that is counted; returns how many messages it was."""
    clock = MessageClock(rounds)
    begin = bench_core.Bench.__init__

    def begin_noted(self: bench_core.Bench, *words: object) -> None:
        begin(self, *words)  # type: ignore[arg-type]
        clock.benches.append(self)

    bench_core.Bench.__init__ = begin_noted  # type: ignore[method-assign,assignment]
    vars(bench_core)["time"] = clock
    bench_core.run(16, False, no_ack, False, 1.0, events=events)
    return clock.messages()


def counted(*words: str) -> tuple[int, int]:
    """(instructions, messages)"""
    command = ["valgrind", "--tool=cachegrind", "--cache-sim=no"]
    command += ["--cachegrind-out-file=/dev/null", sys.executable, __file__, *words]
    environment = os.environ | {"PYTHONHASHSEED": "0"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    (found,) = re.findall(r"I +refs: +([0-9,]+)", done.stderr)
    return int(found.replace(",", "")), int(done.stdout)


def per_message(row: str, events: str) -> float:
    few, many = (counted(row, events, str(rounds)) for rounds in (FEW, MANY))
    return (many[0] - few[0]) / (many[1] - few[1])


def main() -> int:
    if len(sys.argv) > 1:
        row, events, rounds = sys.argv[1:]
        print(load(row == "auto-ack", events == "on", int(rounds)))
        return 0
    if shutil.which("valgrind") is None:
        print("error: there is no valgrind here", file=sys.stderr)
        return 1
    for row in ("auto-ack", "acknowledged"):
        on, off = per_message(row, "on"), per_message(row, "off")
        print(f"{row:14} {on:7.0f} with the log, {off:7.0f} without: {100 * (on / off - 1):+.2f} %")
    return 0


if __name__ == "__main__":
    sys.exit(main())
