"""How late deferred messages come when many channels have many of them due in the same second.

400 topics with a channel each and a consumer at every channel.  Two loads: 100,000 messages, each
published with a deferral of its own so that their due times lie evenly in one second; and one
message a channel, all due at the same moment.  Lateness is the time at which a message was read,
less its publish time (which it carries) and its deferral.  Penstock in exact mode, Penstock with
the queueScanLoop, and nsqd if it is given, one after the other.

    python benchmarks/nsq_lateness.py --nsqd PATH
    python benchmarks/nsq_lateness.py --pure --channels 40 --messages 2000
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import selectors
import socket
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from benchmarks.compare import is_compiled  # noqa: E402
from benchmarks.nsq_brokers import Benched, BenchedNsqd, BenchedPenstock, all_cores  # noqa: E402
from benchmarks.nsq_wire import OK_FRAME, RECEIVE_BYTES, connect, subscribe  # noqa: E402
from benchmarks.tables import machine  # noqa: E402
from penstock.client.load import __file__ as hot_file  # noqa: E402
from tests.helpers.slow_consumers import allow_sockets  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"
EXACT: Final = "exact"
SCANNED: Final = "scan"
NSQD: Final = "nsqd"
SIDES: Final = {
    EXACT: "Penstock, exact",
    SCANNED: "Penstock, queueScanLoop",
    NSQD: "nsqd",
}
WINDOW: Final = 1000
PERCENTILES: Final = (50.0, 90.0, 99.0, 99.9)
BODY: Final = struct.Struct(">q")
"""The deferral in nanoseconds."""

Result = dict[str, Any]


class Load(NamedTuple):
    name: str
    title: str
    messages: int
    spread_ns: int


def loads(given: argparse.Namespace) -> list[Load]:
    both = (
        Load("second", f"{given.messages:,} within one second", given.messages, 1_000_000_000),
        Load("moment", "one a channel, at one moment", given.channels, 0),
    )
    return [load for load in both if given.load in ("", load.name)]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--nsqd", type=Path, help="the program nsqd")
    add("--channels", type=int, default=400)
    add("--messages", type=int, default=100_000)
    add("--size", type=int, default=200, help="body bytes (200)")
    add("--lead", type=float, default=25.0, help="seconds from the first publish to the due one")
    add("--patience", type=float, default=30.0, help="seconds after which the rest is missing")
    add("--only", default="", help="sides, with commas: exact, scan, nsqd (all)")
    add("--load", default="", help="second or moment (both)")
    add("--pure", action="store_true", help="run Penstock interpreted")
    add("--broker-cores", default="0", help="Penstock's cores (0)")
    add("--generator-cores", default="1", help="the generator's (1)")
    add("--out", type=Path, default=RESULTS, help="directory of the results")
    return parser.parse_args()


def started(side: str, given: argparse.Namespace) -> Benched:
    if side == NSQD:
        return BenchedNsqd(given.nsqd, given.all_cores)
    scan = "exact" if side == EXACT else "probabilistic"
    words = ("--nsq-queue-scan", scan)
    return BenchedPenstock(given.broker_cores, given.pure, "durable", *words)


def commands(given: argparse.Namespace, load: Load, began_ns: int) -> Iterator[bytes]:
    """One DPUB after the other, each due at its own moment of the second."""
    first_ns = began_ns + int(given.lead * 1e9)
    padding = bytes(max(0, given.size - BODY.size))
    for number in range(load.messages):
        due_ns = first_ns + load.spread_ns * number // load.messages
        delay_ms = max(0, due_ns - time.time_ns()) // 1_000_000
        body = BODY.pack(delay_ms * 1_000_000) + padding
        head = b"DPUB late-%d %d\n" % (number % given.channels, delay_ms)
        yield head + struct.pack(">i", len(body)) + body


def publish(port: int, given: argparse.Namespace, load: Load) -> float:
    """All of them, at most a window without an answer; returns the seconds it took."""
    began_ns = time.time_ns()
    line = connect(port)
    sent = answered_bytes = 0
    block: list[bytes] = []
    for command in commands(given, load, began_ns):
        block.append(command)
        if len(block) < WINDOW // 4 and sent + len(block) < load.messages:
            continue
        line.sendall(b"".join(block))
        sent += len(block)
        block = []
        while sent * len(OK_FRAME) - answered_bytes > WINDOW * len(OK_FRAME):
            answered_bytes += len(line.recv(RECEIVE_BYTES))
    while answered_bytes < load.messages * len(OK_FRAME):
        data = line.recv(RECEIVE_BYTES)
        if not data or b"E_" in data:
            raise RuntimeError(f"refused: {data[:200]!r}")
        answered_bytes += len(data)
    line.close()
    return (time.time_ns() - began_ns) / 1e9


class Reader:
    """The consumer of one channel: takes what comes and finishes it."""

    def __init__(self, port: int, number: int) -> None:
        self.line: socket.socket = subscribe(port, f"late-{number}")
        self.line.sendall(b"RDY 2500\n")
        self._rest = b""

    def take(self, lateness_ns: list[int]) -> None:
        self._rest += self.line.recv(RECEIVE_BYTES)
        now_ns = time.time_ns()
        at, data, finished = 0, self._rest, []
        while len(data) - at >= 8:
            size, kind = struct.unpack_from(">ii", data, at)
            if len(data) - at < 4 + size:
                break
            if kind == 2:
                published_ns = struct.unpack_from(">q", data, at + 8)[0]
                delay_ns = BODY.unpack_from(data, at + 34)[0]
                lateness_ns.append(now_ns - published_ns - delay_ns)
                finished.append(b"FIN %b\n" % data[at + 18 : at + 34])
            elif kind == 0:
                finished.append(b"NOP\n")
            else:
                raise RuntimeError(data[at : at + 200])
            at += 4 + size
        self._rest = data[at:]
        if finished:
            self.line.sendall(b"".join(finished))


def measure(side: str, load: Load, given: argparse.Namespace) -> Result:
    with started(side, given) as broker:
        readers = [Reader(broker.port, number) for number in range(given.channels)]
        took_s = publish(broker.port, given, load)
        if took_s > given.lead:
            raise RuntimeError(f"publishing took {took_s:.0f} s: give a longer --lead")
        lateness_ns: list[int] = []
        deadline = time.monotonic() + given.lead - took_s + 1 + given.patience
        with selectors.DefaultSelector() as waiting:
            for reader in readers:
                waiting.register(reader.line, selectors.EVENT_READ, reader)
            while len(lateness_ns) < load.messages and time.monotonic() < deadline:
                for key, _ in waiting.select(1.0):
                    key.data.take(lateness_ns)
        for reader in readers:
            reader.line.close()
    return figures(lateness_ns, load.messages, took_s)


def figures(lateness_ns: list[int], wanted: int, took_s: float) -> Result:
    lateness_ns.sort()
    count = len(lateness_ns)
    found: Result = {"came": count, "missing": wanted - count, "publish_s": round(took_s, 1)}
    for percent in PERCENTILES if count else ():
        at = min(count - 1, int(count * percent / 100))
        found[f"p{percent:g}_ms"] = round(lateness_ns[at] / 1e6, 1)
    if count:
        found["smallest_ms"] = round(lateness_ns[0] / 1e6, 1)
        found["largest_ms"] = round(lateness_ns[-1] / 1e6, 1)
    return found


def page(report: Result, results: dict[str, dict[str, Result]]) -> str:
    where = report["machine"]
    columns = ["smallest", *(f"p{percent:g}" for percent in PERCENTILES), "largest"]
    setting = f"{report['channels']} channels with a consumer each, bodies of {report['size']} B"
    lines = [
        f"# Lateness of deferred messages, {report['date']}",
        "",
        f"{where['cpu']}, {where['cores']} cores. {setting}. Milliseconds from due time to read.",
    ]
    for title, sides in results.items():
        lines += ["", f"## {title}", "", f"| | {' | '.join(columns)} | missing |"]
        lines.append("|---" * (len(columns) + 2) + "|")
        for name, found in sides.items():
            cells = [f"{found[f'{column}_ms']:,.1f}" for column in columns if found["came"]]
            lines.append(f"| {SIDES[name]} | {' | '.join(cells)} | {found['missing']:,} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    given = arguments()
    if not given.pure and not is_compiled(hot_file):
        print("error: not compiled: run `make setup` first, or give --pure", file=sys.stderr)
        return 1
    allow_sockets(2 * given.channels + 1000)
    given.all_cores = all_cores()
    os.sched_setaffinity(0, {int(core) for core in given.generator_cores.split(",")})
    kind = "interpreted" if given.pure else "compiled"
    report: Result = {
        "date": dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": machine(),
        "channels": given.channels,
        "messages": given.messages,
        "size": given.size,
        "lead_s": given.lead,
    }
    wanted = tuple(part for part in given.only.split(",") if part)
    results: dict[str, dict[str, Result]] = {load.title: {} for load in loads(given)}
    stem = given.out / f"{report['date'][:10]}-nsq-lateness-{kind}"
    given.out.mkdir(parents=True, exist_ok=True)
    for load in loads(given):
        for side in (EXACT, SCANNED, NSQD):
            if (wanted and side not in wanted) or (side == NSQD and not given.nsqd):
                continue
            results[load.title][side] = measure(side, load, given)
            print(f"{load.title:<32} {SIDES[side]:<24} {results[load.title][side]}", flush=True)
            text = json.dumps({**report, "loads": results}, indent=1) + "\n"
            Path(f"{stem}.json").write_text(text)
            Path(f"{stem}.md").write_text(page(report, results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
