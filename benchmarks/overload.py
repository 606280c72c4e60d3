"""Overload: Penstock beside the RabbitMQ that is installed here, in one run, in turn.

For each row both brokers are started anew with the same memory limit, one after the other, on
127.0.0.1 with directories of their own that are deleted before the next begins.  Results are
written after every row, so that a run that is broken off has not been for nothing.

    python benchmarks/overload.py                          all rows, about twenty-five minutes
    python benchmarks/overload.py --only slow              rows whose names begin so
    python benchmarks/overload.py --seconds 5 --pure       does it work?
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from shutil import disk_usage
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

import penstock  # noqa: E402
from benchmarks.compare import all_cores, favour, is_compiled, shown_arguments  # noqa: E402
from benchmarks.overload_page import page  # noqa: E402
from benchmarks.storage import end, git, note_version, shortened, without_dir  # noqa: E402
from benchmarks.storage_brokers import (  # noqa: E402
    Broker,
    StoredPenstock,
    StoredRabbit,
    Watch,
    file_system,
)
from benchmarks.storage_page import NAMES, OURS, THEIRS, Rounds  # noqa: E402
from benchmarks.tables import machine  # noqa: E402
from penstock.client.amqp import Connection, Endpoint  # noqa: E402
from penstock.client.load import __file__ as generator_file  # noqa: E402
from tests.helpers.administer import MEMORY, administer  # noqa: E402
from tests.helpers.rabbit import missing_reason  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"
LOAD = ROOT / "benchmarks" / "overload_load.py"
QUEUE = "overload"
PEER_MEMORY = "vm_memory_high_watermark.absolute = {mb}MB\n"
DISK_RESERVE = 1.5
"""What a broker may take over the bodies it was sent, and the free space RabbitMQ insists on."""
LOAD_LIMIT_S = 1800.0
PAUSE_S = 1.0

Result = dict[str, Any]


class Row(NamedTuple):
    """``window``: a publisher's unconfirmed messages; ``prefetch`` is the draining consumer's."""

    name: str
    size: int
    has_consumer: bool
    window: int
    prefetch: int
    alarm: bool = False
    """In the second third of the time the memory alarm is on, by the operator's command."""

    @property
    def title(self) -> str:
        return "1 KB" if self.size < 10_000 else "1 MB"

    @property
    def consumer(self) -> str:
        if self.alarm:
            return "slow, alarm"
        return "slow" if self.has_consumer else "none"


ROWS = (
    Row("none-1k", 1024, False, 1000, 1000),
    Row("none-1m", 1_000_000, False, 20, 50),
    Row("slow-1k", 1024, True, 1000, 1000),
    Row("slow-1m", 1_000_000, True, 20, 50),
    Row("alarm-1k", 1024, True, 1000, 1000, alarm=True),
    Row("alarm-1m", 1_000_000, True, 20, 50, alarm=True),
)


class LimitedRabbit(StoredRabbit):
    """With a memory limit; everything else is default."""

    def __init__(self, cores: str, generator_cores: str, memory_mb: int) -> None:
        super().__init__(cores, generator_cores)
        self._config = PEER_MEMORY.format(mb=memory_mb)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Overload: Penstock and RabbitMQ in turn on 127.0.0.1.",
        epilog="What the numbers mean: benchmarks/README.md",
    )
    add = parser.add_argument
    add("--seconds", type=float, default=60.0, help="how long publishers push (60)")
    add("--publishers", type=int, default=8, help="connections that publish (8)")
    add("--memory-mb", type=int, default=256, help="memory limit of both brokers (256)")
    add("--consumer-rate", type=float, default=200.0, help="slow: messages per second (200)")
    add("--consumer-prefetch", type=int, default=10, help="slow: prefetch (10)")
    add("--disk-gb", type=float, default=20.0, help="bodies a row may publish (20)")
    add("--rounds", type=int, default=1, help="pairs per row (1)")
    add("--only", default="", help="names or beginnings of names, with commas")
    add("--pure", action="store_true", help="run Penstock interpreted")
    add("--broker-cores", default="0", help="Penstock's cores, like 0 or 0,1 (0)")
    add("--generator-cores", default="1", help="the generator's beside Penstock (1)")
    add("--rabbit-same-cores", action="store_true", help="place RabbitMQ as Penstock")
    add(
        "--favoured",
        action="store_true",
        help="brokers take precedence over other work on this machine (needs root)",
    )
    add("--dir", type=Path, help="where the brokers' directories are made (the system's choice)")
    add("--out", type=Path, default=RESULTS, help="directory of the results")
    given = parser.parse_args()
    for name in ("seconds", "publishers", "memory_mb", "rounds", "consumer_prefetch"):
        if getattr(given, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1")
    if given.publishers > 999:
        parser.error("--publishers are 999 at most")
    known = os.sched_getaffinity(0)
    if not {*map(int, f"{given.broker_cores},{given.generator_cores}".split(","))} <= known:
        parser.error(f"there are only the cores {sorted(known)}")
    return given


def chosen_rows(only: str) -> list[Row]:
    wanted = tuple(filter(None, only.split(",")))
    rows = [row for row in ROWS if not wanted or row.name.startswith(wanted)]
    if not rows:
        raise SystemExit(f"no row begins with {only}; there are {', '.join(r.name for r in ROWS)}")
    return rows


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
                print(f"{row.name:<8} round {number}  {shown(side, pair[side])}", flush=True)
                write(report, rows, rounds, given)
                time.sleep(PAUSE_S)
    print()
    print(page(report, rows, rounds))
    return 1 if failed else 0


def make(side: str, given: argparse.Namespace) -> Broker:
    cores = (given.broker_cores, given.generator_cores)
    if side == OURS:
        return StoredPenstock(*cores, given.pure, given.memory_mb * 1_000_000)
    if given.rabbit_same_cores:
        return LimitedRabbit(*cores, given.memory_mb)
    return LimitedRabbit("", all_cores(), given.memory_mb)


def attempt(row: Row, side: str, given: argparse.Namespace, report: Result) -> Result:
    """One row on one broker; what goes wrong is a result too, and the other rows go on."""
    free_gb = disk_usage(tempfile.gettempdir()).free / 1e9
    if free_gb < given.disk_gb * DISK_RESERVE:
        return {"error": f"{free_gb:.0f} GB of disk are free, {given.disk_gb * DISK_RESERVE:g} due"}
    broker = make(side, given)
    result: Result = {}
    try:
        with broker:
            if given.favoured:
                favour(broker.pid)
            note_version(report, side, broker)
            result = measure(row, broker, given)
            end(side, broker)
    except Exception as error:
        traceback.print_exc()
        result["error"] = shortened(str(error) or repr(error), broker)
    return result


def measure(row: Row, broker: Broker, given: argparse.Namespace) -> Result:
    with Connection(Endpoint.parse(broker.url)) as connection:
        connection.channel().queue_declare(QUEUE, durable=True)
    with Watch(broker) as watch, alarm(row, broker, given):
        result = load(row, broker, given)
    drain, resumed = result["drain"], result["resumed_s"]
    accounts = result.pop("accounts")
    return result | {
        "watched": watch.result(),
        "published_each": [account["published"] for account in accounts],
        "blocked_each_s": statistics.mean(result["blocked"]["seconds"]),
        "last_resumed_s": max((s for s in resumed if s is not None), default=None),
        "drain_rate": drain["count"] / drain["seconds"] if drain["seconds"] > 0 else None,
    }


@contextmanager
def alarm(row: Row, broker: Broker, given: argparse.Namespace) -> Iterator[None]:
    """Where the row says so, nobody may publish in the second third of its time."""
    if not row.alarm:
        yield
        return
    over = threading.Event()

    def raise_and_clear() -> None:
        for limit in (("0",), ("absolute", f"{given.memory_mb}MB")):
            over.wait(given.seconds / 3)
            administer(broker, MEMORY, *limit)

    with ThreadPoolExecutor(1) as operator:
        raised = operator.submit(raise_and_clear)
        try:
            yield
        finally:
            over.set()
        raised.result()


def load(row: Row, broker: Broker, given: argparse.Namespace) -> Result:
    words: dict[str, object] = {
        "uri": broker.url,
        "queue": QUEUE,
        "size": row.size,
        "publishers": given.publishers,
        "window": row.window,
        "seconds": given.seconds,
        "consumer-rate": given.consumer_rate if row.has_consumer else 0,
        "consumer-prefetch": given.consumer_prefetch,
        "drain-prefetch": row.prefetch,
        "limit-bytes": int(given.disk_gb * 1e9),
    }
    command = [
        *("taskset", "-c", broker.generator_cores, sys.executable, str(LOAD)),
        *(text for name, value in words.items() for text in (f"--{name}", str(value))),
    ]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=LOAD_LIMIT_S
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip() or f"the generator ended with {done.returncode}")
    found: Result = json.loads(done.stdout)
    return found


def shown(side: str, result: Result) -> str:
    """One line for whoever waits."""
    name = f"{NAMES[side]:<9}"
    if "error" in result:
        return f"{name} failed: {result['error']}"
    totals, blocked = result["totals"], result["blocked"]
    return (
        f"{name} {result['overload']['rate']:,.0f} msg/s confirmed, "
        f"{result['watched']['rss_peak_mb']:,.0f} MB resident, blocked {blocked['times']} times, "
        f"{result['resumed']} resumed, {totals['lost']} of {totals['confirmed']:,} lost"
    )


def describe(given: argparse.Namespace) -> Result:
    changed = "+changes" if git("status", "--porcelain", "--untracked-files=no") else ""
    ours = f"cores {given.broker_cores}, generator on {given.generator_cores}"
    theirs = ours if given.rabbit_same_cores else "broker and generator on all cores"
    words = shown_arguments(without_dir(sys.argv[1:]))
    amounts = ("seconds", "publishers", "memory_mb", "consumer_rate", "consumer_prefetch")
    return {
        "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "machine": machine(),
        "file_system": file_system(Path(tempfile.gettempdir())),
        "command": shlex.join(["python", "benchmarks/overload.py", *words]),
        "rounds": given.rounds,
        "amounts": {name: getattr(given, name) for name in (*amounts, "disk_gb")},
        OURS: {
            "version": penstock.__version__,
            "build": "interpreted" if given.pure else "compiled",
            "commit": git("rev-parse", "--short", "HEAD") + changed,
            "cores": ours,
        },
        THEIRS: {"cores": theirs},
    }


def write(
    report: Result, rows: list[Row], rounds: dict[str, Rounds], given: argparse.Namespace
) -> None:
    kind = [*filter(None, given.only.split(",")), report[OURS]["build"]]
    given.out.mkdir(parents=True, exist_ok=True)
    path = given.out / f"{report['date']}-overload-{'-'.join(kind)}"
    data = report | {
        "rows": {
            row.name: {"title": row.title, "consumer": row.consumer, "rounds": rounds[row.name]}
            for row in rows
            if rounds[row.name]
        }
    }
    path.with_suffix(".json").write_text(json.dumps(data, indent=1) + "\n")
    path.with_suffix(".md").write_text(page(report, rows, rounds))


if __name__ == "__main__":
    sys.exit(main())
