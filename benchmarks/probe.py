"""Asks a broker something small every few milliseconds and notes how long each answer took.

    python benchmarks/probe.py --uri amqp://… --kind get        basic.get on an empty queue
    python benchmarks/probe.py --uri amqp://… --kind through    publish 1 KB, wait for it
    python benchmarks/probe.py --uri amqp://… --kind confirm    publish 100 B, wait for the confirm

It ends when its standard input does, and prints one JSON object.  Latency is counted from when
a ping was *due*, so a broker that stalls pays for every ping that had to wait.  The *answer*
is the time from the ping's first byte to the end of its answer, less what the probe itself
had to wait for a core meanwhile, which Linux counts per thread: where generator and probe
share a core, the former would otherwise be taken for the broker.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import select
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from penstock.client.amqp import Channel, Connection, Endpoint  # noqa: E402

KINDS = ("get", "through", "confirm")
BODY = bytes(1024)
SMALL_BODY = bytes(100)
PROBE_KEY = "probe"
ANSWER_LIMIT_S = 600.0


def pinger(channel: Channel, kind: str, exchange: str = "") -> Callable[[], None]:
    queue = channel.queue_declare(exclusive=True).text("queue")
    key = queue
    if exchange:
        key = PROBE_KEY
        channel.queue_bind(queue, exchange, key)

    def get() -> None:
        channel.get(queue, no_ack=True)

    def through() -> None:
        channel.publish(BODY, routing_key=queue)
        if channel.next_delivery(ANSWER_LIMIT_S) is None:
            raise SystemExit(f"no message came through within {ANSWER_LIMIT_S:.0f} s")

    def confirm() -> None:
        channel.publish(SMALL_BODY, exchange, key)
        if channel.wait_for_confirms(ANSWER_LIMIT_S):
            raise SystemExit("a message was refused")

    if kind == "get":
        return get
    if kind == "confirm":
        channel.confirm_select()
        return confirm
    channel.consume(queue, no_ack=True)
    return through


class OwnWait:
    """Nanoseconds this thread was ready to run and had no core."""

    def __init__(self) -> None:
        self._file = os.open("/proc/thread-self/schedstat", os.O_RDONLY)

    def so_far_ns(self) -> int:
        return int(os.pread(self._file, 100, 0).split()[1])


def percentile(ordered: list[int], fraction: float) -> float:
    """In milliseconds; the list is sorted."""
    return ordered[min(len(ordered) - 1, int(fraction * len(ordered)))] / 1e6


def summary(values_ns: list[int]) -> dict[str, float]:
    ordered = sorted(values_ns)
    found = {
        f"p{fraction * 100:g}": percentile(ordered, fraction) for fraction in (0.5, 0.99, 0.999)
    }
    return found | {"max": percentile(ordered, 1.0)}


def watch(ping: Callable[[], None], interval_ns: int, warmup_ns: int) -> dict[str, Any]:
    """Ping until standard input ends; what is due before the warm-up is over does not count."""
    own = OwnWait()
    latencies_ns: list[int] = []
    answers_ns: list[int] = []
    due_ns = time.monotonic_ns()
    counts_from_ns = due_ns + warmup_ns
    while True:
        pause_s = max(0, due_ns - time.monotonic_ns()) / 1e9
        if select.select([sys.stdin], [], [], pause_s)[0]:
            break
        waited_ns, begin_ns = own.so_far_ns(), time.monotonic_ns()
        ping()
        end_ns = time.monotonic_ns()
        waited_ns = own.so_far_ns() - waited_ns
        if due_ns >= counts_from_ns:
            latencies_ns.append(end_ns - due_ns)
            answers_ns.append(max(0, end_ns - begin_ns - waited_ns))
        due_ns += interval_ns
    usage = resource.getrusage(resource.RUSAGE_SELF)
    found = {"cpu_s": usage.ru_utime + usage.ru_stime, "pings": len(latencies_ns)}
    if not latencies_ns:
        return found
    return found | {
        "latency_ms": summary(latencies_ns),
        "answer_ms": summary(answers_ns),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description="How long a small question takes, again and again."
    )
    parser.add_argument("--uri", required=True, help="the broker")
    parser.add_argument("--kind", choices=KINDS, required=True)
    parser.add_argument("--exchange", default="", help="confirm: publish to this one")
    parser.add_argument("--interval-ms", type=float, default=5.0, help="from ping to ping (5)")
    parser.add_argument("--warmup", type=float, default=1.0, help="seconds not counted (1)")
    given = parser.parse_args()
    with Connection(Endpoint.parse(given.uri), timeout_s=ANSWER_LIMIT_S) as connection:
        ping = pinger(connection.channel(), given.kind, given.exchange)
        ping()
        gc.disable()
        result = watch(ping, int(given.interval_ms * 1e6), int(given.warmup * 1e9))
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
