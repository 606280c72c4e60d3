"""Runs Penstock and the RabbitMQ that is installed here side by side, and writes a table.

Both brokers run on 127.0.0.1 with directories of their own that are deleted afterwards.  For
each scenario they are started anew and measured in turn, A B A B …, by the same generator.
Penstock is held to one core and the generator to the other.  RabbitMQ may use all cores, as
it does by default, and so may the generator that drives it, because that is faster for
RabbitMQ; ``--rabbit-one-core`` places both as with Penstock.

    python benchmarks/compare.py                      all scenarios, 3 rounds
    python benchmarks/compare.py --pure               Penstock interpreted
    python benchmarks/compare.py --only auto-ack,latency --rounds 5
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import shlex
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

import penstock  # noqa: E402
from benchmarks.scenarios import LATENCY, Scenario, chosen  # noqa: E402
from benchmarks.tables import Result, Rounds, machine, page  # noqa: E402
from penstock.client.amqp import Connection, Endpoint  # noqa: E402
from penstock.client.load import __file__ as generator_file  # noqa: E402
from tests.helpers.live_broker import LiveBroker  # noqa: E402
from tests.helpers.rabbit import RabbitServer, missing_reason  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAUSE_S = 0.5
RUN_LIMIT_S = 300.0
FAVOURED_NICE = "-15"


class PinnedPenstock(LiveBroker):
    """Penstock on one core, in the build that is asked for."""

    def __init__(
        self, core: int, generator_cores: str, pure: bool, arguments: tuple[str, ...] = ()
    ) -> None:
        build = {"PENSTOCK_PURE": "1"} if pure else {"PENSTOCK_REQUIRE_COMPILED": "1"}
        super().__init__(None, arguments, build)
        self.core = core
        self.generator_cores = generator_cores

    def command(self) -> list[str]:
        return ["taskset", "-c", str(self.core), *super().command()]

    def broker_pid(self) -> int:
        return self.pid


class ComparedRabbit(RabbitServer):
    """RabbitMQ with its defaults, on one core only if asked for."""

    def __init__(self, core: int | None, generator_cores: str, config: str = "") -> None:
        super().__init__(config=config)
        self.core = core
        self.generator_cores = generator_cores if core is not None else all_cores()

    def command(self) -> list[str]:
        pinning = [] if self.core is None else ["taskset", "-c", str(self.core)]
        return [*pinning, *super().command()]

    def broker_pid(self) -> int:
        return self.beam_pid()


Broker = PinnedPenstock | ComparedRabbit


def all_cores() -> str:
    return ",".join(map(str, sorted(os.sched_getaffinity(0))))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Penstock and RabbitMQ side by side on 127.0.0.1.",
        epilog="What the numbers mean: benchmarks/README.md",
    )
    parser.add_argument("--rounds", type=int, default=3, help="pairs per scenario (3)")
    parser.add_argument("--seconds", type=float, default=4.0, help="measured per timed run (4)")
    parser.add_argument("--warmup", type=float, default=1.5, help="before measuring (1.5)")
    parser.add_argument("--only", default="", help="names or beginnings of names, with commas")
    parser.add_argument("--pure", action="store_true", help="run Penstock interpreted")
    parser.add_argument("--rabbit-one-core", action="store_true", help="pin RabbitMQ as well")
    parser.add_argument("--broker-core", type=int, default=0, help="Penstock's core (0)")
    parser.add_argument("--generator-cores", default="1", help="the generator's, like 1 or 1,2 (1)")
    parser.add_argument(
        "--favoured",
        action="store_true",
        help="brokers and generator take precedence over other work on this machine (needs root)",
    )
    parser.add_argument(
        "--no-self-test", action="store_true", help="leave the generator's ceiling out"
    )
    parser.add_argument("--out", type=Path, default=RESULTS, help="directory of the results")
    given = parser.parse_args()
    if given.rounds < 1 or given.seconds <= 0 or given.warmup < 0:
        parser.error("--rounds and --seconds must be positive, --warmup not negative")
    known = os.sched_getaffinity(0)
    wanted = {given.broker_core, *map(int, given.generator_cores.split(","))}
    if not wanted <= known:
        parser.error(f"there are only the cores {sorted(known)}")
    return given


def main() -> int:
    given = arguments()
    scenarios = chosen(given.only)
    reason = missing_reason()
    if reason:
        print(f"error: {reason}", file=sys.stderr)
        return 1
    if not is_compiled(generator_file):
        print("error: the generator is not compiled: run `make setup` first", file=sys.stderr)
        return 1
    report = describe(given)
    rounds: dict[str, Rounds] = {}
    for scenario in scenarios:
        rounds[scenario.name] = compare(scenario, given, report)
    if not given.no_self_test:
        report["self_test"] = self_test()
    write(report, scenarios, rounds, given)
    return 0


def is_compiled(module_file: str | None) -> bool:
    return bool(module_file) and not str(module_file).endswith(".py")


def compare(scenario: Scenario, given: argparse.Namespace, report: Result) -> Rounds:
    """All rounds of one scenario, on brokers started for it: no row pays for another's backlog."""
    pairs: Rounds = []
    with ExitStack() as stack:
        ours: Broker = PinnedPenstock(given.broker_core, given.generator_cores, given.pure)
        core = given.broker_core if given.rabbit_one_core else None
        theirs: Broker = ComparedRabbit(core, given.generator_cores)
        for broker in (ours, theirs):
            stack.enter_context(broker)
            if given.favoured:
                favour(broker.pid)
        report["rabbitmq"] |= versions(theirs)
        for number in range(1, given.rounds + 1):
            pair = (measure(scenario, ours, given), measure(scenario, theirs, given))
            pairs.append(pair)
            shown = [figure(scenario, result) for result in pair]
            print(f"{scenario.name:<22} round {number}  {shown[0]}  {shown[1]}", flush=True)
    return pairs


def figure(scenario: Scenario, result: Result) -> str:
    if scenario.figure == LATENCY:
        return f"p50 {result[LATENCY]['p50']:>8,.0f} us  p99 {result[LATENCY]['p99']:>9,.0f} us"
    return f"{result[scenario.figure]:>12,.0f} msg/s"


def measure(scenario: Scenario, broker: Broker, given: argparse.Namespace, url: str = "") -> Result:
    """One run of ``penstock bench``, and how busy the rest of the machine was meanwhile.

    ``url``: the broker's, or that of a tunnel to it.
    """
    command = [
        *("taskset", "-c", broker.generator_cores, sys.executable, "-m", "penstock", "bench"),
        *("--uri", url or broker.url, "--pid", str(broker.broker_pid()), "--tree"),
        *("--queue", f"bench.{scenario.name}", "--cleanup", "--json", "-"),
        *scenario.arguments(given.seconds, given.warmup),
    ]
    before_s, begin_s = busy_s(), time.monotonic()
    result: Result = json.loads(run(command, given.favoured))
    wall_s = time.monotonic() - begin_s
    cost = result["broker"]
    # The broker's CPU is known for the measured time only; the rest ran at the same pace.
    broker_s = cost["cpu_cores"] * min(wall_s, result["measured_s"] + given.warmup)
    known_s = broker_s + result["generator_cpu_s"]
    result["other_cores"] = max(0.0, (busy_s() - before_s - known_s) / wall_s)
    result["options"] = shlex.join(scenario.arguments(given.seconds, given.warmup))
    del result["plan"]["uri"]
    time.sleep(PAUSE_S)
    return result


def run(command: list[str], favoured: bool = False) -> str:
    environment = {key: value for key, value in os.environ.items() if key != "PENSTOCK_PURE"}
    environment["PYTHONPATH"] = str(ROOT / "src")
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    ) as process:
        if favoured:
            favour(process.pid)
        output, errors = process.communicate(timeout=RUN_LIMIT_S)
    if process.returncode != 0:
        raise SystemExit(f"{shlex.join(command)}\n{output}{errors}")
    return output


def favour(pid: int) -> None:
    """The scheduler shares the CPU out between sessions first: let this one's have more."""
    Path(f"/proc/{pid}/autogroup").write_text(FAVOURED_NICE)


def busy_s() -> float:
    """CPU seconds the whole machine has worked so far."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    user, nice, system, _, _, irq, softirq, steal = fields[:8]
    return (user + nice + system + irq + softirq + steal) / TICKS_PER_S


def self_test() -> list[Result]:
    """The sink stands in for the broker, so here the generator is not held to its core."""
    command = [sys.executable, "-m", "penstock", "bench", "--self-test", "--json", "-"]
    found: list[Result] = json.loads(run(command))
    return found


def versions(broker: Broker) -> Result:
    with Connection(Endpoint.parse(broker.url)) as connection:
        properties = connection.server_properties
    return {"version": properties["version"], "platform": properties["platform"]}


def describe(given: argparse.Namespace) -> Result:
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    ours = f"core {given.broker_core} only, generator on {given.generator_cores}"
    theirs = ours if given.rabbit_one_core else "broker and generator on all cores"
    return {
        "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "machine": machine(),
        "command": shlex.join(["python", "benchmarks/compare.py", *shown_arguments(sys.argv[1:])]),
        "rounds": given.rounds,
        "penstock": {
            "version": penstock.__version__,
            "build": "interpreted" if given.pure else "compiled",
            "commit": commit.stdout.strip(),
            "cores": ours,
        },
        "rabbitmq": {"cores": theirs},
        "generator": {
            "build": "compiled",
            "priority": "before other work" if given.favoured else "like other work",
        },
        "self_test": [],
    }


def shown_arguments(words: list[str]) -> list[str]:
    """The command line without its directory: a result names no place of a machine."""
    shown: list[str] = []
    skip = False
    for word in words:
        if not skip and word != "--out" and not word.startswith("--out="):
            shown.append(word)
        skip = word == "--out"
    return shown


def write(
    report: Result, scenarios: list[Scenario], rounds: dict[str, Rounds], given: argparse.Namespace
) -> None:
    kind = ["compare", report["penstock"]["build"]]
    if given.rabbit_one_core:
        kind.append("rabbit-one-core")
    given.out.mkdir(parents=True, exist_ok=True)
    path = given.out / f"{report['date']}-{'-'.join(kind)}"
    data: dict[str, Any] = report | {
        "scenarios": {
            scenario.name: {
                "title": scenario.title,
                "penstock": [pair[0] for pair in rounds[scenario.name]],
                "rabbitmq": [pair[1] for pair in rounds[scenario.name]],
            }
            for scenario in scenarios
        }
    }
    path.with_suffix(".json").write_text(json.dumps(data, indent=1) + "\n")
    text = page(report, scenarios, rounds)
    path.with_suffix(".md").write_text(text)
    print()
    print(text)


if __name__ == "__main__":
    sys.exit(main())
