"""Tools that others wrote for RabbitMQ's management API, unmodified, against a running Penstock."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
from collections.abc import Iterator
from typing import Any

import pika
import pytest

from tests.helpers.live_broker import LiveBroker

NAGIOS = "not installed: Debian's nagios-plugins-rabbitmq (apt-get install nagios-plugins-rabbitmq)"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveBroker]:
    with LiveBroker(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture(scope="module")
def channel(broker: LiveBroker) -> Iterator[Any]:
    """Of a client with a queue ``jobs`` of two messages, and one that it holds."""
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare("jobs", durable=True)
    for _ in range(3):
        channel.basic_publish("", "jobs", b"do it")
    channel.basic_get("jobs")
    yield channel
    connection.close()


class TestFlower:
    """Celery's monitor asks for the queues of its workers."""

    @pytest.mark.parametrize("vhost", ["/", ""])
    def test_it_sees_queues(self, broker: LiveBroker, channel: Any, vhost: str) -> None:
        import flower.utils.broker as flower

        api = f"http://guest:guest@127.0.0.1:{broker.http_port}/api/"
        asker = flower.RabbitMQ(f"amqp://guest:guest@127.0.0.1/{vhost}", api)
        (row,) = asyncio.run(asker.queues(["jobs", "nobodys"]))
        assert (row["name"], row["messages"], row["consumers"]) == ("jobs", 3, 0)
        assert (row["messages_ready"], row["messages_unacknowledged"]) == (2, 1)


class TestAmqpStorm:
    @pytest.fixture(scope="class")
    @classmethod
    def api(cls, broker: LiveBroker) -> Iterator[Any]:
        import amqpstorm.management as storm

        with storm.ManagementApi(broker.http_url, "guest", "guest") as api:
            yield api

    def test_it_looks_around(self, api: Any, channel: Any) -> None:
        assert api.aliveness_test("/") == {"status": "ok"}
        assert api.healthchecks.get() == {"status": "ok"}
        (node,) = api.nodes()
        assert api.healthchecks.get(node["name"]) == {"status": "ok"}
        assert api.node(node["name"])["os_pid"] == node["os_pid"]
        assert api.cluster_name() == {"name": node["name"]}
        assert api.whoami() == {"name": "guest", "tags": ["administrator"]}
        assert api.overview()["object_totals"]["queues"] >= 1
        (top,) = api.top()
        assert top["node"] == node["name"]
        assert any(row["pid"] == node["os_pid"] for row in top["processes"])
        assert [row["name"] for row in api.queue.list(name="jobs")] == ["jobs"]
        assert api.queue.get("jobs")["messages"] == 3
        (connection,) = api.connection.list()
        assert api.connection.get(connection["name"])["user"] == "guest"
        (known,) = api.channel.list()
        assert api.channel.get(known["name"])["messages_unacknowledged"] == 1

    def test_it_declares_publishes_and_gets(self, api: Any) -> None:
        api.exchange.declare("storm", "topic", durable=True)
        api.exchange.declare("behind", "fanout")
        api.queue.declare("stormy", arguments={"x-max-length": 5})
        api.queue.bind("stormy", "storm", "a.*")
        api.exchange.bind("behind", "storm", "#")
        assert {row["routing_key"] for row in api.queue.bindings("stormy")} == {"a.*", "stormy"}
        assert len(api.exchange.bindings("storm")) == 2
        sent = api.basic.publish("body", "a.b", "storm", properties={"headers": {"n": 1}})
        assert sent == {"routed": True}
        (got,) = api.basic.get("stormy")
        assert (got.body, got.properties["headers"]) == ("body", {"n": 1})
        api.basic.publish("body", "a.b", "storm")
        api.queue.purge("stormy")
        assert api.queue.get("stormy")["messages"] == 0
        (bound,) = [row for row in api.queue.bindings("stormy") if row["source"] == "storm"]
        api.queue.unbind("stormy", "storm", "a.*", properties_key=bound["properties_key"])
        api.queue.delete("stormy")
        for name in ("storm", "behind"):
            api.exchange.delete(name)

    def test_it_administrates(self, api: Any) -> None:
        api.virtual_host.create("weather")
        api.user.create("storm", "secret", tags="management")
        api.user.set_permission("storm", "weather", "^a", ".*", ".*")
        assert api.user.get_permission("storm", "weather")["configure"] == "^a"
        assert [row["vhost"] for row in api.user.get_permissions("storm")] == ["weather"]
        users = {row["user"] for row in api.virtual_host.get_permissions("weather")}
        assert users == {"guest", "storm"}
        api.user.delete_permission("storm", "weather")
        api.user.create("calm", "secret")
        api.user.delete(["storm", "calm"])
        assert [row["name"] for row in api.user.list()] == ["guest"]
        api.virtual_host.delete("weather")
        assert [row["name"] for row in api.virtual_host.list()] == ["/"]


class TestPyRabbit:
    """Spells an empty object as an empty list, numbers as text, and says things twice."""

    @pytest.fixture
    def client(self, broker: LiveBroker) -> Any:
        from pyrabbit2 import api

        return api.Client(f"127.0.0.1:{broker.http_port}", "guest", "guest")

    def test_a_round(self, client: Any, channel: Any) -> None:
        assert client.is_alive()
        assert client.get_whoami()["name"] == "guest"
        assert client.get_overview()["rabbitmq_version"].startswith("3.10")
        assert client.get_nodes()[0]["running"] is True
        assert client.get_extensions() == [{"javascript": "dispatcher.js"}]
        assert client.get_cluster_name()["name"] == client.get_nodes()[0]["name"]
        client.create_vhost("rabbits")
        client.create_user("rabbit", "carrot", tags="management")
        client.set_vhost_permissions("rabbits", "rabbit", ".*", ".*", ".*")
        assert client.get_permission("rabbits", "rabbit")["read"] == ".*"
        client.create_queue("rabbits", "hutch", durable=True)
        client.create_exchange("rabbits", "field", "direct")
        client.create_binding("rabbits", "field", "hutch", "hop")
        assert client.publish("rabbits", "field", "hop", "clover") is True
        assert client.get_queue_depth("rabbits", "hutch") == 1
        assert client.get_messages("rabbits", "hutch")[0]["payload"] == "clover"
        client.create_policy(
            "rabbits",
            "few",
            pattern="^h",
            definition={"max-length": 5},
            **{"apply-to": "queues", "priority": 0},
        )
        assert client.get_policy("rabbits", "few")["definition"] == {"max-length": 5}
        client.delete_policy("rabbits", "few")
        assert client.get_all_shovels() == []
        assert "rabbits" in [row["name"] for row in client.get_definitions()["vhosts"]]
        client.delete_user("rabbit")
        client.delete_vhost("rabbits")
        assert client.get_vhost_names() == ["/"]


@pytest.mark.skipif(shutil.which("check_rabbitmq_overview") is None, reason=NAGIOS)
class TestNagios:
    """Debian's plug-ins; the first word of what they print is what an operator is called for."""

    def check(self, broker: LiveBroker, name: str, *arguments: str) -> tuple[int, str]:
        done = subprocess.run(
            [f"check_rabbitmq_{name}", "-H", "127.0.0.1", f"--port={broker.http_port}", *arguments],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        return done.returncode, done.stdout.strip()

    def test_all_is_well(self, broker: LiveBroker, channel: Any) -> None:
        host = socket.gethostname()
        asked: list[tuple[str, ...]] = [
            ("aliveness",),
            ("connections",),
            ("objects",),
            ("overview",),
            ("partition", "-n", host),
            ("queue", "--queue=jobs"),
            ("server", "-n", host),
            ("watermark", "-n", host),
        ]
        for name, *arguments in asked:
            code, said = self.check(broker, name, *arguments)
            assert (code, " OK " in said) == (0, True), (name, code, said)

    def test_numbers_arrive(self, broker: LiveBroker, channel: Any) -> None:
        code, said = self.check(broker, "queue", "--queue=jobs", "-w", "2", "-c", "100")
        assert (code, "messages WARNING (3)" in said) == (1, True), said
        code, said = self.check(broker, "queue", "--queue=nobodys")
        assert (code, "Not Found" in said) == (2, True), said
