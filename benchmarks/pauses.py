"""How long publishers of a quorum queue wait when one of three nodes is lost: both brokers in turn.

Three nodes of each broker, each on a host of its own in a private network (needs root); Penstock's
with three members of etcd.  Both clusters run all the time.  ``tests/cluster/blows.py`` has the
load and the blows.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
from base64 import b64encode
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

from benchmarks.brokers import OURS, THEIRS, favour
from benchmarks.harness import Figures, Given, Row, Table, needs
from benchmarks.page import Column, Promise, Section, thousands
from tests.cluster.blows import (
    BLOWS,
    GO_ON_S,
    NODES,
    QUEUE,
    RATE,
    Consumer,
    Publisher,
    Scene,
    strike,
    until,
)
from tests.cluster.test_live_majority import scene_of
from tests.helpers.broker_process import BrokerProcess, Place, free_port
from tests.helpers.cluster import LiveCluster
from tests.helpers.etcd import missing_reason as no_etcd
from tests.helpers.namespaces import PrivateNetwork
from tests.helpers.namespaces import missing_reason as no_network
from tests.helpers.rabbit import RabbitServer

QUORUM: Final = {"durable": True, "arguments": {"x-queue-type": "quorum"}}
EPMD_PORT: Final = 4369
NAMES: Final = {"kill -9": "kill", "SIGSTOP": "stop", "cut": "cut", "one-way cut": "mute"}
LONGEST_MS: Final = 1000.0


class Struck:
    """One cluster, and its clients."""

    def __init__(self, key: str, label: str, favoured: bool) -> None:
        self.key = key
        self.label = label
        self._favoured = favoured
        self._over = threading.Event()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            self.scene = self.begin(stack, directory)
            self._stack = stack.pop_all()
        url = self.scene.nodes[(self.scene.leader() + 1) % NODES].url
        self.publisher, self.consumer = Publisher(url), Consumer(url)
        self.publisher.start()
        self.consumer.start()
        until(lambda: len(self.publisher.confirmed) > RATE, GO_ON_S, lambda: "no confirms")
        return self

    def begin(self, stack: ExitStack, directory: Path) -> Scene:
        raise NotImplementedError

    def let_go_first(self, nodes: list[BrokerProcess]) -> None:
        """If that is wanted: they take precedence over other work, also when they start again."""
        if self._favoured:
            favour(os.getpid())
            threading.Thread(target=self._favour, args=(nodes,), daemon=True).start()

    def _favour(self, nodes: list[BrokerProcess]) -> None:
        while not self._over.wait(0.2):
            for process in [node.process for node in nodes]:
                if process is not None:
                    with suppress(OSError):  # it has just ended
                        favour(process.pid)

    def __exit__(self, *_: object) -> None:
        self.publisher.over = True
        self.publisher.join(GO_ON_S)
        self.consumer.over = True
        self.consumer.join(10)
        self._over.set()
        self._stack.close()


class PenstockHosts(Struck):
    def __init__(self, given: Given) -> None:
        super().__init__(OURS, "Penstock", given.favoured)
        self._build = {"PURE": "1"} if given.pure else {"REQUIRE_COMPILED": "1"}

    def begin(self, stack: ExitStack, directory: Path) -> Scene:
        network = stack.enter_context(PrivateNetwork(LiveCluster.hosts(NODES)))
        cluster = LiveCluster(directory, NODES, self._build, network=network)
        self.let_go_first([*cluster.nodes])
        stack.enter_context(cluster)
        return scene_of(cluster, network)


class RabbitHosts(Struck):
    """RabbitMQ with its defaults."""

    def __init__(self, given: Given) -> None:
        super().__init__(THEIRS, "RabbitMQ", given.favoured)

    def begin(self, stack: ExitStack, directory: Path) -> Scene:
        network = stack.enter_context(PrivateNetwork(NODES))
        cookie, founder = secrets.token_hex(16), network.address(0)
        nodes = [
            HostedRabbit(directory / f"r{host}", network.place(host), cookie, founder)
            for host in range(NODES)
        ]
        self.let_go_first([*nodes])
        for node in nodes:  # one after the other, so that each finds the first one there
            stack.enter_context(node)
        self.label = f"RabbitMQ {nodes[0].release()}"
        path = f"/api/queues/%2F/{QUEUE}"
        nodes[0].ask(path, QUORUM)
        names = [node.node_name for node in nodes]
        scene = Scene(network, nodes, names, lambda node: nodes[node].ask(path))
        scene.settle()
        return scene


class HostedRabbit(RabbitServer):
    """On a host of its own; its name has the address, and it joins the node at ``founder``."""

    def __init__(self, directory: Path, place: Place, cookie: str, founder: str) -> None:
        self.http_port = free_port()
        super().__init__(
            directory,
            config="loopback_users = none\n"
            f"management.tcp.port = {self.http_port}\nmanagement.tcp.ip = {place.address}\n"
            "collect_statistics_interval = 500\n"
            "cluster_formation.peer_discovery_backend = classic_config\n"
            f"cluster_formation.classic_config.nodes.1 = rabbit@{founder}\n",
            plugins=("rabbitmq_management",),
        )
        self.place = place
        self.node_name = f"rabbit@{place.address}"
        self.epmd_port = EPMD_PORT
        self._cookie = cookie

    def environment(self) -> dict[str, str]:
        return super().environment() | {
            "ERL_EPMD_ADDRESS": self.place.address,
            "RABBITMQ_NODENAME": self.node_name,
            "RABBITMQ_USE_LONGNAME": "true",
            "RABBITMQ_NODE_IP_ADDRESS": self.place.address,
        }

    def start(self) -> Self:
        self.directory.mkdir(parents=True, exist_ok=True)
        file = self.directory / ".erlang.cookie"
        if not file.exists():
            file.write_text(self._cookie)
            file.chmod(0o400)
        return super().start()

    def is_ready(self) -> bool:
        return "completed with" in self.output()

    def _start_epmd(self) -> None:
        if self._epmd is None:
            self._epmd = subprocess.Popen(
                [*self.place.prefix, "epmd", "-address", self.place.address],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )

    def ask(self, path: str, body: object = None) -> dict[str, Any]:
        """GET, or PUT with a body, at its management API; {} = no answer."""
        url = f"http://{self.place.address}:{self.http_port}{path}"
        request = urllib.request.Request(url, None if body is None else json.dumps(body).encode())
        request.method = "GET" if body is None else "PUT"
        request.add_header("Authorization", "Basic " + b64encode(b"guest:guest").decode())
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                said = answer.read()
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            return {}
        found: dict[str, Any] = json.loads(said) if said else {}
        return found


def struck(what: str, whose: str, side: Struck, given: Given) -> Figures:
    """The longest time without a confirm; what was confirmed until then must arrive."""
    publisher, consumer = side.publisher, side.consumer
    began_s = time.monotonic()
    blow = strike(side.scene, publisher, consumer, what, whose, BLOWS[what])
    confirmed = set(publisher.confirmed)
    with suppress(AssertionError):
        until(lambda: confirmed <= consumer.received, GO_ON_S, str)
    lost = len(confirmed - consumer.received)
    return {
        "longest_ms": blow.longest_ms,
        "confirmed": sum(one > began_s for one in publisher.times),
        "wrong": [f"{lost} confirmed messages did not arrive"] if lost else [],
    }


TABLES: Final = (
    Table(
        "pauses",
        "Pauses of quorum queues",
        f"{RATE:,} persistent messages of 1 KB a second are published with confirms at a node that"
        " is not the leader's, and consumed there. The longest time without a confirm, from when"
        " the leader's node, or that of the other follower, is killed, stands still, hears and is"
        " heard by none, or is heard by none. Members of etcd and clients share all cores.",
        [
            Row(f"{NAMES[what]}-{whose}", f"{what} of the {whose}", partial(struck, what, whose))
            for what in BLOWS
            for whose in ("follower", "leader")
        ],
        {"": Section("", (Column("longest_ms", "ms without a confirm", thousands, -1),))},
        lambda given, row: [PenstockHosts(given), *([] if given.alone else [RabbitHosts(given)])],
        lives="table",
        promises=[Promise("at most a second", "", "longest_ms", most=LONGEST_MS)],
        lacking=lambda given: no_etcd() or no_network() or needs(given),
    ),
)  # fmt: skip
