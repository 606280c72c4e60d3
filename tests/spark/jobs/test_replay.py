"""Replays on a real broker: archived, sent again, each message once and in order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pika
import pytest

from tests.helpers.broker_process import BrokerProcess
from tests.spark.spark_tools import Pipelines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

COUNT = 60


@pytest.fixture(scope="module")
def lake(
    spark: SparkSession, broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """An archive of messages with all kinds of properties, keys eu.* and us.*."""
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    channel.queue_declare("source", durable=True)
    channel.exchange_declare("events", "topic", durable=True)
    channel.queue_bind("source", "events", "#")
    channel.queue_declare("again", durable=True)
    channel.queue_declare("europe", durable=True)
    channel.queue_bind("europe", "events", "eu.#")
    channel.confirm_delivery()
    for number in range(COUNT):
        properties = pika.BasicProperties(
            content_type="text/plain",
            priority=number % 5,
            message_id=f"m{number}",
            timestamp=1_700_000_000 + number,
            headers={"number": number, "kind": "order", "CC": ["elsewhere"]},
        )
        key = "eu.de" if number % 2 else "us.ny"
        channel.basic_publish("events", key, b"%d" % number, properties)
    channel.queue_purge("europe")
    connection.close()
    home = tmp_path_factory.mktemp("replay")
    lake = home / "lake"
    options = ("--partition-by", "day", "--max-messages", "25", "--raw-properties")
    words = ("archive", "--queue", "source", "--to", str(lake), *options)
    assert Pipelines(home, spark).run(broker.url, *words).summary()["messages"] == COUNT
    return lake


def taken(url: str, queue: str) -> list[tuple[Any, Any, bytes]]:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    found = []
    while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
        found.append(got)
    connection.close()
    return found


def test_a_table_goes_to_a_queue_once_and_in_order(
    broker: BrokerProcess, lake: Path, pipelines: Pipelines
) -> None:
    name = f"of-{pipelines.home.name}"
    words = ("replay", "--from", str(lake), "--to-queue", "again", "--rate", "12/s", "--name", name)
    planned = pipelines.run(broker.url, *words, "--dry-run").summary()
    counts = planned["messages_in_time"], planned["messages"]
    assert (planned["dry_run"], counts) == (True, (COUNT, COUNT))
    some = pipelines.run(broker.url, *words, "--dry-run", "--where", "seq_id < 10")
    told = some.summary()
    assert (told["messages_in_time"], told["messages"]) == (COUNT, 10)
    assert "to: queue again\n" in some.stdout
    assert "messages: 10\n" in some.stdout
    done = pipelines.run(broker.url, *words).summary()
    assert (done["messages"], done["slices"], done["left"]) == (COUNT, 3, 0)
    assert done["seconds"] > 2 * 24 / 12, "the third slice had to wait"
    found = taken(broker.url, "again")
    assert [int(body) for _, _, body in found] == list(range(COUNT))
    _, properties, _ = found[7]
    assert (properties.message_id, properties.priority) == ("m7", 2)
    assert properties.headers == {
        "number": 7, "kind": "order",
        "x-replay-name": name, "x-original-seq": "7",
    }  # fmt: skip
    assert f"replay '{name}' is done" in pipelines.refused(broker.url, *words, code=1)
    assert taken(broker.url, "again") == []


@pytest.mark.long
def test_a_replay_goes_on_where_it_ended(
    broker: BrokerProcess, lake: Path, pipelines: Pipelines
) -> None:
    """As after a crash between the broker's commit and our note of it."""
    choice = ("--where", "routing_key like 'eu.%' and cast(cast(body as string) as int) < 40")
    name = f"of-{pipelines.home.name}"
    words = ("replay", "--from", str(lake), "--to-exchange", "events", "--rate", "5/s")
    words += ("--name", name)
    done = pipelines.run(broker.url, *words, *choice).summary()
    assert (done["messages"], done["slices"]) == (20, 2)
    plan = lake / "_penstock" / "replays" / name / "plan.json"
    noted = json.loads(plan.read_text())
    plan.write_text(json.dumps(noted | {"done": 1}))
    refused = pipelines.refused(broker.url, *words, *choice, code=1)
    assert "has sent 1 of 2 slices" in refused
    other = pipelines.refused(broker.url, *words, "--resume", code=1)
    assert "another choice" in other
    resumed = pipelines.run(broker.url, *words, *choice, "--resume").summary()
    assert (resumed["slices_before"], resumed["left"]) == (1, 0)
    found = taken(broker.url, "europe")
    assert [int(body) for _, _, body in found] == list(range(1, 40, 2))
    assert {method.routing_key for method, _, _ in found} == {"eu.de"}


@pytest.mark.parametrize(
    "words, complaint",
    [
        (["--to-queue", "a", "--to-exchange", "b"], "by one of --to-queue and --to-exchange"),
        (["--to-queue", "a", "--rate", "1/s", "--speed", "2x"], "exclude each other"),
        (["--to-queue", "a", "--rate", "soon"], "not a number above 0"),
        (["--to-queue", "a", "--since", "yesterday"], "not a time such as"),
        (["--to-queue", "a", "--routing-key", "k"], "belongs to --to-exchange"),
        (["--to-queue", "a", "--name", "../x"], "letters, digits"),
    ],
)
def test_wrong_usage_is_told(
    tmp_path: Path, pipelines: Pipelines, words: list[str], complaint: str
) -> None:
    given = ("replay", "--from", str(tmp_path), *words)
    assert complaint in pipelines.refused("amqp://127.0.0.1", *given, code=2)


@pytest.mark.long
def test_a_wrong_condition_is_told(broker: BrokerProcess, lake: Path, pipelines: Pipelines) -> None:
    words = ("replay", "--from", str(lake), "--to-queue", "again", "--where", "colour = 'red'")
    done = pipelines.run(broker.url, *words, code=1)
    assert "colour" in done.stderr.splitlines()[-2]
    assert done.stderr.splitlines()[-1] == "  fix: correct --where"


def test_no_table_is_told(tmp_path: Path, pipelines: Pipelines) -> None:
    words = ("replay", "--from", str(tmp_path), "--to-queue", "q")
    assert "holds no table" in pipelines.refused("amqp://127.0.0.1", *words, code=1)
