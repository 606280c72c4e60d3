"""Lazy queues: declared, declared again, and used like any other queue."""

from typing import Any

from tests.conformance.case import World, case
from tests.helpers.raw_amqp import RawClient

LAZY = {"x-queue-mode": "lazy"}


def _filled(w: World, client: RawClient, *bodies: bytes) -> str:
    q = w.queue(client, exclusive=True, arguments=LAZY)
    w.fill(client, q, *bodies)
    return q


@case
def declare(w: World) -> None:
    a = w.client()
    q = w.name("q")
    w.attempt(a, "queue.declare", queue=q, exclusive=True, arguments=LAZY)
    w.attempt(a, "queue.declare", queue=q, exclusive=True, arguments=LAZY)
    w.attempt(a, "queue.declare", queue=q, passive=True)
    w.attempt(a, "queue.delete", queue=q)


@case
def declare_with_the_other_mode(w: World) -> None:
    a = w.client()
    lazy, default, none = w.name("lazy"), w.name("default"), w.name("none")
    modes: tuple[dict[str, Any], ...] = (LAZY, {"x-queue-mode": "default"}, {})
    for queue, arguments in zip((lazy, default, none), modes, strict=True):
        w.attempt(a, "queue.declare", queue=queue, durable=True, arguments=arguments)
    for queue in (lazy, default, none):
        for arguments in modes:
            w.attempt(a, "queue.declare", queue=queue, durable=True, arguments=arguments)
    w.purge(lazy, default, none)


@case
def mode_of_a_wrong_type(w: World) -> None:
    a = w.client()
    for mode in ("", "Lazy", "sideways", 1, True, None, [1], {"a": 1}):
        arguments = {"x-queue-mode": mode}
        w.attempt(a, "queue.declare", queue=w.name("q"), exclusive=True, arguments=arguments)


@case
def get(w: World) -> None:
    a = w.client()
    q = _filled(w, a, b"one", b"two", b"x" * 9000)
    for _ in range(4):
        w.attempt(a, "basic.get", queue=q, no_ack=True)


@case
def consume_and_acknowledge(w: World) -> None:
    a = w.client()
    q = _filled(w, a, b"one", b"two", b"three")
    a.send(1, "basic.consume", queue=q, consumer_tag="t")
    for _ in range(4):
        a.receive()
    a.send(1, "basic.ack", delivery_tag=2, multiple=True)
    w.barrier(a)
    w.attempt(a, "basic.cancel", consumer_tag="t")
    a.send(1, "basic.recover", requeue=True)
    a.receive()
    w.attempt(a, "queue.declare", queue=q, passive=True)


@case
def purge_spares_what_is_handed_out(w: World) -> None:
    a = w.client()
    q = _filled(w, a, b"one", b"two", b"three")
    w.attempt(a, "basic.get", queue=q)
    w.attempt(a, "queue.purge", queue=q)
    w.attempt(a, "basic.get", queue=q)
    a.send(1, "basic.reject", delivery_tag=1, requeue=True)
    w.barrier(a)
    w.attempt(a, "basic.get", queue=q)


@case
def requeued_come_back_to_their_places(w: World) -> None:
    a = w.client()
    q = _filled(w, a, b"one", b"two", b"three", b"four")
    for _ in range(3):
        w.attempt(a, "basic.get", queue=q)
    a.send(1, "basic.reject", delivery_tag=2, requeue=True)
    a.send(1, "basic.nack", delivery_tag=3, requeue=True)
    a.send(1, "basic.reject", delivery_tag=1, requeue=True)
    w.barrier(a)
    for _ in range(5):
        w.attempt(a, "basic.get", queue=q, no_ack=True)
