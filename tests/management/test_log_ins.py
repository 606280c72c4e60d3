"""Log-ins over HTTP: who is refused is in the log, and all are counted as HTTP's."""

from __future__ import annotations

import base64
import socket
from typing import Any

import pytest

from penstock.management import cluster_api
from penstock.management.log_ins import LINES_MAX, WINDOW_S, LogIns
from tests.management.conftest import Served

FORM = {"Content-Type": "application/x-www-form-urlencoded", "Authorization": ""}


def attempts(served: Served) -> dict[str, dict[str, Any]]:
    rows = served.get("/api/auth/attempts/penstock@test")
    return {row["protocol"]: row for row in rows}


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def test_a_refused_log_in_is_one_line(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    given = base64.b64encode(b"eve\n[error] all is lost:x").decode()
    assert served.raw("/api/whoami", {"Authorization": f"Basic {given}"}).status == 401
    said = r"HTTP access denied: user 'eve\n[error] all is lost' from 127.0.0.1: Login was refused"
    assert warnings(caplog) == [said]
    assert "'x'" not in caplog.text
    caplog.clear()
    served.add_user("plain", "m", [])
    login = base64.b64encode(b"plain:m").decode()
    assert served.raw("/api/whoami", {"Authorization": f"Basic {login}"}).status == 401
    assert [line.rpartition(": ")[2] for line in warnings(caplog)] == ["Not management user"]


def test_the_form_counts_as_http(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    before = attempts(served)
    for password, status in (("guest", 200), ("wrong", 401)):
        form = f"username=guest&password={password}".encode()
        assert served.request("POST", "/api/login", form, FORM).status == status
    after = attempts(served)
    assert after["amqp091"] == before["amqp091"]
    http, was = after["http"], before["http"]
    assert http["auth_attempts_failed"] - was["auth_attempts_failed"] == 1
    assert http["auth_attempts"] - was["auth_attempts"] == 3  # and who asks for the counts
    assert warnings(caplog) == [
        "HTTP access denied: user 'guest' from 127.0.0.1: Login was refused"
    ]


def test_a_form_that_does_not_come(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_api, "FORM_TIMEOUT_S", 0.05)
    with socket.create_connection(("127.0.0.1", served.port), timeout=5) as sock:
        sock.sendall(
            b"POST /api/login HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n"
            b"Content-Type: application/x-www-form-urlencoded\r\n\r\nuser"
        )
        assert sock.recv(4096).startswith(b"HTTP/1.1 408")


def test_many_lines_are_one_number(caplog: pytest.LogCaptureFixture) -> None:
    now_s = [5.0]
    log_ins = LogIns(lambda: now_s[0])
    for _ in range(LINES_MAX + 7):
        log_ins.refused("eve", "10.0.0.7", "no")
    assert len(warnings(caplog)) == LINES_MAX
    now_s[0] += WINDOW_S
    log_ins.refused("eve", "10.0.0.7", "no")
    assert warnings(caplog)[LINES_MAX:] == [
        "HTTP access denied 7 times more",
        "HTTP access denied: user 'eve' from 10.0.0.7: no",
    ]
