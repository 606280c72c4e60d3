"""``--nodes 2`` against one node: what more processes bring on this machine, and what they cost.

    .venv/bin/python benchmarks/nodes.py              rounds in turn, results/DATE-nodes-*.md

Brokers run side by side, and are driven in turn, in an order that changes from round to round; the
median of the rounds' own ratios counts:

    one     one node, and two generators, each with two queues, a publisher and a consumer
    two     two nodes behind one port (``--nodes 2``), the same load.  The kernel chooses the
            clients' nodes, so about half of them are not at their queue's node
    apart   two nodes of a cluster, a generator at each: its queues are at its clients' node
    near    one queue of that cluster, all clients at its node
    far     the same, all clients at the other node

Generator and brokers share all cores.  So on two of them a row in which one node keeps a core busy,
and the generator the other, cannot gain from a second node; one that waits for the disk can.  *CPU*
says what to expect where there are more cores: what a message costs is what bounds its rate there.
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
from penstock.client.procstat import ProcessGauge  # noqa: E402
from tests.helpers.cluster import LiveCluster  # noqa: E402
from tests.helpers.live_broker import LiveBroker  # noqa: E402

ROWS = "auto-ack-16,ack-100-1k,safe-through-1k"

Figures = tuple[float, float]
"""Messages per second; microseconds of the brokers' processor time per message."""


def started(words: list[str], out: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "penstock", "bench", *words, "--json", str(out)]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )


def bench(*loads: list[str]) -> list[Any]:
    """So many generators side by side."""
    with tempfile.TemporaryDirectory() as directory:
        outs = [Path(directory) / f"{number}.json" for number in range(len(loads))]
        processes = [started(words, out) for words, out in zip(loads, outs, strict=True)]
        for process in processes:
            errors = process.communicate()[1]
            if process.returncode != 0:
                raise SystemExit(errors.decode())
        return [json.loads(out.read_text()) for out in outs]


def drive(brokers: list[LiveBroker], *loads: list[str]) -> Figures:
    """Processor time is that of all these brokers, warm-up included, as are its messages."""
    gauges = [ProcessGauge(broker.pid, tree=True) for broker in brokers]
    before_s = sum(sum(gauge.cpu_s()) for gauge in gauges)
    found = bench(*loads)
    spent_s = sum(sum(gauge.cpu_s()) for gauge in gauges) - before_s
    rate = sum(float(one["consume_rate"]) for one in found)
    return rate, spent_s * 1e6 / sum(one["consumed"] for one in found)


def spread_rate(brokers: list[LiveBroker], words: list[str]) -> Figures:
    """Two generators, each with two queues, a publisher and a consumer: all at one, or at two."""
    loads = []
    for number in range(2):
        queues = ["--queue", f"penstock.nodes{number}", "--queues", "2", "--cleanup"]
        loads.append([*words, *queues, "--uri", brokers[number % len(brokers)].url])
    return drive(brokers, *loads)


def one_queue_rate(cluster: LiveCluster, clients: int, words: list[str]) -> Figures:
    """One queue at the first node; who publishes to it and consumes from it is at that one."""
    queue = ["--queue", "penstock.far"]
    declare = ["--durable"] if "--durable" in words else []
    bench([*queue, *declare, "--uri", cluster.nodes[0].url, "--count", "1", "--size", "16"])
    uri = ["--cleanup", "--uri", cluster.nodes[clients].url]
    return drive(cluster.nodes, [*words, *queue, *uri])


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
        for scenario in chosen(asked.only):
            words = scenario.arguments(asked.seconds, asked.warmup)
            found: list[dict[str, Figures]] = []
            for number in range(asked.rounds):
                ways = {
                    "one": lambda words=words: spread_rate([one], words),
                    "two": lambda words=words: spread_rate([two], words),
                    "apart": lambda words=words: spread_rate(cluster.nodes, words),
                    "near": lambda words=words: one_queue_rate(cluster, 0, words),
                    "far": lambda words=words: one_queue_rate(cluster, 1, words),
                }
                order = list(ways) if number % 2 == 0 else list(ways)[::-1]
                found.append({name: ways[name]() for name in order})
            rows.append(row(scenario.title, found))
    write(asked.out, "nodes", rows, page, rounds=asked.rounds)
    return 0


def row(title: str, found: list[dict[str, Figures]]) -> dict[str, Any]:
    ratios = {
        "two_to_one": median(one["two"][0] / one["one"][0] for one in found),
        "apart_to_one": median(one["apart"][0] / one["one"][0] for one in found),
        "far_to_near": median(one["far"][0] / one["near"][0] for one in found),
    }
    shown = "   ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items())
    print(f"{title:50} {shown}", flush=True)
    return {
        "row": title,
        **{name: round(ratio, 3) for name, ratio in ratios.items()},
        "medians": {name: round(median(one[name][0] for one in found)) for name in found[0]},
        "cpu_us": {name: round(median(one[name][1] for one in found), 2) for name in found[0]},
        "rounds": found,
    }


WAYS = ("one", "two", "apart", "near", "far")


def page(report: dict[str, Any]) -> str:
    where = report["machine"]
    lines = [
        f"# Several nodes on one machine, {report['date']}",
        "",
        f"`{report['command'].strip()}`, {report['build']}, {where}.",
        f"Messages a second, consumed; medians of {report['rounds']} rounds in turn. *One* node",
        "and *two* (`--nodes 2`): two generators, each with two queues, a publisher, a consumer;",
        "the kernel chooses the node of each connection. *Apart*: two nodes of a cluster with a",
        "generator each. *Near* and *far*: one queue, its clients at its own node, or all at the",
        "other one.",
        "",
        f"Generator and brokers share {where['cores']} cores: what keeps them all busy with one",
        "node cannot be faster with two.",
        "",
        f"| row | {' | '.join(WAYS)} | two / one | apart / one | far / near |",
        "|---" * (len(WAYS) + 4) + "|",
    ]
    for one in report["rows"]:
        rates = " | ".join(f"{one['medians'][way]:,}" for way in WAYS)
        ratios = [one[name] for name in ("two_to_one", "apart_to_one", "far_to_near")]
        lines.append(f"| {one['row']} | {rates} | {' | '.join(f'{r:.2f}' for r in ratios)} |")
    lines += [
        "",
        "Processor time per message, of all nodes together, microseconds:",
        "",
        f"| row | {' | '.join(WAYS)} |",
        "|---" * (len(WAYS) + 1) + "|",
    ]
    for one in report["rows"]:
        spent = " | ".join(f"{one['cpu_us'][way]:.2f}" for way in WAYS)
        lines.append(f"| {one['row']} | {spent} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
