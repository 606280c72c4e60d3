"""Streams, as RabbitMQ 4.3.6 has them (the other subjects are recorded from 3.10.8)."""

from typing import Any

from tests.conformance.case import World, case
from tests.helpers import raw_codec as codec
from tests.helpers.raw_amqp import RawClient
from tests.helpers.raw_codec import Typed

FAR = 4_000_000_000
"""Seconds since 1970, in the next century."""


def _arguments(**named: Any) -> dict[str, Any]:
    return {"x-queue-type": "stream"} | {
        f"x-{key.replace('_', '-')}": value for key, value in named.items()
    }


def _stream(w: World, client: RawClient, base: str = "s", **named: Any) -> str:
    """A fresh one, declared off the record."""
    return w.queue(client, base, durable=True, arguments=_arguments(**named))


def _declared(w: World, client: RawClient, name: str, **named: Any) -> None:
    w.attempt(client, "queue.declare", queue=name, durable=True, arguments=_arguments(**named))


def _each(w: World, *given: tuple[str, Any]) -> None:
    """A declaration with each of these arguments."""
    for key, value in given:
        client = w.client()
        _declared(w, client, w.name("s"), **{key: value})


def _consuming(
    w: World,
    client: RawClient,
    queue: str,
    offset: Any = "first",
    count: int = 0,
    prefetch: int = 100,
    tag: str = "c",
    **more: Any,
) -> None:
    """A consumer from that offset, and so many deliveries."""
    client.send_off_record(codec.method_frame(1, "basic.qos", prefetch_count=prefetch))
    client.receive_quietly()
    arguments = {} if offset is None else {"x-stream-offset": offset}
    arguments |= more.pop("arguments", {})
    w.attempt(client, "basic.consume", queue=queue, consumer_tag=tag, arguments=arguments, **more)
    for _ in range(count):
        client.receive()


def _filled(w: World, client: RawClient, count: int = 5, **named: Any) -> str:
    """Messages one by one, each a group of its own."""
    queue = _stream(w, client, **named)
    for number in range(count):
        w.put(queue, b"m%d" % number)
    return queue


# -- declaring -----------------------------------------------------------------------------


@case
def declared(w: World) -> None:
    a = w.client()
    s = w.name("s")
    _declared(w, a, s)
    _declared(w, a, s)
    w.attempt(a, "queue.declare", queue=s, passive=True)
    w.attempt(a, "queue.delete", queue=s)


@case
def declared_as_what_it_cannot_be(w: World) -> None:
    a = w.client()
    kind = _arguments()
    w.attempt(a, "queue.declare", queue=w.name("s"), arguments=kind)
    w.attempt(a, "queue.declare", queue=w.name("s"), durable=True, exclusive=True, arguments=kind)
    w.attempt(a, "queue.declare", queue=w.name("s"), durable=True, auto_delete=True, arguments=kind)
    w.attempt(a, "queue.declare", queue=w.name("s"), exclusive=True, arguments=kind)


@case
def declared_without_a_name(w: World) -> None:
    a = w.client()
    w.attempt(a, "queue.declare", queue="", durable=True, arguments=_arguments())


@case
def declared_again_as_another_type(w: World) -> None:
    a = w.client()
    s = _stream(w, a)
    w.attempt(a, "queue.declare", queue=s, durable=True)
    w.attempt(a, "queue.declare", queue=s, durable=True, arguments={"x-queue-type": "classic"})
    w.attempt(a, "queue.declare", queue=s, durable=True, arguments={"x-queue-type": "quorum"})
    plain = w.queue(a, "plain", durable=True)
    _declared(w, a, plain)


@case
def declared_again_otherwise(w: World) -> None:
    a = w.client()
    s = _stream(w, a, max_age="1h", max_length_bytes=5000)
    _declared(w, a, s, max_age="1h", max_length_bytes=5000)
    _declared(w, a, s, max_age="2h", max_length_bytes=5000)
    _declared(w, a, s, max_age="1h", max_length_bytes=5001)
    _declared(w, a, s, max_age="1h")
    _declared(w, a, s, max_age="1h", max_length_bytes=5000, stream_filter_size_bytes=16)


@case
def arguments_of_streams(w: World) -> None:
    _each(
        w,
        ("max_length_bytes", 5_000_000),
        ("max_age", "7D"),
        ("max_age", "1Y"),
        ("max_age", "2M"),
        ("max_age", "3h"),
        ("max_age", "4m"),
        ("max_age", "5s"),
        ("stream_max_segment_size_bytes", 1000),
        ("stream_max_segment_size_bytes", Typed("l", 3_000_000_000)),
        ("stream_filter_size_bytes", 16),
        ("stream_filter_size_bytes", 255),
        ("initial_cluster_size", 1),
        ("queue_leader_locator", "client-local"),
        ("queue_leader_locator", "balanced"),
    )


@case
def arguments_of_classic_queues(w: World) -> None:
    _each(
        w,
        ("expires", 60000),
        ("message_ttl", 60000),
        ("dead_letter_exchange", "x"),
        ("max_length", 5),
        ("max_priority", 5),
        ("overflow", "drop-head"),
        ("queue_mode", "lazy"),
        ("single_active_consumer", True),
        ("consumer_timeout", 5000),
    )


@case
def a_dead_letter_key(w: World) -> None:
    _each(w, ("dead_letter_routing_key", "k"))


@case
def arguments_of_quorum_queues(w: World) -> None:
    _each(
        w,
        ("delivery_limit", 5),
        ("dead_letter_strategy", "at-most-once"),
        ("quorum_initial_group_size", 1),
        ("delayed_retry_min", 1000),
    )


@case
def an_argument_that_is_not_known(w: World) -> None:
    _each(w, ("mine", 5))


@case
def wrong_ages(w: World) -> None:
    _each(
        w,
        ("max_age", "7"),
        ("max_age", "D"),
        ("max_age", "7d"),
        ("max_age", "-7D"),
        ("max_age", "7 D"),
        ("max_age", ""),
        ("max_age", "0s"),
        ("max_age", "1.5h"),
    )


@case
def an_age_that_is_a_number(w: World) -> None:
    _each(w, ("max_age", 7), ("max_age", True))


@case
def wrong_lengths(w: World) -> None:
    _each(w, ("max_length_bytes", -1), ("max_length_bytes", "a"), ("max_length_bytes", 0))


@case
def wrong_segment_sizes(w: World) -> None:
    _each(
        w,
        ("stream_max_segment_size_bytes", -1),
        ("stream_max_segment_size_bytes", 0),
        ("stream_max_segment_size_bytes", "a"),
        ("stream_max_segment_size_bytes", Typed("l", 3_000_000_001)),
    )


@case
def wrong_filter_sizes(w: World) -> None:
    _each(
        w,
        ("stream_filter_size_bytes", 15),
        ("stream_filter_size_bytes", 256),
        ("stream_filter_size_bytes", -1),
        ("stream_filter_size_bytes", "a"),
    )


@case
def wrong_cluster_sizes(w: World) -> None:
    _each(w, ("initial_cluster_size", 0), ("initial_cluster_size", "a"))


@case
def a_wrong_locator(w: World) -> None:
    _each(w, ("queue_leader_locator", "far"))


@case
def arguments_of_streams_on_another_queue(w: World) -> None:
    for key, value in (
        ("x-max-age", "1h"),
        ("x-stream-max-segment-size-bytes", 1000),
        ("x-stream-filter-size-bytes", 16),
        ("x-initial-cluster-size", 1),
    ):
        client = w.client()
        w.attempt(client, "queue.declare", queue=w.name("q"), durable=True, arguments={key: value})


# -- what a stream does not do -------------------------------------------------------------


@case
def got(w: World) -> None:
    a = w.client()
    s = _filled(w, a, 1)
    w.attempt(a, "basic.get", queue=s)
    b = w.client("B")
    w.attempt(b, "basic.get", queue=s, no_ack=True)


@case
def purged(w: World) -> None:
    a = w.client()
    s = _filled(w, a, 1)
    w.attempt(a, "queue.purge", queue=s)


@case
def deleted(w: World) -> None:
    a = w.client()
    s = _filled(w, a, 2)
    w.attempt(a, "queue.delete", queue=s)
    w.attempt(a, "queue.declare", queue=s, passive=True)


@case
def deleted_if_it_is_empty(w: World) -> None:
    a = w.client()
    s = _filled(w, a, 1)
    w.attempt(a, "queue.delete", queue=s, if_empty=True)


@case
def deleted_if_it_is_unused(w: World) -> None:
    a = w.client()
    s = _filled(w, a, 1)
    w.attempt(a, "queue.delete", queue=s, if_unused=True)


@case
def deleted_under_a_consumer(w: World) -> None:
    a, b = w.client(), w.client("B")
    s = _filled(w, a, 1)
    _consuming(w, a, s, count=1)
    w.attempt(b, "queue.delete", queue=s)
    w.barrier(a)


@case
def consumed_without_a_prefetch(w: World) -> None:
    a = w.client()
    s = _stream(w, a)
    w.attempt(a, "basic.consume", queue=s, consumer_tag="c")
    w.attempt(a, "basic.consume", queue=s, consumer_tag="c", no_ack=True)


@case
def consumed_without_acknowledgements(w: World) -> None:
    a = w.client()
    s = _stream(w, a)
    _consuming(w, a, s, no_ack=True)


@case
def consumed_with_a_global_prefetch(w: World) -> None:
    a = w.client()
    s = _stream(w, a)
    w.attempt(a, "basic.qos", prefetch_count=5, global_=True)
    w.attempt(a, "basic.consume", queue=s, consumer_tag="c")


@case
def consumed_with_a_priority(w: World) -> None:
    a = w.client()
    s = _stream(w, a)
    _consuming(w, a, s, arguments={"x-priority": 5})


@case
def consumed_with_a_timeout(w: World) -> None:
    a = w.client()
    s = _stream(w, a)
    _consuming(w, a, s, arguments={"x-consumer-timeout": 5000})


@case
def consumed_with_cancel_on_failover(w: World) -> None:
    a = w.client()
    s = _stream(w, a)
    _consuming(w, a, s, arguments={"x-cancel-on-ha-failover": True})


# -- offsets -------------------------------------------------------------------------------


@case
def consumed_from_the_first(w: World) -> None:
    a = w.client()
    s = _filled(w, a, 3)
    _consuming(w, a, s, "first", 3)


@case
def consumed_from_the_next(w: World) -> None:
    a = w.client()
    s = _filled(w, a, 3)
    _consuming(w, a, s, "next")
    w.put(s, b"late")
    a.receive()


@case
def consumed_without_an_offset(w: World) -> None:
    a = w.client()
    s = _filled(w, a, 3)
    _consuming(w, a, s, None)
    w.put(s, b"late")
    a.receive()


@case
def consumed_from_the_last(w: World) -> None:
    a = w.client()
    s = _filled(w, a, 3)
    _consuming(w, a, s, "last", 1)
    w.put(s, b"late")
    a.receive()


@case
def an_empty_stream_from_the_last(w: World) -> None:
    a = w.client()
    s = _stream(w, a)
    _consuming(w, a, s, "last")
    w.put(s, b"late")
    a.receive()


@case
def consumed_from_a_number(w: World) -> None:
    a = w.client()
    s = _filled(w, a, 5)
    _consuming(w, a, s, 3, 2)
    w.attempt(a, "basic.cancel", consumer_tag="c")
    _consuming(w, a, s, 0, 5, tag="d")


@case
def consumed_from_a_number_below_zero(w: World) -> None:
    a = w.client()
    s = _filled(w, a, 5)
    _consuming(w, a, s, -2, 2)


@case
def consumed_from_numbers_of_other_types(w: World) -> None:
    for number in (Typed("b", 2), Typed("s", 2), Typed("l", 2), Typed("B", 2), Typed("u", 2)):
        a = w.client()
        s = _filled(w, a, 3)
        _consuming(w, a, s, number, 1)


@case
def consumed_from_a_number_to_come(w: World) -> None:
    a = w.client()
    s = _filled(w, a, 2)
    _consuming(w, a, s, 4)
    w.put(s, b"m2", b"m3")
    w.put(s, b"m4")
    a.receive()


@case
def consumed_from_a_time_before_all(w: World) -> None:
    a = w.client()
    s = _filled(w, a, 2)
    _consuming(w, a, s, Typed("T", 1000), 2)


@case
def consumed_from_a_time_to_come(w: World) -> None:
    a = w.client()
    s = _filled(w, a, 2)
    _consuming(w, a, s, Typed("T", FAR))
    w.put(s, b"late")
    a.receive()


@case
def consumed_from_an_interval(w: World) -> None:
    a = w.client()
    s = _filled(w, a, 2)
    _consuming(w, a, s, "1h", 2)


@case
def consumed_from_a_void_offset(w: World) -> None:
    a = w.client()
    s = _filled(w, a, 2)
    _consuming(w, a, s, None, 2, arguments={"x-stream-offset": None})


@case
def consumed_with_a_position_to_be_kept(w: World) -> None:
    a = w.client()
    s = _filled(w, a, 3)
    kept = {"x-stream-automatic-offset-tracking": True}
    _consuming(w, a, s, "first", 3, arguments=kept)
    a.send(1, "basic.ack", delivery_tag=2, multiple=True)
    w.barrier(a)
    w.attempt(a, "channel.close", code=200)
    b = w.client("B")
    _consuming(w, b, s, "first", 1, arguments=kept)


@case
def consumed_with_single_active_consumer(w: World) -> None:
    """An argument of consumers in RabbitMQ's stream protocol; here it is one that is not known."""
    a, b = w.client(), w.client("B")
    s = _filled(w, a, 1)
    alone = {"x-single-active-consumer": True}
    _consuming(w, a, s, "first", 1, arguments=alone)
    _consuming(w, b, s, "first", 1, arguments=alone)


@case
def filtered_by_headers(w: World) -> None:
    a = w.client()
    s = _labelled(w, a)
    _consuming(w, a, s, "first", 2, arguments={"x-stream-filter": {"x-stream-filter-value": "eu"}})


@case
def declared_with_deduplication(w: World) -> None:
    _each(w, ("message_deduplication", True))


@case
def published_twice_with_a_number(w: World) -> None:
    a = w.client()
    s = _stream(w, a)
    for _ in range(2):
        w.put(s, b"one", headers={"x-deduplication-header": "p:1"})
    _consuming(w, a, s, "first", 2)


@case
def wrong_offsets(w: World) -> None:
    for offset in ("foo", "5", "", "First", "-1h", "1x"):
        a = w.client()
        s = _stream(w, a)
        _consuming(w, a, s, offset)


@case
def offsets_of_wrong_types(w: World) -> None:
    for offset in (True, 1.5, {"a": 1}, [1]):
        a = w.client()
        s = _stream(w, a)
        _consuming(w, a, s, offset)


@case
def an_offset_on_another_queue(w: World) -> None:
    a = w.client()
    q = w.queue(a, durable=True)
    _consuming(w, a, q, "first")


# -- deliveries and settlements ------------------------------------------------------------


@case
def headers_of_the_publisher(w: World) -> None:
    a = w.client()
    s = _stream(w, a)
    w.put(s, b"one", headers={"mine": 1, "x-stream-offset": 77, "zeta": "z"})
    w.put(s, b"two", delivery_mode=1, priority=3, expiration="60000", content_type="text/plain")
    _consuming(w, a, s, "first", 2)


@case
def through_an_exchange(w: World) -> None:
    a = w.client()
    x = w.exchange(a, type_="fanout", durable=True)
    s, q = _stream(w, a), w.queue(a, "q", durable=True)
    for queue in (s, q):
        w.attempt(a, "queue.bind", queue=queue, exchange=x, routing_key="k")
    w.put("k", b"one", exchange=x)
    _consuming(w, a, s, "first", 1)
    w.attempt(a, "basic.get", queue=q)


@case
def acknowledgements_are_credit(w: World) -> None:
    a = w.client()
    s = _filled(w, a, 5)
    _consuming(w, a, s, "first", 2, prefetch=2)
    w.barrier(a)
    a.send(1, "basic.ack", delivery_tag=1)
    a.receive()
    w.barrier(a)
    a.send(1, "basic.ack", delivery_tag=3, multiple=True)
    a.receive()
    a.receive()
    w.barrier(a)


@case
def given_back_it_does_not_come_again(w: World) -> None:
    a = w.client()
    s = _filled(w, a, 4)
    _consuming(w, a, s, "first", 1, prefetch=1)
    a.send(1, "basic.nack", delivery_tag=1, requeue=True)
    a.receive()
    a.send(1, "basic.reject", delivery_tag=2, requeue=True)
    a.receive()
    a.send(1, "basic.reject", delivery_tag=3, requeue=False)
    a.receive()
    w.barrier(a)


@case
def acknowledged_twice(w: World) -> None:
    a = w.client()
    s = _filled(w, a, 1)
    _consuming(w, a, s, "first", 1)
    a.send(1, "basic.ack", delivery_tag=1)
    w.barrier(a)
    a.send(1, "basic.ack", delivery_tag=1)
    w.outcome(a)


@case
def recovered(w: World) -> None:
    a = w.client()
    s = _filled(w, a, 2)
    _consuming(w, a, s, "first", 2)
    w.attempt(a, "basic.recover", requeue=True)
    w.barrier(a)


@case
def two_consumers_get_all(w: World) -> None:
    a, b = w.client(), w.client("B")
    s = _filled(w, a, 3)
    _consuming(w, a, s, "first", 3)
    _consuming(w, b, s, 1, 2)


@case
def consumed_again_after_an_end(w: World) -> None:
    a = w.client()
    s = _filled(w, a, 3)
    _consuming(w, a, s, "first", 3)
    a.send(1, "basic.ack", delivery_tag=3, multiple=True)
    w.attempt(a, "channel.close", code=200)
    a.open_channel(1)
    _consuming(w, a, s, "first", 3)


@case
def cancelled(w: World) -> None:
    a = w.client()
    s = _filled(w, a, 2)
    _consuming(w, a, s, "first", 2)
    w.attempt(a, "basic.cancel", consumer_tag="c")
    a.send(1, "basic.ack", delivery_tag=2, multiple=True)
    w.barrier(a)
    w.put(s, b"late")
    w.barrier(a)


@case
def exclusive_consumers(w: World) -> None:
    a, b = w.client(), w.client("B")
    s = _filled(w, a, 1)
    _consuming(w, a, s, "first", 1, exclusive=True)
    _consuming(w, b, s, "first", tag="d")


@case
def in_a_transaction(w: World) -> None:
    a = w.client()
    s = _stream(w, a)
    w.attempt(a, "tx.select")
    a.publish(1, "", s, b"one")
    a.publish(1, "", s, b"two")
    w.attempt(a, "tx.commit")
    b = w.client("B")
    _consuming(w, b, s, "first", 2)


@case
def of_a_default_type(w: World) -> None:
    a = w.client()
    w.attempt(a, "queue.declare", queue=w.name("s"), durable=True, arguments=_arguments() | {})
    w.attempt(a, "queue.declare", queue=w.name("s"), durable=True, passive=True)


# -- filters -------------------------------------------------------------------------------


def _labelled(w: World, client: RawClient) -> str:
    """Each message confirmed before the next, so that each is a group of its own."""
    s = _stream(w, client)
    for number, value in enumerate(("eu", "us", "", "eu")):
        headers = {"x-stream-filter-value": value} if value else {}
        w.put(s, b"m%d" % number, headers=headers)
    return s


@case
def filtered(w: World) -> None:
    a = w.client()
    s = _labelled(w, a)
    _consuming(w, a, s, "first", 2, arguments={"x-stream-filter": "eu"})
    w.barrier(a)


@case
def filtered_by_several_values(w: World) -> None:
    a = w.client()
    s = _labelled(w, a)
    _consuming(w, a, s, "first", 3, arguments={"x-stream-filter": ["eu", "us"]})
    w.barrier(a)


@case
def filtered_with_those_without(w: World) -> None:
    a = w.client()
    s = _labelled(w, a)
    more = {"x-stream-filter": "us", "x-stream-match-unfiltered": True}
    _consuming(w, a, s, "first", 2, arguments=more)
    w.barrier(a)


@case
def filters_of_wrong_types(w: World) -> None:
    for value, count in ((5, 4), (True, 4), ([5], 0)):
        a = w.client()
        s = _labelled(w, a)
        _consuming(w, a, s, "first", count, arguments={"x-stream-filter": value})
