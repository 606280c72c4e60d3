"""How many messages a queue that is paged reads from the disk for each one that it delivers.

A queue is filled without a consumer; then memory is made short and a slow consumer comes.  Each row
is one memory limit; 1MB lets a queue keep next to nothing.  ``delta_to_q3`` of the queue's flow
counts what was read back.  A row above ``READS_MAX`` ends the program with 1.

    python benchmarks/paging_reads.py             all limits, 20 s each
    python benchmarks/paging_reads.py --seconds 5 --pure
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import sys
import tempfile
import time
import urllib.request
from base64 import b64encode
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from benchmarks.tables import machine  # noqa: E402
from tests.crash.kill_clients import Deliveries, Line  # noqa: E402
from tests.helpers import raw_codec as codec  # noqa: E402
from tests.helpers.live_broker import LiveBroker  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"
LIMITS: Final = ("1MB", "40MB", "60MB", "80MB", "100MB", "1GB")
MESSAGES: Final = 40_000
SIZE: Final = 100
PREFETCH: Final = 100
PAUSE_S: Final = 0.002
READS_MAX: Final = 2.0

Row = dict[str, Any]


def asked(broker: LiveBroker, path: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(broker.http_url + path, data)
    request.method = "GET" if body is None else "PUT"
    request.add_header("Authorization", "Basic " + b64encode(b"guest:guest").decode())
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=10) as answer:
        said = answer.read()
    return json.loads(said) if said else None


def fill(broker: LiveBroker) -> None:
    line = Line(broker.url)
    line.call("queue.declare", queue="q", durable=True)
    line.call("confirm.select")
    one = codec.method_frame(1, "basic.publish", routing_key="q")
    one += codec.content_frames(1, b"x" * SIZE, {"delivery_mode": 2})
    confirms = Deliveries()
    for count in range(1000, MESSAGES + 1, 1000):
        line.send(one * 1000)
        while confirms.confirmed_to < count:
            list(confirms.take(line.frames()))
    line.close()


def consume(broker: LiveBroker, seconds: float) -> int:
    line = Line(broker.url)
    line.call("basic.qos", prefetch_count=PREFETCH)
    line.send(codec.method_frame(1, "basic.consume", queue="q", nowait=True))
    deliveries = Deliveries()
    taken = 0
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        for delivery in deliveries.take(line.frames()):
            taken += 1
            time.sleep(PAUSE_S)
            line.send(codec.method_frame(1, "basic.ack", delivery_tag=delivery.tag))
    line.close()
    return taken


def measure(limit: str, seconds: float) -> Row:
    """At least what was handed out and not acknowledged is read, too: up to a prefetch."""
    with tempfile.TemporaryDirectory() as scratch, LiveBroker(Path(scratch)) as broker:
        fill(broker)
        asked(broker, "/api/penstock/vm-memory-high-watermark", {"absolute": limit})
        time.sleep(2)
        before = moved(broker)
        taken = consume(broker, seconds)
        read = moved(broker) - before
        return {"limit": limit, "delivered": taken, "read": read, "reads": read / max(taken, 1)}


def moved(broker: LiveBroker) -> int:
    moves = asked(broker, "/api/penstock/queues/%2F/q/flow")["moves"]
    return int(moves["delta_to_q3"]["count"])


def page(rows: list[Row], now: dt.datetime, seconds: float, build: str) -> str:
    about = machine()
    lines = [
        f"# Reads of a paged queue, {now:%Y-%m-%d %H:%M} UTC",
        "",
        f"{about['cpu']}, {about['cores']} cores. Penstock {build}; {MESSAGES:,} persistent",
        f"messages of {SIZE} B, then a consumer with prefetch {PREFETCH} that takes",
        f"{PAUSE_S * 1000:.0f} ms for each, {seconds:g} s.",
        "",
        "| memory limit | delivered | read from the disk | reads per delivery |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {row['limit']} | {row['delivered']:,} | {row['read']:,} | {row['reads']:.2f} |"
        for row in rows
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--pure", action="store_true", help="the interpreted build")
    parser.add_argument("--only", help="one limit, nothing is written")
    options = parser.parse_args()
    if options.pure:
        os.environ["PENSTOCK_PURE"] = "1"
    build = "interpreted" if options.pure else "compiled"
    rows = []
    for limit in [options.only] if options.only else LIMITS:
        rows.append(measure(limit, options.seconds))
        print(rows[-1], flush=True)
    now = dt.datetime.now(dt.UTC)
    if not options.only:
        stem = f"{now:%Y-%m-%d}-paging-reads-{build}"
        (RESULTS / f"{stem}.md").write_text(page(rows, now, options.seconds, build))
        (RESULTS / f"{stem}.json").write_text(json.dumps(rows, indent=1) + "\n")
    return 0 if all(row["reads"] <= READS_MAX for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
