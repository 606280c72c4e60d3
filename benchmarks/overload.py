"""More than a broker can take: publishers at full speed, and no consumer or a slow one."""

from __future__ import annotations

import argparse
import statistics
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final

from benchmarks.brokers import Side, Watch, peers, penstock
from benchmarks.harness import Figures, Given, Row, Table, needs
from benchmarks.load import loading
from benchmarks.page import Column, Promise, Section, tenths, thousands
from penstock.client.amqp import Connection, Endpoint
from tests.helpers.administer import MEMORY, administer

QUEUE: Final = "bench.overload"
PEER_MEMORY: Final = "vm_memory_high_watermark.absolute = {mb}MB\n"
DISK_RESERVE: Final = 1.5
"""What a broker may take over the bodies it was sent, and the free space RabbitMQ insists on."""
SLOW, ALARM = "slow", "slow, alarm"


def overloading(size: int, window: int, prefetch: int, consumer: str) -> Callable[..., Figures]:
    """``window``: a publisher's unconfirmed messages; ``prefetch`` is the draining consumer's."""

    def measure(side: Side, given: Given) -> Figures:
        amounts = ("publishers", "seconds", "consumer_prefetch")
        words = {name: getattr(given, name) for name in amounts} | {
            "consumer_rate": given.consumer_rate if consumer else 0,
            "limit_bytes": given.disk_gb * 1e9,
        }
        row = {"queue": QUEUE, "size": size, "window": window, "drain_prefetch": prefetch}
        with Connection(Endpoint.parse(side.url)) as connection:
            connection.channel().queue_declare(QUEUE, durable=True)
        with (
            Watch(side.pid, side.stored) as watch,
            alarm(side, given, on=consumer == ALARM),
            loading(side, "overload_load", **words, **row) as load,
        ):
            found = load.result()
        side.delete(QUEUE)
        found = figures(found) | {"watched": watch.result()}
        if found["watched"]:
            found["of_limit"] = found["watched"]["rss_peak_mb"] / given.memory_mb
        found["resumed_share"] = found["resumed"] / given.publishers
        return found

    return measure


def figures(found: Figures) -> Figures:
    drain, resumed, totals = found["drain"], found["resumed_s"], found["totals"]
    overloaded, blocked = found["overload"], found["blocked"]
    names = ("lost", "refused", "unanswered", "doubled")
    wrong = [f"{name} {totals[name]:,}" for name in names if totals[name]]
    if drain["left"]:
        wrong.append(f"{drain['left']:,} messages were not delivered")
    if overloaded["limit_reached"]:
        wrong.append("all bodies that --disk-gb allows were published before the time was over")
    shares = [account["published"] for account in found.pop("accounts")]
    overloaded.pop("samples")
    held, free = (overloaded["consumer"].get(f"{name}_rate") for name in ("held", "free"))
    blocked["each_s"] = statistics.mean(blocked["seconds"])
    return found | {
        "consumer_kept": held / free if held is not None and free else None,
        "least_share": min(shares) / max(1, *shares),
        "last_resumed_s": max((s for s in resumed if s is not None), default=None),
        "drain_rate": drain["count"] / drain["seconds"] if drain["seconds"] > 0 else None,
        "wrong": wrong,
    }


@contextmanager
def alarm(side: Side, given: Given, *, on: bool) -> Iterator[None]:
    """The operator blocks all publishers in the second third of the time."""
    if not on:
        yield
        return
    over = threading.Event()

    def raise_and_clear() -> None:
        for limit in (("0",), ("absolute", f"{given.memory_mb}MB")):
            over.wait(given.seconds / 3)
            administer(side.process, MEMORY, *limit)

    with ThreadPoolExecutor(1) as operator:
        raised = operator.submit(raise_and_clear)
        try:
            yield
        finally:
            over.set()
        raised.result()


def options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--publishers", type=int, default=8, help="connections that publish, 999 at most")
    add("--memory-mb", type=int, default=256, help="memory limit of both brokers")
    add("--consumer-rate", type=float, default=200.0, help="slow: messages per second")
    add("--consumer-prefetch", type=int, default=10, help="slow: prefetch")
    add("--disk-gb", type=float, default=20.0, help="bodies a row may publish")


def sides(given: Given, row: Row) -> list[Side]:
    limit = ("--vm-memory-high-watermark", str(given.memory_mb * 1_000_000))
    return [penstock(given, *limit), *peers(given, PEER_MEMORY.format(mb=given.memory_mb))]


def rows() -> Iterator[Row]:
    kinds = {"none": ("", "no consumer"), "slow": (SLOW, SLOW), "alarm": (ALARM, ALARM)}
    sizes: dict[str, tuple[str, tuple[int, int, int]]] = {
        "1k": ("1 KB", (1024, 1000, 1000)),
        "1m": ("1 MB", (1_000_000, 20, 50)),
    }
    for kind, (consumer, title) in kinds.items():
        for size, (size_title, load) in sizes.items():
            yield Row(
                f"{kind}-{size}",
                f"{size_title}, {title}",
                overloading(*load, consumer),
                room_bytes=lambda given: given.disk_gb * 1e9 * DISK_RESERVE,
            )


COLUMNS: Final = (
    Column("overload/rate", "confirmed msg/s", thousands, 1),
    Column("watched/rss_peak_mb", "peak RSS MB", thousands),
    Column("watched/disk_peak_mb", "most disk MB", thousands),
    Column("blocked/publishers", "publishers told blocked", thousands),
    Column("blocked/times", "times", thousands),
    Column("blocked/each_s", "seconds each", tenths),
    Column("blocked/still", "still blocked after the drain", thousands),
    Column("least_share", "least published / most"),
    Column("overload/consumer/held_rate", "consumer msg/s, publishers held", thousands),
    Column("overload/consumer/free_rate", "free", thousands),
    Column("resumed", "publishers resumed", thousands),
    Column("last_resumed_s", "last after s", tenths),
    Column("totals/confirmed", "confirmed", thousands),
    Column("totals/lost", "lost", thousands),
    Column("totals/doubled", "twice", thousands),
    Column("drain_rate", "drain msg/s", thousands, 1),
)
TABLES: Final = (
    Table(
        "overload",
        "Overload",
        "Publishers with confirms publish persistent messages to one durable queue as fast as the"
        " broker takes them, whatever it says; all brokers have the same memory limit. Then a fast"
        " consumer empties the queue, and every message is accounted for.",
        list(rows()),
        {"": Section("", COLUMNS)},
        sides,
        lives="run",
        options=options,
        defaults={"rounds": 1, "seconds": 60.0},
        tried={"seconds": 2.0, "disk_gb": 1.0, "publishers": 3},
        promises=[
            Promise("nothing that was confirmed is lost", "", "totals/lost", most=0),
            Promise("nothing comes twice after its ack", "", "totals/doubled", most=0),
            Promise("resident over the limit at most", "", "of_limit", most=1.1),
            Promise("share of publishers that resume", "", "resumed_share", least=1.0),
            *(
                Promise("a consumer's rate, held / free", rows, "consumer_kept", least=0.9)
                for rows in ("slow", "alarm")
            ),
        ],
        lacking=needs,
    ),
)
