"""A node that speaks TLS at each of its ports: by its own clients, by others, and by none without.

One node for all; its certificates are renewed in the last test.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.helpers import raw_nsq
from tests.helpers.broker_process import free_port
from tests.helpers.certificates import MISSING, Authority
from tests.helpers.live_broker import LiveBroker
from tests.helpers.nsq_broker import eventually

pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
HTTPS: Final = {
    "https_port": "/api/overview",
    "prometheus_https_port": "/metrics",
    "nsq_https_port": "/stats?format=json",
    "nsqlookupd_https_port": "/topics",
}
BEGIN_WITH_TLS: Final = {*HTTPS, "ssl_port", "nsqlookupd_tls_port"}
MAIN: Final = {
    "vhosts": "from penstock.cli.main import main; main()",
    "list_vhosts": "from penstock.ctl.main import main; main()",
}
"""The programs that have these words."""
GUEST: Final = f"Basic {b64encode(b'guest:guest').decode()}"


class Node(LiveBroker):
    """With TLS everywhere, and no port without it but NSQ's, where clients ask for it."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory)
        self.own = self.authority.sign("server", "/CN=localhost", "DNS:localhost")
        self.ports = {key: free_port() for key in (*BEGIN_WITH_TLS, "nsq_port")}
        given: dict[str, object] = {
            **self.ports,
            "ssl_certfile": self.own[0],
            "ssl_keyfile": self.own[1],
            "ssl_cacertfile": self.authority.certificate,
            "ssl_verify": "verify_peer",
            "ssl_cert_login_from": "common_name",
            "amqp_listener": "false",
            "http_listener": "false",
            "nsq_tls_required": "yes",
            "nsq_auth_required": "true",
            "nsqlookupd_tcp_addresses": f"tls://localhost:{self.ports['nsqlookupd_tls_port']}",
            "nsq_broadcast_address": "localhost",
            "nsq_broadcast_port_http": self.ports["nsq_https_port"],
        }
        environment = {f"PENSTOCK_{key.upper()}": str(given[key]) for key in given}
        super().__init__(directory / "broker", (), environment)

    def client(self, user: str = "") -> ssl.SSLContext:
        own = self.authority.sign(user, f"/CN={user}") if user else None
        return self.authority.client_context(own)

    def ask(self, key: str, path: str, user: str = "", login: str = "") -> tuple[int, Any]:
        line = http.client.HTTPSConnection(
            "localhost", self.ports[key], context=self.client(user), timeout=10
        )
        line.request("GET", path, headers={"Authorization": login} if login else {})
        answer = line.getresponse()
        text = answer.read().decode()
        line.close()
        return answer.status, json.loads(text) if text.startswith(("{", "[")) else text


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with Node(tmp_path_factory.mktemp("tls")) as node:
        yield node


@pytest.mark.parametrize("key", HTTPS)
def test_http_is_served_by_tls(node: Node, key: str) -> None:
    status, _ = node.ask(key, HTTPS[key], login=GUEST)
    assert status == 200


def test_a_certificate_logs_in_over_http(node: Node) -> None:
    assert node.ask("https_port", "/api/whoami", "guest")[1]["name"] == "guest"
    assert node.ask("https_port", "/api/whoami", "nobody")[0] == 401
    assert node.ask("https_port", "/api/whoami")[0] == 401
    assert node.ask("nsq_https_port", "/stats?format=json", "guest")[0] == 200
    assert node.ask("nsq_https_port", "/stats?format=json")[0] == 401


@pytest.mark.parametrize("user, answer", [("guest", b"OK"), ("nobody", b"E_AUTH_FAILED")])
def test_a_certificate_logs_in_over_nsq(node: Node, user: str, answer: bytes) -> None:
    with socket.create_connection(("localhost", node.ports["nsq_port"]), 10) as plain:
        plain.sendall(raw_nsq.MAGIC + raw_nsq.identify(tls_v1=True, feature_negotiation=True))
        assert b'"tls_v1":true' in plain.recv(65536)
        with node.client(user).wrap_socket(plain, server_hostname="localhost") as sock:
            sock.sendall(raw_nsq.auth("EXTERNAL") + raw_nsq.pub("t", b"x"))
            heard = b""
            while answer not in heard.partition(b"OK")[2] and (part := sock.recv(65536)):
                heard += part
            assert answer in heard.partition(b"OK")[2]


def test_no_port_answers_without_tls(node: Node) -> None:
    """What the start screen lists is all that listens; none says anything to what is no TLS."""
    greetings = (b"AMQP\0\0\x09\x01", b"GET / HTTP/1.0\r\n\r\n", b"  V1PING\n", b"PSTK\0\0\0\1")
    for key in sorted(BEGIN_WITH_TLS):
        for greeting in greetings:
            with socket.create_connection(("localhost", node.ports[key]), 10) as sock:
                sock.settimeout(15)
                sock.sendall(greeting)
                try:
                    heard = sock.recv(4096)
                except ConnectionResetError:
                    continue
                assert heard == b"" or heard[:1] == b"\x15", (key, greeting, heard)  # an alert
    assert "TLS handshake with 127.0.0.1 failed" in node.output()
    assert node.output().count("TLS handshake") <= 5 * len(BEGIN_WITH_TLS)
    with socket.create_connection(("localhost", node.ports["nsq_port"]), 10) as sock:
        sock.sendall(raw_nsq.MAGIC + raw_nsq.pub("t", b"x"))
        assert b"E_INVALID" in sock.recv(4096)
    for port in (node.amqp_port, node.http_port):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("localhost", port), 10).close()


def test_a_node_registers_at_an_nsqlookupd_by_tls(node: Node) -> None:
    def registered() -> bool:
        _, found = node.ask("nsqlookupd_https_port", "/nodes")
        return any("127.0.0.1" in one["remote_address"] for one in found["producers"])

    assert eventually(registered)


def test_the_command_lines_find_the_node_and_trust_its_certificate(node: Node) -> None:
    environment = node.environment() | {"PENSTOCK_DATA_DIR": str(node.data_dir)}
    for words in (["vhosts"], ["list_vhosts"]):
        done = subprocess.run(
            [sys.executable, "-c", MAIN[words[0]], *words],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "status"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert f"https, port {node.ports['https_port']}, until 20" in done.stdout
    named = environment | {
        "PENSTOCK_HTTP_URL": f"https://localhost:{node.ports['https_port']}",
        "PENSTOCK_CACERTFILE": str(node.authority.certificate),
    }
    command = [sys.executable, "-m", "penstock", "vhosts"]
    subprocess.run(command, env=named, capture_output=True, timeout=60, check=True)
    del named["PENSTOCK_CACERTFILE"]
    refused = subprocess.run(
        command, env=named, capture_output=True, text=True, timeout=60, check=False
    )
    assert refused.returncode != 0
    assert "CERTIFICATE_VERIFY_FAILED" in refused.stderr


def test_renewed_certificates_are_in_force_at_every_port(node: Node) -> None:
    """And their dates are those that the health check and the metrics have."""
    before = {key: serial(node, key) for key in BEGIN_WITH_TLS}
    renewed = node.authority.sign("renewed", "/CN=localhost", "DNS:localhost")
    for new, old in zip(renewed, node.own, strict=True):
        Path(new).replace(old)
    os.kill(node.pid, signal.SIGHUP)
    for key in sorted(BEGIN_WITH_TLS):
        assert eventually(lambda key=key: serial(node, key) != before[key]), key
    status, body = node.ask(
        "https_port", "/api/health/checks/certificate-expiration/1/weeks", login=GUEST
    )
    assert status == 503
    ports = {row["port"] for row in body["expired"]}
    assert {node.ports[key] for key in BEGIN_WITH_TLS} | {node.ports["nsq_port"]} == ports
    _, text = node.ask("prometheus_https_port", "/metrics")
    lines = [one for one in text.splitlines() if one.startswith("penstock_certificate_expiry")]
    assert any('protocol="https",certificate="certfile"' in one for one in lines)
    assert eventually(lambda: failed_handshakes(node) >= 4 * len(BEGIN_WITH_TLS))


def failed_handshakes(node: Node) -> int:
    _, text = node.ask("prometheus_https_port", "/metrics")
    failed = text.partition('penstock_connections_refused_total{reason="tls"} ')[2]
    return int(failed.partition("\n")[0])


def serial(node: Node, key: str) -> str:
    with (
        socket.create_connection(("localhost", node.ports[key]), 10) as plain,
        node.client().wrap_socket(plain, server_hostname="localhost") as sock,
    ):
        shown = sock.getpeercert()
        assert shown is not None
        return str(shown["serialNumber"])
