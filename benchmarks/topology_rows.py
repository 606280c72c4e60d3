"""The rows of a topology run: what each asks of a broker that was started for it alone.

A row's ``measure`` gets a running broker and returns everything it found as plain values; what
is shown of it is decided in ``topology_page``.  Messages come from ``topology_load`` and answers
are timed by ``probe``, both in processes of their own; requests in bulk are asked from here, held
to the generator's cores meanwhile.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.compare import busy_s
from benchmarks.storage_brokers import Broker, memory_mb
from benchmarks.storage_rows import Helper
from benchmarks.topology_wire import (
    Dialogue,
    bind_frames,
    close_connections,
    declare_frames,
    open_connections,
    unbind_frames,
)
from penstock.client.procstat import ProcessGauge
from penstock.protocols.amqp.codec import methods as m

ROOT: Final = Path(__file__).resolve().parents[1]
EXCHANGE: Final = "bench.topology"
QUEUES: Final = tuple(f"bench.topology.{number}" for number in range(10))
ONE_QUEUE: Final = ("bench.topology.0",)

OPENING_AT_ONCE: Final = 16
WARM_CONNECTIONS: Final = 20
SPARE_DESCRIPTORS: Final = 1000
PROBE_STARTS_S: Final = 1.0
PROBE_WARMUP_S: Final = 0.2
PROBE_MS: Final = 1.0
DECLARE_WINDOW: Final = 100

Result = dict[str, Any]


@dataclass(frozen=True)
class Amounts:
    """How much is asked of one of the two brokers."""

    bindings: int
    few_bindings: int
    header_bindings: int
    queues: int
    connections: int
    keys: int
    size: int
    in_flight: int
    window: int
    seconds: float
    warmup_s: float
    settle_s: float
    quiet_s: float
    """How long a publisher watches before and after what it is there for."""
    favoured: bool


@dataclass(frozen=True)
class Row:
    name: str
    title: str
    section: str = ""

    def measure(self, broker: Broker, given: Amounts) -> Result:
        raise NotImplementedError

    def lacking(self, given: Amounts) -> str:
        """Why it must not begin here; empty when it may."""
        return ""


# -- what all rows need -----------------------------------------------------------------------


@contextmanager
def held_to(cores: str) -> Iterator[None]:
    """This process asks as well, and must not take the broker's core for it."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, set(map(int, cores.split(","))))
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def generator_cpu_s() -> float:
    """Of this process and of helpers that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


class Meanwhile:
    """How many cores worked for neither broker nor generator while the block ran."""

    def __init__(self, broker: Broker) -> None:
        self._gauge = ProcessGauge(broker.broker_pid(), tree=True)
        self._begin_s = time.monotonic()
        self._before_s = self._others_s()

    def _others_s(self) -> float:
        return busy_s() - sum(self._gauge.cpu_s()) - generator_cpu_s()

    def other_cores(self) -> float:
        wall_s = time.monotonic() - self._begin_s
        return max(0.0, (self._others_s() - self._before_s) / wall_s)


def rss_kb(broker: Broker) -> float:
    return memory_mb(broker.broker_pid(), "VmRSS") * 1000


def topology(
    broker: Broker, given: Amounts, kind: str, queues: tuple[str, ...], count: int, durable: bool
) -> Result:
    """An exchange, its queues and ``count`` bindings dealt out to them."""
    frames = bind_frames(kind, EXCHANGE, queues, count)
    with closing(Dialogue(broker.url)) as dialogue:
        dialogue.channel.exchange_declare(EXCHANGE, kind, durable=durable)
        for queue in queues:
            dialogue.channel.queue_declare(queue, durable=durable)
        before_kb = rss_kb(broker)
        seconds = dialogue.ask(frames, m.QUEUE_BIND_OK, given.window)
        grown_kb = rss_kb(broker) - before_kb
    return {
        "bindings": count,
        "bind": {
            "seconds": seconds,
            "rate": count / seconds,
            "bytes_per_binding": grown_kb * 1000 / count,
        },
    }


# -- routing ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Routing(Row):
    """Messages of which each matches one binding: keys in turn, then ever-new ones."""

    section: str = "routing"
    kind: str = "topic"
    many: bool = False

    def count(self, given: Amounts) -> int:
        if self.kind == "headers":
            return given.header_bindings
        return given.bindings if self.many else given.few_bindings

    def measure(self, broker: Broker, given: Amounts) -> Result:
        count = self.count(given)
        found = topology(broker, given, self.kind, QUEUES, count, durable=False)
        found["turn"] = self._load(broker, given, count, given.keys)
        found["fresh"] = self._load(broker, given, count, 0)
        return found

    def _load(self, broker: Broker, given: Amounts, count: int, keys: int) -> Result:
        words = [
            *(str(ROOT / "benchmarks/topology_load.py"), "--uri", broker.url),
            *("--pid", str(broker.broker_pid()), "--kind", self.kind, "--exchange", EXCHANGE),
            *("--queues", ",".join(QUEUES), "--subjects", str(count), "--keys", str(keys)),
            *("--size", str(given.size), "--in-flight", str(given.in_flight)),
            *("--seconds", f"{given.seconds:g}", "--warmup", f"{given.warmup_s:g}"),
        ]
        meanwhile = Meanwhile(broker)
        with ExitStack() as stack:
            load = Helper(broker, given, words)  # type: ignore[arg-type]
            stack.callback(load.kill)
            return load.result() | {"other_cores": meanwhile.other_cores()}


# -- declaring ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Declare(Row):
    """Durable queues, each asked for when the one before it is there; then others at once."""

    section: str = "declare"

    def measure(self, broker: Broker, given: Amounts) -> Result:
        return {
            "single": self._declare(broker, given, "single", 1),
            "pipelined": self._declare(broker, given, "pipelined", DECLARE_WINDOW),
        }

    @staticmethod
    def _declare(broker: Broker, given: Amounts, how: str, window: int) -> Result:
        count = given.queues
        frames = declare_frames([f"bench.{how}.{number}" for number in range(count)])
        with closing(Dialogue(broker.url)) as dialogue:
            before_kb, meanwhile = rss_kb(broker), Meanwhile(broker)
            seconds = dialogue.ask(frames, m.QUEUE_DECLARE_OK, window)
            return {
                "count": count,
                "seconds": seconds,
                "rate": count / seconds,
                "kb_per_queue": (rss_kb(broker) - before_kb) / count,
                "other_cores": meanwhile.other_cores(),
            }


# -- connections --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Connections(Row):
    """Opened, and left alone."""

    section: str = "connections"
    channels: int = 0

    def measure(self, broker: Broker, given: Amounts) -> Result:
        warm = open_connections(broker.url, WARM_CONNECTIONS, self.channels, OPENING_AT_ONCE)
        close_connections(warm)
        time.sleep(given.settle_s)
        before_kb, meanwhile, begin_s = rss_kb(broker), Meanwhile(broker), time.monotonic()
        count = given.connections
        opened = open_connections(broker.url, count, self.channels, OPENING_AT_ONCE)
        try:
            seconds, other_cores = time.monotonic() - begin_s, meanwhile.other_cores()
            at_once_kb = rss_kb(broker)
            time.sleep(given.settle_s)
            settled_kb = rss_kb(broker)
        finally:
            close_connections(opened)
        return {
            "count": count,
            "seconds": seconds,
            "rate": count / seconds,
            "kb_each": (settled_kb - before_kb) / count,
            "kb_each_at_once": (at_once_kb - before_kb) / count,
            "other_cores": other_cores,
        }

    def lacking(self, given: Amounts) -> str:
        """Each end needs a descriptor, in a process of its own."""
        wanted = given.connections + SPARE_DESCRIPTORS
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        if most in {resource.RLIM_INFINITY, -1} or most >= wanted:
            return ""
        return f"{wanted:,} descriptors are needed, a process may have {most:,} (ulimit -Hn)"


# -- stalls -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stall(Row):
    """A publisher waits for confirms, one after the other, while bindings go away.

    It publishes to the very exchange that loses them, to another queue.
    """

    section: str = "stall"
    unbinding: bool = False

    def measure(self, broker: Broker, given: Amounts) -> Result:
        count = given.bindings
        found = topology(broker, given, "topic", ONE_QUEUE, count, durable=True)
        if self.unbinding:
            requests = unbind_frames("topic", EXCHANGE, ONE_QUEUE, count)
            answer, window = m.QUEUE_UNBIND_OK, given.window
        else:
            requests = [delete_frame()]
            answer, window = m.QUEUE_DELETE_OK, 1
        with ExitStack() as stack:
            dialogue = stack.enter_context(closing(Dialogue(broker.url)))
            found["before"] = self._probed(broker, given, stack, None)[0]
            meanwhile = Meanwhile(broker)
            ask = (dialogue, requests, answer, window)
            found["during"], found["seconds"] = self._probed(broker, given, stack, ask)
            found["other_cores"] = meanwhile.other_cores()
        found["rate"] = count / found["seconds"]
        return found

    @staticmethod
    def _probed(
        broker: Broker,
        given: Amounts,
        stack: ExitStack,
        ask: tuple[Dialogue, list[bytes], int, int] | None,
    ) -> tuple[Result, float]:
        """What the probe saw, and how long the broker took."""
        words = [
            *(str(ROOT / "benchmarks/probe.py"), "--uri", broker.url, "--kind", "confirm"),
            *("--exchange", EXCHANGE, "--interval-ms", f"{PROBE_MS:g}"),
            *("--warmup", f"{PROBE_WARMUP_S:g}"),
        ]
        probe = Helper(broker, given, words)  # type: ignore[arg-type]
        stack.callback(probe.kill)
        time.sleep(PROBE_STARTS_S + given.quiet_s)
        seconds = 0.0
        if ask is not None:
            dialogue, requests, answer, window = ask
            seconds = dialogue.ask(requests, answer, window)
            time.sleep(given.quiet_s)
        return probe.result(), seconds


def delete_frame() -> bytes:
    values = (0, ONE_QUEUE[0], False, False, False)
    return m.encode_method(1, m.QUEUE_DELETE, values)


ROWS: Final[list[Row]] = [
    Routing("topic-few", "topic"),
    Routing("topic-many", "topic", many=True),
    Routing("headers", "headers", kind="headers"),
    Declare("declare", "durable queues"),
    Connections("connections", "no channel"),
    Connections("connections-channel", "one channel", channels=1),
    Stall("stall-delete", "queue.delete"),
    Stall("stall-unbind", "queue.unbind, one by one", unbinding=True),
]


def chosen_rows(names: str) -> list[Row]:
    """The rows named, comma separated; a beginning chooses all that begin with it."""
    if not names:
        return ROWS
    found: list[Row] = []
    for name in names.split(","):
        matching = [row for row in ROWS if row.name.startswith(name)]
        if not matching:
            known = ", ".join(row.name for row in ROWS)
            raise SystemExit(f"no row begins with {name!r}; there are: {known}")
        found += [row for row in matching if row not in found]
    return found
