"""Retries after a delay in quorum queues (``x-delayed-retry-…``), as RabbitMQ 4.3.6 has them."""

import time

from tests.conformance.case import World, case
from tests.conformance.quorum_tools import (
    consume,
    declare,
    declare_each,
    get_again,
    get_quietly,
    quorum_queue,
)
from tests.helpers.raw_amqp import RawClient


def _later(w: World, client: RawClient, queue: str) -> None:
    """It is not there now, and a consumer gets it when it is."""
    w.attempt(client, "basic.get", queue=queue)
    w.attempt(client, "queue.declare", queue=queue, passive=True)
    consume(w, client, queue, "later")
    client.receive()
    w.attempt(client, "basic.cancel", consumer_tag="later")


@case
def retried_later_whatever_happened(w: World) -> None:
    a = w.client()
    q = quorum_queue(w, a, delayed_retry_type="all", delayed_retry_min=400)
    w.put(q, b"one")
    get_quietly(w, a, q, 1)
    a.send(1, "basic.nack", delivery_tag=1, requeue=True)
    w.barrier(a)
    _later(w, a, q)
    a.send(1, "basic.reject", delivery_tag=2, requeue=True)
    w.barrier(a)
    _later(w, a, q)


@case
def retried_later_when_it_failed(w: World) -> None:
    a = w.client()
    q = quorum_queue(w, a, delayed_retry_type="failed", delayed_retry_min=400)
    w.put(q, b"one")
    get_again(w, a, q, "nack", 2)
    a.send(1, "basic.reject", delivery_tag=3, requeue=True)
    w.barrier(a)
    _later(w, a, q)


@case
def retried_later_when_it_was_returned(w: World) -> None:
    a = w.client()
    q = quorum_queue(w, a, delayed_retry_type="returned", delayed_retry_min=400)
    w.put(q, b"one")
    get_again(w, a, q, "reject", 2)
    a.send(1, "basic.nack", delivery_tag=3, requeue=True)
    w.barrier(a)
    _later(w, a, q)


@case
def retried_later_after_a_closed_channel(w: World) -> None:
    a, b = w.client(), w.client("B")
    q = quorum_queue(w, a, delayed_retry_type="failed", delayed_retry_min=400)
    w.put(q, b"one")
    get_quietly(w, b, q, 1)
    w.attempt(b, "channel.close", code=200)
    _later(w, a, q)


@case
def retried_later_after_a_recovery(w: World) -> None:
    a = w.client()
    q = quorum_queue(w, a, delayed_retry_type="returned", delayed_retry_min=400)
    w.put(q, b"one")
    get_quietly(w, a, q, 1)
    w.attempt(a, "basic.recover", requeue=True)
    _later(w, a, q)


@case
def not_retried_later(w: World) -> None:
    """Without a least time, or without a type."""
    for named in (
        {"delayed_retry_type": "all"},
        {"delayed_retry_type": "all", "delayed_retry_max": 60_000},
        {"delayed_retry_type": "disabled", "delayed_retry_min": 60_000},
        {"delayed_retry_min": 60_000},
    ):
        a = w.client()
        q = w.name("q")
        declare(w, a, q, **named)
        w.put(q, b"one")
        get_again(w, a, q, "nack", 1)


@case
def wrong_values_of_retries(w: World) -> None:
    declare_each(w, delayed_retry_type="often", delayed_retry_min=0, delayed_retry_max=-1)


@case
def retried_by_a_bound_below_the_least(w: World) -> None:
    a = w.client()
    q = quorum_queue(
        w, a, delayed_retry_type="all", delayed_retry_min=60_000, delayed_retry_max=200
    )
    w.put(q, b"one")
    get_quietly(w, a, q, 1)
    a.send(1, "basic.nack", delivery_tag=1, requeue=True)
    w.barrier(a)
    _later(w, a, q)


@case
def retried_too_often(w: World) -> None:
    """What is over its limit dies at once."""
    a = w.client()
    morgue = w.queue(a, "morgue", exclusive=True)
    q = quorum_queue(
        w,
        a,
        delivery_limit=0,
        delayed_retry_type="all",
        delayed_retry_min=60_000,
        dead_letter_exchange="",
        dead_letter_routing_key=morgue,
    )
    w.put(q, b"one")
    consume(w, a, morgue, "morgue", no_ack=True)
    get_quietly(w, a, q, 1)
    a.send(1, "basic.reject", delivery_tag=1, requeue=True)
    a.receive()


@case
def purged_while_it_waits(w: World) -> None:
    a = w.client()
    q = quorum_queue(w, a, delayed_retry_type="all", delayed_retry_min=500)
    w.put(q, b"one", b"two")
    get_quietly(w, a, q, 1)
    a.send(1, "basic.nack", delivery_tag=1, requeue=True)
    w.barrier(a)
    w.attempt(a, "queue.purge", queue=q)
    w.put(q, b"three")
    consume(w, a, q)
    a.receive()


@case
def deleted_while_it_waits(w: World) -> None:
    a = w.client()
    q = quorum_queue(w, a, delayed_retry_type="all", delayed_retry_min=60_000)
    w.put(q, b"one", b"two")
    get_quietly(w, a, q, 1)
    a.send(1, "basic.nack", delivery_tag=1, requeue=True)
    w.barrier(a)
    w.attempt(a, "queue.delete", queue=q)


@case
def retried_before_what_came_meanwhile(w: World) -> None:
    a = w.client()
    q = quorum_queue(w, a, delayed_retry_type="all", delayed_retry_min=200)
    w.put(q, b"one")
    get_quietly(w, a, q, 1)
    a.send(1, "basic.nack", delivery_tag=1, requeue=True)
    w.barrier(a)
    w.put(q, b"two", b"three")
    w.attempt(a, "basic.qos", prefetch_count=1)
    consume(w, a, q)
    a.receive()
    time.sleep(0.5)
    a.send(1, "basic.ack", delivery_tag=2)
    a.receive()
    a.send(1, "basic.ack", delivery_tag=3)
    a.receive()


@case
def declared_again_with_other_retries(w: World) -> None:
    a = w.client()
    q = quorum_queue(w, a, delayed_retry_type="all", delayed_retry_min=1000)
    declare(w, a, q, delayed_retry_type="failed", delayed_retry_min=1000)
    declare(w, a, q, delayed_retry_type="all", delayed_retry_min=2000)
    declare(w, a, q, delayed_retry_type="all", delayed_retry_min=1000, delayed_retry_max=1000)
    declare(w, a, q)


@case
def retries_of_a_classic_queue(w: World) -> None:
    a = w.client()
    for key, value in (
        ("x-delayed-retry-type", "all"),
        ("x-delayed-retry-min", 5),
        ("x-delayed-retry-max", 5),
    ):
        w.attempt(a, "queue.declare", queue=w.name("q"), durable=True, arguments={key: value})
