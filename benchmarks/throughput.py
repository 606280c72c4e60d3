"""Throughput and latency: beside other brokers, of two builds, over TLS, and of several nodes.

Each row is a command line of ``penstock bench``.  Where a consumer takes part, ``--in-flight``
bounds what is published and not yet consumed, so that a broker is judged in a steady state and not
by how fast it can pile up a backlog; the bound is the same for all and wide enough not to throttle
any.  Publish-only rows are counted, not timed, so that all brokers end with the same backlog.  The
``unbounded`` ones leave all flow control to the broker.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from benchmarks.brokers import ROOT, Side, Watch, all_cores, peers, penstock, rabbit
from benchmarks.harness import Figures, Given, Row, Table, git, needs
from benchmarks.load import bench, running
from benchmarks.page import Column, Section, plain, thousands
from penstock.client.procstat import ProcessGauge
from tests.helpers.broker_process import free_port
from tests.helpers.certificates import Authority
from tests.helpers.cluster import LiveCluster
from tests.helpers.cluster import missing_reason as no_etcd
from tests.helpers.live_broker import LiveBroker

CONSUMED: Final = "consume_rate"
PUBLISHED: Final = "publish_rate"
LATENCY: Final = "latency"
SMALL_IN_FLIGHT: Final = "--size 16 --in-flight 20000"
KB_IN_FLIGHT: Final = "--size 1024 --in-flight 4000"
ACK_100: Final = "--prefetch 1000 --ack-every 100"
ACK_EACH: Final = "--prefetch 100 --ack-every 1"
SAFE: Final = "--persistent --durable --confirm 1000"
VARIED: Final = "--varied --size-range 16:65536"
VARIED_IN_FLIGHT: Final = f"{VARIED} --in-flight 2000"
RATE: Final = 5000
STUNNEL_START_S: Final = 1.0


@dataclass(frozen=True)
class Scenario:
    """``figure`` is what its row shows; ``count`` 0 = timed."""

    name: str
    title: str
    options: str
    figure: str = CONSUMED
    count: int = 0

    def words(self, given: Given) -> list[str]:
        if self.count:
            count = min(self.count, 5000) if given.tried else self.count
            return [*self.options.split(), "--count", str(count)]
        timing = ["--duration", f"{given.seconds:g}", "--warmup", f"{given.warmup:g}"]
        return [*self.options.split(), *timing]


SAFE_PUBLISH: Final = "persistent, confirm window 1000, publish only"
SAFE_THROUGH: Final = "persistent, confirm window 1000, consumed (ack 100)"
AT_RATE: Final = f"latency at {RATE} msg/s, auto-ack"

SCENARIOS: Final = [
    Scenario("auto-ack-16", "auto-ack, 16 B", SMALL_IN_FLIGHT),
    Scenario("auto-ack-1k", "auto-ack, 1 KB", KB_IN_FLIGHT),
    Scenario("ack-100-16", "prefetch 1000, ack every 100, 16 B", f"{SMALL_IN_FLIGHT} {ACK_100}"),
    Scenario("ack-100-1k", "prefetch 1000, ack every 100, 1 KB", f"{KB_IN_FLIGHT} {ACK_100}"),
    Scenario(
        "ack-each-16", "prefetch 100, ack each, 16 B", f"--size 16 --in-flight 4000 {ACK_EACH}"
    ),
    Scenario("ack-each-1k", "prefetch 100, ack each, 1 KB", f"{KB_IN_FLIGHT} {ACK_EACH}"),
    Scenario("unbounded-auto-ack-16", "auto-ack, 16 B, unbounded", "--size 16"),
    Scenario("unbounded-auto-ack-1k", "auto-ack, 1 KB, unbounded", "--size 1024"),
    Scenario(
        "unbounded-ack-each-1k",
        "prefetch 100, ack each, 1 KB, unbounded",
        f"--size 1024 {ACK_EACH}",
    ),
    Scenario("safe-through-1k", f"{SAFE_THROUGH}, 1 KB", f"{KB_IN_FLIGHT} {SAFE} {ACK_100}"),
    Scenario(
        "safe-publish-1k",
        f"{SAFE_PUBLISH}, 1 KB",
        f"--size 1024 --consumers 0 {SAFE}",
        PUBLISHED,
        150_000,
    ),
    Scenario("latency-1k", f"{AT_RATE}, 1 KB", f"--size 1024 --rate {RATE}", LATENCY),
    Scenario("varied-auto-ack", "varied, auto-ack", VARIED_IN_FLIGHT),
    Scenario(
        "varied-ack-100", "varied, prefetch 1000, ack every 100", f"{VARIED_IN_FLIGHT} {ACK_100}"
    ),
    Scenario("varied-ack-each", "varied, prefetch 100, ack each", f"{VARIED_IN_FLIGHT} {ACK_EACH}"),
    Scenario(
        "varied-safe-through", f"varied, {SAFE_THROUGH}", f"{VARIED_IN_FLIGHT} {SAFE} {ACK_100}"
    ),
    Scenario(
        "varied-safe-publish",
        f"varied, {SAFE_PUBLISH}",
        f"{VARIED} --consumers 0 {SAFE}",
        PUBLISHED,
        30_000,
    ),
    Scenario("varied-latency", f"varied, {AT_RATE}", f"{VARIED} --rate {RATE}", LATENCY),
]

Measure = Callable[[Any, Given], Figures]


def scenario_rows(
    measure: Callable[[Scenario], Measure], names: str = "", *, latency: str = ""
) -> list[Row]:
    """``names`` of scenarios, all if empty; ``latency``: the section of those that measure it."""
    wanted = names.split()
    return [
        Row(one.name, one.title, measure(one), latency if one.figure == LATENCY else "")
        for one in SCENARIOS
        if not wanted or one.name in wanted
    ]


def measured(scenario: Scenario) -> Measure:
    return lambda side, given: drive(scenario, side, given)


def drive(scenario: Scenario, side: Side, given: Given, url: str = "") -> Figures:
    """With a ``rate`` for all: of rows about latency, one over the median."""
    words = ["--queue", f"bench.{scenario.name}", "--cleanup", *scenario.words(given)]
    result = bench(side, words, url=url)
    latency = result["latency_us"]
    result["rate"] = 1e6 / latency["p50"] if scenario.figure == LATENCY else result[scenario.figure]
    cpu_us = result["broker"].get("cpu_us_per_message")
    result["per_cpu_s"] = 1e6 / cpu_us if cpu_us else None
    return result


def milliseconds(value_us: float) -> str:
    return f"{value_us / 1000:.2f}"


COSTS: Final = (
    Column("broker/cpu_us_per_message", "CPU µs/msg"),
    Column("broker/cpu_cores", "cores"),
    Column("broker/rss_peak_mb", "peak RSS MB", thousands),
    Column("other_cores", "other load, cores"),
)
THROUGHPUT: Final = (
    Column("rate", "msg/s", thousands, 1),
    Column("publish_rate", "published", thousands),
    *COSTS,
)
LATENCIES: Final = tuple(
    Column(f"latency_us/{name}", f"{name} ms", milliseconds, -1) for name in ("p50", "p99", "p99.9")
)
COMPARE: Final = Table(
    "compare",
    "Penstock and RabbitMQ side by side",
    "One publisher, one consumer, one queue; messages consumed, or confirmed where none are.",
    scenario_rows(measured, latency="latency"),
    {
        "": Section("Throughput, messages per second", THROUGHPUT),
        "latency": Section("Latency, milliseconds", (*LATENCIES, *COSTS)),
    },
    lambda given, row: [penstock(given), *peers(given)],
    lacking=needs,
)


# -- two builds -----------------------------------------------------------------------------------


def builds_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--old", type=Path, required=True, help="a checkout, set up")
    add("--new", type=Path, default=ROOT, help="a checkout, set up")


def builds(given: Given, row: Row) -> list[Side]:
    """Both at the same time on one core."""
    found = []
    for key, root in (("new", given.new.resolve()), ("old", given.old.resolve())):
        side = penstock(given, key=key, root=root)
        side.label = f"{key} {git('-C', str(root), 'rev-parse', '--short', 'HEAD')}".strip()
        found.append(side)
    return found


BUILDS: Final = Table(
    "builds",
    "Two builds in turn",
    "A build of this checkout (new) and one of another, driven in turn by the generator of this"
    " one. The rate of a row about latency is one over its median, per second.",
    scenario_rows(measured),
    {
        "": Section(
            "",
            (
                Column("rate", "msg/s", thousands, 1),
                Column("per_cpu_s", "messages per processor second", thousands, 1),
                COSTS[-1],
            ),
        )
    },
    builds,
    options=builds_options,
    defaults={"rounds": 7, "seconds": 2.0, "warmup": 0.7, "write": ""},
    guard_base=1.0,
)


# -- TLS ------------------------------------------------------------------------------------------


class Secured:
    """One broker, in the clear or through ``stunnel``, whose cost is not the broker's."""

    def __init__(
        self,
        side: Side,
        port: int,
        tunnel: AbstractContextManager[str] | None,
        scratch: tempfile.TemporaryDirectory[str],
    ) -> None:
        self._side = side
        self._scratch = scratch
        self._tunnel = tunnel
        self._stack = ExitStack()
        self.url = ""
        self.key = f"{side.key} {'TLS' if tunnel else 'clear'}"

    @property
    def label(self) -> str:
        return f"{self._side.label}, {'TLS' if self._tunnel else 'clear'}"

    def __enter__(self) -> Self:
        if self._tunnel is None:
            self._stack.enter_context(self._side)  # the other one drives the same broker
        else:
            self.url = self._stack.enter_context(self._tunnel)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def drive(self, scenario: Scenario, given: Given) -> Figures:
        return drive(scenario, self._side, given, self.url)


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
            time.sleep(STUNNEL_START_S)
            yield f"amqp://guest:guest@127.0.0.1:{listener}"
        finally:
            process.terminate()


def secured(given: Given, row: Row) -> list[Secured]:
    """All have the same certificate (RSA, 2048 bits)."""
    scratch = tempfile.TemporaryDirectory(prefix="tls-")  # gone with the sides
    directory = Path(scratch.name)
    certificate, key = Authority(directory).sign("server", "/CN=localhost", "IP:127.0.0.1")
    ours, theirs = free_port(), free_port()
    flags = ("--ssl-port", str(ours), "--ssl-certfile", certificate, "--ssl-keyfile", key)
    config = (
        f"listeners.ssl.default = 127.0.0.1:{theirs}\nssl_options.certfile = {certificate}\n"
        f"ssl_options.keyfile = {key}\nssl_options.versions.1 = tlsv1.3\n"
    )
    found = [(penstock(given, *flags), ours)]
    if not given.alone:
        found.append((rabbit(given, config), theirs))
    cores = given.generator_cores
    return [
        Secured(side, port, tunnel(directory, port, cores) if tls else None, scratch)
        for side, port in found
        for tls in (False, True)
    ]


def no_stunnel(given: Given) -> str | None:
    if shutil.which("stunnel") is None:
        return "stunnel is not installed (Debian: apt-get install stunnel4)"
    return needs(given)


TLS: Final = Table(
    "tls",
    "What TLS costs",
    "In the clear, and over TLS 1.3 with stunnel, which speaks it for the generator and bounds the"
    " rate; what counts is the broker's processor time.",
    scenario_rows(
        lambda scenario: lambda side, given: side.drive(scenario, given),
        "auto-ack-16 auto-ack-1k ack-each-1k safe-through-1k",
    ),
    {
        "": Section(
            "",
            (
                Column("broker/cpu_us_per_message", "CPU µs/msg", plain, -1),
                Column("rate", "msg/s", thousands),
                Column("other_cores", "other load, cores"),
            ),
        )
    },
    secured,
    defaults={"seconds": 3.0, "warmup": 1.0, "rabbit_same_cores": True},
    lacking=no_stunnel,
)


# -- several nodes --------------------------------------------------------------------------------


class Places(ExitStack):
    """One node, two behind one port, and a cluster of two, side by side."""

    def __enter__(self) -> Self:
        directory = Path(self.enter_context(tempfile.TemporaryDirectory()))
        self.one = [self.enter_context(LiveBroker(directory / "one"))]
        two = LiveBroker(directory / "two", ("--nodes", "2"), ready_timeout_s=60)
        self.two = [self.enter_context(two)]
        self.cluster = self.enter_context(LiveCluster(directory / "cluster", 2)).nodes
        return self


class Way:
    """``brokers`` that are counted; ``spread``: two generators with two queues each, over them."""

    generator_cores = all_cores()
    favoured = False

    def __init__(
        self,
        key: str,
        label: str,
        brokers: Callable[[], Sequence[LiveBroker]],
        client: int | None = None,
        context: AbstractContextManager[Any] | None = None,
    ) -> None:
        self.key = key
        self.label = label
        self._brokers = brokers
        self._client = client
        self._context = context or nullcontext()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._stack.enter_context(self._context)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def drive(self, scenario: Scenario, given: Given) -> Figures:
        """Processor time is that of all these brokers, warm-up included, as are its messages."""
        words, brokers = scenario.words(given), self._brokers()
        if self._client is None:
            loads = [
                ["--queue", f"bench.nodes{number}", "--queues", "2", "--uri", brokers[at].url]
                for number, at in enumerate((0, len(brokers) - 1))
            ]
        else:
            durable = ["--durable"] if "--durable" in words else []
            first = ["--queue", "bench.far", *durable, "--count", "1", "--size", "16", "--uri"]
            self._bench([[*first, brokers[0].url]])  # declared at the first node
            loads = [["--queue", "bench.far", "--uri", brokers[self._client].url]]
        gauges = [ProcessGauge(broker.pid, tree=True) for broker in brokers]
        before_s = sum(sum(gauge.cpu_s()) for gauge in gauges)
        with Watch(0) as watch:
            found = self._bench([[*words, "--cleanup", *load] for load in loads])
        spent_s = sum(sum(gauge.cpu_s()) for gauge in gauges) - before_s
        known_s = spent_s + sum(one["generator_cpu_s"] for one in found)
        return {
            "rate": sum(one[CONSUMED] for one in found),
            "cpu_us": spent_s * 1e6 / sum(one["consumed"] for one in found),
            "other_cores": watch.other_cores(known_s),
        }

    def _bench(self, loads: list[list[str]]) -> list[Figures]:
        with ExitStack() as stack:
            words = ("-m", "penstock", "bench", "--json", "-")
            side: Any = self
            made = [stack.enter_context(running(side, *words, *load)) for load in loads]
            return [one.result() for one in made]


def ways(given: Given, row: Row) -> list[Way]:
    places = Places()
    return [
        Way("one", "one node", lambda: places.one, context=places),
        Way("two", "two behind one port", lambda: places.two),
        Way("apart", "two of a cluster, a generator each", lambda: places.cluster),
        Way("near", "one queue, clients at its node", lambda: places.cluster, 0),
        Way("far", "one queue, clients at the other node", lambda: places.cluster, 1),
    ]


NODES: Final = Table(
    "nodes",
    "Several nodes on one machine",
    "Two generators, each with two queues, a publisher and a consumer, at one node, at two behind"
    " one port (the kernel chooses a connection's node) and at two of a cluster; and one queue with"
    " its clients at its node or at the other one. Generators and nodes share all cores.",
    scenario_rows(
        lambda scenario: lambda way, given: way.drive(scenario, given),
        "auto-ack-16 ack-100-1k safe-through-1k",
    ),
    {
        "": Section(
            "",
            (
                Column("rate", "msg/s", thousands, 1),
                Column("cpu_us", "CPU µs/msg of all nodes", plain),
                Column("other_cores", "other load, cores"),
            ),
        )
    },
    ways,
    lives="table",
    defaults={"rounds": 9, "seconds": 5.0, "warmup": 1.0, "alone": True},
    lacking=lambda given: no_etcd() or needs(given),
)

TABLES: Final = (COMPARE, BUILDS, TLS, NODES)
