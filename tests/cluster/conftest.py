"""A real etcd for the tests of one; the last line of a run with loads: what they did in all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.coordinator_worlds import EtcdWorld
from tests.cluster.judge import told
from tests.cluster.load import TOTALS
from tests.helpers.etcd import EtcdServer


def pytest_unconfigure(config: pytest.Config) -> None:
    """A worker of several does not speak for all of them."""
    if TOTALS and not hasattr(config, "workerinput"):
        print(f"clusters under load: {told(TOTALS)}")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EtcdServer]:
    """A real etcd."""
    made = EtcdServer(tmp_path / "etcd")
    try:
        yield made.start()
    finally:
        made.kill()


@pytest.fixture
def world(server: EtcdServer) -> Iterator[EtcdWorld]:
    """Members of a cluster that ``server`` coordinates."""
    made = EtcdWorld((server.endpoint,), lease_ttl_s=2)
    yield made
    made.close()
