"""RabbitMQ's unmodified ``rabbitmqadmin`` drives a running Penstock."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.live_broker import LiveBroker
from tests.helpers.rabbitmqadmin import missing_reason, rabbitmqadmin

pytestmark = pytest.mark.skipif(missing_reason() is not None, reason=str(missing_reason()))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveBroker]:
    with LiveBroker(tmp_path_factory.mktemp("broker")) as running:
        yield running


def run(broker: LiveBroker, *arguments: str) -> str:
    done = rabbitmqadmin(broker.http_port, *arguments)
    assert done.returncode == 0, (arguments, done.stdout, done.stderr)
    return done.stdout.rstrip("\n")


def rows(broker: LiveBroker, what: str, *columns: str) -> list[list[str]]:
    told = run(broker, "-f", "tsv", "-q", "list", what, *columns)
    return [line.split("\t") for line in told.splitlines()]


def test_a_day_with_queues(broker: LiveBroker, tmp_path: Path) -> None:
    """Declared, bound, published to, read, purged, deleted."""
    declare = "declare"
    assert run(broker, declare, "queue", "name=jobs", "durable=true") == "queue declared"
    arguments = 'arguments={"x-max-length":10,"x-dead-letter-exchange":""}'
    run(broker, declare, "queue", "name=short", "durable=false", "auto_delete=false", arguments)
    assert run(broker, declare, "exchange", "name=work", "type=topic") == "exchange declared"
    binding = ("source=work", "destination=jobs", "routing_key=job.#")
    assert run(broker, declare, "binding", *binding) == "binding declared"
    assert rows(broker, "bindings", "source", "destination", "routing_key") == [
        ["", "jobs", "jobs"],
        ["", "short", "short"],
        ["work", "jobs", "job.#"],
    ]
    publish = ("publish", "exchange=work", "payload=do it")
    props = 'properties={"delivery_mode":2,"headers":{"n":1}}'
    assert run(broker, *publish, "routing_key=job.one", props) == "Message published"
    told = run(broker, *publish, "routing_key=nowhere")
    assert told == "Message published but NOT routed"
    got = json.loads(run(broker, "-f", "raw_json", "get", "queue=jobs", "count=1"))
    assert got[0]["payload"] == "do it"
    assert got[0]["properties"] == {"delivery_mode": 2, "headers": {"n": 1}}
    payload = tmp_path / "payload"
    get = ("get", "queue=jobs", "ackmode=ack_requeue_false", f"payload_file={payload}")
    run(broker, *get)
    assert payload.read_text() == "do it"
    run(broker, *publish, "routing_key=job.two")
    assert rows(broker, "queues", "name", "messages") == [["jobs", "1"], ["short", "0"]]
    assert run(broker, "purge", "queue", "name=jobs") == "queue purged"
    assert rows(broker, "queues", "name", "messages") == [["jobs", "0"], ["short", "0"]]
    delete = ("delete", "binding", "source=work", "destination=jobs", "destination_type=queue")
    assert run(broker, *delete, "properties_key=job.%23") == "binding deleted"
    assert run(broker, "delete", "queue", "name=jobs") == "queue deleted"
    assert run(broker, "delete", "exchange", "name=work") == "exchange deleted"
    assert rows(broker, "queues", "name") == [["short"]]
    run(broker, "delete", "queue", "name=short")


@pytest.mark.parametrize(
    "what", ["exchanges", "connections", "channels", "consumers", "nodes", "vhosts"]
)
def test_everything_there_is_a_list_of(broker: LiveBroker, what: str) -> None:
    for form in ("table", "long", "pretty_json", "kvp", "tsv", "bash"):
        run(broker, "-f", form, "list", what)
    run(broker, "-d", "3", "list", what)
    run(broker, "-S", "name", "-R", "list", what)


def test_showing(broker: LiveBroker) -> None:
    run(broker, "show", "overview")


def test_definitions_out_and_in(broker: LiveBroker, tmp_path: Path) -> None:
    file = str(tmp_path / "definitions.json")
    run(broker, "declare", "queue", "name=kept", "durable=true")
    run(broker, "export", file)
    run(broker, "delete", "queue", "name=kept")
    run(broker, "import", file)
    assert rows(broker, "queues", "name") == [["kept"]]
    run(broker, "delete", "queue", "name=kept")


def test_virtual_hosts_come_and_go(broker: LiveBroker) -> None:
    run(broker, "declare", "vhost", "name=other")
    assert ["other"] in rows(broker, "vhosts", "name")
    run(broker, "delete", "vhost", "name=other")
    assert rows(broker, "vhosts", "name") == [["/"]]


def test_refusals_are_told(broker: LiveBroker) -> None:
    run(broker, "declare", "queue", "name=same", "durable=true")
    done = rabbitmqadmin(broker.http_port, "declare", "queue", "name=same", "durable=false")
    assert done.returncode == 1
    assert "inequivalent arg 'durable' for queue 'same' in vhost '/'" in done.stderr
    done = rabbitmqadmin(broker.http_port, "delete", "queue", "name=nosuch")
    assert done.returncode == 1
    assert "Not found" in done.stderr
    run(broker, "delete", "queue", "name=same")
