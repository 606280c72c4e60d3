"""What one, two and three copies of a queue cost, with publisher confirms: beside RabbitMQ.

    .venv/bin/python benchmarks/mirrors.py                 all rows, 3 rounds, a quarter of an hour
    .venv/bin/python benchmarks/mirrors.py --only safe-publish-1k --copies 2,3 --rounds 5
    .venv/bin/python benchmarks/mirrors.py --try           seconds: does it work?

Three nodes of each broker run side by side on 127.0.0.1 (``mirror_brokers``).  For every row and
number of copies they are driven in turn, A B A B …, by the same generator with the same command
line, at the node that has the master; brokers and generator share all cores.  With two copies and
three a confirm means: on disk at all of them.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import shlex
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, Final

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from benchmarks.compare import (  # noqa: E402
    busy_s,
    favour,
    is_compiled,
    run,
    shown_arguments,
)
from benchmarks.mirror_brokers import (  # noqa: E402
    Cluster,
    PenstockCluster,
    RabbitCluster,
    copies_prefix,
    cpu_s,
    declare,
)
from benchmarks.scenarios import ACK_100, PUBLISHED, SAFE, Scenario  # noqa: E402
from benchmarks.tables import (  # noqa: E402
    Result,
    head,
    machine,
    plain,
    spread,
    thousands,
    wrongs,
)
from penstock.client.load import __file__ as generator_file  # noqa: E402
from tests.helpers.etcd import missing_reason as no_etcd  # noqa: E402
from tests.helpers.rabbit import missing_reason as no_rabbit  # noqa: E402

WANTED: Final = 3.0
"""So many times RabbitMQ's rate, with the same number of copies."""
PAUSE_S: Final = 0.5
TRY: Final = {"rounds": 1, "seconds": 1.0, "warmup": 0.5}
TRIED_COUNT: Final = 5_000

SCENARIOS: Final = [
    Scenario(
        "safe-publish-1k",
        "persistent, 1 KB, confirm window 1000",
        f"--size 1024 --consumers 0 {SAFE}",
        figure=PUBLISHED,
        count=100_000,
    ),
    Scenario(
        "publish-100",
        "transient, 100 B, confirm window 1000",
        "--size 100 --consumers 0 --durable --confirm 1000",
        figure=PUBLISHED,
        count=100_000,
    ),
    Scenario(
        "safe-through-1k",
        "persistent, 1 KB, confirm window 1000, consumed (ack 100)",
        f"--size 1024 --in-flight 4000 {SAFE} {ACK_100}",
    ),
]

Pair = dict[str, Result]
"""One round: by the broker's name."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="What copies of a queue cost, Penstock and RabbitMQ side by side.",
        epilog="What the numbers mean: benchmarks/README.md",
    )
    parser.add_argument("--rounds", type=int, default=3, help="pairs per row (3)")
    parser.add_argument("--seconds", type=float, default=5.0, help="measured per timed run (5)")
    parser.add_argument("--warmup", type=float, default=2.0, help="before measuring (2)")
    parser.add_argument("--only", default="", help="names or beginnings of names, with commas")
    parser.add_argument("--copies", default="1,2,3", help="how many, with commas (1,2,3)")
    parser.add_argument("--pure", action="store_true", help="run Penstock interpreted")
    parser.add_argument(
        "--try", action="store_true", dest="tried", help="one short round; nothing is written"
    )
    parser.add_argument(
        "--favoured",
        action="store_true",
        help="brokers and generator take precedence over other work on this machine (needs root)",
    )
    parser.add_argument(
        "--alone", choices=("penstock", "rabbitmq"), help="one broker only; nothing is written"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    given = parser.parse_args()
    if given.tried:
        vars(given).update(TRY)
    given.copies = [int(one) for one in given.copies.split(",")]
    if not set(given.copies) <= {1, 2, 3}:
        parser.error("--copies: 1, 2 and 3, with commas")
    return given


def chosen(given: argparse.Namespace) -> list[Scenario]:
    names = given.only.split(",")
    found = [one for one in SCENARIOS if any(one.name.startswith(name) for name in names)]
    if not found:
        raise SystemExit(f"--only: there are {', '.join(one.name for one in SCENARIOS)}")
    if given.tried:
        return [replace(one, count=min(one.count, TRIED_COUNT)) for one in found]
    return found


def main() -> int:
    given = arguments()
    scenarios = chosen(given)
    reason = no_etcd() or (given.alone != "penstock" and no_rabbit())
    if reason:
        print(f"error: {reason}", file=sys.stderr)
        return 1
    if not is_compiled(generator_file):
        print("error: the generator is not compiled: run `make setup` first", file=sys.stderr)
        return 1
    rows: list[dict[str, Any]] = []
    with ExitStack() as stack:
        clusters = started(stack, given)
        for copies in given.copies:
            if copies > 1:
                for cluster in clusters:
                    cluster.mirror(copies)
            rows += [compared(scenario, copies, clusters, given) for scenario in scenarios]
    if not given.alone:
        finish(given, rows)
    return 0


def started(stack: ExitStack, given: argparse.Namespace) -> list[Cluster]:
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    clusters: list[Cluster] = []
    if given.alone != "rabbitmq":
        clusters.append(PenstockCluster(directory / "penstock", pure=given.pure))
    if given.alone != "penstock":
        clusters.append(RabbitCluster(directory / "rabbitmq"))
    for cluster in clusters:
        stack.enter_context(cluster)
        if given.favoured:
            for node in cluster.nodes:
                favour(node.pid)
    return clusters


def compared(
    scenario: Scenario, copies: int, clusters: list[Cluster], given: argparse.Namespace
) -> dict[str, Any]:
    rounds: list[Pair] = []
    for number in range(1, given.rounds + 1):
        pair = {one.called: measure(scenario, copies, one, given) for one in clusters}
        rounds.append(pair)
        shown = "   ".join(
            f"{name} {result[scenario.figure]:>9,.0f} msg/s" for name, result in pair.items()
        )
        print(f"{scenario.name:<16} {copies} copies, round {number}   {shown}", flush=True)
    return {
        "row": scenario.name,
        "title": scenario.title,
        "figure": scenario.figure,
        "copies": copies,
        "rounds": rounds,
    }


def measure(scenario: Scenario, copies: int, cluster: Cluster, given: argparse.Namespace) -> Result:
    """One run; processor time is that of all three nodes, warm-up included, as its messages."""
    queue = f"{copies_prefix(copies)}{scenario.name}"
    declare(cluster, queue, copies)
    words = scenario.arguments(given.seconds, given.warmup)
    command = [sys.executable, "-m", "penstock", "bench", "--uri", cluster.url, "--cleanup"]
    pids = cluster.pids()
    before_s, busy_before_s, begin_s = cpu_s(pids), busy_s(), time.monotonic()
    result: Result = json.loads(
        run([*command, "--queue", queue, "--json", "-", *words], given.favoured)
    )
    spent_s, wall_s = cpu_s(pids) - before_s, time.monotonic() - begin_s
    known_s = spent_s + result["generator_cpu_s"]
    result["cpu_us_per_message"] = spent_s * 1e6 / result["published"]
    result["other_cores"] = max(0.0, (busy_s() - busy_before_s - known_s) / wall_s)
    result["options"] = shlex.join(words)
    del result["plan"]["uri"]
    time.sleep(PAUSE_S)
    return result


# -- the page -----------------------------------------------------------------------------------


def figures(row: dict[str, Any], name: str) -> list[float]:
    return [pair[name][row["figure"]] for pair in row["rounds"]]


def ratios(row: dict[str, Any]) -> list[float]:
    ours, theirs = figures(row, "Penstock"), figures(row, "RabbitMQ")
    return [mine / other for mine, other in zip(ours, theirs, strict=True)]


def prices(row: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """The median rate over that of one copy, of both."""
    for one in rows:
        if one["row"] == row["row"] and one["copies"] == 1:
            pair = [
                plain(median(figures(row, name)) / median(figures(one, name)))
                for name in ("Penstock", "RabbitMQ")
            ]
            return " / ".join(pair)
    return "–"


def table_row(row: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    costs = [
        plain(median(pair[name]["cpu_us_per_message"] for pair in row["rounds"]))
        for name in ("Penstock", "RabbitMQ")
    ]
    other = max(result["other_cores"] for pair in row["rounds"] for result in pair.values())
    cells = [
        row["title"],
        str(row["copies"]),
        spread(figures(row, "Penstock"), thousands),
        spread(figures(row, "RabbitMQ"), thousands),
        f"**{spread(ratios(row), plain)}**",
        prices(row, rows),
        " / ".join(costs),
        plain(other),
    ]
    return f"| {' | '.join(cells)} |"


def page(report: Result) -> str:
    where, rows = report["machine"], report["rows"]
    hardware = f"{where['cores']} cores, {where['cpu']}, {where['memory_gb']} GB"
    columns = ("row", "copies", "Penstock", "RabbitMQ", "ratio", "of one copy P / R")
    lines = [
        f"# What copies of a queue cost, {report['date']}",
        "",
        f"- machine: {hardware}, {where['kernel']}, {where['python']}",
        f"- three nodes of Penstock ({report['build']}) with one etcd, three of RabbitMQ; they and",
        f"  the generator share all cores and run {report['priority']}",
        "- messages a second, confirmed (consumed where they are consumed);",
        f"  {report['rounds']} rounds in turn: median [smallest..largest]",
        "- ratio: median of the rounds' own ratios, Penstock over RabbitMQ",
        f"- command: `{report['command']}`",
        "",
        *head((*columns, "CPU µs/msg P / R", "other load, cores")),
        *[table_row(row, rows) for row in rows],
        "",
        *judged(rows),
        *problems(rows),
        "What each column means and how to read it: `benchmarks/README.md`.",
    ]
    return "\n".join(lines) + "\n"


def judged(rows: list[dict[str, Any]]) -> list[str]:
    """What the project promises of copies."""
    mirrored = [row for row in rows if row["copies"] > 1]
    if not mirrored:
        return []
    least = min(mirrored, key=lambda row: median(ratios(row)))
    ratio = median(ratios(least))
    said = "kept" if ratio >= WANTED else "**not kept**"
    return [
        f"Promised: mirrored queues at least {WANTED:g} times as fast as RabbitMQ's: {said}.",
        f"The least is {ratio:.1f} ({least['title']}, {least['copies']} copies).",
        "",
    ]


def problems(rows: list[dict[str, Any]]) -> list[str]:
    notes = [
        f"- {row['title']}, {row['copies']} copies, round {number}: {name} {wrong}"
        for row in rows
        for number, pair in enumerate(row["rounds"], 1)
        for name, result in pair.items()
        for wrong in wrongs(result)
    ]
    return ["Not as it should be:", "", *notes, ""] if notes else []


def finish(given: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    report: Result = {
        "date": dt.date.today().isoformat(),
        "command": shlex.join(["benchmarks/mirrors.py", *shown_arguments(sys.argv[1:])]),
        "build": "interpreted" if given.pure else "compiled",
        "machine": machine(),
        "priority": "before other work" if given.favoured else "like other work",
        "rounds": given.rounds,
        "rows": rows,
    }
    text = page(report)
    print()
    print(text)
    if given.tried:
        return
    given.out.mkdir(parents=True, exist_ok=True)
    path = given.out / f"{report['date']}-mirrors-{report['build']}"
    path.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n")
    path.with_suffix(".md").write_text(text)


if __name__ == "__main__":
    sys.exit(main())
