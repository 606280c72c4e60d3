"""The pictures of the web UI in the documentation: ``make screenshots`` takes them anew.

A picture is old when its page has other words (headings, labels, buttons, heads of tables) than
when the picture was taken, or when a file that gives all pages their look has changed.  Both stand
in ``shown.json`` beside the pictures.  Pixels are not compared: fonts differ between machines.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, Self

import pika
import pytest

from tests.helpers.live_broker import REPOSITORY, LiveBroker
from tests.ui.palette import in_few_colours
from tests.ui.visit import Visit

if TYPE_CHECKING:
    from pika.adapters.blocking_connection import BlockingChannel
    from playwright.sync_api import Browser, Page

TAKEN: Final = os.environ.get("PENSTOCK_SCREENSHOTS") == "1"
"""Take the pictures, instead of judging those that are there."""
FOLDER: Final = REPOSITORY / "docs/pictures/ui"
RECORD: Final = FOLDER / "shown.json"
UI: Final = REPOSITORY / "src/penstock/management/ui"
LOOKS: Final = ("style.css", "views.css", "lib/chart.js", "lib/drawing.js")
SIZE: Final = (1280, 800)
LARGEST_BYTES: Final = 120_000
LOAD_S: Final = 45
"""So long the load has gone on when the first picture is taken: charts show a minute."""
STILL_MS: Final = 6000
"""So long a page is left alone before its picture is taken: rates and findings follow."""
STEP_S: Final = 0.02
WORDS: Final = """() => {
  const own = (element) => [...element.childNodes]
    .filter((node) => node.nodeType === Node.TEXT_NODE)
    .map((node) => node.data).join(" ").replace(/\\s+/g, " ").trim();
  const kinds = "main :is(h1, h2, h3, th, label, button, summary, dt, .label)";
  const fixed = [...document.querySelectorAll(kinds)].filter((element) => !element.closest("td"));
  const shown = fixed.filter((element) => element.checkVisibility());
  return [...new Set(shown.map(own).filter(Boolean))].toSorted();
}"""


class Shop(threading.Thread):
    """Fifty orders a second; one consumer keeps up, one acknowledges nothing, a queue has none."""

    def __init__(self, port: int) -> None:
        super().__init__(name="load")
        self._port = port
        self._ends = threading.Event()
        self.failure: BaseException | None = None
        self._connections: list[pika.BlockingConnection] = []
        self._declare(self._connect("shop"))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self.join()
        for connection in self._connections:
            connection.close()
        assert self.failure is None, self.failure

    def _connect(self, name: str) -> BlockingChannel:
        properties = {"connection_name": name}
        connection = pika.BlockingConnection(
            pika.ConnectionParameters(
                "127.0.0.1", self._port, heartbeat=0, client_properties=properties
            )
        )
        self._connections.append(connection)
        return connection.channel()

    def _declare(self, channel: BlockingChannel) -> None:
        channel.exchange_declare("orders", "topic", durable=True)
        channel.exchange_declare("dead", "fanout", durable=True)
        arguments = {"x-dead-letter-exchange": "dead", "x-max-length": 100_000}
        keys = {"orders.new": "order.new", "orders.audit": "order.#", "orders.paid": "order.paid"}
        for name, key in keys.items():
            channel.queue_declare(name, durable=True, arguments=arguments)
            channel.queue_bind(name, "orders", key)
        channel.queue_declare("orders.dead", durable=True)
        channel.queue_bind("orders.dead", "dead")
        stream = {"x-queue-type": "stream"}
        channel.queue_declare("orders.history", durable=True, arguments=stream)
        channel.queue_bind("orders.history", "orders", "order.#")

    def run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self.failure = error

    def _work(self) -> None:
        shop, packer, clerk, reader = map(self._connect, ("shop", "packer", "clerk", "reader"))
        packer.basic_qos(prefetch_count=20)
        packer.basic_consume("orders.new", _settle, consumer_tag="packer")
        clerk.basic_qos(prefetch_count=50)
        clerk.basic_consume("orders.paid", lambda *_: None, consumer_tag="clerk")
        reader.basic_qos(prefetch_count=100)
        place = {"x-stream-offset": "first", "x-stream-automatic-offset-tracking": True}
        reader.basic_consume("orders.history", _read, consumer_tag="reader", arguments=place)
        properties = pika.BasicProperties(content_type="application/json", delivery_mode=2)
        number = 0
        while not self._ends.wait(STEP_S):
            number += 1
            body = json.dumps(
                {"order": number, "customer": f"c-{number % 97}", "total": 3.5 * number}
            )
            key = "order.paid" if number % 5 == 0 else "order.new"
            shop.basic_publish("orders", key, body.encode(), properties)
            for connection in self._connections:
                connection.process_data_events(0)


def _read(channel: BlockingChannel, method: Any, *_: object) -> None:
    channel.basic_ack(method.delivery_tag)


def _settle(channel: BlockingChannel, method: Any, _: object, body: bytes) -> None:
    if json.loads(body)["order"] % 25 == 1:
        channel.basic_reject(method.delivery_tag, requeue=False)
    else:
        channel.basic_ack(method.delivery_tag)


# -- what is done on a page before its picture is taken --------------------------------------------


def _open_message(page: Page) -> None:
    page.get_by_role("table").get_by_role("button").first.click()


def _ask_route(page: Page) -> None:
    page.get_by_label("Routing key").fill("order.paid")
    page.get_by_role("button", name="Ask").click()
    page.get_by_role("heading", name="orders.paid").or_(
        page.locator("svg.bindings")
    ).first.wait_for()


def _follow(page: Page) -> None:
    page.get_by_label("Payload", exact=True).fill('{"order": 2, "total": 3.5}')
    page.get_by_label("Routing key").fill("order.new")
    page.get_by_label("Follow it").check()
    page.get_by_role("button", name="Publish message").click()
    page.get_by_role("button", name="Dismiss").click()
    page.get_by_role("table", name="Steps").get_by_text("acknowledged").nth(1).wait_for()
    page.get_by_role("heading", name="The way of this message").evaluate(
        "element => element.scrollIntoView({block: 'center'})"
    )


def _type_policy(page: Page) -> None:
    page.get_by_label("Name", exact=True).fill("bounded")
    page.get_by_label("Pattern").fill("^orders\\.")
    page.get_by_role("button", name="message-ttl", exact=True).click()
    page.get_by_text(re.compile(r"^\d+ of \d+ queues in /$")).wait_for()


PAGES: Final[list[tuple[str, str, str, Callable[[Page], None] | None]]] = [
    ("overview", "/", "Overview", None),
    ("queues", "/queues", "Queues", None),
    ("flow", "/queues/%2F/orders.audit?tab=flow", "orders.audit", None),
    ("messages", "/queues/%2F/orders.dead?tab=messages", "orders.dead", _open_message),
    ("stream", "/queues/%2F/orders.history?tab=stream", "orders.history", None),
    ("connections", "/connections", "Connections", None),
    ("route", "/exchanges/%2F/orders?tab=route", "orders", _ask_route),
    ("message", "/exchanges/%2F/orders?tab=publish", "orders", _follow),
    ("policy", "/policies", "Policies", _type_policy),
]


@pytest.fixture(scope="module")
def visit(browser: Browser) -> Iterator[Visit]:
    arguments = (
        "--node-name",
        "penstock@one",
        "--vm-memory-high-watermark-paging-ratio",
        "0.000005",
    )
    with LiveBroker(arguments=arguments) as node, Shop(node.amqp_port):
        visit = Visit(browser, node.http_url)
        visit.page.set_viewport_size({"width": SIZE[0], "height": SIZE[1]})
        visit.log_in()
        visit.heading("Overview")
        visit.dark(dark=False)
        visit.page.get_by_label("Charts").select_option("60")
        time.sleep(LOAD_S if TAKEN else 2)
        yield visit
        visit.close()


@pytest.fixture(scope="module")
def plain(browser: Browser) -> Iterator[Page]:
    page = browser.new_page()
    yield page
    page.close()


@pytest.mark.timeout(LOAD_S + 120)
@pytest.mark.parametrize("name, address, heading, prepare", PAGES, ids=[page[0] for page in PAGES])
def test_a_picture_shows_the_page_as_it_is(
    visit: Visit,
    plain: Page,
    name: str,
    address: str,
    heading: str,
    prepare: Callable[[Page], None] | None,
) -> None:
    visit.go(address)
    visit.heading(heading)
    visit.settle()
    if prepare is not None:
        prepare(visit.page)
    visit.check()
    if TAKEN:
        visit.page.wait_for_timeout(STILL_MS)
        words = visit.page.evaluate(WORDS)
        _write(name, words, in_few_colours(plain, visit.page.screenshot(animations="disabled")))
    words = _recorded()["words"][name]
    until = time.monotonic() + STILL_MS / 1000
    while (found := visit.page.evaluate(WORDS)) != words and time.monotonic() < until:
        visit.page.wait_for_timeout(100)
    assert found == words, "the pictures are old: make screenshots"


def test_the_pictures_have_the_look_of_the_pages() -> None:
    assert _recorded()["look"] == _look(), "the pictures are old: make screenshots"


@pytest.mark.parametrize("name", [page[0] for page in PAGES])
def test_a_picture_is_small_and_stands_on_a_page(name: str) -> None:
    picture = (FOLDER / f"{name}.png").read_bytes()
    assert len(picture) < LARGEST_BYTES
    assert picture[16:24] == SIZE[0].to_bytes(4) + SIZE[1].to_bytes(4)
    pages = (REPOSITORY / "docs").rglob("*.md")
    assert any(f"pictures/ui/{name}.png)" in page.read_text(encoding="utf-8") for page in pages)


def _look() -> str:
    return hashlib.sha256(b"".join((UI / file).read_bytes() for file in LOOKS)).hexdigest()


def _recorded() -> Any:
    return json.loads(RECORD.read_text(encoding="utf-8"))


def _write(name: str, words: list[str], picture: bytes) -> None:
    FOLDER.mkdir(exist_ok=True)
    words_of = _recorded()["words"] if RECORD.exists() else {}
    kept = {page[0]: words_of[page[0]] for page in PAGES if page[0] in words_of} | {name: words}
    record = {"look": _look(), "words": kept}
    RECORD.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    (FOLDER / f"{name}.png").write_bytes(picture)
