"""Transactions: publishes and settlements that happen together, or not at all."""

from tests.conformance.case import World, case


@case
def commit_publishes(w: World) -> None:
    """Item 85."""
    a = w.client()
    q = w.queue(a, exclusive=True)
    w.attempt(a, "tx.select")
    w.attempt(a, "tx.select")
    a.publish(1, "", q, b"one")
    a.publish(1, "", q, b"two", delivery_mode=2)
    w.attempt(a, "queue.declare", queue=q, passive=True)
    w.attempt(a, "tx.commit")
    w.attempt(a, "queue.declare", queue=q, passive=True)
    w.attempt(a, "tx.commit")


@case
def rollback_publishes(w: World) -> None:
    a = w.client()
    q = w.queue(a, exclusive=True)
    w.attempt(a, "tx.select")
    a.publish(1, "", q, b"one")
    w.attempt(a, "tx.rollback")
    w.attempt(a, "tx.commit")
    w.attempt(a, "queue.declare", queue=q, passive=True)


@case
def acknowledgements_wait_for_the_commit(w: World) -> None:
    a, b = w.client("A"), w.client("B")
    q = w.queue(b, auto_delete=True)
    w.put(q, b"one", b"two", b"three")
    w.attempt(a, "tx.select")
    for _ in range(3):
        w.attempt(a, "basic.get", queue=q)
    a.send(1, "basic.ack", delivery_tag=1)
    w.attempt(a, "tx.rollback")
    a.send(1, "basic.ack", delivery_tag=2, multiple=True)
    w.attempt(a, "tx.commit")
    a.send(1, "basic.nack", delivery_tag=3, requeue=True)
    w.barrier(a)
    w.attempt(b, "queue.declare", queue=q, passive=True)
    w.attempt(a, "tx.commit")
    w.attempt(b, "basic.get", queue=q, no_ack=True)
    w.attempt(b, "basic.get", queue=q, no_ack=True)
    w.purge(q)


@case
def a_closed_channel_rolls_back(w: World) -> None:
    a = w.client()
    q = w.queue(a, exclusive=True)
    w.put(q, b"one")
    w.attempt(a, "tx.select")
    w.attempt(a, "basic.get", queue=q)
    a.send(1, "basic.ack", delivery_tag=1)
    a.publish(1, "", q, b"two")
    w.attempt(a, "channel.close", code=200)
    a.open_channel(1)
    w.attempt(a, "basic.get", queue=q, no_ack=True)
    w.attempt(a, "basic.get", queue=q, no_ack=True)


@case
def unknown_and_repeated_tags(w: World) -> None:
    a = w.client()
    q = w.queue(a, exclusive=True)
    w.put(q, b"one")
    w.attempt(a, "tx.select")
    w.attempt(a, "basic.get", queue=q)
    a.send(1, "basic.ack", delivery_tag=1)
    a.send(1, "basic.ack", delivery_tag=1)
    w.outcome(a)
    w.attempt(a, "tx.select")
    a.send(1, "basic.reject", delivery_tag=7)
    w.outcome(a)


@case
def missing_exchange_and_mandatory(w: World) -> None:
    a = w.client()
    w.attempt(a, "tx.select")
    a.publish(1, "", w.name("missing"), b"one", mandatory=True)
    w.barrier(a)
    a.send(1, "tx.commit")
    a.receive()
    a.receive()
    a.publish(1, w.name("x"), "k", b"two")
    w.outcome(a)


@case
def transactions_and_confirms_do_not_mix(w: World) -> None:
    """Item 84."""
    a = w.client()
    w.attempt(a, "tx.select")
    w.attempt(a, "confirm.select")
    w.attempt(a, "confirm.select")
    w.attempt(a, "tx.select")


@case
def a_commit_that_a_full_queue_refuses(w: World) -> None:
    """Item 102."""
    a = w.client()
    arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
    q = w.queue(a, exclusive=True, arguments=arguments)
    w.attempt(a, "tx.select")
    a.publish(1, "", q, b"one")
    a.publish(1, "", q, b"two")
    w.attempt(a, "tx.commit")
    w.attempt(a, "queue.declare", queue=q, passive=True)


@case
def recover_in_a_transaction(w: World) -> None:
    a = w.client()
    q = w.queue(a, exclusive=True)
    w.put(q, b"one", b"two")
    w.attempt(a, "tx.select")
    w.attempt(a, "basic.get", queue=q)
    w.attempt(a, "basic.get", queue=q)
    a.send(1, "basic.ack", delivery_tag=1)
    w.attempt(a, "basic.recover", requeue=True)
    w.attempt(a, "queue.declare", queue=q, passive=True)
    w.attempt(a, "tx.rollback")
    w.attempt(a, "queue.declare", queue=q, passive=True)
