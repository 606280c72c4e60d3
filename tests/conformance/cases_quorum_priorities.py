"""The 32 priorities of a quorum queue, as RabbitMQ 4.3.6 has them."""

import time

from tests.conformance.case import World, case
from tests.conformance.quorum_tools import consume, get_quietly, get_rest, quorum_queue


@case
def with_priorities(w: World) -> None:
    a = w.client()
    q = quorum_queue(w, a)
    for priority in (0, 1, 4, 5, 9, 31, 32, 255):
        w.put(q, b"%d" % priority, priority=priority)
    w.put(q, b"none")
    get_rest(w, a, q)


@case
def prioritised_and_given_back(w: World) -> None:
    a = w.client()
    q = quorum_queue(w, a)
    w.put(q, b"low", priority=0)
    w.put(q, b"high", priority=9)
    get_quietly(w, a, q, 1)
    a.send(1, "basic.nack", delivery_tag=1, requeue=True)
    w.barrier(a)
    get_rest(w, a, q)


@case
def a_higher_priority_overtakes_what_came_back(w: World) -> None:
    a = w.client()
    q = quorum_queue(w, a)
    w.put(q, b"low", priority=1)
    get_quietly(w, a, q, 1)
    w.put(q, b"high", priority=9)
    a.send(1, "basic.nack", delivery_tag=1, requeue=True)
    w.barrier(a)
    get_rest(w, a, q)


@case
def full_of_priorities(w: World) -> None:
    a = w.client()
    q = quorum_queue(w, a, max_length=2)
    for priority in (3, 31, 2, 5):
        w.put(q, b"%d" % priority, priority=priority)
    get_rest(w, a, q)


@case
def prioritised_and_dead(w: World) -> None:
    """A letter keeps the property; the queue it goes to orders by it."""
    a = w.client()
    morgue = quorum_queue(w, a, "morgue")
    q = quorum_queue(w, a, dead_letter_exchange="", dead_letter_routing_key=morgue, message_ttl=0)
    for priority in (2, 12, 7):
        w.put(q, b"%d" % priority, priority=priority)
    w.attempt(a, "basic.get", queue=q)
    consume(w, a, morgue, "morgue", no_ack=True)
    for _ in range(3):
        a.receive()


@case
def prioritised_and_consumed(w: World) -> None:
    a = w.client()
    q = quorum_queue(w, a)
    for priority in (0, 4, 9, 31, 40):
        w.put(q, b"%d" % priority, priority=priority)
    w.put(q, b"none")
    w.attempt(a, "queue.declare", queue=q, passive=True)
    w.attempt(a, "basic.qos", prefetch_count=2)
    consume(w, a, q)
    a.receive()
    a.receive()
    for tag in range(1, 5):
        a.send(1, "basic.ack", delivery_tag=tag)
        a.receive()


@case
def prioritised_and_retried_later(w: World) -> None:
    a = w.client()
    q = quorum_queue(w, a, delayed_retry_type="all", delayed_retry_min=300)
    w.put(q, b"high", priority=9)
    get_quietly(w, a, q, 1)
    a.send(1, "basic.nack", delivery_tag=1, requeue=True)
    w.barrier(a)
    w.put(q, b"low", priority=1)
    w.attempt(a, "basic.qos", prefetch_count=1)
    consume(w, a, q)
    a.receive()
    time.sleep(0.6)
    a.send(1, "basic.ack", delivery_tag=2)
    a.receive()


@case
def purged_of_priorities(w: World) -> None:
    a = w.client()
    q = quorum_queue(w, a)
    for priority in (0, 3, 31):
        w.put(q, b"m", priority=priority)
    w.attempt(a, "queue.purge", queue=q)
    w.put(q, b"m", priority=9)
    w.attempt(a, "queue.delete", queue=q)
