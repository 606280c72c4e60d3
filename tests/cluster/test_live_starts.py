"""Real nodes that start again: with queues to delete, and with a lease that ends meanwhile."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from tests.helpers.cluster import LiveCluster, missing_reason
from tests.helpers.live_broker import LiveBroker

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(missing_reason() is not None, reason=str(missing_reason())),
]

LONGER_THAN_A_LEASE_S = 4.5
START_S = 20.0


@pytest.mark.parametrize("ending", [pytest.param("stopped", marks=pytest.mark.long), "killed"])
def test_a_node_starts_again_whose_queues_were_not_durable(tmp_path: Path, ending: str) -> None:
    """It ended after 28 s: "another node is founding it" (CL4 of the review)."""
    with LiveCluster(tmp_path, 2) as cluster:
        for number in range(30):
            cluster.ask(0, f"/api/queues/%2F/passing{number}", {"durable": False})
        cluster.ask(0, "/api/queues/%2F/kept", {"durable": True})
        node = cluster.nodes[0]
        if ending == "stopped":
            node.stop()
        else:
            node.kill()
        began_s = time.monotonic()
        node.start()
        assert time.monotonic() - began_s < START_S
        for number in range(2):
            names = [row["name"] for row in cluster.ask(number, "/api/queues")]
            assert names == ["kept"], number


def said(node: LiveBroker, line: str) -> int:
    """How often, in all lives of the node."""
    return node._log_path.read_text().count(line)


@pytest.mark.parametrize(
    "line", ["recovery: ", pytest.param("has joined the cluster", marks=pytest.mark.long)]
)
def test_a_start_that_stands_still_for_longer_than_the_lease_goes_on(
    tmp_path: Path, line: str
) -> None:
    """As one on a slow disk does (CL5 of the review)."""
    with LiveCluster(tmp_path, 2) as cluster:
        cluster.ask(1, "/api/queues/%2F/kept", {"durable": True})
        node = cluster.nodes[1]
        node.kill()
        before = said(node, line)
        errors: list[BaseException] = []

        def start() -> None:
            try:
                node.start()
            except BaseException as error:
                errors.append(error)

        starting = threading.Thread(target=start)
        starting.start()
        end_s = time.monotonic() + START_S
        while said(node, line) == before:
            assert time.monotonic() < end_s, node.output()
            time.sleep(0.002)
        process = node.process
        assert process is not None
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(LONGER_THAN_A_LEASE_S)
        os.kill(process.pid, signal.SIGCONT)
        starting.join()
        assert errors == []
        assert [row["name"] for row in cluster.ask(1, "/api/queues")] == ["kept"]
