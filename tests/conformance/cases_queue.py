"""Queues: declare, equivalence, exclusivity, life and death, purge and delete."""

from typing import Any

from tests.conformance.case import World, case
from tests.helpers import raw_codec as codec


@case
def declare_ok_counts(w: World) -> None:
    """Item 43: ready messages and consumers; unacknowledged messages are not counted."""
    a = w.client()
    q = w.queue(a, exclusive=True)
    w.attempt(a, "queue.declare", queue=q, exclusive=True)
    w.fill(a, q, b"1", b"2", b"3")
    w.attempt(a, "queue.declare", queue=q, exclusive=True)
    w.attempt(a, "basic.get", queue=q)
    w.attempt(a, "queue.declare", queue=q, passive=True)
    a.call(1, "basic.qos", prefetch_count=1)
    a.call(1, "basic.consume", queue=q, consumer_tag="t")
    a.receive()
    w.attempt(a, "queue.declare", queue=q, passive=True)


@case
def declare_server_named(w: World) -> None:
    """Item 42."""
    a = w.client()
    w.attempt(a, "queue.declare", exclusive=True)
    w.attempt(a, "queue.declare", exclusive=True, auto_delete=True)
    w.attempt(a, "queue.declare", queue="", passive=True)
    w.attempt(a, "queue.delete")


@case
def declare_passive_empty_name_first(w: World) -> None:
    """Item 42."""
    a = w.client()
    w.attempt(a, "queue.declare", queue="", passive=True)


@case
def empty_name_without_a_declared_queue(w: World) -> None:
    """Item 42."""
    a = w.client()
    w.attempt(a, "basic.get")
    w.attempt(a, "basic.consume", consumer_tag="t")
    w.attempt(a, "queue.purge")
    w.attempt(a, "queue.delete")
    w.attempt(a, "queue.unbind", exchange="amq.direct", routing_key="k")


@case
def last_declared_is_per_channel(w: World) -> None:
    """Item 42."""
    a = w.client()
    q = w.queue(a, exclusive=True)
    a.publish(1, "", q)
    w.attempt(a, "basic.get", no_ack=True)
    a.call(2, "channel.open")
    w.attempt(a, "basic.get", channel=2)


@case
def declare_passive_missing(w: World) -> None:
    """Item 43."""
    a = w.client()
    w.attempt(a, "queue.declare", queue=w.name("none"), passive=True)
    w.attempt(a, "queue.declare", queue="amq.none", passive=True)


@case
def declare_reserved_name(w: World) -> None:
    """Item 43."""
    a = w.client()
    w.attempt(a, "queue.declare", queue="amq.mine")
    w.attempt(a, "queue.declare", queue="amq.gen-mine", exclusive=True)
    w.attempt(a, "queue.declare", queue="amq.")


@case
def declare_inequivalent(w: World) -> None:
    """Items 24 and 44."""
    a = w.client()
    q = w.queue(a)
    w.attempt(a, "queue.declare", queue=q, durable=True)
    w.attempt(a, "queue.declare", queue=q, auto_delete=True)
    w.attempt(a, "queue.declare", queue=q, exclusive=True)
    w.attempt(a, "queue.declare", queue=q, durable=True, auto_delete=True, exclusive=True)
    w.attempt(a, "queue.declare", queue=q, passive=True, durable=True, auto_delete=True)
    w.attempt(a, "queue.declare", queue=q, arguments={"x-mine": 1})
    w.attempt(a, "queue.delete", queue=q)
    q = w.queue(a, "durable", durable=True)
    w.attempt(a, "queue.declare", queue=q)
    w.attempt(a, "queue.declare", queue=q, durable=True)
    w.attempt(a, "queue.delete", queue=q)


def _inequivalent_argument(w: World, name: str, value: Any, *others: Any) -> None:
    a = w.client()
    q = w.name("q")
    event = w.attempt(a, "queue.declare", queue=q, exclusive=True, arguments={name: value})
    if event.name == "queue.declare-ok":
        w.attempt(a, "queue.declare", queue=q, exclusive=True, arguments={name: value})
        w.attempt(a, "queue.declare", queue=q, exclusive=True)
        for other in others:
            w.attempt(a, "queue.declare", queue=q, exclusive=True, arguments={name: other})


@case
def argument_message_ttl(w: World) -> None:
    """Item 49."""
    _inequivalent_argument(w, "x-message-ttl", 1000, 2000, "1000", -1)


@case
def argument_expires(w: World) -> None:
    """Item 52."""
    _inequivalent_argument(w, "x-expires", 60000, 0, -1, "x")


@case
def argument_max_length(w: World) -> None:
    """Item 53."""
    _inequivalent_argument(w, "x-max-length", 10, 11, -1, "x")


@case
def argument_max_length_bytes(w: World) -> None:
    """Item 53."""
    _inequivalent_argument(w, "x-max-length-bytes", 10, 11, -1)


@case
def argument_overflow(w: World) -> None:
    """Item 54."""
    _inequivalent_argument(w, "x-overflow", "drop-head", "reject-publish", "sideways", 1)


@case
def argument_dead_letter_exchange(w: World) -> None:
    """Item 55."""
    _inequivalent_argument(w, "x-dead-letter-exchange", "dlx", "other", 1)


@case
def argument_dead_letter_routing_key_alone(w: World) -> None:
    """Item 55."""
    _inequivalent_argument(w, "x-dead-letter-routing-key", "k")


@case
def argument_max_priority(w: World) -> None:
    """Item 56."""
    _inequivalent_argument(w, "x-max-priority", 5, 6, 256, -1, "x")


@case
def argument_single_active_consumer(w: World) -> None:
    """Item 57."""
    _inequivalent_argument(w, "x-single-active-consumer", True, False, "x")


@case
def argument_queue_mode(w: World) -> None:
    """Item 58."""
    _inequivalent_argument(w, "x-queue-mode", "lazy", "default", "sideways")


@case
def argument_queue_type_classic(w: World) -> None:
    """Item 59."""
    _inequivalent_argument(w, "x-queue-type", "classic", "sideways")


@case
def argument_queue_type_unknown(w: World) -> None:
    """Item 59."""
    a = w.client()
    kind = {"x-queue-type": "sideways"}
    w.attempt(a, "queue.declare", queue=w.name("q"), exclusive=True, arguments=kind)


@case
def argument_queue_type_quorum_exclusive(w: World) -> None:
    """Item 59."""
    a = w.client()
    kind = {"x-queue-type": "quorum"}
    w.attempt(a, "queue.declare", queue=w.name("q"), exclusive=True, arguments=kind)


@case
def argument_master_locator(w: World) -> None:
    """Item 44."""
    _inequivalent_argument(w, "x-queue-master-locator", "random", "min-masters", "near", 1)


@case
def argument_master_locator_unknown(w: World) -> None:
    """Item 44."""
    a = w.client()
    near = {"x-queue-master-locator": "near"}
    w.attempt(a, "queue.declare", queue=w.name("q"), auto_delete=True, arguments=near)


@case
def argument_unknown(w: World) -> None:
    """Item 44."""
    _inequivalent_argument(w, "x-nobody-knows", "a", "b", 1)


@case
def exclusive_queue_of_another_connection(w: World) -> None:
    """Item 45."""
    a, b = w.client("A"), w.client("B")
    q = w.queue(a, exclusive=True)
    w.attempt(b, "queue.declare", queue=q)
    w.attempt(b, "queue.declare", queue=q, exclusive=True)
    w.attempt(b, "queue.declare", queue=q, passive=True)
    w.attempt(b, "queue.bind", queue=q, exchange="amq.direct", routing_key="k")
    w.say("what is not bound is unbound, what is bound is locked")
    w.attempt(b, "queue.unbind", queue=q, exchange="amq.direct", routing_key="k")
    w.attempt(a, "queue.bind", queue=q, exchange="amq.direct", routing_key="k")
    w.attempt(b, "queue.unbind", queue=q, exchange="amq.direct", routing_key="k")
    w.attempt(b, "basic.consume", queue=q, consumer_tag="t")
    w.attempt(b, "basic.get", queue=q)
    w.attempt(b, "queue.purge", queue=q)
    w.attempt(b, "queue.delete", queue=q)
    w.say("but it may be published to")
    b.publish(1, "", q)
    w.barrier(b)
    w.attempt(a, "basic.get", queue=q, no_ack=True)
    w.say("and its own connection may use it on any channel")
    a.call(2, "channel.open")
    w.attempt(a, "queue.declare", queue=q, exclusive=True, channel=2)
    w.attempt(a, "queue.declare", queue=q, channel=2)


@case
def exclusive_queue_is_free_after_close_ok(w: World) -> None:
    """Item 104: the name is free when close-ok is sent, not some time later: tried twenty times."""
    b = w.client("B")
    q = w.name("q")
    for _ in range(20):
        a = w.raw("A")
        a.open()
        a.open_channel()
        a.send_off_record(codec.method_frame(1, "queue.declare", queue=q, exclusive=True))
        a.receive_quietly()
        a.send_off_record(codec.method_frame(0, "connection.close", code=200))
        assert a.receive_quietly().name == "connection.close-ok"
        b.send_off_record(codec.method_frame(1, "queue.declare", queue=q, exclusive=True))
        answer = b.receive_quietly()
        b.note(f"< {answer}")
        if answer.name != "queue.declare-ok":
            return
        b.send_off_record(codec.method_frame(1, "queue.delete", queue=q))
        b.receive_quietly()
        a.close_socket()


@case
def exclusive_queue_survives_its_channel(w: World) -> None:
    """Item 46."""
    a = w.client()
    q = w.queue(a, exclusive=True)
    a.call(1, "channel.close", code=200)
    a.call(1, "channel.open")
    w.attempt(a, "queue.declare", queue=q, passive=True)


@case
def exclusive_durable_queue_dies_too(w: World) -> None:
    """Item 46."""
    a, b = w.client("A"), w.client("B")
    q = w.queue(a, exclusive=True, durable=True)
    a.send(0, "connection.close", code=200)
    a.expect("connection.close-ok")
    w.attempt(b, "queue.declare", queue=q, passive=True)


@case
def auto_delete_with_the_last_consumer(w: World) -> None:
    """Item 46."""
    a = w.client()
    q = w.queue(a, auto_delete=True)
    a.call(1, "basic.consume", queue=q, consumer_tag="1")
    a.call(1, "basic.consume", queue=q, consumer_tag="2")
    a.call(1, "basic.cancel", consumer_tag="1")
    w.attempt(a, "queue.declare", queue=q, passive=True)
    a.call(1, "basic.cancel", consumer_tag="2")
    w.attempt(a, "queue.declare", queue=q, passive=True)


@case
def auto_delete_when_the_channel_closes(w: World) -> None:
    """Item 46."""
    a = w.client()
    q = w.queue(a, auto_delete=True)
    a.call(2, "channel.open")
    a.call(2, "basic.consume", queue=q, consumer_tag="1")
    a.call(2, "channel.close", code=200)
    w.attempt(a, "queue.declare", queue=q, passive=True)


@case
def auto_delete_not_before_the_first_consumer(w: World) -> None:
    """Item 46."""
    a, b = w.client("A"), w.client("B")
    q = w.queue(a, auto_delete=True)
    w.attempt(a, "basic.get", queue=q)
    a.send(0, "connection.close", code=200)
    a.expect("connection.close-ok")
    w.attempt(b, "queue.declare", queue=q, passive=True)
    w.attempt(b, "queue.delete", queue=q)


@case
def delete_missing(w: World) -> None:
    """Item 47."""
    a = w.client()
    q = w.queue(a)
    w.attempt(a, "queue.delete", queue=q)
    w.attempt(a, "queue.delete", queue=q)
    w.attempt(a, "queue.delete", queue=q, if_unused=True, if_empty=True)


@case
def delete_counts(w: World) -> None:
    """Ready messages are counted; unacknowledged ones too?"""
    a = w.client()
    q = w.queue(a, exclusive=True)
    w.fill(a, q, b"1", b"2", b"3", b"4", b"5")
    w.attempt(a, "basic.get", queue=q)
    w.attempt(a, "queue.delete", queue=q)
    w.say("an acknowledgement for a queue that is gone is no error")
    a.send(1, "basic.ack", delivery_tag=1)
    w.barrier(a)


@case
def delete_if_empty(w: World) -> None:
    """Item 47."""
    a = w.client()
    q = w.queue(a, exclusive=True)
    w.fill(a, q, b"1")
    w.attempt(a, "queue.delete", queue=q, if_empty=True)
    w.attempt(a, "basic.get", queue=q)
    w.say("only an unacknowledged message is left: that is empty")
    w.attempt(a, "queue.delete", queue=q, if_empty=True)


@case
def delete_if_unused(w: World) -> None:
    """Item 47."""
    a = w.client()
    q = w.queue(a, exclusive=True)
    a.call(2, "channel.open")
    a.call(2, "basic.consume", queue=q, consumer_tag="t")
    w.attempt(a, "queue.delete", queue=q, if_unused=True)
    a.call(2, "basic.cancel", consumer_tag="t")
    w.attempt(a, "queue.delete", queue=q, if_unused=True)


@case
def delete_if_unused_and_if_empty(w: World) -> None:
    """Item 47."""
    a = w.client()
    q = w.queue(a, exclusive=True)
    a.publish(1, "", q)
    a.call(2, "channel.open")
    a.call(2, "basic.qos", prefetch_count=1)
    a.call(2, "basic.consume", queue=q, consumer_tag="t")
    a.receive()
    w.fill(a, q, b"2")
    w.attempt(a, "queue.delete", queue=q, if_unused=True, if_empty=True)


@case
def purge_counts(w: World) -> None:
    """Item 48: ready messages only; unacknowledged ones stay."""
    a = w.client()
    q = w.queue(a, exclusive=True)
    w.attempt(a, "queue.purge", queue=q)
    w.fill(a, q, b"1", b"2", b"3", b"4", b"5")
    for _ in range(2):
        a.call(1, "basic.get", queue=q)
    w.attempt(a, "queue.purge", queue=q)
    a.send(1, "basic.nack", delivery_tag=2, multiple=True, requeue=True)
    w.attempt(a, "queue.purge", queue=q)


@case
def purge_missing(w: World) -> None:
    a = w.client()
    w.attempt(a, "queue.purge", queue=w.name("none"))


@case
def nowait(w: World) -> None:
    a = w.client()
    q = w.name("q")
    w.say("no answer to any of these but the last")
    a.send(1, "queue.declare", queue=q, exclusive=True, nowait=True)
    a.publish(1, "", q)
    a.send(1, "queue.purge", queue=q, nowait=True)
    w.attempt(a, "basic.get", queue=q)
    a.send(1, "queue.delete", queue=q, nowait=True)
    w.attempt(a, "queue.declare", queue=q, passive=True)


@case
def deleted_queue_loses_its_bindings(w: World) -> None:
    a = w.client()
    q = w.queue(a, exclusive=True)
    a.call(1, "queue.bind", queue=q, exchange="amq.direct", routing_key=q)
    a.call(1, "queue.delete", queue=q)
    a.call(1, "queue.declare", queue=q, exclusive=True)
    a.publish(1, "amq.direct", q, mandatory=True)
    a.receive()
