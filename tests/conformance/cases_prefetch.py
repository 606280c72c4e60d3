"""Prefetch to the message: what counts towards a limit, what frees room, what a limit binds."""

from tests.conformance.case import World, case
from tests.helpers.raw_amqp import SILENCE, RawClient


def _filled(w: World, a: RawClient, count: int) -> str:
    q = w.queue(a, exclusive=True)
    for number in range(count):
        a.publish(1, "", q, b"%d" % number)
    w.barrier(a)
    return q


def _take(a: RawClient, count: int) -> None:
    for _ in range(count):
        event = a.receive()
        a.note(
            f"< {event.args['consumer_tag']} gets {event.body!r} as {event.args['delivery_tag']}"
        )


def _nothing_more(a: RawClient) -> None:
    event = a.receive_quietly(0.4)
    a.note("< no more" if event.name == SILENCE else f"< {event}")


@case
def a_late_limit_for_the_channel_and_who_consumes_already(w: World) -> None:
    """Item 76: three are open when a limit of two comes."""
    a = w.client()
    q = _filled(w, a, 3)
    a.call(1, "basic.consume", queue=q, consumer_tag="t")
    _take(a, 3)
    a.call(1, "basic.qos", prefetch_count=2, global_=True)
    a.publish(1, "", q, b"3")
    a.drain_sorted()


@case
def what_was_unsettled_before_counts_for_the_channel(w: World) -> None:
    """Item 76: a limit that comes late counts what is open already, for those who come then."""
    a = w.client()
    q = _filled(w, a, 6)
    a.call(1, "basic.qos", prefetch_count=2)
    a.call(1, "basic.consume", queue=q, consumer_tag="gone")
    _take(a, 2)
    a.call(1, "basic.cancel", consumer_tag="gone")
    a.call(1, "basic.qos", prefetch_count=2, global_=True)
    a.call(1, "basic.consume", queue=q, consumer_tag="next")
    _nothing_more(a)
    a.send(1, "basic.ack", delivery_tag=2)
    _take(a, 1)
    _nothing_more(a)


@case
def what_was_got_before_and_a_limit_for_the_channel(w: World) -> None:
    """Item 76: and settling it frees nothing either."""
    a = w.client()
    q = _filled(w, a, 3)
    w.attempt(a, "basic.get", queue=q)
    w.attempt(a, "basic.get", queue=q)
    a.call(1, "basic.qos", prefetch_count=1, global_=True)
    a.send(1, "basic.ack", delivery_tag=2, multiple=True)
    a.call(1, "basic.consume", queue=q, consumer_tag="t")
    a.drain_sorted()


@case
def a_limit_for_the_channel_over_two_queues(w: World) -> None:
    """Item 76: whichever queue comes first takes the room."""
    a = w.client()
    q1, q2 = w.queue(a, "q1", exclusive=True), w.queue(a, "q2", exclusive=True)
    for number in range(3):
        a.publish(1, "", q1, b"a%d" % number)
        a.publish(1, "", q2, b"b%d" % number)
    w.barrier(a)
    a.call(1, "basic.qos", prefetch_count=3, global_=True)
    a.call(1, "basic.consume", queue=q1, consumer_tag="1")
    _take(a, 3)
    a.call(1, "basic.consume", queue=q2, consumer_tag="2")
    _nothing_more(a)
    a.send(1, "basic.ack", delivery_tag=2, multiple=True)
    _take(a, 2)
    _nothing_more(a)


@case
def a_full_channel_stops_consumers_without_ack(w: World) -> None:
    """Item 76: they do not count, but they are stopped."""
    a = w.client()
    q1, q2 = w.queue(a, "q1", exclusive=True), w.queue(a, "q2", exclusive=True)
    for number in range(3):
        a.publish(1, "", q1, b"a%d" % number)
        a.publish(1, "", q2, b"b%d" % number)
    w.barrier(a)
    a.call(1, "basic.qos", prefetch_count=1, global_=True)
    a.call(1, "basic.consume", queue=q1, consumer_tag="acks")
    _take(a, 1)
    a.call(1, "basic.consume", queue=q2, consumer_tag="free", no_ack=True)
    _nothing_more(a)


@case
def a_cancelled_consumer_still_counts_for_the_channel(w: World) -> None:
    """Item 76: what it has not settled does."""
    a = w.client()
    q = _filled(w, a, 4)
    a.call(1, "basic.qos", prefetch_count=2, global_=True)
    a.call(1, "basic.consume", queue=q, consumer_tag="gone")
    _take(a, 2)
    a.call(1, "basic.cancel", consumer_tag="gone")
    a.call(1, "basic.consume", queue=q, consumer_tag="next")
    _nothing_more(a)
    a.send(1, "basic.ack", delivery_tag=1)
    _take(a, 1)
    _nothing_more(a)


@case
def a_consumer_of_the_same_tag_has_a_window_of_its_own(w: World) -> None:
    """Item 75: what its namesake has not settled is not counted."""
    a = w.client()
    q = _filled(w, a, 4)
    a.call(1, "basic.qos", prefetch_count=2)
    a.call(1, "basic.consume", queue=q, consumer_tag="t")
    _take(a, 2)
    a.call(1, "basic.cancel", consumer_tag="t")
    a.call(1, "basic.consume", queue=q, consumer_tag="t")
    _take(a, 2)
    _nothing_more(a)


@case
def what_is_requeued_frees_room(w: World) -> None:
    """Item 75: and may take it again itself."""
    a = w.client()
    q = _filled(w, a, 3)
    a.call(1, "basic.qos", prefetch_count=1)
    a.call(1, "basic.consume", queue=q, consumer_tag="t")
    _take(a, 1)
    a.send(1, "basic.nack", delivery_tag=1, requeue=True)
    _take(a, 1)
    a.send(1, "basic.reject", delivery_tag=2, requeue=False)
    _take(a, 1)
    _nothing_more(a)


@case
def recover_frees_room(w: World) -> None:
    """Item 75: everything comes again, no more at a time than before."""
    a = w.client()
    q = _filled(w, a, 4)
    a.call(1, "basic.qos", prefetch_count=2)
    a.call(1, "basic.consume", queue=q, consumer_tag="t")
    _take(a, 2)
    a.send(1, "basic.recover", requeue=True)
    names = sorted(a.receive().name for _ in range(3))
    a.note(f"< {names}")
    _nothing_more(a)


@case
def none_lifts_the_limit_for_later_consumers(w: World) -> None:
    """Item 75: 0 is no limit, for those who come then."""
    a = w.client()
    q = _filled(w, a, 5)
    a.call(1, "basic.qos", prefetch_count=1)
    a.call(1, "basic.consume", queue=q, consumer_tag="one")
    _take(a, 1)
    a.call(1, "basic.qos", prefetch_count=0)
    _nothing_more(a)
    a.call(1, "basic.consume", queue=q, consumer_tag="any")
    _take(a, 4)


@case
def a_lower_limit_for_the_channel_waits_until_it_is_met(w: World) -> None:
    """Item 76."""
    a = w.client()
    q = _filled(w, a, 6)
    a.call(1, "basic.qos", prefetch_count=3, global_=True)
    a.call(1, "basic.consume", queue=q, consumer_tag="t")
    _take(a, 3)
    a.call(1, "basic.qos", prefetch_count=1, global_=True)
    a.send(1, "basic.ack", delivery_tag=2, multiple=True)
    _nothing_more(a)
    a.send(1, "basic.ack", delivery_tag=3)
    _take(a, 1)
    _nothing_more(a)


@case
def limits_of_one_channel_do_not_bind_another(w: World) -> None:
    """Item 76."""
    a = w.client()
    q = _filled(w, a, 4)
    a.call(1, "basic.qos", prefetch_count=1, global_=True)
    a.call(1, "basic.consume", queue=q, consumer_tag="t")
    _take(a, 1)
    a.open_channel(2)
    a.call(2, "basic.consume", queue=q, consumer_tag="u")
    _take(a, 3)
    _nothing_more(a)


@case
def a_limit_for_consumers_after_one_for_the_channel(w: World) -> None:
    """Items 75 and 76: the later one does away with the other."""
    a = w.client()
    q = _filled(w, a, 5)
    a.call(1, "basic.qos", prefetch_count=2, global_=True)
    a.call(1, "basic.consume", queue=q, consumer_tag="early")
    _take(a, 2)
    a.send(1, "basic.qos", prefetch_count=1)
    a.drain_sorted()
    a.publish(1, "", q, b"5")
    a.publish(1, "", q, b"6")
    a.drain_sorted()
    a.call(1, "basic.cancel", consumer_tag="early")
    a.publish(1, "", q, b"7")
    a.publish(1, "", q, b"8")
    a.call(1, "basic.consume", queue=q, consumer_tag="late")
    a.drain_sorted()
