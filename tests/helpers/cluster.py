"""A cluster of real processes: etcd, and nodes that share a secret.

    with LiveCluster(tmp_path, 3) as cluster:           on 127.0.0.1, with one etcd
        cluster.nodes[0].url ...                         each is a LiveBroker

    with PrivateNetwork(LiveCluster.hosts(3)) as network:
        with LiveCluster(tmp_path, 3, network=network) as cluster:
            network.isolate(0)                           each on a host of its own, and three etcds

The nodes are on the first hosts of the network, the members of etcd on the last three.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.helpers.broker_process import HERE, BrokerFailed, free_port
from tests.helpers.etcd import EtcdServer, EtcdTrio, missing_reason
from tests.helpers.live_broker import LiveBroker
from tests.helpers.management_api import manage
from tests.helpers.namespaces import PrivateNetwork

__all__ = ["LiveCluster", "missing_reason"]

ETCD_MEMBERS = 3
STARTS_MAX = 5
AGAIN = ("cannot be used: no answer in time", "fix: start the node again")
"""Why a start failed that the next one may do: etcd was silent, or a damaged copy was given up."""


def start(node: LiveBroker) -> None:
    """As a service manager does: again, if the node has ended."""
    for _ in range(STARTS_MAX - 1):
        try:
            node.start()
        except BrokerFailed as failed:
            if not any(words in str(failed) for words in AGAIN):
                raise
        else:
            return
    node.start()


class LiveCluster:
    """``settings``: of every node, as environment variables without their prefix."""

    def __init__(
        self,
        directory: Path,
        size: int,
        settings: dict[str, str] | None = None,
        network: PrivateNetwork | None = None,
        *,
        nsq: bool = False,
        etcd: EtcdServer | None = None,
        machines: Sequence[Mapping[str, str]] = (),
    ) -> None:
        """``machines``: variables of the environment, for each node those of its machine."""
        self.directory = directory
        self.network = network
        self.etcd: EtcdServer | EtcdTrio = etcd or EtcdServer(directory / "etcd")
        if network is not None:
            places = [network.place(size + number) for number in range(ETCD_MEMBERS)]
            self.etcd = EtcdTrio(directory / "etcd", places)
        self.secret_file = directory / "secret"
        self._settings = settings or {}
        self._machines = machines or [{}] * size
        self.nsq_ports = [free_port() if nsq else 0 for _ in range(size)]
        self.nodes = [self._node(number) for number in range(size)]
        self._stack = ExitStack()

    @staticmethod
    def hosts(size: int) -> int:
        """How many the network of so many nodes needs."""
        return size + ETCD_MEMBERS

    def name(self, number: int) -> str:
        return f"penstock@n{number + 1}"

    def _node(self, number: int) -> LiveBroker:
        settings = {
            "CLUSTER_ETCD_ENDPOINTS": ",".join(self.etcd.endpoints),
            "CLUSTER_SECRET_FILE": str(self.secret_file),
            "CLUSTER_PORT": str(free_port()),
            "NODE_NAME": self.name(number),
            "NSQ_PORT": str(self.nsq_ports[number]),
            "LOOPBACK_USERS": "",  # guest comes from the network
            "NSQ_USER": "guest",  # so do NSQ clients, without a log-in
            **self._settings,
        }
        environment = {f"PENSTOCK_{key}": value for key, value in settings.items()}
        environment.update(self._machines[number])
        place = HERE if self.network is None else self.network.place(number)
        broker = LiveBroker(
            self.directory / f"n{number + 1}",
            environment=environment,
            ready_timeout_s=40.0,
            place=place,
        )
        broker.may_wait_for_processor = True
        return broker

    def nsq_address(self, number: int) -> str:
        return f"{self.nodes[number].place.address}:{self.nsq_ports[number]}"

    def __enter__(self) -> Self:
        self.directory.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.secret_file, os.O_WRONLY | os.O_CREAT, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(secrets.token_hex(32))
        with ExitStack() as stack:
            stack.callback(self.etcd.kill)
            self.etcd.start()
            for node in self.nodes:
                stack.push(node)
            self.start()
            self._stack = stack.pop_all()
        return self

    def start(self) -> None:
        """All that do not run, side by side."""
        with ThreadPoolExecutor(len(self.nodes)) as pool:
            for one in [pool.submit(start, node) for node in self.nodes if node.process is None]:
                one.result()

    def all_run(self) -> bool:
        """As the first node knows: a node that is ready may not have heard of another yet."""
        return all(one["running"] for one in self.ask(0, "/api/penstock/cluster")["nodes"])

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    # -- what a node says of itself --------------------------------------------------------

    def ask(
        self, number: int, path: str, body: Mapping[str, object] | None = None, method: str = ""
    ) -> Any:
        """GET, or PUT with a body, at that node's management API."""
        return manage(self.nodes[number].http_url + path, body, method)
