"""Health checks that fail, and that tell the truth about listeners and certificates."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from penstock.core.errors import SettingInvalid
from penstock.runtime.listener import Listener, tcp_socket
from penstock.tls.dates import certificate
from penstock.tls.dates import certificates as read
from penstock.tls.options import TlsOptions
from tests.helpers import certificates
from tests.management.conftest import Served

CHECKS = "/api/health/checks/"
NAMES = "DNS:broker.example,IP:10.0.0.1,IP:2001:db8::1,URI:https://b"


def check(served: Served, path: str) -> tuple[int, Any]:
    answer = served.ask(CHECKS + path)
    return answer.status, json.loads(answer.body)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """Certificates of an authority and of a server, and the server's key."""
    authority = certificates.Authority(tmp_path_factory.mktemp("ca"))
    return (authority.certificate, *authority.sign("server", "/CN=localhost", NAMES))


@pytest.mark.skipif(certificates.MISSING is not None, reason=str(certificates.MISSING))
class TestCertificates:
    @pytest.fixture
    def port(self, served: Served, made: tuple[Path, str, str]) -> int:
        """Of a listener with TLS, whose certificates hold for two days."""
        context = certificates.ssl.SSLContext(certificates.ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(made[1], made[2])
        loaded = {"cacertfile": read(str(made[0])), "certfile": read(made[1])}
        options = TlsOptions(context, certificates=loaded)
        listener = Listener(tcp_socket("127.0.0.1", 0), options)
        served.on_loop(lambda: served.node.loop.listen(listener))
        return listener.port

    def test_dates_are_those_openssl_tells(self, made: tuple[Path, str, str]) -> None:
        (one,) = read(made[1])
        assert 0 <= time.time() + 2 * 86_400 - one.ends_s < 120
        assert one.ends_s - one.begins_s == 2 * 86_400
        assert (one.subject, one.issuer) == ("localhost", "Test ca")
        assert one.names == ("broker.example", "10.0.0.1", "2001:db8::1", "https://b")

    def test_one_that_ends_soon_is_named(self, served: Served, port: int) -> None:
        assert check(served, "certificate-expiration/1/days") == (200, {"status": "ok"})
        status, body = check(served, "certificate-expiration/1/weeks")
        assert (status, body["status"], body["reason"]) == (503, "failed", "Certificates expiring")
        (found,) = body["expired"]
        assert (found["protocol"], found["port"]) == ("amqp/ssl", port)
        (end,) = found["certfile_expires_on"]
        shown = time.strftime("%Y-%m-%d", time.gmtime(time.time() + 2 * 86_400 - 60))
        assert end.startswith(shown)
        assert len(found["cacertfile_expires_on"]) == 1
        assert check(served, "protocol-listener/amqps")[0] == 200

    def test_all_are_listed_with_names_and_days(self, served: Served, port: int) -> None:
        rows = served.get("/api/penstock/certificates")
        own = [row for row in rows if port in [one["port"] for one in row["listeners"]]]
        assert {(row["setting"], row["subject"]) for row in own} == {
            ("certfile", "localhost"),
            ("cacertfile", "Test ca"),
        }
        (row,) = [row for row in own if row["setting"] == "certfile"]
        assert row["days_left"] == 1
        assert row["names"][0] == "broker.example"
        assert row["listeners"][0]["protocol"] == "amqp/ssl"

    def test_what_is_no_certificate_has_no_date(self, tmp_path: Path) -> None:
        for der in (b"", b"0", b"\x30\x03abc", b"\x30\x82\xff\xff" + b"x" * 40):
            with pytest.raises(ValueError, match=r"."):
                certificate("", der)
        file = tmp_path / "bad.pem"
        file.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
        with pytest.raises(SettingInvalid, match=r"bad\.pem"):
            read(str(file))


def test_a_port_and_a_protocol_nobody_serves(served: Served) -> None:
    status, body = check(served, "port-listener/9")
    assert (status, body["status"], body["missing"]) == (503, "failed", 9)
    assert {served.amqp_port, served.port} <= set(body["ports"])
    status, body = check(served, "protocol-listener/mqtt")
    assert (status, body["reason"], body["missing"]) == (503, "No active listener", "mqtt")
    assert body["protocols"][0] == "amqp"


@pytest.mark.parametrize("within", ["9" * 400, "-" + "9" * 400])
def test_times_no_clock_can_tell(served: Served, within: str) -> None:
    assert check(served, f"certificate-expiration/{within}/days")[0] in (200, 503)


def test_a_node_that_drains_is_not_in_service(served: Served) -> None:
    for path in ("is-in-service", "ready-to-serve-clients"):
        assert served.raw(CHECKS + path).status == 200
    served.management.set_ready(ready=False)
    try:
        for path in ("is-in-service", "ready-to-serve-clients"):
            status, body = check(served, path)
            assert (status, body["status"]) == (503, "failed")
            assert "not currently available to serve" in body["reason"]
    finally:
        served.management.set_ready(ready=True)


def test_the_limit_of_connections(served: Served) -> None:
    path = "below-node-connection-limit"
    assert check(served, path) == (200, {"status": "ok", "limit": "infinity", "connections": 0})
    served.reload(connection_max=0)
    try:
        refused = {"status": "failed", "reason": "node connection limit is reached"}
        assert check(served, path) == (503, refused | {"limit": 0, "connections": 0})
        assert check(served, "ready-to-serve-clients") == (503, refused | {"connections": 0})
    finally:
        served.reload()


def test_the_old_check_fails_with_an_alarm(served: Served) -> None:
    alarms = served.node.broker.admission.alarms
    served.on_loop(lambda: setattr(alarms, "disk", True))
    try:
        answer = served.ask("/api/healthchecks/node")
        assert answer.status == 503
        assert "disk" in json.loads(answer.body)["reason"]
    finally:
        served.on_loop(lambda: setattr(alarms, "disk", False))


def test_the_operator_may_ask_whether_the_broker_is_alive(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served.management, "_token", "secret")
    shown = {"Authorization": "Bearer secret"}
    assert served.raw("/api/aliveness-test/%2F", shown).status == 200


def test_where_memory_is_adds_up(served: Served) -> None:
    memory = served.get("/api/nodes/penstock@test/memory")["memory"]
    total = memory.pop("total")
    assert memory.pop("strategy") == "rss"
    assert sum(memory.values()) == total["rss"] == total["allocated"]
    assert total["erlang"] == total["rss"] - memory["allocated_unused"]
    node = served.get("/api/nodes/rabbit@test?memory=true&binary=true")
    assert set(node["memory"]) == {*memory, "total", "strategy"}
    assert node["binary"]["queue_procs"] == node["memory"]["queue_procs"]
    assert "memory" not in served.get("/api/nodes/penstock@test")
