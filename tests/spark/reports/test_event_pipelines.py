"""``pipeline latency`` and ``flow`` over the event log of a broker that was made to suffer.

One broker, one story: a slow consumer whose times we measure ourselves, publishers whose routing
takes all the processor, an alarm by command.  Both pipelines must tell it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import pika
import pytest

from penstock.cli.failure import BrokerUnavailable
from penstock.cli.management import Management
from penstock.core.clock_types import WallMs
from penstock.core.events.kinds import line_of
from penstock.spark.dataframes.event_frames import NoEvents, fetch_events
from penstock.spark.reports.flow import flow_report
from penstock.spark.reports.latency import latency_report
from tests.helpers import raw_codec as codec
from tests.helpers.live_broker import LiveBroker
from tests.helpers.raw_amqp import connect
from tests.interop.test_flow import publishers
from tests.spark.spark_tools import Pipelines, require_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

MESSAGES = 200
RETURNED = 20
HELD_S = 0.2
FLOOD_S = 6.0
ALARM_S = 4.0
ARGUMENTS = ("--event-log-interval-s", "1", "--event-log-samples-per-s", "1000")


@dataclass
class Story:
    """What we saw ourselves."""

    directory: Path
    broker: LiveBroker
    waited_ms: list[float] = field(default_factory=list)  # publish to delivery
    alarm_ms: float = 0.0


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    require_spark()
    with LiveBroker(tmp_path_factory.mktemp("broker"), ARGUMENTS) as broker:
        told = Story(tmp_path_factory.mktemp("events"), broker)
        consume_slowly(told)
        flood(broker)
        told.alarm_ms = alarm(broker)
        time.sleep(2.5)
        fetch_events(broker.url, told.directory)
        yield told


def consume_slowly(told: Story) -> None:
    """Waits before it takes, gives some back, and holds each batch before it acknowledges."""
    connection = pika.BlockingConnection(pika.URLParameters(told.broker.url))
    channel = connection.channel()
    channel.queue_declare("orders")
    for _ in range(MESSAGES):
        stamp = pika.BasicProperties(headers={"timestamp_in_ms": int(time.time() * 1000)})
        channel.basic_publish("", "orders", b"x", stamp)
    time.sleep(1.0)
    channel.basic_qos(prefetch_count=RETURNED)
    returned = False
    deliveries = channel.consume("orders", inactivity_timeout=10)
    for seen, (method, properties, _) in enumerate(deliveries, 1):
        assert method is not None
        assert properties.headers is not None
        told.waited_ms.append(time.time() * 1000 - properties.headers["timestamp_in_ms"])
        if seen % RETURNED == 0:
            connection.sleep(HELD_S)
            if returned:
                channel.basic_ack(method.delivery_tag, multiple=True)
            else:
                channel.basic_nack(method.delivery_tag, multiple=True)
                returned = True
        if seen == MESSAGES + RETURNED:
            break
    channel.cancel()
    connection.close()


def flood(broker: LiveBroker) -> None:
    client = connect(broker.url)
    client.open()
    client.open_channel()
    client.call(1, "exchange.declare", exchange="h", type="headers")
    client.call(1, "queue.declare", queue="q")
    for number in range(60):
        criteria = {"x-match": "all", "number": number, "kind": "wanted"}
        client.call(1, "queue.bind", queue="q", exchange="h", arguments=criteria)
    client.close_socket()
    frame = codec.method_frame(1, "basic.publish", exchange="h", routing_key="")
    chunk = b"".join(
        frame + codec.content_frames(1, b"x", {"headers": {"number": one, "kind": "other"}})
        for one in range(500)
    )
    with publishers(broker, chunk):
        time.sleep(FLOOD_S)


def alarm(broker: LiveBroker) -> float:
    """By command, as an operator would try it."""
    management = Management(broker.http_url, "guest", "guest")
    path = "/api/penstock/vm-memory-high-watermark"
    for _ in range(5):  # what is left of the flood may take it longer than it has for an answer
        with suppress(BrokerUnavailable):
            management.get("/api/whoami")
            break
    management.put(path, b'{"fraction": 0}')
    since = time.monotonic()
    time.sleep(ALARM_S)
    management.put(path, b'{"fraction": 0.4}')
    return 1000 * (time.monotonic() - since)


@pytest.mark.long  # the others show the windows
def test_percentiles_are_those_the_consumer_saw(spark: SparkSession, story: Story) -> None:
    report = latency_report(spark, story.directory, 60.0, None, ["ord*"])
    (queue,) = report["queues"]
    assert (queue["queue"], queue["vhost"]) == ("orders", "/")
    assert queue["published"] == MESSAGES
    assert queue["delivered"] == MESSAGES + RETURNED
    assert queue["acked"] == MESSAGES
    assert queue["redelivery_rate"] == round(RETURNED / (MESSAGES + RETURNED), 4)
    assert queue["samples"] >= 10
    assert queue["publish_precision_ms"] == 1
    steps = queue["steps"]
    # Each batch was held for HELD_S; later ones wait for those before them.
    assert 1000 * HELD_S * 0.9 <= steps["deliver_ack"]["p50"] <= 1000 * HELD_S * 4
    assert steps["enqueue_deliver"]["p50"] >= 1000
    seen = sorted(story.waited_ms)
    middle = seen[len(seen) // 2]
    assert abs(steps["enqueue_deliver"]["p50"] - middle) <= 0.4 * middle
    assert steps["enqueue_deliver"]["max"] <= seen[-1] + 100
    for step in steps.values():
        assert step["p50"] <= step["p90"] <= step["p99"] <= step["max"]
    assert sum(window["published"] for window in queue["windows"]) == MESSAGES


def test_flow_tells_flood_and_alarm_apart(spark: SparkSession, story: Story) -> None:
    report = flow_report(spark, story.directory, 1.0, None)
    stages = [period["bottleneck"] for period in report["periods"]]
    assert "channels" in stages, report
    assert "alarm" in stages, report
    assert stages.index("channels") < stages.index("alarm")
    flooded = [one for one in report["periods"] if one["bottleneck"] == "channels"]
    assert "decoding and routing" in flooded[0]["sentence"]
    (alarm_told,) = report["alarms"]
    assert alarm_told["resource"] == "memory"
    assert not alarm_told["open"]
    lasted_ms = alarm_told["until_ms"] - alarm_told["from_ms"]
    assert abs(lasted_ms - story.alarm_ms) < 1000
    assert alarm_told["limit_bytes"] == 0
    readers = [edge for edge in report["edges"] if edge["waiter_kind"] == "connection"]
    assert readers, report
    assert readers[0]["waits_for"].endswith(" (1)")  # its channel
    whole_ms = report["until_ms"] - report["from_ms"]
    assert 300 * FLOOD_S <= readers[0]["blocked_ms"] <= whole_ms - lasted_ms + 1000
    assert report["connections"][0]["user"] == "guest"
    by_stage = {one["stage"]: one for one in report["stages"]}
    assert by_stage["connection"]["in_flow_share"] > 0
    assert report["starts"] == 1
    assert report["broken_lines"] == 0
    assert report["events_dropped"] == 0


def test_a_cut_line_is_left_out_and_counted(
    spark: SparkSession, story: Story, tmp_path: Path
) -> None:
    (newest,) = sorted(story.directory.glob("events-*.jsonl"))
    data = newest.read_bytes()
    lines = data.splitlines(keepends=True)
    lines[3] = lines[3].replace(b'"event"', b'"evemt"')
    pair = ("channel", "c (1)", "queue")
    waits = [(0, "q1", 1000), (60_000, "q1", 2000), (60_000, "q2", 9000), (60_000, "q2", 500)]
    now_ms = round(1000 * time.time())
    added = [
        line_of(WallMs(now_ms + at_ms), "wait", (*pair, queue, "", blocked_ms, 1000))
        for at_ms, queue, blocked_ms in waits
    ]
    (tmp_path / newest.name).write_bytes(b"".join([*lines[:4], *added, *lines[4:]])[:-9])
    report = flow_report(spark, tmp_path, 60.0, None)
    assert report["broken_lines"] == 2
    q2, q1 = (one for one in report["queues"] if one["queue"] in ("q1", "q2"))
    assert (q2["queue"], q2["blocked_ms"], q1["blocked_ms"]) == ("q2", 9500, 3000)
    assert [one["blocked_ms"] for one in q1["windows"]] == [1000, 2000]


def test_a_log_without_such_queues_is_said_to_be_that(spark: SparkSession, story: Story) -> None:
    with pytest.raises(NoEvents, match="called nothing"):
        latency_report(spark, story.directory, 60.0, None, ["nothing.*"])


def test_the_end_of_the_log_can_be_asked_for(spark: SparkSession, story: Story) -> None:
    report = flow_report(spark, story.directory, 1.0, 3.0)
    assert report["until_ms"] - report["from_ms"] == 3000
    whole = flow_report(spark, story.directory, 1.0, None)
    assert 0 < len(report["windows"]) <= 4 < len(whole["windows"])


class Page(HTMLParser):
    """What a browser would find, and what it would fetch."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []
        self.fetched: list[str] = []
        self.tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.fetched += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)  # shapes of a chart close themselves

    def handle_endtag(self, tag: str) -> None:
        if tag in self.open:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_the_command_fetches_the_log_and_writes_a_page(
    story: Story, pipelines: Pipelines, tmp_path: Path
) -> None:
    page = tmp_path / "flow.html"
    done = pipelines.run(story.broker.url, "flow", "--window", "1s", "--out", str(page))
    summary = done.summary()
    assert summary["pipeline"] == "flow"
    assert summary["alarms"] == 1
    assert "decoding and routing take all the time there is" in done.stdout
    text = page.read_text()
    found = Page(text)
    assert found.open == []
    assert found.fetched == []
    assert "script" not in found.tags
    assert "default-src 'none'" in text
    said = " ".join(found.text)
    assert summary["sentence"] in said
    assert "Share of each window in flow" in said
    assert "it waits itself" in said or "its share of the turn is used up" in said
    assert "memory" in said


def test_wrong_use_is_said_before_spark_starts(
    story: Story, pipelines: Pipelines, tmp_path: Path
) -> None:
    url = story.broker.url
    said = pipelines.refused(url, "flow", "--from-events", str(tmp_path / "no"), code=1)
    assert "there is no directory" in said
    events = ("--from-events", str(story.directory))
    said = pipelines.refused(url, "latency", *events, "--out", "report.pdf", code=2)
    assert "must end in .html or .json" in said
    said = pipelines.refused(url, "flow", "--master", "spark://far:7077", code=2)
    assert "shared directory" in said
    assert pipelines.run(url, "flow", "--dry-run", "-o", "json").summary()["dry_run"] is True
    pipelines.refused("amqp://guest:guest@127.0.0.1:1/%2f", "flow", code=69)
