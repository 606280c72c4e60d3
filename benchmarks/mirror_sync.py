"""A mirror joins a long queue while publishers and consumers go on: how much do they notice?

    .venv/bin/python benchmarks/mirror_sync.py                       a million messages of 100 bytes
    .venv/bin/python benchmarks/mirror_sync.py --messages 100000 --copies 2
    .venv/bin/python benchmarks/mirror_sync.py --copies 1 --manual   sync_queue alone

Nodes of a cluster run side by side on 127.0.0.1.  A durable queue with so many copies is filled
with persistent messages, then published to and consumed from flat out, with confirms and
acknowledgements, at its master's node.  After a while the policy asks for one copy more.  Counted
is what the master's queue took and what was acknowledged: before, until the new mirror is
synchronised, and afterwards; and the memory of the processes meanwhile.  With ``--manual`` the
mirror is there before, without what is old, and only ``sync_queue`` is measured.

Generator and nodes share all cores, so the new copy's own work slows the others down as well: with
as many cores as processes it would cost less.  Flat out, consumers soon have
emptied the queue, and what is seen is the price of a copy; with ``--steady`` the queue stays long.
``PENSTOCK_SYNC_MESSAGES`` is another way to say ``--messages``.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from benchmarks.on_and_off import write  # noqa: E402
from penstock.client.amqp import Connection, Endpoint  # noqa: E402
from penstock.client.procstat import ProcessGauge  # noqa: E402
from tests.helpers.cluster import LiveCluster  # noqa: E402
from tests.helpers.etcd import missing_reason  # noqa: E402

QUEUE = "long"
SIZE = 100
WANTED = 0.70
"""Of the rate before, while the new mirror is being synchronised."""
LOOK_S = 0.2
WARMUP_S = 3.0
SYNC_LIMIT_S = 1800.0
LOAD = f"--size {SIZE} --confirm 1000 --in-flight 2000 --duration 7200 ".split()
FLAT_OUT = ["--prefetch", "1000", "--ack-every", "100"]
STEADY = ["--rate", "10000", "--consumers", "6", "--prefetch", "1", "--ack-every", "1"]
"""The queue stays as long as it is, and there is processor time left for the new copy."""


class Sample(NamedTuple):
    at_s: float
    published: int
    acknowledged: int
    messages: int
    synchronised: int


class Bench:
    def __init__(self, cluster: LiveCluster, *, steady: bool) -> None:
        self.cluster = cluster
        self.words = LOAD + (STEADY if steady else FLAT_OUT)
        self.gauges = [ProcessGauge(node.pid, tree=False) for node in cluster.nodes]
        self.peaks = [0] * len(self.gauges)

    def mirror(self, copies: int, sync_mode: str = "automatic") -> None:
        definition: dict[str, Any] = {"ha-mode": "exactly", "ha-params": copies}
        definition["ha-sync-mode"] = sync_mode
        policy = {"pattern": f"^{QUEUE}$", "apply-to": "queues", "definition": definition}
        self.cluster.ask(0, "/api/policies/%2F/copies", policy)

    def command(self, words: list[str]) -> list[str]:
        queue = ["--queue", QUEUE, "--durable", "--persistent", "--uri", self.cluster.nodes[0].url]
        return [sys.executable, "-m", "penstock", "bench", *queue, *words]

    def fill(self, messages: int) -> None:
        words = f"--size {SIZE} --consumers 0 --confirm 1000 --count {messages}".split()
        environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
        subprocess.run(self.command(words), env=environment, check=True, capture_output=True)

    @contextmanager
    def load(self) -> Iterator[None]:
        environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
        process = subprocess.Popen(
            self.command(self.words),
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            yield
        finally:
            os.killpg(process.pid, 9)
            process.wait()

    def row(self) -> Any:
        return self.cluster.ask(0, f"/api/queues/%2F/{QUEUE}")

    def sample(self) -> Sample:
        row = self.row()
        stats = row.get("message_stats", {})
        self.peaks = [
            max(peak, gauge.sample_rss())
            for peak, gauge in zip(self.peaks, self.gauges, strict=True)
        ]
        return Sample(
            time.monotonic(),
            stats.get("publish", 0),
            stats.get("ack", 0),
            row["messages"],
            len(row.get("synchronised_slave_nodes", [])),
        )

    def watch(self, seconds: float) -> tuple[Sample, Sample]:
        first = last = self.sample()
        while last.at_s - first.at_s < seconds:
            time.sleep(LOOK_S)
            last = self.sample()
        return first, last

    def join(self, copies: int) -> None:
        """One more that has what comes from now on."""
        self.mirror(copies, "manual")
        while len(self.row().get("slave_nodes", [])) < copies - 1:
            time.sleep(LOOK_S)

    def synchronise(self, copies: int, *, manual: bool) -> tuple[Sample, Sample]:
        """Until so many copies have everything."""
        if manual:
            self.cluster.ask(0, f"/api/queues/%2F/{QUEUE}/actions", {"action": "sync"}, "POST")
        else:
            self.mirror(copies)
        first = last = self.sample()
        while last.synchronised < copies - 1:
            if last.at_s - first.at_s > SYNC_LIMIT_S:
                raise SystemExit(f"not synchronised within {SYNC_LIMIT_S:.0f} s: {last}")
            time.sleep(LOOK_S)
            last = self.sample()
        return first, last


def rates(first: Sample, last: Sample) -> dict[str, float]:
    took_s = last.at_s - first.at_s
    return {
        "seconds": round(took_s, 1),
        "published": round((last.published - first.published) / took_s),
        "consumed": round((last.acknowledged - first.acknowledged) / took_s),
        "messages": last.messages,
    }


def measure(
    copies: int, messages: int, seconds: float, *, steady: bool, manual: bool
) -> dict[str, Any]:
    with (
        tempfile.TemporaryDirectory() as directory,
        LiveCluster(Path(directory) / "cluster", copies + 1) as cluster,
    ):
        bench = Bench(cluster, steady=steady)
        if copies > 1:
            bench.mirror(copies)
        with Connection(Endpoint.parse(cluster.nodes[0].url)) as connection:
            connection.channel().queue_declare(QUEUE, durable=True)
        bench.fill(messages)
        with bench.load():
            if manual:
                bench.join(copies + 1)
            time.sleep(WARMUP_S)
            found = {"before": rates(*bench.watch(seconds))}
            memory = {"before": [gauge.sample_rss() for gauge in bench.gauges]}
            bench.peaks = [0] * len(bench.gauges)
            first, last = bench.synchronise(copies + 1, manual=manual)
            found["during"] = rates(first, last)
            memory["peak"] = bench.peaks
            found["after"] = rates(*bench.watch(seconds))
    return {
        "copies": copies,
        "manual": manual,
        "synchronised": first.messages,
        "rates": found,
        "memory_mb": {key: [one >> 20 for one in all_] for key, all_ in memory.items()},
        "ratio": {
            what: round(found["during"][what] / found["before"][what], 3)
            for what in ("published", "consumed")
        },
    }


def page(report: dict[str, Any]) -> str:
    head = (
        "| copies | messages | synchronised in | published/s before, during, after |"
        " consumed/s before, during, after | during / before | master MB before, peak |"
        " mirror MB before, peak |"
    )
    lines = [
        f"# A mirror joins a long queue, {report['date']}",
        "",
        f"`{report['command'].strip()}`, {report['build']}, {report['machine']}.",
        f"Messages of {SIZE} bytes, persistent, confirmed, acknowledged. *During*: from the policy",
        "that asks for one copy more until it is synchronised. Memory is the resident one of the",
        "master's process and of the new mirror's. Generator, nodes and etcd share the cores.",
        "",
        head,
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in report["rows"]:
        found, memory = row["rates"], row["memory_mb"]
        ways = [
            ", ".join(f"{found[when][what]:,}" for when in ("before", "during", "after"))
            for what in ("published", "consumed")
        ]
        least = min(row["ratio"].values())
        asked = ", sync_queue" if row["manual"] else ""
        lines.append(
            f"| {row['copies']} to {row['copies'] + 1}{asked} | {row['synchronised']:,} |"
            f" {found['during']['seconds']:g} s | {ways[0]} | {ways[1]} | {least:.2f} |"
            f" {memory['before'][0]}, {memory['peak'][0]} | {memory['before'][-1]},"
            f" {memory['peak'][-1]} |"
        )
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description="A mirror joins a long queue under load.")
    messages = int(os.environ.get("PENSTOCK_SYNC_MESSAGES", "1000000"))
    parser.add_argument("--messages", type=int, default=messages)
    parser.add_argument("--copies", default="1,2", help="before the new one")
    parser.add_argument("--seconds", type=float, default=15.0, help="before and after")
    parser.add_argument("--steady", action="store_true", help="10,000/s, and not flat out")
    parser.add_argument("--manual", action="store_true", help="sync_queue of a mirror that joined")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    asked = parser.parse_args()
    reason = missing_reason()
    if reason is not None:
        raise SystemExit(reason)
    rows = []
    for copies in map(int, asked.copies.split(",")):
        row = measure(
            copies, asked.messages, asked.seconds, steady=asked.steady, manual=asked.manual
        )
        rows.append(row)
        least = min(row["ratio"].values())
        verdict = "as wanted" if least >= WANTED else f"less than {WANTED:.0%}"
        print(f"{copies} to {copies + 1} copies: {least:.0%} of the rate before, {verdict}")
        print(row, flush=True)
    write(asked.out, "mirror_sync", rows, page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
