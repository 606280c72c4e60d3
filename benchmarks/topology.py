"""Large topologies: Penstock beside the RabbitMQ that is installed here, in one run, in turn.

For each row both brokers are started anew, one after the other, on 127.0.0.1 with directories
of their own that are deleted before the next begins.  Results are written after every row, so
that a run that is broken off has not been for nothing.

    python benchmarks/topology.py                              all rows
    python benchmarks/topology.py --only topic,headers         rows whose names begin so
    python benchmarks/topology.py --peer-bindings 10000        fewer bindings for RabbitMQ
    python benchmarks/topology.py --bindings 500 --queues 200 --connections 100    does it work?
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import resource
import shlex
import signal
import sys
import tempfile
import time
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

import penstock  # noqa: E402
from benchmarks.compare import (  # noqa: E402
    all_cores,
    favour,
    is_compiled,
    shown_arguments,
)
from benchmarks.storage import end, git, note_version, shortened, without_dir  # noqa: E402
from benchmarks.storage_brokers import (  # noqa: E402
    Broker,
    StoredPenstock,
    StoredRabbit,
    file_system,
)
from benchmarks.storage_page import NAMES, OURS, THEIRS, Rounds  # noqa: E402
from benchmarks.tables import machine  # noqa: E402
from benchmarks.topology_page import page  # noqa: E402
from benchmarks.topology_rows import Amounts, Row, chosen_rows, held_to  # noqa: E402
from benchmarks.topology_wire import RUN  # noqa: E402
from penstock.client.load import __file__ as generator_file  # noqa: E402
from tests.helpers.rabbit import missing_reason  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"
PAUSE_S = 1.0
QUIET_S = 2.0
COUNTS = (
    *("bindings", "few_bindings", "header_bindings", "queues", "connections", "keys"),
    *("window", "rounds"),
)

Result = dict[str, Any]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Large topologies: Penstock and RabbitMQ in turn on 127.0.0.1.",
        epilog="What the numbers mean: benchmarks/README.md",
    )
    add = parser.add_argument
    add("--bindings", type=int, default=100_000, help="topic-many and stall (100,000)")
    add("--peer-bindings", type=int, default=0, help="the same for RabbitMQ; 0 = as many")
    add("--few-bindings", type=int, default=1000, help="topic-few: at most (1000)")
    add("--header-bindings", type=int, default=1000, help="headers: at most (1000)")
    add("--queues", type=int, default=10_000, help="declare (10,000)")
    add("--connections", type=int, default=5000, help="connections (5000)")
    add("--keys", type=int, default=10_000, help="routing: different keys in turn (10,000)")
    add("--size", type=int, default=100, help="routing: body bytes (100)")
    add("--in-flight", type=int, default=5000, help="routing: published, not yet consumed (5000)")
    add("--window", type=int, default=100, help="bindings asked for at a time (100)")
    add("--seconds", type=float, default=10.0, help="routing: measured time (10)")
    add("--warmup", type=float, default=2.0, help="routing: seconds before it (2)")
    add("--settle-seconds", type=float, default=5.0, help="connections: before a look (5)")
    add("--rounds", type=int, default=1, help="pairs per row (1)")
    add("--only", default="", help="names or beginnings of names, with commas")
    add("--pure", action="store_true", help="run Penstock interpreted")
    add("--broker-cores", default="0", help="Penstock's cores, like 0 or 0,1 (0)")
    add("--generator-cores", default="1", help="the generator's beside Penstock (1)")
    add("--rabbit-same-cores", action="store_true", help="place RabbitMQ as Penstock")
    add(
        "--favoured",
        action="store_true",
        help="brokers and generator take precedence over other work on this machine (needs root)",
    )
    add("--dir", type=Path, help="where the brokers' directories are made (the system's choice)")
    add("--out", type=Path, default=RESULTS, help="directory of the results")
    given = parser.parse_args()
    for name in COUNTS:
        if getattr(given, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1")
    if given.peer_bindings < 0:
        parser.error("--peer-bindings cannot be negative")
    if given.in_flight < RUN:
        parser.error(f"--in-flight must be at least {RUN}")
    known = os.sched_getaffinity(0)
    if not {*map(int, f"{given.broker_cores},{given.generator_cores}".split(","))} <= known:
        parser.error(f"there are only the cores {sorted(known)}")
    return given


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # and no broker is left behind
    given = arguments()
    rows = chosen_rows(given.only)
    reason = missing_reason()
    if not given.pure and not is_compiled(generator_file):
        reason = "this checkout is not compiled: run `make setup` first, or give --pure"
    if reason:
        print(f"error: {reason}", file=sys.stderr)
        return 1
    if given.dir is not None:
        tempfile.tempdir = str(given.dir.resolve())
    raise_descriptor_limit()
    report = describe(given)
    rounds: dict[str, Rounds] = {row.name: [] for row in rows}
    failed = False
    for row in rows:
        for number in range(1, given.rounds + 1):
            pair: Result = {}
            rounds[row.name].append(pair)
            for side in (THEIRS, OURS):
                pair[side] = attempt(row, side, given, report)
                failed = failed or "error" in pair[side]
                print(f"{row.name:<22} round {number}  {shown(side, pair[side])}", flush=True)
                write(report, rows, rounds, given)
                time.sleep(PAUSE_S)
    print()
    print(page(report, rows, rounds))
    return 1 if failed else 0


def raise_descriptor_limit() -> None:
    """As far as it goes, for this process and the brokers it starts."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def amounts(given: argparse.Namespace, side: str) -> Amounts:
    bindings = given.bindings
    if side == THEIRS and given.peer_bindings:
        bindings = given.peer_bindings
    return Amounts(
        bindings=bindings,
        few_bindings=min(given.few_bindings, given.bindings),
        header_bindings=min(given.header_bindings, given.bindings),
        queues=given.queues,
        connections=given.connections,
        keys=given.keys,
        size=given.size,
        in_flight=given.in_flight,
        window=given.window,
        seconds=given.seconds,
        warmup_s=given.warmup,
        settle_s=given.settle_seconds,
        quiet_s=QUIET_S,
        favoured=given.favoured,
    )


def make(side: str, given: argparse.Namespace) -> Broker:
    cores = (given.broker_cores, given.generator_cores)
    if side == OURS:
        return StoredPenstock(*cores, given.pure, 0)
    return StoredRabbit(*cores) if given.rabbit_same_cores else StoredRabbit("", all_cores())


def attempt(row: Row, side: str, given: argparse.Namespace, report: Result) -> Result:
    """One row on one broker; what goes wrong is a result too, and the other rows go on."""
    asked = amounts(given, side)
    lacking = row.lacking(asked)
    if lacking:
        return {"error": lacking}
    broker = make(side, given)
    result: Result = {}
    try:
        with broker:
            if given.favoured:
                favour(broker.pid)
            note_version(report, side, broker)
            with held_to(broker.generator_cores):
                result = row.measure(broker, asked)
            end(side, broker)
    except Exception as error:
        traceback.print_exc()
        result["error"] = shortened(str(error) or repr(error), broker)
    return result


def shown(side: str, result: Result) -> str:
    """One line for whoever waits."""
    name = f"{NAMES[side]:<9}"
    if "error" in result:
        return f"{name} failed: {result['error']}"
    parts = []
    if "bind" in result:
        parts.append(f"{result['bindings']:,} bindings in {result['bind']['seconds']:.1f} s")
    for phase, what in (("turn", "keys in turn"), ("fresh", "new keys")):
        if phase in result:
            parts.append(f"{what} {result[phase]['consume_rate']:,.0f} msg/s")
    parts += [
        f"{how} {result[how]['seconds']:.1f} s" for how in ("single", "pipelined") if how in result
    ]
    if "kb_each" in result:
        parts.append(f"{result['seconds']:.1f} s, {result['kb_each']:.1f} KB each")
    if "during" in result:
        longest_ms = result["during"]["answer_ms"]["max"]
        parts.append(f"{result['seconds']:.2f} s, longest answer {longest_ms:.1f} ms")
    return f"{name} {'; '.join(parts)}"


def describe(given: argparse.Namespace) -> Result:
    changed = "+changes" if git("status", "--porcelain", "--untracked-files=no") else ""
    ours = f"cores {given.broker_cores}, generator on {given.generator_cores}"
    theirs = ours if given.rabbit_same_cores else "broker and generator on all cores"
    words = shown_arguments(without_dir(sys.argv[1:]))
    return {
        "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "machine": machine(),
        "file_system": file_system(Path(tempfile.gettempdir())),
        "command": shlex.join(["python", "benchmarks/topology.py", *words]),
        "rounds": given.rounds,
        "amounts": asdict(amounts(given, OURS))
        | {"peer_bindings": amounts(given, THEIRS).bindings},
        OURS: {
            "version": penstock.__version__,
            "build": "interpreted" if given.pure else "compiled",
            "commit": git("rev-parse", "--short", "HEAD") + changed,
            "cores": ours,
        },
        THEIRS: {"cores": theirs},
        "generator": {
            "build": "compiled" if is_compiled(generator_file) else "interpreted",
            "priority": "before other work" if given.favoured else "like other work",
        },
    }


def write(
    report: Result, rows: list[Row], rounds: dict[str, Rounds], given: argparse.Namespace
) -> None:
    kind = [*filter(None, given.only.split(",")), report[OURS]["build"]]
    given.out.mkdir(parents=True, exist_ok=True)
    path = given.out / f"{report['date']}-topology-{'-'.join(kind)}"
    data = report | {
        "rows": {
            row.name: {"title": row.title, "section": row.section, "rounds": rounds[row.name]}
            for row in rows
            if rounds[row.name]
        }
    }
    path.with_suffix(".json").write_text(json.dumps(data, indent=1) + "\n")
    path.with_suffix(".md").write_text(page(report, rows, rounds))


if __name__ == "__main__":
    sys.exit(main())
