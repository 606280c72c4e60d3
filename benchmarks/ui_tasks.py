"""Ten tasks of an operator in the web UI, beside RabbitMQ's on the same data.

    python -m benchmarks.ui_tasks        prints the table; needs Chromium, Playwright and pika

Counted are clicks, fields and seconds.  A script does each task in the fewest steps that the pages
offer, from the overview on, after the log-in.  It is done when what was asked for stands on the
page.  A row counts as found without sorting among the first twenty of a list only.  Seconds are
those of the script, which neither reads nor thinks: the median of several rounds.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import pika
from playwright.sync_api import expect, sync_playwright

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / place) for place in ("", "src")]

from tests.helpers.broker_process import free_port  # noqa: E402
from tests.helpers.live_broker import LiveBroker  # noqa: E402
from tests.helpers.rabbit import LOCAL_DISTRIBUTION, RabbitServer  # noqa: E402

if TYPE_CHECKING:
    from pika.adapters.blocking_connection import BlockingChannel
    from playwright.sync_api import Browser, Dialog, Locator, Page

DEAD: Final = 10_000
MOVED: Final = 100
QUEUES: Final = 200
CONNECTIONS: Final = 40
ROUNDS: Final = 3
SETTLING_S: Final = 20
"""Both brokers have several samples of the load then."""
WAIT_MS: Final = 60_000
FULL: Final = "100TB"
"""No disk has so much free: publishers wait."""


class Load(threading.Thread):
    """Queues, dead letters, and connections that publish; a consumer that acknowledges nothing."""

    def __init__(self, port: int) -> None:
        super().__init__(name=f"load {port}")
        self._port = port
        self._ends = threading.Event()
        self._connections: list[pika.BlockingConnection] = []
        channel = self.connect("setup")
        channel.queue_declare("payments", durable=True)
        for number in range(200):
            channel.basic_publish("", "payments", f'{{"order": {number}}}'.encode())
        clerk = self.connect("clerk")
        clerk.basic_qos(prefetch_count=50)
        clerk.basic_consume("payments", lambda *_: None, consumer_tag="clerk")
        channel.exchange_declare("orders", "topic", durable=True)
        channel.exchange_declare("sink", "fanout", durable=True)
        names = ("old", "orders.audit", "orders.dead", "orders.retry")
        for name in (*names, *(f"shop.{number:03}" for number in range(QUEUES))):
            channel.queue_declare(name, durable=True)
        channel.queue_bind("orders.audit", "orders", "order.#")
        channel.queue_bind("payments", "orders", "order.paid")
        for name, count in (("orders.dead", DEAD), ("old", 1000)):
            for number in range(count):
                channel.basic_publish("", name, f'{{"order": {number}}}'.encode())

    def connect(self, name: str) -> BlockingChannel:
        properties = {"connection_name": name}
        connection = pika.BlockingConnection(
            pika.ConnectionParameters("127.0.0.1", self._port, client_properties=properties)
        )
        self._connections.append(connection)
        return connection.channel()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self.join()
        for connection in self._connections:
            connection.close()

    def run(self) -> None:
        channels = [self.connect(f"client-{number:02}") for number in range(CONNECTIONS)]
        body = bytes(1000)
        turn = 0
        while not self._ends.wait(0.05):
            turn += 1
            for _ in range(10):
                channels[29].basic_publish("sink", "", body)
            channels[turn % CONNECTIONS].basic_publish("sink", "", body)
            channels[0].basic_publish("orders", "order.new", body)
            if turn % 20 == 0:
                for connection in self._connections:
                    connection.process_data_events(0)


class Rabbit(RabbitServer):
    """With its UI, and the intervals that it has by default."""

    def __init__(self, directory: Path, config: str = "") -> None:
        self.http_port = free_port()
        where = f"management.tcp.port = {self.http_port}\nmanagement.tcp.ip = 127.0.0.1\n"
        plugins = ("rabbitmq_management",)
        super().__init__(directory, LOCAL_DISTRIBUTION, config + where, plugins=plugins)

    @property
    def http_url(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"


class Hand:
    """Counts what a hand does; a question of the browser itself is answered by one more click."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.clicks = self.fields = self.keys = 0
        page.on("dialog", self._agree)

    @property
    def work(self) -> str:
        """Cells of the table."""
        keys = f" + {self.keys} key" if self.keys else ""
        return f"{self.clicks}{keys} | {self.fields}"

    def _agree(self, dialog: Dialog) -> None:
        self.clicks += 1
        dialog.accept()

    def click(self, what: Locator) -> None:
        self.clicks += 1
        what.click()

    def choose(self, what: Locator, value: str) -> None:
        """One click opens the list, one takes."""
        self.clicks += 2
        what.select_option(value)

    def fill(self, what: Locator, text: str) -> None:
        """The click into the field is part of it."""
        self.fields += 1
        what.fill(text)

    def press(self, key: str) -> None:
        self.keys += 1
        self.page.keyboard.press(key)

    def link(self, name: str) -> None:
        self.click(self.page.get_by_role("link", name=name, exact=True).first)

    def button(self, name: str) -> None:
        self.click(self.page.get_by_role("button", name=name, exact=True))

    def sees(self, what: Locator | str) -> None:
        found = self.page.get_by_text(what) if isinstance(what, str) else what
        found.first.wait_for(timeout=WAIT_MS)


Steps = Callable[[Hand], None] | str
"""What is done, or why it cannot be."""

# -- our UI ----------------------------------------------------------------------------------------


def our_held(hand: Hand) -> None:
    hand.sees("The disk is nearly full: publishers wait until there is room.")


def our_growing(hand: Hand) -> None:
    hand.sees("Queue 'orders.audit' has no consumer and grew by")


def our_consumer(hand: Hand) -> None:
    hand.click(hand.page.get_by_role("link", name="Queue 'payments' has 50 delivered messages"))
    hand.sees(hand.page.get_by_role("table", name="Consumers").get_by_text("clerk"))


def our_move(hand: Hand) -> None:
    hand.link("Queues")
    hand.link("orders.dead")
    hand.click(hand.page.get_by_role("tab", name="Messages"))
    hand.choose(hand.page.get_by_label("rows"), str(MOVED))
    hand.sees(hand.page.get_by_text(re.compile(r"positions (0|[\d,]+00) to [\d,]*99")))
    hand.click(hand.page.get_by_label("Select all of this page"))
    hand.button("Move…")
    hand.fill(hand.page.get_by_label("To the queue"), "orders.retry")
    hand.button(f"Move {MOVED} messages")
    hand.sees(f"{MOVED} moved.")


def our_policy(hand: Hand) -> None:
    hand.link("Policies")
    hand.fill(hand.page.get_by_label("Pattern"), "^orders\\.")
    hand.sees("3 of 205 queues in /")


def our_node(hand: Hand) -> None:
    hand.press("Control+k")
    hand.fill(hand.page.get_by_label("Go to a page"), "payments")
    hand.sees(hand.page.get_by_role("option").get_by_text(re.compile("queue on .+@.+")))


def our_purge(hand: Hand) -> None:
    hand.link("Queues")
    hand.click(hand.page.get_by_label("Choose old", exact=True))
    hand.button("Purge…")
    hand.button("Purge")
    hand.sees("Purge: 1 queue.")


def our_busiest(hand: Hand) -> None:
    hand.click(hand.page.locator(".figure").filter(has_text="connections"))
    first = hand.page.get_by_role("table").locator("tbody tr").first
    expect(first).to_contain_text("client-29", timeout=WAIT_MS)


def our_route(hand: Hand) -> None:
    hand.link("Exchanges")
    hand.link("orders")
    hand.click(hand.page.get_by_role("tab", name="Where would it go?"))
    hand.fill(hand.page.get_by_label("Routing key"), "order.paid")
    hand.button("Ask")
    hand.sees(hand.page.get_by_role("table", name="Queues reached").get_by_text("payments"))


def our_export(hand: Hand) -> None:
    with hand.page.expect_download() as download:
        hand.button("Export definitions")
    assert Path(download.value.path()).stat().st_size > 1000


# -- RabbitMQ's ------------------------------------------------------------------------------------


def tab(hand: Hand, name: str) -> None:
    hand.click(hand.page.locator("#tabs").get_by_role("link", name=name, exact=True))


def sorted_by(hand: Hand, column: str, first: str) -> None:
    """The first click sorts upwards, the second one downwards."""
    for _ in range(2):
        hand.click(hand.page.locator(f"a.sort[sort='{column}']"))
        hand.page.wait_for_timeout(1000)
    expect(hand.page.locator("table.list tbody tr").first).to_contain_text(first, timeout=WAIT_MS)


def their_held(hand: Hand) -> None:
    tab(hand, "Connections")
    hand.sees(hand.page.locator("table.list").get_by_text("blocked"))


def their_growing(hand: Hand) -> None:
    tab(hand, "Queues and Streams")
    hand.link("orders.audit")
    row = hand.page.locator("tr").filter(has=hand.page.get_by_text("Consumers", exact=True))
    expect(row.locator("td").first).to_have_text("0", timeout=WAIT_MS)


def their_consumer(hand: Hand) -> None:
    tab(hand, "Channels")
    sorted_by(hand, "messages_unacknowledged", "50")


def their_purge(hand: Hand) -> None:
    tab(hand, "Queues and Streams")
    hand.link("old")
    hand.click(hand.page.get_by_role("heading", name="Purge"))
    hand.button("Purge Messages")
    hand.sees("Queue purged")


def their_busiest(hand: Hand) -> None:
    tab(hand, "Connections")
    sorted_by(hand, "recv_oct_details.rate", "client-29")


def their_export(hand: Hand) -> None:
    hand.click(hand.page.get_by_role("heading", name="Export definitions"))
    with hand.page.expect_download() as download:
        hand.button("Download broker definitions")
    assert Path(download.value.path()).stat().st_size > 1000


class Task(NamedTuple):
    """``theirs``: or why RabbitMQ's UI has no way."""

    title: str
    ours: Callable[[Hand], None]
    theirs: Steps


TASKS: Final = (
    Task("find the consumer that does not acknowledge", our_consumer, their_consumer),
    Task(f"move {MOVED} of {DEAD:,} dead letters", our_move, "moves all of them"),
    Task("see which queues a policy would change", our_policy, "only once it is set"),
    Task("find which node holds a queue", our_node, "in a cluster only"),
    Task("purge a queue", our_purge, their_purge),
    Task("find the connection that publishes most", our_busiest, their_busiest),
    Task("see where a message would be routed", our_route, "only by publishing"),
    Task("find why a queue grows", our_growing, their_growing),
    Task("export the definitions", our_export, their_export),
)
HELD: Final = Task("find why publishers wait", our_held, their_held)


class Visit(NamedTuple):
    """One of both UIs: how to log in there, and what says that its overview is there."""

    broker: LiveBroker | Rabbit
    log_in: Callable[[Page], None]
    overview: Callable[[Page], Locator]


def log_in_here(page: Page) -> None:
    page.get_by_label("User name").fill("guest")
    page.get_by_label("Password").fill("guest")
    page.get_by_role("button", name="Log in").click()


def log_in_there(page: Page) -> None:
    page.locator("#username").fill("guest")
    page.locator("#password").fill("guest")
    page.locator("input[type=submit]").click()


@contextmanager
def overview(browser: Browser, visit: Visit) -> Iterator[Page]:
    """In a browser that remembers nothing of an earlier visit."""
    with browser.new_context(
        viewport={"width": 1360, "height": 900}, reduced_motion="reduce", accept_downloads=True
    ) as context:
        page = context.new_page()
        page.set_default_timeout(WAIT_MS)
        page.goto(visit.broker.http_url)
        visit.log_in(page)
        visit.overview(page).first.wait_for(timeout=WAIT_MS)
        page.wait_for_timeout(2000)  # what the page asks for at first is there
        yield page


def done(browser: Browser, visit: Visit, steps: Steps) -> str:
    if isinstance(steps, str):
        return f"{steps} | |"
    work, seconds = "", []
    for _ in range(ROUNDS):
        with overview(browser, visit) as page:
            hand = Hand(page)
            began_s = time.monotonic()
            try:
                steps(hand)
            except Exception as error:
                picture = f"{tempfile.gettempdir()}/{steps.__name__}.png"
                page.screenshot(path=picture, full_page=True)
                return f"failed: {str(error)[:200]!r} | |"
            seconds.append(time.monotonic() - began_s)
            work = hand.work
    return f"{work} | {median(seconds):.2f}"


def walk(browser: Browser, visit: Visit, tasks: Sequence[Steps]) -> list[str]:
    found = []
    for steps in tasks:
        found.append(done(browser, visit, steps))
        print(found[-1], file=sys.stderr)
    return found


def ours(broker: LiveBroker) -> Visit:
    return Visit(broker, log_in_here, lambda page: page.get_by_role("heading", name="Overview"))


def theirs(broker: Rabbit) -> Visit:
    return Visit(broker, log_in_there, lambda page: page.get_by_role("heading", name="Overview"))


def walked(browser: Browser, visit: Visit, tasks: Sequence[Steps]) -> list[str]:
    with visit.broker, Load(visit.broker.amqp_port):
        time.sleep(SETTLING_S)
        return walk(browser, visit, tasks)


def held(browser: Browser, visit: Visit, task: Steps) -> str:
    with visit.broker:
        parameters = pika.ConnectionParameters("127.0.0.1", visit.broker.amqp_port)
        connection = pika.BlockingConnection(parameters)
        connection.channel().basic_publish("", "nowhere", b"")
        time.sleep(SETTLING_S)
        (found,) = walk(browser, visit, [task])
        return found  # the connection ends with its broker: this one reads nothing any more


def main() -> None:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    assert chromium is not None, "Debian: apt-get install chromium"
    with tempfile.TemporaryDirectory() as place, sync_playwright() as running:
        browser = running.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        full = LiveBroker(arguments=("--disk-free-limit", FULL), ready_timeout_s=90)
        here = [held(browser, ours(full), HELD.ours)]
        here += walked(browser, ours(LiveBroker(ready_timeout_s=90)), [task.ours for task in TASKS])
        limit = f"disk_free_limit.absolute = {FULL}\n"
        full_rabbit = Rabbit(Path(place, "full"), config=limit)
        there = [held(browser, theirs(full_rabbit), HELD.theirs)]
        rabbit = theirs(Rabbit(Path(place, "rabbit")))
        there += walked(browser, rabbit, [task.theirs for task in TASKS])
        browser.close()
    print("| task | clicks | fields | s | RabbitMQ: clicks | fields | s |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for task, left, right in zip((HELD, *TASKS), here, there, strict=True):
        print(f"| {task.title} | {left} | {right} |")


if __name__ == "__main__":
    main()
