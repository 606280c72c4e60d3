"""Two nodes: wrong passwords at both lock a user out at both."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.helpers.cluster import LiveCluster, missing_reason
from tests.helpers.raw_amqp import connect

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(missing_reason() is not None, reason=str(missing_reason())),
]
SETTINGS = {"LOGIN_LOCKOUT": "address", "LOGIN_LOCKOUT_FAILURES": "3"}
FAILURE_CLOSE = {"authentication_failure_close": True}


def answer(cluster: LiveCluster, number: int, password: str) -> str:
    client = connect(cluster.nodes[number].url)
    try:
        return client.login("ann", password, FAILURE_CLOSE).name
    finally:
        client.close_socket()


def locked(cluster: LiveCluster, number: int) -> list[str]:
    return [one["user"] for one in cluster.ask(number, "/api/penstock/lockouts")]


def until_locked(cluster: LiveCluster, wanted: list[str]) -> None:
    end_s = time.monotonic() + 10
    while any(locked(cluster, number) != wanted for number in range(2)):
        assert time.monotonic() < end_s, [locked(cluster, number) for number in range(2)]
        time.sleep(0.05)


def test_wrong_passwords_at_two_nodes_lock_out_at_both(tmp_path: Path) -> None:
    with LiveCluster(tmp_path, 2, SETTINGS) as cluster:
        cluster.ask(0, "/api/users/ann", {"password": "right", "tags": ""})
        end_s = time.monotonic() + 10
        while answer(cluster, 1, "right") != "connection.tune":
            assert time.monotonic() < end_s
        for number in (0, 1, 0):
            assert answer(cluster, number, "wrong") == "connection.close"
        until_locked(cluster, ["ann"])
        assert [answer(cluster, one, "right") for one in range(2)] == ["connection.close"] * 2

        cluster.ask(1, "/api/penstock/lockouts/ann", method="DELETE")
        until_locked(cluster, [])
        assert [answer(cluster, one, "right") for one in range(2)] == ["connection.tune"] * 2
