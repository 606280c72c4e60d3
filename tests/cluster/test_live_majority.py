"""How long a quorum queue of three nodes leaves its publishers without a confirm, by what befalls.

Three nodes on hosts of their own, three etcds.  ``RATE`` persistent messages a second are published
with confirms at a node that is not the leader's, and consumed there.  Then the third node, a
follower, and the leader's are killed, stand still, and are cut off in turn.  Printed is the longest
time without a confirm from the blow on; nothing confirmed may be lost.

``PENSTOCK_MAJORITY_ROUNDS`` says how often, ``_RATE`` and ``_SECONDS`` how much and how long.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pytest

from tests.cluster.blows import (
    BLOWS,
    GO_ON_S,
    NODES,
    QUEUE,
    RATE,
    Blow,
    Consumer,
    Publisher,
    Scene,
    strike,
    until,
)
from tests.helpers.cluster import LiveCluster, missing_reason
from tests.helpers.namespaces import PrivateNetwork
from tests.helpers.namespaces import missing_reason as network_missing

pytestmark = [
    pytest.mark.long,
    pytest.mark.namespaces,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(missing_reason() is not None, reason=str(missing_reason())),
    pytest.mark.skipif(network_missing() is not None, reason=str(network_missing())),
]

ROUNDS = int(os.environ.get("PENSTOCK_MAJORITY_ROUNDS", "1"))
FOLLOWER_GAP_MS = 1000


def scene_of(cluster: LiveCluster, network: PrivateNetwork) -> Scene:
    """With its queue, of three copies."""

    def row(node: int) -> dict[str, Any]:
        with contextlib.suppress(URLError, TimeoutError, ConnectionError):
            return dict(cluster.ask(node, f"/api/queues/%2F/{QUEUE}"))
        return {}

    def told() -> str:
        """Who leads, and how far the copies are, as each node has it."""
        found = []
        for node in range(NODES):
            with contextlib.suppress(URLError, TimeoutError, ConnectionError):
                found.append(cluster.ask(node, "/api/penstock/mirrors"))
        return str(found)

    until(cluster.all_run, GO_ON_S, lambda: "nodes")
    quorum = {"durable": True, "arguments": {"x-queue-type": "quorum"}}
    cluster.ask(0, f"/api/queues/%2F/{QUEUE}", quorum)
    names = [cluster.name(one) for one in range(NODES)]
    scene = Scene(network, cluster.nodes, names, row, told)
    scene.settle()
    return scene


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with ExitStack() as stack:
        network = stack.enter_context(PrivateNetwork(LiveCluster.hosts(NODES)))
        cluster = stack.enter_context(LiveCluster(tmp_path, NODES, network=network))
        yield scene_of(cluster, network)


def test_no_blow_leaves_publishers_without_confirms(scene: Scene) -> None:
    url = scene.nodes[(scene.leader() + 1) % NODES].url
    publisher, consumer = Publisher(url), Consumer(url)
    publisher.start()
    consumer.start()
    until(lambda: len(publisher.confirmed) > RATE, GO_ON_S, lambda: "no confirms")
    blows: list[Blow] = []
    for _ in range(ROUNDS):
        for what, strikes in BLOWS.items():
            for whose in ("follower", "leader"):
                blows.append(strike(scene, publisher, consumer, what, whose, strikes))
                print(blows[-1], flush=True)
    publisher.over = True
    publisher.join(GO_ON_S)

    def lost() -> set[int]:
        return publisher.confirmed - consumer.received

    with contextlib.suppress(AssertionError):
        until(lambda: not lost(), GO_ON_S, str)
    consumer.over = True
    consumer.join(10)
    print(
        f"{len(publisher.confirmed):,} confirmed, {len(lost())} lost, {consumer.twice} twice,"
        f" {publisher.refused} refused and sent again, {publisher.lives - 1} reconnections"
    )
    assert not lost(), sorted(lost())[:10]
    slow = [
        str(one) for one in blows if one.whose == "follower" if one.longest_ms > FOLLOWER_GAP_MS
    ]
    assert not slow, slow
