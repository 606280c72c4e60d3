"""Somebody who never saw this broker is called at night, and has the web UI and nothing else.

A queue grows and its publisher crawls.  They find the queue, read why the publisher is held, look
at the message the consumers choke on, move it aside, stop the publisher, set a policy, and watch
the queue drain.  The disk behind the broker is slow, so the reason is a true one.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pika
import pytest

from tests.helpers import hostile_machine
from tests.helpers.hostile_machine import HostileMachine
from tests.helpers.live_broker import LiveBroker
from tests.ui.conftest import SHOTS
from tests.ui.life import Life
from tests.ui.visit import Visit

if TYPE_CHECKING:
    from playwright.sync_api import Browser

DISK_BYTES_PER_S = 2_000_000
BODY_BYTES = 40_000
POISON = b'{"order": 4711, "total": "a lot", "note": "poisonous"}'
PATIENCE_MS = 30_000
READY = """([...document.querySelectorAll(".figure")]
  .find((one) => one.textContent.endsWith("ready")).querySelector(".value").textContent)"""
IN_THE_STORE = {
    "PENSTOCK_MSG_STORE_CREDIT_INITIAL": "200",
    "PENSTOCK_MSG_STORE_CREDIT_MORE_AFTER": "40",
}

pytestmark = pytest.mark.skipif(
    hostile_machine.missing_reason() is not None, reason=str(hostile_machine.missing_reason())
)


class Crawling:
    """A publisher that never pauses; it ends when its connection does."""

    def __init__(self, node: LiveBroker) -> None:
        parameters = pika.ConnectionParameters(
            "127.0.0.1", node.amqp_port, client_properties={"connection_name": "till"}
        )
        self._connection = pika.BlockingConnection(parameters)
        self._thread = threading.Thread(target=self._publish, daemon=True)
        self._thread.start()

    def _publish(self) -> None:
        channel = self._connection.channel()
        properties = pika.BasicProperties(delivery_mode=2)
        body = b"receipt".ljust(BODY_BYTES)
        with suppress(pika.exceptions.AMQPError):
            while True:
                channel.basic_publish("", "receipts", body, properties)

    def join(self) -> None:
        self._thread.join(20)
        assert not self._thread.is_alive()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveBroker]:
    directory = tmp_path_factory.mktemp("slow")
    environment = HostileMachine(Path(directory), DISK_BYTES_PER_S).environment | IN_THE_STORE
    with LiveBroker(environment=environment) as running:
        yield running


@pytest.fixture
def visit(browser: Browser, node: LiveBroker) -> Iterator[Visit]:
    visit = Visit(browser, node.http_url, SHOTS)
    yield visit
    visit.close()


@pytest.mark.long
def test_a_night_with_a_queue_that_grows(visit: Visit, node: LiveBroker, life: Life) -> None:
    from playwright.sync_api import expect

    life.channel.queue_declare("receipts", durable=True)
    life.channel.basic_publish("", "receipts", POISON, pika.BasicProperties(delivery_mode=2))
    publisher = Crawling(node)
    page = visit.page
    visit.log_in()

    # Which queue grows?
    visit.heading("Overview")
    page.get_by_role("table", name="Longest queues").get_by_role("link", name="receipts").click()
    visit.heading("receipts")
    before = int((visit.figure("ready").text_content() or "0").replace(",", ""))
    grown = f"() => Number({READY}.replaceAll(',', '')) > {before + 20}"
    page.wait_for_function(grown, timeout=PATIENCE_MS)

    # Why is its publisher slow?
    visit.menu("Connections")
    state = visit.row("Connections", "till").get_by_text("flow", exact=True)
    state.wait_for(timeout=PATIENCE_MS)
    visit.menu("Flow")
    verdict = page.get_by_role("heading", name="Bottleneck: message store")
    verdict.wait_for(timeout=PATIENCE_MS)
    page.get_by_text("the disk takes contents more slowly than they come").first.wait_for()
    visit.shoot("stranger-flow")

    # What do the consumers choke on?  It is looked at, not taken.
    visit.go("/queues")
    page.get_by_text("Declare a queue").click()
    page.get_by_label("Name", exact=True).fill("quarantine")
    page.get_by_role("button", name="Declare queue").click()
    visit.heading("quarantine")
    visit.menu("Queues")
    page.get_by_role("link", name="receipts").click()
    visit.tab("Messages")
    page.get_by_role("searchbox").fill("poisonous")
    page.get_by_role("button", name="Search").click()
    page.get_by_text(re.compile("^1 found in ")).wait_for(timeout=PATIENCE_MS)
    page.get_by_role("button", name="Message 0: ").click()
    expect(page.get_by_label("Body", exact=True)).to_contain_text('"note": "poisonous"')
    visit.shoot("stranger-poison")

    # Aside with it.
    page.get_by_label("Select message 0", exact=True).check()
    page.get_by_role("button", name="Move…").click()
    page.get_by_label("To the queue").fill("quarantine")
    page.get_by_role("button", name="Move 1 message").click()
    page.get_by_text("1 moved.").wait_for(timeout=PATIENCE_MS)

    # The publisher has to stop for tonight.
    visit.menu("Connections")
    page.get_by_role("link", name="till").click()
    page.get_by_role("button", name="Close connection…").click()
    page.get_by_role("dialog").get_by_role("button", name="Close connection").click()
    visit.heading("Connections")
    publisher.join()

    # And the receipts of today may go, by a policy for this queue alone.
    visit.menu("Queues")
    page.get_by_role("link", name="receipts").click()
    visit.tab("Settings")
    page.get_by_role("link", name="Set a policy for it").click()
    page.get_by_text("1 of 6 queues in /").wait_for()
    page.get_by_label("Name", exact=True).fill("tonight")
    page.get_by_role("button", name="max-length", exact=True).click()
    page.get_by_label("Definition").fill("max-length = 0")
    page.get_by_role("button", name="Set policy").click()
    visit.row("policy", "tonight").wait_for(timeout=PATIENCE_MS)

    # It drains; what was put aside is still there.
    visit.menu("Queues")
    page.get_by_role("link", name="receipts").click()
    expect(visit.figure("ready")).to_have_text("0", timeout=PATIENCE_MS)
    page.get_by_role("link", name="tonight").wait_for()
    visit.shoot("stranger-drained")
    visit.go("/queues/%2F/quarantine")
    visit.wait_for_text(visit.figure("ready"), "1")
    visit.check()
