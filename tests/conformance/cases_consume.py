"""Consumers: tags, exclusivity, prefetch, turns, cancelling; and basic.get."""

from tests.conformance.case import World, case
from tests.helpers.raw_amqp import SILENCE, RawClient

NOTIFY = {"consumer_cancel_notify": True}


@case
def server_made_tag(w: World) -> None:
    """Item 62."""
    a = w.client()
    q = w.queue(a, exclusive=True)
    w.attempt(a, "basic.consume", queue=q)


@case
def same_tag_twice(w: World) -> None:
    """Item 62."""
    a = w.client()
    q = w.queue(a, exclusive=True)
    w.attempt(a, "basic.consume", queue=q, consumer_tag="t")
    w.attempt(a, "basic.consume", queue=q, consumer_tag="t")


@case
def same_tag_on_two_channels(w: World) -> None:
    a = w.client()
    q = w.queue(a, exclusive=True)
    a.call(2, "channel.open")
    w.attempt(a, "basic.consume", queue=q, consumer_tag="t")
    w.attempt(a, "basic.consume", queue=q, consumer_tag="t", channel=2)


@case
def tag_is_free_after_cancel(w: World) -> None:
    a = w.client()
    q = w.queue(a, exclusive=True)
    w.attempt(a, "basic.consume", queue=q, consumer_tag="t")
    w.attempt(a, "basic.cancel", consumer_tag="t")
    w.attempt(a, "basic.consume", queue=q, consumer_tag="t")


@case
def missing_queue(w: World) -> None:
    """Item 63."""
    a = w.client()
    w.attempt(a, "basic.consume", queue=w.name("none"), consumer_tag="t")
    w.attempt(a, "basic.get", queue=w.name("none2"))


@case
def missing_queue_nowait(w: World) -> None:
    a = w.client()
    w.attempt(a, "basic.consume", queue=w.name("none"), consumer_tag="t", nowait=True)


@case
def consume_ok_comes_before_the_first_message(w: World) -> None:
    """Item 65."""
    a = w.client()
    q = w.queue(a, exclusive=True)
    for body in (b"1", b"2", b"3"):
        a.publish(1, "", q, body)
    w.barrier(a)
    a.send(1, "basic.consume", queue=q, consumer_tag="t")
    for _ in range(4):
        a.receive()


@case
def nowait_consume(w: World) -> None:
    """Item 65."""
    a = w.client()
    q = w.queue(a, exclusive=True)
    a.send(1, "basic.consume", queue=q, consumer_tag="t", nowait=True, no_ack=True)
    a.publish(1, "", q, b"1")
    a.receive()


@case
def exclusive_consumer_refuses_others(w: World) -> None:
    """Item 63."""
    a, b = w.client("A"), w.client("B")
    q = w.queue(a)
    w.attempt(a, "basic.consume", queue=q, consumer_tag="t", exclusive=True)
    w.attempt(a, "basic.consume", queue=q, consumer_tag="u")
    w.attempt(a, "basic.consume", queue=q, consumer_tag="t", exclusive=True)
    w.attempt(b, "basic.consume", queue=q, consumer_tag="t", exclusive=True)
    w.attempt(b, "basic.get", queue=q)
    w.purge(q)


@case
def exclusive_consumer_comes_too_late(w: World) -> None:
    """Item 63."""
    a, b = w.client("A"), w.client("B")
    q = w.queue(a)
    w.attempt(a, "basic.consume", queue=q, consumer_tag="t")
    w.attempt(b, "basic.consume", queue=q, consumer_tag="t", exclusive=True)
    w.attempt(a, "basic.cancel", consumer_tag="t")
    w.attempt(b, "basic.consume", queue=q, consumer_tag="t", exclusive=True)
    w.purge(q)


@case
def exclusive_consumer_leaves(w: World) -> None:
    """Item 63."""
    a, b = w.client("A"), w.client("B")
    q = w.queue(a)
    w.attempt(a, "basic.consume", queue=q, consumer_tag="t", exclusive=True)
    w.attempt(a, "basic.cancel", consumer_tag="t")
    w.attempt(b, "basic.consume", queue=q, consumer_tag="t")
    w.purge(q)


@case
def no_local_is_not_looked_at(w: World) -> None:
    """Item 65."""
    a = w.client()
    q = w.queue(a, exclusive=True)
    w.attempt(a, "basic.consume", queue=q, consumer_tag="t", no_local=True, no_ack=True)
    a.publish(1, "", q, b"1")
    a.receive()


@case
def delivery_tags_are_shared_by_consume_and_get(w: World) -> None:
    """Item 66."""
    a = w.client()
    q, other = w.queue(a, "q", exclusive=True), w.queue(a, "other", exclusive=True)
    a.publish(1, "", q, b"1")
    w.attempt(a, "basic.get", queue=q)
    w.attempt(a, "basic.consume", queue=q, consumer_tag="t")
    a.publish(1, "", q, b"2")
    a.receive()
    a.publish(1, "", other, b"3")
    w.attempt(a, "basic.get", queue=other, no_ack=True)
    a.publish(1, "", q, b"4")
    a.receive()


@case
def get_fields(w: World) -> None:
    """Item 69."""
    a = w.client()
    q = w.queue(a, exclusive=True)
    a.call(1, "queue.bind", queue=q, exchange="amq.topic", routing_key=f"{q}.#")
    w.attempt(a, "basic.get", queue=q)
    for body in (b"1", b"2", b""):
        a.publish(1, "amq.topic", f"{q}.{body.decode()}", body, content_type="text/plain")
    for _ in range(4):
        w.attempt(a, "basic.get", queue=q)


@case
def get_is_not_limited_by_prefetch(w: World) -> None:
    """Item 69."""
    a = w.client()
    q = w.queue(a, exclusive=True)
    a.call(1, "basic.qos", prefetch_count=1, global_=True)
    for body in (b"1", b"2", b"3"):
        a.publish(1, "", q, body)
    for _ in range(3):
        w.attempt(a, "basic.get", queue=q)


@case
def get_while_consumers_wait(w: World) -> None:
    """The consumer is first: nothing is left for the get."""
    a = w.client()
    q = w.queue(a, exclusive=True)
    a.call(2, "channel.open")
    a.call(2, "basic.consume", queue=q, consumer_tag="t")
    a.publish(1, "", q, b"1")
    a.receive()
    w.attempt(a, "basic.get", queue=q)


@case
def cancel_unknown_tag(w: World) -> None:
    """Item 67."""
    a = w.client()
    w.attempt(a, "basic.cancel", consumer_tag="nobody")


@case
def cancel_nowait(w: World) -> None:
    a = w.client()
    q = w.queue(a, exclusive=True)
    a.call(1, "basic.consume", queue=q, consumer_tag="t")
    a.send(1, "basic.cancel", consumer_tag="t", nowait=True)
    a.send(1, "basic.cancel", consumer_tag="nobody", nowait=True)
    w.barrier(a)
    w.attempt(a, "queue.declare", queue=q, passive=True)


@case
def cancel_keeps_unacked_messages(w: World) -> None:
    """Item 67."""
    a = w.client()
    q = w.queue(a, exclusive=True)
    a.call(1, "basic.consume", queue=q, consumer_tag="t")
    a.publish(1, "", q, b"1")
    a.receive()
    w.attempt(a, "basic.cancel", consumer_tag="t")
    a.publish(1, "", q, b"2")
    w.attempt(a, "basic.get", queue=q)
    a.send(1, "basic.ack", delivery_tag=1)
    w.barrier(a)
    w.attempt(a, "queue.declare", queue=q, passive=True)


@case
def cancelled_by_delete_with_capability(w: World) -> None:
    """Item 68."""
    a, b = w.client("A"), w.client("B", capabilities=NOTIFY)
    q = w.queue(a)
    w.attempt(b, "basic.consume", queue=q, consumer_tag="t")
    w.attempt(a, "queue.delete", queue=q)
    b.receive()
    w.say("its tag is free again")
    q = w.queue(a, "other", auto_delete=True)
    w.attempt(b, "basic.consume", queue=q, consumer_tag="t")


@case
def cancelled_by_delete_without_capability(w: World) -> None:
    """Item 68."""
    a, b = w.client("A"), w.client("B")
    q = w.queue(a)
    w.attempt(b, "basic.consume", queue=q, consumer_tag="t")
    w.attempt(a, "queue.delete", queue=q)
    w.barrier(b)
    b.receive(0.3)


@case
def cancelled_by_own_delete(w: World) -> None:
    """Item 68: the order of basic.cancel and delete-ok on one channel is not promised."""
    a = w.client(capabilities=NOTIFY)
    q = w.queue(a)
    w.attempt(a, "basic.consume", queue=q, consumer_tag="t")
    a.send(1, "queue.delete", queue=q)
    events = [a.receive_quietly(), a.receive_quietly()]
    for event in sorted(events, key=str):
        a.note(f"< {event}")


@case
def unacked_of_a_deleted_queue(w: World) -> None:
    a = w.client()
    q = w.queue(a, exclusive=True)
    a.publish(1, "", q, b"1")
    w.attempt(a, "basic.consume", queue=q, consumer_tag="t")
    a.receive()
    w.attempt(a, "queue.delete", queue=q)
    a.send(1, "basic.ack", delivery_tag=1)
    w.barrier(a)


# Turns ---------------------------------------------------------------------------------


def _deliveries(a: RawClient, count: int) -> None:
    for _ in range(count):
        event = a.receive_quietly()
        a.note(f"< {event.args.get('consumer_tag', event)} gets {event.body!r}")


@case
def two_consumers_take_turns(w: World) -> None:
    """Item 76: both on one channel, so the order of deliveries is the order of turns."""
    a = w.client()
    q = w.queue(a, exclusive=True)
    for tag in ("first", "second"):
        w.attempt(a, "basic.consume", queue=q, consumer_tag=tag)
    for number in range(6):
        a.publish(1, "", q, b"%d" % number)
    _deliveries(a, 6)


@case
def three_consumers_on_a_backlog(w: World) -> None:
    """Messages rest before the consumers come; each may hold two."""
    a = w.client()
    q = w.queue(a, exclusive=True)
    for number in range(6):
        a.publish(1, "", q, b"%d" % number)
    w.barrier(a)
    a.call(1, "basic.qos", prefetch_count=2)
    for tag in ("1", "2", "3"):
        a.send(1, "basic.consume", queue=q, consumer_tag=tag)
        a.expect("basic.consume-ok")
        _deliveries(a, 2)


@case
def a_full_consumer_loses_its_turn(w: World) -> None:
    a = w.client()
    q = w.queue(a, exclusive=True)
    a.call(1, "basic.qos", prefetch_count=1)
    a.call(1, "basic.consume", queue=q, consumer_tag="one")
    a.call(1, "basic.qos", prefetch_count=3)
    a.call(1, "basic.consume", queue=q, consumer_tag="three")
    for number in range(4):
        a.publish(1, "", q, b"%d" % number)
    _deliveries(a, 4)
    w.say("the first is free again")
    a.publish(1, "", q, b"4")
    a.send(1, "basic.ack", delivery_tag=1)
    _deliveries(a, 1)


@case
def turn_after_a_consumer_left(w: World) -> None:
    a = w.client()
    q = w.queue(a, exclusive=True)
    for tag in ("1", "2", "3"):
        w.attempt(a, "basic.consume", queue=q, consumer_tag=tag, no_ack=True)
    a.publish(1, "", q, b"a")
    _deliveries(a, 1)
    w.attempt(a, "basic.cancel", consumer_tag="2")
    for number in range(4):
        a.publish(1, "", q, b"%d" % number)
    _deliveries(a, 4)


@case
def consumer_priority(w: World) -> None:
    """Item 64."""
    a = w.client()
    q = w.queue(a, exclusive=True)
    low = w.attempt(a, "basic.consume", queue=q, consumer_tag="low", arguments={"x-priority": -1})
    if low.name != "basic.consume-ok":
        return
    a.call(1, "basic.qos", prefetch_count=2)
    w.attempt(a, "basic.consume", queue=q, consumer_tag="high", arguments={"x-priority": 5})
    for number in range(4):
        a.publish(1, "", q, b"%d" % number)
    _deliveries(a, 4)


@case
def consumer_priority_not_a_number(w: World) -> None:
    """Item 64."""
    a = w.client()
    q = w.queue(a, exclusive=True)
    w.attempt(a, "basic.consume", queue=q, consumer_tag="t", arguments={"x-priority": "high"})


# Prefetch ------------------------------------------------------------------------------


def _expect_silence(a: RawClient) -> None:
    event = a.receive_quietly(0.4)
    a.note("< no more" if event.name == SILENCE else f"< {event}")


@case
def prefetch_per_consumer(w: World) -> None:
    """Item 75: global=false: each consumer started later may hold that many."""
    a = w.client()
    q1, q2 = w.queue(a, "q1", exclusive=True), w.queue(a, "q2", exclusive=True)
    for number in range(4):
        a.publish(1, "", q1, b"a%d" % number)
        a.publish(1, "", q2, b"b%d" % number)
    w.barrier(a)
    a.call(1, "basic.qos", prefetch_count=2)
    a.call(1, "basic.consume", queue=q1, consumer_tag="1")
    _deliveries(a, 2)
    a.call(1, "basic.consume", queue=q2, consumer_tag="2")
    _deliveries(a, 2)
    _expect_silence(a)
    a.send(1, "basic.ack", delivery_tag=1)
    _deliveries(a, 1)
    _expect_silence(a)
    a.send(1, "basic.ack", delivery_tag=2)
    _deliveries(a, 1)
    a.send(1, "basic.ack", delivery_tag=4, multiple=True)
    _deliveries(a, 2)


@case
def prefetch_per_consumer_changes_later_consumers_only(w: World) -> None:
    """Item 75."""
    a = w.client()
    q = w.queue(a, exclusive=True)
    for number in range(6):
        a.publish(1, "", q, b"%d" % number)
    w.barrier(a)
    a.call(1, "basic.qos", prefetch_count=1)
    a.call(1, "basic.consume", queue=q, consumer_tag="one")
    _deliveries(a, 1)
    a.call(1, "basic.qos", prefetch_count=3)
    _expect_silence(a)
    a.call(1, "basic.consume", queue=q, consumer_tag="three")
    _deliveries(a, 3)
    _expect_silence(a)


@case
def prefetch_of_the_channel(w: World) -> None:
    """Items 75 and 76: global=true: one limit for all consumers of the channel, at once."""
    a = w.client()
    q = w.queue(a, exclusive=True)
    for number in range(6):
        a.publish(1, "", q, b"%d" % number)
    w.barrier(a)
    a.call(1, "basic.qos", prefetch_count=2, global_=True)
    a.call(1, "basic.consume", queue=q, consumer_tag="1")
    _deliveries(a, 2)
    a.call(1, "basic.consume", queue=q, consumer_tag="2")
    _expect_silence(a)
    a.send(1, "basic.ack", delivery_tag=1)
    event = a.receive_quietly()
    a.note(f"< one more: {event.body!r}")
    _expect_silence(a)


@case
def prefetch_of_the_channel_raised_and_lifted(w: World) -> None:
    """Item 76."""
    a = w.client()
    q = w.queue(a, exclusive=True)
    for number in range(6):
        a.publish(1, "", q, b"%d" % number)
    w.barrier(a)
    a.call(1, "basic.qos", prefetch_count=1, global_=True)
    a.call(1, "basic.consume", queue=q, consumer_tag="t")
    _deliveries(a, 1)
    w.say("raised to three")
    a.send(1, "basic.qos", prefetch_count=3, global_=True)
    a.drain_sorted()
    w.say("lowered to one: legal, nothing comes")
    a.call(1, "basic.qos", prefetch_count=1, global_=True)
    a.send(1, "basic.ack", delivery_tag=1)
    _expect_silence(a)
    w.say("lifted")
    a.send(1, "basic.qos", prefetch_count=0, global_=True)
    a.drain_sorted()


@case
def prefetch_both_limits(w: World) -> None:
    """Item 76: per consumer 3 and per channel 4: the smaller one that is reached first stops."""
    a = w.client()
    q = w.queue(a, exclusive=True)
    for number in range(9):
        a.publish(1, "", q, b"%d" % number)
    w.barrier(a)
    a.call(1, "basic.qos", prefetch_count=3)
    a.call(1, "basic.qos", prefetch_count=4, global_=True)
    a.call(1, "basic.consume", queue=q, consumer_tag="1")
    _deliveries(a, 3)
    _expect_silence(a)
    a.call(1, "basic.consume", queue=q, consumer_tag="2")
    _deliveries(a, 1)
    _expect_silence(a)


@case
def prefetch_does_not_bind_no_ack(w: World) -> None:
    a = w.client()
    q = w.queue(a, exclusive=True)
    for number in range(4):
        a.publish(1, "", q, b"%d" % number)
    w.barrier(a)
    a.call(1, "basic.qos", prefetch_count=1)
    a.call(1, "basic.consume", queue=q, consumer_tag="t", no_ack=True)
    _deliveries(a, 4)


@case
def prefetch_of_the_channel_and_no_ack(w: World) -> None:
    a = w.client()
    q = w.queue(a, exclusive=True)
    for number in range(4):
        a.publish(1, "", q, b"%d" % number)
    w.barrier(a)
    a.call(1, "basic.qos", prefetch_count=1, global_=True)
    a.call(1, "basic.consume", queue=q, consumer_tag="t", no_ack=True)
    _deliveries(a, 4)


@case
def prefetch_of_the_channel_and_gets(w: World) -> None:
    """Messages taken by get do not use up a channel limit."""
    a = w.client()
    q = w.queue(a, exclusive=True)
    for number in range(5):
        a.publish(1, "", q, b"%d" % number)
    w.barrier(a)
    a.call(1, "basic.qos", prefetch_count=2, global_=True)
    w.attempt(a, "basic.get", queue=q)
    a.call(1, "basic.consume", queue=q, consumer_tag="t")
    _deliveries(a, 2)
    _expect_silence(a)
    w.say("settling the got one frees nothing")
    a.send(1, "basic.ack", delivery_tag=1)
    _expect_silence(a)
    a.send(1, "basic.ack", delivery_tag=2)
    _deliveries(a, 1)


@case
def prefetch_size(w: World) -> None:
    """Item 75."""
    a = w.client()
    w.attempt(a, "basic.qos", prefetch_size=1000, prefetch_count=1)


@case
def prefetch_65535(w: World) -> None:
    a = w.client()
    w.attempt(a, "basic.qos", prefetch_count=65535)


@case
def single_active_consumer(w: World) -> None:
    """Items 57 and 98: one consumer has all, the next one takes over."""
    a = w.client()
    q = w.queue(a, exclusive=True, arguments={"x-single-active-consumer": True})
    for tag in ("first", "second", "third"):
        w.attempt(a, "basic.consume", queue=q, consumer_tag=tag, no_ack=True)
    w.put(q, b"one")
    a.receive()
    w.put(q, b"two")
    a.receive()
    w.attempt(a, "basic.cancel", consumer_tag="second")
    w.put(q, b"three")
    a.receive()
    w.attempt(a, "basic.cancel", consumer_tag="first")
    w.put(q, b"four")
    a.receive()


@case
def single_active_consumer_and_what_the_last_one_held(w: World) -> None:
    a = w.client()
    q = w.queue(a, exclusive=True, arguments={"x-single-active-consumer": True})
    w.attempt(a, "basic.consume", queue=q, consumer_tag="first")
    w.attempt(a, "basic.consume", queue=q, consumer_tag="second")
    w.put(q, b"one", b"two")
    a.receive()
    a.receive()
    w.attempt(a, "basic.cancel", consumer_tag="first")
    w.put(q, b"three")
    a.receive()
    a.send(1, "basic.nack", delivery_tag=2, multiple=True, requeue=True)
    a.receive()
    a.receive()


@case
def single_active_consumer_and_exclusive_use(w: World) -> None:
    a = w.client()
    q = w.queue(a, exclusive=True, arguments={"x-single-active-consumer": True})
    w.attempt(a, "basic.consume", queue=q, consumer_tag="t", exclusive=True)


@case
def single_active_consumer_by_priority(w: World) -> None:
    a = w.client()
    q = w.queue(a, exclusive=True, arguments={"x-single-active-consumer": True})
    for tag, priority in (("low", 1), ("high", 5), ("higher", 9)):
        arguments = {"x-priority": priority}
        w.attempt(a, "basic.consume", queue=q, consumer_tag=tag, no_ack=True, arguments=arguments)
    w.put(q, b"one")
    a.receive()
    w.attempt(a, "basic.cancel", consumer_tag="low")
    w.put(q, b"two")
    a.receive()


@case
def consumer_priorities_with_windows(w: World) -> None:
    """Item 64: the higher ones first, as long as they can take some."""
    a = w.client()
    q = w.queue(a, exclusive=True)
    w.attempt(a, "basic.qos", prefetch_count=1)
    for tag, priority in (("low", 1), ("high", 5), ("same", 5)):
        arguments = {"x-priority": priority}
        w.attempt(a, "basic.consume", queue=q, consumer_tag=tag, arguments=arguments)
    for body in (b"one", b"two", b"three"):
        w.put(q, body)
        a.receive()
    w.put(q, b"four")
    a.send(1, "basic.ack", delivery_tag=2)
    a.receive()
    w.put(q, b"five")
    a.send(1, "basic.ack", delivery_tag=3)
    a.receive()


@case
def consumer_priorities_of_wrong_types(w: World) -> None:
    a = w.client()
    q = w.queue(a, exclusive=True)
    for value in (1.5, True, None, -5):
        arguments = {"x-priority": value}
        w.attempt(a, "basic.consume", queue=q, consumer_tag="t", arguments=arguments)


@case
def a_consumer_that_waits_and_a_client_that_polls(w: World) -> None:
    """A waiting consumer has the message before a client that polls; that gets what is over."""
    a, b = w.client(), w.client("B")
    q = w.queue(a)
    a.call(1, "basic.qos", prefetch_count=1)
    a.call(1, "basic.consume", queue=q, consumer_tag="t")
    for number in range(3):
        b.publish(1, "", q, b"%d" % number)
    b.call(1, "basic.get", queue=q, no_ack=True)
    a.receive()
    w.say("the consumer has room again, and is served before the next poll")
    a.send(1, "basic.ack", delivery_tag=1)
    a.receive()
    b.call(1, "basic.get", queue=q, no_ack=True)
    w.purge(q)
