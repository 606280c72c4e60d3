"""The port for Prometheus: what needs a log-in there, and that a page is made once for all."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable, Iterator
from http.client import HTTPConnection
from typing import Any, cast

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from penstock.management.api import metrics as serving
from penstock.management.app import ManagementServer
from penstock.management.metrics import pages
from penstock.management.metrics.pages import Pages, Scrapes
from penstock.settings.settings import load_settings
from tests.helpers.broker_process import free_port
from tests.management.conftest import Served

OF_OBJECTS = ("/metrics/per-object", "/metrics/detailed?family=queue_coarse_metrics")
Ports = Callable[..., int]


@pytest.fixture
def ports(served: Served) -> Iterator[Ports]:
    """Starts a server with a port for Prometheus."""
    running: list[ManagementServer] = []

    def start(**given: str) -> int:
        port = free_port()
        given |= {"rates_mode": "none", "prometheus_port": str(port)}
        settings = load_settings(None, {}, given)
        call = served.node.loop.call
        running.append(
            ManagementServer("127.0.0.1", 0, call, served.view, served.facts, settings=settings)
        )
        running[0].start()
        return port

    yield start
    for server in running:
        server.stop()


def get(port: int, path: str, login: str = "") -> tuple[int, str]:
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    given = {"Authorization": "Basic " + base64.b64encode(login.encode()).decode()}
    connection.request("GET", path, headers=given if login else {})
    answer = connection.getresponse()
    status, body = answer.status, answer.read().decode()
    connection.close()
    return status, body


@pytest.fixture
def from_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """No address is of this machine."""
    monkeypatch.setattr(serving, "is_loopback", lambda _address: False)


@pytest.mark.parametrize("path", ["/metrics", *OF_OBJECTS])
def test_this_machine_reads_all_pages_without_a_log_in(ports: Ports, path: str) -> None:
    assert get(ports(), path)[0] == 200


@pytest.mark.usefixtures("from_elsewhere")
def test_other_machines_need_a_log_in_for_pages_that_name_queues(
    ports: Ports, served: Served
) -> None:
    port = ports()
    served.add_user("watcher", "w", ["monitoring"])
    served.add_user("manager", "m", ["management"])
    assert get(port, "/metrics")[0] == 200
    for path in OF_OBJECTS:
        status, body = get(port, path)
        assert (status, "log in as a user with the tag monitoring" in body) == (401, True)
        assert get(port, path, "watcher:w")[0] == 200
        assert get(port, path, "watcher:wrong")[0] == 401
        assert get(port, path, "manager:m")[0] == 401


@pytest.mark.usefixtures("from_elsewhere")
@pytest.mark.parametrize("path", OF_OBJECTS)
def test_a_setting_opens_all_pages(ports: Ports, path: str) -> None:
    assert get(ports(prometheus_objects_open="true"), path)[0] == 200


class CountedPages:
    """Pages that say how often one was made, and how many at once."""

    def __init__(self) -> None:
        self.made = 0
        self.most_at_once = 0
        self._at_once = 0

    async def overall(self) -> AsyncIterator[str]:
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        self.made += 1
        yield f"page {self.made}"
        await asyncio.sleep(0.01)
        self._at_once -= 1

    each = overall

    async def detailed(self, _families: Any, _vhosts: Any) -> AsyncIterator[str]:
        async for piece in self.overall():
            yield piece


async def scraped(pages: CountedPages, asked: list[str]) -> list[str]:
    shared = Scrapes(cast(Pages, pages))

    async def answer(request: web.Request) -> web.StreamResponse:
        return await shared.answer(request, request.path.rpartition("/")[2])

    application = web.Application()
    application.router.add_get("/{page:.*}", answer)
    async with TestClient(TestServer(application)) as client:

        async def text(path: str) -> str:
            async with client.get(path) as response:
                return await response.text()

        return list(await asyncio.gather(*map(text, asked)))


def test_equal_scrapes_share_a_page_and_different_ones_take_turns() -> None:
    pages = CountedPages()
    found = asyncio.run(scraped(pages, ["/metrics"] * 5))
    assert found == ["page 1"] * 5
    asked = ["/metrics", "/per-object", "/detailed?vhost=a", "/detailed?vhost=b", "/metrics?x=1"]
    assert sorted(asyncio.run(scraped(pages, asked))) == [
        *("page 2", "page 2", "page 3", "page 4", "page 5"),
    ]
    assert pages.most_at_once == 1


def test_a_page_is_made_again_when_it_is_no_longer_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "FRESH_S", 0.0)

    async def twice() -> list[str]:
        pages = CountedPages()
        shared = Scrapes(cast(Pages, pages))
        found = []
        for _ in range(2):
            found += [b"".join(await shared._page(("metrics", (), ()))).decode()]
            await asyncio.sleep(0.01)
        return found

    assert asyncio.run(twice()) == ["page 1", "page 2"]
