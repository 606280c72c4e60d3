"""Instructions per message of two builds: what did a change cost, on a machine that is not quiet?

    python benchmarks/instructions.py --old ../penstock-before --only ack-100-1k,safe-through-1k

    python benchmarks/instructions.py --words "--queue-arg x-queue-type=quorum" --only safe

``--old`` and ``--new`` (default: this checkout) are checkouts in which ``make setup`` has run;
``--words`` are more options of ``penstock bench`` for the second count alone.
``valgrind`` is installed.  Each broker runs under callgrind, which counts the instructions of its
process while ``penstock bench`` sends ``--count`` messages.  Other load on the machine does not
change the count; how full the batches were does, so each count is the lowest of ``--rounds``.
An instruction is not a time: a checksum of 1 KB takes thousands of them in little time, so a
function whose share grew says more than the sum.  ``builds.py`` measures times.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from benchmarks.builds import Checkout  # noqa: E402
from benchmarks.compare import run  # noqa: E402
from benchmarks.scenarios import LATENCY, Scenario, chosen  # noqa: E402

START_LIMIT_S = 120.0
WARM_UP = 3000
FUNCTIONS_SHOWN = 8
INSTRUCTIONS_SHOWN = 5
"""A function whose cost per message changed by less is not shown."""
Costs = dict[str, float]
"""Function -> instructions per message."""
LINE = re.compile(r"^\s*([\d,]+) \([ \d.]+%\)\s+(?:\S*:)?(\S.*?)(?:'\d+)?(?: \[.*)?$", re.MULTILINE)


class Counted(Checkout):
    """The broker of a checkout under callgrind, whose counter is off at first."""

    stop_timeout_s = START_LIMIT_S

    def __init__(self, root: Path, profile: Path) -> None:
        super().__init__(root, core=0, generator_cores="1")
        self.ready_timeout_s = START_LIMIT_S
        self.profile = profile

    def command(self) -> list[str]:
        pin, core, number, *broker = super().command()
        valgrind = ("valgrind", "--tool=callgrind", "--instr-atstart=no")
        return [pin, core, number, *valgrind, f"--callgrind-out-file={self.profile}", *broker]

    def count(self, on: bool) -> None:
        words = ["callgrind_control", "-i", "on" if on else "off", str(self.pid)]
        subprocess.run(words, check=True, capture_output=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Instructions per message of two builds.")
    parser.add_argument("--old", type=Path, default=ROOT, help="a checkout, set up (this one)")
    parser.add_argument("--new", type=Path, default=ROOT, help="a checkout, set up (this one)")
    parser.add_argument("--words", default="", help="more options of penstock bench for --new")
    parser.add_argument("--only", default="", help="names or beginnings of names, with commas")
    parser.add_argument("--count", type=int, default=30_000, help="messages")
    parser.add_argument("--rounds", type=int, default=2)
    return parser.parse_args()


def main() -> int:
    given = arguments()
    if shutil.which("valgrind") is None:
        print("error: valgrind is not installed (Debian: apt-get install valgrind)")
        return 1
    for scenario in chosen(given.only):
        if scenario.figure != LATENCY:
            old = lowest(scenario, given.old.resolve(), "", given)
            new = lowest(scenario, given.new.resolve(), given.words, given)
            show(scenario, old, new)
    return 0


def lowest(scenario: Scenario, root: Path, words: str, given: argparse.Namespace) -> Costs:
    options = [*scenario.options.split(), *words.split()]
    counts = (counted(options, root, given.count) for _ in range(given.rounds))
    return min(counts, key=total)


def total(costs: Costs) -> float:
    return sum(costs.values())


def counted(options: list[str], root: Path, count: int) -> Costs:
    with tempfile.TemporaryDirectory() as directory:
        profile = Path(directory) / "callgrind.out"
        with Counted(root, profile) as broker:
            bench = [sys.executable, "-m", "penstock", "bench", "--uri", broker.url, "--cleanup"]
            bench += [*options, "--json", "-", "--count"]
            run([*bench, str(WARM_UP)])
            broker.count(on=True)
            run([*bench, str(count)])
            broker.count(on=False)
            broker.stop()
        words = ["callgrind_annotate", "--threshold=100", str(profile)]
        table = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    found: Costs = defaultdict(float)
    for instructions, function in LINE.findall(table):
        if function != "PROGRAM TOTALS":
            found[function] += int(instructions.replace(",", "")) / count
    return found


def show(scenario: Scenario, old: Costs, new: Costs) -> None:
    before, now = total(old), total(new)
    print(f"{scenario.name:<22} {before:>10,.0f} {now:>10,.0f}  {now / before:.3f}", flush=True)
    changed = {name: new.get(name, 0) - old.get(name, 0) for name in old.keys() | new.keys()}
    for name in sorted(changed, key=lambda name: -abs(changed[name]))[:FUNCTIONS_SHOWN]:
        if abs(changed[name]) >= INSTRUCTIONS_SHOWN:
            print(f"    {changed[name]:>+8,.0f}  {name}")


if __name__ == "__main__":
    raise SystemExit(main())
