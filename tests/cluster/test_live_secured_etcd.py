"""A cluster whose etcd has TLS and users: nodes with the rights of their prefix, and no others."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from pathlib import Path
from urllib.error import HTTPError

import pytest

from penstock.node.coordination.etcd_names import end_of, to_base64
from tests.helpers import certificates
from tests.helpers.cluster import LiveCluster, missing_reason
from tests.helpers.etcd import EtcdServer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(missing_reason() is not None, reason=str(missing_reason())),
    pytest.mark.skipif(certificates.MISSING is not None, reason=str(certificates.MISSING)),
]

PREFIX = "/penstock/penstock/"


class SecuredEtcd(EtcdServer):
    """Its user ``nodes`` may read and write below ``PREFIX``, and nothing else."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.authority = certificates.Authority(directory)
        own = self.authority.sign("etcd", "/CN=etcd", "IP:127.0.0.1")
        self.client = self.authority.sign("node", "/O=node")
        super().__init__(directory, tls=(*own, str(self.authority.certificate)))

    def start(self) -> EtcdServer:
        super().start()
        rights = {"permType": "READWRITE", "key": to_base64(PREFIX)}
        rights["range_end"] = to_base64(end_of(PREFIX))
        for path, body in (
            ("user/add", {"name": "root", "password": "of root"}),
            ("user/grant", {"user": "root", "role": "root"}),
            ("role/add", {"name": "cluster"}),
            ("role/grant", {"name": "cluster", "perm": rights}),
            ("user/add", {"name": "nodes", "password": "of nodes"}),
            ("user/grant", {"user": "nodes", "role": "cluster"}),
            ("enable", {}),
        ):
            self.ask(f"auth/{path}", body, self.nodes_context())
        return self

    def nodes_context(self) -> ssl.SSLContext:
        return self.authority.client_context(self.client)

    def settings(self) -> dict[str, str]:
        return {
            "CLUSTER_ETCD_TLS": "true",
            "CLUSTER_ETCD_CACERTFILE": str(self.authority.certificate),
            "CLUSTER_ETCD_CERTFILE": self.client[0],
            "CLUSTER_ETCD_KEYFILE": self.client[1],
            "CLUSTER_ETCD_USER": "nodes",
            "CLUSTER_ETCD_PASSWORD": "of nodes",
        }


def until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 40
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def master(cluster: LiveCluster, number: int) -> tuple[str, int]:
    """Of the mirrored queue, as that node knows it, and how many mirrors have everything."""
    row = cluster.ask(number, "/api/queues/%2F/mirrored")
    return row["node"], len(row.get("synchronised_slave_nodes", []))


def test_a_cluster_lives_with_the_rights_of_its_prefix(tmp_path: Path) -> None:
    etcd = SecuredEtcd(tmp_path / "etcd")
    with LiveCluster(tmp_path, 2, etcd.settings(), etcd=etcd) as cluster:
        with pytest.raises(HTTPError) as caught:
            etcd.ask("kv/range", {"key": to_base64(PREFIX)}, etcd.nodes_context())
        caught.value.close()
        policy = {"pattern": "^m", "definition": {"ha-mode": "all", "ha-sync-mode": "automatic"}}
        cluster.ask(0, "/api/policies/%2F/all", policy)
        cluster.ask(0, "/api/queues/%2F/mirrored", {"durable": True, "node": cluster.name(0)})
        until(lambda: master(cluster, 1) == (cluster.name(0), 1))
        cluster.nodes[0].kill()
        until(lambda: master(cluster, 1)[0] == cluster.name(1))
        cluster.nodes[0].start()
        until(lambda: master(cluster, 0) == (cluster.name(1), 1))
        cluster.ask(0, "/api/queues/%2F/mirrored", method="DELETE")
