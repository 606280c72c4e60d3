"""The event log of a running broker: what clients did is in it, and who may read it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pika
import pytest

from penstock.cli.management import Management
from penstock.core.events.kinds import read_line
from penstock.runtime.disk.event_log import event_files
from penstock_ranges.reports import Report, decode_reported, encode_report
from pyspark_penstock.client import Connection, Refused
from pyspark_penstock.endpoints import parse_url
from pyspark_penstock.report_client import EventClient, Reporter
from tests.helpers.live_broker import REPOSITORY, LiveBroker

pytestmark = pytest.mark.timeout(120)

Client = TypeVar("Client", bound=Connection)
PATIENCE_S = 30.0
ARGUMENTS = ("--event-log-interval-s", "1")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveBroker]:
    with LiveBroker(tmp_path_factory.mktemp("events"), ARGUMENTS) as running:
        yield running


@contextmanager
def logged_in(kind: type[Client], url: str) -> Iterator[Client]:
    with kind(parse_url(url)) as client:
        client.login()
        yield client


def log_of(broker: LiveBroker) -> list[dict[str, Any]]:
    """Over the line, as a pipeline fetches it."""
    data = b""
    with logged_in(EventClient, broker.url) as client:
        for name, size in client.files():
            part = b""
            while len(part) < size:
                part += client.read(name, len(part))
            data += part[: part.rfind(b"\n") + 1]  # the last line may be half written still
    lines = [read_line(line) for line in data.splitlines(keepends=True)]
    assert None not in lines
    return [line for line in lines if line is not None]


def told(broker: LiveBroker, kind: str, count: int = 1, **wanted: Any) -> list[dict[str, Any]]:
    """Events of that kind with those fields; waits until there are so many."""
    until = time.monotonic() + PATIENCE_S
    while True:
        found = [
            event
            for event in log_of(broker)
            if event["event"] == kind and wanted.items() <= event.items()
        ]
        if len(found) >= count or time.monotonic() > until:
            assert len(found) >= count, [kind, wanted, found]
            return found
        time.sleep(0.1)


@pytest.fixture
def connection(broker: LiveBroker) -> Iterator[pika.BlockingConnection]:
    opened = pika.BlockingConnection(pika.URLParameters(broker.url))
    yield opened
    if opened.is_open:
        opened.close()


def test_connections_channels_and_queues_come_and_go(
    broker: LiveBroker, connection: pika.BlockingConnection
) -> None:
    channel = connection.channel()
    channel.queue_declare("brief", durable=True)
    channel.queue_delete("brief")
    channel.close()
    connection.close()
    (declared,) = told(broker, "queue_declared", queue="brief")
    assert (declared["vhost"], declared["durable"]) == ("/", True)
    (deleted,) = told(broker, "queue_deleted", queue="brief")
    assert deleted["at_ms"] >= declared["at_ms"]
    opened = told(broker, "connection_opened", protocol="AMQP 0-9-1")[0]
    assert (opened["user"], opened["vhost"]) == ("guest", "/")
    assert "given_name" not in opened, "this client gives its connection none"
    name = opened["connection"]
    (closed,) = told(broker, "connection_closed", connection=name)
    assert closed["lasted_ms"] == closed["at_ms"] - opened["at_ms"]
    assert told(broker, "channel_opened", connection=name, channel=1)
    assert len(told(broker, "channel_closed", connection=name)) == 1


def test_the_name_that_a_client_gives_its_connection_is_told(broker: LiveBroker) -> None:
    parameters = pika.URLParameters(broker.url)
    parameters.client_properties = {"connection_name": "billing-7"}
    pika.BlockingConnection(parameters).close()
    (opened,) = told(broker, "connection_opened", given_name="billing-7")
    assert opened["user"] == "guest"
    assert f"({opened['connection']} - billing-7): user 'guest'" in broker.output()


def test_rates_add_up_to_what_was_done(
    broker: LiveBroker, connection: pika.BlockingConnection
) -> None:
    channel = connection.channel()
    channel.queue_declare("rates")
    for _ in range(7):
        channel.basic_publish("", "rates", b"body")
    first, *_ = [channel.basic_get("rates") for _ in range(3)]
    channel.basic_ack(first[0].delivery_tag)
    connection.close()  # gives two back
    until = time.monotonic() + PATIENCE_S
    while True:
        rates = told(broker, "queue_rates", queue="rates")
        sums = {
            name: sum(rate[name] for rate in rates)
            for name in ("published", "delivered", "acked", "redelivered")
        }
        if sums["redelivered"] or time.monotonic() > until:
            break
    assert sums == {"published": 7, "delivered": 3, "acked": 1, "redelivered": 2}
    assert (rates[-1]["ready"], rates[-1]["unacked"]) == (6, 0)
    (acked,) = told(broker, "timing", queue="rates", outcome="acked")
    assert acked["enqueued_at_ms"] <= acked["delivered_at_ms"] <= acked["settled_at_ms"]
    assert "published_at_ms" not in acked  # its publisher did not say
    assert told(broker, "timing", 1, queue="rates", outcome="returned")


def test_what_the_publisher_says_of_the_time_is_told_with_its_step(
    broker: LiveBroker, connection: pika.BlockingConnection
) -> None:
    channel = connection.channel()
    channel.queue_declare("times")
    channel.basic_publish("", "times", b"", pika.BasicProperties(timestamp=1_700_000_000))
    exact = pika.BasicProperties(headers={"timestamp_in_ms": 1_700_000_000_123}, timestamp=5)
    channel.basic_publish("", "times", b"", exact)
    channel.basic_publish("", "times", b"", pika.BasicProperties(headers={"timestamp_in_ms": "x"}))
    for _ in range(3):
        channel.basic_get("times", auto_ack=True)
    connection.close()
    timings = told(broker, "timing", 3, queue="times")
    said = [(one.get("published_at_ms"), one.get("precision_ms")) for one in timings]
    assert said == [(1_700_000_000_000, 1000), (1_700_000_000_123, 1), (None, None)]
    assert {one["outcome"] for one in timings} == {"auto"}


def test_alarms_and_the_states_they_cause(
    broker: LiveBroker, connection: pika.BlockingConnection
) -> None:
    management = Management(broker.http_url, "guest", "guest")
    path = "/api/penstock/vm-memory-high-watermark"
    channel = connection.channel()
    channel.queue_declare("held")
    channel.basic_publish("", "held", b"so it is a publisher")
    connection.process_data_events(2.5)  # it has been seen in a state
    management.put(path, b'{"fraction": 0}')
    told(broker, "alarm_set", resource="memory")
    told(broker, "connection_state", state="blocked")
    told(broker, "node", blocked="low on memory")
    management.put(path, b'{"fraction": 0.4}')
    (cleared,) = told(broker, "alarm_cleared", resource="memory")
    (was_set,) = told(broker, "alarm_set", resource="memory")
    assert abs(cleared["at_ms"] - was_set["at_ms"] - cleared["lasted_ms"]) <= 50
    connection.close()


def test_only_those_who_may_monitor_read_the_log(broker: LiveBroker) -> None:
    management = Management(broker.http_url, "guest", "guest")
    definitions = management.get("/api/definitions")
    guest = definitions["users"][0]
    plain = guest | {"name": "plain", "tags": []}
    rights = {"vhost": "/", "configure": "", "write": "", "read": "^mine$"}
    added = {"users": [plain], "permissions": [rights | {"user": "plain"}]}
    management.post("/api/definitions", json.dumps(added).encode())
    url = broker.url.replace("guest:guest@", "plain:guest@")
    with logged_in(EventClient, url) as events, pytest.raises(Refused, match="monitoring"):
        events.files()
    with logged_in(Connection, url) as line:
        mine = Report(name="plain's", state="running", queues=("mine",))
        line.ask(encode_report(mine), decode_reported)
        yours = encode_report(Report(name="spy", state="running", queues=("yours",)))
        with pytest.raises(Refused, match="refused for user 'plain'"):
            line.ask(yours, decode_reported)


@pytest.mark.parametrize(
    "name", ["../definitions.db", "lock", "events-00000099.jsonl", "events-1.jsonl/../x"]
)
def test_only_files_of_the_log_are_handed_out(broker: LiveBroker, name: str) -> None:
    with logged_in(EventClient, broker.url) as client, pytest.raises(Refused, match="no file"):
        client.read(name, 0)


def test_reports_are_listed_by_the_api_and_the_command(
    broker: LiveBroker, connection: pika.BlockingConnection
) -> None:
    channel = connection.channel()
    channel.queue_declare("lake")
    for _ in range(5):
        channel.basic_publish("", "lake", b"body")
    connection.close()
    reporter = Reporter(broker.url, name="to the lake", kind="archive", queues=["lake"])
    reporter.tell(state="running", run="r1")
    reporter.tell(state="running", run="r1", batch=0, rows=100, duration_ms=1000, lag=3)
    reporter.tell(state="failed", run="r1", error="Boom\nand pages of stack\x1b[2J")
    reporter.close()
    assert (reporter.reported, reporter.last_error) == (3, "")
    rows = Management(broker.http_url, "guest", "guest").get("/api/penstock/pipelines")
    (row,) = [one for one in rows if one["name"] == "to the lake"]
    assert (row["state"], row["user"], row["queues"]) == ("failed", "guest", ["lake"])
    assert (row["batch"], row["rows"], row["depth"], row["rows_per_s"]) == (0, 100, 5, 100.0)
    text = listed(broker)
    assert "to the lake" in text
    assert "Boom" in text
    assert "pages of stack" not in text
    assert "\x1b" not in text
    names = [one["name"] for one in json.loads(listed(broker, "-o", "json"))]
    assert names == [one["name"] for one in rows]


def listed(broker: LiveBroker, *more: str) -> str:
    return subprocess.run(
        [*(sys.executable, "-m", "penstock", "pipeline", "list"), "--url", broker.http_url, *more],
        env=os.environ | {"PYTHONPATH": str(REPOSITORY / "src")},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_a_reporter_whose_broker_is_gone_never_waits_and_never_raises() -> None:
    reporter = Reporter("amqp://guest:guest@127.0.0.1:1/%2f", name="lonely")
    begun = time.monotonic()
    for number in range(1000):
        reporter.tell(state="running", batch=number, rows=1)
    assert time.monotonic() - begun < 1
    reporter.close()
    assert reporter.reported == 0
    assert "cannot connect" in reporter.last_error


def test_a_broker_without_a_log_writes_none_and_says_so(tmp_path: Path) -> None:
    with (
        LiveBroker(tmp_path, ("--event-log", "false")) as quiet,
        logged_in(EventClient, quiet.url) as client,
        pytest.raises(Refused, match="event_log"),
    ):
        client.files()
    assert list(tmp_path.rglob("events*")) == []


def test_the_last_words_are_written_and_a_restart_begins_a_new_file(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    broker = LiveBroker(tmp_path / "data", ("--event-log-dir", str(elsewhere)))
    for _ in range(2):
        with broker:
            pass
    lines = [read_line(file.read_bytes().splitlines()[-1]) for file in event_files(elsewhere)]
    assert [line["event"] for line in lines if line] == ["node_stopped", "node_stopped"]
