"""Acknowledgements: ack, nack, reject, recover; unknown tags; what comes back in what order."""

from tests.conformance.case import World, case
from tests.helpers import raw_codec as codec
from tests.helpers.raw_amqp import RawClient


def _taken(w: World, count: int) -> tuple[RawClient, str]:
    """A channel that holds messages 1..count, delivery tag = number."""
    a = w.client()
    q = w.queue(a, exclusive=True)
    for number in range(1, count + 1):
        a.publish(1, "", q, b"%d" % number)
    for _ in range(count):
        a.send_off_record(_get(q))
        a.receive_quietly()
    return a, q


def _get(queue: str) -> bytes:
    from tests.helpers.raw_codec import method_frame

    return method_frame(1, "basic.get", queue=queue)


def _rest(w: World, a: RawClient, q: str) -> None:
    """What is ready now, in order; taken away."""
    while True:
        a.send_off_record(_get(q))
        event = a.receive_quietly()
        a.note(f"< {event}")
        if event.name != "basic.get-ok":
            return


@case
def ack_one(w: World) -> None:
    a, q = _taken(w, 3)
    a.send(1, "basic.ack", delivery_tag=2)
    w.barrier(a)
    a.call(1, "basic.recover", requeue=True)
    _rest(w, a, q)


@case
def ack_multiple(w: World) -> None:
    a, q = _taken(w, 4)
    a.send(1, "basic.ack", delivery_tag=3, multiple=True)
    w.barrier(a)
    a.call(1, "basic.recover", requeue=True)
    _rest(w, a, q)


@case
def ack_everything(w: World) -> None:
    """Item 70: tag 0 with multiple is all there is."""
    a, q = _taken(w, 3)
    a.send(1, "basic.ack", delivery_tag=0, multiple=True)
    w.barrier(a)
    a.call(1, "basic.recover", requeue=True)
    _rest(w, a, q)


@case
def ack_everything_of_nothing(w: World) -> None:
    a = w.client()
    a.send(1, "basic.ack", delivery_tag=0, multiple=True)
    w.barrier(a)


@case
def ack_twice(w: World) -> None:
    """Item 70."""
    a, _ = _taken(w, 2)
    a.send(1, "basic.ack", delivery_tag=1)
    a.send(1, "basic.ack", delivery_tag=1)
    w.outcome(a)


@case
def ack_unknown(w: World) -> None:
    """Item 70."""
    a, _ = _taken(w, 2)
    a.send(1, "basic.ack", delivery_tag=3)
    w.outcome(a)


@case
def ack_zero_alone(w: World) -> None:
    a, _ = _taken(w, 1)
    a.send(1, "basic.ack", delivery_tag=0)
    w.outcome(a)


@case
def ack_multiple_unknown(w: World) -> None:
    a, q = _taken(w, 2)
    a.send(1, "basic.ack", delivery_tag=9, multiple=True)
    w.outcome(a)
    _rest(w, a, q)


@case
def ack_multiple_below_the_oldest(w: World) -> None:
    """Tag 1 is settled: 'up to 1' names nothing any more."""
    a, _ = _taken(w, 3)
    a.send(1, "basic.ack", delivery_tag=1)
    a.send(1, "basic.ack", delivery_tag=1, multiple=True)
    w.outcome_or_barrier(a)


@case
def ack_multiple_of_a_settled_tag_in_the_middle(w: World) -> None:
    """Tag 2 is settled, tag 1 is not: 'up to 2' settles 1."""
    a, q = _taken(w, 3)
    a.send(1, "basic.ack", delivery_tag=2)
    a.send(1, "basic.ack", delivery_tag=2, multiple=True)
    w.outcome_or_barrier(a)
    a.call(1, "basic.recover", requeue=True)
    _rest(w, a, q)


@case
def ack_of_a_no_ack_delivery(w: World) -> None:
    a = w.client()
    q = w.queue(a, exclusive=True)
    a.publish(1, "", q)
    w.attempt(a, "basic.get", queue=q, no_ack=True)
    a.send(1, "basic.ack", delivery_tag=1)
    w.outcome(a)


@case
def ack_on_another_channel(w: World) -> None:
    a, _ = _taken(w, 1)
    a.call(2, "channel.open")
    a.send(2, "basic.ack", delivery_tag=1)
    w.outcome(a, 2)


@case
def ack_of_a_huge_tag(w: World) -> None:
    a, _ = _taken(w, 1)
    a.send(1, "basic.ack", delivery_tag=2**64 - 1)
    w.outcome(a)


@case
def tags_beyond_the_largest_signed_number(w: World) -> None:
    """Item 70."""
    a, _ = _taken(w, 1)
    for method in ("basic.ack", "basic.nack", "basic.reject"):
        a.send(1, method, delivery_tag=2**63)
        w.outcome_or_barrier(a)
    w.say("in one packet with the one before")
    acks = [codec.method_frame(1, "basic.ack", delivery_tag=2**63 - 1 + n) for n in (0, 1)]
    a.send_bytes(b"".join(acks), "two acks")
    w.outcome_or_barrier(a)


@case
def nack_unknown(w: World) -> None:
    """Item 70."""
    a, _ = _taken(w, 1)
    a.send(1, "basic.nack", delivery_tag=5, requeue=True)
    w.outcome(a)


@case
def nack_multiple_unknown(w: World) -> None:
    a, _ = _taken(w, 1)
    a.send(1, "basic.nack", delivery_tag=5, multiple=True, requeue=True)
    w.outcome(a)


@case
def reject_unknown(w: World) -> None:
    """Item 70."""
    a, _ = _taken(w, 1)
    a.send(1, "basic.reject", delivery_tag=5)
    w.outcome(a)


@case
def reject_twice(w: World) -> None:
    a, _ = _taken(w, 1)
    a.send(1, "basic.reject", delivery_tag=1)
    a.send(1, "basic.reject", delivery_tag=1)
    w.outcome(a)


@case
def reject_zero(w: World) -> None:
    a, _ = _taken(w, 1)
    a.send(1, "basic.reject", delivery_tag=0, requeue=True)
    w.outcome(a)


@case
def error_requeues_what_the_channel_held(w: World) -> None:
    """Item 73."""
    a, q = _taken(w, 2)
    a.send(1, "basic.ack", delivery_tag=9)
    w.outcome(a)
    _rest(w, a, q)


@case
def reject_with_requeue_goes_to_its_old_place(w: World) -> None:
    """Item 71."""
    a, q = _taken(w, 3)
    a.publish(1, "", q, b"4")
    a.send(1, "basic.reject", delivery_tag=2, requeue=True)
    w.barrier(a)
    _rest(w, a, q)


@case
def reject_without_requeue_drops(w: World) -> None:
    a, q = _taken(w, 3)
    a.send(1, "basic.reject", delivery_tag=2, requeue=False)
    a.call(1, "basic.recover", requeue=True)
    _rest(w, a, q)


@case
def nack_multiple_with_requeue(w: World) -> None:
    """Item 71."""
    a, q = _taken(w, 4)
    a.publish(1, "", q, b"5")
    a.send(1, "basic.nack", delivery_tag=3, multiple=True, requeue=True)
    w.barrier(a)
    _rest(w, a, q)


@case
def nack_everything(w: World) -> None:
    a, q = _taken(w, 3)
    a.send(1, "basic.nack", delivery_tag=0, multiple=True, requeue=True)
    w.barrier(a)
    _rest(w, a, q)


@case
def nack_without_requeue(w: World) -> None:
    a, q = _taken(w, 3)
    a.send(1, "basic.nack", delivery_tag=2, multiple=True, requeue=False)
    a.call(1, "basic.recover", requeue=True)
    _rest(w, a, q)


@case
def nacks_out_of_order_keep_the_queue_order(w: World) -> None:
    """Item 71."""
    a, q = _taken(w, 4)
    for tag in (3, 1, 4, 2):
        a.send(1, "basic.nack", delivery_tag=tag, requeue=True)
    w.barrier(a)
    _rest(w, a, q)


@case
def requeued_comes_to_a_waiting_consumer(w: World) -> None:
    a = w.client()
    q = w.queue(a, exclusive=True)
    a.call(1, "basic.consume", queue=q, consumer_tag="t")
    a.publish(1, "", q, b"1")
    a.receive()
    a.send(1, "basic.reject", delivery_tag=1, requeue=True)
    a.receive()
    a.send(1, "basic.nack", delivery_tag=2, requeue=True)
    a.receive()


@case
def recover_requeues(w: World) -> None:
    """Item 74."""
    a, q = _taken(w, 3)
    w.attempt(a, "basic.recover", requeue=True)
    _rest(w, a, q)


@case
def recover_to_own_consumer(w: World) -> None:
    """Item 74: requeue=true: the same consumer gets them again, marked, under new tags.

    Whether recover-ok or the messages come first is not promised: all are read.
    """
    a = w.client()
    q = w.queue(a, exclusive=True)
    a.call(1, "basic.consume", queue=q, consumer_tag="t")
    for body in (b"1", b"2"):
        a.publish(1, "", q, body)
        a.receive()
    a.send(1, "basic.recover", requeue=True)
    events = [a.receive_quietly() for _ in range(3)]
    for event in sorted(events, key=str):
        a.note(f"< {event}")


@case
def recover_nothing(w: World) -> None:
    a = w.client()
    w.attempt(a, "basic.recover", requeue=True)


@case
def recover_without_requeue(w: World) -> None:
    """Item 74."""
    a, _ = _taken(w, 1)
    w.attempt(a, "basic.recover", requeue=False)


@case
def recover_async(w: World) -> None:
    """Item 74."""
    a, q = _taken(w, 2)
    a.send(1, "basic.recover-async", requeue=True)
    w.barrier(a)
    _rest(w, a, q)


@case
def redelivered_flags(w: World) -> None:
    """Item 78: false at first, true ever after, for get and for consume alike."""
    a = w.client()
    q = w.queue(a, exclusive=True)
    a.publish(1, "", q, b"1")
    w.attempt(a, "basic.get", queue=q)
    a.send(1, "basic.reject", delivery_tag=1, requeue=True)
    w.attempt(a, "basic.get", queue=q)
    a.send(1, "basic.reject", delivery_tag=2, requeue=True)
    w.attempt(a, "basic.consume", queue=q, consumer_tag="t")
    a.receive()
