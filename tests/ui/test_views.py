"""The views of the engine in a browser: each has live data, says the same as the API, and makes the
console complain of nothing.

The broker pages early, so that a few megabytes are enough to see a queue under pressure.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pika
import pytest

from penstock.cli.inspect import flow_text
from pyspark_penstock.report_client import Reporter
from tests.helpers.nsq_live import NsqLiveBroker, RawClient
from tests.helpers.raw_nsq import dpub, mpub
from tests.ui.conftest import SHOTS
from tests.ui.life import Life
from tests.ui.visit import WAIT_MS, Visit

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator

PAGED = "orders.audit"
SILENT = """
[...document.querySelectorAll("svg.drawing")].filter((picture) => ["title", "desc"].some(
  (part) => !picture.querySelector(`:scope > ${part}`)?.textContent)).length
"""
COPY_HISTORY = """
addEventListener("pagehide", () =>
  localStorage.setItem("copy", sessionStorage.getItem("penstock.history")))
"""
STATES = ("q1", "q2", "delta", "q3", "q4")


@pytest.fixture(scope="module")
def node() -> Iterator[NsqLiveBroker]:
    with NsqLiveBroker(vm_memory_high_watermark_paging_ratio=0.000005) as running:
        yield running


@pytest.fixture(scope="module")
def life(node: NsqLiveBroker) -> Iterator[Life]:
    with Life(node) as life:
        unconfirmed = life.connect("filler")
        properties = pika.BasicProperties(delivery_mode=2)
        for number in range(1500):
            body = json.dumps({"order": number}).encode() + b" " * 1000
            unconfirmed.basic_publish("orders", "order.audit", body, properties)
        yield life


@pytest.fixture(scope="module")
def visit(browser: Browser, node: NsqLiveBroker, life: Life) -> Iterator[Visit]:
    visit = Visit(browser, node.http_url, SHOTS)
    visit.log_in()
    visit.heading("Overview")
    yield visit
    visit.close()


@pytest.fixture(autouse=True)
def _no_complaints(visit: Visit) -> Iterator[None]:
    yield
    visit.check()
    assert visit.page.evaluate(SILENT) == 0, "a picture without a name or without words"


def eventually(ask: Callable[[], Any]) -> Any:
    until = time.monotonic() + WAIT_MS / 1000
    while not (found := ask()):
        assert time.monotonic() < until, f"still {found!r}"
        time.sleep(0.05)
    return found


def drawn(visit: Visit, state: str) -> int:
    text = visit.page.locator(f".flow [data-state={state}]").text_content() or ""
    return int(text.replace(",", ""))


def cells(row: Locator) -> list[str]:
    return row.locator("th, td").all_inner_texts()


def open_panel(visit: Visit, queue: str, tab: str) -> None:
    visit.go(f"/queues/%2F/{queue}?tab={tab}")
    visit.heading(queue)


# -- one queue -------------------------------------------------------------------------------------


def test_the_flow_page_of_a_queue_under_paging_shows_what_the_api_says(
    visit: Visit, life: Life
) -> None:
    path = f"/api/penstock/queues/%2F/{PAGED}/flow"

    def paged() -> Any:
        found = life.api(path)
        return found["messages"] == 1500 and found["states"]["delta"]["messages"] > 1300

    eventually(paged)
    open_panel(visit, PAGED, "flow")
    visit.page.get_by_role("group", name=f"Flow of queue {PAGED}").wait_for()

    def same() -> bool:
        said = life.api(path)["states"]
        return all(drawn(visit, name) == said[name]["messages"] for name in STATES)

    eventually(same)
    said = life.api(path)
    assert sum(drawn(visit, name) for name in STATES) == said["messages"] == 1500
    assert said["memory"]["target_ram_bytes"] is not None
    line = visit.page.locator(".flow .target-text").text_content() or ""
    assert line.startswith("RAM target ")
    assert "RAM target" in visit.page.locator(".sentence").inner_text()
    table = visit.page.get_by_role("table", name="Messages and bytes of each state")
    delta = cells(table.get_by_role("row").filter(has_text="delta"))
    assert delta[1] == f"{said['states']['delta']['messages']:,}"
    moved = visit.row("Messages that went from one state to the next", "q3 to delta")
    assert cells(moved)[2] == f"{said['moves']['q3_to_delta']['count']:,}"
    visit.shoot("queue-flow")


def test_the_flow_page_moves_when_a_message_comes(visit: Visit, life: Life) -> None:
    open_panel(visit, "dead", "flow")
    eventually(lambda: visit.page.locator(".flow [data-state=q4]").count())
    before = drawn(visit, "q4")
    life.channel.basic_publish("dead", "", b"one more")
    eventually(lambda: drawn(visit, "q4") == before + 1)


def test_the_memory_bar_is_of_the_limit_of_the_node(visit: Visit, life: Life) -> None:
    """Without a target it was of its own value, full at any size (B38)."""
    life.channel.basic_publish("dead", "", b"one more")
    open_panel(visit, "dead", "flow")
    bar = visit.page.locator(".ram-line")
    bar.get_by_text("where publishers wait; no RAM target now").wait_for()
    track = float(bar.locator(".track").get_attribute("width") or 0)
    held = eventually(lambda: float(bar.locator(".held").get_attribute("width") or 0))
    assert held < track / 1000, "some kilobytes of some gigabytes"


MOVING = "document.getAnimations().filter((one) => one.animationName === 'along').length"


def test_arrows_move_unless_somebody_wants_no_motion(visit: Visit, life: Life) -> None:
    open_panel(visit, PAGED, "flow")
    visit.page.locator(".flow").wait_for()
    assert visit.page.evaluate(MOVING) == 0
    visit.page.emulate_media(reduced_motion="no-preference")
    life.publish(20, "order.audit")
    eventually(lambda: visit.page.evaluate(MOVING) > 0)
    visit.page.emulate_media(reduced_motion="reduce")
    eventually(lambda: visit.page.evaluate(MOVING) == 0)


def test_the_storage_strip_has_the_segments_of_the_index(visit: Visit, life: Life) -> None:
    open_panel(visit, PAGED, "storage")
    visit.page.locator(".segment").first.wait_for()
    (part,) = life.api(f"/api/penstock/queues/%2F/{PAGED}/storage")["parts"]
    assert visit.page.locator(".segment").count() == len(part["segments"])
    row = cells(visit.row("Index segments", part["segments"][0]["name"]))
    assert row[1] == f"{part['segments'][0]['published']:,}"
    assert "of 32,768 records" in visit.page.locator(".meter").inner_text()
    visit.shoot("queue-storage")


def test_the_deadlines_of_a_consumer_are_drawn(visit: Visit, life: Life) -> None:
    life.publish(30)
    open_panel(visit, "orders.new", "heaps")
    visit.wait_for_text(visit.figure("in flight"), "20")
    rows = visit.page.get_by_role("table", name="In flight: the ten soonest").get_by_role("row")
    assert rows.count() == 1 + 10
    assert "packer" in rows.nth(1).inner_text()
    assert "Nothing is scanned" in visit.page.get_by_role("main").inner_text()
    visit.shoot("queue-deadlines")


def test_a_queue_without_mirrors_is_said_to_be_alone(visit: Visit, life: Life) -> None:
    open_panel(visit, PAGED, "mirrors")
    visit.page.locator(".member.master").wait_for()
    words = visit.page.locator(".sentence").inner_text()
    assert words.startswith("This queue has no mirrors: it is on ")
    assert visit.page.locator(".member").count() == 1
    visit.shoot("queue-mirrors")


def test_the_heaps_of_an_nsq_channel(visit: Visit, node: NsqLiveBroker, life: Life) -> None:
    with RawClient(node) as client:
        client.send(b"SUB clicks archive\nRDY 5\n")
        client.send(mpub("clicks", [b"click"] * 12) + dpub("clicks", 60_000, b"later"))
        client.read(7)
        chain = life.api("/api/penstock/flow/chain")
        kinds = {one["id"]: one["kind"] for one in chain["nodes"]}
        links = [(kinds[one["from"]], kinds[one["to"]]) for one in chain["links"]]
        # Of the two AMQP channels that have published, and of this client.
        assert links.count(("connection", "channel")) == 3
        visit.go("/topics")
        row = visit.row("Channels of clicks", "archive")
        row.get_by_role("link", name="5", exact=True).click()
        visit.heading("archive")
        visit.wait_for_text(visit.figure("in flight"), "5")
        visit.wait_for_text(visit.figure("deferred"), "1")
        table = visit.page.get_by_role("table", name="Deferred: the ten soonest")
        assert table.get_by_role("row").count() == 2
        visit.shoot("nsq-channel")


# -- the node --------------------------------------------------------------------------------------


def test_the_credit_chain_links_the_publisher_to_the_store(visit: Visit, life: Life) -> None:
    visit.go("/flow")
    visit.heading("Flow")
    visit.page.locator(".credit").first.wait_for()
    chain = life.api("/api/penstock/flow/chain")
    assert visit.page.locator(".verdict p").first.inner_text() == chain["sentence"]
    channel = next(one for one in chain["nodes"] if one["kind"] == "channel")
    assert visit.page.locator(f'[data-node="{channel["id"]}"] title').count() == 1
    names = visit.page.locator(".chain .node .name").all_text_contents()
    assert {"shop", "filler"} & set(names)
    assert not [name for name in names if name.startswith("queue '")]
    links = visit.page.get_by_role("table", name="Links").get_by_role("row")
    eventually(lambda: links.count() == 1 + len(life.api("/api/penstock/flow/chain")["links"]))
    visit.shoot("flow")


def test_the_storage_of_the_node(visit: Visit, life: Life) -> None:
    visit.go("/storage")
    visit.heading("Storage")
    row = life.api("/api/penstock/storage")
    table = visit.page.get_by_role("table", name="Journal files").get_by_role("row")
    eventually(lambda: table.count() == 1 + len(row["files"]["journal"]))
    assert "No compaction is running." in visit.page.get_by_role("main").inner_text()
    visit.shoot("storage")


def test_how_far_a_compaction_is(visit: Visit, life: Life) -> None:
    """One that lasts is played: a real one is over before a page is drawn."""
    row = life.api("/api/penstock/storage")
    half = {"compacting_bytes": 8 << 20, "compacted_bytes": 4 << 20}
    file = {"name": "1.rdq", "bytes": 16 << 20, "valid_bytes": 8 << 20, "messages": 1}
    row["stores"]["persistent"] |= half
    row["files"]["persistent_store"] = [
        file | {"garbage_share": 0.5, "damaged": False, "compacting": True}
    ]
    visit.page.route("**/api/penstock/storage", lambda route: route.fulfill(json=row))
    pause(visit, "0")  # asked once, not streamed
    try:
        visit.go("/storage")
        bar = visit.page.get_by_role("progressbar")
        eventually(lambda: bar.count() == 1)
        assert [bar.get_attribute(name) for name in ("value", "max")] == ["4194304", "8388608"]
        assert "4 MiB of 8 MiB copied" in visit.page.get_by_role("main").inner_text()
    finally:
        visit.page.unroute("**/api/penstock/storage")
        pause(visit, "1000")


def pause(visit: Visit, interval_ms: str) -> None:
    visit.page.evaluate("ms => localStorage.setItem('penstock.interval', ms)", interval_ms)
    visit.page.reload()


def test_a_stream_shows_its_ends_and_what_it_keeps(visit: Visit, life: Life) -> None:
    channel = life.connect("reader")
    arguments: dict[str, Any] = {
        "x-queue-type": "stream",
        "x-max-age": "7D",
        "x-message-deduplication": True,
    }
    channel.queue_declare("log", durable=True, arguments=arguments)
    channel.confirm_delivery()
    for number in range(5):
        headers = {"x-deduplication-header": f"orders:{number}"}
        channel.basic_publish("", "log", b"m", pika.BasicProperties(headers=headers))
    channel.basic_qos(prefetch_count=3)
    kept = {"x-stream-offset": "first", "x-stream-automatic-offset-tracking": True}
    channel.basic_consume("log", lambda *_: None, consumer_tag="billing", arguments=kept)
    channel.connection.process_data_events(1)
    visit.go("/queues/%2F/log")
    visit.heading("log")
    tabs = visit.page.get_by_role("tab")
    tabs.filter(has_text="Stream").click()
    assert "Storage" not in "".join(tabs.all_text_contents())
    rows = visit.page.get_by_role("table", name="Positions that are kept").get_by_role("row")
    eventually(lambda: rows.count() == 2)
    assert "connected" in rows.nth(1).inner_text()
    numbers = visit.page.get_by_role("table", name="Numbers of publishers").get_by_role("row")
    assert numbers.nth(1).inner_text().split() == ["orders", "4", "4"]
    text = visit.page.get_by_role("main").inner_text()
    assert "nothing goes yet: the last file always stays" in text
    assert "7 d" in text
    visit.shoot("stream")
    visit.page.get_by_role("tab", name="Consumers").click()
    cells = visit.page.get_by_role("table", name="Consumers").get_by_role("row").nth(1)
    eventually(lambda: "billing" in cells.inner_text())
    headings = visit.page.get_by_role("columnheader").all_text_contents()
    assert {"Next offset", "Messages behind", "Time behind"} <= set(headings)
    channel.queue_delete("log")


def test_the_forecast_has_both_bars(visit: Visit) -> None:
    visit.go("/forecast")
    visit.heading("Alarm forecast")
    visit.page.locator(".level").nth(1).wait_for()
    assert visit.page.locator(".mark.paging").count() == 1
    assert visit.page.locator(".mark.limit").count() == 2
    sentence = visit.page.locator(".sentence").inner_text()
    assert "page" in sentence
    visit.shoot("forecast")


def test_the_forecast_shows_the_samples_of_the_broker(visit: Visit) -> None:
    visit.go("/forecast")
    chart = visit.page.locator(".chart")
    chart.get_by_text("resident").wait_for()
    assert chart.get_by_text("limit").count() == 1


def test_what_a_tab_has_seen_outlives_a_reload(visit: Visit) -> None:
    seen: list[dict[str, Any]] = []
    for _ in range(2):
        visit.go(f"/queues/%2F/{PAGED}?tab=flow")
        visit.page.locator(".chart").wait_for()
        visit.page.wait_for_timeout(1100)
        visit.page.evaluate(COPY_HISTORY)
        visit.page.reload()
        visit.page.locator(".chart").wait_for()
        seen.append(dict(visit.page.evaluate("JSON.parse(localStorage.getItem('copy'))")))
        assert visit.page.evaluate("sessionStorage.getItem('penstock.history')") is None
    first, second = (entries[f"flow / {PAGED}"]["stamps"] for entries in seen)
    assert first
    assert second[: len(first)] == first
    assert len(second) > len(first)


def test_an_alarm_is_the_bottleneck_and_is_named(visit: Visit, life: Life) -> None:
    visit.go("/flow")
    visit.page.locator('[data-bottleneck="nothing"]').wait_for()
    watermark = "/api/penstock/vm-memory-high-watermark"
    life.api(watermark, "PUT", {"absolute": "0"})
    try:
        visit.page.locator('[data-bottleneck="alarm"]').wait_for()
        verdict = visit.page.locator(".verdict").inner_text()
        assert "Publishers are blocked: low on memory." in verdict
        assert "Let consumers take what waits" in verdict
        visit.page.get_by_role("table", name="Waits").get_by_text("low on memory").first.wait_for()
        (held, *_) = life.api("/api/penstock/flow")["waits"]
        assert (held["kind"], held["waits_for"], held["share"]) == ("connection", "the node", None)
        assert "the node" in flow_text(life.api("/api/penstock/flow"))
        visit.go("/forecast")
        visit.page.get_by_text("The memory alarm is set: publishers").wait_for()
    finally:
        life.api(watermark, "PUT", {"fraction": 0.4})
    visit.page.get_by_text("The memory alarm is set: publishers").wait_for(state="detached")


def test_a_pipeline_that_reports_is_drawn(visit: Visit, node: NsqLiveBroker) -> None:
    visit.go("/pipelines")
    visit.heading("Pipelines")
    visit.page.get_by_text("No pipeline reports to this node.").wait_for()
    url = f"amqp://guest:guest@127.0.0.1:{node.amqp_port}/%2f"
    reporter = Reporter(url, name="to the lake", kind="spark", queues=[PAGED])
    for number in range(5):
        reporter.tell(state="running", run="r1", batch=number, rows=100 * number, duration_ms=50)
    reporter.close()
    visit.heading("to the lake", level=2)
    batches = visit.page.get_by_role("table", name="The last batches of to the lake")
    eventually(lambda: batches.get_by_role("row").count() == 1 + 5)
    assert cells(batches.get_by_role("row").nth(1))[:2] == ["4", "400"]
    assert visit.page.locator(".spark").count() == 2
    visit.shoot("pipelines")


def test_links_to_other_brokers(visit: Visit, life: Life) -> None:
    visit.go("/links")
    visit.heading("Links to other brokers")
    visit.page.get_by_text("No shovel runs on this node.").wait_for()
    value = {"src-uri": "amqp://", "src-queue": "moved", "dest-uri": "amqp://guest:pw@127.0.0.1:9"}
    path = "/api/parameters/shovel/%2F/to%20nowhere"
    life.api(path, "PUT", {"value": value | {"reconnect-delay": 60}})
    shovels = visit.page.get_by_role("table", name="shovels")
    shovels.get_by_text("Connection refused").wait_for()
    assert "guest:pw" not in (visit.page.locator("main").text_content() or "")
    upstream = "/api/parameters/federation-upstream/%2F/far"
    life.api(upstream, "PUT", {"value": {"uri": "amqp://127.0.0.1:9"}})
    policy = {"pattern": "^amq.topic$", "definition": {"federation-upstream": "far"}}
    life.api("/api/policies/%2F/federated", "PUT", policy)
    links = visit.page.get_by_role("table", name="federation links")
    links.get_by_text("amq.topic").first.wait_for()
    visit.shoot("links")
    life.api("/api/policies/%2F/federated", "DELETE")
    life.api(upstream, "DELETE")
    visit.page.get_by_text("No federation link runs on this node.").wait_for()
    shovels.get_by_role("button", name="Delete to nowhere").click()
    visit.page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    visit.page.get_by_text("No shovel runs on this node.").wait_for()


# -- messages --------------------------------------------------------------------------------------


SCHEMA = (
    b'{"type":"record","name":"Order","fields":[{"name":"id","type":"long"},'
    b'{"name":"note","type":["null","string"]},{"name":"of","type":{"type":"array","items":"int"}}]}'
)


def avro_body() -> bytes:
    """One record (-3, "hi", [1, 2]) in an object container, as Avro's specification lays it out."""
    length = len(SCHEMA) << 1
    head = b"Obj\x01\x02\x16avro.schema" + bytes([length & 0x7F | 0x80, length >> 7])
    record = b"\x05" + b"\x02\x04hi" + b"\x04\x02\x04\x00"
    block = b"\x02" + bytes([len(record) << 1]) + record
    return head + SCHEMA + b"\x00" + b"s" * 16 + block + b"s" * 16


def test_bodies_of_avro_and_messagepack_are_values(visit: Visit, life: Life) -> None:
    life.channel.queue_declare("packed", auto_delete=True)
    # {"id": 2^53 + 1, "ok": true, "d": [-1, 1.5]}
    packed = b"\x83\xa2id\xcf" + (2**53 + 1).to_bytes(8, "big")
    packed += b"\xa2ok\xc3\xa1d\x92\xff\xca?\xc0\0\0"
    for body in (packed, avro_body(), packed[:-1]):
        life.channel.basic_publish("", "packed", body)
    open_panel(visit, "packed", "messages")
    shown = visit.page.get_by_label("Body", exact=True)

    def opened(number: int) -> str:
        visit.page.get_by_role("button", name=f"Message {number}: ").click()
        visit.page.get_by_role("button", name="hex").wait_for()
        return shown.inner_text()

    assert json.loads(opened(0)) == {"id": str(2**53 + 1), "ok": True, "d": [-1, 1.5]}
    assert json.loads(opened(1))["records"] == [{"id": -3, "note": "hi", "of": [1, 2]}]
    assert opened(2).startswith("000000  83 a2 69 64 cf")  # cut off: it is no MessagePack
    visit.check()


def test_messages_are_paged_and_opened_without_being_taken(visit: Visit, life: Life) -> None:
    open_panel(visit, PAGED, "messages")
    rows = visit.page.locator("table.messages tbody tr[data-seq-id]")
    rows.first.wait_for()
    assert rows.count() == 20
    first = int(rows.first.get_attribute("data-seq-id") or -1)
    visit.page.get_by_role("button", name="Next").click()
    eventually(lambda: rows.first.get_attribute("data-seq-id") == str(first + 20))
    visit.page.get_by_role("button", name="Back").click()
    eventually(lambda: rows.first.get_attribute("data-seq-id") == str(first))
    visit.page.get_by_role("button", name=f"Message {first}: ").click()
    body = visit.page.get_by_label("Body", exact=True)
    assert body.inner_text() == '{\n  "order": 0\n}'
    visit.page.get_by_role("button", name="hex").click()
    assert body.inner_text().startswith("000000  7b 22 6f 72 64 65 72 22 3a 20 30 7d")
    hidden = "box => box.scrollHeight > box.clientHeight"
    assert not visit.page.locator("div.payload").evaluate(hidden), "headers are below the edge"
    visit.shoot("queue-messages")
    # A dead letter tells its way, the oldest death first.
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "way.end"}
    life.channel.queue_declare("way.end", auto_delete=True)
    life.channel.queue_declare("way.first", auto_delete=True, arguments=arguments)
    life.channel.basic_publish("", "way.first", b"{}")
    method, _, _ = life.channel.basic_get("way.first")
    life.channel.basic_reject(method.delivery_tag, requeue=False)
    open_panel(visit, "way.end", "messages")
    visit.page.get_by_role("button", name="Message 0: ").click()
    deaths = visit.page.locator(".deaths li").first
    assert re.fullmatch(
        r"the default exchange, key way.first\s*way.first\s*rejected \d{4}-.*", deaths.inner_text()
    )
    row = life.api(f"/api/queues/%2F/{PAGED}")
    assert row["messages_unacknowledged"] == 0


def test_a_search_finds_the_one_message_among_many(visit: Visit, life: Life) -> None:
    open_panel(visit, PAGED, "messages")
    rows = visit.page.locator("table.messages tbody tr[data-seq-id]")
    visit.page.get_by_role("searchbox").fill('"order": 1234}')
    visit.page.get_by_role("button", name="Search").click()
    eventually(lambda: rows.count() == 1)
    assert rows.first.get_attribute("data-seq-id") == "1234"
    status = visit.page.locator(".listbar [role=status]")
    eventually(lambda: status.inner_text().startswith("1 found in 1,5"))
    visit.page.get_by_role("button", name="Show all").click()
    eventually(lambda: rows.count() == 20)


def test_what_turns_text_round_is_shown_as_a_code(visit: Visit, life: Life) -> None:
    life.channel.queue_declare("turned", durable=True)
    life.channel.basic_publish("", "turned", "Grüße \u202eRTL\x07\u200b".encode())
    open_panel(visit, "turned", "messages")
    visit.page.locator("tr[data-seq-id]").first.wait_for()
    assert "Grüße \\u{202e}RTL\\u{7}\\u{200b}" in visit.page.locator("table.messages").inner_text()
    visit.page.get_by_role("button", name="Message 0").click()
    body = visit.page.locator("pre.content")
    body.wait_for()
    assert body.inner_text() == "Grüße \\u{202e}RTL\\u{7}\\u{200b}"
    life.channel.queue_delete("turned")


def select(visit: Visit, *seq_ids: int) -> None:
    for seq_id in seq_ids:
        visit.page.get_by_label(f"Select message {seq_id}", exact=True).check()


def bodies(life: Life, queue: str) -> list[str]:
    return [one["payload"] for one in life.api(f"/api/queues/%2F/{queue}/messages")["messages"]]


@pytest.fixture
def parcels(life: Life) -> Iterator[str]:
    """Five messages whose dead letters go to ``dead``."""
    arguments = {"x-dead-letter-exchange": "dead"}
    life.channel.queue_declare("parcels", durable=True, arguments=arguments)
    life.channel.queue_declare("aside", durable=True)
    life.channel.queue_purge("dead")
    for number in range(5):
        life.channel.basic_publish("", "parcels", b"parcel %d" % number)
    yield "parcels"
    life.channel.queue_delete("parcels")
    life.channel.queue_delete("aside")


def test_what_is_selected_is_moved_and_the_rest_stays(
    visit: Visit, life: Life, parcels: str
) -> None:
    open_panel(visit, parcels, "messages")
    select(visit, 1, 3)
    visit.page.get_by_text("2 selected").wait_for()
    visit.page.get_by_role("button", name="Move…").click()
    visit.page.get_by_label("To the queue").fill("aside")
    visit.page.get_by_role("button", name="Move 2 messages").click()
    visit.page.get_by_text("2 moved.").wait_for()
    assert bodies(life, "aside") == ["parcel 1", "parcel 3"]
    assert bodies(life, parcels) == ["parcel 0", "parcel 2", "parcel 4"]
    visit.page.get_by_label("Select message 1", exact=True).wait_for(state="detached")
    select(visit, 0)
    visit.page.get_by_role("button", name="Copy…").click()
    visit.page.get_by_label("To the queue").fill("aside")
    visit.page.get_by_role("button", name="Copy 1 message").click()
    visit.page.get_by_text("1 copied.").wait_for()
    assert bodies(life, "aside") == ["parcel 1", "parcel 3", "parcel 0"]
    assert bodies(life, parcels) == ["parcel 0", "parcel 2", "parcel 4"]


def test_a_dead_message_is_retried_and_another_deleted(
    visit: Visit, life: Life, parcels: str
) -> None:
    open_panel(visit, parcels, "messages")
    select(visit, 2, 4)
    visit.page.get_by_role("button", name="Dead-letter…").click()
    visit.page.get_by_role("dialog").get_by_role("button", name="Dead-letter").click()
    visit.page.get_by_text("2 dead-lettered.").wait_for()
    assert bodies(life, "dead") == ["parcel 2", "parcel 4"]
    open_panel(visit, "dead", "messages")
    rows = visit.page.locator("table.messages tbody tr[data-seq-id]")
    visit.page.get_by_role("searchbox").fill("parcel 4")
    visit.page.get_by_role("button", name="Search").click()
    eventually(lambda: rows.count() == 1)
    rows.first.get_by_role("checkbox").check()
    visit.page.get_by_role("button", name="Retry…").click()
    visit.page.get_by_role("dialog").get_by_role("button", name="Retry").click()
    visit.page.get_by_text("1 sent back to where it was published.").wait_for()
    assert bodies(life, parcels) == ["parcel 0", "parcel 1", "parcel 3", "parcel 4"]
    assert bodies(life, "dead") == ["parcel 2"]
    visit.page.get_by_role("button", name="Show all").click()
    eventually(lambda: rows.count() == 1)
    rows.first.get_by_role("checkbox").check()
    visit.page.get_by_role("button", name="Delete…").click()
    visit.page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    visit.page.get_by_text("1 deleted.").wait_for()
    assert bodies(life, "dead") == []
    visit.page.get_by_text("No message is ready.").wait_for()
