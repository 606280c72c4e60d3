"""What statistics cost in instructions, counted by valgrind: exact where a clock is not.

    .venv/bin/python benchmarks/sampling_count.py              samples taken, and not
    .venv/bin/python benchmarks/sampling_count.py --counters   the path alone, for two commits

As ``events_count.py``: ``bench_core`` under cachegrind for few and for many messages, so that what
starting costs cancels out.  Time goes by the messages; once in five seconds of it the queue, the
exchanges and the virtual host are read and recorded, as a walk does.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import cast

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from benchmarks import bench_core  # noqa: E402
from benchmarks.events_count import FEW, MANY, MessageClock  # noqa: E402
from penstock.management.facts.sessions import SessionInspector  # noqa: E402
from penstock.management.statistics.completing import Statistics  # noqa: E402
from penstock.management.statistics.reading import Reading  # noqa: E402

INTERVAL_S = 5


class Walker:
    """Reads and records as the sampler does, here and now."""

    def __init__(self, clock: MessageClock) -> None:
        self._clock = clock
        self.tracks = Statistics().tracks
        self._slot = 0

    def look(self, bench: bench_core.Bench) -> None:
        slot = self._clock.time_ns() // 10**9 // INTERVAL_S
        if slot == self._slot:
            return
        self._slot = slot
        reading = Reading(bench.broker, cast(SessionInspector, None))
        for tracks in self.tracks.values():
            tracks.begin(slot * INTERVAL_S)
        for name, counts in reading.queues("/", reading.queue_names("/")):
            self.tracks["queue"].record(("/", name), counts)
        for name, counts in reading.exchanges("/", reading.exchange_names("/")):
            self.tracks["exchange"].record(("/", name), counts)
        self.tracks["vhost"].record(("/",), (*reading.vhost("/"), 0, 0))
        self.tracks["cluster"].record((), (*reading.cluster(), 0, 0))


def load(no_ack: bool, samples: bool, rounds: int) -> int:
    """The load itself, in the process that is counted; returns how many messages it was."""
    clock = MessageClock(rounds)
    begin, take_turn = bench_core.Bench.__init__, bench_core.Bench.take_turn
    walker = Walker(clock)

    def begin_noted(self: bench_core.Bench, *words: object) -> None:
        begin(self, *words)  # type: ignore[arg-type]
        clock.benches.append(self)

    def take_turn_and_look(self: bench_core.Bench) -> None:
        take_turn(self)
        walker.look(self)

    bench_core.Bench.__init__ = begin_noted  # type: ignore[method-assign,assignment]
    if samples:
        bench_core.Bench.take_turn = take_turn_and_look  # type: ignore[method-assign]
    vars(bench_core)["time"] = clock
    bench_core.run(16, False, no_ack, False, 1.0)
    return clock.messages()


def counted(*words: str) -> tuple[int, int]:
    """(instructions, messages)"""
    command = ["valgrind", "--tool=cachegrind", "--cache-sim=no"]
    command += ["--cachegrind-out-file=/dev/null", sys.executable, __file__, *words]
    environment = os.environ | {"PYTHONHASHSEED": "0"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    (found,) = re.findall(r"I +refs: +([0-9,]+)", done.stderr)
    return int(found.replace(",", "")), int(done.stdout)


def per_message(row: str, samples: str) -> float:
    few, many = (counted(row, samples, str(rounds)) for rounds in (FEW, MANY))
    return (many[0] - few[0]) / (many[1] - few[1])


def main() -> int:
    if len(sys.argv) == 4:
        row, samples, rounds = sys.argv[1:]
        print(load(row == "auto-ack", samples == "on", int(rounds)))
        return 0
    if shutil.which("valgrind") is None:
        print("error: there is no valgrind here", file=sys.stderr)
        return 1
    for row in ("auto-ack", "acknowledged"):
        off = per_message(row, "off")
        if "--counters" in sys.argv:
            print(f"{row:14} {off:7.1f}")
            continue
        on = per_message(row, "on")
        print(f"{row:14} {on:7.1f} sampled, {off:7.1f} not: {100 * (on / off - 1):+.3f} %")
    return 0


if __name__ == "__main__":
    sys.exit(main())
