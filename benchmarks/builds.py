"""Two builds of Penstock in turn: did a change make it slower?

    python benchmarks/builds.py --old ../penstock-before                all rows of compare.py
    python benchmarks/builds.py --old ../penstock-before --only safe --rounds 9

``--old`` and ``--new`` (default: this checkout) are checkouts in which ``make setup`` has run.
Both brokers run at the same time on one core, the generator of this checkout on the other drives
one after the other, and every round begins with the other one.  Two ratios count, each the median
of the rounds' own, new over old: messages per second, and messages per second of processor time,
which other load on the machine disturbs less.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from benchmarks.compare import PinnedPenstock, favour, measure  # noqa: E402
from benchmarks.scenarios import LATENCY, Scenario, chosen  # noqa: E402
from benchmarks.tables import Result, machine  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"


class Checkout(PinnedPenstock):
    """The broker of a checkout, with the Python that its own ``make setup`` made."""

    def __init__(self, root: Path, core: int, generator_cores: str) -> None:
        super().__init__(core, generator_cores, pure=False)
        self.root = root

    def command(self) -> list[str]:
        own = str(self.root / ".venv" / "bin" / "python")
        return [own if word == sys.executable else word for word in super().command()]

    def environment(self) -> dict[str, str]:
        return super().environment() | {"PYTHONPATH": str(self.root / "src")}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Two builds of Penstock in turn.")
    parser.add_argument("--old", type=Path, required=True, help="a checkout, set up")
    parser.add_argument("--new", type=Path, default=ROOT, help="a checkout, set up (this one)")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--warmup", type=float, default=0.7)
    parser.add_argument("--only", default="", help="names or beginnings of names, with commas")
    parser.add_argument("--broker-core", type=int, default=0)
    parser.add_argument("--generator-cores", default="1")
    parser.add_argument("--favoured", action="store_true", help="take precedence (needs root)")
    parser.add_argument("--write", default="", help="name of the result in benchmarks/results")
    given = parser.parse_args()
    given.old, given.new = given.old.resolve(), given.new.resolve()
    return given


def main() -> int:
    given = arguments()
    rows = [compare(scenario, given) for scenario in chosen(given.only)]
    worst = min(rows, key=lambda row: row["cpu"])
    print(f"\nlowest: {worst['name']} {worst['cpu']:.3f}")
    if given.write:
        write(rows, given)
    return 0


def compare(scenario: Scenario, given: argparse.Namespace) -> Result:
    pairs: list[tuple[Result, Result]] = []
    with ExitStack() as stack:
        made = [
            Checkout(r, given.broker_core, given.generator_cores) for r in (given.new, given.old)
        ]
        new, old = (stack.enter_context(broker) for broker in made)
        if given.favoured:
            favour(new.pid)
            favour(old.pid)
        for number in range(given.rounds):
            order = (new, old) if number % 2 else (old, new)
            results = {id(broker): measure(scenario, broker, given) for broker in order}
            pairs.append((results[id(new)], results[id(old)]))
    cpu = [o["broker"]["cpu_us_per_message"] / n["broker"]["cpu_us_per_message"] for n, o in pairs]
    row = {"name": scenario.name, "title": scenario.title, "cpu": median(cpu), "cpu_rounds": cpu}
    if scenario.figure == LATENCY:
        rate = [o[LATENCY]["p50"] / n[LATENCY]["p50"] for n, o in pairs]
    else:
        rate = [n[scenario.figure] / o[scenario.figure] for n, o in pairs]
    row |= {"rate": median(rate), "rate_rounds": rate}
    print(
        f"{scenario.name:<26} rate {row['rate']:.3f} [{min(rate):.2f}..{max(rate):.2f}]"
        f"   per CPU {row['cpu']:.3f} [{min(cpu):.2f}..{max(cpu):.2f}]",
        flush=True,
    )
    return row


def commit(root: Path) -> str:
    command = ["git", "-C", str(root), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def write(rows: list[Result], given: argparse.Namespace) -> None:
    today = dt.datetime.now(tz=dt.UTC).date().isoformat()
    about = {"date": today, "machine": machine(), "rounds": given.rounds}
    words = f"--old {commit(given.old)} --rounds {given.rounds} --seconds {given.seconds:g}"
    where = about["machine"]
    lines = [
        f"# Two builds in turn: {commit(given.new)} over {commit(given.old)}, {about['date']}",
        "",
        f"`benchmarks/builds.py {words}` on {where['cores']} cores, {where['cpu']},",
        f"{where['python']}. Medians of {given.rounds} rounds, [lowest..highest]; above 1 the",
        "new build is faster. For latency, the rate is old p50 over new p50.",
        "",
        "| row | rate, new / old | messages per processor second, new / old |",
        "|---|---|---|",
    ]
    for row in rows:
        cells = (
            f"{row[key]:.3f} [{min(row[key + '_rounds']):.2f}..{max(row[key + '_rounds']):.2f}]"
            for key in ("rate", "cpu")
        )
        lines.append(f"| {row['title']} | {' | '.join(cells)} |")
    file = RESULTS / f"{about['date']}-{given.write}.md"
    file.write_text("\n".join(lines) + "\n")
    file.with_suffix(".json").write_text(json.dumps(about | {"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    raise SystemExit(main())
