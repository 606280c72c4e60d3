"""Quorum queues, as RabbitMQ 4.3.6 has them (the other subjects are recorded from 3.10.8)."""

import time
from typing import Any

from tests.conformance.case import World, case
from tests.helpers import raw_codec as codec
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


def _taken(w: World, client: RawClient, queue: str, count: int) -> None:
    """Get so many messages off the record; their delivery tags are 1, 2 ..."""
    for _ in range(count):
        client.send_off_record(codec.method_frame(1, "basic.get", queue=queue))
        client.receive_quietly()


def _rest(w: World, client: RawClient, queue: str) -> None:
    """What is ready, in order; taken away."""
    while w.attempt(client, "basic.get", queue=queue, no_ack=True).name == "basic.get-ok":
        pass


def _consuming(w: World, client: RawClient, queue: str, tag: str = "c", **args: Any) -> None:
    w.attempt(client, "basic.consume", queue=queue, consumer_tag=tag, **args)


@case
def given_back_by_a_closed_connection(w: World) -> None:
    a, b = w.client(), w.client("B")
    q = _quorum(w, a)
    w.put(q, b"one", b"two")
    _taken(w, b, q, 1)
    w.attempt(b, "connection.close", channel=0, code=200)
    _consuming(w, a, q)
    a.receive()
    a.receive()


@case
def given_back_by_a_lost_connection(w: World) -> None:
    a, b = w.client(), w.client("B")
    q = _quorum(w, a)
    w.put(q, b"one")
    _taken(w, b, q, 1)
    b.close_socket()
    _consuming(w, a, q)
    a.receive()


@case
def given_back_by_a_failed_channel(w: World) -> None:
    a = w.client()
    q = _quorum(w, a)
    w.put(q, b"one")
    _taken(w, a, q, 1)
    a.send(1, "basic.ack", delivery_tag=7)
    w.outcome(a)
    _consuming(w, a, q)
    a.receive()


@case
def nacked_after_the_consumer_was_cancelled(w: World) -> None:
    a = w.client()
    q = _quorum(w, a)
    w.put(q, b"one")
    _consuming(w, a, q)
    a.receive()
    w.attempt(a, "basic.cancel", consumer_tag="c")
    w.attempt(a, "basic.get", queue=q)
    a.send(1, "basic.nack", delivery_tag=1, requeue=True)
    w.barrier(a)
    w.attempt(a, "basic.get", queue=q)


@case
def closed_after_the_consumer_was_cancelled(w: World) -> None:
    a = w.client()
    q = _quorum(w, a)
    w.put(q, b"one")
    _consuming(w, a, q)
    a.receive()
    w.attempt(a, "basic.cancel", consumer_tag="c")
    w.attempt(a, "channel.close", code=200)
    a.open_channel(1)
    _consuming(w, a, q)
    a.receive()


@case
def nacked_up_to_a_tag(w: World) -> None:
    a = w.client()
    q = _quorum(w, a)
    w.put(q, b"one", b"two", b"three")
    _taken(w, a, q, 3)
    a.send(1, "basic.nack", delivery_tag=2, multiple=True, requeue=True)
    w.barrier(a)
    w.attempt(a, "basic.get", queue=q)
    a.send(1, "basic.nack", delivery_tag=0, multiple=True, requeue=True)
    w.barrier(a)
    _rest(w, a, q)


@case
def returned_in_their_order(w: World) -> None:
    """The last first, then the first: where does each come back?"""
    a = w.client()
    q = _quorum(w, a)
    w.put(q, b"one", b"two", b"three", b"four")
    _taken(w, a, q, 3)
    a.send(1, "basic.nack", delivery_tag=3, requeue=True)
    a.send(1, "basic.nack", delivery_tag=1, requeue=True)
    w.barrier(a)
    _rest(w, a, q)


@case
def recovered_to_a_consumer(w: World) -> None:
    a = w.client()
    q = _quorum(w, a)
    w.put(q, b"one")
    _consuming(w, a, q)
    a.receive()
    w.attempt(a, "basic.recover", requeue=True)
    a.receive()


@case
def recovered_without_an_answer(w: World) -> None:
    a = w.client()
    q = _quorum(w, a)
    w.put(q, b"one")
    _taken(w, a, q, 1)
    a.send(1, "basic.recover-async", requeue=True)
    w.barrier(a)
    w.attempt(a, "basic.get", queue=q)


@case
def counts_that_the_publisher_wrote(w: World) -> None:
    a = w.client()
    q = _quorum(w, a)
    w.put(q, b"one", headers={"x-acquired-count": 9, "x-delivery-count": 7})
    _again(w, a, q, "nack", 1)
    a.send(1, "basic.reject", delivery_tag=2, requeue=True)
    w.barrier(a)
    w.attempt(a, "basic.get", queue=q)


@case
def given_back_and_consumed_without_acknowledgements(w: World) -> None:
    a = w.client()
    q = _quorum(w, a)
    w.put(q, b"one", b"two")
    _taken(w, a, q, 1)
    a.send(1, "basic.nack", delivery_tag=1, requeue=True)
    w.barrier(a)
    _consuming(w, a, q, no_ack=True)
    a.receive()
    a.receive()


@case
def dead_after_it_was_given_back(w: World) -> None:
    a = w.client()
    morgue = w.queue(a, "morgue", exclusive=True)
    q = _quorum(w, a, dead_letter_exchange="", dead_letter_routing_key=morgue)
    w.put(q, b"one", headers={"mine": 1})
    _taken(w, a, q, 1)
    a.send(1, "basic.nack", delivery_tag=1, requeue=True)
    w.barrier(a)
    _taken(w, a, q, 1)
    a.send(1, "basic.reject", delivery_tag=2, requeue=True)
    w.barrier(a)
    _taken(w, a, q, 1)
    _consuming(w, a, morgue, "morgue", no_ack=True)
    a.send(1, "basic.reject", delivery_tag=3, requeue=False)
    a.receive()


@case
def rejected_in_a_transaction(w: World) -> None:
    a = w.client()
    q = _quorum(w, a)
    w.put(q, b"one")
    w.attempt(a, "tx.select")
    _taken(w, a, q, 1)
    a.send(1, "basic.reject", delivery_tag=1, requeue=True)
    w.attempt(a, "basic.get", queue=q)
    w.attempt(a, "tx.commit")
    _consuming(w, a, q)
    a.receive()


@case
def nacked_in_a_transaction(w: World) -> None:
    a = w.client()
    q = _quorum(w, a)
    w.put(q, b"one")
    w.attempt(a, "tx.select")
    _taken(w, a, q, 1)
    a.send(1, "basic.nack", delivery_tag=1, requeue=True)
    w.attempt(a, "tx.commit")
    _consuming(w, a, q)
    a.receive()


@case
def the_active_consumer_goes(w: World) -> None:
    a, b = w.client(), w.client("B")
    q = _quorum(w, a, single_active_consumer=True)
    w.put(q, b"one")
    _consuming(w, a, q, "one")
    a.receive()
    _consuming(w, b, q, "two")
    w.attempt(a, "channel.close", code=200)
    b.receive()


@case
def the_active_consumer_is_cancelled(w: World) -> None:
    a, b = w.client(), w.client("B")
    q = _quorum(w, a, single_active_consumer=True)
    w.put(q, b"one")
    _consuming(w, a, q, "one")
    a.receive()
    _consuming(w, b, q, "two")
    w.attempt(a, "basic.cancel", consumer_tag="one")
    w.put(q, b"two")
    b.receive()
    a.send(1, "basic.nack", delivery_tag=1, requeue=True)
    b.receive()


@case
def one_at_a_time(w: World) -> None:
    a = w.client()
    q = _quorum(w, a)
    w.put(q, b"one", b"two", b"three")
    w.attempt(a, "basic.qos", prefetch_count=1)
    _consuming(w, a, q)
    a.receive()
    a.send(1, "basic.ack", delivery_tag=1)
    a.receive()
    a.send(1, "basic.nack", delivery_tag=2, requeue=True)
    a.receive()


@case
def expired_in_the_queue(w: World) -> None:
    a = w.client()
    morgue = w.queue(a, "morgue", exclusive=True)
    q = _quorum(w, a, message_ttl=50, dead_letter_exchange="", dead_letter_routing_key=morgue)
    _consuming(w, a, morgue, "morgue", no_ack=True)
    w.put(q, b"one")
    a.receive()


@case
def expired_by_its_own_time(w: World) -> None:
    a = w.client()
    morgue = w.queue(a, "morgue", exclusive=True)
    q = _quorum(w, a, dead_letter_exchange="", dead_letter_routing_key=morgue)
    _consuming(w, a, morgue, "morgue", no_ack=True)
    w.put(q, b"one", expiration="50")
    a.receive()


@case
def pushed_out(w: World) -> None:
    a = w.client()
    morgue = w.queue(a, "morgue", exclusive=True)
    q = _quorum(w, a, max_length=1, dead_letter_exchange="", dead_letter_routing_key=morgue)
    _consuming(w, a, morgue, "morgue", no_ack=True)
    w.put(q, b"one", b"two")
    a.receive()
    _rest(w, a, q)


@case
def refused_by_a_full_queue(w: World) -> None:
    a = w.client()
    q = _quorum(w, a, max_length=1, overflow="reject-publish")
    w.put(q, b"one")
    w.attempt(a, "confirm.select")
    for body in (b"two", b"three", b"four"):
        a.publish(1, "", q, body)
        a.receive()


@case
def buried_twice(w: World) -> None:
    """A quorum queue, then another: where it died first, and where last."""
    a = w.client()
    morgue = w.queue(a, "morgue", exclusive=True)
    second = _quorum(w, a, "second", dead_letter_exchange="", dead_letter_routing_key=morgue)
    q = _quorum(w, a, dead_letter_exchange="", dead_letter_routing_key=second)
    w.put(q, b"one")
    _taken(w, a, q, 1)
    a.send(1, "basic.reject", delivery_tag=1, requeue=False)
    _consuming(w, a, second, "second")
    a.receive()
    _consuming(w, a, morgue, "morgue", no_ack=True)
    a.send(1, "basic.nack", delivery_tag=2, requeue=False)
    a.receive()


@case
def buried_by_an_exchange_that_is_not_there(w: World) -> None:
    a = w.client()
    q = _quorum(w, a, dead_letter_exchange="no such exchange")
    w.put(q, b"one")
    _taken(w, a, q, 1)
    a.send(1, "basic.reject", delivery_tag=1, requeue=False)
    w.barrier(a)
    _rest(w, a, q)


@case
def with_priorities(w: World) -> None:
    a = w.client()
    q = _quorum(w, a)
    for priority in (0, 1, 4, 5, 9, 31, 32, 255):
        w.put(q, b"%d" % priority, priority=priority)
    w.put(q, b"none")
    _rest(w, a, q)


@case
def prioritised_and_given_back(w: World) -> None:
    a = w.client()
    q = _quorum(w, a)
    w.put(q, b"low", priority=0)
    w.put(q, b"high", priority=9)
    _taken(w, a, q, 1)
    a.send(1, "basic.nack", delivery_tag=1, requeue=True)
    w.barrier(a)
    _rest(w, a, q)


@case
def a_higher_priority_overtakes_what_came_back(w: World) -> None:
    a = w.client()
    q = _quorum(w, a)
    w.put(q, b"low", priority=1)
    _taken(w, a, q, 1)
    w.put(q, b"high", priority=9)
    a.send(1, "basic.nack", delivery_tag=1, requeue=True)
    w.barrier(a)
    _rest(w, a, q)


@case
def full_of_priorities(w: World) -> None:
    a = w.client()
    q = _quorum(w, a, max_length=2)
    for priority in (3, 31, 2, 5):
        w.put(q, b"%d" % priority, priority=priority)
    _rest(w, a, q)


@case
def prioritised_and_dead(w: World) -> None:
    """A letter keeps the property; the queue it goes to orders by it."""
    a = w.client()
    morgue = _quorum(w, a, "morgue")
    q = _quorum(w, a, dead_letter_exchange="", dead_letter_routing_key=morgue, message_ttl=0)
    for priority in (2, 12, 7):
        w.put(q, b"%d" % priority, priority=priority)
    w.attempt(a, "basic.get", queue=q)
    _consuming(w, a, morgue, "morgue", no_ack=True)
    for _ in range(3):
        a.receive()


@case
def prioritised_and_consumed(w: World) -> None:
    a = w.client()
    q = _quorum(w, a)
    for priority in (0, 4, 9, 31, 40):
        w.put(q, b"%d" % priority, priority=priority)
    w.put(q, b"none")
    w.attempt(a, "queue.declare", queue=q, passive=True)
    w.attempt(a, "basic.qos", prefetch_count=2)
    _consuming(w, a, q)
    a.receive()
    a.receive()
    for tag in range(1, 5):
        a.send(1, "basic.ack", delivery_tag=tag)
        a.receive()


@case
def prioritised_and_retried_later(w: World) -> None:
    a = w.client()
    q = _quorum(w, a, delayed_retry_type="all", delayed_retry_min=300)
    w.put(q, b"high", priority=9)
    _taken(w, a, q, 1)
    a.send(1, "basic.nack", delivery_tag=1, requeue=True)
    w.barrier(a)
    w.put(q, b"low", priority=1)
    w.attempt(a, "basic.qos", prefetch_count=1)
    _consuming(w, a, q)
    a.receive()
    time.sleep(0.6)
    a.send(1, "basic.ack", delivery_tag=2)
    a.receive()


@case
def purged_of_priorities(w: World) -> None:
    a = w.client()
    q = _quorum(w, a)
    for priority in (0, 3, 31):
        w.put(q, b"m", priority=priority)
    w.attempt(a, "queue.purge", queue=q)
    w.put(q, b"m", priority=9)
    w.attempt(a, "queue.delete", queue=q)


@case
def consumed_with_arguments_of_streams(w: World) -> None:
    a = w.client()
    q = _quorum(w, a)
    _consuming(w, a, q, "one", arguments={"x-stream-offset": "first"})
    _consuming(w, a, q, "two", arguments={"x-cancel-on-ha-failover": True})
    _consuming(w, a, q, "three", arguments={"unknown": 1})


@case
def consumed_with_a_wrong_priority(w: World) -> None:
    a = w.client()
    q = _quorum(w, a)
    _consuming(w, a, q, "one", arguments={"x-priority": "high"})


@case
def deleted_under_a_consumer(w: World) -> None:
    a, b = w.client(), w.client("B", capabilities={"consumer_cancel_notify": True})
    q = _quorum(w, a)
    _consuming(w, b, q)
    w.attempt(a, "queue.delete", queue=q)
    b.receive()


@case
def passively_with_other_arguments(w: World) -> None:
    a = w.client()
    q = _quorum(w, a, delivery_limit=3)
    w.attempt(a, "queue.declare", queue=q, passive=True, durable=False, auto_delete=True)
    w.attempt(a, "queue.declare", queue=q, passive=True, arguments=_arguments(delivery_limit=9))


@case
def declared_again_transient(w: World) -> None:
    a = w.client()
    q = _quorum(w, a)
    w.attempt(a, "queue.declare", queue=q, arguments=_arguments())
    w.attempt(a, "queue.declare", queue=q, durable=True, auto_delete=True, arguments=_arguments())
    w.attempt(a, "queue.declare", queue=q, durable=True, exclusive=True, arguments=_arguments())


@case
def of_an_unknown_type(w: World) -> None:
    a = w.client()
    for kind in ("sparkling", "rabbit_quorum_queue", 1, True):
        w.attempt(
            a, "queue.declare", queue=w.name("q"), durable=True, arguments={"x-queue-type": kind}
        )


@case
def arguments_of_todays_quorum_queues(w: World) -> None:
    a = w.client()
    for key, value in (
        ("quorum_target_group_size", 3),
        ("max_in_memory_length", 5),
        ("max_in_memory_bytes", 5000),
        ("consumer_timeout", 1_800_000),
        ("consumer_disconnected_timeout", 60_000),
        ("queue_master_locator", "min-masters"),
        ("message_deduplication", True),
        ("delivery_limit", 0),
        ("overflow", "reject-publish-dlx"),
    ):
        _declared(w, a, w.name("q"), **{key: value})


@case
def delivery_limits_below_zero(w: World) -> None:
    """The last is RabbitMQ's word for "without a limit" before 4.0."""
    a = w.client()
    for limit in (-1, -2, -1000):
        _declared(w, a, w.name("q"), delivery_limit=limit)


@case
def unbound_and_bound(w: World) -> None:
    a = w.client()
    q = _quorum(w, a)
    w.attempt(a, "queue.bind", queue=q, exchange="amq.direct", routing_key="k")
    w.put("k", b"one", exchange="amq.direct")
    _rest(w, a, q)
    w.attempt(a, "queue.unbind", queue=q, exchange="amq.direct", routing_key="k")


@case
def got_with_what_is_left(w: World) -> None:
    a = w.client()
    q = _quorum(w, a)
    w.put(q, b"one", b"two", b"three")
    w.attempt(a, "basic.get", queue=q)
    w.attempt(a, "queue.declare", queue=q, passive=True)
    w.attempt(a, "queue.purge", queue=q)
    a.send(1, "basic.nack", delivery_tag=1, requeue=True)
    w.barrier(a)
    _rest(w, a, q)


def _later(w: World, client: RawClient, queue: str) -> None:
    """It is not there now, and a consumer gets it when it is."""
    w.attempt(client, "basic.get", queue=queue)
    w.attempt(client, "queue.declare", queue=queue, passive=True)
    _consuming(w, client, queue, "later")
    client.receive()
    w.attempt(client, "basic.cancel", consumer_tag="later")


@case
def retried_later_whatever_happened(w: World) -> None:
    a = w.client()
    q = _quorum(w, a, delayed_retry_type="all", delayed_retry_min=400)
    w.put(q, b"one")
    _taken(w, a, q, 1)
    a.send(1, "basic.nack", delivery_tag=1, requeue=True)
    w.barrier(a)
    _later(w, a, q)
    a.send(1, "basic.reject", delivery_tag=2, requeue=True)
    w.barrier(a)
    _later(w, a, q)


@case
def retried_later_when_it_failed(w: World) -> None:
    a = w.client()
    q = _quorum(w, a, delayed_retry_type="failed", delayed_retry_min=400)
    w.put(q, b"one")
    _again(w, a, q, "nack", 2)
    a.send(1, "basic.reject", delivery_tag=3, requeue=True)
    w.barrier(a)
    _later(w, a, q)


@case
def retried_later_when_it_was_returned(w: World) -> None:
    a = w.client()
    q = _quorum(w, a, delayed_retry_type="returned", delayed_retry_min=400)
    w.put(q, b"one")
    _again(w, a, q, "reject", 2)
    a.send(1, "basic.nack", delivery_tag=3, requeue=True)
    w.barrier(a)
    _later(w, a, q)


@case
def retried_later_after_a_closed_channel(w: World) -> None:
    a, b = w.client(), w.client("B")
    q = _quorum(w, a, delayed_retry_type="failed", delayed_retry_min=400)
    w.put(q, b"one")
    _taken(w, b, q, 1)
    w.attempt(b, "channel.close", code=200)
    _later(w, a, q)


@case
def retried_later_after_a_recovery(w: World) -> None:
    a = w.client()
    q = _quorum(w, a, delayed_retry_type="returned", delayed_retry_min=400)
    w.put(q, b"one")
    _taken(w, a, q, 1)
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
        _declared(w, a, q, **named)
        w.put(q, b"one")
        _again(w, a, q, "nack", 1)


@case
def wrong_values_of_retries(w: World) -> None:
    _refused(w, delayed_retry_type="often", delayed_retry_min=0, delayed_retry_max=-1)


@case
def retried_by_a_bound_below_the_least(w: World) -> None:
    a = w.client()
    q = _quorum(w, a, delayed_retry_type="all", delayed_retry_min=60_000, delayed_retry_max=200)
    w.put(q, b"one")
    _taken(w, a, q, 1)
    a.send(1, "basic.nack", delivery_tag=1, requeue=True)
    w.barrier(a)
    _later(w, a, q)


@case
def retried_too_often(w: World) -> None:
    """What is over its limit dies at once."""
    a = w.client()
    morgue = w.queue(a, "morgue", exclusive=True)
    q = _quorum(
        w,
        a,
        delivery_limit=0,
        delayed_retry_type="all",
        delayed_retry_min=60_000,
        dead_letter_exchange="",
        dead_letter_routing_key=morgue,
    )
    w.put(q, b"one")
    _consuming(w, a, morgue, "morgue", no_ack=True)
    _taken(w, a, q, 1)
    a.send(1, "basic.reject", delivery_tag=1, requeue=True)
    a.receive()


@case
def purged_while_it_waits(w: World) -> None:
    a = w.client()
    q = _quorum(w, a, delayed_retry_type="all", delayed_retry_min=500)
    w.put(q, b"one", b"two")
    _taken(w, a, q, 1)
    a.send(1, "basic.nack", delivery_tag=1, requeue=True)
    w.barrier(a)
    w.attempt(a, "queue.purge", queue=q)
    w.put(q, b"three")
    _consuming(w, a, q)
    a.receive()


@case
def deleted_while_it_waits(w: World) -> None:
    a = w.client()
    q = _quorum(w, a, delayed_retry_type="all", delayed_retry_min=60_000)
    w.put(q, b"one", b"two")
    _taken(w, a, q, 1)
    a.send(1, "basic.nack", delivery_tag=1, requeue=True)
    w.barrier(a)
    w.attempt(a, "queue.delete", queue=q)


@case
def retried_before_what_came_meanwhile(w: World) -> None:
    a = w.client()
    q = _quorum(w, a, delayed_retry_type="all", delayed_retry_min=200)
    w.put(q, b"one")
    _taken(w, a, q, 1)
    a.send(1, "basic.nack", delivery_tag=1, requeue=True)
    w.barrier(a)
    w.put(q, b"two", b"three")
    w.attempt(a, "basic.qos", prefetch_count=1)
    _consuming(w, a, q)
    a.receive()
    time.sleep(0.5)
    a.send(1, "basic.ack", delivery_tag=2)
    a.receive()
    a.send(1, "basic.ack", delivery_tag=3)
    a.receive()


@case
def declared_again_with_other_retries(w: World) -> None:
    a = w.client()
    q = _quorum(w, a, delayed_retry_type="all", delayed_retry_min=1000)
    _declared(w, a, q, delayed_retry_type="failed", delayed_retry_min=1000)
    _declared(w, a, q, delayed_retry_type="all", delayed_retry_min=2000)
    _declared(w, a, q, delayed_retry_type="all", delayed_retry_min=1000, delayed_retry_max=1000)
    _declared(w, a, q)


@case
def retries_of_a_classic_queue(w: World) -> None:
    a = w.client()
    for key, value in (
        ("x-delayed-retry-type", "all"),
        ("x-delayed-retry-min", 5),
        ("x-delayed-retry-max", 5),
    ):
        w.attempt(a, "queue.declare", queue=w.name("q"), durable=True, arguments={key: value})
