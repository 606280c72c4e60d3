"""Who waits for the data loop, and for how long; and names that look like patterns."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import Future
from urllib.parse import quote

import pytest

from penstock.management import app
from tests.management.conftest import Served


class Held:
    """The turn of all requests, taken by one that does not give it back."""

    def __init__(self, served: Served) -> None:
        loop, turn = served.management._side.loop, served.management._turn
        assert loop is not None
        self._loop, self._turn = loop, turn

    def __enter__(self) -> None:
        asyncio.run_coroutine_threadsafe(self._turn.acquire(), self._loop).result(5)

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._turn.release)


def test_the_wait_for_a_turn_counts(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "ANSWER_TIMEOUT_S", 0.05)
    with Held(served):
        began = time.monotonic()
        assert served.ask("/api/whoami").status == 503
        assert time.monotonic() - began < 2


@pytest.mark.parametrize("path", ["/healthz/live", "/healthz/ready", "/healthz/startup"])
def test_health_does_not_queue_behind_others(served: Served, path: str) -> None:
    with Held(served):
        assert served.raw(path).status == 200


def test_health_asks_the_data_loop_once_at_a_time(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a log-in nobody fills the data loop's list of calls."""
    asked: list[Future[None]] = []

    def never(_function: object) -> Future[None]:
        asked.append(Future())
        return asked[-1]

    monkeypatch.setattr(served.management, "_call_on_loop", never)
    monkeypatch.setattr(app, "ANSWER_TIMEOUT_S", 0.05)
    for _ in range(3):
        assert served.raw("/healthz/live").status == 503
    assert len(asked) == 1
    asked[0].set_result(None)
    monkeypatch.undo()
    assert served.raw("/healthz/live").status == 200


@pytest.mark.parametrize("name", ["a{b}", "{", "}", "{name}", "{a:.*}", "x%7By"])
def test_names_may_have_braces(served: Served, name: str) -> None:
    for spelt in {quote(name, safe=""), quote(name, safe="{}:*")}:
        path = f"/api/queues/%2F/{spelt}"
        assert served.request("PUT", path, b"{}").status in (201, 204)
        assert served.get(path)["name"] == name
        assert served.get(path + "/")["name"] == name
    assert served.request("DELETE", f"/api/queues/%2F/{quote(name, safe='')}").status == 204
