"""Quorum queues, as RabbitMQ 4.3.6 has them: how they are declared, consumed and bounded.

The other subjects are recorded from 3.10.8 as well.
"""

from tests.conformance.case import World, case
from tests.conformance.quorum_tools import (
    consume,
    declare,
    declare_each,
    get_quietly,
    get_rest,
    quorum_arguments,
    quorum_queue,
)


@case
def declared(w: World) -> None:
    a = w.client()
    q = w.name("q")
    declare(w, a, q)
    declare(w, a, q)
    w.attempt(a, "queue.declare", queue=q, passive=True)
    w.attempt(a, "queue.delete", queue=q)


@case
def declared_as_what_it_cannot_be(w: World) -> None:
    a = w.client()
    kind = quorum_arguments()
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
    w.attempt(a, "queue.declare", queue="", durable=True, arguments=quorum_arguments())


@case
def declared_again_as_classic(w: World) -> None:
    a = w.client()
    q = quorum_queue(w, a)
    w.attempt(a, "queue.declare", queue=q, durable=True)
    w.attempt(a, "queue.declare", queue=q, durable=True, arguments={"x-queue-type": "classic"})
    plain = w.queue(a, "plain", durable=True)
    declare(w, a, plain)


@case
def declared_again_otherwise(w: World) -> None:
    a = w.client()
    q = quorum_queue(w, a, delivery_limit=3)
    declare(w, a, q)
    declare(w, a, q, delivery_limit=4)
    declare(w, a, q, delivery_limit=3)


@case
def arguments_of_classic_queues(w: World) -> None:
    declare_each(w, max_priority=5, queue_mode="lazy", queue_version=2)


@case
def arguments_of_streams(w: World) -> None:
    declare_each(w, max_age="1h", stream_max_segment_size_bytes=1000000, initial_cluster_size=1)


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
        declare(w, a, w.name("q"), **{key: value})


@case
def wrong_values(w: World) -> None:
    declare_each(
        w,
        dead_letter_strategy="sometimes",
        quorum_initial_group_size=0,
        queue_leader_locator="far",
        message_ttl=-1,
        overflow="spill",
    )


@case
def limit_that_is_no_number(w: World) -> None:
    declare_each(w, delivery_limit="a")


@case
def dead_letters_at_least_once(w: World) -> None:
    a = w.client()
    declare(w, a, w.name("q"), dead_letter_strategy="at-least-once", overflow="reject-publish")


@case
def retries_with_a_delay(w: World) -> None:
    a = w.client()
    declare(w, a, w.name("q"), delayed_retry_type="all", delayed_retry_min=1000)


@case
def retries_without_a_delay(w: World) -> None:
    a = w.client()
    declare(w, a, w.name("q"), delayed_retry_type="disabled")


@case
def negative_delivery_limit(w: World) -> None:
    declare_each(w, delivery_limit=-1)


@case
def arguments_of_quorum_queues_on_a_classic_queue(w: World) -> None:
    a = w.client()
    for key, value in (
        ("x-quorum-initial-group-size", 3),
        ("x-dead-letter-strategy", "at-most-once"),
    ):
        w.attempt(a, "queue.declare", queue=w.name("q"), durable=True, arguments={key: value})


@case
def consumed_with_a_global_prefetch(w: World) -> None:
    a = w.client()
    q = quorum_queue(w, a)
    w.attempt(a, "basic.qos", prefetch_count=5, global_=True)
    w.attempt(a, "basic.consume", queue=q, consumer_tag="c")


@case
def consumed_exclusively(w: World) -> None:
    a, b = w.client(), w.client("B")
    q = quorum_queue(w, a)
    w.attempt(a, "basic.consume", queue=q, consumer_tag="one", exclusive=True)
    w.attempt(b, "basic.consume", queue=q, consumer_tag="two")


@case
def consumed_with_a_priority(w: World) -> None:
    a = w.client()
    q = quorum_queue(w, a)
    w.attempt(a, "basic.consume", queue=q, consumer_tag="low")
    w.attempt(a, "basic.consume", queue=q, consumer_tag="high", arguments={"x-priority": 5})
    w.put(q, b"one")
    a.receive()


@case
def purged_and_deleted(w: World) -> None:
    a = w.client()
    q = quorum_queue(w, a)
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
    q = quorum_queue(w, a, max_length=2)
    w.put(q, b"one", b"two", b"three")
    for _ in range(3):
        w.attempt(a, "basic.get", queue=q, no_ack=True)


@case
def the_active_consumer_goes(w: World) -> None:
    a, b = w.client(), w.client("B")
    q = quorum_queue(w, a, single_active_consumer=True)
    w.put(q, b"one")
    consume(w, a, q, "one")
    a.receive()
    consume(w, b, q, "two")
    w.attempt(a, "channel.close", code=200)
    b.receive()


@case
def the_active_consumer_is_cancelled(w: World) -> None:
    a, b = w.client(), w.client("B")
    q = quorum_queue(w, a, single_active_consumer=True)
    w.put(q, b"one")
    consume(w, a, q, "one")
    a.receive()
    consume(w, b, q, "two")
    w.attempt(a, "basic.cancel", consumer_tag="one")
    w.put(q, b"two")
    b.receive()
    a.send(1, "basic.nack", delivery_tag=1, requeue=True)
    b.receive()


@case
def one_at_a_time(w: World) -> None:
    a = w.client()
    q = quorum_queue(w, a)
    w.put(q, b"one", b"two", b"three")
    w.attempt(a, "basic.qos", prefetch_count=1)
    consume(w, a, q)
    a.receive()
    a.send(1, "basic.ack", delivery_tag=1)
    a.receive()
    a.send(1, "basic.nack", delivery_tag=2, requeue=True)
    a.receive()


@case
def expired_in_the_queue(w: World) -> None:
    a = w.client()
    morgue = w.queue(a, "morgue", exclusive=True)
    q = quorum_queue(w, a, message_ttl=50, dead_letter_exchange="", dead_letter_routing_key=morgue)
    consume(w, a, morgue, "morgue", no_ack=True)
    w.put(q, b"one")
    a.receive()


@case
def expired_by_its_own_time(w: World) -> None:
    a = w.client()
    morgue = w.queue(a, "morgue", exclusive=True)
    q = quorum_queue(w, a, dead_letter_exchange="", dead_letter_routing_key=morgue)
    consume(w, a, morgue, "morgue", no_ack=True)
    w.put(q, b"one", expiration="50")
    a.receive()


@case
def pushed_out(w: World) -> None:
    a = w.client()
    morgue = w.queue(a, "morgue", exclusive=True)
    q = quorum_queue(w, a, max_length=1, dead_letter_exchange="", dead_letter_routing_key=morgue)
    consume(w, a, morgue, "morgue", no_ack=True)
    w.put(q, b"one", b"two")
    a.receive()
    get_rest(w, a, q)


@case
def refused_by_a_full_queue(w: World) -> None:
    a = w.client()
    q = quorum_queue(w, a, max_length=1, overflow="reject-publish")
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
    second = quorum_queue(w, a, "second", dead_letter_exchange="", dead_letter_routing_key=morgue)
    q = quorum_queue(w, a, dead_letter_exchange="", dead_letter_routing_key=second)
    w.put(q, b"one")
    get_quietly(w, a, q, 1)
    a.send(1, "basic.reject", delivery_tag=1, requeue=False)
    consume(w, a, second, "second")
    a.receive()
    consume(w, a, morgue, "morgue", no_ack=True)
    a.send(1, "basic.nack", delivery_tag=2, requeue=False)
    a.receive()


@case
def buried_by_an_exchange_that_is_not_there(w: World) -> None:
    a = w.client()
    q = quorum_queue(w, a, dead_letter_exchange="no such exchange")
    w.put(q, b"one")
    get_quietly(w, a, q, 1)
    a.send(1, "basic.reject", delivery_tag=1, requeue=False)
    w.barrier(a)
    get_rest(w, a, q)


@case
def consumed_with_arguments_of_streams(w: World) -> None:
    a = w.client()
    q = quorum_queue(w, a)
    consume(w, a, q, "one", arguments={"x-stream-offset": "first"})
    consume(w, a, q, "two", arguments={"x-cancel-on-ha-failover": True})
    consume(w, a, q, "three", arguments={"unknown": 1})


@case
def consumed_with_a_wrong_priority(w: World) -> None:
    a = w.client()
    q = quorum_queue(w, a)
    consume(w, a, q, "one", arguments={"x-priority": "high"})


@case
def deleted_under_a_consumer(w: World) -> None:
    a, b = w.client(), w.client("B", capabilities={"consumer_cancel_notify": True})
    q = quorum_queue(w, a)
    consume(w, b, q)
    w.attempt(a, "queue.delete", queue=q)
    b.receive()


@case
def passively_with_other_arguments(w: World) -> None:
    a = w.client()
    q = quorum_queue(w, a, delivery_limit=3)
    w.attempt(a, "queue.declare", queue=q, passive=True, durable=False, auto_delete=True)
    w.attempt(
        a, "queue.declare", queue=q, passive=True, arguments=quorum_arguments(delivery_limit=9)
    )


@case
def declared_again_transient(w: World) -> None:
    a = w.client()
    q = quorum_queue(w, a)
    w.attempt(a, "queue.declare", queue=q, arguments=quorum_arguments())
    w.attempt(
        a, "queue.declare", queue=q, durable=True, auto_delete=True, arguments=quorum_arguments()
    )
    w.attempt(
        a, "queue.declare", queue=q, durable=True, exclusive=True, arguments=quorum_arguments()
    )


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
        declare(w, a, w.name("q"), **{key: value})


@case
def delivery_limits_below_zero(w: World) -> None:
    """The last is RabbitMQ's word for "without a limit" before 4.0."""
    a = w.client()
    for limit in (-1, -2, -1000):
        declare(w, a, w.name("q"), delivery_limit=limit)


@case
def unbound_and_bound(w: World) -> None:
    a = w.client()
    q = quorum_queue(w, a)
    w.attempt(a, "queue.bind", queue=q, exchange="amq.direct", routing_key="k")
    w.put("k", b"one", exchange="amq.direct")
    get_rest(w, a, q)
    w.attempt(a, "queue.unbind", queue=q, exchange="amq.direct", routing_key="k")


@case
def got_with_what_is_left(w: World) -> None:
    a = w.client()
    q = quorum_queue(w, a)
    w.put(q, b"one", b"two", b"three")
    w.attempt(a, "basic.get", queue=q)
    w.attempt(a, "queue.declare", queue=q, passive=True)
    w.attempt(a, "queue.purge", queue=q)
    a.send(1, "basic.nack", delivery_tag=1, requeue=True)
    w.barrier(a)
    get_rest(w, a, q)
