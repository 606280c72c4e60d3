"""Pages for Prometheus on a live broker: judged by its own tool, and by RabbitMQ's dashboards."""

from __future__ import annotations

import json
import re
import socket
import struct
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pika
import pytest

from tests.helpers.broker_process import free_port
from tests.helpers.live_broker import REPOSITORY, LiveBroker
from tests.helpers.promtool import check_metrics, check_rules

MONITORING = REPOSITORY / "monitoring"
DASHBOARD_FAMILIES: dict[str, Any] = json.loads(
    Path(__file__).with_name("dashboard_families.json").read_text()
)
DETAILS = "/metrics/detailed?family=queue_coarse_metrics&family=channel_queue_metrics&vhost=/"
AUTHORIZED = {"Authorization": "Basic Z3Vlc3Q6Z3Vlc3Q="}
MESSAGE = 2
OURS = re.compile(r"\b(?:rabbitmq|penstock)_[a-z0-9_]+")


class Scraped:
    """A broker with some traffic behind it, and its ports for Prometheus."""

    def __init__(self, broker: LiveBroker, port: int) -> None:
        self.broker = broker
        self.port = port

    def get(
        self, path: str, port: int = 0, headers: dict[str, str] | None = None
    ) -> tuple[int, str]:
        connection = HTTPConnection("127.0.0.1", port or self.port, timeout=10)
        connection.request("GET", path, headers=headers or {})
        answer = connection.getresponse()
        status, body = answer.status, answer.read().decode()
        connection.close()
        return status, body

    def page(self, path: str = "/metrics") -> str:
        status, body = self.get(path)
        assert status == 200, body
        return body


def speak_nsq(port: int) -> None:
    """Two messages, of which a channel takes one."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as sock:
        line = sock.makefile("rwb")
        line.write(b"  V2SUB topic channel\n")
        for _ in range(2):
            line.write(b"PUB topic\n\x00\x00\x00\x04body")
        line.write(b"RDY 1\n")
        line.flush()
        while True:
            size, kind = struct.unpack(">II", line.read(8))
            rest = line.read(size - 4)
            if kind == MESSAGE:
                line.write(b"FIN " + rest[10:26] + b"\nRDY 0\nCLS\n")
                line.flush()
            elif rest == b"CLOSE_WAIT":
                return


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    port = free_port()
    directory = tmp_path_factory.mktemp("broker")
    nsq_port = free_port()
    nsq_http_port = free_port()
    words = (
        *("--prometheus-port", str(port), "--nsq-port", str(nsq_port)),
        *("--nsq-http-port", str(nsq_http_port)),
    )
    with LiveBroker(directory, words) as broker:
        speak_nsq(nsq_port)
        body = urlopen(f"http://127.0.0.1:{nsq_http_port}/pub?topic=topic", b"body").read()
        assert body == b"OK"
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        channel: Any = connection.channel()
        channel.queue_declare('a "quoted" \\ queue', durable=True)
        channel.queue_declare("dying", arguments={"x-max-length": 2})
        channel.confirm_delivery()
        lasting = pika.BasicProperties(delivery_mode=2)
        for _ in range(5):
            channel.basic_publish("", 'a "quoted" \\ queue', b"body", lasting)
            channel.basic_publish("", "dying", b"body")
        got, _, _ = channel.basic_get('a "quoted" \\ queue')
        channel.basic_ack(got.delivery_tag)
        channel.queue_declare("dying", passive=True)
        yield Scraped(broker, port)
        connection.close()


def samples(page: str) -> dict[str, dict[str, float]]:
    """By family, then by what stands between the braces."""
    found: dict[str, dict[str, float]] = {}
    for line in page.splitlines():
        if not line.startswith("#"):
            name, labels, value = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line).groups()  # type: ignore[union-attr]
            found.setdefault(name, {})[labels or ""] = float(value)
    return found


@pytest.mark.parametrize("path", ["/metrics", "/metrics/per-object", DETAILS])
def test_prometheus_finds_nothing_wrong(scraped: Scraped, path: str) -> None:
    assert check_metrics(scraped.page(path).encode()) == ""


def test_what_rabbitmqs_dashboards_ask_for_is_there(scraped: Scraped) -> None:
    page = scraped.page()
    found = samples(page)
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", page, re.MULTILINE))
    for name, expected in DASHBOARD_FAMILIES.items():
        assert types[name] == expected["type"], name
        for labels in found[name]:
            names = set(re.findall(r'(\w+)="', labels))
            assert names >= set(expected["labels"]), name
            if name != "rabbitmq_build_info":
                assert names == set(expected["labels"]), name


def test_numbers_are_those_of_the_clients(scraped: Scraped) -> None:
    found = samples(scraped.page())
    amqp = 'protocol="amqp091"'
    assert found["rabbitmq_global_messages_received_confirm_total"][amqp] == 10
    assert found["rabbitmq_global_messages_confirmed_total"][amqp] == 10
    nsq = 'protocol="nsq"'
    assert found["rabbitmq_global_messages_received_total"][nsq] == 3
    assert found["rabbitmq_global_messages_routed_total"][nsq] == 3
    nsq_classic = f'{nsq},queue_type="rabbit_classic_queue"'
    assert found["rabbitmq_global_messages_acknowledged_total"][nsq_classic] == 1
    assert found["penstock_e2e_seconds_count"][""] >= 1
    assert found["rabbitmq_global_publishers"][amqp] == 1
    classic = f'{amqp},queue_type="rabbit_classic_queue"'
    assert found["rabbitmq_global_messages_acknowledged_total"][classic] == 1
    assert found["rabbitmq_global_messages_delivered_get_manual_ack_total"][classic] == 1
    dropped = found["rabbitmq_global_messages_dead_lettered_maxlen_total"]
    assert dropped['queue_type="rabbit_classic_queue",dead_letter_strategy="disabled"'] == 3
    assert found["penstock_messages_died_total"]['reason="maxlen"'] == 3
    assert found["rabbitmq_queue_messages_ready"][""] == 8
    assert found["rabbitmq_queue_disk_writes_total"][""] == 8
    assert found["rabbitmq_queues_declared_total"][""] == 3
    assert found["rabbitmq_connections"][""] == 1
    assert found["rabbitmq_auth_attempts_succeeded_total"][amqp] >= 1
    assert found["rabbitmq_process_open_tcp_sockets"][""] == 1
    assert found["rabbitmq_process_resident_memory_bytes"][""] > 1_000_000
    for what in ("write", "sync"):
        count = found[f"rabbitmq_io_{what}_ops_total"][""]
        assert 0 < found[f"rabbitmq_io_{what}_time_seconds_total"][""] < 10 * count
    assert found["penstock_confirm_latency_seconds_count"][""] >= 1
    assert sum(found["penstock_vq_messages"].values()) == 8


def test_every_object_has_its_line_whatever_its_name(scraped: Scraped) -> None:
    found = samples(scraped.page("/metrics/per-object"))
    by_queue = found["rabbitmq_queue_messages_ready"]
    assert by_queue[r'vhost="/",queue="a \"quoted\" \\ queue"'] == 4
    assert by_queue['vhost="/",queue="dying"'] == 2
    (published,) = found["rabbitmq_channel_messages_published_total"].values()
    assert published == 10


def test_details_are_those_asked_for(scraped: Scraped) -> None:
    found = samples(scraped.page(DETAILS))
    assert found["rabbitmq_detailed_queue_messages_ready"]['vhost="/",queue="dying"'] == 2
    assert "rabbitmq_detailed_channel_get_ack_total" in found
    assert "rabbitmq_detailed_queue_messages_ram" not in found
    elsewhere = samples(scraped.page("/metrics/detailed?family=queue_coarse_metrics&vhost=other"))
    assert "rabbitmq_detailed_queue_messages_ready" not in elsewhere


def test_families_that_are_not_here_are_passed_over(scraped: Scraped) -> None:
    more = "".join(f"&family={name}" for name in ("nonsense", "ra_metrics", "", "global_counters"))
    assert samples(scraped.page(DETAILS + more)).keys() == samples(scraped.page(DETAILS)).keys()
    assert scraped.get("/metrics/detailed?family=")[0] == 200


def test_what_rabbitmq_tells_of_the_cluster_among_the_details(scraped: Scraped) -> None:
    names = ("vhost_status", "exchange_names", "exchange_bindings", "auth_attempt_metrics")
    page = "/metrics/detailed?" + "&".join(f"family={name}" for name in names)
    found = samples(scraped.page(page))
    assert found["rabbitmq_cluster_vhost_status"]['vhost="/"'] == 1
    fanout = 'vhost="/",exchange="amq.fanout",type="fanout"'
    assert found["rabbitmq_cluster_exchange_name"][fanout] == 1
    assert found["rabbitmq_cluster_exchange_bindings"][fanout] == 0
    names = found["rabbitmq_cluster_exchange_name"]
    assert not [name for name in names if 'exchange=""' in name or "amq.rabbitmq" in name]
    attempts = found["rabbitmq_detailed_auth_attempts_total"]
    assert attempts['protocol="amqp091"'] >= 1
    assert found["rabbitmq_detailed_auth_attempts_failed_total"].keys() == attempts.keys()
    elsewhere = samples(scraped.page(page + "&vhost=nowhere"))
    assert "rabbitmq_cluster_exchange_name" not in elsewhere


def test_the_management_port_asks_who_it_is(scraped: Scraped) -> None:
    http_port = scraped.broker.http_port
    assert scraped.get("/metrics", http_port)[0] == 401
    status, body = scraped.get("/metrics", http_port, AUTHORIZED)
    assert status == 200
    assert set(samples(body)) == set(samples(scraped.page()))
    assert f"metrics     http://127.0.0.1:{scraped.port}/metrics" in scraped.broker.output()


def test_alerts_are_rules_that_prometheus_takes() -> None:
    assert check_rules(MONITORING / "alerts.yml") == ""


@pytest.mark.parametrize("file", ["alerts.yml", "grafana/penstock.json"])
def test_what_is_watched_exists(scraped: Scraped, file: str) -> None:
    page = scraped.page()
    # A family that has no samples yet, as those of pipelines, is announced all the same.
    found = set(samples(page)) | set(re.findall(r"^# TYPE (\S+)", page, re.MULTILINE))
    named = set(OURS.findall((MONITORING / file).read_text()))
    assert named - found - {"rabbitmq_cluster", "rabbitmq_node"} == set()
    assert len(named) > 10


def test_the_dashboard_is_one_grafana_loads() -> None:
    dashboard = json.loads((MONITORING / "grafana/penstock.json").read_text())
    panels = dashboard["panels"]
    ids = [panel["id"] for panel in panels]
    assert len(set(ids)) == len(ids)
    assert [one["title"] for one in panels if one["type"] == "row"] == [
        "Overview",
        "Flow and credit",
        "Storage",
        "Pipelines",
    ]
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        if panel["type"] != "row":
            assert [target["expr"] for target in panel["targets"]]
            assert panel["datasource"]["uid"] == "${datasource}"
        if panel["type"] == "timeseries":  # what Grafana's schema asks for, and names of lines
            assert {*panel["options"]["legend"]} >= {"displayMode", "placement", "calcs"}
            assert panel["options"]["legend"]["showLegend"] is True
            assert {*panel["options"]["tooltip"]} == {"mode", "sort"}
    assert {one["name"] for one in dashboard["templating"]["list"]} >= {"datasource", "node"}
