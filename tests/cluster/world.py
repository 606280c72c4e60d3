"""A cluster under a load, and what is done to it: the small language of the cluster's scenarios.

    with World(directory, 3, mirrored=True, network=network) as world:
        with world.load() as load:
            load.run(2)
            world.kill(0)                     SIGKILL of a node
            load.await_confirms(5)            the queues go on without it
            world.start(0)
            world.settle()                    all nodes together, every mirror in step
            load.finish()

Every client has a queue of its own.  All queues are declared at the first node, so that one is the
master of all of them; with ``mirrored`` a policy gives each one mirror.  With ``quorum`` each AMQP
client has a second queue, of that type; the clients declare both as durable queues and no more.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.error import URLError
from urllib.parse import quote

import pika
import pika.exceptions
from pika.adapters.blocking_connection import BlockingChannel

from tests.cluster.load import Load, Worker
from tests.cluster.telling import Truth, asked, why_untrue
from tests.crash.kill_clients import Gone, Line, method_ids
from tests.helpers import raw_codec as codec
from tests.helpers.cluster import LiveCluster, start
from tests.helpers.namespaces import PrivateNetwork
from tests.helpers.raw_nsq import MAGIC

CLIENTS = os.environ.get("PENSTOCK_CLUSTER_CLIENTS", "pika,go,java,pynsq").split(",")
RELAXED = {"QUORUM_RELAXED_CHECKS_ON_REDECLARATION": "true"}
POLICY = {
    "pattern": r"^(nsq\.)?queue_",
    "apply-to": "queues",
    "definition": {"ha-mode": "exactly", "ha-params": 2, "ha-sync-mode": "automatic"},
}
COPIES = 2
CHANNEL = "load"
LEASE_S = 3.0
FAILOVER_MS = int(os.environ.get("PENSTOCK_CLUSTER_FAILOVER_MS", "5000"))
SETTLE_S = 40.0
LOOK_S = 0.05
PROBE_S = 2.5
PERSISTENT = pika.BasicProperties(delivery_mode=2)


def until(found: Callable[[], bool], timeout_s: float, what: Callable[[], str]) -> float:
    """How long it took, in seconds."""
    began_s = time.monotonic()
    while not found():
        assert time.monotonic() - began_s < timeout_s, f"not within {timeout_s:g} s: {what()}"
        time.sleep(LOOK_S)
    return time.monotonic() - began_s


@contextmanager
def channel_at(url: str) -> Iterator[BlockingChannel]:
    """A node that is cut off may close it; that is what the test looks at."""
    options = "?connection_attempts=1&socket_timeout=2&blocked_connection_timeout=3"
    connection = pika.BlockingConnection(pika.URLParameters(url + options))
    try:
        yield connection.channel()
    finally:
        with contextlib.suppress(pika.exceptions.AMQPError):
            connection.close()


class World:
    """See the head of this file."""

    def __init__(
        self,
        directory: Path,
        size: int,
        *,
        mirrored: bool,
        quorum: bool = False,
        network: PrivateNetwork | None = None,
        clients: Sequence[str] = CLIENTS,
        settings: dict[str, str] | None = None,
        machines: Sequence[Mapping[str, str]] = (),
    ) -> None:
        self.size = size
        self.mirrored = mirrored
        self.network = network
        self.clients = clients
        self.cluster = LiveCluster(
            directory,
            size,
            (settings or {}) | (RELAXED if quorum else {}),
            network,
            nsq="pynsq" in clients,
            machines=machines,
        )
        self.topics = {f"queue_{client}": client for client in clients}
        self.quorum = [f"quorum_{client}" for client in clients if quorum and client != "pynsq"]
        self.topics.update((name, name.partition("_")[2]) for name in self.quorum)
        self._stack = ExitStack()

    @property
    def queues(self) -> list[str]:
        """As AMQP calls them: a channel of a topic is one too."""
        return [
            f"nsq.{name}:{CHANNEL}" if client == "pynsq" else name
            for name, client in self.topics.items()
        ]

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.cluster)
            self.settle(queues=False)
            self._declare()
            self.settle()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.heal()
        self._stack.__exit__(kind, error, trace)

    def _declare(self) -> None:
        if self.mirrored:
            self.cluster.ask(0, "/api/policies/%2F/mirrors", POLICY)
        with channel_at(self.cluster.nodes[0].url) as channel:
            for topic, client in self.topics.items():
                if client != "pynsq":
                    kind = "quorum" if topic in self.quorum else "classic"
                    channel.queue_declare(topic, durable=True, arguments={"x-queue-type": kind})
        for topic, client in self.topics.items():
            if client == "pynsq":
                self._make_nsq_channel(topic)

    def _make_nsq_channel(self, topic: str) -> None:
        """Its first reader makes it."""
        host, _, port = self.cluster.nsq_address(0).rpartition(":")
        with socket.create_connection((host, int(port)), 5) as line:
            line.sendall(MAGIC + f"SUB {topic} {CHANNEL}\n".encode())
            assert b"OK" in line.recv(1000)

    def load(self) -> Load:
        workers = []
        for number, (topic, client) in enumerate(self.topics.items()):
            places: list[str] = [
                self.cluster.nsq_address(node) if client == "pynsq" else one.url.rpartition("/")[0]
                for node, one in enumerate(self.cluster.nodes)
            ]
            turn = number % self.size
            workers.append(Worker(client, topic, places[turn:] + places[:turn]))
        return Load(workers)

    # -- blows -----------------------------------------------------------------------------

    def kill(self, node: int) -> None:
        self.cluster.nodes[node].kill()

    def stop(self, node: int) -> None:
        """SIGTERM: it must end well, and in time."""
        self.cluster.nodes[node].stop()

    def start(self, node: int) -> None:
        start(self.cluster.nodes[node])

    def isolate(self, node: int) -> None:
        """From all nodes and from etcd; clients still reach it."""
        assert self.network is not None
        self.network.isolate(node)

    def heal(self) -> None:
        if self.network is not None:
            self.network.heal()

    # -- what can be seen ------------------------------------------------------------------

    def living(self) -> list[int]:
        return [
            number for number, node in enumerate(self.cluster.nodes) if node.process is not None
        ]

    def row(self, queue: str, node: int | None = None) -> dict[str, Any]:
        """Of the queue, as that node (some living one) tells it; empty where there is none."""
        number = self.living()[0] if node is None else node
        with contextlib.suppress(URLError, TimeoutError, ConnectionError):
            row = self.cluster.ask(number, f"/api/queues/%2F/{quote(queue, safe='')}")
            return dict(row)
        return {}

    def master(self, queue: str, node: int | None = None) -> int:
        name = self.row(queue, node).get("node")
        names = [self.cluster.name(number) for number in range(self.size)]
        return names.index(name) if name in names else -1

    def mirror(self, queue: str) -> int:
        """Of a queue with one."""
        (name,) = self.row(queue)["slave_nodes"]
        return [self.cluster.name(number) for number in range(self.size)].index(name)

    def nodes_seen(self, node: int) -> dict[str, bool]:
        """By its name: whether it runs and can be heard, as that node tells it."""
        with contextlib.suppress(URLError, TimeoutError, ConnectionError):
            rows = self.cluster.ask(node, "/api/penstock/cluster")["nodes"]
            return {
                one["name"]: one["running"] and ("link" not in one or one["link"]["connected"])
                for one in rows
            }
        return {}

    def await_seen_down(self, node: int) -> None:
        """By the others, when its lease has ended."""
        others = [other for other in self.living() if other != node]
        name = self.cluster.name(node)
        until(
            lambda: all(self.nodes_seen(other).get(name) is False for other in others),
            2 * LEASE_S,
            self.told,
        )

    def await_other_master(self, former: int, timeout_s: float) -> None:
        """Of every queue, as the others tell it."""
        other = next(node for node in self.living() if node != former)
        until(
            lambda: all(self.master(queue, other) not in (former, -1) for queue in self.queues),
            timeout_s,
            self.told,
        )

    def settle(self, *, queues: bool = True, timeout_s: float = SETTLE_S) -> float:
        """Until all that run see each other and, if asked, every queue has all its copies."""
        names = {self.cluster.name(node) for node in self.living()}

        def is_settled() -> bool:
            for node in self.living():
                seen = self.nodes_seen(node)
                if {name for name, is_there in seen.items() if is_there} != names:
                    return False
            return not queues or all(self._is_whole(queue) for queue in self.queues)

        return until(is_settled, timeout_s, self.told)

    def _is_whole(self, queue: str) -> bool:
        row = self.row(queue)
        if row.get("state") != "running":
            return False
        if queue in self.quorum:
            return len(row["online"]) == len(self.living()) and bool(row["leader"])
        copies = len(row.get("synchronised_slave_nodes", [])) + 1
        return copies == (min(COPIES, len(self.living())) if self.mirrored else 1)

    def await_truth(
        self, *, gone: Sequence[int] = (), unheard: Sequence[int] = (), by: Sequence[int] = ()
    ) -> None:
        """``penstock cluster status`` tells of that, at these nodes (all that are there and heard):
        who is gone, which of those that live cannot be reached from there, and that every queue
        has a master and all its copies."""
        there = [node for node in self.living() if node not in gone]
        copies = min(COPIES, len(there))
        truth = Truth(
            [self.cluster.name(node) for node in range(self.size)],
            [self.cluster.name(node) for node in gone],
            [self.cluster.name(node) for node in unheard],
            dict.fromkeys(self.queues, copies) if self.mirrored else {},
        )
        for node in by or there:
            why = [""]

            def is_told(node: int = node, why: list[str] = why) -> bool:
                try:
                    why[0] = why_untrue(asked(lambda path: self.cluster.ask(node, path)), truth)
                except (URLError, TimeoutError, ConnectionError) as error:
                    why[0] = str(error)
                return why[0] == ""

            until(is_told, SETTLE_S, lambda node=node, why=why: f"{node} says: {why[0]}")  # type: ignore[misc]

    def told(self) -> str:
        keys = ("node", "state", "slave_nodes", "synchronised_slave_nodes", "online", "messages")
        rows = {
            queue: {key: row.get(key) for key in keys}
            for queue in self.queues
            for row in [self.row(queue)]
        }
        return f"{[self.nodes_seen(node) for node in self.living()]} {rows}"

    def confirms(self, node: int, load: Load) -> bool:
        """Whether a message to the first queue is confirmed at that node; the judge knows of it."""
        queue = self.queues[0]
        account = load.accounts[queue]
        one = f"probe.{time.monotonic_ns()}:1"
        account.unanswered.add(one)
        if not self._is_confirmed(self.cluster.nodes[node].url, queue, f"{one} ".encode()):
            return False
        account.confirmed[one] = time.time_ns() // 1_000_000
        return True

    def _is_confirmed(self, url: str, queue: str, body: bytes) -> bool:
        """Without a library: they wait for ever."""
        end_s = time.monotonic() + PROBE_S
        try:
            with closing(Line(url)) as line:
                line.call("confirm.select")
                line.send(
                    codec.method_frame(1, "basic.publish", exchange="", routing_key=queue)
                    + codec.content_frames(1, body, {"delivery_mode": 2})
                )
                while (left_s := end_s - time.monotonic()) > 0:
                    answers = [method_ids(frame) for frame in line.frames(left_s)]
                    if codec.METHOD_IDS["basic.ack"] in answers:
                        return True
                    if codec.METHOD_IDS["basic.nack"] in answers:
                        return False
        except Gone:
            pass
        return False
