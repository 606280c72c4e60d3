"""A cluster of real processes on 127.0.0.1: one etcd, and nodes that share a secret.

with LiveCluster(tmp_path, 3) as cluster:
    cluster.nodes[0].url ...            each is a LiveBroker
"""

from __future__ import annotations

import os
import secrets
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from tests.helpers.broker_process import free_port
from tests.helpers.etcd import EtcdServer, missing_reason
from tests.helpers.live_broker import LiveBroker

__all__ = ["LiveCluster", "missing_reason"]


class LiveCluster:
    """``settings``: of every node, as environment variables without their prefix."""

    def __init__(self, directory: Path, size: int, settings: dict[str, str] | None = None) -> None:
        self.directory = directory
        self.etcd = EtcdServer(directory / "etcd")
        self.secret_file = directory / "secret"
        self._settings = settings or {}
        self.nodes = [self._node(number) for number in range(size)]
        self._stack = ExitStack()

    def name(self, number: int) -> str:
        return f"penstock@n{number + 1}"

    def _node(self, number: int) -> LiveBroker:
        settings = {
            "CLUSTER_ETCD_ENDPOINTS": self.etcd.endpoint,
            "CLUSTER_SECRET_FILE": str(self.secret_file),
            "CLUSTER_PORT": str(free_port()),
            "NODE_NAME": self.name(number),
            **self._settings,
        }
        environment = {f"PENSTOCK_{key}": value for key, value in settings.items()}
        return LiveBroker(self.directory / f"n{number + 1}", environment=environment)

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
            for one in [pool.submit(node.start) for node in self.nodes]:
                one.result()

    def __exit__(self, *_: object) -> None:
        self._stack.close()
