"""Chosen messages are moved, copied and retried: none is lost, wherever it would have gone."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from penstock.backing.message_deque import FEW_CHOSEN
from penstock.broker.message_moves import (
    COPY,
    DEAD_LETTER,
    DELETE,
    MOVE,
    RETRY,
    SLICE_PLACES,
    MessageMove,
)
from penstock.broker.rules.rights import Rights
from penstock.broker.vhost_removal import VhostRemoval
from penstock.core.errors import NotFound
from penstock.core.message import REDELIVERED, Message
from penstock.queues.queue import Queue
from tests.helpers.connection_pair import ClientEnd, QuietBroker

LYING = 1500
TO_B = {"x_dead_letter_routing_key": "b"}


@pytest.fixture
def node() -> QuietBroker:
    return QuietBroker()


@pytest.fixture
def client(node: QuietBroker) -> ClientEnd:
    return node.client()


def act(
    node: QuietBroker,
    action: str,
    queue: str,
    seq_ids: list[int],
    target: tuple[str, str] | None,
    vhost_name: str = "/",
) -> Counter[str]:
    vhost = node.broker.vhosts[vhost_name]
    user = node.broker.users.users["guest"]
    user.vhosts.setdefault(vhost_name, (".*", ".*", ".*"))
    rights = Rights(user, vhost_name)
    errand = MessageMove(node.broker, rights, vhost, vhost.queue(queue), 0, action, target)
    while seq_ids:
        seq_ids = errand.step(seq_ids, node.now_ms)
    node.run()
    return errand.counts


def declare(client: ClientEnd, name: str, **arguments: Any) -> None:
    named = {key.replace("_", "-"): value for key, value in arguments.items()}
    client.call("queue.declare", queue=name, durable=True, arguments=named)


def lying(node: QuietBroker, queue: str, vhost: str = "/") -> list[Message]:
    found: Queue = node.broker.vhosts[vhost].queue(queue)
    return found.backing.parts()[0].reads.read_range(0, 1 << 62, 1000, 1 << 30)


def count(node: QuietBroker, queue: str, vhost: str = "/") -> int:
    return int(node.broker.vhosts[vhost].queue(queue).backing.ready_count())


def remove(node: QuietBroker, name: str) -> None:
    removal = VhostRemoval(node.broker, node.broker.vhosts[name], lambda _name, _count: False)
    for _ in range(20):
        gone, _ = removal.step()
        node.run()
        if gone:
            return
    raise AssertionError("it never goes")


def test_a_route_is_not_remembered_beyond_its_virtual_host(node: QuietBroker) -> None:
    for _ in range(2):
        node.broker.add_vhost("t", 16_384)
        node.broker.users.users["guest"].vhosts["t"] = (".*", ".*", ".*")
        client = node.client(vhost="t")
        declare(client, "a")
        declare(client, "b")
        client.publish("", "a")
        assert act(node, MOVE, "a", [0], ("", "b"), "t")["done"] == 1
        assert (count(node, "a", "t"), count(node, "b", "t")) == (0, 1)
        client.call("connection.close", channel=0)
        client.drop()
        remove(node, "t")


def test_no_epoch_of_a_virtual_host_comes_again_under_its_name(node: QuietBroker) -> None:
    before = node.broker.add_vhost("t", 16_384)
    before.forget_routes()
    used = before.epoch
    remove(node, "t")
    assert node.broker.add_vhost("t", 16_384).epoch > used


# -- through an exchange that takes each key once ------------------------------------------------


def once(client: ClientEnd, *queues: str) -> None:
    client.call(
        "exchange.declare",
        exchange="x",
        type="x-message-deduplication",
        arguments={"x-cache-size": 10},
    )
    for queue in queues:
        client.call("queue.bind", queue=queue, exchange="x", routing_key="")


def keyed(client: ClientEnd, queue: str, body: bytes, key: str) -> None:
    client.publish("", queue, body, headers={"x-deduplication-header": key})


def test_a_move_through_a_deduplicating_exchange_arrives(
    node: QuietBroker, client: ClientEnd
) -> None:
    declare(client, "a")
    declare(client, "b")
    once(client, "b")
    keyed(client, "a", b"1", "k")
    keyed(client, "a", b"2", "k")
    tally = act(node, MOVE, "a", [0, 1], ("x", ""))
    assert (tally["done"], tally["unroutable"]) == (1, 1)
    assert (count(node, "a"), count(node, "b")) == (1, 1)


def test_what_found_a_queue_full_is_no_duplicate_when_it_comes_again(
    node: QuietBroker, client: ClientEnd
) -> None:
    declare(client, "a")
    declare(client, "b", x_max_length=1, x_overflow="reject-publish")
    once(client, "b")
    client.publish("", "b")
    keyed(client, "a", b"1", "k")
    assert act(node, MOVE, "a", [0], ("x", ""))["full"] == 1
    client.call("queue.purge", queue="b")
    assert act(node, MOVE, "a", [0], ("x", ""))["done"] == 1
    assert (count(node, "a"), count(node, "b")) == (0, 1)


# -- where it would be lost ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments", [{"x_message_deduplication": True}, {"x_max_length": 3}, {}], ids=str
)
def test_what_leads_back_to_its_own_queue_stays(
    node: QuietBroker, client: ClientEnd, arguments: dict[str, Any]
) -> None:
    declare(client, "a", **arguments)
    for number in range(3):
        keyed(client, "a", b"%d" % number, f"k{number}")
    tally = act(node, MOVE, "a", [1, 2], ("", "a"))
    assert (tally["done"], tally["same_queue"]) == (0, 2)
    assert [int(one.seq_id) for one in lying(node, "a")] == [0, 1, 2]


def test_a_retry_that_leads_back_to_its_own_queue_leaves_it(
    node: QuietBroker, client: ClientEnd
) -> None:
    declare(client, "a", x_dead_letter_exchange="")
    client.publish("", "a", headers=dead("a", "", "a"))
    tally = act(node, RETRY, "a", [0], None)
    assert (tally["done"], tally["same_queue"]) == (0, 1)


# -- an x-death that a publisher wrote -----------------------------------------------------------


def dead(queue: object, exchange: object, key: object) -> dict[str, Any]:
    return {"x-death": [{"queue": queue, "exchange": exchange, "routing-keys": [key]}]}


@pytest.mark.parametrize("arguments", [{}, {"x_dead_letter_exchange": "other"}], ids=str)
def test_a_death_in_a_queue_that_sends_its_dead_letters_elsewhere_is_not_believed(
    node: QuietBroker, client: ClientEnd, arguments: dict[str, Any]
) -> None:
    client.call("exchange.declare", exchange="in", type="fanout")
    declare(client, "inbox")
    declare(client, "payments", **arguments)
    client.call("queue.bind", queue="inbox", exchange="in", routing_key="")
    client.publish("in", "payments", headers=dead("payments", "", "payments"))
    tally = act(node, RETRY, "inbox", [0], None)
    assert (tally["done"], tally["without_death"]) == (0, 1)
    assert (count(node, "inbox"), count(node, "payments")) == (1, 0)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x-death": "a"},
        {"x-death": ["a"]},
        dead("nosuch", "", "a"),
        dead("a", "", 1),
        dead("a", 1, "a"),
        dead(1, "", "a"),
        dead("a", "", "other"),
    ],
    ids=str,
)
def test_a_death_that_cannot_have_been_is_not_believed(
    node: QuietBroker, client: ClientEnd, headers: dict[str, Any]
) -> None:
    declare(client, "a", x_dead_letter_exchange="")
    declare(client, "letters")
    client.publish("", "letters", headers=headers)
    tally = act(node, RETRY, "letters", [0], None)
    assert (tally["done"], tally["without_death"]) == (0, 1)


def test_a_retry_goes_only_where_the_queue_of_the_death_is_reached(
    node: QuietBroker, client: ClientEnd
) -> None:
    declare(client, "a", x_dead_letter_exchange="", x_dead_letter_routing_key="letters")
    declare(client, "payments")
    declare(client, "letters")
    client.publish("", "letters", headers=dead("a", "", "payments"))
    client.publish("", "letters", headers=dead("a", "", "a"))
    tally = act(node, RETRY, "letters", [0, 1], None)
    assert (tally["done"], tally["unroutable"]) == (1, 1)
    assert [count(node, name) for name in ("letters", "payments", "a")] == [1, 0, 1]


@pytest.mark.parametrize("action", [MOVE, COPY])
def test_what_every_queue_has_already_stays(
    node: QuietBroker, client: ClientEnd, action: str
) -> None:
    declare(client, "a")
    declare(client, "b", x_message_deduplication=True)
    keyed(client, "b", b"first", "k")
    keyed(client, "a", b"again", "k")
    tally = act(node, action, "a", [0], ("", "b"))
    assert (tally["done"], tally["duplicate"]) == (0, 1)
    assert (count(node, "a"), count(node, "b")) == (1, 1)


def test_a_duplicate_for_one_of_two_queues_goes(node: QuietBroker, client: ClientEnd) -> None:
    declare(client, "a")
    declare(client, "b", x_message_deduplication=True)
    declare(client, "c")
    client.call("queue.bind", queue="b", exchange="amq.fanout", routing_key="")
    client.call("queue.bind", queue="c", exchange="amq.fanout", routing_key="")
    keyed(client, "b", b"first", "k")
    keyed(client, "a", b"again", "k")
    assert act(node, MOVE, "a", [0], ("amq.fanout", ""))["done"] == 1
    assert (count(node, "a"), count(node, "b"), count(node, "c")) == (0, 1, 1)


def test_a_slice_has_few_or_what_lies_near(node: QuietBroker, client: ClientEnd) -> None:
    declare(client, "a")
    vhost = node.broker.vhosts["/"]
    rights = Rights(node.broker.users.users["guest"], "/")
    errand = MessageMove(node.broker, rights, vhost, vhost.queue("a"), 0, DELETE, None)
    near, far = list(range(100)), list(range(0, 100 * SLICE_PLACES, SLICE_PLACES))
    assert errand.step(near, node.now_ms) == []
    assert errand.step(far, node.now_ms) == far[FEW_CHOSEN:]


# -- what is counted -----------------------------------------------------------------------------


def test_what_found_no_room_is_not_counted_as_taken(node: QuietBroker, client: ClientEnd) -> None:
    declare(client, "a")
    declare(client, "b", x_max_length=1, x_overflow="reject-publish")
    client.call("queue.bind", queue="b", exchange="amq.fanout", routing_key="")
    for _ in range(2):
        client.publish("", "a")
    assert act(node, MOVE, "a", [0, 1], ("amq.fanout", ""))["full"] == 1
    traffic = node.broker.vhosts["/"].exchange("amq.fanout").traffic
    assert (traffic.taken, traffic.passed) == (1, 1)


def test_by_headers_every_queue_counts(node: QuietBroker, client: ClientEnd) -> None:
    declare(client, "a")
    declare(client, "b")
    client.call("queue.bind", queue="b", exchange="amq.headers", arguments={"x-match": "all"})
    client.publish("", "a")
    assert act(node, MOVE, "a", [0], ("amq.headers", ""))["done"] == 1
    traffic = node.broker.vhosts["/"].exchange("amq.headers").traffic
    assert (traffic.taken, traffic.passed) == (1, 1)


def test_what_came_back_and_was_moved_is_waited_for_no_more(
    node: QuietBroker, client: ClientEnd
) -> None:
    declare(client, "a")
    declare(client, "b")
    client.publish("", "a")
    client.publish("", "a")
    queue = node.broker.vhosts["/"].queue("a")
    for _ in range(2):
        client.method(1, "basic.get", queue="a")
    client.method(1, "basic.nack", delivery_tag=0, multiple=True, requeue=True)
    assert queue.statistics.returned_count == 2
    act(node, MOVE, "a", [0], ("", "b"))
    client.method(1, "basic.get", queue="a")
    assert (queue.statistics.returned_count, queue.statistics.again_count) == (0, 1)


def test_marks_of_a_crash_are_not_waited_for(node: QuietBroker, client: ClientEnd) -> None:
    declare(client, "a")
    queue = node.broker.vhosts["/"].queue("a")
    queue.statistics.returned_count = 1
    marked = [Message(b"", b"", REDELIVERED, 0) for _ in range(3)]
    assert queue.statistics.again(marked) == 3
    assert queue.statistics.returned_count == 0


# -- when the disk cannot be read ----------------------------------------------------------------


@pytest.mark.parametrize("for_ever", [False, True], ids=["once", "for ever"])
@pytest.mark.parametrize("action", [COPY, MOVE, DELETE, DEAD_LETTER])
def test_what_cannot_be_read_is_not_called_gone(
    node: QuietBroker, client: ClientEnd, action: str, for_ever: bool
) -> None:
    declare(client, "a", x_queue_mode="lazy", x_dead_letter_exchange="", **TO_B)
    declare(client, "b")
    for _ in range(LYING):
        client.publish("", "a", b"x" * 1000, run=False, delivery_mode=2)
    node.run()
    queue = node.broker.vhosts["/"].queue("a")
    user = node.broker.users.users["guest"]
    target = ("", "b") if action in (COPY, MOVE) else None
    rights = Rights(user, "/")
    errand = MessageMove(node.broker, rights, node.broker.vhosts["/"], queue, 0, action, target)

    def go_on() -> None:
        left = list(range(LYING))
        while left:
            if for_ever or not node.files.has_failed:
                node.files.fail("pread")
            left = errand.step(left, node.now_ms)

    with pytest.raises(NotFound, match="queue 'a' in vhost '/' is stopped"):
        go_on()
    node.files.heal()
    node.run()
    done = errand.counts["done"]
    assert done < LYING
    assert count(node, "a") == LYING - (0 if action == COPY else done)
    assert count(node, "b") == (0 if action == DELETE else done)
    node.check()
