"""Budgets of virtual hosts: what counts, when a reason comes and goes, and how they are set."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.administration import Administration, limits_of
from penstock.broker.definitions.exporting import export_definitions
from penstock.broker.rules.budget import MAX_DISK, MAX_MEMORY, MAX_RATE
from penstock.broker.topology.vhost import Vhost
from penstock.core.errors import PreconditionFailed
from penstock.core.message import PERSISTENT, Message
from penstock.protocols.amqp.codec.header_reader import AmqpHeaderReader
from penstock.protocols.amqp.codec.letters import AmqpLetterWriter
from tests.helpers.connection_pair import QuietBroker

OVERHEAD = 200


class House:
    """Two virtual hosts with a queue each; whatever is set is set for the first."""

    def __init__(self, **limits: int) -> None:
        self.node = QuietBroker()
        self.broker = self.node.broker
        self.administration = Administration(self.broker, 16_384)
        self.administration.put_vhost("one")
        self.administration.put_vhost("two")
        self.one, self.two = self.broker.vhosts["one"], self.broker.vhosts["two"]
        for vhost in (self.one, self.two):
            for name, durable in (("lasting", True), ("passing", False)):
                vhost.declare_queue(name, durable, None, False, {})
        self.set(**limits)

    def set(self, **limits: int) -> None:
        named = {name.replace("_", "-"): value for name, value in limits.items()}
        self.administration.set_vhost_limits("one", named)

    def publish(self, vhost: Vhost, count: int, size: int = 100, name: str = "passing") -> None:
        flags = PERSISTENT if name == "lasting" else 0
        messages = [Message(b"x" * size, b"", flags, 0) for _ in range(count)]
        vhost.publish([vhost.queues[name]], messages, self.node.now_ms)
        self.broker.budgets.spend(vhost, count)

    def take(self, count: int, name: str = "passing") -> None:
        backing = self.one.queues[name].backing
        backing.ack(backing.fetch(count, 1 << 40))

    def tick(self, passed_ms: int = 250) -> str:
        self.node.now_ms += passed_ms
        self.broker.budgets.tick(self.node.now_ms)
        self.broker.budgets.check()
        assert "two" not in self.broker.budgets.reasons
        return self.broker.budgets.reasons.get("one", "")


def test_without_budgets_there_is_nothing_to_say() -> None:
    house = House()
    house.publish(house.one, 1000)
    assert house.tick() == ""
    assert house.broker.budgets.usages == {}


def test_memory_over_the_limit_until_a_tenth_is_free() -> None:
    house = House(max_memory_bytes=30_000)
    house.publish(house.two, 1000)
    house.publish(house.one, 60)
    house.publish(house.one, 40, name="lasting")
    assert house.tick() == "", "not more than it may"
    house.publish(house.one, 1)
    assert house.tick() == "low on memory in virtual host 'one'"
    house.take(10)
    assert house.tick() != "", "not yet a tenth less"
    house.take(1)
    assert house.tick() == ""
    house.publish(house.one, 9)
    assert house.tick() == ""


def test_unacknowledged_messages_are_in_memory_too() -> None:
    house = House(max_memory_bytes=1000)
    house.publish(house.one, 10)
    house.one.queues["passing"].backing.fetch(10, 1 << 40)
    assert house.tick() == "low on memory in virtual host 'one'"


def test_disk_counts_what_lasts_and_what_was_paged() -> None:
    house = House(max_disk_bytes=10_000)
    house.publish(house.one, 1000)
    assert house.tick() == "", "all of it in memory only"
    house.publish(house.one, 101, name="lasting")
    assert house.tick() == "low on disk in virtual host 'one'"
    house.take(11, "lasting")
    assert house.tick() == ""
    house.node.engine.ram.paging_bytes = 50_000
    for _ in range(50):
        house.node.turn.run(house.node.now_ms, True)
    assert house.tick() == "low on disk in virtual host 'one'"
    house.one.queues["passing"].backing.purge()
    house.one.queues["lasting"].backing.purge()
    assert house.tick() == ""
    assert house.broker.budgets.usages["one"].disk_bytes == 0


def test_a_rate_is_a_bucket_of_one_second() -> None:
    house = House(max_publish_rate=1000)
    assert house.tick() == ""
    house.publish(house.one, 999)
    assert house.one.budget.allowance > 0
    house.publish(house.one, 1)
    assert house.one.budget.allowance <= 0
    assert house.broker.budgets.reasons == {"one": "publish rate of virtual host 'one'"}
    assert house.tick() != "", "a quarter of a bucket"
    assert house.tick() == "", "half a bucket"
    house.publish(house.one, 1500)
    assert house.tick() != ""
    for _ in range(4):
        assert house.tick() != "", "what was over it is paid back"
    assert house.tick() == ""


@given(
    rate=st.integers(1, 5000),
    steps=st.lists(st.tuples(st.integers(1, 3000), st.integers(1, 600)), max_size=40),
)
def test_no_more_than_the_rate_goes_through(rate: int, steps: list[tuple[int, int]]) -> None:
    """A publisher that stops while it is told to, whenever somebody looks."""
    house = House(max_publish_rate=rate)
    house.tick()
    began_ms = house.node.now_ms
    published = largest = waited_ms = 0
    for passed_ms, count in steps:
        reason = house.tick(passed_ms)
        waited_ms = waited_ms + passed_ms if reason else 0
        assert waited_ms <= 3000 + 1000 * (largest + rate) // rate, "held for ever"
        if reason == "":
            house.publish(house.one, count)
            published += count
            largest = max(largest, count)
    passed_s = (house.node.now_ms - began_ms) / 1000
    assert published <= rate * (passed_s + 1) + largest


def test_nothing_goes_through_a_limit_of_nothing() -> None:
    for name in (MAX_MEMORY, MAX_DISK, MAX_RATE):
        house = House(**{name.replace("-", "_"): 0})
        assert house.tick() != ""
        assert house.tick(10_000) != ""


def test_reasons_are_joined_and_go_with_their_limit() -> None:
    house = House(max_memory_bytes=0, max_disk_bytes=0, max_publish_rate=0)
    assert house.tick() == (
        "low on memory in virtual host 'one' & low on disk in virtual host 'one'"
        " & publish rate of virtual host 'one'"
    )
    house.set(max_disk_bytes=0)
    assert house.tick() == "low on disk in virtual host 'one'"
    assert house.one.budget.allowance > 0
    house.set()
    assert house.tick() == ""
    assert house.broker.budgets.usages == {}


def test_a_clock_that_goes_back_holds_nobody_for_long() -> None:
    house = House(max_publish_rate=10, max_memory_bytes=1000)
    house.tick()
    house.tick(-3_600_000)
    house.publish(house.one, 10)
    assert house.tick() != ""
    house.take(10)
    assert house.tick(1000) == ""


def test_very_many_queues_are_looked_at_more_rarely() -> None:
    house = House(max_memory_bytes=1000)
    for number in range(800):
        house.one.declare_queue(f"q{number}", False, None, False, {})
    assert house.tick(1) == ""
    house.publish(house.one, 10)
    assert house.tick(1) == ""
    assert house.tick(5) != ""


def test_they_are_kept_and_exported_like_other_limits() -> None:
    house = House(max_memory_bytes=1 << 33, max_publish_rate=7, max_queues=5, max_channels=9)
    wanted = {"max-memory-bytes": 1 << 33, "max-publish-rate": 7, "max-queues": 5}
    wanted["max-channels"] = 9
    assert limits_of(house.one) == wanted
    again = type(house.broker)(
        house.node.definitions,
        house.node.engine,
        house.node.make_backing,
        str,
        [],
        AmqpLetterWriter(),
        AmqpHeaderReader(),
    )
    again.open(house.node.definitions.load(), 1, 1)
    assert limits_of(again.vhosts["one"]) == wanted
    said: Any = json.loads(json.dumps(export_definitions(house.broker, "3.10.8", "0")))
    limits = [row for row in said["parameters"] if row["component"] == "vhost-limits"]
    assert limits == [
        {"vhost": "one", "component": "vhost-limits", "name": "limits", "value": wanted}
    ]


@pytest.mark.parametrize(
    "name, value, text",
    [
        ("max-publish-rate", 1 << 31, "max-publish-rate is more than 2147483647"),
        ("max-disk-bytes", 1 << 61, f"max-disk-bytes is more than {1 << 60}"),
        ("max-disk-bytes", "1GB", "max-disk-bytes should be a number"),
    ],
)
def test_what_no_budget_can_be(name: str, value: Any, text: str) -> None:
    with pytest.raises(PreconditionFailed, match=text):
        House().administration.set_vhost_limits("one", {name: value})
