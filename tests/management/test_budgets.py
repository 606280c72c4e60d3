"""Budgets of virtual hosts on a running broker: only their own publishers are held."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

import pika
import pytest

from penstock.broker.administration import Administration
from penstock.broker.rules.budget import MAX_DISK, MAX_MEMORY, MAX_RATE
from tests.management.conftest import Served
from tests.management.test_limits import put

logging.getLogger("pika").setLevel(logging.CRITICAL)


def new_vhost(served: Served, name: str) -> None:
    administration = Administration(served.node.broker, 1024)
    administration.put_vhost(name)
    administration.put_permission("guest", name, ".*", ".*", ".*")


class Tenant:
    """A connection to a virtual host of its own, with a queue, that hears when it is held."""

    def __init__(self, served: Served, vhost: str) -> None:
        served.on_loop(lambda: new_vhost(served, vhost))
        self.heard: list[str] = []
        self.connection = pika.BlockingConnection(
            pika.ConnectionParameters("127.0.0.1", served.amqp_port, vhost)
        )
        self.connection.add_on_connection_blocked_callback(
            lambda _, frame: self.heard.append(frame.method.reason)
        )
        self.connection.add_on_connection_unblocked_callback(lambda *_: self.heard.append(""))
        self.channel: Any = self.connection.channel()
        self.channel.queue_declare("q", durable=True)

    def publish(self, count: int, size: int = 1000, *, lasting: bool = False) -> None:
        properties = pika.BasicProperties(delivery_mode=2 if lasting else 1)
        for _ in range(count):
            self.channel.basic_publish("", "q", b"x" * size, properties)

    def depth(self) -> int:
        """Asked on another channel: it overtakes publishes that are held."""
        channel: Any = self.connection.channel()
        count = int(channel.queue_declare("q", passive=True).method.message_count)
        channel.close()
        return count

    def until(self, what: Callable[[], bool], limit_s: float = 5.0) -> None:
        deadline = time.monotonic() + limit_s
        while not what():
            assert time.monotonic() < deadline, f"waited in vain; heard {self.heard}"
            self.connection.process_data_events(0.02)


@pytest.fixture
def tenants(served: Served) -> Iterator[tuple[Tenant, Tenant]]:
    both = Tenant(served, "one"), Tenant(served, "two")
    yield both
    for name in (MAX_MEMORY, MAX_DISK, MAX_RATE):
        limit(served, name, -1)
    for tenant in both:
        tenant.connection.close()


def limit(served: Served, name: str, value: int) -> None:
    assert put(served, f"/api/vhost-limits/one/{name}", value) == 204


def test_only_publishers_of_a_virtual_host_over_its_memory_are_held(
    served: Served, tenants: tuple[Tenant, Tenant]
) -> None:
    one, two = tenants
    limit(served, "max-memory-bytes", 100_000)
    one.publish(200)
    one.until(lambda: one.heard == ["low on memory in virtual host 'one'"])
    held = one.depth()
    one.publish(50)
    two.publish(500)
    two.until(lambda: two.depth() == 500)
    assert (one.depth(), two.heard) == (held, [])
    # What is taken makes room: consumers go on.  On a channel that holds publishes they wait.
    taker: Any = one.connection.channel()
    taker.basic_consume("q", lambda *_: None, auto_ack=True)
    one.until(lambda: one.heard[-1] == "")
    one.until(lambda: one.depth() == 0)
    assert one.heard == ["low on memory in virtual host 'one'", ""]


def test_a_limit_that_goes_lets_publishers_go(
    served: Served, tenants: tuple[Tenant, Tenant]
) -> None:
    one, two = tenants
    one.channel.queue_purge("q")
    limit(served, "max-disk-bytes", 50_000)
    one.publish(100, lasting=True)
    one.until(lambda: one.heard == ["low on disk in virtual host 'one'"])
    one.publish(20, lasting=True)
    two.channel.confirm_delivery()
    two.publish(1, lasting=True)
    assert one.depth() == 100
    limit(served, "max-disk-bytes", -1)
    one.until(lambda: one.depth() == 120)
    one.until(lambda: one.heard[-1] == "")
    one.channel.queue_purge("q")


def test_a_rate_is_kept_and_nobody_else_slowed(
    served: Served, tenants: tuple[Tenant, Tenant]
) -> None:
    one, two = tenants
    one.channel.queue_purge("q")
    two.channel.queue_purge("q")
    limit(served, "max-publish-rate", 200)
    began = time.monotonic()
    one.publish(800, 10)
    two.publish(800, 10)
    two.until(lambda: two.depth() == 800, 2.0)
    assert one.depth() < 600
    one.until(lambda: one.depth() == 800, 10.0)
    assert time.monotonic() - began > 0.5, "a second's worth is free, and one read"
    one.until(lambda: one.heard[-1] == "")
    assert set(one.heard) == {"publish rate of virtual host 'one'", ""}
    assert two.heard == []
