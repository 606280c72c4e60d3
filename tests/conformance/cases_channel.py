"""Channels: open and close, reuse, errors, what the broker answers to rare methods."""

import struct

from tests.conformance.case import World, case
from tests.helpers import raw_codec as codec


@case
def open_and_close(w: World) -> None:
    a = w.client()
    a.call(2, "channel.open")
    a.call(2, "channel.close", code=200, text="bye")
    a.call(2, "channel.open")


@case
def open_twice(w: World) -> None:
    """Item 18."""
    a = w.client()
    w.attempt(a, "channel.open")


@case
def close_ok_not_asked_for(w: World) -> None:
    a = w.client()
    a.send(1, "channel.close-ok")
    w.fate(a, timeout_s=2.0)


@case
def open_ok_from_the_client(w: World) -> None:
    a = w.client()
    a.send(1, "channel.open-ok")
    w.fate(a, timeout_s=2.0)


@case
def error_closes_this_channel_only(w: World) -> None:
    """Item 19."""
    a = w.client()
    a.call(2, "channel.open")
    a.call(1, "queue.declare", queue=w.name("q"), passive=True)
    a.call(2, "basic.qos")
    a.send(1, "channel.close-ok")
    a.call(1, "channel.open")


@case
def methods_after_an_error_are_ignored(w: World) -> None:
    """Item 19: until the close is answered, whatever arrives on the channel does not count."""
    a = w.client()
    first, second = w.name("q1"), w.name("q2")
    a.send(1, "queue.declare", queue=first, passive=True)
    a.send(1, "queue.declare", queue=second)
    a.expect("channel.close")
    a.send(1, "queue.declare", queue=second)
    a.publish(1, "", second)
    a.send(1, "channel.close-ok")
    a.call(1, "channel.open")
    w.attempt(a, "queue.declare", queue=second, passive=True)


@case
def own_close_crosses_with_the_brokers(w: World) -> None:
    """Item 19."""
    a = w.client()
    a.send(1, "queue.declare", queue=w.name("q"), passive=True)
    a.expect("channel.close")
    a.send(1, "channel.close", code=200)
    a.receive(2.0)
    a.send(1, "channel.close-ok")
    a.call(1, "channel.open")


@case
def reopened_before_close_ok(w: World) -> None:
    """The number is not free before the close is answered."""
    a = w.client()
    a.call(1, "queue.declare", queue=w.name("q"), passive=True)
    a.send(1, "channel.open")
    w.fate(a)


@case
def delivery_tags_start_over_with_the_channel(w: World) -> None:
    a = w.client()
    q = w.queue(a, exclusive=True)
    w.say("exclusive to A: published from there")
    for _ in range(2):
        a.publish(1, "", q)
    a.call(1, "basic.get", queue=q)
    a.call(1, "channel.close", code=200)
    a.call(1, "channel.open")
    a.call(1, "basic.get", queue=q)


@case
def flow_active(w: World) -> None:
    """Item 20."""
    a = w.client()
    w.attempt(a, "channel.flow", active=True)


@case
def flow_inactive(w: World) -> None:
    """Item 20."""
    a = w.client()
    w.attempt(a, "channel.flow", active=False)


@case
def access_request(w: World) -> None:
    """Item 21."""
    a = w.client()
    w.attempt(a, "access.request", realm="/data", active=True)


@case
def close_with_unacked_requeues(w: World) -> None:
    """Item 73."""
    a = w.client()
    q = w.queue(a, exclusive=True)
    a.call(2, "channel.open")
    for body in (b"1", b"2", b"3"):
        a.publish(1, "", q, body)
    w.barrier(a)
    a.call(2, "basic.get", queue=q)
    a.call(2, "basic.get", queue=q)
    a.call(2, "channel.close", code=200)
    for _ in range(3):
        a.call(1, "basic.get", queue=q, no_ack=True)
    a.call(1, "basic.get", queue=q, no_ack=True)


@case
def connection_loss_requeues(w: World) -> None:
    """Item 73: a socket ends: its messages come back in order, marked, before newer ones."""
    a, b = w.client("A"), w.client("B")
    q = w.queue(a)
    w.put(q, b"1", b"2", b"3")
    b.call(1, "basic.consume", queue=q, consumer_tag="t")
    for _ in range(3):
        b.receive()
    b.close_socket()
    a.call(1, "basic.qos", prefetch_count=3)
    a.call(1, "basic.consume", queue=q, consumer_tag="t")
    for _ in range(3):
        a.receive()
    w.purge(q)


@case
def tx_select(w: World) -> None:
    a = w.client()
    w.attempt(a, "tx.select")


@case
def tx_commit_without_select(w: World) -> None:
    a = w.client()
    w.attempt(a, "tx.commit")


@case
def tx_rollback_without_select(w: World) -> None:
    a = w.client()
    w.attempt(a, "tx.rollback")


@case
def carriage_returns_in_names(w: World) -> None:
    """Item 22: CR and LF are taken out of names."""
    a = w.client()
    q = w.name("q")
    a.call(1, "queue.declare", queue=f"{q}\r\n", exclusive=True)
    a.call(1, "queue.declare", queue=q, passive=True)


@case
def names_of_255_bytes(w: World) -> None:
    """Item 23."""
    a = w.client()
    name = w.name("q")
    w.attempt(a, "queue.declare", queue=name + "x" * (255 - len(name)), exclusive=True)


@case
def names_with_zero_bytes_and_spaces(w: World) -> None:
    a = w.client()
    w.attempt(a, "queue.declare", queue=w.name("q") + " \0 \t.#*", exclusive=True)


@case
def text_of_a_very_long_name(w: World) -> None:
    """Item 24: the text of a reply is a short string: what does not fit is cut."""
    a = w.client()
    w.attempt(a, "queue.declare", queue="n" * 250, passive=True)


@case
def nowait_declare_that_fails(w: World) -> None:
    """nowait asks for no answer; an error is told all the same."""
    a = w.client()
    w.attempt(a, "queue.declare", queue="amq.mine", nowait=True)


@case
def pipelined_calls_are_answered_in_order(w: World) -> None:
    a = w.client()
    q = w.queue(a, exclusive=True)
    a.send(1, "queue.declare", queue=q, exclusive=True)
    a.send(1, "basic.qos", prefetch_count=1)
    a.publish(1, "", q, b"1")
    a.send(1, "basic.get", queue=q, no_ack=True)
    a.send(1, "confirm.select")
    a.send(1, "queue.purge", queue=q)
    for _ in range(5):
        a.receive()


@case
def recover_ok_from_the_client(w: World) -> None:
    a = w.client()
    a.send(1, "basic.recover-ok")
    w.fate(a, timeout_s=2.0)


@case
def queue_unbind_has_no_nowait(w: World) -> None:
    """The one binding method with an answer always."""
    a = w.client()
    q = w.queue(a, exclusive=True)
    payload = struct.pack(">HHH", 50, 50, 0) + codec.short_string(q)
    payload += codec.short_string("amq.direct") + codec.short_string("k") + bytes(4)
    a.send_frame(codec.METHOD, 1, payload, "queue.unbind")
    w.outcome(a)
