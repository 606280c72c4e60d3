"""Copies of a queue: what one, two and three cost, and what is noticed when one more joins.

Three nodes of a broker run side by side on 127.0.0.1 with directories of their own; Penstock's
share a real etcd.  Queues are mirrored by policy: ``exactly`` so many copies, synchronised
automatically.  A queue is declared at the first node, so its master is there, and driven there when
all of its mirrors are synchronised.  Generator and nodes share all cores.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from benchmarks.brokers import OURS, THEIRS, Watch, all_cores, favour, release
from benchmarks.harness import Figures, Given, Row, Table, needs
from benchmarks.load import running, wrongs
from benchmarks.page import Column, Promise, Section, plain, tenths, thousands
from benchmarks.throughput import ACK_100, PUBLISHED, SAFE, Scenario
from penstock.client.amqp import Connection, Endpoint
from penstock.client.procstat import ProcessGauge
from penstock.queues.context import QUORUM, STREAM
from tests.helpers.administer import administer
from tests.helpers.cluster import LiveCluster
from tests.helpers.etcd import missing_reason as no_etcd
from tests.helpers.live_broker import LiveBroker
from tests.helpers.management_api import manage
from tests.helpers.rabbit import LOCAL_DISTRIBUTION, RabbitServer

NODES: Final = 3
READY_LIMIT_S: Final = 60.0
WINDOWS: Final = (1000, 4000)
"""Of confirms.  With the smaller one the way to the mirrors and back takes part in the rate."""
KINDS: Final = [
    Scenario(
        "safe-publish-1k",
        "persistent, 1 KB",
        f"--size 1024 --consumers 0 {SAFE}",
        PUBLISHED,
        300_000,
    ),
    Scenario(
        "publish-100",
        "transient, 100 B",
        "--size 100 --consumers 0 --durable --confirm 1000",
        PUBLISHED,
        1_000_000,
    ),
    Scenario(
        "safe-through-1k",
        "persistent, 1 KB, consumed (ack 100)",
        f"--size 1024 --in-flight 4000 {SAFE} {ACK_100}",
    ),
]
SCENARIOS: Final = [
    replace(
        one,
        name=one.name if window == WINDOWS[0] else f"{one.name}-{window}",
        title=f"{one.title}, confirm window {window}",
        options=one.options.replace("--confirm 1000", f"--confirm {window}"),
    )
    for one in KINDS
    for window in WINDOWS
]


QUORUM_SCENARIOS: Final = [
    replace(
        one,
        name=f"quorum-{one.name.removeprefix('safe-')}{suffix}",
        title=f"quorum queue, {one.title}{where}",
    )
    for one in SCENARIOS
    if SAFE in one.options
    for suffix, where in (("", ""), ("-follower", ", at a follower"))
]
STREAM_SCENARIOS: Final = [
    replace(one, name=f"stream-{one.name.removeprefix('safe-')}", title=f"stream, {one.title}")
    for one in SCENARIOS
    if "--persistent" in one.options and one.count
]


def arguments_of(kind: str, copies: int) -> dict[str, object]:
    """Of the queue; "" = classic.  RabbitMQ's streams take the number of copies from there."""
    size: dict[str, object] = {"x-initial-cluster-size": copies} if kind == STREAM else {}
    return {"x-queue-type": kind, **size} if kind else {}


def prefix(copies: int) -> str:
    """Of the queues that have so many."""
    return f"copies{copies}."


def definition(copies: int, sync_mode: str = "automatic") -> dict[str, Any]:
    return {"ha-mode": "exactly", "ha-params": copies, "ha-sync-mode": sync_mode}


class Cluster:
    """Three nodes of one broker, with queues of one, two and three copies."""

    generator_cores = all_cores()

    def __init__(self, key: str, label: str, favoured: bool) -> None:
        self.key = key
        self.label = label
        self.favoured = favoured
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            self.begin(stack, directory)
            self.label = release(self.url()) if self.key == THEIRS else self.label
            for pid in self.pids() if self.favoured else ():
                favour(pid)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def begin(self, stack: ExitStack, directory: Path) -> None:
        raise NotImplementedError

    def url(self, node: int = 0) -> str:
        raise NotImplementedError

    def pids(self) -> list[int]:
        raise NotImplementedError

    def mirror(self, copies: int) -> None:
        raise NotImplementedError

    def complete(self, queue: str) -> int:
        """How many copies have everything, the master's among them."""
        raise NotImplementedError

    def declare(self, queue: str, copies: int, arguments: dict[str, object]) -> None:
        """At the first node; returns when it has so many copies, all of them complete."""
        with Connection(Endpoint.parse(self.url())) as connection:
            connection.channel().queue_declare(queue, durable=True, arguments=arguments)
        wait_for(lambda: self.complete(queue), copies, f"complete copies of {queue}")


def complete_in(row: dict[str, Any], synchronised: str) -> int:
    """``online``: of a quorum queue, and of RabbitMQ's streams."""
    online = row.get("online")
    return len(online) if online else 1 + len(row.get(synchronised) or ())


def wait_for(found: Callable[[], int], wanted: int, what: str) -> None:
    end_s = time.monotonic() + READY_LIMIT_S
    while (count := found()) != wanted:
        if time.monotonic() > end_s:
            raise RuntimeError(f"{count} {what}, {wanted} are due")
        time.sleep(0.1)


class PenstockCluster(Cluster):
    def __init__(self, given: Given) -> None:
        super().__init__(OURS, "Penstock", given.favoured)
        self._build = {"PURE": "1"} if given.pure else {"REQUIRE_COMPILED": "1"}

    def begin(self, stack: ExitStack, directory: Path) -> None:
        made = LiveCluster(directory / "penstock", NODES, self._build)
        self.cluster = stack.enter_context(made)
        wait_for(self._running, NODES, "nodes running")

    def _running(self) -> int:
        return sum(one["running"] for one in self.cluster.ask(0, "/api/penstock/cluster")["nodes"])

    def url(self, node: int = 0) -> str:
        return self.cluster.nodes[node].url

    def pids(self) -> list[int]:
        return [node.pid for node in self.cluster.nodes]

    def mirror(self, copies: int) -> None:
        set_policy(self.cluster, copies, "^" + prefix(copies).replace(".", r"\."))

    def complete(self, queue: str) -> int:
        row = self.cluster.ask(0, f"/api/queues/%2F/{queue}")
        return complete_in(row, "synchronised_slave_nodes")


class OneCommand(Cluster):
    """The nodes of ``penstock serve --nodes 3``, which agree without etcd and share one port."""

    def __init__(self, given: Given) -> None:
        super().__init__(OURS, "Penstock, serve --nodes 3", given.favoured)
        self._build = "PENSTOCK_PURE" if given.pure else "PENSTOCK_REQUIRE_COMPILED"

    def begin(self, stack: ExitStack, directory: Path) -> None:
        words = ("--nodes", str(NODES))
        made = LiveBroker(directory / "nodes", words, {self._build: "1"}, READY_LIMIT_S)
        self._broker = stack.enter_context(made)
        wait_for(self._running, NODES, "nodes running")

    def _running(self) -> int:
        found = manage(f"{self._broker.http_url}/api/penstock/cluster")["nodes"]
        return sum(one["running"] for one in found)

    def url(self, node: int = 0) -> str:
        """Any of them answers there."""
        return self._broker.url

    def pids(self) -> list[int]:
        children = f"/proc/{self._broker.pid}/task/{self._broker.pid}/children"
        return [int(pid) for pid in Path(children).read_text().split()]

    def mirror(self, copies: int) -> None:
        words = {"pattern": "^" + prefix(copies).replace(".", r"\."), "apply-to": "queues"}
        policy = words | {"definition": definition(copies)}
        manage(f"{self._broker.http_url}/api/policies/%2F/copies{copies}", policy)

    def complete(self, queue: str) -> int:
        row = manage(f"{self._broker.http_url}/api/queues/%2F/{queue}")
        return complete_in(row, "synchronised_slave_nodes")


def set_policy(
    cluster: LiveCluster, copies: int, pattern: str, sync_mode: str = "automatic"
) -> None:
    policy = {"pattern": pattern, "apply-to": "queues", "definition": definition(copies, sync_mode)}
    cluster.ask(0, f"/api/policies/%2F/{pattern.strip('^$').partition('.')[0]}", policy)


class JoiningRabbit(RabbitServer):
    """One of several: ``first`` is the one it joins, and whose name server it uses."""

    def __init__(self, directory: Path, cookie: str, first: JoiningRabbit | None) -> None:
        super().__init__(directory, erl_args=LOCAL_DISTRIBUTION)
        self._first = first
        self._cookie = cookie
        if first is not None:
            self.epmd_port = first.epmd_port
        founder = (first or self).environment()["RABBITMQ_NODENAME"]
        self._config = (
            "cluster_formation.peer_discovery_backend = classic_config\n"
            f"cluster_formation.classic_config.nodes.1 = {founder}\n"
        )

    def start(self) -> Self:
        self.directory.mkdir(parents=True, exist_ok=True)
        file = self.directory / ".erlang.cookie"
        if not file.exists():
            file.write_text(self._cookie)
            file.chmod(0o400)
        return super().start()

    def _start_epmd(self) -> None:
        if self._first is None:
            super()._start_epmd()


class RabbitCluster(Cluster):
    """RabbitMQ with its defaults; mirrored classic queues."""

    def __init__(self, given: Given) -> None:
        super().__init__(THEIRS, "RabbitMQ", given.favoured)

    def begin(self, stack: ExitStack, directory: Path) -> None:
        cookie = secrets.token_hex(16)
        first = JoiningRabbit(directory / "r1", cookie, None)
        others = [JoiningRabbit(directory / f"r{n}", cookie, first) for n in range(2, NODES + 1)]
        self.nodes = [first, *others]
        for node in self.nodes:  # one after the other, so that each finds the first one there
            stack.enter_context(node)
        listed = administer(first, "cluster_status", "-q", "--formatter", "json")
        running_nodes = json.loads(listed)["running_nodes"]
        assert len(running_nodes) == NODES, f"RabbitMQ's cluster is {running_nodes}"

    def url(self, node: int = 0) -> str:
        return self.nodes[node].url

    def pids(self) -> list[int]:
        return [node.beam_pid() for node in self.nodes]

    def mirror(self, copies: int) -> None:
        pattern = "^" + prefix(copies).replace(".", r"\.")
        words = ["-q", f"copies{copies}", pattern, json.dumps(definition(copies))]
        administer(self.nodes[0], "set_policy", *words, "--apply-to", "queues")

    def complete(self, queue: str) -> int:
        words = ["-q", "--formatter", "json", "name", "online"]
        if self.label.startswith("RabbitMQ 3."):  # later ones have no mirrored classic queues
            words.append("synchronised_slave_pids")
        rows = json.loads(administer(self.nodes[0], "list_queues", *words))
        (row,) = [row for row in rows if row["name"] == queue]
        return complete_in(row, "synchronised_slave_pids")


def copied(scenario: Scenario, copies: int, kind: str = "") -> Callable[[Cluster, Given], Figures]:
    """Processor time is that of all three nodes, warm-up included, as are its messages."""
    arguments = arguments_of(kind, copies)

    def measure(cluster: Cluster, given: Given) -> Figures:
        queue = f"{'quorum.' if kind == QUORUM else prefix(copies)}{scenario.name}"
        if copies > 1 and kind != QUORUM:
            cluster.mirror(copies)
        cluster.declare(queue, copies, arguments)
        node = int(scenario.name.endswith("-follower"))
        words = ["--uri", cluster.url(node), "--cleanup", "--queue", queue, "--json", "-"]
        for name, value in arguments.items():
            words += ["--queue-arg", f"{name}={value}"]
        gauges = [ProcessGauge(pid, tree=False) for pid in cluster.pids()]
        before_s = sum(sum(gauge.cpu_s()) for gauge in gauges)
        side: Any = cluster
        bench = ("-m", "penstock", "bench", *words, *scenario.words(given))
        with Watch(0) as watch, running(side, *bench) as load:
            result = load.result()
        spent_s = sum(sum(gauge.cpu_s()) for gauge in gauges) - before_s
        return {
            "rate": result[scenario.figure],
            "cpu_us": spent_s * 1e6 / result["published"],
            "other_cores": watch.other_cores(spent_s + result["generator_cpu_s"]),
            "wrong": wrongs(result),
        }

    return measure


MIRRORS: Final = Table(
    "mirrors",
    "What copies of a queue cost",
    "Three nodes of each broker with queues of one, two and three copies, driven at the master's"
    " node; a confirm means that all copies have the message, on disk if it is persistent (in"
    " RabbitMQ most copies of a stream). Quorum queues have three, driven at the leader's node or"
    " at another one; a confirm means: on disk at two of three. Nodes and generator share all"
    " cores.",
    [
        Row(f"{one.name}-{copies}", f"{one.title}; copies: {copies}", copied(one, copies, kind))
        for copies in range(1, NODES + 1)
        for kind, some in (("", SCENARIOS), (STREAM, STREAM_SCENARIOS))
        for one in some
    ]
    + [Row(one.name, one.title, copied(one, NODES, QUORUM)) for one in QUORUM_SCENARIOS],
    {
        "": Section(
            "",
            (
                Column("rate", "msg/s", thousands, 1),
                Column("cpu_us", "CPU µs/msg of three nodes", plain),
                Column("other_cores", "other load, cores"),
            ),
        )
    },
    lambda given, row: [
        (OneCommand if given.one_command else PenstockCluster)(given),
        *([] if given.alone else [RabbitCluster(given)]),
    ],
    lives="table",
    options=lambda parser: parser.add_argument(
        "--one-command",
        action="store_true",
        help="Penstock's nodes are those of one command, `penstock serve --nodes 3`, without etcd:"
        " they share a port, so a client is at any of them",
    ),
    defaults={"seconds": 5.0, "warmup": 2.0},
    promises=[
        Promise("3 times RabbitMQ's rate", rows, "rate", least=3, over=THEIRS)
        for rows in ("quorum", *(f"{one.name}-{n}" for one in SCENARIOS for n in (2, 3)))
    ],
    lacking=lambda given: (None if given.one_command else no_etcd()) or needs(given),
)


# -- one copy more ------------------------------------------------------------------------------

QUEUE: Final = "long"
SIZE: Final = 100
LOOK_S: Final = 0.2
JOIN_WARMUP_S: Final = 3.0
SYNC_LIMIT_S: Final = 1800.0
LOAD: Final = f"--size {SIZE} --confirm 1000 --in-flight 2000 --duration 7200".split()
FLAT_OUT: Final = ["--prefetch", "1000", "--ack-every", "100"]
STEADY: Final = ["--rate", "10000", "--consumers", "6", "--prefetch", "1", "--ack-every", "1"]
"""The queue stays as long as it is, and there is processor time left for the new copy."""


class Sample(NamedTuple):
    at_s: float
    published: int
    acknowledged: int
    messages: int
    synchronised: int


class Joining:
    """A cluster with a node for each copy and one more, and a long queue under load."""

    favoured = False
    generator_cores = all_cores()
    key = OURS
    label = "Penstock"

    def __init__(self, given: Given, copies: int) -> None:
        self._copies = copies
        build = {"PURE": "1"} if given.pure else {}
        self._scratch = tempfile.TemporaryDirectory()
        self._cluster = LiveCluster(Path(self._scratch.name) / "cluster", copies + 1, build)

    def __enter__(self) -> Self:
        self._cluster.__enter__()
        self.gauges = [ProcessGauge(node.pid, tree=False) for node in self._cluster.nodes]
        self.peaks = [0] * len(self.gauges)
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.__exit__(None, None, None)
        self._scratch.cleanup()

    def mirror(self, copies: int, sync_mode: str = "automatic") -> None:
        set_policy(self._cluster, copies, f"^{QUEUE}$", sync_mode)

    @contextmanager
    def load(self, *words: str) -> Iterator[Any]:
        queue = ["--queue", QUEUE, "--durable", "--persistent"]
        queue += ["--uri", self._cluster.nodes[0].url, "--json", "-"]
        side: Any = self
        with running(side, "-m", "penstock", "bench", *queue, *words) as program:
            try:
                yield program
            finally:
                if program.process.poll() is None:
                    os.killpg(program.process.pid, 9)

    def fill(self, messages: int) -> None:
        with Connection(Endpoint.parse(self._cluster.nodes[0].url)) as connection:
            connection.channel().queue_declare(QUEUE, durable=True)
        words = f"--size {SIZE} --consumers 0 --confirm 1000 --count {messages}".split()
        with self.load(*words) as program:
            program.result()

    def row(self) -> Any:
        return self._cluster.ask(0, f"/api/queues/%2F/{QUEUE}")

    def sample(self) -> Sample:
        row = self.row()
        stats = row.get("message_stats", {})
        sizes = [gauge.sample_rss() for gauge in self.gauges]
        self.peaks = [max(pair) for pair in zip(self.peaks, sizes, strict=True)]
        mirrors = len(row.get("synchronised_slave_nodes", []))
        counts = (stats.get("publish", 0), stats.get("ack", 0), row["messages"])
        return Sample(time.monotonic(), *counts, mirrors)

    def watch(self, until: Callable[[Sample, Sample], bool]) -> Figures:
        first = last = self.sample()
        while not until(first, last):
            if last.at_s - first.at_s > SYNC_LIMIT_S:
                raise RuntimeError(f"not synchronised within {SYNC_LIMIT_S:.0f} s: {last}")
            time.sleep(LOOK_S)
            last = self.sample()
        took_s = last.at_s - first.at_s
        return {
            "seconds": took_s,
            "published": (last.published - first.published) / took_s,
            "consumed": (last.acknowledged - first.acknowledged) / took_s,
            "messages": first.messages,
            "master_mb": self.peaks[0] / 1e6,
            "mirror_mb": self.peaks[-1] / 1e6,
        }

    def synchronise(self, *, manual: bool) -> Figures:
        """Until there is one copy more that has everything."""
        if manual:
            body = {"action": "sync"}
            self._cluster.ask(0, f"/api/queues/%2F/{QUEUE}/actions", body, "POST")
        else:
            self.mirror(self._copies + 1)
        self.peaks = [0] * len(self.gauges)
        return self.watch(lambda first, last: last.synchronised >= self._copies)


def joined(copies: int) -> Callable[[Joining, Given], Figures]:
    def measure(side: Joining, given: Given) -> Figures:
        def spent(first: Sample, last: Sample) -> bool:
            return bool(last.at_s - first.at_s >= given.seconds)

        if copies > 1:
            side.mirror(copies)
        side.fill(given.messages)
        with side.load(*LOAD, *(STEADY if given.steady else FLAT_OUT)):
            if given.manual:  # the mirror is there, and has what comes from now on
                side.mirror(copies + 1, "manual")
                while len(side.row().get("slave_nodes", [])) < copies:
                    time.sleep(LOOK_S)
            time.sleep(JOIN_WARMUP_S)
            found: Figures = {"before": side.watch(spent)}
            found["during"] = side.synchronise(manual=given.manual)
            found["after"] = side.watch(spent)
        kept = [found["during"][w] / found["before"][w] for w in ("published", "consumed")]
        found["during"]["kept"] = min(kept)
        return found

    return measure


def join_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--messages", type=int, default=1_000_000, help="in the queue")
    add("--steady", action="store_true", help="10,000/s, and not flat out")
    add("--manual", action="store_true", help="sync_queue of a mirror that joined before")


MIRROR_SYNC: Final = Table(
    "mirror-sync",
    "A mirror joins a long queue",
    f"Persistent messages of {SIZE} bytes, confirmed, acknowledged, published and consumed at the"
    " master's node. Meanwhile: from the policy that asks for one copy more until it is"
    " synchronised. Generator, nodes and etcd share the cores.",
    [Row(f"{n}-to-{n + 1}", f"copies: {n} to {n + 1}", joined(n)) for n in (1, 2)],
    {
        "": Section(
            "",
            (
                Column("published", "published/s", thousands),
                Column("consumed", "consumed/s", thousands),
                Column("kept", "of the rate before"),
                Column("seconds", "s", tenths),
                Column("messages", "messages at first", thousands),
                Column("master_mb", "master MB", thousands),
                Column("mirror_mb", "mirror MB", thousands),
            ),
            {"before": "before", "during": "meanwhile", "after": "afterwards"},
        )
    },
    lambda given, row: [Joining(given, int(row.name[0]))],
    lives="run",
    options=join_options,
    defaults={"rounds": 1, "seconds": 15.0, "alone": True},
    tried={"messages": 10_000, "seconds": 2.0},
    promises=[Promise("share of the rate before at least", "", "during/kept", least=0.7)],
    lacking=lambda given: no_etcd() or needs(given),
)

TABLES: Final = (MIRRORS, MIRROR_SYNC)
