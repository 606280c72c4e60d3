"""Three nodes of Penstock, and three of RabbitMQ, as a benchmark of mirrored queues needs them.

Both are processes on 127.0.0.1 with directories of their own that go away with them; Penstock's
share a real etcd.  Queues are mirrored by policy: ``exactly`` so many copies, synchronised
automatically, for all queues whose name begins with ``copies_prefix``.  A queue is declared at the
first node, so its master is there, and used when all of its mirrors are synchronised.
"""

from __future__ import annotations

import json
import secrets
import time
import urllib.error
import urllib.request
from base64 import b64encode
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Self

from penstock.client.amqp import Connection, Endpoint
from penstock.client.procstat import ProcessGauge
from tests.helpers.administer import administer
from tests.helpers.cluster import LiveCluster
from tests.helpers.rabbit import LOCAL_DISTRIBUTION, RabbitServer

NODES: Final = 3
SYNCHRONISED_LIMIT_S: Final = 60.0
ANSWER_LIMIT_S: Final = 30.0


def copies_prefix(copies: int) -> str:
    return f"copies{copies}."


def definition(copies: int) -> dict[str, Any]:
    return {"ha-mode": "exactly", "ha-params": copies, "ha-sync-mode": "automatic"}


class JoiningRabbit(RabbitServer):
    """One of several: ``first`` is whom it joins, and whose name server it uses; None = nobody."""

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


class RabbitCluster:
    """RabbitMQ with its defaults; mirrored classic queues."""

    called = "RabbitMQ"

    def __init__(self, directory: Path) -> None:
        cookie = secrets.token_hex(16)
        first = JoiningRabbit(directory / "r1", cookie, None)
        others = [JoiningRabbit(directory / f"r{n}", cookie, first) for n in range(2, NODES + 1)]
        self.nodes: list[RabbitServer] = [first, *others]
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for node in self.nodes:  # one after the other, so that each finds the first one there
                stack.enter_context(node)
            listed = administer(self.nodes[0], "cluster_status", "-q", "--formatter", "json")
            running = json.loads(listed)["running_nodes"]
            assert len(running) == NODES, f"RabbitMQ's cluster is {running}"
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def url(self) -> str:
        return self.nodes[0].url

    def pids(self) -> list[int]:
        return [node.beam_pid() for node in self.nodes]

    def mirror(self, copies: int) -> None:
        pattern = "^" + copies_prefix(copies).replace(".", r"\.")
        words = ["-q", f"copies{copies}", pattern, json.dumps(definition(copies))]
        administer(self.nodes[0], "set_policy", *words, "--apply-to", "queues")

    def synchronised(self, queue: str) -> int:
        """How many mirrors have everything."""
        words = ["-q", "--no-table-headers", "name", "synchronised_slave_pids"]
        for line in administer(self.nodes[0], "list_queues", *words).splitlines():
            name, _, pids = line.partition("\t")
            if name == queue:
                return pids.count("<")
        return 0


class PenstockCluster(LiveCluster):
    """Penstock in the build that is asked for."""

    called = "Penstock"

    def __init__(self, directory: Path, *, pure: bool) -> None:
        build = {"PURE": "1"} if pure else {"REQUIRE_COMPILED": "1"}
        super().__init__(directory, NODES, build)

    @property
    def url(self) -> str:
        return self.nodes[0].url

    def pids(self) -> list[int]:
        return [node.pid for node in self.nodes]

    def mirror(self, copies: int) -> None:
        policy = {
            "pattern": "^" + copies_prefix(copies).replace(".", r"\."),
            "definition": definition(copies),
            "apply-to": "queues",
        }
        self._ask("PUT", f"/api/policies/%2F/copies{copies}", policy)

    def synchronised(self, queue: str) -> int:
        return len(self._ask("GET", f"/api/queues/%2F/{queue}").get("synchronised_slave_nodes", []))

    def _ask(self, verb: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.nodes[0].http_url + path, data, method=verb)
        request.add_header("Authorization", "Basic " + b64encode(b"guest:guest").decode())
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_LIMIT_S) as answer:
                said = answer.read()
        except urllib.error.HTTPError as error:
            with error:
                raise SystemExit(f"Penstock: {verb} {path}: {error.read().decode()}") from None
        found: dict[str, Any] = json.loads(said) if said else {}
        return found


Cluster = PenstockCluster | RabbitCluster


def declare(cluster: Cluster, queue: str, copies: int) -> None:
    """At the first node; returns when it has so many copies, all of them complete."""
    with Connection(Endpoint.parse(cluster.url)) as connection:
        connection.channel().queue_declare(queue, durable=True)
    end_s = time.monotonic() + SYNCHRONISED_LIMIT_S
    while (found := cluster.synchronised(queue)) != copies - 1:
        if time.monotonic() > end_s:
            raise SystemExit(
                f"{cluster.called}: {queue} has {found} synchronised mirrors, not {copies - 1}"
            )
        time.sleep(0.1)


def cpu_s(pids: list[int]) -> float:
    """What these processes have used so far, all threads."""
    return sum(sum(ProcessGauge(pid, tree=False).cpu_s()) for pid in pids)
