"""Messages that come back to a quorum queue of RabbitMQ 4.3.6: their order, counts and limit."""

from tests.conformance.case import World, case
from tests.conformance.quorum_tools import consume, get_again, get_quietly, get_rest, quorum_queue


@case
def first_delivery(w: World) -> None:
    a = w.client()
    q = quorum_queue(w, a)
    w.put(q, b"one", headers={"mine": 1}, delivery_mode=1)
    w.attempt(a, "basic.get", queue=q)
    a.send(1, "basic.ack", delivery_tag=1)
    w.barrier(a)
    w.attempt(a, "basic.get", queue=q)


@case
def rejected_and_requeued(w: World) -> None:
    a = w.client()
    q = quorum_queue(w, a)
    w.put(q, b"one", headers={"mine": 1})
    get_again(w, a, q, "reject", 3)


@case
def nacked_and_requeued(w: World) -> None:
    a = w.client()
    q = quorum_queue(w, a)
    w.put(q, b"one")
    get_again(w, a, q, "nack", 3)


@case
def rejected_after_nacked(w: World) -> None:
    a = w.client()
    q = quorum_queue(w, a)
    w.put(q, b"one")
    get_again(w, a, q, "nack", 1)
    a.send(1, "basic.reject", delivery_tag=2, requeue=True)
    w.barrier(a)
    w.attempt(a, "basic.get", queue=q)


@case
def given_back_by_a_closed_channel(w: World) -> None:
    a = w.client()
    q = quorum_queue(w, a)
    w.put(q, b"one")
    w.attempt(a, "basic.get", queue=q)
    w.attempt(a, "channel.close", code=200)
    a.open_channel(1)
    w.attempt(a, "basic.get", queue=q)


@case
def recovered(w: World) -> None:
    a = w.client()
    q = quorum_queue(w, a)
    w.put(q, b"one")
    w.attempt(a, "basic.get", queue=q)
    w.attempt(a, "basic.recover", requeue=True)
    w.attempt(a, "basic.get", queue=q)


@case
def over_the_delivery_limit(w: World) -> None:
    a = w.client()
    morgue = w.queue(a, "morgue", exclusive=True)
    q = quorum_queue(
        w, a, delivery_limit=2, dead_letter_exchange="", dead_letter_routing_key=morgue
    )
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
    q = quorum_queue(w, a, delivery_limit=1)
    w.put(q, b"one")
    get_again(w, a, q, "nack", 5)


@case
def rejected_by_the_default_limit(w: World) -> None:
    a = w.client()
    q = quorum_queue(w, a)
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
    q = quorum_queue(w, a, dead_letter_exchange="", dead_letter_routing_key=morgue)
    w.put(q, b"one")
    a.send(1, "basic.consume", queue=morgue, consumer_tag="morgue", no_ack=True)
    a.receive()
    w.attempt(a, "basic.get", queue=q)
    a.send(1, "basic.reject", delivery_tag=1, requeue=False)
    a.receive()


@case
def redelivered_to_a_consumer(w: World) -> None:
    a = w.client()
    q = quorum_queue(w, a)
    w.put(q, b"one")
    w.attempt(a, "basic.consume", queue=q, consumer_tag="c")
    a.receive()
    a.send(1, "basic.reject", delivery_tag=1, requeue=True)
    a.receive()
    a.send(1, "basic.ack", delivery_tag=2)
    w.barrier(a)


@case
def given_back_by_a_closed_connection(w: World) -> None:
    a, b = w.client(), w.client("B")
    q = quorum_queue(w, a)
    w.put(q, b"one", b"two")
    get_quietly(w, b, q, 1)
    w.attempt(b, "connection.close", channel=0, code=200)
    consume(w, a, q)
    a.receive()
    a.receive()


@case
def given_back_by_a_lost_connection(w: World) -> None:
    a, b = w.client(), w.client("B")
    q = quorum_queue(w, a)
    w.put(q, b"one")
    get_quietly(w, b, q, 1)
    b.close_socket()
    consume(w, a, q)
    a.receive()


@case
def given_back_by_a_failed_channel(w: World) -> None:
    a = w.client()
    q = quorum_queue(w, a)
    w.put(q, b"one")
    get_quietly(w, a, q, 1)
    a.send(1, "basic.ack", delivery_tag=7)
    w.outcome(a)
    consume(w, a, q)
    a.receive()


@case
def nacked_after_the_consumer_was_cancelled(w: World) -> None:
    a = w.client()
    q = quorum_queue(w, a)
    w.put(q, b"one")
    consume(w, a, q)
    a.receive()
    w.attempt(a, "basic.cancel", consumer_tag="c")
    w.attempt(a, "basic.get", queue=q)
    a.send(1, "basic.nack", delivery_tag=1, requeue=True)
    w.barrier(a)
    w.attempt(a, "basic.get", queue=q)


@case
def closed_after_the_consumer_was_cancelled(w: World) -> None:
    a = w.client()
    q = quorum_queue(w, a)
    w.put(q, b"one")
    consume(w, a, q)
    a.receive()
    w.attempt(a, "basic.cancel", consumer_tag="c")
    w.attempt(a, "channel.close", code=200)
    a.open_channel(1)
    consume(w, a, q)
    a.receive()


@case
def nacked_up_to_a_tag(w: World) -> None:
    a = w.client()
    q = quorum_queue(w, a)
    w.put(q, b"one", b"two", b"three")
    get_quietly(w, a, q, 3)
    a.send(1, "basic.nack", delivery_tag=2, multiple=True, requeue=True)
    w.barrier(a)
    w.attempt(a, "basic.get", queue=q)
    a.send(1, "basic.nack", delivery_tag=0, multiple=True, requeue=True)
    w.barrier(a)
    get_rest(w, a, q)


@case
def returned_in_their_order(w: World) -> None:
    """The last first, then the first: where does each come back?"""
    a = w.client()
    q = quorum_queue(w, a)
    w.put(q, b"one", b"two", b"three", b"four")
    get_quietly(w, a, q, 3)
    a.send(1, "basic.nack", delivery_tag=3, requeue=True)
    a.send(1, "basic.nack", delivery_tag=1, requeue=True)
    w.barrier(a)
    get_rest(w, a, q)


@case
def recovered_to_a_consumer(w: World) -> None:
    a = w.client()
    q = quorum_queue(w, a)
    w.put(q, b"one")
    consume(w, a, q)
    a.receive()
    w.attempt(a, "basic.recover", requeue=True)
    a.receive()


@case
def recovered_without_an_answer(w: World) -> None:
    a = w.client()
    q = quorum_queue(w, a)
    w.put(q, b"one")
    get_quietly(w, a, q, 1)
    a.send(1, "basic.recover-async", requeue=True)
    w.barrier(a)
    w.attempt(a, "basic.get", queue=q)


@case
def counts_that_the_publisher_wrote(w: World) -> None:
    a = w.client()
    q = quorum_queue(w, a)
    w.put(q, b"one", headers={"x-acquired-count": 9, "x-delivery-count": 7})
    get_again(w, a, q, "nack", 1)
    a.send(1, "basic.reject", delivery_tag=2, requeue=True)
    w.barrier(a)
    w.attempt(a, "basic.get", queue=q)


@case
def given_back_and_consumed_without_acknowledgements(w: World) -> None:
    a = w.client()
    q = quorum_queue(w, a)
    w.put(q, b"one", b"two")
    get_quietly(w, a, q, 1)
    a.send(1, "basic.nack", delivery_tag=1, requeue=True)
    w.barrier(a)
    consume(w, a, q, no_ack=True)
    a.receive()
    a.receive()


@case
def dead_after_it_was_given_back(w: World) -> None:
    a = w.client()
    morgue = w.queue(a, "morgue", exclusive=True)
    q = quorum_queue(w, a, dead_letter_exchange="", dead_letter_routing_key=morgue)
    w.put(q, b"one", headers={"mine": 1})
    get_quietly(w, a, q, 1)
    a.send(1, "basic.nack", delivery_tag=1, requeue=True)
    w.barrier(a)
    get_quietly(w, a, q, 1)
    a.send(1, "basic.reject", delivery_tag=2, requeue=True)
    w.barrier(a)
    get_quietly(w, a, q, 1)
    consume(w, a, morgue, "morgue", no_ack=True)
    a.send(1, "basic.reject", delivery_tag=3, requeue=False)
    a.receive()


@case
def rejected_in_a_transaction(w: World) -> None:
    a = w.client()
    q = quorum_queue(w, a)
    w.put(q, b"one")
    w.attempt(a, "tx.select")
    get_quietly(w, a, q, 1)
    a.send(1, "basic.reject", delivery_tag=1, requeue=True)
    w.attempt(a, "basic.get", queue=q)
    w.attempt(a, "tx.commit")
    consume(w, a, q)
    a.receive()


@case
def nacked_in_a_transaction(w: World) -> None:
    a = w.client()
    q = quorum_queue(w, a)
    w.put(q, b"one")
    w.attempt(a, "tx.select")
    get_quietly(w, a, q, 1)
    a.send(1, "basic.nack", delivery_tag=1, requeue=True)
    w.attempt(a, "tx.commit")
    consume(w, a, q)
    a.receive()
