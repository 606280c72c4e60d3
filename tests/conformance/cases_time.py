"""What time does: messages that expire, and queues that nobody uses.

Where a case must let time pass it waits much longer than the broker needs.
"""

import time
from typing import Any

from tests.conformance.case import World, case, slow
from tests.helpers import raw_codec as codec
from tests.helpers.raw_amqp import RawClient

SOON_MS = 300
LATE_MS = 600_000
LIMIT_S = 15.0


def _watched(w: World, client: RawClient, **arguments: Any) -> str:
    """A queue whose dead come to a consumer of this client."""
    morgue = w.queue(client, "morgue", exclusive=True)
    client.send(1, "basic.consume", queue=morgue, consumer_tag="morgue", no_ack=True)
    client.receive()
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": morgue}
    named = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
    return w.queue(client, exclusive=True, arguments=letters | named)


@slow
@case
def the_smaller_time_to_live_counts(w: World) -> None:
    """Item 50: that of the message and that of the queue."""
    a = w.client()
    for of_the_queue, of_the_message in ((SOON_MS, LATE_MS), (LATE_MS, SOON_MS)):
        q = _watched(w, a, message_ttl=of_the_queue)
        a.publish(1, "", q, b"m", expiration=str(of_the_message))
        a.receive()
        w.attempt(a, "basic.cancel", consumer_tag="morgue")


@slow
@case
def giving_back_does_not_renew_it(w: World) -> None:
    """Item 51: taken and given back again and again, it dies all the same."""
    a = w.client()
    q = w.queue(a, exclusive=True, arguments={"x-message-ttl": SOON_MS})
    a.publish(1, "", q, b"m")
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        a.send_off_record(codec.method_frame(1, "basic.get", queue=q))
        event = a.receive_quietly()
        if event.name == "basic.get-empty":
            break
        tag = event.args["delivery_tag"]
        a.send_off_record(codec.method_frame(1, "basic.reject", delivery_tag=tag, requeue=True))
    a.note("< dead before its time was ten times over" if time.monotonic() < end else "< alive")


@slow
@case
def who_holds_a_message_keeps_it(w: World) -> None:
    """Item 51: its time runs out while it is unacknowledged; given back, it dies."""
    a = w.client()
    q = _watched(w, a, message_ttl=SOON_MS)
    a.publish(1, "", q, b"m")
    w.attempt(a, "basic.get", queue=q)
    time.sleep(3 * SOON_MS / 1000)
    w.barrier(a)
    a.send(1, "basic.reject", delivery_tag=1, requeue=True)
    w.outcome(a)


@slow
@case
def who_comes_later_does_not_see_it(w: World) -> None:
    """Item 51."""
    a = w.client()
    q = _watched(w, a)
    a.publish(1, "", q, b"dies", expiration=str(SOON_MS))
    a.receive()
    a.publish(1, "", q, b"lives")
    w.attempt(a, "basic.consume", queue=q, consumer_tag="t")
    a.receive()


@slow
@case
def behind_one_that_stays(w: World) -> None:
    """Item 51: what is not at the head."""
    a = w.client()
    q = w.queue(a, exclusive=True)
    w.fill(a, q, b"stays")
    a.publish(1, "", q, b"dies", expiration=str(SOON_MS))
    time.sleep(3 * SOON_MS / 1000)
    w.attempt(a, "queue.declare", queue=q, passive=True)
    w.attempt(a, "basic.get", queue=q, no_ack=True)
    w.attempt(a, "basic.get", queue=q, no_ack=True)


@case
def no_time_at_all(w: World) -> None:
    """Item 49: who waits for it gets it, and nobody else."""
    a = w.client()
    for where in ("queue", "message"):
        q = _watched(w, a, **({"message_ttl": 0} if where == "queue" else {}))
        properties = {"expiration": "0"} if where == "message" else {}
        a.publish(1, "", q, b"nobody waits", **properties)
        a.receive()
        w.attempt(a, "basic.consume", queue=q, consumer_tag="t", no_ack=True)
        a.publish(1, "", q, b"somebody waits", **properties)
        a.receive()
        w.attempt(a, "basic.cancel", consumer_tag="t")
        w.attempt(a, "basic.cancel", consumer_tag="morgue")


def _there_after(w: World, client: RawClient, queue: str, seconds: float) -> None:
    time.sleep(seconds)
    w.attempt(client, "queue.declare", queue=queue, passive=True)


@slow
@case
def a_queue_nobody_uses(w: World) -> None:
    """Item 52: messages in it and publishing to it are no use of it."""
    a = w.client()
    q = w.queue(a, arguments={"x-expires": 1000})
    for _ in range(8):
        a.publish(1, "", q, b"m")
        w.barrier(a)
        time.sleep(0.3)
    _there_after(w, a, q, 0)


@slow
@case
def a_queue_that_is_used(w: World) -> None:
    """Item 52: declaring it, getting from it and consuming from it renew its time."""
    a = w.client()
    q = w.queue(a, arguments={"x-expires": 1500})
    for _ in range(3):
        _there_after(w, a, q, 0.8)
    for _ in range(3):
        time.sleep(0.8)
        w.attempt(a, "basic.get", queue=q)
    w.attempt(a, "basic.consume", queue=q, consumer_tag="t")
    _there_after(w, a, q, 2.5)
    w.attempt(a, "basic.cancel", consumer_tag="t")
    _there_after(w, a, q, 3.0)
