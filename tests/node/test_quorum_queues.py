"""Quorum queues of a single node: all is on disk, failures are counted, dead letters arrive."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.administration import Administration
from penstock.broker.rules.policies import Policy
from penstock.broker.transfers.dead_letters import RETRY_MS
from penstock.core.errors import Corrupt, PreconditionFailed
from penstock.queues.local import LocalQueue
from tests.helpers.connection_pair import ClientEnd, QuietBroker

QUORUM = {"x-queue-type": "quorum"}
SURELY = {"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}
LARGE = b"x" * 10_000


def declare(client: ClientEnd, name: str, **more: Any) -> None:
    arguments = QUORUM | {f"x-{key.replace('_', '-')}": value for key, value in more.items()}
    client.call("queue.declare", queue=name, durable=True, arguments=arguments)


def counts(node: QuietBroker, *names: str) -> list[int]:
    node.run()
    return [int(node.broker.vhosts["/"].queues[name].counts()[0]) for name in names]


@pytest.fixture
def definitions(tmp_path: Path) -> str:
    return str(tmp_path / "definitions.db")


def after_a_power_cut(node: QuietBroker, definitions: str) -> QuietBroker:
    """Only what was synced is there."""
    node.definitions.close()
    node.files.power_cut(random.Random(7))
    return QuietBroker(node.files, definitions)


def test_a_queue_within_the_ids_of_a_quorum_queue_stops_the_start(definitions: str) -> None:
    """As a build between the releases left them, which gave a quorum queue one id."""
    node = QuietBroker(definitions=definitions)
    declare(node.client(), "safe")
    record = node.definitions.load().queues[0]
    node.definitions.put_queue(
        record._replace(queue_id=record.queue_id + 1, name="plain", arguments={})
    )
    node.definitions.commit()
    node.definitions.close()
    with pytest.raises(Corrupt, match="the queues 'safe' and 'plain' have the same number"):
        QuietBroker(node.files, definitions)


@pytest.mark.parametrize("body", [b"small", LARGE], ids=["in the index", "in the store"])
def test_what_is_transient_survives_in_a_quorum_queue_only(body: bytes, definitions: str) -> None:
    node = QuietBroker(definitions=definitions)
    client = node.client()
    client.call("queue.declare", queue="plain", durable=True)
    declare(client, "safe")
    for queue in ("plain", "safe"):
        client.call("queue.bind", queue=queue, exchange="amq.fanout")
    client.call("confirm.select")
    client.publish("amq.fanout", "", body, delivery_mode=1)
    node.run()
    assert counts(node, "plain", "safe") == [1, 1]
    node = after_a_power_cut(node, definitions)
    assert counts(node, "plain", "safe") == [0, 1]
    got = node.client().call("basic.get", queue="safe")
    assert (got["body"], got["properties"]["delivery_mode"]) == (body, 1)
    node.check()


def test_failures_are_counted_over_a_power_cut(definitions: str) -> None:
    node = QuietBroker(definitions=definitions)
    client = node.client()
    declare(client, "q", delivery_limit=2)
    client.call("confirm.select")
    client.publish("", "q", b"one")
    for tag, how in ((1, "reject"), (2, "nack"), (3, "reject")):
        client.call("basic.get", queue="q")
        client.method(1, f"basic.{how}", delivery_tag=tag, requeue=True)
    client.publish("", "q", b"two")  # its confirm is behind the rejections
    node.run()
    node = after_a_power_cut(node, definitions)
    client = node.client()
    got = client.call("basic.get", queue="q")
    headers = got["properties"]["headers"]
    assert (headers["x-delivery-count"].value, headers["x-acquired-count"].value) == (2, 3)
    client.method(1, "basic.reject", delivery_tag=1, requeue=True)
    assert counts(node, "q") == [1]  # "two"
    node.check()


def test_what_waits_for_its_retry_waits_over_a_power_cut(definitions: str) -> None:
    node = QuietBroker(definitions=definitions)
    client = node.client()
    declare(
        client, "q", delayed_retry_type="failed", delayed_retry_min=1000, delayed_retry_max=1500
    )
    client.call("confirm.select")
    client.publish("", "q", b"one")
    waits = (1000, 1500)
    for tag, wait_ms in enumerate(waits, 1):
        got = client.call("basic.get", queue="q")
        assert got["body"] == b"one"
        client.method(1, "basic.reject", delivery_tag=tag, requeue=True)
        node.run()
        node.now_ms += wait_ms - 1
        assert counts(node, "q") == [0]
        if tag < len(waits):
            node.now_ms += 1
            assert counts(node, "q") == [1]
    client.publish("", "q", b"two")  # its confirm is behind the rejections
    node.run()
    now_ms = node.now_ms
    node = after_a_power_cut(node, definitions)
    node.now_ms = now_ms
    assert counts(node, "q") == [1]
    node.now_ms += 1
    assert counts(node, "q") == [2]
    node.check()


def test_a_classic_queue_changes_the_last_death_of_a_letter_that_names_one() -> None:
    node = QuietBroker()
    client = node.client()
    client.call("queue.declare", queue="morgue")
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "morgue"}
    client.call("queue.declare", queue="classic", arguments=letters)
    for tag, headers in ((1, {"x-last-death-queue": "quorum"}), (3, {"mine": 1})):
        client.publish("", "classic", b"one", headers=headers)
        client.call("basic.get", queue="classic")
        client.method(1, "basic.reject", delivery_tag=tag, requeue=False)
        node.run()
        told = client.call("basic.get", queue="morgue")["properties"]["headers"]
        last = [told.get(f"x-last-death-{key}") for key in ("queue", "reason", "exchange")]
        assert last == (["classic", "rejected", ""] if tag == 1 else [None, None, None])


def test_a_policy_sets_the_limit_and_may_lift_it() -> None:
    node = QuietBroker()
    client = node.client()
    declare(client, "q")
    queue = node.broker.vhosts["/"].queues["q"]
    assert queue.limits.delivery_limit == 20
    declare(client, "unlimited", delivery_limit=-1)
    assert node.broker.vhosts["/"].queues["unlimited"].limits.delivery_limit == -1


def test_a_policy_reaches_one_type_of_queue() -> None:
    node = QuietBroker()
    client = node.client()
    client.call("queue.declare", queue="classic", durable=True)
    declare(client, "quorum")
    admin = Administration(node.broker, 64)
    for kind, length in (("classic_queues", 5), ("quorum_queues", 7)):
        admin.put_policy("/", Policy(kind, "", kind, 0, {"max-length": length}))
    queues = node.broker.vhosts["/"].queues
    assert [queues[name].limits.max_length for name in ("classic", "quorum")] == [5, 7]
    admin.put_policy("/", Policy("streams", "", "streams", 9, {"max-length": 9}))
    assert [queues[name].limits.max_length for name in ("classic", "quorum")] == [5, 7]
    admin.put_policy("/", Policy("both", "", "queues", 1, {"max-length": 3}))
    assert [queues[name].limits.max_length for name in ("classic", "quorum")] == [3, 3]


def dead_letter_queue(client: ClientEnd, name: str = "q") -> None:
    """Rejected messages of ``name`` are to come to the queue "morgue"."""
    more = {key.removeprefix("x-"): value for key, value in SURELY.items()}
    declare(client, name, dead_letter_exchange="", dead_letter_routing_key="morgue", **more)


def reject_one(node: QuietBroker, client: ClientEnd) -> None:
    client.publish("", "q", b"dead")
    node.run()
    tag = client.call("basic.get", queue="q")["delivery_tag"]
    client.method(1, "basic.reject", delivery_tag=tag, requeue=False)
    node.run()


def test_a_dead_letter_waits_for_a_queue() -> None:
    node = QuietBroker()
    client = node.client()
    dead_letter_queue(client)
    reject_one(node, client)
    node.tick(RETRY_MS + 1)
    client.call("queue.declare", queue="morgue", durable=True)
    assert counts(node, "q", "morgue") == [0, 0]
    node.tick(RETRY_MS + 1)
    assert counts(node, "q", "morgue") == [0, 1]
    node.tick(RETRY_MS + 1)
    assert counts(node, "q", "morgue") == [0, 1]
    node.check()


def test_a_dead_letter_waits_for_room_and_for_a_clock_that_went_back() -> None:
    node = QuietBroker()
    client = node.client()
    full = {"x-max-length": 1, "x-overflow": "reject-publish"}
    client.call("queue.declare", queue="morgue", durable=True, arguments=full)
    client.publish("", "morgue", b"first")
    dead_letter_queue(client)
    reject_one(node, client)
    assert counts(node, "morgue") == [1]
    client.call("queue.purge", queue="morgue")
    node.now_ms -= 86_400_000
    node.tick(1)
    assert counts(node, "morgue") == [1]
    node.check()


def test_a_dead_letter_that_waits_survives_a_power_cut(definitions: str) -> None:
    node = QuietBroker(definitions=definitions)
    client = node.client()
    client.call("confirm.select")
    dead_letter_queue(client)
    reject_one(node, client)
    client.publish("", "q", b"behind")
    node.run()
    node = after_a_power_cut(node, definitions)
    assert counts(node, "q") == [2]


def test_a_dead_letter_that_waits_goes_with_its_queue() -> None:
    node = QuietBroker()
    client = node.client()
    dead_letter_queue(client)
    reject_one(node, client)
    client.call("queue.delete", queue="q")
    client.call("queue.declare", queue="morgue", durable=True)
    node.tick(RETRY_MS + 1)
    assert counts(node, "morgue") == [0]
    node.check()


def test_without_the_strategy_a_letter_without_a_queue_is_dropped() -> None:
    node = QuietBroker()
    client = node.client()
    declare(client, "q", dead_letter_exchange="", dead_letter_routing_key="morgue")
    reject_one(node, client)
    client.call("queue.declare", queue="morgue", durable=True)
    node.tick(RETRY_MS + 1)
    assert counts(node, "q", "morgue") == [0, 0]


ORDER = [(9, b"nine"), (5, b"five"), (None, b"none"), (4, b"four"), (0, b"zero")]


def put_in_priorities(client: ClientEnd, queue: str = "q") -> None:
    for priority, body in sorted(ORDER, key=lambda one: one[1]):
        client.publish("", queue, body, **({} if priority is None else {"priority": priority}))


def bodies(client: ClientEnd, count: int, queue: str = "q") -> list[bytes]:
    return [client.call("basic.get", queue=queue)["body"] for _ in range(count)]


def test_priorities_are_there_after_a_power_cut(definitions: str) -> None:
    """Those without one are level with 4, and what was taken comes back to its place."""
    node = QuietBroker(definitions=definitions)
    client = node.client()
    declare(client, "q")
    declare(client, "other")
    client.call("confirm.select")
    put_in_priorities(client)
    client.publish("", "other", b"alone")
    node.run()
    assert bodies(client, 2) == [b"nine", b"five"]
    client.method(1, "basic.ack", delivery_tag=1)
    client.publish("", "q", b"last", priority=1)  # its confirm is behind the acknowledgement
    node.run()
    node = after_a_power_cut(node, definitions)
    client = node.client()
    assert bodies(client, 5) == [b"five", b"four", b"none", b"last", b"zero"]
    assert bodies(client, 1, "other") == [b"alone"]
    client.method(1, "basic.nack", delivery_tag=0, multiple=True, requeue=True)
    assert counts(node, "q") == [5]
    node.check()


def test_a_deleted_queue_takes_all_its_priorities_with_it(definitions: str) -> None:
    node = QuietBroker(definitions=definitions)
    client = node.client()
    declare(client, "q")
    client.call("confirm.select")
    put_in_priorities(client)
    node.run()
    assert client.call("queue.delete", queue="q")["messages"] == 5
    node = after_a_power_cut(node, definitions)
    declare(node.client(), "q")
    assert counts(node, "q") == [0]
    node.check()


def test_without_priorities_there_is_one_backing() -> None:
    node = QuietBroker()
    client = node.client()
    declare(client, "q")
    client.publish("", "q", b"one")
    node.run()
    backing = node.broker.vhosts["/"].queues["q"].backing
    assert backing.plain() is backing
    client.publish("", "q", b"two", priority=7)
    node.run()
    queue = node.broker.vhosts["/"].queues["q"]
    assert queue.backing.priorities() == [4, 7]
    assert queue.backing.parts()[0] is backing


def test_a_reader_by_position_has_all_in_the_order_they_came() -> None:
    node = QuietBroker()
    client = node.client()
    declare(client, "q")
    queue = node.broker.vhosts["/"].queues["q"]
    assert isinstance(queue, LocalQueue)
    client.publish("", "q", b"zero", priority=7)
    client.publish("", "q", b"one")
    node.run()
    with pytest.raises(PreconditionFailed, match="cannot be read by position"):
        queue.backing.positions()
    assert bodies(client, 1) == [b"zero"]
    client.method(1, "basic.ack", delivery_tag=1)
    node.run()
    queue.ranges.open()
    client.publish("", "q", b"two", priority=9)
    node.run()
    positions = queue.backing.positions()
    assert (positions.tiers.floor_seq_id(), positions.records.next_seq_id) == (0, 2)
    queue.ranges.close(1)
    assert bodies(client, 2) == [b"one", b"two"]
    node.check()


def test_what_waits_for_its_retry_is_purged_in_every_priority() -> None:
    node = QuietBroker()
    client = node.client()
    declare(client, "q", delayed_retry_type="all", delayed_retry_min=60_000)
    put_in_priorities(client)
    node.run()
    bodies(client, 3)
    client.method(1, "basic.nack", delivery_tag=0, multiple=True, requeue=True)
    assert counts(node, "q") == [2]
    assert client.call("queue.purge", queue="q")["messages"] == 5
    node.check()


def test_a_queue_that_drops_duplicates_has_no_priorities() -> None:
    node = QuietBroker()
    client = node.client()
    declare(client, "q", message_deduplication=True)
    put_in_priorities(client)
    node.run()
    assert bodies(client, 5) == [b"five", b"four", b"nine", b"none", b"zero"]
