"""Long queues: Penstock beside the RabbitMQ that is installed here, in one run, in turn.

For each row both brokers are started anew, one after the other, on 127.0.0.1 with directories
of their own that are deleted before the next begins.  Results are written after every row, so
that a run that is broken off has not been for nothing.

    python benchmarks/storage.py                           all rows, about half an hour
    python benchmarks/storage.py --only fill-lazy,restart  rows whose names begin so
    python benchmarks/storage.py --count 1000000           a shorter fill
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import asdict
from pathlib import Path
from shutil import disk_usage
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
from benchmarks.storage_brokers import (  # noqa: E402
    Broker,
    StoredPenstock,
    StoredRabbit,
    file_system,
)
from benchmarks.storage_page import NAMES, OURS, THEIRS, Rounds, page  # noqa: E402
from benchmarks.storage_rows import Amounts, Row, chosen_rows, lacking_room  # noqa: E402
from benchmarks.tables import machine  # noqa: E402
from penstock.client.amqp import Connection, Endpoint  # noqa: E402
from penstock.client.load import __file__ as generator_file  # noqa: E402
from tests.helpers.rabbit import missing_reason  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"
PAUSE_S = 1.0
ERROR_LENGTH = 400

Result = dict[str, Any]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Long queues: Penstock and RabbitMQ in turn on 127.0.0.1.",
        epilog="What the numbers mean: benchmarks/README.md",
    )
    add = parser.add_argument
    add("--count", type=int, default=10_000_000, help="fill: Penstock's messages (10,000,000)")
    add("--peer-count", type=int, default=1_000_000, help="fill: RabbitMQ's (1,000,000)")
    add("--restart-count", type=int, default=1_000_000, help="restart: messages (1,000,000)")
    add(
        "--space-count",
        type=int,
        default=1_000_000,
        help="space: messages of 1 KB, and a fifth as many of 8 KB (1,000,000)",
    )
    add("--probe-seconds", type=float, default=15.0, help="responsiveness: time of filling (15)")
    add("--settle-seconds", type=float, default=10.0, help="space: no change for so long (10)")
    add("--size", type=int, default=1024, help="body bytes of fill, restart, responsiveness (1024)")
    add("--window", type=int, default=2000, help="unconfirmed messages at most (2000)")
    add(
        "--memory-limit-mb",
        type=int,
        default=512,
        help="Penstock's limit in rows with a default queue; 0 = the broker's default (512)",
    )
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
    for name in ("count", "peer_count", "restart_count", "space_count", "window", "rounds"):
        if getattr(given, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1")
    if given.size < 16:
        parser.error("--size must leave room for the stamp of 16 bytes")
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


def amounts(given: argparse.Namespace, side: str) -> Amounts:
    return Amounts(
        fill_count=given.count if side == OURS else given.peer_count,
        restart_count=given.restart_count,
        space_count=given.space_count,
        probe_s=given.probe_seconds,
        window=given.window,
        size=given.size,
        settle_s=given.settle_seconds,
        favoured=given.favoured,
    )


def make(row: Row, side: str, given: argparse.Namespace) -> Broker:
    if side == OURS:
        limit_bytes = given.memory_limit_mb * 1_000_000 if row.limited else 0
        cores = (given.broker_cores, given.generator_cores)
        return StoredPenstock(*cores, given.pure, limit_bytes)
    if given.rabbit_same_cores:
        return StoredRabbit(given.broker_cores, given.generator_cores)
    return StoredRabbit("", all_cores())


def attempt(row: Row, side: str, given: argparse.Namespace, report: Result) -> Result:
    """One row on one broker; what goes wrong is a result too, and the other rows go on."""
    asked = amounts(given, side)
    lacking = lacking_room(row, asked)
    if lacking:
        return {"error": lacking}
    broker = make(row, side, given)
    result: Result = {}
    try:
        begin_s = time.monotonic()
        with broker:
            started_s = time.monotonic() - begin_s
            if given.favoured:
                favour(broker.pid)
            note_version(report, side, broker)
            result = row.measure(broker, asked) | {"empty_start_s": started_s}
            end(side, broker)
    except Exception as error:
        traceback.print_exc()
        result["error"] = shortened(str(error) or repr(error), broker)
    return result


def end(side: str, broker: Broker) -> None:
    """Penstock leaves in order, which fails if it wrote an error; RabbitMQ need not take time."""
    if broker.process is not None and side == THEIRS:
        broker.kill()


def note_version(report: Result, side: str, broker: Broker) -> None:
    if side == THEIRS and "version" not in report[THEIRS]:
        with Connection(Endpoint.parse(broker.url)) as connection:
            properties = connection.server_properties
        report[THEIRS] |= {name: properties[name] for name in ("version", "platform")}


def shortened(text: str, broker: Broker) -> str:
    """One line without the places of this machine; the whole went to standard error."""
    for place, name in ((str(broker.directory), "DIRECTORY"), (str(ROOT), "CHECKOUT")):
        text = text.replace(place, name)
    words = " ".join(text.split())
    return words if len(words) <= ERROR_LENGTH else f"{words[:ERROR_LENGTH]}…"


def shown(side: str, result: Result) -> str:
    """One line for whoever waits."""
    name = f"{NAMES[side]:<9}"
    if "error" in result:
        return f"{name} failed: {result['error']}"
    parts = []
    for phase, rate in (("fill", "publish_rate"), ("drain", "consume_rate")):
        if phase in result:
            load = result[phase]
            peak_mb = load["watched"]["rss_peak_mb"]
            parts.append(f"{phase} {load[rate]:,.0f} msg/s, {peak_mb:,.0f} MB resident")
    parts += [f"{how} {result[how]['seconds']:.2f} s" for how in ("kill", "clean") if how in result]
    if "amplification" in result:
        parts.append(f"disk/live {result['amplification']:.2f}")
    return f"{name} {'; '.join(parts)}"


def git(*words: str) -> str:
    command = ["git", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def describe(given: argparse.Namespace) -> Result:
    changed = "+changes" if git("status", "--porcelain", "--untracked-files=no") else ""
    place = Path(tempfile.gettempdir())
    ours = f"cores {given.broker_cores}, generator on {given.generator_cores}"
    theirs = ours if given.rabbit_same_cores else "broker and generator on all cores"
    words = shown_arguments(without_dir(sys.argv[1:]))
    return {
        "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "machine": machine(),
        "file_system": file_system(place),
        "disk_free_gb": round(disk_usage(place).free / 1e9),
        "command": shlex.join(["python", "benchmarks/storage.py", *words]),
        "rounds": given.rounds,
        "amounts": asdict(amounts(given, OURS))
        | {"peer_fill_count": given.peer_count, "memory_limit_mb": given.memory_limit_mb},
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


def without_dir(words: list[str]) -> list[str]:
    """``--dir`` names a place of this machine; a result must not."""
    kept: list[str] = []
    skip = False
    for word in words:
        if not skip and word != "--dir" and not word.startswith("--dir="):
            kept.append(word)
        skip = word == "--dir"
    return kept


def write(
    report: Result, rows: list[Row], rounds: dict[str, Rounds], given: argparse.Namespace
) -> None:
    kind = [*filter(None, given.only.split(",")), report[OURS]["build"]]
    given.out.mkdir(parents=True, exist_ok=True)
    path = given.out / f"{report['date']}-storage-{'-'.join(kind)}"
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
