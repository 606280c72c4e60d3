"""Quorum queues, as RabbitMQ 4.3.6 has them (the other subjects are recorded from 3.10.8)."""

from typing import Any

from tests.conformance.case import World, case
from tests.helpers.raw_amqp import RawClient

QUORUM = "quorum"


def _arguments(**named: Any) -> dict[str, Any]:
    return {"x-queue-type": QUORUM} | {
        f"x-{key.replace('_', '-')}": value for key, value in named.items()
    }


def _quorum(w: World, client: RawClient, base: str = "q", **named: Any) -> str:
    """A fresh one, declared off the record."""
    return w.queue(client, base, durable=True, arguments=_arguments(**named))


def _declared(w: World, client: RawClient, name: str, **named: Any) -> None:
    w.attempt(client, "queue.declare", queue=name, durable=True, arguments=_arguments(**named))


def _refused(w: World, **named: Any) -> None:
    """One argument that a classic queue takes, or a value that is none."""
    client = w.client()
    for key, value in named.items():
        _declared(w, client, w.name("q"), **{key: value})


def _again(w: World, client: RawClient, queue: str, how: str, times: int) -> None:
    """Get the message and give it back, so many times, and look at it once more."""
    for _ in range(times):
        tag = w.attempt(client, "basic.get", queue=queue).args["delivery_tag"]
        client.send(1, f"basic.{how}", delivery_tag=tag, requeue=True)
        w.barrier(client)
    w.attempt(client, "basic.get", queue=queue)


@case
def declared(w: World) -> None:
    a = w.client()
    q = w.name("q")
    _declared(w, a, q)
    _declared(w, a, q)
    w.attempt(a, "queue.declare", queue=q, passive=True)
    w.attempt(a, "queue.delete", queue=q)


@case
def declared_as_what_it_cannot_be(w: World) -> None:
    a = w.client()
    kind = _arguments()
    w.attempt(a, "queue.declare", queue=w.name("q"), arguments=kind)
    w.attempt(a, "queue.declare", queue=w.name("q"), durable=True, exclusive=True, arguments=kind)
    w.attempt(a, "queue.declare", queue=w.name("q"), durable=True, auto_delete=True, arguments=kind)
    w.attempt(a, "queue.declare", queue=w.name("q"), exclusive=True, arguments=kind)
    w.attempt(
        a, "queue.declare", queue=w.name("q"), exclusive=True, auto_delete=True, arguments=kind
    )


@case
def declared_without_a_name(w: World) -> None:
    a = w.client()
    w.attempt(a, "queue.declare", queue="", durable=True, arguments=_arguments())


@case
def declared_again_as_classic(w: World) -> None:
    a = w.client()
    q = _quorum(w, a)
    w.attempt(a, "queue.declare", queue=q, durable=True)
    w.attempt(a, "queue.declare", queue=q, durable=True, arguments={"x-queue-type": "classic"})
    plain = w.queue(a, "plain", durable=True)
    _declared(w, a, plain)


@case
def declared_again_otherwise(w: World) -> None:
    a = w.client()
    q = _quorum(w, a, delivery_limit=3)
    _declared(w, a, q)
    _declared(w, a, q, delivery_limit=4)
    _declared(w, a, q, delivery_limit=3)


@case
def arguments_of_classic_queues(w: World) -> None:
    _refused(w, max_priority=5, queue_mode="lazy", queue_version=2)


@case
def arguments_of_streams(w: World) -> None:
    _refused(w, max_age="1h", stream_max_segment_size_bytes=1000000, initial_cluster_size=1)


@case
def arguments_of_quorum_queues(w: World) -> None:
    a = w.client()
    for key, value in (
        ("delivery_limit", 5),
        ("dead_letter_strategy", "at-most-once"),
        ("quorum_initial_group_size", 1),
        ("queue_leader_locator", "balanced"),
        ("queue_leader_locator", "client-local"),
        ("single_active_consumer", True),
        ("expires", 60000),
        ("message_ttl", 60000),
        ("max_length", 5),
        ("max_length_bytes", 5000),
        ("overflow", "drop-head"),
        ("overflow", "reject-publish"),
    ):
        _declared(w, a, w.name("q"), **{key: value})


@case
def wrong_values(w: World) -> None:
    _refused(
        w,
        dead_letter_strategy="sometimes",
        quorum_initial_group_size=0,
        queue_leader_locator="far",
        message_ttl=-1,
        overflow="spill",
    )


@case
def limit_that_is_no_number(w: World) -> None:
    _refused(w, delivery_limit="a")


@case
def dead_letters_at_least_once(w: World) -> None:
    a = w.client()
    _declared(w, a, w.name("q"), dead_letter_strategy="at-least-once", overflow="reject-publish")


@case
def retries_with_a_delay(w: World) -> None:
    a = w.client()
    _declared(w, a, w.name("q"), delayed_retry_type="all", delayed_retry_min=1000)


@case
def retries_without_a_delay(w: World) -> None:
    a = w.client()
    _declared(w, a, w.name("q"), delayed_retry_type="disabled")


@case
def negative_delivery_limit(w: World) -> None:
    _refused(w, delivery_limit=-1)


@case
def arguments_of_quorum_queues_on_a_classic_queue(w: World) -> None:
    a = w.client()
    for key, value in (
        ("x-quorum-initial-group-size", 3),
        ("x-dead-letter-strategy", "at-most-once"),
    ):
        w.attempt(a, "queue.declare", queue=w.name("q"), durable=True, arguments={key: value})


@case
def first_delivery(w: World) -> None:
    a = w.client()
    q = _quorum(w, a)
    w.put(q, b"one", headers={"mine": 1}, delivery_mode=1)
    w.attempt(a, "basic.get", queue=q)
    a.send(1, "basic.ack", delivery_tag=1)
    w.barrier(a)
    w.attempt(a, "basic.get", queue=q)


@case
def rejected_and_requeued(w: World) -> None:
    a = w.client()
    q = _quorum(w, a)
    w.put(q, b"one", headers={"mine": 1})
    _again(w, a, q, "reject", 3)


@case
def nacked_and_requeued(w: World) -> None:
    a = w.client()
    q = _quorum(w, a)
    w.put(q, b"one")
    _again(w, a, q, "nack", 3)


@case
def rejected_after_nacked(w: World) -> None:
    a = w.client()
    q = _quorum(w, a)
    w.put(q, b"one")
    _again(w, a, q, "nack", 1)
    a.send(1, "basic.reject", delivery_tag=2, requeue=True)
    w.barrier(a)
    w.attempt(a, "basic.get", queue=q)


@case
def given_back_by_a_closed_channel(w: World) -> None:
    a = w.client()
    q = _quorum(w, a)
    w.put(q, b"one")
    w.attempt(a, "basic.get", queue=q)
    w.attempt(a, "channel.close", code=200)
    a.open_channel(1)
    w.attempt(a, "basic.get", queue=q)


@case
def recovered(w: World) -> None:
    a = w.client()
    q = _quorum(w, a)
    w.put(q, b"one")
    w.attempt(a, "basic.get", queue=q)
    w.attempt(a, "basic.recover", requeue=True)
    w.attempt(a, "basic.get", queue=q)


@case
def over_the_delivery_limit(w: World) -> None:
    a = w.client()
    morgue = w.queue(a, "morgue", exclusive=True)
    q = _quorum(w, a, delivery_limit=2, dead_letter_exchange="", dead_letter_routing_key=morgue)
    w.put(q, b"one")
    a.send(1, "basic.consume", queue=morgue, consumer_tag="morgue", no_ack=True)
    a.receive()
    for _ in range(3):
        tag = w.attempt(a, "basic.get", queue=q).args["delivery_tag"]
        a.send(1, "basic.reject", delivery_tag=tag, requeue=True)
    a.receive()
    w.attempt(a, "basic.get", queue=q)


@case
def nacked_over_the_delivery_limit(w: World) -> None:
    """A limit of one, and five times given back."""
    a = w.client()
    q = _quorum(w, a, delivery_limit=1)
    w.put(q, b"one")
    _again(w, a, q, "nack", 5)


@case
def rejected_by_the_default_limit(w: World) -> None:
    a = w.client()
    q = _quorum(w, a)
    w.put(q, b"one")
    for _ in range(21):
        tag = w.attempt(a, "basic.get", queue=q).args["delivery_tag"]
        a.send(1, "basic.reject", delivery_tag=tag, requeue=True)
        w.barrier(a)
    w.attempt(a, "basic.get", queue=q)


@case
def rejected_for_good(w: World) -> None:
    a = w.client()
    morgue = w.queue(a, "morgue", exclusive=True)
    q = _quorum(w, a, dead_letter_exchange="", dead_letter_routing_key=morgue)
    w.put(q, b"one")
    a.send(1, "basic.consume", queue=morgue, consumer_tag="morgue", no_ack=True)
    a.receive()
    w.attempt(a, "basic.get", queue=q)
    a.send(1, "basic.reject", delivery_tag=1, requeue=False)
    a.receive()


@case
def redelivered_to_a_consumer(w: World) -> None:
    a = w.client()
    q = _quorum(w, a)
    w.put(q, b"one")
    w.attempt(a, "basic.consume", queue=q, consumer_tag="c")
    a.receive()
    a.send(1, "basic.reject", delivery_tag=1, requeue=True)
    a.receive()
    a.send(1, "basic.ack", delivery_tag=2)
    w.barrier(a)


@case
def consumed_with_a_global_prefetch(w: World) -> None:
    a = w.client()
    q = _quorum(w, a)
    w.attempt(a, "basic.qos", prefetch_count=5, global_=True)
    w.attempt(a, "basic.consume", queue=q, consumer_tag="c")


@case
def consumed_exclusively(w: World) -> None:
    a, b = w.client(), w.client("B")
    q = _quorum(w, a)
    w.attempt(a, "basic.consume", queue=q, consumer_tag="one", exclusive=True)
    w.attempt(b, "basic.consume", queue=q, consumer_tag="two")


@case
def consumed_with_a_priority(w: World) -> None:
    a = w.client()
    q = _quorum(w, a)
    w.attempt(a, "basic.consume", queue=q, consumer_tag="low")
    w.attempt(a, "basic.consume", queue=q, consumer_tag="high", arguments={"x-priority": 5})
    w.put(q, b"one")
    a.receive()


@case
def purged_and_deleted(w: World) -> None:
    a = w.client()
    q = _quorum(w, a)
    w.put(q, b"one", b"two")
    w.attempt(a, "queue.purge", queue=q)
    w.attempt(a, "queue.delete", queue=q, if_empty=True)
    b = w.client("B")
    w.attempt(b, "queue.delete", queue=q, if_unused=True)
    c = w.client("C")
    w.put(q, b"three")
    w.attempt(c, "queue.delete", queue=q)


@case
def full(w: World) -> None:
    a = w.client()
    q = _quorum(w, a, max_length=2)
    w.put(q, b"one", b"two", b"three")
    for _ in range(3):
        w.attempt(a, "basic.get", queue=q, no_ack=True)
