"""Consumers that never read their sockets, beside healthy ones: Penstock and RabbitMQ in turn.

For each row a broker is started anew.  Healthy consumers with a queue each are kept busy by a
publisher; then the slow ones come and find a full queue, or one each.  What it costs the broker is
the growth of its resident memory while they are there, connections included (the row ``idle`` has
only those: its queue is empty); what it costs the others is their rate, before and beside.

    python benchmarks/slow_consumers.py                 1000 slow ones, all rows
    python benchmarks/slow_consumers.py --slow 200 --only shared --pure
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from benchmarks.compare import is_compiled  # noqa: E402
from benchmarks.storage_brokers import Broker, StoredPenstock, StoredRabbit  # noqa: E402
from benchmarks.storage_page import NAMES, OURS, THEIRS  # noqa: E402
from benchmarks.tables import machine  # noqa: E402
from penstock.client.load import __file__ as generator_file  # noqa: E402
from tests.helpers.rabbit import missing_reason  # noqa: E402
from tests.helpers.slow_consumers import (  # noqa: E402
    Traffic,
    allow_sockets,
    enter,
    fill,
    publishes,
    resident_bytes,
    sleepers,
)

RESULTS = ROOT / "benchmarks" / "results"
KEPT: Final = 0.9
"""What the healthy ones are promised of their rate."""
SAMPLES: Final = 5

Result = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """``each_bytes``: what waits for each slow consumer; ``shared``: in one queue for all."""

    name: str
    size: int
    each_bytes: int
    shared: bool


ROWS: Final = (
    Row("idle", 1000, 0, shared=True),
    Row("shared", 1000, 600_000, shared=True),
    Row("each", 1000, 600_000, shared=False),
    Row("large", 100_000, 600_000, shared=True),
)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--slow", type=int, default=1000, help="consumers that do not read (1000)")
    add("--healthy", type=int, default=4, help="consumers that do (4)")
    add("--size", type=int, default=1000, help="body bytes of what the healthy ones get (1000)")
    add("--seconds", type=float, default=2.0, help="one of five samples of a rate (2)")
    add("--memory-limit-mb", type=int, default=1024, help="Penstock's limit (1024)")
    add("--only", default="", help="names or beginnings of names, with commas")
    add("--pure", action="store_true", help="run Penstock interpreted")
    add("--broker-cores", default="0", help="Penstock's cores, like 0 or 0,1 (0)")
    add("--generator-cores", default="1", help="the generator's beside Penstock (1)")
    add("--out", type=Path, default=RESULTS, help="directory of the results")
    return parser.parse_args()


def start(side: str, given: argparse.Namespace) -> Broker:
    if side == OURS:
        limit = given.memory_limit_mb << 20
        return StoredPenstock(given.broker_cores, given.generator_cores, given.pure, limit)
    return StoredRabbit("", given.generator_cores)


def queues_of(row: Row, url: str, slow: int) -> list[str]:
    """The queue of each slow consumer, filled."""
    if row.shared:
        fill(url, "full", slow * row.each_bytes // row.size, row.size)
        return ["full"] * slow
    names = [f"full-{number}" for number in range(slow)]
    client = enter(url)
    for name in names:
        client.call(1, "queue.declare", queue=name, durable=True)
        client.sock.sendall(publishes(name, row.each_bytes // row.size, row.size))
    client.call(1, "queue.declare", queue=names[-1], passive=True)
    client.close_socket()
    return names


def rate(traffic: Traffic, seconds: float) -> float:
    return statistics.median(traffic.rate(seconds) for _ in range(SAMPLES))


def measure(row: Row, side: str, given: argparse.Namespace) -> Result:
    with start(side, given) as broker:
        os.sched_setaffinity(0, {int(core) for core in given.generator_cores.split(",")})
        queues = queues_of(row, broker.url, given.slow)
        pid = broker.broker_pid()
        with Traffic(broker.url, given.healthy, given.size) as traffic:
            traffic.rate(given.seconds)
            alone = rate(traffic, given.seconds)
            before = resident_bytes(pid)
            with sleepers(broker.url, queues):
                traffic.rate(given.seconds)
                beside = rate(traffic, given.seconds)
                grown = resident_bytes(pid) - before
    return {
        "alone_mb_s": round(alone / 1e6, 1),
        "beside_mb_s": round(beside / 1e6, 1),
        "kept": round(beside / alone, 3),
        "grown_mb": round(grown / 1e6, 1),
    }


def cell(found: Result) -> str:
    if "error" in found:
        return f"failed: {found['error']}"
    kept = f"{found['kept']:.0%}"
    rates = f"{found['alone_mb_s']} → {found['beside_mb_s']} MB/s ({kept})"
    return f"{rates}, {found['grown_mb']:+} MB RSS"


def page(report: Result, results: dict[str, dict[str, Result]]) -> str:
    here = report["machine"]
    introduction = (
        f"{here['cpu']}, {here['cores']} cores. {report['slow']} consumers that never read beside"
        f" {report['healthy']} that do; deliveries of the healthy ones before and beside them, and"
        " how much the broker's resident memory grew."
    )
    lines = [
        f"# Slow consumers, {report['date']}",
        "",
        introduction,
        "",
        f"| row | {NAMES[OURS]} | {NAMES[THEIRS]} |",
        "|---|---|---|",
    ]
    lines += [
        f"| {name} | {cell(sides[OURS])} | {cell(sides[THEIRS])} |"
        for name, sides in results.items()
        if len(sides) == 2
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    given = arguments()
    reason = missing_reason()
    if not given.pure and not is_compiled(generator_file):
        reason = "this checkout is not compiled: run `make setup` first, or give --pure"
    if reason:
        print(f"error: {reason}", file=sys.stderr)
        return 1
    allow_sockets(2 * given.slow + 1000)
    report: Result = {
        "date": dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": machine(),
        "slow": given.slow,
        "healthy": given.healthy,
        "size": given.size,
        "interpreted": given.pure,
    }
    wanted = tuple(part for part in given.only.split(",") if part)
    results: dict[str, dict[str, Result]] = {}
    failed = False
    kind = "interpreted" if given.pure else "compiled"
    stem = given.out / f"{report['date'][:10]}-slow-consumers-{kind}"
    given.out.mkdir(parents=True, exist_ok=True)
    for row in ROWS:
        if wanted and not row.name.startswith(wanted):
            continue
        sides = results.setdefault(row.name, {})
        for side in (THEIRS, OURS):
            try:
                sides[side] = measure(row, side, given)
            except Exception as error:
                sides[side] = {"error": str(error)[:200]}
                failed = True
            print(f"{row.name:<8} {NAMES[side]:<10} {cell(sides[side])}", flush=True)
            time.sleep(1.0)
        Path(f"{stem}.json").write_text(json.dumps({**report, "rows": results}, indent=1) + "\n")
        Path(f"{stem}.md").write_text(page(report, results))
    promised = all(sides[OURS].get("kept", 0) >= KEPT for sides in results.values())
    print("" if promised else f"the healthy ones kept less than {KEPT:.0%} of their rate")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
