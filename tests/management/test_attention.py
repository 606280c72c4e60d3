"""What needs a person: the rules on numbers, and the answer of a broker beside its clients."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pika
import pytest

from penstock.management.facts.sessions import ListenerFacts
from penstock.management.rows import attention
from penstock.management.rows.attention import QueueNow, QueueTrend
from penstock.management.statistics.kinds import CLUSTER
from penstock.management.statistics.rings import Tracks
from tests.helpers.mirrored import A, B, copy, down, facts
from tests.management.conftest import Served
from tests.management.test_counting import Sampled

PATH = "/api/penstock/attention"
QUIET = QueueTrend(ready=0, grown=0, unacked=0, unacked_grown=0, held=0, acked=0, buried=0)
HERE = QueueNow(
    consumers=1, is_here=True, is_stream=False, expires=False, dead_letter_exchange=None
)
ALONE = HERE._replace(consumers=0)


def said(trend: QueueTrend, now: QueueNow, vhost: str = "/") -> list[str]:
    return [one.sentence for one in attention.queue_findings(vhost, "q", trend, now)]


def test_a_queue_that_grows_without_a_consumer() -> None:
    grows = QUIET._replace(ready=12_345, grown=600)
    (text,) = said(grows, ALONE)
    assert text == (
        "Queue 'q' has no consumer and grew by 600 to 12,345 messages in the last 5 minutes."
    )
    assert said(grows, HERE) == []
    assert said(grows, ALONE._replace(is_stream=True)) == []
    assert said(grows, ALONE._replace(expires=True)) == []  # a delay
    assert said(grows._replace(grown=9), ALONE) == []
    (text,) = said(grows, ALONE, "shop")
    assert text.startswith("Queue 'q' in virtual host 'shop' has no consumer")


def test_consumers_that_do_not_acknowledge() -> None:
    held = QUIET._replace(unacked=20, held=20)
    (text,) = said(held, HERE)
    assert text == (
        "Queue 'q' has 20 delivered messages and got no acknowledgement in the last 5 minutes."
    )
    assert said(held._replace(acked=1), HERE) == []
    assert said(held, HERE._replace(is_here=False)) == []  # only the master counts them
    piles = QUIET._replace(unacked=1200, unacked_grown=1100, held=100, acked=7)
    (text,) = said(piles, HERE)
    assert "went from 100 to 1,200 unacknowledged messages" in text
    assert said(piles._replace(unacked_grown=500), HERE) == []
    assert said(piles._replace(held=0), HERE) == []  # a consumer has begun


def test_dead_letters_that_arrive() -> None:
    (text,) = said(QUIET._replace(buried=3), HERE._replace(dead_letter_exchange="dead"))
    assert text == (
        "Queue 'q' dead-lettered 3 messages to the exchange 'dead' in the last 5 minutes."
    )
    delay = ALONE._replace(expires=True, dead_letter_exchange="dead")
    assert said(QUIET._replace(buried=3), delay) == []


def test_connections_that_come_and_go() -> None:
    tracks = Tracks(CLUSTER, 5.0)
    zero = tuple(0 for _ in CLUSTER.names)
    for step, count in enumerate((0, 100, 200)):
        tracks.begin(1_795_194_735 + 5 * step)
        numbers = list(zero)
        numbers[attention.OPENED] = numbers[attention.CLOSED] = count
        numbers[0] = 1
        tracks.record((), tuple(numbers))
    (found,) = attention.churn_findings(tracks, 4)
    assert found.sentence == (
        "200 connections were opened and 200 closed in the last minute; 4 are open."
    )
    assert list(attention.churn_findings(tracks, 2000)) == []


def test_a_mirror_behind_and_a_queue_that_is_down() -> None:
    behind = facts(copy(A, "master", True), copy(B, "mirror", False))
    (found,) = attention.mirror_findings("/", "q", behind)
    assert found.sentence == f"The mirror of queue 'q' on {B} is not synchronised."
    assert list(attention.mirror_findings("/", "q", facts())) == []
    (found,) = attention.mirror_findings("/", "q", down("no copy", {}))
    assert found.is_alarm
    assert found.sentence.startswith("Queue 'q' is down: ")


def test_a_certificate_that_ends() -> None:
    tls = SimpleNamespace(certificates={"cert": [SimpleNamespace(ends_s=1_800_000_000)]})
    listener = ListenerFacts("amqp/ssl", "::", 5671, tls)  # type: ignore[arg-type]

    def at(seconds: int) -> list[Any]:
        return list(attention.certificate_findings([listener], (1_800_000_000 - seconds) * 1000))  # type: ignore[arg-type]

    assert at(31 * 86_400) == []
    (soon,) = at(12 * 86_400)
    assert soon.sentence == (
        "A certificate of the listener amqp/ssl on port 5671 ends in 12 d 0 h"
        " (2027-01-15 08:00:00)."
    )
    (over,) = at(-5)
    assert over.is_alarm
    assert "has ended" in over.sentence


def test_memory_disk_and_other_nodes() -> None:
    fine: dict[str, Any] = {"alarm": False, "seconds_to_alarm": None}
    row = {"memory": fine | {"alarm": True}, "disk": fine | {"seconds_to_alarm": 7200}}
    memory, disk = attention.forecast_findings(row, "n1")
    assert (memory.is_alarm, disk.is_alarm) == (True, False)
    assert disk.sentence == "At the current rate the disk alarm of n1 is set in 2 h 0 min."
    assert list(attention.forecast_findings({"memory": fine, "disk": fine}, "n1")) == []
    nodes: list[dict[str, object]] = [
        {"name": "n2", "running": False},
        {"name": "n3", "running": True},
    ]
    away, short = attention.elsewhere_findings(nodes, {"n3": ["disk"]})
    assert away.sentence == "Node n2 does not run."
    assert short.sentence == "The disk alarm of n3 is set: publishers wait."


def test_a_publisher_that_is_held() -> None:
    wait = {
        "kind": "connection", "name": "c1", "waits_for": "queue 'q' in vhost '/'",
        "because": "its share is used up", "share": 0.8,
    }  # fmt: skip
    flow = {"window_s": 10, "waits": [wait, wait | {"name": "c2"}, wait | {"share": 0.2}]}
    (found,) = attention.held_findings(flow)
    assert found.sentence == (
        "Publisher c1 waited 80 % of the last 10 s for queue 'q' in vhost '/':"
        " its share is used up; 1 other publisher waited as well."
    )
    (found,) = attention.held_findings({"window_s": 10, "waits": [wait | {"share": None}]})
    assert found.sentence.startswith("Publisher c1 waits for queue 'q'")


def test_a_link_that_does_not_run() -> None:
    rows: list[dict[str, object]] = [
        {"name": "s", "vhost": "/", "state": "running"},
        {"name": "t", "vhost": "/", "state": "terminated", "reason": "refused"},
    ]
    (found,) = attention.link_findings("Shovel", rows)
    assert found.sentence == "Shovel 't' in virtual host '/' is terminated: refused."
    (static,) = attention.link_findings("Shovel", [{"name": "s", "state": "terminated"}])
    assert (static.sentence, static.vhost) == ("Shovel 's' is terminated.", None)


# -- over HTTP -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sampled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sampled]:
    running = Sampled(tmp_path_factory.mktemp("node"))
    yield running
    running.stop()


def asked(served: Served, user: str = "guest") -> Any:
    """Without the pause between two looks."""
    for one in served.management._context.endpoints:
        if hasattr(one, "_due_s"):
            one._due_s = 0.0
    return served.get(PATH, user)


def test_a_broker_says_what_needs_a_person(sampled: Sampled) -> None:
    first = asked(sampled)
    assert first["findings"] == []
    assert first["not_judged"] == ["queues and connections: the first sample is not taken yet"]
    sampled.walk()
    assert asked(sampled) == {"findings": [], "left_out": 0, "not_judged": []}
    connection = pika.BlockingConnection(
        pika.ConnectionParameters("127.0.0.1", sampled.amqp_port, heartbeat=0)
    )
    channel = connection.channel()
    channel.confirm_delivery()
    channel.exchange_declare("dead", "fanout")
    channel.queue_declare("grows", durable=True)
    channel.queue_declare("dies", arguments={"x-dead-letter-exchange": "dead"})
    for name in ("grows", "dies"):
        for _ in range(12):
            channel.basic_publish("", name, b"m")
    for _ in range(5):
        method, _, _ = channel.basic_get("dies")
        channel.basic_reject(method.delivery_tag, requeue=False)
    channel.basic_get("dies")
    connection.process_data_events()
    for _ in range(2):
        sampled.walk()
    found = asked(sampled)["findings"]
    by_kind = {(one["kind"], one["page"][-1]): one for one in found}
    grows = by_kind["no consumer", "grows"]
    assert grows["figure"] == 12
    assert (grows["page"], grows["command"]) == (["queues", "/", "grows"], "queue show grows")
    assert by_kind["dead letters", "dies"]["figure"] == 5
    stats = sampled.get("/api/queues/%2F/dies")["message_stats"]
    assert stats["dead_lettered"] == 5
    assert "dead_lettered" not in sampled.get("/api/queues/%2F/grows")["message_stats"]
    assert all(kind != "unacknowledged" for kind, _ in by_kind)
    for _ in range(61):
        sampled.walk()
    kinds = {one["kind"] for one in asked(sampled)["findings"]}
    assert kinds == {"unacknowledged"}  # nothing has grown for five minutes, and one is held
    # A user of no open virtual host sees none of it.
    sampled.add_user("mon", "m", ["management"])
    assert asked(sampled, "mon")["findings"] == []
    connection.close()


def test_an_alarm_is_first(sampled: Sampled) -> None:
    path = "/api/penstock/vm-memory-high-watermark"
    json = {"Content-Type": "application/json"}
    sampled.request("PUT", path, b'{"fraction": 0}', json)
    try:
        found = asked(sampled)["findings"]
    finally:
        sampled.request("PUT", path, b'{"fraction": 0.4}', json)
    assert found[0]["is_alarm"]
    assert found[0]["sentence"] == "The memory alarm of penstock@test is set: publishers wait."
