"""Nodes as processes, with a real etcd: they find each other by the addresses etcd has."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from penstock.protocols.peers.access import unix_address, unix_path_of
from tests.helpers.cluster import LiveCluster, missing_reason
from tests.helpers.peer_nodes import wait_for

needs_etcd = pytest.mark.skipif(missing_reason() is not None, reason=str(missing_reason()))


@needs_etcd
def test_two_processes_on_one_machine_use_a_unix_socket(tmp_path: Path) -> None:
    cluster = LiveCluster(tmp_path, 2)
    paths = [str(tmp_path / f"{number}.sock") for number in range(2)]
    for node, path in zip(cluster.nodes, paths, strict=True):
        node.more_environment["PENSTOCK_CLUSTER_UNIX_SOCKET"] = path
    with cluster:
        one, two = cluster.nodes
        # Who came in by a Unix socket has a number and no address.
        wait_for(lambda: f"is connected, {paths[1]}" in one.output())
        wait_for(lambda: "is connected, unix:" in two.output())
        two.stop()
        assert not os.path.exists(paths[1])
        wait_for(lambda: "it ended the connection: 'the node stops'" in one.output())


def test_a_unix_socket_is_of_use_on_its_own_machine_only(tmp_path: Path) -> None:
    path = str(tmp_path / "peer.sock")
    address = unix_address(path)
    assert unix_path_of(address) == ""  # not there, as seen from here
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.bind(path)
        assert unix_path_of(address) == path
        assert unix_path_of(f"another:{path}") == ""
        assert unix_path_of("") == ""
