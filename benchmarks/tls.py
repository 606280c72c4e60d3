"""What TLS costs: processor time of the broker per message, in the clear and over TLS 1.3.

Both brokers have the same certificate (RSA, 2048 bits).  ``stunnel`` speaks TLS for the
generator, so that its own cost is not the broker's; the rate over TLS is bounded by it.

    python benchmarks/tls.py                    four rows, 3 rounds
    python benchmarks/tls.py --only auto-ack-1k --rounds 1
"""

from __future__ import annotations

import argparse
import datetime as dt
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from benchmarks.compare import Broker, ComparedRabbit, PinnedPenstock, measure  # noqa: E402
from benchmarks.scenarios import Scenario, chosen  # noqa: E402
from benchmarks.tables import machine, plain, spread, thousands  # noqa: E402
from tests.helpers.broker_process import free_port  # noqa: E402
from tests.helpers.certificates import Authority  # noqa: E402

ROWS: Final = "auto-ack-16,auto-ack-1k,ack-each-1k,safe-through-1k"
PAGE: Final = ROOT / "benchmarks/results"
START_S: Final = 1.0
HEAD: Final = """\
| row | broker | clear, messages/s | TLS, messages/s | clear, us | TLS, us | TLS adds, us |
|---|---|--:|--:|--:|--:|--:|"""


@contextmanager
def tunnel(directory: Path, port: int, cores: str) -> Iterator[str]:
    """The URL of a listener in the clear whose connections go on to ``port`` by TLS."""
    listener = free_port()
    config = directory / f"stunnel-{port}.conf"
    config.write_text(
        f"foreground = yes\npid =\ndebug = 3\n[amqp]\nclient = yes\n"
        f"accept = 127.0.0.1:{listener}\nconnect = 127.0.0.1:{port}\n"
        f"CAfile = {directory}/ca.pem\nverifyChain = yes\n"
    )
    with subprocess.Popen(["taskset", "-c", cores, "stunnel", str(config)]) as process:
        try:
            time.sleep(START_S)
            yield f"amqp://guest:guest@127.0.0.1:{listener}"
        finally:
            process.terminate()


def brokers(given: argparse.Namespace, certificate: str, key: str) -> dict[str, tuple[Broker, int]]:
    """With the port of each that speaks TLS."""
    ours, theirs = free_port(), free_port()
    flags = ("--ssl-port", str(ours), "--ssl-certfile", certificate, "--ssl-keyfile", key)
    config = (
        f"listeners.ssl.default = 127.0.0.1:{theirs}\nssl_options.certfile = {certificate}\n"
        f"ssl_options.keyfile = {key}\nssl_options.versions.1 = tlsv1.3\n"
    )
    core = given.broker_core
    return {
        "Penstock": (PinnedPenstock(core, given.generator_cores, given.pure, flags), ours),
        "RabbitMQ": (ComparedRabbit(core, given.generator_cores, config), theirs),
    }


def rows_of(scenario: Scenario, given: argparse.Namespace) -> list[str]:
    found = []
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        certificate, key = Authority(directory).sign("server", "/CN=localhost", "IP:127.0.0.1")
        sides = brokers(given, certificate, key)
        urls = {}
        for name, (broker, port) in sides.items():
            stack.enter_context(broker)
            urls[name] = stack.enter_context(tunnel(directory, port, given.generator_cores))
        rates: dict[tuple[str, bool], list[float]] = {}
        costs: dict[tuple[str, bool], list[float]] = {}
        for _ in range(given.rounds):
            for name, (broker, _port) in sides.items():
                for url in ("", urls[name]):
                    result = measure(scenario, broker, given, url)
                    rate = result[scenario.figure]
                    rates.setdefault((name, bool(url)), []).append(rate)
                    cost_us = result["broker"]["cpu_cores"] / rate * 1e6
                    costs.setdefault((name, bool(url)), []).append(cost_us)
        for name in sides:
            clear, tls = costs[name, False], costs[name, True]
            cells = [
                scenario.title,
                name,
                *(spread(rates[name, is_tls], thousands) for is_tls in (False, True)),
                *(spread(one, plain) for one in (clear, tls)),
                plain(statistics.median(tls) - statistics.median(clear)),
            ]
            found.append(f"| {' | '.join(cells)} |")
            print(found[-1], flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="What TLS costs beside RabbitMQ.")
    parser.add_argument("--rounds", type=int, default=3, help="per row (3)")
    parser.add_argument("--seconds", type=float, default=3.0, help="measured per run (3)")
    parser.add_argument("--warmup", type=float, default=1.0, help="before measuring (1)")
    parser.add_argument("--only", default=ROWS, help="names or beginnings of names, with commas")
    parser.add_argument("--pure", action="store_true", help="run Penstock interpreted")
    parser.set_defaults(broker_core=0, generator_cores="1", favoured=False)
    given = parser.parse_args()
    rows = [row for scenario in chosen(given.only) for row in rows_of(scenario, given)]
    date = dt.datetime.now(tz=dt.UTC).date().isoformat()
    here = machine()
    about = (
        f"{date}, {here['cores']} cores ({here['cpu']}), Python {here['python']}. Each broker runs"
        " on core 0, generator and stunnel on core 1. Microseconds are processor time of the broker"
        " per message, median [smallest..largest]."
    )
    command = f"    python benchmarks/tls.py {shlex.join(sys.argv[1:])}".rstrip()
    text = "\n".join(["# What TLS costs", "", about, "", command, "", HEAD, *rows, ""])
    (PAGE / f"{date}-tls.md").write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
