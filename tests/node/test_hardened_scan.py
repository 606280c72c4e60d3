"""A scanner of TLS finds nothing at the ports of the hardened configuration."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from tests.helpers.raw_nsq import identify
from tests.node.test_hardened_live import PORTS, HardenedBroker

SCANNER = shutil.which("sslyze")
RATES = ("connection_max_per_address", "connection_rate_per_s", "connection_rate_per_address_per_s")
"""The scanner itself is refused with these."""
WEAK = ("ssl_2_0", "ssl_3_0", "tls_1_0", "tls_1_1")


def pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


def hand_on(client: socket.socket, port: int) -> None:
    """Speaks NSQ until TLS begins, and then hands on bytes: the scanner does not know NSQ."""
    with client, socket.create_connection(("127.0.0.1", port)) as line:
        line.sendall(b"  V2" + identify(tls_v1=True, feature_negotiation=True))
        assert b'"tls_v1":true' in line.recv(4096)
        back = threading.Thread(target=pump, args=(line, client))
        back.start()
        pump(client, line)
        back.join()


def relay(server: socket.socket, port: int) -> None:
    with suppress(OSError):  # the test is over
        while True:
            client, _ = server.accept()
            threading.Thread(target=hand_on, args=(client, port)).start()


@pytest.mark.long
@pytest.mark.skipif(SCANNER is None, reason="no sslyze in the path: pip install sslyze")
def test_a_scanner_finds_no_old_version_and_no_attack(tmp_path: Path) -> None:
    broker = HardenedBroker(tmp_path)
    lines = broker.config.read_text().splitlines()
    kept = [line for line in lines if line.partition(" =")[0] not in RATES]
    broker.config.write_text("\n".join(kept) + "\n")
    found = tmp_path / "found.json"
    with broker, socket.create_server(("127.0.0.1", 0)) as server:
        ports = [broker.ports[key] for key in PORTS if key != "nsq_port"]
        ports.append(server.getsockname()[1])
        given = (server, broker.ports["nsq_port"])
        listening = threading.Thread(target=relay, args=given)
        listening.start()
        targets = [f"localhost:{port}" for port in ports]
        command = [str(SCANNER), f"--json_out={found}", *targets]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        server.shutdown(socket.SHUT_RDWR)
        listening.join()
    assert found.exists(), done.stdout + done.stderr
    results = json.loads(found.read_text())["server_scan_results"]
    assert len(results) == len(ports)
    for one in results:
        scan = {name: part["result"] for name, part in one["scan_result"].items()}
        for version in WEAK:
            assert scan[f"{version}_cipher_suites"]["accepted_cipher_suites"] == []
        assert len(scan["tls_1_2_cipher_suites"]["accepted_cipher_suites"]) == 3
        assert not scan["heartbleed"]["is_vulnerable_to_heartbleed"]
        assert not scan["openssl_ccs_injection"]["is_vulnerable_to_ccs_injection"]
        assert not scan["tls_compression"]["supports_compression"]
        renegotiation = scan["session_renegotiation"]
        assert renegotiation["supports_secure_renegotiation"]
        assert not renegotiation["is_vulnerable_to_client_renegotiation_dos"]
