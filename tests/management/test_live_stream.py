"""``/api/penstock/live``: what changed, as it changes, within bounds, until the server stops."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import threading
import time
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import pytest
from aiohttp import web

from penstock.management.api import live as live_api
from tests.management.conftest import Served

LOGIN = {"Authorization": "Basic Z3Vlc3Q6Z3Vlc3Q="}
WAIT_S = 5.0
REQUEST = (
    b"GET /api/penstock/live?path=/api/whoami HTTP/1.1\r\nHost: localhost\r\n"
    b"Authorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\n\r\n"
)


class Stream:
    """One open stream; a context manager."""

    def __init__(self, served: Served, *paths: str, login: dict[str, str] = LOGIN) -> None:
        self._connection = HTTPConnection("127.0.0.1", served.port, timeout=WAIT_S)
        query = "&".join(f"path={quote(path, safe='')}" for path in paths)
        self._connection.request("GET", f"/api/penstock/live?{query}", headers=login)
        self.response: HTTPResponse = self._connection.getresponse()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.response.close()
        self._connection.close()

    def next(self) -> tuple[str, Any]:
        """The next event: its name, and its JSON."""
        name = ""
        while True:
            line = self.response.readline().decode()
            assert line, "the stream ended"
            if line.startswith("event: "):
                name = line.removeprefix("event: ").strip()
            elif line.startswith("data: "):
                return name, json.loads(line.removeprefix("data: "))


def refused(served: Served, query: str) -> str:
    answer = served.ask(f"/api/penstock/live?{query}")
    assert answer.status == 400, answer
    return str(json.loads(answer.body)["reason"])


def test_every_path_once_and_then_what_changed(served: Served) -> None:
    served.declare("watched")
    queue = "/api/queues/%2F/watched?columns=name,paused"
    with Stream(served, "/api/whoami", queue) as stream:
        assert stream.response.getheader("Content-Type") == "text/event-stream"
        assert stream.next() == ("0", {"name": "guest", "tags": ["administrator"]})
        assert stream.next() == ("1", {"name": "watched", "paused": False})
        served.request("POST", "/api/queues/%2F/watched/actions", b'{"action":"pause"}')
        # whoami stayed as it was and is not told again.
        assert stream.next() == ("1", {"name": "watched", "paused": True})


def test_a_list_is_an_answer_like_any(served: Served) -> None:
    served.declare("listed")
    path = "/api/queues?page=1&page_size=500&name=listed&columns=name"
    with Stream(served, path) as stream:
        name, page = stream.next()
    assert name == "0"
    assert page["items"] == [{"name": "listed"}]
    assert page["filtered_count"] == 1


def test_what_is_missing_is_said_and_comes_when_it_is_there(served: Served) -> None:
    with Stream(served, "/api/queues/%2F/later?columns=name", "/nowhere", "/api/nowhere") as stream:
        assert stream.response.status == 400
    with Stream(served, "/api/queues/%2F/later?columns=name", "/api/nowhere") as stream:
        fault = {"status": 404, "answer": {"error": "Object Not Found", "reason": "Not Found"}}
        assert stream.next() == ("0.error", fault)
        assert stream.next() == ("1.error", fault)
        served.declare("later")
        assert stream.next() == ("0", {"name": "later"})


def test_the_rights_are_those_of_the_visitor(served: Served) -> None:
    served.add_user("watcher", "m", ["management"])
    login = {"Authorization": "Basic d2F0Y2hlcjpt"}
    with Stream(served, "/api/penstock/storage", "/api/whoami", login=login) as stream:
        name, fault = stream.next()
        assert (name, fault["status"]) == ("0.error", 401)
        assert fault["answer"]["reason"] == "Not monitor user"
        assert stream.next() == ("1", {"name": "watcher", "tags": ["management"]})
        # Who is no user any more hears no more.
        served.on_loop(lambda: served.node.broker.users.users.pop("watcher"))
        name, fault = stream.next()
        assert (name, fault["status"]) == ("0.error", 401)
        assert fault["answer"]["reason"] == "Login failed"
        assert b"event" not in stream.response.read()
    assert served.raw("/api/penstock/live?path=/api/whoami").status == 401


@pytest.mark.parametrize(
    "query, reason",
    [
        ("", "path: 1 to 16 of them, 0 given"),
        ("&".join(["path=/api/whoami"] * 17), "path: 1 to 16 of them, 17 given"),
        ("path=/status", "path: '/status' is no path of the API that can be live"),
        (
            "path=/api/penstock/live?path=/api/whoami",
            "path: '/api/penstock/live?path=/api/whoami' is no path of the API that can be live",
        ),
        ("path=/api/whoami&interval_ms=999", "interval_ms: 1000 to 60000, not '999'"),
        ("path=/api/whoami&interval_ms=soon", "interval_ms: 1000 to 60000, not 'soon'"),
    ],
)
def test_nonsense_is_refused(served: Served, query: str, reason: str) -> None:
    assert refused(served, query) == reason


def test_a_stream_in_disguise_is_not_found(served: Served) -> None:
    with Stream(served, "/api/penstock/%6Cive?path=/api/whoami") as stream:
        assert stream.next()[0] == "0.error"


def test_what_is_too_long_is_not_sent(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_api, "ANSWER_MAX_BYTES", 10)
    with Stream(served, "/api/whoami") as stream:
        name, fault = stream.next()
    assert name == "0.error"
    assert fault["answer"] == {
        "error": "too_long",
        "reason": "the answer is longer than 10 bytes: ask for a page of it",
    }


@pytest.mark.parametrize(
    "took_s, used_s, pause_s",
    [
        (0.0, 0.0, 1.0),
        (0.01, 0.01, 1.0),
        (0.2, 0.0, 1.0),
        (0.5, 0.0, 2.5),
        (3.0, 0.0, 15.0),
        (0.1, 0.1, 6.0),
        (0.5, 0.05, 3.0),
    ],
)
def test_what_is_dear_is_asked_rarely(took_s: float, used_s: float, pause_s: float) -> None:
    """One path takes a fifth of the time, and a sixtieth of a processor, at most."""
    assert live_api.pause_s(1.0, took_s, used_s) == pytest.approx(pause_s)


def test_a_slow_path_does_not_hold_up_the_others(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = served.management._context
    answer, asked = context.answer_get, []

    async def slowly(request: web.Request, path: str) -> web.StreamResponse:
        asked.append(path)
        await asyncio.sleep(0.5 if path == "/api/vhosts" else 0)
        return await answer(request, path)

    monkeypatch.setattr(context, "answer_get", slowly)
    with Stream(served, "/api/vhosts", "/api/whoami") as stream:
        assert [stream.next()[0], stream.next()[0]] == ["0", "1"]
        give_up = time.monotonic() + WAIT_S
        while asked.count("/api/whoami") < 3:
            assert time.monotonic() < give_up
            time.sleep(0.01)
    assert asked.count("/api/vhosts") < asked.count("/api/whoami")


def test_only_so_many_streams(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_api, "STREAMS_MAX", 1)
    give_up = time.monotonic() + WAIT_S
    while True:  # those of the tests before are noticed to be gone within a second
        with Stream(served, "/api/whoami") as first:
            if first.response.status == 200:
                with Stream(served, "/api/whoami") as second:
                    assert second.response.status == 503
                    assert b"1 streams are open already" in second.response.read()
                break
        assert time.monotonic() < give_up


def test_a_stop_ends_the_streams_at_once(tmp_path: Path) -> None:
    served = Served(tmp_path)
    ended: list[bytes] = []
    try:
        with Stream(served, "/api/whoami") as stream:
            stream.next()
            reader = threading.Thread(target=lambda: ended.append(stream.response.read()))
            reader.start()
            began = time.monotonic()
            served.management.stop()
            took_s = time.monotonic() - began
            reader.join(WAIT_S)
        assert ended == [b"\n"]  # the chunks ended in order: it was not cut off
        assert took_s < 0.9, "the stop waited until the stream was thrown out"
    finally:
        served.stop()


def test_whoever_does_not_wait_is_no_fault(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(30):
        raw = socket.create_connection(("127.0.0.1", served.port), timeout=WAIT_S)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raw.sendall(REQUEST)
        raw.close()
    served.get("/api/whoami")
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


def test_whoever_goes_away_is_noticed(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_api, "STREAMS_MAX", 1)
    raw = socket.create_connection(("127.0.0.1", served.port), timeout=WAIT_S)
    raw.sendall(REQUEST)
    raw.recv(4096)
    raw.close()
    give_up = time.monotonic() + WAIT_S
    while True:
        with Stream(served, "/api/whoami") as stream:
            if stream.response.status == 200:
                return
        assert time.monotonic() < give_up
        time.sleep(0.05)


def live_desk(served: Served) -> live_api.LiveApi:
    return next(
        one for one in served.management._context.endpoints if isinstance(one, live_api.LiveApi)
    )


def wait_for_streams(served: Served, count: int) -> None:
    """Those of the tests before are noticed to be gone within a second."""
    give_up = time.monotonic() + WAIT_S
    while len(live_desk(served)._streams) != count:
        assert time.monotonic() < give_up
        time.sleep(0.01)


def test_one_user_does_not_take_the_streams_of_all(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_api, "STREAMS_OF_USER_MAX", 2)
    served.add_user("other", "m", ["management"])
    wait_for_streams(served, 0)
    with Stream(served, "/api/whoami"), Stream(served, "/api/whoami"):
        with Stream(served, "/api/whoami") as third:
            assert third.response.status == 503
            reason = json.loads(third.response.read())["reason"]
            assert reason == "2 streams of this user are open already"
        with Stream(served, "/api/whoami", login={"Authorization": "Basic b3RoZXI6bQ=="}) as other:
            assert other.response.status == 200
    wait_for_streams(served, 0)
    assert not live_desk(served)._streams


def test_a_walk_through_the_pages_meets_no_limit(served: Served) -> None:
    """A stream looks for its browser only once in an interval."""
    wait_for_streams(served, 0)
    for _ in range(2 * live_api.STREAMS_OF_USER_MAX):
        with Stream(served, "/api/whoami") as stream:
            assert stream.response.status == 200
            stream.next()
    wait_for_streams(served, 0)


def test_who_does_not_read_does_not_watch(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_streams(served, 0)
    monkeypatch.setattr(live_api, "WRITE_TIMEOUT_S", 0.1)
    monkeypatch.setattr(live_api, "INTERVAL_MIN_MS", 1)
    monkeypatch.setattr(live_api, "LOOK_S", 0.001)

    async def much(_request: web.Request, _path: str) -> web.StreamResponse:
        return web.json_response(str(time.monotonic_ns()) * 40_000)

    monkeypatch.setattr(served.management._context, "answer_get", much)
    with socket.socket() as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.settimeout(WAIT_S)
        raw.connect(("127.0.0.1", served.port))
        raw.sendall(REQUEST.replace(b"whoami", b"whoami&interval_ms=1"))
        assert raw.recv(9) == b"HTTP/1.1 "
        wait_for_streams(served, 0)
