"""NSQ side by side: Penstock durable, Penstock fast, and nsqd, driven by one generator.

For each row the brokers are started anew and measured in turn, A B C A B C …; each run has a topic
of its own with one channel, which is deleted afterwards.  Penstock is held to one core and the
generator to the other; nsqd may use all, as it does by default (``--nsqd-cores`` holds it).

    python benchmarks/nsq.py --nsqd PATH                    all rows, 3 rounds, own generator
    python benchmarks/nsq.py --nsqd PATH --generator PATH   another generator that speaks NSQ
    python benchmarks/nsq.py --pure --only pub              Penstock alone, interpreted
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import shlex
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

import penstock  # noqa: E402
from benchmarks.compare import is_compiled  # noqa: E402
from benchmarks.nsq_brokers import (  # noqa: E402
    DURABLE,
    FAST,
    NAMES,
    NSQD,
    Benched,
    BenchedNsqd,
    BenchedPenstock,
    Meter,
    all_cores,
    post,
)
from benchmarks.nsq_wire import subscribe  # noqa: E402
from benchmarks.tables import machine, plain, spread, thousands  # noqa: E402
from penstock.client.load import __file__ as hot_file  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"
OWN_GENERATOR: Final = ROOT / "benchmarks" / "nsq_wire.py"
RUN_LIMIT_S: Final = 180.0
PAUSE_S: Final = 0.5
FILL_BATCH: Final = 200

Result = dict[str, Any]
Rounds = list[dict[str, Result]]
"""Per round: what each broker did."""


@dataclass(frozen=True)
class Row:
    """``reading``: what was published before is read, else publishing is measured."""

    name: str
    title: str
    reading: bool = False
    batch: int = 1
    window: int = 1000
    finish_every: int = 1


ROWS: Final = (
    Row("pub", "PUB, window 1000"),
    Row("mpub", "MPUB of 200, window 2000", batch=200, window=2000),
    Row("read-each", "reader, RDY 2500, each FIN sent alone", reading=True, window=2500),
    Row(
        "read-batched",
        "reader, RDY 2500, FINs sent by the hundred",
        reading=True,
        window=2500,
        finish_every=100,
    ),
)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--nsqd", type=Path, help="the program nsqd; without it Penstock runs alone")
    add("--generator", type=Path, help="a program that takes such arguments, instead of our own")
    add("--rounds", type=int, default=3, help="turns of a row (3)")
    add("--count", type=int, default=200_000, help="messages of a run (200,000)")
    add("--size", type=int, default=200, help="body bytes (200)")
    add("--only", default="", help="names or beginnings of names, with commas")
    add("--pure", action="store_true", help="run Penstock interpreted")
    add("--broker-cores", default="0", help="Penstock's cores (0)")
    add("--nsqd-cores", default="", help="nsqd's cores (all)")
    add("--generator-cores", default="1", help="the generator's beside Penstock (1)")
    add("--out", type=Path, default=RESULTS, help="directory of the results")
    return parser.parse_args()


def start(stack: ExitStack, given: argparse.Namespace) -> dict[str, Benched]:
    brokers: dict[str, Benched] = {
        mode: BenchedPenstock(given.broker_cores, given.pure, mode) for mode in (DURABLE, FAST)
    }
    if given.nsqd:
        brokers[NSQD] = BenchedNsqd(given.nsqd, given.nsqd_cores)
    for broker in brokers.values():
        stack.enter_context(broker)
    return brokers


def own_words(row: Row, given: argparse.Namespace, port: int, topic: str) -> list[str]:
    return [
        *(sys.executable, str(OWN_GENERATOR), "read" if row.reading else "publish"),
        *("--port", str(port), "--topic", topic, "--count", str(given.count)),
        *("--size", str(given.size), "--batch", str(row.batch), "--window", str(row.window)),
        *("--finish-every", str(row.finish_every)),
    ]


def foreign_words(row: Row, given: argparse.Namespace, port: int, topic: str) -> list[str]:
    words = [str(given.generator), "--proto", "nsq", "--port", str(port), "--queue", topic]
    words += ["--size", str(given.size), "--deadline", str(int(RUN_LIMIT_S))]
    if row.reading:
        words += ["--pub", "0", "--con", "1", "--expect", str(given.count)]
        return [*words, "--prefetch", str(row.window), "--ack-every", str(row.finish_every)]
    words += ["--con", "0", "--count", str(given.count), "--confirm", str(row.window)]
    return [*words, "--mpub", str(row.batch)] if row.batch > 1 else words


def figures(row: Row, given: argparse.Namespace, said: Result) -> Result:
    """What a generator said, in one shape."""
    if not given.generator:
        return said
    if said["error"]:
        raise RuntimeError(said["error"])
    kind = ("consumed", "consume") if row.reading else ("confirmed", "publish")
    return {
        "messages": said[kind[0]],
        "rate": said[f"{kind[1]}_rate"],
        "redelivered": said["redelivered"],
        "generator_cpu_s": said["loadgen_cpu_s"],
    }


def run(command: list[str], cores: str) -> Result:
    done = subprocess.run(
        ["taskset", "-c", cores, *command],
        capture_output=True,
        text=True,
        timeout=RUN_LIMIT_S,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{shlex.join(command)}: {done.stderr or done.stdout}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def measure(row: Row, side: str, broker: Benched, number: int, given: argparse.Namespace) -> Result:
    topic = f"bench-{row.name}-{number}"
    cores = given.generator_cores if side != NSQD or given.nsqd_cores else all_cores()
    subscribe(broker.port, topic).close()  # from here on the channel exists
    if row.reading:
        filling = Row("fill", "", batch=FILL_BATCH, window=10 * FILL_BATCH)
        run(own_words(filling, given, broker.port, topic), cores)
    words = foreign_words if given.generator else own_words
    meter, busy, began = Meter(broker), busy_s(), time.monotonic()
    result = figures(row, given, run(words(row, given, broker.port, topic), cores))
    wall_s, cpu_s = time.monotonic() - began, meter.cpu_s()
    result["cpu_us_per_message"] = 1e6 * cpu_s / result["messages"]
    result["cpu_cores"] = cpu_s / wall_s
    result["rss_mb"] = meter.rss_mb()
    known_s = cpu_s + result["generator_cpu_s"]
    result["other_cores"] = max(0.0, (busy_s() - busy - known_s) / wall_s)
    post(broker, f"/topic/delete?topic={topic}")
    time.sleep(PAUSE_S)
    return result


def busy_s() -> float:
    """Processor time of the whole machine so far, less what was idle or waiting."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:8]
    ticks = [int(field) for field in fields]
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


def compare(row: Row, given: argparse.Namespace) -> Rounds:
    rounds: Rounds = []
    with ExitStack() as stack:
        brokers = start(stack, given)
        for number in range(1, given.rounds + 1):
            found = {
                side: measure(row, side, broker, number, given) for side, broker in brokers.items()
            }
            rounds.append(found)
            shown = "  ".join(f"{NAMES[side]} {one['rate']:>9,.0f}" for side, one in found.items())
            print(f"{row.name:<13} round {number}  {shown}", flush=True)
    return rounds


def ratios(rounds: Rounds, side: str) -> str:
    """Penstock over nsqd, round by round."""
    if NSQD not in rounds[0]:
        return "–"
    values = [found[side]["rate"] / found[NSQD]["rate"] for found in rounds]
    return f"**{spread(values, plain)}**"


def facts(report: Result) -> list[str]:
    where = report["machine"]
    hardware = f"{where['cores']} cores, {where['cpu']}, {where['memory_gb']} GB"
    ours = f"Penstock {report['version']} ({report['build']}), commit {report['commit']}"
    theirs = [f"- {report['nsqd']}, defaults, cores {report['nsqd_cores']}"]
    reading = "median [smallest..largest]; ratio: median of the rounds' own, Penstock over nsqd"
    meanings = "durable: OK when the message is on disk; fast: OK at once, synced a moment later"
    return [
        f"- machine: {hardware}, {where['kernel']}, {where['python']}",
        f"- {ours}, cores {report['broker_cores']}",
        *(theirs if report["nsqd"] else []),
        f"- generator: {report['generator']}; {report['size']} B, {report['count']:,} a run",
        f"- {report['rounds']} rounds in turn: {reading}",
        f"- {meanings}; nsqd says OK when it is in memory",
        f"- command: `{report['command']}`",
    ]


def page(report: Result, results: dict[str, Rounds]) -> str:
    sides = report["sides"]
    titles = {row.name: row.title for row in ROWS}
    rates = [
        f"| row | {' | '.join(NAMES[side] for side in sides)} | durable ratio | fast ratio |",
        "|---" * (len(sides) + 3) + "|",
    ]
    costs = [
        f"| row | {' | '.join(f'{NAMES[side]}: CPU µs/msg, MB' for side in sides)} | other load |",
        "|---" * (len(sides) + 2) + "|",
    ]
    for name, rounds in results.items():
        cells = [spread([found[side]["rate"] for found in rounds], thousands) for side in sides]
        cells += [ratios(rounds, DURABLE), ratios(rounds, FAST)]
        rates.append(f"| {titles[name]} | {' | '.join(cells)} |")
        cells = [cost([found[side] for found in rounds]) for side in sides]
        other = max(one["other_cores"] for found in rounds for one in found.values())
        costs.append(f"| {titles[name]} | {' | '.join(cells)} | {plain(other)} |")
    lines = [f"# Penstock and nsqd side by side, {report['date']}", "", *facts(report)]
    lines += ["", "## Messages per second", "", *rates, "", "## Cost", "", *costs]
    return "\n".join(lines) + "\n"


def cost(found: list[Result]) -> str:
    cpu = statistics.median(one["cpu_us_per_message"] for one in found)
    again = sum(one.get("redelivered", 0) for one in found)
    shown = f"{cpu:.1f}, {max(one['rss_mb'] for one in found):.0f}"
    return f"{shown}, {again} redelivered" if again else shown


def said_by(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def described(given: argparse.Namespace) -> Result:
    version = said_by(str(given.nsqd), "--version") if given.nsqd else ""
    commit = said_by("git", "-C", str(ROOT), "rev-parse", "--short", "HEAD")
    words = [word if "/" not in word else Path(word).name for word in sys.argv[1:]]
    return {
        "date": dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": machine(),
        "version": penstock.__version__,
        "build": "interpreted" if given.pure else "compiled",
        "commit": commit or "unknown",
        "broker_cores": given.broker_cores,
        "nsqd": version,
        "nsqd_cores": given.nsqd_cores or all_cores(),
        "generator": "C, a thread a connection" if given.generator else "own",
        "rounds": given.rounds,
        "count": given.count,
        "size": given.size,
        "sides": [DURABLE, FAST, *([NSQD] if given.nsqd else [])],
        "command": shlex.join(["python", "benchmarks/nsq.py", *words]),
    }


def main() -> int:
    given = arguments()
    if not given.pure and not is_compiled(hot_file):
        print("error: not compiled: run `make setup` first, or give --pure", file=sys.stderr)
        return 1
    wanted = tuple(part for part in given.only.split(",") if part)
    report = described(given)
    stem = f"{report['date'][:10]}-nsq-{report['build']}"
    given.out.mkdir(parents=True, exist_ok=True)
    results: dict[str, Rounds] = {}
    for row in ROWS:
        if wanted and not row.name.startswith(wanted):
            continue
        results[row.name] = compare(row, given)
        (given.out / f"{stem}.json").write_text(
            json.dumps({**report, "rows": results}, indent=1) + "\n"
        )
        (given.out / f"{stem}.md").write_text(page(report, results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
