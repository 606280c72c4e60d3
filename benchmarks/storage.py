"""Long queues: filled, drained, opened again, half acknowledged, and asked small things meanwhile.

Load comes from ``penstock bench``; only the acknowledging of a random half is done here, because
no generator does that.  ``slow-consumers`` and ``paging-reads`` are tables of their own.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from benchmarks.brokers import (
    Side,
    Watch,
    depth,
    disk_mb,
    held_to,
    memory_mb,
    peers,
    penstock,
    wait_for_depth,
)
from benchmarks.harness import Figures, Given, Row, Table, needs
from benchmarks.load import PROBES, bench, probe
from benchmarks.page import Column, Promise, Section, plain, tenths, thousands
from penstock.client.amqp import Channel, Connection, Endpoint
from penstock.protocols.amqp.codec import methods as m
from penstock.protocols.amqp.codec.methods import encode_method
from penstock.settings.settings import DECLARED
from tests.crash.kill_clients import Deliveries, Line
from tests.helpers import raw_codec as codec
from tests.helpers.live_broker import LiveBroker
from tests.helpers.management_api import manage
from tests.helpers.slow_consumers import Traffic, enter, publishes, sleepers
from tests.helpers.slow_consumers import fill as fill_raw

QUEUE: Final = "bench.storage"
MEMORY_SETTING: Final = "vm_memory_high_watermark"
LAZY: Final = ("--queue-arg", "x-queue-mode=lazy")
SLOWEST_PER_S: Final = 2000
"""A broker slower than that is broken off."""
GRACE_S: Final = 120.0
IDLE_S: Final = 3.0
SPARE_BYTES: Final = 4e9
PER_MESSAGE_BYTES: Final = 512
"""Room a message may take on the disk beside its body, journal and garbage included."""
FASTEST_PER_S: Final = 400_000
STRETCH: Final = 2000
"""Messages per channel where a random half is acknowledged."""
SETTLED_SHARE: Final = 0.002
SETTLE_LIMIT_S: Final = 180.0
SETTLE_LOOK_S: Final = 0.5


# -- load -----------------------------------------------------------------------------------


def queue_words(lazy: bool) -> list[str]:
    return ["--queue", QUEUE, "--durable", *(LAZY if lazy else ())]


def fill_words(lazy: bool, size: int, window: int) -> list[str]:
    """Window 0 = no confirms."""
    words = [*queue_words(lazy), "--consumers", "0", "--persistent", "--size", str(size)]
    return [*words, "--confirm", str(window)] if window else words


def drain_words(lazy: bool) -> list[str]:
    return [*queue_words(lazy), "--publishers", "0", "--prefetch", "1000", "--ack-every", "100"]


def counted(count: int) -> list[str]:
    return ["--count", str(count), "--deadline", f"{count / SLOWEST_PER_S + GRACE_S:.0f}"]


def fill(side: Side, words: list[str], count: int) -> Figures:
    """Publish ``count`` messages; what is not confirmed is waited for as well."""
    result = bench(side, [*words, *counted(count)], disk=True)
    waited_s = wait_for_depth(side.url, QUEUE, count, GRACE_S)
    publish_s = count / result["publish_rate"] if result["publish_rate"] else 0.0
    result["rate"] = result["publish_rate"]
    result["counted_rate"] = count / max(1e-9, publish_s + waited_s)
    result["count"] = count
    if result["watched"]:
        result["disk_per_message"] = result["watched"]["disk_end_mb"] * 1e6 / count
    if result["blocked_s"]:
        result["wrong"].append(f"publishers were blocked for {result['blocked_s']:.1f} s")
    return result


def drain(side: Side, lazy: bool, count: int, *, probing: bool = False) -> Figures:
    words = [*drain_words(lazy), *counted(count)]
    result = bench(side, words, disk=not probing, probing=probing)
    left = depth(side.url, QUEUE)
    result["wrong"] += [f"{left:,} messages are left"] if left else []
    side.delete(QUEUE)
    return result | {"rate": result["consume_rate"], "count": count}


def fill_count(side: Side, given: Given) -> int:
    count: int = given.count if side.key == "penstock" else given.peer_count
    return count


def filling(lazy: bool, confirmed: bool) -> Callable[[Side, Given], Figures]:
    """Publish without a consumer; with confirms, consume all of it afterwards."""

    def measure(side: Side, given: Given) -> Figures:
        words = fill_words(lazy, given.size, given.window if confirmed else 0)
        found = {"fill": fill(side, words, fill_count(side, given))}
        if confirmed:
            found["drain"] = drain(side, lazy, fill_count(side, given))
        side.delete(QUEUE)
        return found

    return measure


def reopening(lazy: bool) -> Callable[[Side, Given], Figures]:
    """Kill it with all messages on board, open it; stop it in order, open it again."""

    def measure(side: Side, given: Given) -> Figures:
        if side.is_external:
            raise RuntimeError("this broker is not ours to stop")
        count = given.restart_count
        words = fill_words(lazy, given.size, given.window)
        found: Figures = {"count": count, "fill": fill(side, words, count)}
        side.process.kill()
        found["kill"] = opened(side, count)
        stop_s = timed(side.process.stop)
        found["clean"] = opened(side, count) | {"stop_s": stop_s}
        return found

    return measure


def opened(side: Side, count: int) -> Figures:
    """From the start of the process until a passive declare answers with all messages."""

    def open_() -> None:
        side.start()
        wait_for_depth(side.url, QUEUE, count, GRACE_S)

    return {"seconds": timed(open_), "rss_mb": memory_mb(side.pid, "VmHWM")}


def timed(action: Callable[[], object]) -> float:
    begin_s = time.monotonic()
    action()
    return time.monotonic() - begin_s


# -- space ------------------------------------------------------------------------------------


def space(size: int, share: float) -> Callable[[Side, Given], Figures]:
    """Acknowledge a random half, put the rest back, and see what the disk gets back."""

    def measure(side: Side, given: Given) -> Figures:
        count = max(2, int(given.space_count * share))
        empty_mb = disk_mb(side.stored)
        filled = fill(side, fill_words(False, size, given.window), count)
        with Watch(side.pid, side.stored) as watch:
            left = count - ack_half(side.url, count)
            wait_for_depth(side.url, QUEUE, left, GRACE_S)
            settled_s = wait_for_quiet(side, given.settle_seconds)
        watched = watch.result()
        filled_mb = filled["watched"]["disk_end_mb"] - empty_mb
        used_mb, live_mb = watched["disk_end_mb"] - empty_mb, left * size / 1e6
        return {
            "count": count,
            "left": left,
            "filled_mb": filled_mb,
            "used_mb": used_mb,
            "amplification": used_mb / live_mb,
            "filled_amplification": filled_mb / (count * size / 1e6),
            "settled_s": settled_s,
            "fill": filled,
            "watched": watched,
        }

    return measure


def ack_half(url: str, count: int) -> int:
    """Take all there is, acknowledge a random half, leave the rest; how many were acked.

    The same half for all brokers.  Each channel takes a stretch and keeps what it does not
    acknowledge until the end: RabbitMQ looks for a single ack among all that its channel has
    not acknowledged, so that one channel for everything would take it hours.
    """
    dice = random.Random(count)
    acked = taken = 0
    with Connection(Endpoint.parse(url), timeout_s=GRACE_S) as connection:
        while taken < count:
            stretch = min(STRETCH, count - taken)
            channel = connection.channel()
            tags = take(channel, stretch)
            acks = [
                encode_method(channel.number, m.BASIC_ACK, (tag, False))
                for tag in tags
                if dice.random() < 0.5
            ]
            connection.send(b"".join(acks))
            channel.qos(1)  # answered when every ack before it was read
            acked += len(acks)
            taken += stretch
    return acked


def take(channel: Channel, count: int) -> list[int]:
    """The tags of the next ``count`` messages, which stay unacknowledged."""
    channel.qos(count)
    consumer = channel.consume(QUEUE)
    tags: list[int] = []
    while len(tags) < count:
        delivery = channel.next_delivery(GRACE_S)
        if delivery is None:
            raise RuntimeError(f"{len(tags):,} of {count:,} messages were delivered")
        tags.append(delivery.delivery_tag)
    channel.cancel(consumer)
    return tags


def wait_for_quiet(side: Side, quiet_s: float) -> float:
    """Seconds until the disk's use began to stay the same for ``quiet_s``."""
    begin_s = changed_s = time.monotonic()
    before_mb = disk_mb(side.stored)
    while time.monotonic() - changed_s < quiet_s:
        if time.monotonic() - begin_s > SETTLE_LIMIT_S:
            raise RuntimeError(f"the disk's use still changed after {SETTLE_LIMIT_S:.0f} s")
        time.sleep(SETTLE_LOOK_S)
        now_mb = disk_mb(side.stored)
        if abs(now_mb - before_mb) > SETTLED_SHARE * before_mb:
            before_mb, changed_s = now_mb, time.monotonic()
    return changed_s - begin_s


# -- responsiveness ---------------------------------------------------------------------------


def responsive(lazy: bool) -> Callable[[Side, Given], Figures]:
    """Small questions to another queue while this one is filled, and drained, flat out."""

    def measure(side: Side, given: Given) -> Figures:
        with ExitStack() as stack:
            probes = {kind: stack.enter_context(probe(side, kind)) for kind in PROBES}
            time.sleep(IDLE_S)
            found: Figures = {"idle": {"probes": {k: one.result() for k, one in probes.items()}}}
        words = fill_words(lazy, given.size, given.window)
        timing = ["--duration", f"{given.probe_seconds:g}"]
        found["fill"] = bench(side, [*words, *timing], probing=True)
        found["fill"]["rate"] = found["fill"]["publish_rate"]
        count = found["fill"]["published"]
        wait_for_depth(side.url, QUEUE, count, GRACE_S)
        found["drain"] = drain(side, lazy, count, probing=True)
        for phase in found.values():  # a line for each question: its load's figures beside it
            for seen in phase["probes"].values():
                seen |= {key: phase.get(key) for key in ("rate", "other_cores")}
        return found

    return measure


# -- the table --------------------------------------------------------------------------------


def sides(given: Given, row: Row) -> list[Side]:
    """Default queues of Penstock are filled under a memory limit."""
    limit: tuple[str, ...] = ()
    if row.name in LIMITED and given.memory_limit_mb:
        limit = (DECLARED[MEMORY_SETTING].flag, str(given.memory_limit_mb * 1_000_000))
    return [penstock(given, *limit), *peers(given)]


def options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--count", type=int, default=10_000_000, help="fill: Penstock's messages")
    add("--peer-count", type=int, default=1_000_000, help="fill: those of others")
    add("--restart-count", type=int, default=1_000_000, help="restart: messages")
    add("--space-count", type=int, default=1_000_000, help="space: of 1 KB; a fifth of 8 KB")
    add("--probe-seconds", type=float, default=15.0, help="responsiveness: time of filling")
    add("--settle-seconds", type=float, default=10.0, help="space: no change for so long")
    add("--size", type=int, default=1024, help="body bytes, 16 at least")
    add("--window", type=int, default=2000, help="unconfirmed messages at most")
    add("--memory-limit-mb", type=int, default=512, help="of default queues; 0 = Penstock's own")


def room(of: Callable[[Given], float], size: int = 0) -> Callable[[Given], float]:
    """For so many messages, of the run's size if none is given."""
    return lambda given: of(given) * ((size or given.size) + PER_MESSAGE_BYTES) + SPARE_BYTES


FILLED: Final = room(lambda given: given.count)
OPENED: Final = room(lambda given: given.restart_count)
PROBED: Final = room(lambda given: given.probe_seconds * FASTEST_PER_S)
ROWS: Final = [
    Row("fill-lazy-confirm", "lazy, confirmed", filling(True, True), "fill", FILLED),
    Row("fill-default-confirm", "default, confirmed", filling(False, True), "fill", FILLED),
    Row("fill-lazy-publish", "lazy, publish only", filling(True, False), "fill", FILLED),
    Row("fill-default-publish", "default, publish only", filling(False, False), "fill", FILLED),
    Row("restart-default", "default", reopening(False), "restart", OPENED),
    Row("restart-lazy", "lazy", reopening(True), "restart", OPENED),
    Row("space-1k", "1 KB", space(1024, 1.0), "space", room(lambda given: 2 * given.space_count)),
    Row("space-8k", "8 KB", space(8192, 0.2), "space", room(lambda g: 0.4 * g.space_count, 8192)),
    Row("responsive-lazy", "lazy", responsive(True), "responsive", PROBED),
    Row("responsive-default", "default", responsive(False), "responsive", PROBED),
]
LIMITED: Final = {"fill-default-confirm", "fill-default-publish", "responsive-default"}
PROBE_COLUMNS: Final = (
    *(Column(f"latency_ms/{name}", name) for name in ("p50", "p99", "p99.9", "max")),
    *(Column(f"answer_ms/{name}", f"answer {name}", plain, -1) for name in ("p99", "max")),
    Column("rate", "load msg/s", thousands),
    Column("other_cores", "other load, cores"),
)
QUESTIONS: Final = {"get": "basic.get, empty queue", "through": "publish 1 KB, receive it"}
SECTIONS: Final = {
    "fill": Section(
        "Fill: no consumer; drain: prefetch 1000, ack every 100",
        (
            Column("rate", "msg/s", thousands, 1),
            Column("count", "messages", thousands),
            Column("counted_rate", "until all are counted", thousands),
            Column("watched/rss_peak_mb", "peak RSS MB", thousands),
            Column("watched/rss_end_mb", "RSS at the end MB", thousands),
            Column("watched/disk_end_mb", "disk MB", thousands),
            Column("disk_per_message", "disk bytes per message", thousands),
            Column("broker/cpu_us_per_message", "CPU µs/msg"),
            Column("other_cores", "other load, cores"),
        ),
        {"fill": "fill", "drain": "drain"},
    ),
    "restart": Section(
        "Open again, seconds until the queue answers with all messages",
        (
            Column("seconds", "s", plain, -1),
            Column("/count", "messages", thousands),
            Column("rss_mb", "peak RSS MB", thousands),
            Column("stop_s", "stopping took s"),
        ),
        {"kill": "after kill -9", "clean": "after a clean stop", "empty": "empty node"},
    ),
    "space": Section(
        "Space after a random half is acknowledged",
        (
            Column("amplification", "disk / live, half acked", plain, -1),
            Column("filled_amplification", "disk / live, all there", plain, -1),
            Column("count", "messages", thousands),
            Column("left", "left", thousands),
            Column("filled_mb", "disk MB before", thousands),
            Column("used_mb", "disk MB after", thousands),
            Column("watched/disk_peak_mb", "most disk MB", thousands),
            Column("settled_s", "settled after s", tenths),
            Column("watched/rss_peak_mb", "peak RSS MB", thousands),
        ),
    ),
    "responsive": Section(
        "Small questions to another queue meanwhile, ms",
        PROBE_COLUMNS,
        {
            f"{phase}/probes/{kind}": f"{phase}: {question}"
            for phase in ("idle", "fill", "drain")
            for kind, question in QUESTIONS.items()
        },
    ),
}
PROMISES: Final = [
    Promise("fill: times RabbitMQ's messages/s, 5", "fill", "fill/rate", least=5, over="rabbitmq"),
    Promise("drain: times RabbitMQ's, 4", "fill-", "drain/rate", least=4, over="rabbitmq"),
    Promise("resident below 200 MB", "fill-lazy", "fill/watched/rss_peak_mb", most=200),
    Promise("resident below 512 MB", "fill-default", "fill/watched/rss_peak_mb", most=512),
    Promise(
        "after kill -9 at most a third of RabbitMQ's time",
        "restart",
        "kill/seconds",
        most=1 / 3,
        over="rabbitmq",
    ),
    Promise("after a clean stop below 1 s", "restart", "clean/seconds", most=1.0),
    *(
        Promise(
            f"basic.get during {phase}: p99 of the answer below 5 ms",
            "responsive",
            f"{phase}/probes/get/answer_ms/p99",
            most=5.0,
        )
        for phase in ("fill", "drain")
    ),
]
STORAGE: Final = Table(
    "storage",
    "Storage: long queues",
    "Persistent messages in a durable queue, each broker alone and started anew.",
    ROWS,
    SECTIONS,
    sides,
    lives="run",
    options=options,
    defaults={"rounds": 1},
    tried={
        "count": 20_000,
        "peer_count": 5000,
        "restart_count": 5000,
        "space_count": 5000,
        "probe_seconds": 2.0,
        "settle_seconds": 2.0,
    },
    promises=PROMISES,
    lacking=needs,
)


# -- consumers that never read ----------------------------------------------------------------

KEPT: Final = 0.9
SAMPLES: Final = 5
WAITING_BYTES: Final = 600_000
"""What waits for each slow consumer."""


def slow(size: int, each_bytes: int, *, shared: bool) -> Callable[[Side, Given], Figures]:
    """``shared``: in one queue for all; else each has one."""

    def queues_of(url: str, count: int) -> list[str]:
        if shared:
            fill_raw(url, "bench.full", count * each_bytes // size, size)
            return ["bench.full"] * count
        names = [f"bench.full-{number}" for number in range(count)]
        client = enter(url)
        for name in names:
            client.call(1, "queue.declare", queue=name, durable=True)
            client.sock.sendall(publishes(name, each_bytes // size, size))
        client.call(1, "queue.declare", queue=names[-1], passive=True)
        client.close_socket()
        return names

    def measure(side: Side, given: Given) -> Figures:
        with held_to(given.generator_cores):
            queues = queues_of(side.url, given.slow)
            with Traffic(side.url, given.healthy, given.size) as traffic:
                traffic.rate(given.seconds)
                alone = rate(traffic, given.seconds)
                before_mb = memory_mb(side.pid)
                with sleepers(side.url, queues):
                    traffic.rate(given.seconds)
                    beside = rate(traffic, given.seconds)
                    grown_mb = memory_mb(side.pid) - before_mb
        for queue in set(queues):
            side.delete(queue)
        return {
            "alone_mb_s": alone / 1e6,
            "beside_mb_s": beside / 1e6,
            "kept": beside / alone,
            "grown_mb": grown_mb,
        }

    return measure


def rate(traffic: Traffic, seconds: float) -> float:
    return statistics.median(traffic.rate(seconds) for _ in range(SAMPLES))


def slow_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--slow", type=int, default=1000, help="consumers that do not read")
    add("--healthy", type=int, default=4, help="consumers that do")
    add("--size", type=int, default=1000, help="body bytes of what the healthy ones get")
    add("--memory-limit-mb", type=int, default=1024, help="Penstock's")


SLOW: Final = Table(
    "slow-consumers",
    "Consumers that never read",
    "Healthy consumers with a queue each are kept busy by a publisher; then slow ones come, which"
    " never read their sockets: how the resident memory grows (connections included, in the first"
    " row nothing else), and what the healthy ones keep of their rate.",
    [
        Row("idle", "an empty queue", slow(1000, 0, shared=True)),
        Row("shared", "one queue of 1 KB messages", slow(1000, WAITING_BYTES, shared=True)),
        Row("each", "a queue each of 1 KB messages", slow(1000, WAITING_BYTES, shared=False)),
        Row("large", "one queue of 100 KB messages", slow(100_000, WAITING_BYTES, shared=True)),
    ],
    {
        "": Section(
            "",
            (
                Column("kept", "kept", plain, 1),
                Column("alone_mb_s", "healthy ones alone MB/s", tenths),
                Column("beside_mb_s", "beside MB/s", tenths),
                Column("grown_mb", "RSS grown MB", tenths),
            ),
        )
    },
    lambda given, row: [
        penstock(given, DECLARED[MEMORY_SETTING].flag, str(given.memory_limit_mb << 20)),
        *peers(given),
    ],
    lives="run",
    options=slow_options,
    defaults={"rounds": 1, "seconds": 2.0},
    tried={"slow": 30, "seconds": 0.3},
    promises=[Promise("the healthy ones keep of their rate at least", "", "kept", least=KEPT)],
    lacking=needs,
)


# -- reads of a paged queue -------------------------------------------------------------------

PAGED: Final = 40_000
PAGED_SIZE: Final = 100
PAUSE_S: Final = 0.002


def fill_paged(url: str) -> None:
    line = Line(url)
    line.call("queue.declare", queue="q", durable=True)
    line.call("confirm.select")
    one = codec.method_frame(1, "basic.publish", routing_key="q")
    one += codec.content_frames(1, b"x" * PAGED_SIZE, {"delivery_mode": 2})
    confirms = Deliveries()
    for count in range(1000, PAGED + 1, 1000):
        line.send(one * 1000)
        while confirms.confirmed_to < count:
            list(confirms.take(line.frames()))
    line.close()


def consume_slowly(url: str, seconds: float) -> int:
    line = Line(url)
    line.call("basic.qos", prefetch_count=100)
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


def paged(limit: str) -> Callable[[Side, Given], Figures]:
    """What was handed out and not acknowledged is read, too: up to a prefetch."""

    def measure(side: Side, given: Given) -> Figures:
        broker = side.process
        assert isinstance(broker, LiveBroker)

        def moved() -> int:
            moves = manage(f"{broker.http_url}/api/penstock/queues/%2F/q/flow")["moves"]
            return int(moves["delta_to_q3"]["count"])

        fill_paged(side.url)
        manage(f"{broker.http_url}/api/penstock/vm-memory-high-watermark", {"absolute": limit})
        time.sleep(2)
        before = moved()
        taken = consume_slowly(side.url, given.seconds)
        read = moved() - before
        return {"delivered": taken, "read": read, "reads": read / max(taken, 1)}

    return measure


PAGING: Final = Table(
    "paging-reads",
    "Reads of a paged queue",
    f"{PAGED:,} persistent messages of {PAGED_SIZE} B, then memory is made short and a consumer"
    f" with prefetch 100 takes {PAUSE_S * 1000:.0f} ms for each.",
    [
        Row(limit.lower(), f"memory limit {limit}", paged(limit))
        for limit in ("1MB", "40MB", "60MB", "80MB", "100MB", "1GB")
    ],
    {
        "": Section(
            "",
            (
                Column("reads", "reads per delivery", plain, -1),
                Column("delivered", "delivered", thousands),
                Column("read", "read from the disk", thousands),
            ),
        )
    },
    lambda given, row: [penstock(given)],
    lives="run",
    defaults={"rounds": 1, "seconds": 20.0, "alone": True},
    promises=[Promise("reads per delivery at most", "", "reads", most=2.0)],
    lacking=needs,
)

TABLES: Final = (STORAGE, SLOW, PAGING)
