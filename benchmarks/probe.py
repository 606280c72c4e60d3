"""Asks a broker something small every few milliseconds and notes how long each answer took.

    python -m benchmarks.probe '{"uri": "amqp://…", "kind": "get"}'    basic.get on an empty queue
    …                                            "through"             publish 1 KB, wait for it
    …                                            "confirm"             100 B, wait for the confirm

It ends when its standard input does, and prints one JSON object.  Latency is counted from when
a ping was *due*, so a broker that stalls pays for every ping that had to wait.  The *answer*
is the time from the ping's first byte to the end of its answer, less what the probe itself
had to wait for a core meanwhile, which Linux counts per thread: where generator and probe
share a core, the former would otherwise be taken for the broker.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import select
import sys
import time
from collections.abc import Callable
from typing import Any

from penstock.client.amqp import Channel, Connection, Endpoint

BODY = bytes(1024)
SMALL_BODY = bytes(100)
PROBE_KEY = "probe"
ANSWER_LIMIT_S = 600.0


def pinger(channel: Channel, kind: str, exchange: str) -> Callable[[], None]:
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

    if kind == "confirm":
        channel.confirm_select()
    if kind == "through":
        channel.consume(queue, no_ack=True)
    return {"get": get, "through": through, "confirm": confirm}[kind]


def summary(values_ns: list[int]) -> dict[str, float]:
    """Percentiles in milliseconds."""
    ordered = sorted(values_ns)
    last = len(ordered) - 1
    fractions = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999, "max": 1.0}
    return {name: ordered[min(last, int(f * len(ordered)))] / 1e6 for name, f in fractions.items()}


def watch(ping: Callable[[], None], interval_ns: int, warmup_ns: int) -> dict[str, Any]:
    """Ping until standard input ends; what is due before the warm-up is over does not count."""
    own_wait = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
    latencies_ns: list[int] = []
    answers_ns: list[int] = []
    due_ns = time.monotonic_ns()
    counts_from_ns = due_ns + warmup_ns

    def waited_ns() -> int:
        """That this thread was ready to run and had no core."""
        return int(os.pread(own_wait, 100, 0).split()[1])

    while True:
        pause_s = max(0, due_ns - time.monotonic_ns()) / 1e9
        if select.select([sys.stdin], [], [], pause_s)[0]:
            break
        before_ns, begin_ns = waited_ns(), time.monotonic_ns()
        ping()
        end_ns = time.monotonic_ns()
        if due_ns >= counts_from_ns:
            latencies_ns.append(end_ns - due_ns)
            answers_ns.append(max(0, end_ns - begin_ns - (waited_ns() - before_ns)))
        due_ns += interval_ns
    usage = resource.getrusage(resource.RUSAGE_SELF)
    found = {"cpu_s": usage.ru_utime + usage.ru_stime, "pings": len(latencies_ns)}
    if not latencies_ns:
        return found
    return found | {"latency_ms": summary(latencies_ns), "answer_ms": summary(answers_ns)}


def main() -> None:
    given = {"exchange": "", "interval_ms": 5.0, "warmup_s": 1.0} | json.loads(sys.argv[1])
    with Connection(Endpoint.parse(given["uri"]), timeout_s=ANSWER_LIMIT_S) as connection:
        ping = pinger(connection.channel(), given["kind"], given["exchange"])
        ping()
        gc.disable()
        result = watch(ping, int(given["interval_ms"] * 1e6), int(given["warmup_s"] * 1e9))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
