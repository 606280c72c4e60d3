"""Queues that are full: max-length, max-length-bytes and what overflow means."""

from typing import Any

from tests.conformance.case import World, case
from tests.helpers.raw_amqp import RawClient


def _bounded(w: World, client: RawClient, **arguments: Any) -> str:
    named = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
    return w.queue(client, exclusive=True, arguments=named)


def _drain(w: World, client: RawClient, queue: str) -> None:
    while w.attempt(client, "basic.get", queue=queue, no_ack=True).name == "basic.get-ok":
        pass


@case
def drop_head_by_count(w: World) -> None:
    """Item 53."""
    a = w.client()
    q = _bounded(w, a, max_length=3)
    w.fill(a, q, *(b"%d" % i for i in range(5)))
    w.attempt(a, "queue.declare", queue=q, passive=True)
    _drain(w, a, q)


@case
def drop_head_by_bytes(w: World) -> None:
    """Item 53: the bytes are those of bodies."""
    a = w.client()
    q = _bounded(w, a, max_length_bytes=10)
    w.fill(a, q, b"aaaa", b"bbbb", b"cccc", b"dd")
    w.attempt(a, "queue.declare", queue=q, passive=True)
    w.fill(a, q, b"larger than all")
    w.attempt(a, "queue.declare", queue=q, passive=True)
    w.fill(a, q, b"ee")
    _drain(w, a, q)


@case
def drop_head_of_length_zero(w: World) -> None:
    a = w.client()
    q = _bounded(w, a, max_length=0)
    w.fill(a, q, b"one", b"two")
    w.attempt(a, "queue.declare", queue=q, passive=True)


@case
def length_zero_with_a_consumer(w: World) -> None:
    """What a consumer takes at once was never in the queue."""
    a = w.client()
    q = _bounded(w, a, max_length=0)
    a.send(1, "basic.consume", queue=q, consumer_tag="t", no_ack=True)
    a.receive()
    w.put(q, b"one")
    a.receive()
    w.put(q, b"two")
    a.receive()


@case
def unacknowledged_do_not_count(w: World) -> None:
    """Item 53: ready messages only; what comes back may push others out."""
    a = w.client()
    q = _bounded(w, a, max_length=2)
    w.fill(a, q, b"one", b"two")
    w.attempt(a, "basic.get", queue=q)
    w.attempt(a, "basic.get", queue=q)
    w.fill(a, q, b"three", b"four")
    w.attempt(a, "queue.declare", queue=q, passive=True)
    a.send(1, "basic.nack", delivery_tag=2, multiple=True, requeue=True)
    w.barrier(a)
    w.attempt(a, "queue.declare", queue=q, passive=True)
    w.fill(a, q, b"five")
    w.attempt(a, "queue.declare", queue=q, passive=True)
    _drain(w, a, q)


@case
def reject_publish_is_nacked(w: World) -> None:
    """Items 54 and 84."""
    a = w.client()
    q = _bounded(w, a, max_length=1, overflow="reject-publish")
    w.attempt(a, "confirm.select")
    for body in (b"one", b"two", b"three"):
        a.publish(1, "", q, body)
        a.receive()
    w.attempt(a, "basic.get", queue=q, no_ack=True)
    a.publish(1, "", q, b"four")
    a.receive()
    _drain(w, a, q)


@case
def reject_publish_by_bytes(w: World) -> None:
    a = w.client()
    q = _bounded(w, a, max_length_bytes=10, overflow="reject-publish")
    w.attempt(a, "confirm.select")
    for body in (b"12345678", b"123", b"12", b"1"):
        a.publish(1, "", q, body)
        a.receive()
    _drain(w, a, q)


@case
def reject_publish_without_confirms(w: World) -> None:
    """Item 54: silent."""
    a = w.client()
    q = _bounded(w, a, max_length=1, overflow="reject-publish")
    a.publish(1, "", q, b"one")
    a.publish(1, "", q, b"two", mandatory=True)
    w.barrier(a)
    w.fill(a, w.queue(a, "other", exclusive=True), b"in between")
    _drain(w, a, q)


@case
def reject_publish_of_one_queue_of_two(w: World) -> None:
    """The other one has it, and the publisher hears no all the same."""
    a = w.client()
    x = w.exchange(a, type_="fanout", auto_delete=True)
    full = _bounded(w, a, max_length=0, overflow="reject-publish")
    free = w.queue(a, "free", exclusive=True)
    for queue in (full, free):
        w.attempt(a, "queue.bind", queue=queue, exchange=x)
    w.attempt(a, "confirm.select")
    a.publish(1, x, "", b"one")
    a.receive()
    _drain(w, a, free)
    w.attempt(a, "queue.declare", queue=full, passive=True)


@case
def overflow_of_another_name(w: World) -> None:
    a = w.client()
    for value in ("", "drop-tail", "reject", 1, True, None):
        arguments = {"x-overflow": value}
        w.attempt(a, "queue.declare", queue=w.name("q"), exclusive=True, arguments=arguments)


@case
def lengths_of_wrong_types(w: World) -> None:
    a = w.client()
    for key in ("x-max-length", "x-max-length-bytes"):
        for value in (-1, "1", 1.5, True, None, 0, 256):
            w.attempt(a, "queue.declare", queue=w.name("q"), exclusive=True, arguments={key: value})


@case
def single_active_consumer_of_wrong_types(w: World) -> None:
    a = w.client()
    for value in ("true", 1, None, False, True):
        arguments = {"x-single-active-consumer": value}
        w.attempt(a, "queue.declare", queue=w.name("q"), exclusive=True, arguments=arguments)


@case
def a_delivery_limit(w: World) -> None:
    """RabbitMQ has them in quorum queues only."""
    a = w.client()
    arguments = {"x-delivery-limit": 2}
    w.attempt(a, "queue.declare", queue=w.name("q"), exclusive=True, arguments=arguments)
