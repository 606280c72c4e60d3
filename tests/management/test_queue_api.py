"""Pausing and peeking, over HTTP and from the command line, beside a client that works."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pika
import pytest
from click.testing import CliRunner

from penstock.cli.main import cli
from penstock.core.message import Message
from penstock.storage.definitions.definitions import Definitions
from tests.management.conftest import Served

Q = "/api/queues/%2F/q"


@pytest.fixture
def channel(served: Served) -> Iterator[Any]:
    connection = pika.BlockingConnection(
        pika.ConnectionParameters("127.0.0.1", served.amqp_port, heartbeat=0)
    )
    channel = connection.channel()
    channel.confirm_delivery()
    yield channel
    channel.queue_delete("q")
    connection.close()


def fill(channel: Any, count: int = 5, **arguments: Any) -> None:
    channel.queue_declare("q", durable=True, arguments=arguments)
    for number in range(count):
        properties = pika.BasicProperties(
            delivery_mode=2, priority=number, headers={"n": number}, message_id=str(number)
        )
        channel.basic_publish("", "q", b"body %d" % number, properties)


def post(served: Served, action: str) -> int:
    return served.request("POST", Q + "/actions", b'{"action": "%s"}' % action.encode()).status


def page(served: Served, **query: Any) -> Any:
    return served.get(Q + "/messages?" + urlencode(query))


def run(served: Served, *arguments: str) -> Any:
    return CliRunner().invoke(cli, [*arguments, "--url", f"http://127.0.0.1:{served.port}"])


# -- pause -----------------------------------------------------------------------------------


def test_a_paused_queue_takes_and_does_not_give(served: Served, channel: Any) -> None:
    fill(channel, 2)
    assert post(served, "pause") == 204
    assert served.get(Q)["paused"] is True
    fill(channel, 1)
    assert channel.basic_get("q") == (None, None, None)
    taken: list[bytes] = []
    channel.basic_consume("q", lambda *one: taken.append(one[-1]), auto_ack=True)
    channel.connection.process_data_events(0.2)
    assert taken == []
    assert post(served, "resume") == 204
    channel.connection.process_data_events(0.2)
    assert taken == [b"body 0", b"body 1", b"body 0"]


def test_a_pause_is_remembered(served: Served, channel: Any, tmp_path: Path) -> None:
    fill(channel, 0)
    post(served, "pause")
    served.on_loop(served.node.definitions.commit)

    def paused() -> list[bool]:
        definitions = Definitions(served.node.definitions.path)
        found = [queue.paused for queue in definitions.load().queues if queue.name == "q"]
        definitions.close()
        return found

    assert paused() == [True]
    assert run(served, "queue", "resume", "q").exit_code == 0
    served.on_loop(served.node.definitions.commit)
    assert paused() == [False]


@pytest.mark.parametrize(
    "body, status", [(b"{", 400), (b'{"action": "dance"}', 400), (b"[]", 400), (b"{}", 400)]
)
def test_other_actions_are_refused(served: Served, channel: Any, body: bytes, status: int) -> None:
    fill(channel, 0)
    assert served.request("POST", Q + "/actions", body).status == status


def test_pausing_what_is_not_there_or_not_yours(served: Served, channel: Any) -> None:
    assert (
        served.request("POST", "/api/queues/%2F/none/actions", b'{"action":"pause"}').status == 404
    )
    fill(channel, 0)
    served.add_user("reader", "pw", ["management"], "/")
    user = served.node.broker.users.users["reader"]
    served.on_loop(lambda: user.vhosts.__setitem__("/", ("^$", "^$", "^q$")))
    login = {"Authorization": "Basic " + base64.b64encode(b"reader:pw").decode()}
    answer = served.request("POST", Q + "/actions", b'{"action":"pause"}', login)
    assert answer.status == 401
    assert served.request("GET", Q + "/messages", None, login).status == 200


# -- peek ------------------------------------------------------------------------------------


def test_peeking_takes_nothing(served: Served, channel: Any) -> None:
    fill(channel)
    first = page(served, count=2)
    assert [one["payload"] for one in first["messages"]] == ["body 0", "body 1"]
    one = first["messages"][1]
    assert one["properties"]["headers"] == {"n": 1}
    assert (one["exchange"], one["routing_key"], one["redelivered"]) == ("", "q", False)
    rest = page(served, **{"from": first["next"]})
    assert [one["payload"] for one in rest["messages"]] == ["body 2", "body 3", "body 4"]
    assert rest["next"] is None
    method, _, _ = channel.basic_get("q")
    assert (method.message_count, method.redelivered) == (4, False)


def test_peeking_at_what_rests_on_disk(served: Served, channel: Any) -> None:
    fill(channel, 40, **{"x-queue-mode": "lazy"})
    queue = served.node.broker.vhosts["/"].queues["q"]
    first = served.on_loop(lambda: int(queue.backing.tiers.floor_seq_id()))
    found = page(served, **{"from": first + 30, "count": 3})
    assert [one["payload"] for one in found["messages"]] == ["body 30", "body 31", "body 32"]


@pytest.mark.parametrize("path", ["/messages?count=3", "/messages/search?text=body"])
def test_what_paging_takes_from_memory_meanwhile_is_shown(
    served: Served, channel: Any, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    fill(channel, 3)
    queue = served.node.broker.vhosts["/"].queues["q"]
    watch = served.view.watch
    opened = watch.opened

    def page_out() -> None:
        for message in queue.backing.parts()[0].reads.peek_range(0, 9, 9, 1 << 20):
            message.content = b""

    def opened_late(message: Message) -> tuple[dict[str, object], bytes]:
        served.on_loop(page_out)
        return opened(message)

    monkeypatch.setattr(watch, "opened", opened_late)
    shown = served.get(Q + path)["messages"]
    assert [one["payload"] for one in shown] == ["body 0", "body 1", "body 2"]


def test_each_priority_is_looked_at(served: Served, channel: Any) -> None:
    fill(channel, 4, **{"x-max-priority": 2})
    highest = page(served)
    assert (highest["priority"], [m["payload"] for m in highest["messages"]]) == (
        2,
        ["body 2", "body 3"],
    )
    assert [m["payload"] for m in page(served, priority=1)["messages"]] == ["body 1"]
    assert served.request("GET", Q + "/messages?priority=3").status == 400


@pytest.mark.parametrize(
    "query",
    [
        *("count=1001", "from=-1", "from=x", "truncate=1.5", "encoding=hex", "count="),
        *(f"{key}={'9' * 5000}" for key in ("count", "from", "truncate", "priority")),
    ],
    ids=lambda query: query[:12],
)
def test_wrong_queries_are_refused(served: Served, channel: Any, query: str) -> None:
    fill(channel, 0)
    assert served.request("GET", f"{Q}/messages?{query}").status == 400


def test_payloads_are_cut_and_encoded(served: Served, channel: Any) -> None:
    channel.queue_declare("q")
    channel.basic_publish("", "q", b"\xff\xfe" * 10)
    (one,) = page(served, truncate=3)["messages"]
    assert (one["payload_encoding"], one["payload_bytes"]) == ("base64", 20)
    assert base64.b64decode(one["payload"]) == b"\xff\xfe\xff"


def test_the_command_line_peeks(served: Served, channel: Any) -> None:
    fill(channel, 3)
    result = run(served, "queue", "peek", "q", "--count", "2")
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[2] == "    body 0"
    assert re.search(r"6 bytes  since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", lines[0])
    assert "(default) 'q'  6 bytes" in lines[0]
    assert "go on with --from" in lines[-1]
