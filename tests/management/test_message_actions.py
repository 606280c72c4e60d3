"""Chosen messages are moved, copied, deleted, retried and rejected over HTTP; the others stay."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pika
import pytest

from tests.management.conftest import Served

ACTIONS = "/api/queues/%2F/from/messages/actions"
NOTHING = {
    "done": 0,
    "gone": 0,
    "unroutable": 0,
    "same_queue": 0,
    "duplicate": 0,
    "without_death": 0,
    "full": 0,
    "trouble": "",
}


@pytest.fixture
def channel(served: Served) -> Iterator[Any]:
    connection = pika.BlockingConnection(
        pika.ConnectionParameters("127.0.0.1", served.amqp_port, heartbeat=0)
    )
    channel = connection.channel()
    channel.tx_select()
    for name in ("from", "to"):
        channel.queue_delete(name)
    channel.queue_declare("to", durable=True)
    yield channel
    connection.close()


def fill(channel: Any, count: int = 6, size: int = 0, **arguments: Any) -> None:
    channel.queue_declare("from", durable=True, arguments=arguments)
    for number in range(count):
        properties = pika.BasicProperties(delivery_mode=2, headers={"n": number})
        channel.basic_publish("", "from", b"%d" % number + b"." * size, properties)
    channel.tx_commit()


def act(served: Served, action: str, seq_ids: list[int], **more: Any) -> tuple[int, Any]:
    body = json.dumps({"action": action, "seq_ids": seq_ids} | more).encode()
    raw = served.request("POST", ACTIONS, body)
    return raw.status, json.loads(raw.body)


def bodies(channel: Any, queue: str) -> list[bytes]:
    """All of them, in order, taken."""
    found = []
    while True:
        method, _, body = channel.basic_get(queue, auto_ack=True)
        if method is None:
            channel.tx_commit()
            return found
        found.append(body.rstrip(b"."))


@pytest.mark.parametrize("size", [0, 20_000])
@pytest.mark.parametrize("mode", ["default", "lazy"])
def test_moved_ones_go_and_the_others_keep_their_places(
    served: Served, channel: Any, mode: str, size: int
) -> None:
    fill(channel, 6, size, **{"x-queue-mode": mode})
    told = act(served, "move", [4, 1, 77], queue="to")
    assert told == (200, NOTHING | {"done": 2, "gone": 1})
    assert bodies(channel, "to") == [b"1", b"4"]
    assert bodies(channel, "from") == [b"0", b"2", b"3", b"5"]


def test_copies_leave_the_originals(served: Served, channel: Any) -> None:
    fill(channel, 3)
    channel.queue_bind("to", "amq.topic", "a.*")
    told = act(served, "copy", [0, 2], exchange="amq.topic", routing_key="a.b")
    assert told == (200, NOTHING | {"done": 2})
    method, properties, _ = channel.basic_get("to", auto_ack=True)
    assert (method.exchange, method.routing_key, properties.headers) == (
        "amq.topic",
        "a.b",
        {"n": 0},
    )
    assert bodies(channel, "to") == [b"2"]
    assert bodies(channel, "from") == [b"0", b"1", b"2"]


def test_deleted_ones_are_gone(served: Served, channel: Any) -> None:
    fill(channel, 3)
    assert act(served, "delete", [0, 1]) == (200, NOTHING | {"done": 2})
    assert act(served, "delete", [0, 1]) == (200, NOTHING | {"gone": 2})
    assert bodies(channel, "from") == [b"2"]


def test_what_is_with_a_consumer_is_not_taken_from_it(served: Served, channel: Any) -> None:
    fill(channel, 3)
    method, _, _ = channel.basic_get("from")
    assert act(served, "move", [0, 1], queue="to") == (200, NOTHING | {"done": 1, "gone": 1})
    channel.basic_nack(method.delivery_tag, requeue=True)
    channel.tx_commit()
    assert bodies(channel, "from") == [b"0", b"2"]


def test_rejected_ones_are_dead_letters_and_retried_ones_go_home(
    served: Served, channel: Any
) -> None:
    fill(channel, 4, **{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "to"})
    assert act(served, "dead_letter", [0, 2]) == (200, NOTHING | {"done": 2})
    body = json.dumps({"action": "retry", "seq_ids": [0, 1]}).encode()
    path = "/api/queues/%2F/to/messages/actions"
    told = served.request("POST", path, body)
    assert json.loads(told.body) == NOTHING | {"done": 2}
    assert bodies(channel, "to") == []
    assert bodies(channel, "from") == [b"1", b"3", b"0", b"2"]


def test_what_never_died_is_not_retried(served: Served, channel: Any) -> None:
    fill(channel, 2)
    assert act(served, "retry", [0, 1]) == (200, NOTHING | {"without_death": 2})
    assert bodies(channel, "from") == [b"0", b"1"]


def test_what_leads_nowhere_stays(served: Served, channel: Any) -> None:
    fill(channel, 2)
    assert act(served, "move", [0], queue="nosuch") == (200, NOTHING | {"unroutable": 1})
    told = act(served, "move", [0], exchange="amq.topic", routing_key="nowhere")
    assert told == (200, NOTHING | {"unroutable": 1})
    assert act(served, "move", [0], exchange="nosuch")[0] == 404
    assert bodies(channel, "from") == [b"0", b"1"]


def test_what_has_no_room_stays(served: Served, channel: Any) -> None:
    fill(channel, 3)
    channel.queue_delete("to")
    channel.queue_declare("to", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    status, told = act(served, "move", [0, 1, 2], queue="to")
    assert (status, told["done"], told["full"]) == (200, 1, 2)
    assert told["trouble"] == "queue 'to' is full and refuses publishes (x-overflow)"
    assert bodies(channel, "from") == [b"1", b"2"]


def test_priorities_are_numbered_each_for_itself(served: Served, channel: Any) -> None:
    channel.queue_declare("from", durable=True, arguments={"x-max-priority": 5})
    for number, priority in enumerate((1, 5, 1, 5)):
        properties = pika.BasicProperties(delivery_mode=2, priority=priority)
        channel.basic_publish("", "from", b"%d" % number, properties)
    channel.tx_commit()
    assert act(served, "move", [0], priority=5, queue="to") == (200, NOTHING | {"done": 1})
    assert act(served, "delete", [1], priority=1) == (200, NOTHING | {"done": 1})
    assert bodies(channel, "to") == [b"1"]
    assert bodies(channel, "from") == [b"3", b"0"]
    assert act(served, "delete", [1], priority=6)[0] == 400


def test_what_was_moved_may_be_published_again(served: Served, channel: Any) -> None:
    """Where duplicates are dropped: its key has left with it."""
    keyed = pika.BasicProperties(delivery_mode=2, headers={"x-deduplication-header": "key"})
    channel.queue_declare("from", durable=True, arguments={"x-message-deduplication": True})
    for number in range(2):
        channel.basic_publish("", "from", b"%d" % number, keyed)
    channel.tx_commit()
    assert act(served, "move", [0], queue="to") == (200, NOTHING | {"done": 1})
    channel.basic_publish("", "from", b"2", keyed)
    channel.tx_commit()
    assert bodies(channel, "to") == [b"0"]
    assert bodies(channel, "from") == [b"2"]


def test_many_go_slice_by_slice(served: Served, channel: Any) -> None:
    fill(channel, 700)
    told = act(served, "move", list(range(0, 700, 2)), queue="to")
    assert told == (200, NOTHING | {"done": 350})
    assert bodies(channel, "to") == [b"%d" % number for number in range(0, 700, 2)]
    assert bodies(channel, "from") == [b"%d" % number for number in range(1, 700, 2)]


@pytest.mark.parametrize(
    "asked",
    [
        {"action": "dance", "seq_ids": [0]},
        {"action": "move", "seq_ids": [0]},
        {"action": "move", "seq_ids": [0], "queue": "to", "exchange": ""},
        {"action": "delete", "seq_ids": []},
        {"action": "delete", "seq_ids": ["x"]},
        {"action": "delete", "seq_ids": [-1]},
        {"action": "delete"},
        {"action": "dead_letter", "seq_ids": [0]},
    ],
)
def test_wrong_wishes_change_nothing(served: Served, channel: Any, asked: Any) -> None:
    fill(channel, 1)
    assert served.request("POST", ACTIONS, json.dumps(asked).encode()).status == 400
    assert bodies(channel, "from") == [b"0"]


def test_rights(served: Served, channel: Any) -> None:
    """To move wants the right to read here and to write there."""
    fill(channel, 1)
    served.add_user("mover", "pw", ["management"], "/")
    user = served.node.broker.users.users["mover"]
    for patterns in [("", ".*", "^to$"), ("", "^from$", ".*")]:
        served.on_loop(lambda patterns=patterns: user.vhosts.__setitem__("/", patterns))
        body = json.dumps({"action": "move", "seq_ids": [0], "queue": "to"}).encode()
        headers = {"Authorization": "Basic bW92ZXI6cHc="}
        assert served.request("POST", ACTIONS, body, headers).status == 401
    assert bodies(channel, "from") == [b"0"]


def test_nothing_is_copied_while_publishers_are_blocked(served: Served, channel: Any) -> None:
    fill(channel, 1)
    reasons = served.node.broker.admission.vhost_reasons
    served.on_loop(lambda: reasons.__setitem__("/", "low on something"))
    try:
        assert act(served, "copy", [0], queue="to")[0] == 503
        assert act(served, "delete", [0]) == (200, NOTHING | {"done": 1})
    finally:
        served.on_loop(lambda: reasons.pop("/", None))
