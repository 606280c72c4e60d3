"""``--nodes 2`` against one node: what more processes bring on this machine, and what they cost.

    .venv/bin/python benchmarks/nodes.py              rounds in turn, results/DATE-nodes-*.md

Brokers run side by side: one node; two nodes behind one port (``--nodes 2``); and two nodes of a
cluster, of which one has the queue, with all clients there (*near*) or all at the other (*far*).  A
round drives each in turn, in an order that changes; the median of the rounds' own ratios counts.
Generator and brokers share all cores: on two of them two nodes can bring little, and *far* says
what the way between nodes costs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from benchmarks.on_and_off import parser, write  # noqa: E402
from benchmarks.scenarios import chosen  # noqa: E402
from tests.helpers.cluster import LiveCluster  # noqa: E402
from tests.helpers.live_broker import LiveBroker  # noqa: E402

ROWS = "auto-ack-16,ack-100-1k,safe-through-1k"
QUEUES = 4


def bench(words: list[str]) -> Any:
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "bench.json"
        command = [sys.executable, "-m", "penstock", "bench", *words, "--json", str(out)]
        environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
        subprocess.run(command, env=environment, check=True, capture_output=True)
        return json.loads(out.read_text())


def rate(broker: LiveBroker, words: list[str]) -> float:
    """Four queues, a publisher and a consumer for each."""
    more = ["--queues", str(QUEUES), "--publishers", "2", "--consumers", "2", "--cleanup"]
    return float(bench([*words, *more, "--uri", broker.url])["consume_rate"])


def far_rate(home: LiveBroker, other: LiveBroker, words: list[str]) -> float:
    """One queue at ``home``; who publishes to it and consumes from it is at the other node."""
    queue = ["--queue", "penstock.far"]
    declare = ["--durable"] if "--durable" in words else []
    bench([*queue, *declare, "--uri", home.url, "--count", "1", "--size", "16"])
    found = bench([*words, *queue, "--cleanup", "--uri", other.url])
    return float(found["consume_rate"])


def main() -> int:
    asked = parser("What several nodes bring.", 5.0, ROWS).parse_args()
    rows: list[dict[str, Any]] = []
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        one = stack.enter_context(LiveBroker(directory / "one"))
        two = stack.enter_context(
            LiveBroker(directory / "two", ("--nodes", "2"), ready_timeout_s=60)
        )
        cluster = stack.enter_context(LiveCluster(directory / "cluster", 2))
        home, other = cluster.nodes
        for scenario in chosen(asked.only):
            words = scenario.arguments(asked.seconds, asked.warmup)
            found: list[dict[str, float]] = []
            for number in range(asked.rounds):
                ways = {
                    "one": lambda words=words: rate(one, words),
                    "two": lambda words=words: rate(two, words),
                    "near": lambda words=words: far_rate(home, home, words),
                    "far": lambda words=words: far_rate(home, other, words),
                }
                order = list(ways) if number % 2 == 0 else list(ways)[::-1]
                found.append({name: ways[name]() for name in order})
            rows.append(row(scenario.title, found))
    write(asked.out, "nodes", rows, page)
    return 0


def row(title: str, found: list[dict[str, float]]) -> dict[str, Any]:
    more = median(one["two"] / one["one"] for one in found)
    far = median(one["far"] / one["near"] for one in found)
    print(f"{title:50} two/one {more:.2f}   far/near {far:.2f}", flush=True)
    return {
        "row": title,
        "two_to_one": round(more, 3),
        "far_to_near": round(far, 3),
        "medians": {name: round(median(one[name] for one in found)) for name in found[0]},
        "rounds": found,
    }


def page(report: dict[str, Any]) -> str:
    lines = [
        f"# Several nodes on one machine, {report['date']}",
        "",
        f"`{report['command'].strip()}`, {report['build']}, {report['machine']}.",
        "Messages a second, consumed; medians of rounds in turn. *One* node and *two*",
        f"(`--nodes 2`): {QUEUES} queues, two publishers and two consumers. *Near* and *far*: one",
        "queue, its clients at its own node, or all at the other one. Generator and brokers share",
        "the cores.",
        "",
        "| row | one | two | two / one | near | far | far / near |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in report["rows"]:
        found = one["medians"]
        lines.append(
            f"| {one['row']} | {found['one']:,} | {found['two']:,} | {one['two_to_one']:.2f} |"
            f" {found['near']:,} | {found['far']:,} | {one['far_to_near']:.2f} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
