"""Clients whose rights somebody else knows: what is asked, what the answer means, when again."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from penstock.broker.rules.bounded_events import TOLD_MAX
from penstock.protocols.nsq.authority import (
    ANSWER_MAX_BYTES,
    PENDING_MAX,
    SECRET_MAX_BYTES,
    AnswerInvalid,
    HttpAuthority,
    identified_in,
)
from penstock.protocols.nsq.rights import AuthRequest, Identified
from penstock.protocols.nsq.shared import Authority
from tests.helpers.nsq_live import NsqLiveBroker, RawClient
from tests.helpers.nsq_pair import NsqBroker
from tests.helpers.raw_nsq import auth, pub

ANSWER: dict[str, Any] = {
    "ttl": 60,
    "identity": "ann",
    "identity_url": "http://ann",
    "authorizations": [
        {"topic": "^orders", "channels": [".*"], "permissions": ["publish"]},
        {"topic": "orders", "channels": ["^arch"], "permissions": ["subscribe"]},
    ],
}


def identified(**changes: object) -> Identified:
    return identified_in(json.dumps({**ANSWER, **changes}).encode())


# -- answers -----------------------------------------------------------------------------------


def test_patterns_are_searched_and_publishing_has_no_channel() -> None:
    ann = identified()
    assert ann.allows("orders.eu", "")
    assert not ann.allows("my-orders", "")
    assert ann.allows("my-orders", "archive")
    assert not ann.allows("orders", "live")
    assert ann.ttl_ms == 60_000


def test_a_publisher_needs_a_channel_pattern_that_fits_nothing() -> None:
    grant = {"topic": ".*", "channels": ["x"], "permissions": ["publish"]}
    assert not identified(authorizations=[grant]).allows("t", "")


@pytest.mark.parametrize(
    "changes",
    [
        {"ttl": 0},
        {"ttl": "60"},
        {"authorizations": ["x"]},
        {"authorizations": [{"topic": 1}]},
        {"authorizations": [{"topic": "("}]},
        {"authorizations": [{"topic": "t", "permissions": ["admin"]}]},
        {"authorizations": [{"topic": "t", "channels": "c"}]},
    ],
)
def test_an_answer_that_is_none_counts_as_no_answer(changes: dict[str, object]) -> None:
    with pytest.raises((AnswerInvalid, ValueError, re.error)):
        identified(**changes)


# -- sessions ----------------------------------------------------------------------------------


class Asked(Authority):
    """Answers when the test says so."""

    def __init__(self) -> None:
        self.questions: list[tuple[str, bool, str, str]] = []
        self.inquiry = AuthRequest()

    def ask(self, remote_ip: str, tls: bool, secret: str, common_name: str) -> AuthRequest:
        self.questions.append((remote_ip, tls, secret, common_name))
        self.inquiry = AuthRequest()
        return self.inquiry

    def say(self, answer: Identified | None) -> None:
        self.inquiry.answer = answer
        self.inquiry.done = True


@pytest.fixture
def asked() -> Asked:
    return Asked()


@pytest.fixture
def node(asked: Asked) -> NsqBroker:
    node = NsqBroker("nsq_auth_required = true")
    node.nsq.authority = asked
    return node


def test_what_comes_behind_auth_waits_for_the_answer(node: NsqBroker, asked: Asked) -> None:
    client = node.nsq_client()
    assert client.ask(auth("s") + pub("orders", b"m") + b"SUB orders archive\n") == []
    assert asked.questions == [("127.0.0.1", False, "s", "")]
    asked.say(identified())
    node.run()
    assert client.heard() == [
        b'{"identity":"ann","identity_url":"http://ann","permission_count":2}',
        b"OK",
        b"OK",
    ]
    row = client.session.client_row()
    assert (row["authed"], row["auth_identity"]) == (True, "ann")
    assert client.ask(pub("other", b"m")) == [b'E_UNAUTHORIZED AUTH failed for PUB on "other" ""']


def test_an_old_answer_is_asked_for_again(node: NsqBroker, asked: Asked) -> None:
    client = node.nsq_client()
    client.send(auth("s"))
    asked.say(identified())
    node.run()
    assert client.ask(pub("orders", b"m"))[-1:] == [b"OK"]
    node.now_ms += 3_600_000  # no matter how the clock is set
    node.mono_ms += 59_999
    node.run()
    assert client.ask(pub("orders", b"m"))[-1:] == [b"OK"]
    node.now_ms -= 7_200_000
    node.mono_ms += 2
    node.run()
    assert client.ask(pub("orders", b"m") * 2) == []
    assert len(asked.questions) == 2
    asked.say(identified(authorizations=[]))
    node.run()
    assert client.heard() == [b'E_UNAUTHORIZED AUTH failed for PUB on "orders" ""']


def test_no_answer_and_no_grants(node: NsqBroker, asked: Asked) -> None:
    for answer, text in (
        (None, b"E_AUTH_FAILED AUTH failed"),
        (identified(authorizations=[]), b"E_UNAUTHORIZED AUTH no authorizations found"),
    ):
        client = node.nsq_client()
        client.send(auth("s"))
        asked.say(answer)
        node.run()
        assert client.heard() == [text]
        assert client.lost


def test_a_grant_is_within_the_rights_of_the_user(node: NsqBroker, asked: Asked) -> None:
    node.broker.users.users["guest"].vhosts["/"] = ("", "", "")
    client = node.nsq_client()
    client.send(auth("s"))
    asked.say(identified())
    node.run()
    assert client.ask(pub("orders", b"m"))[-1:] == [
        b'E_UNAUTHORIZED AUTH failed for PUB on "orders" ""'
    ]


def test_who_leaves_while_it_is_asked_is_forgotten(node: NsqBroker, asked: Asked) -> None:
    client = node.nsq_client()
    client.send(auth("s"))
    client.drop()
    assert not asked.inquiry.wanted
    asked.say(identified())
    node.run()
    assert node.broker.connection_count == 0


@pytest.mark.parametrize("grants", [None, []])
def test_refusals_are_events_within_bounds_and_guesses_wait(
    node: NsqBroker, asked: Asked, grants: list[object] | None
) -> None:
    """As those of a user's password are: nothing else tells how often a stranger has tried."""
    node.broker.events.on = True
    for tried in range(TOLD_MAX + 5):
        client = node.nsq_client()
        client.send(auth("s"))
        asked.inquiry.failed("the server says no")
        asked.say(None if grants is None else identified(authorizations=grants))
        node.run()
        assert client.session.mute_until_ms == node.mono_ms + (3000 if tried >= 5 else 0)
    refused = [
        values for _, kind, values, _ in node.broker.events.take() if kind == "login_refused"
    ]
    assert len(refused) == TOLD_MAX
    why = "the server says no" if grants is None else "no authorizations"
    assert refused[0] == ("127.0.0.1", "", "nsq", why)
    assert node.broker.users.failures["nsq"] == TOLD_MAX + 5


def test_a_server_that_fails_is_a_line_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as closed:
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    woken = threading.Event()
    authority = HttpAuthority((address,), woken.set)
    for _ in range(5):
        woken.clear()
        authority.ask("::1", True, "s", "cn")
        assert woken.wait(10)
    assert caplog.text.count(f"failed to auth against {address}") == 1


# -- over HTTP ---------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            seen.append((url.path, parse_qs(url.query, keep_blank_values=True)))
            body = json.dumps(ANSWER).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    seen: list[tuple[str, dict[str, list[str]]]] = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        running.seen = seen  # type: ignore[attr-defined]
        thread = threading.Thread(target=running.serve_forever, args=(0.02,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def test_a_server_is_asked_as_nsqd_asks(server: ThreadingHTTPServer) -> None:
    address = f"127.0.0.1:{server.server_port}"
    with NsqLiveBroker(nsq_auth_http_addresses=address) as broker, RawClient(broker) as client:
        assert b'"identity":"ann"' in client.ask(auth("a b&c"))
        assert client.ask(pub("orders", b"m")) == b"OK"
        assert client.ask(pub("x", b"m")) == b'E_UNAUTHORIZED AUTH failed for PUB on "x" ""'
    question = {"common_name": [""], "remote_ip": ["127.0.0.1"], "secret": ["a b&c"]}
    assert server.seen == [("/auth", {**question, "tls": ["false"]})]  # type: ignore[attr-defined]


def test_the_next_one_is_asked_when_one_fails(server: ThreadingHTTPServer) -> None:
    for _ in range(4):
        woken = threading.Event()
        addresses = ("127.0.0.1:1", f"http://127.0.0.1:{server.server_port}/else")
        inquiry = HttpAuthority(addresses, woken.set).ask("::1", True, "s", "cn")
        assert woken.wait(10)
        assert inquiry.done
        assert inquiry.answer is not None
        assert inquiry.answer.identity == "ann"
    path, query = server.seen[0]  # type: ignore[attr-defined]
    assert (path, query["tls"], query["common_name"]) == ("/else", ["true"], ["cn"])


def test_the_next_one_is_asked_when_one_talks_no_http(server: ThreadingHTTPServer) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as rude:

        def answer() -> None:
            with suppress(OSError):
                while True:
                    sock, _ = rude.accept()
                    with sock:
                        sock.recv(65536)
                        sock.sendall(b"what?\r\n\r\n")

        threading.Thread(target=answer, daemon=True).start()
        addresses = (f"127.0.0.1:{rude.getsockname()[1]}", f"127.0.0.1:{server.server_port}")
        for _ in range(6):
            woken = threading.Event()
            inquiry = HttpAuthority(addresses, woken.set).ask("::1", True, "s", "cn")
            assert woken.wait(10)
            assert inquiry.answer is not None


REDIRECT = "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:{}/auth\r\nContent-Length: 0\r\n\r\n"
ENDLESS = "HTTP/1.1 200 OK\r\n\r\n" + " " * (ANSWER_MAX_BYTES + 1)


@pytest.mark.parametrize("said, why", [(REDIRECT, "302"), (ENDLESS, "longer than 1048576 bytes")])
def test_redirects_and_long_answers_are_failures(
    server: ThreadingHTTPServer, caplog: pytest.LogCaptureFixture, said: str, why: str
) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as other:

        def answer() -> None:
            sock, _ = other.accept()
            with sock, suppress(OSError):
                sock.recv(65536)
                sock.sendall(said.format(server.server_port).encode())

        threading.Thread(target=answer, daemon=True).start()
        woken = threading.Event()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        inquiry = HttpAuthority((address,), woken.set).ask("::1", True, "s", "cn")
        assert woken.wait(10)
    assert inquiry.answer is None
    assert server.seen == []  # type: ignore[attr-defined]
    assert why in inquiry.reason
    assert why in caplog.text


@pytest.fixture
def mute() -> Iterator[str]:
    """The address of a server that takes connections and says nothing."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_so_many_are_asked_about_and_the_next_one_fails_at_once(mute: str) -> None:
    woken: list[None] = []
    authority = HttpAuthority((mute,), lambda: woken.append(None))
    waiting = [authority.ask("::1", False, "s", "") for _ in range(PENDING_MAX)]
    assert not any(one.done for one in waiting)
    refused = authority.ask("::1", False, "s", "")
    assert refused.done
    assert refused.answer is None
    assert "too many requests" in refused.reason
    assert woken == [None]
    began = time.monotonic()
    authority.close()
    assert time.monotonic() - began < 1
    # All but those whose turn it is.
    assert sum(not one.done for one in waiting) <= 4
    assert authority.ask("::1", False, "s", "").done


def test_a_secret_that_is_none_is_not_asked_about(server: ThreadingHTTPServer) -> None:
    authority = HttpAuthority((f"127.0.0.1:{server.server_port}",), lambda: None)
    assert authority.ask("::1", False, "s" * (SECRET_MAX_BYTES + 1), "").done
    assert server.seen == []  # type: ignore[attr-defined]
    authority.close()
