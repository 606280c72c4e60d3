"""Log-ins over HTTP: who is refused is in the log, and all are counted as HTTP's."""

from __future__ import annotations

import base64
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.management.api.accounts import log_ins as log_ins_api
from penstock.node.inspection.state_lines import log_events
from tests.management.conftest import Served

FORM = {"Content-Type": "application/x-www-form-urlencoded", "Authorization": ""}


def attempts(served: Served) -> dict[str, dict[str, Any]]:
    rows = served.get("/api/auth/attempts/penstock@test")
    return {row["protocol"]: row for row in rows}


@pytest.fixture
def lines(served: Served, caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[str]]]:
    """Lines of the log since the last time."""
    book = served.node.broker.events
    book.on = True

    def take() -> list[str]:
        caplog.clear()
        log_events([event[:3] for event in served.on_loop(book.take)])
        return [one.getMessage() for one in caplog.records if one.levelname == "ERROR"]

    take()
    yield take
    book.on = False


def test_a_refused_log_in_is_one_line(served: Served, lines: Callable[[], list[str]]) -> None:
    given = base64.b64encode(b"eve\n[error] all is lost:x").decode()
    assert served.raw("/api/whoami", {"Authorization": f"Basic {given}"}).status == 401
    name = "eve\n[error] all is lost"  # the formatter makes one line of it
    assert lines() == [f"HTTP access denied: user '{name}' from 127.0.0.1: invalid credentials"]
    served.add_user("plain", "m", [])
    login = base64.b64encode(b"plain:m").decode()
    assert served.raw("/api/whoami", {"Authorization": f"Basic {login}"}).status == 401
    assert [line.rpartition(": ")[2] for line in lines()] == ["Not management user"]


def test_the_token_of_no_session_is_one_line(
    served: Served, lines: Callable[[], list[str]]
) -> None:
    headers = {"Cookie": f"penstock_session_{served.port}=x", "X-Requested-With": "XMLHttpRequest"}
    assert served.raw("/api/whoami", headers).status == 401
    (line,) = lines()
    assert "no credentials" in line


def test_the_form_counts_as_http(served: Served, lines: Callable[[], list[str]]) -> None:
    before = attempts(served)
    for password, status in (("guest", 200), ("wrong", 401)):
        form = f"username=guest&password={password}".encode()
        assert served.request("POST", "/api/login", form, FORM).status == status
    after = attempts(served)
    assert after.get("amqp091") == before.get("amqp091")
    http, was = after["http"], before["http"]
    assert http["auth_attempts_failed"] - was["auth_attempts_failed"] == 1
    assert http["auth_attempts"] - was["auth_attempts"] == 3  # and who asks for the counts
    assert lines() == ["HTTP access denied: user 'guest' from 127.0.0.1: invalid credentials"]


def test_a_form_that_does_not_come(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_ins_api, "FORM_TIMEOUT_S", 0.05)
    with socket.create_connection(("127.0.0.1", served.port), timeout=5) as sock:
        sock.sendall(
            b"POST /api/login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n"
            b"Content-Type: application/x-www-form-urlencoded\r\n\r\nuser"
        )
        assert sock.recv(4096).startswith(b"HTTP/1.1 408")


def test_a_form_is_short(served: Served) -> None:
    """It comes before the log-in, and is held in memory."""
    form = b"username=guest&password=" + b"x" * log_ins_api.FORM_MAX_BYTES
    assert served.request("POST", "/api/login", form, FORM).status == 413
