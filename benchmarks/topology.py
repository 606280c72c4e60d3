"""Large topologies: routing by many bindings, many queues and connections, bindings that go.

Messages come from ``topology_load`` and answers are timed by ``probe``, both in processes of their
own; requests in bulk are asked from here, held to the generator's core meanwhile.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any, Final

from benchmarks.brokers import Side, Watch, held_to, memory_mb, peers, penstock
from benchmarks.harness import Figures, Given, Row, Table, needs
from benchmarks.load import loading, probe
from benchmarks.page import Column, Promise, Section, plain, tenths, thousands
from benchmarks.topology_wire import (
    Dialogue,
    bind_frames,
    close_connections,
    declare_frames,
    open_connections,
)
from penstock.protocols.amqp.codec import methods as m

EXCHANGE: Final = "bench.topology"
QUEUES: Final = tuple(f"bench.topology.{number}" for number in range(10))
ONE_QUEUE: Final = QUEUES[:1]
OPENING_AT_ONCE: Final = 16
WARM_CONNECTIONS: Final = 20
SPARE_DESCRIPTORS: Final = 1000
PROBE_STARTS_S: Final = 1.0
PROBE_MS: Final = 1.0
QUIET_S: Final = 2.0
"""How long a publisher watches before and after what it is there for."""
DECLARE_WINDOW: Final = 100
BUSY: Final = 0.9
"""A generator that works this much of its time may be slower than the broker."""


def own_cpu_s() -> float:
    """Of this process and of programs that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


class Meanwhile:
    """Seconds, and how many cores worked for neither broker nor this process, of the block."""

    def __init__(self, side: Side) -> None:
        self._watch = Watch(side.pid)
        self.seconds = self.other_cores = 0.0

    def __enter__(self) -> Meanwhile:  # noqa: PYI034 - as the type says
        self._watch.__enter__()
        self._own_s, self._begin_s = own_cpu_s(), time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.monotonic() - self._begin_s
        self._watch.__exit__()
        self.other_cores = self._watch.other_cores(own_cpu_s() - self._own_s)


def rss_kb(side: Side) -> float:
    return memory_mb(side.pid) * 1000


def topology(
    side: Side, given: Given, kind: str, queues: tuple[str, ...], count: int, durable: bool
) -> Figures:
    """An exchange, its queues and ``count`` bindings dealt out to them."""
    frames = bind_frames(m.QUEUE_BIND, kind, EXCHANGE, queues, count)
    with closing(Dialogue(side.url)) as dialogue:
        dialogue.channel.exchange_declare(EXCHANGE, kind, durable=durable)
        for queue in queues:
            dialogue.channel.queue_declare(queue, durable=durable)
        before_kb = rss_kb(side)
        seconds = dialogue.ask(frames, m.QUEUE_BIND_OK, given.window)
        grown_kb = rss_kb(side) - before_kb
    bind = {
        "seconds": seconds,
        "rate": count / seconds,
        "bytes_per_binding": grown_kb * 1000 / count,
    }
    return {"bindings": count, "bind": bind}


def held(measure: Callable[[Side, Given], Figures]) -> Callable[[Side, Given], Figures]:
    """This process asks as well, and must not take the broker's core for it."""

    def measured(side: Side, given: Given) -> Figures:
        with held_to(side.generator_cores):
            return measure(side, given)

    return measured


def bindings(side: Side, given: Given) -> int:
    count: int = given.bindings
    return count if side.key == "penstock" else given.peer_bindings or count


# -- routing ------------------------------------------------------------------------------------


def routing(kind: str, wanted: str) -> Callable[[Side, Given], Figures]:
    """Messages of which each matches one binding: keys in turn, then ever-new ones."""

    def measure(side: Side, given: Given) -> Figures:
        count = bindings(side, given)
        if wanted:
            count = min(getattr(given, wanted), given.bindings)
        found = topology(side, given, kind, QUEUES, count, durable=False)
        found["turn"] = route(side, given, kind, count, given.keys)
        found["fresh"] = route(side, given, kind, count, 0)
        side.delete(*QUEUES, exchange=EXCHANGE)
        return found

    return held(measure)


def route(side: Side, given: Given, kind: str, count: int, keys: int) -> Figures:
    names = ("size", "in_flight", "seconds", "warmup")
    amounts = {name: getattr(given, name) for name in names}
    what = {"kind": kind, "exchange": EXCHANGE, "queues": QUEUES, "subjects": count, "keys": keys}
    load = loading(side, "topology_load", pid=side.pid, **what, **amounts)
    with Meanwhile(side) as meanwhile, load as program:
        found: Figures = program.result()
    generator, wrong = found["generator"], []
    if found["consumed"] != found["published"]:
        wrong.append(f"{found['consumed']:,} of {found['published']:,} were delivered")
    if generator["cpu_cores"] > BUSY:
        wrong.append("the generator had no time left and may have been the limit")
    return found | {"other_cores": meanwhile.other_cores, "wrong": wrong}


# -- declaring ----------------------------------------------------------------------------------


def declaring(side: Side, given: Given) -> Figures:
    """Durable queues, each asked for when the one before it is there; then others at once."""
    found = {}
    for how, window in (("single", 1), ("pipelined", DECLARE_WINDOW)):
        names = [f"bench.{how}.{number}" for number in range(given.queues)]
        frames = declare_frames(names)
        with closing(Dialogue(side.url)) as dialogue:
            before_kb = rss_kb(side)
            with Meanwhile(side) as meanwhile:
                seconds = dialogue.ask(frames, m.QUEUE_DECLARE_OK, window)
            found[how] = {
                "count": given.queues,
                "seconds": seconds,
                "rate": given.queues / seconds,
                "kb_each": (rss_kb(side) - before_kb) / given.queues,
                "other_cores": meanwhile.other_cores,
            }
        side.delete(*names)
    return found


# -- connections --------------------------------------------------------------------------------


def connecting(channels: int) -> Callable[[Side, Given], Figures]:
    """Opened, and left alone; twenty before, so that what a first one needs is not counted."""

    def measure(side: Side, given: Given) -> Figures:
        close_connections(open_connections(side.url, WARM_CONNECTIONS, channels, OPENING_AT_ONCE))
        time.sleep(given.settle_seconds)
        before_kb, count = rss_kb(side), given.connections
        with Meanwhile(side) as meanwhile:
            opened = open_connections(side.url, count, channels, OPENING_AT_ONCE)
        try:
            at_once_kb = rss_kb(side)
            time.sleep(given.settle_seconds)
            settled_kb = rss_kb(side)
        finally:
            close_connections(opened)
        return {
            "count": count,
            "seconds": meanwhile.seconds,
            "rate": count / meanwhile.seconds,
            "kb_each": (settled_kb - before_kb) / count,
            "kb_each_at_once": (at_once_kb - before_kb) / count,
            "other_cores": meanwhile.other_cores,
        }

    return held(measure)


def lacking(given: Given) -> str | None:
    """Each end of a connection needs a descriptor, in a process of its own."""
    wanted = given.connections + SPARE_DESCRIPTORS
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most not in {resource.RLIM_INFINITY, -1} and most < wanted:
        return f"{wanted:,} descriptors are needed, a process may have {most:,} (ulimit -Hn)"
    return needs(given)


# -- stalls -------------------------------------------------------------------------------------


def stall(*, unbinding: bool) -> Callable[[Side, Given], Figures]:
    """A publisher waits for confirms, one after the other, while bindings go away.

    It publishes to the very exchange that loses them, to another queue.
    """

    def measure(side: Side, given: Given) -> Figures:
        count = bindings(side, given)
        found = topology(side, given, "topic", ONE_QUEUE, count, durable=True)
        requests = [m.encode_method(1, m.QUEUE_DELETE, (0, *ONE_QUEUE, False, False, False))]
        answer, window = m.QUEUE_DELETE_OK, 1
        if unbinding:
            requests = bind_frames(m.QUEUE_UNBIND, "topic", EXCHANGE, ONE_QUEUE, count)
            answer, window = m.QUEUE_UNBIND_OK, given.window
        with closing(Dialogue(side.url)) as dialogue:
            found["before"] = watched(side, lambda: 0.0)[0]
            with Meanwhile(side) as meanwhile:
                ask = (requests, answer, window)
                found["during"], seconds = watched(side, lambda: dialogue.ask(*ask))
        side.delete(*ONE_QUEUE, exchange=EXCHANGE)
        found["during"] |= {"seconds": seconds, "other_cores": meanwhile.other_cores}
        return found

    return held(measure)


def watched(side: Side, action: Callable[[], float]) -> tuple[Figures, float]:
    """What a publisher that waits for confirms saw, and what the action returned."""
    words = {"exchange": EXCHANGE, "interval_ms": PROBE_MS, "warmup_s": 0.2}
    with probe(side, "confirm", **words) as publisher:
        time.sleep(PROBE_STARTS_S + QUIET_S)
        seconds = action()
        time.sleep(QUIET_S)
        found: Figures = publisher.result()
        return found, seconds


# -- the table ----------------------------------------------------------------------------------


def options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--bindings", type=int, default=100_000, help="topic-many and stall")
    add("--peer-bindings", type=int, default=0, help="the same for others; 0 = as many")
    add("--few-bindings", type=int, default=1000, help="topic-few: at most")
    add("--header-bindings", type=int, default=1000, help="headers: at most")
    add("--queues", type=int, default=10_000, help="declare")
    add("--connections", type=int, default=5000, help="connections")
    add("--keys", type=int, default=10_000, help="routing: different keys in turn")
    add("--size", type=int, default=100, help="routing: body bytes")
    add("--in-flight", type=int, default=5000, help="routing: published, not yet consumed")
    add("--window", type=int, default=100, help="bindings asked for at a time")
    add("--settle-seconds", type=float, default=5.0, help="connections: before a look")


def stall_columns() -> list[Column]:
    found = [Column("answer_ms/max", "longest answer ms", plain, -1)]
    found += [Column(f"answer_ms/{name}", f"answer {name}") for name in ("p99",)]
    found += [Column(f"latency_ms/{name}", f"latency {name}") for name in ("p99", "max")]
    return [
        *found,
        Column("/bindings", "bindings", thousands),
        Column("seconds", "took s"),
        Column("pings", "pings", thousands),
        Column("other_cores", "other load, cores"),
    ]


SECTIONS: Final = {
    "routing": Section(
        "Routing: transient, auto-ack, 10 queues, one consumer",
        (
            Column("consume_rate", "msg/s", thousands, 1),
            Column("/bindings", "bindings", thousands),
            Column("publish_rate", "published", thousands),
            Column("broker/cpu_us_per_message", "CPU µs/msg"),
            Column("broker/cpu_cores", "cores"),
            Column("generator/cpu_cores", "generator's core"),
            Column("/bind/rate", "bindings/s", thousands),
            Column("/bind/bytes_per_binding", "bytes of RSS per binding", thousands),
            Column("other_cores", "other load, cores"),
        ),
        {"turn": "keys in turn", "fresh": "ever-new keys"},
    ),
    "declare": Section(
        "Declaring queues",
        (
            Column("seconds", "s", plain, -1),
            Column("count", "count", thousands),
            Column("rate", "per second", thousands),
            Column("kb_each", "KB of RSS each", tenths),
            Column("other_cores", "other load, cores"),
        ),
        {"single": "one at a time", "pipelined": f"{DECLARE_WINDOW} at a time"},
    ),
    "connections": Section(
        f"Idle connections, {OPENING_AT_ONCE} opened at once",
        (
            Column("kb_each", "KB each", tenths, -1),
            Column("seconds", "s to open", plain, -1),
            Column("count", "count", thousands),
            Column("kb_each_at_once", "KB before settling", tenths),
            Column("rate", "per second", thousands),
            Column("other_cores", "other load, cores"),
        ),
    ),
    "stall": Section(
        f"Confirms of a publisher meanwhile, ms (a message every {PROBE_MS:g} ms)",
        stall_columns(),
        {"before": "before", "during": "meanwhile"},
    ),
}
ROWS: Final = [
    Row("topic-few", "topic, few bindings", routing("topic", "few_bindings"), "routing"),
    Row("topic-many", "topic, many bindings", routing("topic", ""), "routing"),
    Row("headers", "headers", routing("headers", "header_bindings"), "routing"),
    Row("declare", "durable queues", held(declaring), "declare"),
    Row("connections", "no channel", connecting(0), "connections"),
    Row("connections-channel", "one channel", connecting(1), "connections"),
    Row("stall-delete", "queue.delete", stall(unbinding=False), "stall"),
    Row("stall-unbind", "queue.unbind, one by one", stall(unbinding=True), "stall"),
]
TIMES: Final[dict[str, Any]] = {"most": 1 / 3, "over": "rabbitmq"}
PROMISES: Final = [
    *(
        Promise(
            f"3 times RabbitMQ's rate, {phase}",
            rows,
            f"{phase}/consume_rate",
            least=3,
            over="rabbitmq",
        )
        for rows in ("topic", "headers")
        for phase in ("turn", "fresh")
    ),
    *(
        Promise(
            f"many bindings: 0.7 of the rate with few, {phase}",
            "topic-many",
            f"{phase}/consume_rate",
            least=0.7,
            over="row topic-few",
        )
        for phase in ("turn", "fresh")
    ),
    Promise("a third of RabbitMQ's time, one at a time", "declare", "single/seconds", **TIMES),
    Promise("a third of RabbitMQ's time, 100 at a time", "declare", "pipelined/seconds", **TIMES),
    Promise("a third of RabbitMQ's memory", "connections", "kb_each", **TIMES),
    Promise("a third of RabbitMQ's time to open", "connections", "seconds", **TIMES),
    Promise("no confirm takes more than 20 ms", "stall", "during/answer_ms/max", most=20.0),
]
TABLES: Final = (
    Table(
        "topology",
        "Large topologies",
        "Each broker alone and started anew; what comes first in a row is binding.",
        ROWS,
        SECTIONS,
        lambda given, row: [penstock(given), *peers(given)],
        lives="run",
        options=options,
        defaults={"rounds": 1, "seconds": 10.0, "warmup": 2.0},
        tried={
            "bindings": 300,
            "few_bindings": 100,
            "header_bindings": 100,
            "queues": 100,
            "connections": 50,
            "keys": 500,
            "settle_seconds": 0.5,
        },
        promises=PROMISES,
        lacking=lacking,
    ),
)
