"""``--nodes 2`` against one node: what more processes bring on this machine, and what they cost.

    .venv/bin/python benchmarks/nodes.py              rounds in turn, results/DATE-nodes-*.md

Brokers run side by side, and are driven in turn, in an order that changes from round to round; the
median of the rounds' own ratios counts:

    one     one node, four queues
    two     two nodes behind one port (``--nodes 2``), the same queues and clients.  The kernel
            chooses their nodes, so about half of the clients are not at their queue's node
    apart   two nodes of a cluster, each with two of the queues and their clients, in two generators
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
from tests.helpers.cluster import LiveCluster  # noqa: E402
from tests.helpers.live_broker import LiveBroker  # noqa: E402

ROWS = "auto-ack-16,ack-100-1k,safe-through-1k"
QUEUES = 4

Figures = tuple[float, float]
"""Messages per second; processor time per message of the brokers driven (of *far*: of the node of
the clients), microseconds."""


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


def rate(broker: LiveBroker, words: list[str]) -> Figures:
    """Four queues, two publishers and two consumers for all of them."""
    more = ["--queues", str(QUEUES), "--publishers", "2", "--consumers", "2", "--cleanup"]
    watched = ["--pid", str(broker.pid), "--tree"]
    found = bench([*words, *more, *watched, "--uri", broker.url])[0]
    return float(found["consume_rate"]), float(found["broker"]["cpu_us_per_message"])


def apart_rate(nodes: list[LiveBroker], words: list[str]) -> Figures:
    """Half of the queues, a publisher and a consumer at each node."""
    loads = []
    for number, node in enumerate(nodes):
        more = ["--queue", f"penstock.apart{number}", "--queues", str(QUEUES // 2), "--cleanup"]
        loads.append([*words, *more, "--pid", str(node.pid), "--uri", node.url])
    found = bench(*loads)
    cpu_us = sum(one["broker"]["cpu_us_per_message"] for one in found) / len(found)
    return sum(float(one["consume_rate"]) for one in found), cpu_us


def one_queue_rate(home: LiveBroker, clients: LiveBroker, words: list[str]) -> Figures:
    """One queue at ``home``; who publishes to it and consumes from it is at ``clients``."""
    queue = ["--queue", "penstock.far"]
    declare = ["--durable"] if "--durable" in words else []
    bench([*queue, *declare, "--uri", home.url, "--count", "1", "--size", "16"])
    watched = ["--pid", str(clients.pid)]
    found = bench([*words, *queue, *watched, "--cleanup", "--uri", clients.url])[0]
    return float(found["consume_rate"]), float(found["broker"]["cpu_us_per_message"])


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
            found: list[dict[str, Figures]] = []
            for number in range(asked.rounds):
                ways = {
                    "one": lambda words=words: rate(one, words),
                    "two": lambda words=words: rate(two, words),
                    "apart": lambda words=words: apart_rate(cluster.nodes, words),
                    "near": lambda words=words: one_queue_rate(home, home, words),
                    "far": lambda words=words: one_queue_rate(home, other, words),
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
        f"and *two* (`--nodes 2`): {QUEUES} queues, two publishers and two consumers; the kernel",
        "chooses the node of each. *Apart*: two nodes of a cluster, each with half of the queues and",
        "their clients. *Near* and *far*: one queue, its clients at its own node, or all at the other.",
        "",
        f"Generator and brokers share {where['cores']} cores: what keeps them all busy with one node",
        "cannot be faster with two.",
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
        "Processor time per message of the node that the clients are at (of *two*: of both nodes",
        "and their supervisor), microseconds:",
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
