"""A backlog into Parquet: ``penstock pipeline archive``, Spark from memory, pika with pyarrow.

    python benchmarks/archive.py                          10 million messages of 1 KB
    python benchmarks/archive.py --count 500000           a short one
    python benchmarks/archive.py --only archive,memory    some rows

Rows: ``archive`` lands a backlog of Penstock on Spark ``local[2]``; ``memory`` has Spark write as
many rows of the same columns that its workers hold in memory; ``pika`` reads the same backlog
from RabbitMQ with pika and writes it with pyarrow; ``beside`` runs a publisher and a consumer on
another queue, alone and while an archive runs.  Everything runs on 127.0.0.1, one row after the
other, with the same bodies and the same compression.

A machine is faster in one minute than in another: the first three take turns for ``--rounds``,
each promise is the median of the rounds' ratios, and all of them are in the result.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any, Final

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from benchmarks.archive_sides import fill  # noqa: E402
from benchmarks.compare import is_compiled, shown_arguments  # noqa: E402
from benchmarks.tables import machine, thousands  # noqa: E402
from penstock.client.load import __file__ as hot_file  # noqa: E402
from penstock.client.procstat import ProcessGauge  # noqa: E402
from penstock.spark.launcher.java import find_java  # noqa: E402
from penstock.spark.launcher.java_classes import sharing_options  # noqa: E402
from tests.helpers.live_broker import LiveBroker  # noqa: E402
from tests.helpers.rabbit import RabbitServer, missing_reason  # noqa: E402

RESULTS: Final = ROOT / "benchmarks" / "results"
ROWS: Final = ("archive", "memory", "pika", "beside")
QUEUE: Final = "backlog"
RSS_EVERY_S: Final = 0.2
SHARE_OF_MEMORY_MIN: Final = 0.5
TIMES_PIKA_MIN: Final = 10.0
BESIDE_MIN: Final = 0.8

Result = dict[str, Any]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--count", type=int, default=10_000_000, help="messages of the backlog (10,000,000)")
    add("--peer-count", type=int, default=1_000_000, help="those pika has to read (1,000,000)")
    add("--size", type=int, default=1024, help="body bytes (1024)")
    add("--bodies", default="random", choices=("random", "json"), help="what they are (random)")
    add("--compression", default="zstd", help="zstd, snappy, lz4 or none (zstd)")
    add("--rounds", type=int, default=3, help="how often each row comes, but for beside (3)")
    add("--max-messages", type=int, default=2_500_000, help="of a batch (2,500,000)")
    add("--max-batch-mb", type=int, default=4096, help="of a batch (4096)")
    add("--beside-rate", type=int, default=5000, help="messages a second on the other queue (5000)")
    add("--beside-seconds", type=float, default=20.0, help="for so long (20)")
    add("--memory-limit", default="", help="Penstock's limit in bytes; empty = its default")
    add("--only", default="", help=f"rows, with commas: {', '.join(ROWS)} (all)")
    add("--pure", action="store_true", help="run Penstock interpreted")
    add("--dir", type=Path, help="where files are made (the system's choice)")
    add("--out", type=Path, default=RESULTS, help="directory of the results")
    return parser.parse_args()


def main() -> int:
    given = arguments()
    rows = [row for row in ROWS if row in (given.only.split(",") if given.only else ROWS)]
    reason = missing_reason() if "pika" in rows else None
    if not given.pure and not is_compiled(hot_file):
        reason = "this checkout is not compiled: run `make setup` first, or give --pure"
    if reason or not rows:
        print(f"error: {reason or 'no such row'}", file=sys.stderr)
        return 1
    if given.dir is not None:
        tempfile.tempdir = str(given.dir.resolve())
    report: Result = describe(given)
    sides = {"archive": archive_row, "memory": memory_row, "pika": pika_row, "beside": beside_row}
    for place in range(given.rounds):
        for row in rows:
            if row == "beside" and place > 0:
                continue
            with tempfile.TemporaryDirectory() as scratch:
                result = sides[row](given, Path(scratch))
            report.setdefault(row, []).append(result)
            print(f"{row:<8} {json.dumps(result)}", flush=True)
            write(report, given)
    print()
    print(page(report))
    return 0


def penstock_of(given: argparse.Namespace) -> LiveBroker:
    build = {"PENSTOCK_PURE": "1"} if given.pure else {"PENSTOCK_REQUIRE_COMPILED": "1"}
    limit = ("--vm-memory-high-watermark", given.memory_limit) if given.memory_limit else ()
    return LiveBroker(arguments=limit, environment=build)


# -- rows --------------------------------------------------------------------------------------


def archive_row(given: argparse.Namespace, scratch: Path) -> Result:
    with penstock_of(given) as broker:
        filled_s = fill(broker.url, QUEUE, given.count, given.size, given.bodies)
        with Watched(broker.pid) as watched:
            told = run_archive(given, broker.url, scratch / "lake")
        return told | {
            "fill_rate": given.count / filled_s,
            "broker_rss_mb": watched.peak_mb,
            "broker_cpu_s": watched.cpu_s,
        }


def run_archive(given: argparse.Namespace, url: str, lake: Path) -> Result:
    done = subprocess.run(
        archive_words(given, url, lake), env=environment(), stdout=subprocess.PIPE, check=True
    )
    told: Result = json.loads(done.stdout.splitlines()[-1])
    if told["messages"] != given.count or told["left_in_queue"] != 0:
        raise AssertionError(f"the archive landed {told['messages']} of {given.count}")
    start_s, stop_s = told["spark_start_s"], told["spark_stop_s"]
    return {
        "seconds": told["seconds"] - start_s - stop_s,
        "spark_start_s": start_s,
        "spark_stop_s": stop_s,
        "rate": given.count / (told["seconds"] - start_s - stop_s),
        "rate_of_all": given.count / told["seconds"],
        "files": told["files"],
        "file_mb": told["file_bytes"] / 1e6,
    }


def archive_words(given: argparse.Namespace, url: str, lake: Path) -> list[str]:
    return [
        *(sys.executable, "-m", "penstock", "pipeline", "archive"),
        *("--url", url, "--queue", QUEUE, "--to", str(lake), "-o", "json"),
        *("--compression", given.compression, "--max-messages", str(given.max_messages)),
        *("--max-batch-mb", str(given.max_batch_mb)),
    ]


def memory_row(given: argparse.Namespace, scratch: Path) -> Result:
    size = str(given.size)
    words = ("memory", str(given.count), size, given.bodies, given.compression, str(scratch))
    return rated(given.count, side_seconds(*words))


def pika_row(given: argparse.Namespace, scratch: Path) -> Result:
    count = min(given.peer_count, given.count)
    with RabbitServer() as broker:
        fill(broker.url, QUEUE, count, given.size, given.bodies)
        words = ("pika", broker.url, QUEUE, str(count), given.compression, str(scratch / "lake"))
        result = rated(count, side_seconds(*words))
        broker.kill()
        return result


def side_seconds(*words: str) -> float:
    command = [sys.executable, str(ROOT / "benchmarks" / "archive_sides.py"), *words]
    done = subprocess.run(command, env=environment(), stdout=subprocess.PIPE, check=True)
    return float(done.stdout.splitlines()[-1])


def beside_row(given: argparse.Namespace, scratch: Path) -> Result:
    with penstock_of(given) as broker:
        fill(broker.url, QUEUE, given.count, given.size, given.bodies)
        alone = neighbours(given, broker.url)
        lake = scratch / "lake"
        archive = subprocess.Popen(
            archive_words(given, broker.url, lake), env=environment(), stdout=subprocess.DEVNULL
        )
        try:
            while not any(lake.rglob("*.parquet")):  # its first batch is being written
                if archive.poll() is not None:
                    raise AssertionError("the archive ended before it wrote anything")
                time.sleep(RSS_EVERY_S)
            meanwhile = neighbours(given, broker.url)
            still_busy = archive.poll() is None
        finally:
            archive.wait()
        return {"alone": alone, "meanwhile": meanwhile, "archive_outlasted_it": still_busy}


def neighbours(given: argparse.Namespace, url: str) -> float:
    """Messages a second that another queue's consumer gets."""
    with tempfile.NamedTemporaryFile(suffix=".json") as result:
        words = (
            *("--uri", url, "--queue", "other", "--size", str(given.size), "--durable"),
            *("--persistent", "--rate", str(given.beside_rate), "--confirm", "1000"),
            *("--prefetch", "1000", "--ack-every", "10", "--cleanup"),
            *("--duration", str(given.beside_seconds), "--json", result.name),
        )
        command = [sys.executable, "-m", "penstock", "bench", *words]
        subprocess.run(command, env=environment(), stdout=subprocess.DEVNULL, check=True)
        told = json.loads(Path(result.name).read_text())
    return float(told["consume_rate"])


def rated(count: int, seconds: float) -> Result:
    return {"messages": count, "seconds": seconds, "rate": count / seconds}


def environment() -> dict[str, str]:
    path = [str(ROOT), str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    kept = {key: value for key, value in os.environ.items() if key != "PENSTOCK_URL"}
    return kept | {"PYTHONPATH": os.pathsep.join(path)}


class Watched:
    """A process's resident memory and processor time while the ``with`` lasts."""

    def __init__(self, pid: int) -> None:
        self._gauge = ProcessGauge(pid, tree=False)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.peak_mb = self.cpu_s = 0.0

    def __enter__(self) -> Watched:  # noqa: PYI034 - as the type says
        self._before_s = sum(self._gauge.cpu_s())
        self._gauge.peak_rss_bytes = 0
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        self.cpu_s = sum(self._gauge.cpu_s()) - self._before_s
        self.peak_mb = self._gauge.peak_rss_bytes / 1e6

    def _watch(self) -> None:
        while not self._stopping.wait(RSS_EVERY_S):
            self._gauge.sample_rss()


# -- the result --------------------------------------------------------------------------------


def describe(given: argparse.Namespace) -> Result:
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return {
        "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "machine": machine(),
        "command": shlex.join(["python", "benchmarks/archive.py", *shown_arguments(sys.argv[1:])]),
        "build": "interpreted" if given.pure else "compiled",
        "commit": commit.stdout.strip(),
        "count": given.count,
        "size": given.size,
        "bodies": given.bodies,
        "compression": given.compression,
        "prepared": bool(sharing_options(find_java(os.environ), os.environ)),
    }


def ratios(report: Result, peer: str) -> list[float]:
    """The archive's rate and the peer's in each round."""
    both = zip(report.get("archive", []), report.get(peer, []), strict=False)
    return [ours["rate"] / theirs["rate"] for ours, theirs in both]


def promises(report: Result) -> list[tuple[str, list[float], float]]:
    """What is promised, what it came to in each round, and what it must be at least."""
    found = [
        ("archive / Spark from memory", ratios(report, "memory"), SHARE_OF_MEMORY_MIN),
        ("archive / pika and pyarrow", ratios(report, "pika"), TIMES_PIKA_MIN),
    ]
    for beside in report.get("beside", []):
        kept = beside["meanwhile"] / beside["alone"]
        found.append(("another queue meanwhile / alone", [kept], BESIDE_MIN))
    return [promise for promise in found if promise[1]]


def page(report: Result) -> str:
    about = report["machine"]
    lines = [
        f"# A backlog of {report['count']:,} messages of {report['size']} B into Parquet",
        "",
        (
            f"{report['date']}, {about['cpu']}, {about['cores']} cores, {about['memory_gb']} GB, "
            f"{about['kernel']}, {about['python']}; "
            f"Penstock {report['build']}, {report['commit']}; {report['bodies']} bodies, "
            f"compression {report['compression']}; "
            f"{'prepared' if report['prepared'] else 'not prepared'} "
            "(`penstock pipeline prepare`)."
        ),
        "",
        f"    {report['command']}",
        "",
        *rates_of(report),
        *archive_in_words(report),
        *beside_in_words(report),
    ]
    if promises(report):
        lines += ["", "| promise | median | of the rounds | at least |", "|---|---:|---|---:|"]
    for name, got, least in promises(report):
        rounds = ", ".join(f"{ratio:.2f}" for ratio in got)
        lines.append(f"| {name} | {median(got):.2f} | {rounds} | {least} |")
    return "\n".join(lines) + "\n"


def rates_of(report: Result) -> list[str]:
    """Messages a second, a column for each round."""
    rows = [row for row in ("archive", "memory", "pika") if row in report]
    count = max((len(report[row]) for row in rows), default=0)
    heads = "".join(f" round {place + 1} |" for place in range(count))
    lines = [f"| msg/s |{heads}", "|---|" + "---:|" * count] if rows else []
    for row in rows:
        rates = [thousands(result["rate"]) for result in report[row]]
        lines.append(f"| {row} | " + " | ".join(rates) + " |")
    return lines


def archive_in_words(report: Result) -> list[str]:
    if "archive" not in report:
        return []
    runs = report["archive"]
    start, stop, all_of_it, cpu_s, rss_mb = (
        median([run[name] for run in runs])
        for name in (
            "spark_start_s",
            "spark_stop_s",
            "rate_of_all",
            "broker_cpu_s",
            "broker_rss_mb",
        )
    )
    return [
        "",
        (
            f"The archive's rate is without Spark's start and stop (medians: {start:.1f} s until "
            f"its query ran, {stop:.1f} s behind its end), as those of the others are; with them "
            f"it is {thousands(all_of_it)} msg/s. "
            f"It made {runs[0]['files']} files, {runs[0]['file_mb']:.0f} MB. The broker used "
            f"{cpu_s:.1f} s of processor time and {rss_mb:.0f} MB of memory at most."
        ),
    ]


def beside_in_words(report: Result) -> list[str]:
    lines = []
    for beside in report.get("beside", []):
        lines += [
            "",
            (
                f"Another queue: {thousands(beside['alone'])} msg/s alone, "
                f"{thousands(beside['meanwhile'])} msg/s meanwhile."
            ),
        ]
        if not beside["archive_outlasted_it"]:
            lines.append("The archive ended before the measuring did: take a larger --count.")
    return lines


def write(report: Result, given: argparse.Namespace) -> None:
    given.out.mkdir(parents=True, exist_ok=True)
    name = f"{report['date']}-archive-{report['bodies']}-{report['build']}"
    (given.out / f"{name}.json").write_text(json.dumps(report, indent=1) + "\n")
    (given.out / f"{name}.md").write_text(page(report))


if __name__ == "__main__":
    raise SystemExit(main())
