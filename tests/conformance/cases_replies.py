"""Direct reply-to: ``amq.rabbitmq.reply-to`` and the names behind it (checklist item 97).

The key behind the name is the broker's affair; transcripts show it as ``<key>``.
"""

from tests.conformance.case import World, case
from tests.helpers.raw_amqp import RawClient

PSEUDO = "amq.rabbitmq.reply-to"


def _requester(w: World, name: str = "A") -> RawClient:
    a = w.client(name)
    a.call(1, "basic.consume", queue=PSEUDO, consumer_tag="r", no_ack=True)
    return a


def _request(w: World, a: RawClient, channel: int = 1) -> str:
    """Publish a request, read it elsewhere; returns the name its answer goes to."""
    q = w.queue(a, "requests")
    a.publish(channel, "", q, b"question", reply_to=PSEUDO, correlation_id="c")
    w.barrier(a, channel)
    got = a.call(1, "basic.get", queue=q, no_ack=True)
    w.purge(q)
    return str(got.properties["reply_to"])


@case
def consume_and_acknowledge(w: World) -> None:
    """Item 97."""
    a = w.client()
    w.attempt(a, "basic.consume", queue=PSEUDO, consumer_tag="r")
    w.attempt(a, "basic.consume", queue=PSEUDO, consumer_tag="r", nowait=True)


@case
def consume_twice(w: World) -> None:
    """Item 97."""
    a = w.client()
    w.attempt(a, "basic.consume", queue=PSEUDO, consumer_tag="r", no_ack=True)
    w.attempt(a, "basic.consume", queue=PSEUDO, consumer_tag="s", no_ack=True)
    w.say("closed with the channel: free again")
    w.attempt(a, "basic.consume", queue=PSEUDO, consumer_tag="s", no_ack=True)
    w.attempt(a, "basic.consume", queue=PSEUDO, consumer_tag="s")


@case
def consume_with_the_tag_of_a_reply_consumer(w: World) -> None:
    """A broker may say no to a channel that declares its own name: RabbitMQ falls over it."""
    a, b = _requester(w), w.client("B")
    q = w.queue(a)
    w.attempt(a, "basic.consume", queue=q, consumer_tag="r", no_ack=True)
    name = _request(w, a)
    a.publish(1, "", name, b"answer")
    a.receive()
    w.attempt(a, "basic.cancel", consumer_tag="r")
    w.say("one of the two is gone; who?")
    w.attempt(b, "queue.declare", queue=name, passive=True)
    w.attempt(b, "queue.declare", queue=q, passive=True)
    w.purge(q)


@case
def consume_with_a_tag_in_use(w: World) -> None:
    a = w.client()
    q = w.queue(a, exclusive=True)
    w.attempt(a, "basic.consume", queue=q, consumer_tag="t")
    w.attempt(a, "basic.consume", queue=PSEUDO, consumer_tag="t", no_ack=True)


@case
def consume_with_arguments(w: World) -> None:
    a = w.client()
    w.attempt(
        a,
        "basic.consume",
        queue=PSEUDO,
        no_ack=True,
        exclusive=True,
        no_local=True,
        arguments={"x-priority": 5, "x-anything": "goes"},
    )


@case
def each_channel_has_its_own(w: World) -> None:
    a = _requester(w)
    a.call(2, "channel.open")
    w.attempt(a, "basic.consume", channel=2, queue=PSEUDO, consumer_tag="r", no_ack=True)
    first, second = _request(w, a), _request(w, a, 2)
    w.say(f"one name for both: {first == second}")
    a.publish(1, "", second, b"answer")
    a.receive()


@case
def request_without_a_consumer(w: World) -> None:
    """Item 97."""
    a = w.client()
    q = w.queue(a, exclusive=True)
    a.publish(1, "", q, b"m", reply_to=PSEUDO)
    w.outcome_or_barrier(a)
    a.call(1, "basic.consume", queue=PSEUDO, consumer_tag="r", no_ack=True)
    w.attempt(a, "basic.cancel", consumer_tag="r")
    a.publish(1, "", q, b"m", reply_to=PSEUDO)
    w.outcome_or_barrier(a)
    w.say("not even to nowhere; a missing exchange is told first")
    a.publish(1, "", w.name("none"), b"m", reply_to=PSEUDO)
    w.outcome_or_barrier(a)
    a.publish(1, w.name("nox"), "k", b"m", reply_to=PSEUDO)
    w.outcome_or_barrier(a)


@case
def the_consumer_of_another_channel_does_not_count(w: World) -> None:
    a = _requester(w)
    a.call(2, "channel.open")
    a.publish(2, "", "nowhere", b"m", reply_to=PSEUDO)
    w.outcome_or_barrier(a, 2)


@case
def only_the_exact_name_is_rewritten(w: World) -> None:
    a = _requester(w)
    q = w.queue(a, exclusive=True)
    for name in (PSEUDO + ".", PSEUDO + ".x", "AMQ.rabbitmq.reply-to", PSEUDO[:-1], ""):
        a.publish(1, "", q, b"m", reply_to=name)
        w.barrier(a)
        a.call(1, "basic.get", queue=q, no_ack=True)


@case
def request_and_answer(w: World) -> None:
    """Item 97."""
    a, b = _requester(w), w.client("B")
    q = w.queue(a, exclusive=False)
    a.publish(
        1,
        "",
        q,
        b"question",
        content_type="text/plain",
        headers={"h": 1},
        delivery_mode=2,
        priority=3,
        correlation_id="c",
        reply_to=PSEUDO,
        expiration="60000",
        message_id="m",
        type="t",
        app_id="a",
    )
    w.barrier(a)
    got = b.call(1, "basic.get", queue=q, no_ack=True)
    name = str(got.properties["reply_to"])
    for body in (b"answer", b"", b"x" * 300_000):
        b.publish(1, "", name, body, correlation_id="c", headers={"k": "v"})
        a.receive()
    w.purge(q)


@case
def a_request_without_body(w: World) -> None:
    a = _requester(w)
    q = w.queue(a, exclusive=True)
    a.publish(1, "", q, b"", reply_to=PSEUDO)
    w.barrier(a)
    a.call(1, "basic.get", queue=q, no_ack=True)


@case
def tags_of_answers(w: World) -> None:
    a = _requester(w)
    name = _request(w, a)
    q = w.queue(a, exclusive=True)
    for _ in range(2):
        a.publish(1, "", name, b"answer")
        a.receive()
    w.put(q, b"m")
    a.call(1, "basic.get", queue=q)
    w.say("what is not to be acknowledged")
    a.publish(1, "", name, b"answer")
    tag = a.receive().args["delivery_tag"]
    a.send(1, "basic.ack", delivery_tag=tag + 1)
    w.outcome_or_barrier(a)


@case
def the_window_does_not_count_answers(w: World) -> None:
    a = w.client()
    a.call(1, "basic.qos", prefetch_count=1)
    a.call(1, "basic.consume", queue=PSEUDO, consumer_tag="r", no_ack=True)
    name = _request(w, a)
    for _ in range(3):
        a.publish(1, "", name, b"answer")
    for _ in range(3):
        a.receive()


@case
def answers_are_not_routed(w: World) -> None:
    """The name is no queue: a mandatory answer comes back, though it was delivered."""
    a, b = _requester(w), w.client("B")
    name = _request(w, a)
    b.call(1, "confirm.select")
    b.publish(1, "", name, b"answer", mandatory=True)
    b.receive()
    b.receive()
    a.receive()
    b.publish(1, "", name, b"confirmed as well")
    b.receive()
    a.receive()


@case
def answers_to_nobody(w: World) -> None:
    a, b = _requester(w), w.client("B")
    name = _request(w, a)
    a.call(1, "basic.cancel", consumer_tag="r")
    b.publish(1, "", name, b"answer", mandatory=True)
    b.receive()
    b.publish(1, "", name, b"answer")
    w.barrier(b)
    for wrong in ("", ".", ".x"):
        b.publish(1, "", PSEUDO + wrong, b"answer")
        w.barrier(b)
        b.publish(1, "", PSEUDO + wrong, b"answer", mandatory=True)
        b.receive()
    w.say("a new consumer has a new name")
    a.call(1, "basic.consume", queue=PSEUDO, consumer_tag="r", no_ack=True)
    w.say(f"the same name again: {_request(w, a) == name}")


@case
def an_answer_that_waits_in_a_queue(w: World) -> None:
    """As a dead letter it goes by the default exchange, like any answer."""
    a = _requester(w)
    name = _request(w, a)
    x = w.exchange(a, "x", "fanout", auto_delete=True)
    letters = {"x-dead-letter-exchange": "", "x-message-ttl": 50}
    q = w.queue(a, "later", exclusive=True, arguments=letters)
    a.call(1, "queue.bind", queue=q, exchange=x)
    a.publish(1, x, name, b"answer", correlation_id="c")
    a.receive()


@case
def copies_of_an_answer(w: World) -> None:
    a, b = _requester(w), _requester(w, "B")
    first, second = _request(w, a), _request(w, b)
    q = w.queue(a, exclusive=True)
    a.publish(1, "", first, b"answer", headers={"CC": [second, q]})
    a.receive()
    b.receive()
    w.barrier(a)
    a.call(1, "basic.get", queue=q, no_ack=True)


@case
def answers_by_an_exchange(w: World) -> None:
    a = _requester(w)
    name = _request(w, a)
    a.publish(1, "amq.direct", name, b"answer", mandatory=True)
    a.receive()


@case
def declaring_the_name(w: World) -> None:
    """Item 97."""
    a, b = w.client("A"), w.client("B")
    w.attempt(b, "queue.declare", queue=PSEUDO, passive=True)
    w.attempt(b, "queue.declare", queue=PSEUDO)
    a.call(1, "basic.consume", queue=PSEUDO, consumer_tag="r", no_ack=True)
    w.attempt(b, "queue.declare", queue=PSEUDO, passive=True)
    w.attempt(b, "queue.declare", queue=PSEUDO, durable=True, exclusive=True)
    name = _request(w, a)
    w.attempt(b, "queue.declare", queue=name, passive=True)
    w.attempt(b, "queue.declare", queue=name, durable=True, arguments={"x-expires": "wrong"})
    b.send(1, "queue.declare", queue=name, nowait=True)
    w.barrier(b)
    a.call(1, "basic.cancel", consumer_tag="r")
    w.attempt(b, "queue.declare", queue=name, passive=True)
    w.attempt(b, "queue.declare", queue=name)
    for wrong in (".", ".x", "x"):
        w.attempt(b, "queue.declare", queue=PSEUDO + wrong)
        w.attempt(b, "queue.declare", queue=PSEUDO + wrong, passive=True)


@case
def the_declared_name_is_the_last_queue(w: World) -> None:
    a = w.client()
    w.attempt(a, "queue.declare", queue=PSEUDO, passive=True)
    w.attempt(a, "basic.consume", queue="", no_ack=True, consumer_tag="r")


@case
def a_gone_connection_leaves_no_name(w: World) -> None:
    a, b = _requester(w), w.client("B")
    name = _request(w, a)
    a.call(1, "channel.close", code=200)
    w.attempt(b, "queue.declare", queue=name, passive=True)
    c = _requester(w, "C")
    name = _request(w, c)
    c.call(0, "connection.close", code=200)
    w.attempt(b, "queue.declare", queue=name, passive=True)


@case
def other_methods(w: World) -> None:
    a = _requester(w)
    name = _request(w, a)
    for queue in (PSEUDO, name):
        for method in ("basic.get", "queue.purge", "queue.delete"):
            w.attempt(a, method, queue=queue)
            a.send(1, "basic.consume", queue=PSEUDO, consumer_tag="r", no_ack=True)
            w.outcome(a)
        w.attempt(a, "queue.bind", queue=queue, exchange="amq.direct", routing_key="k")
    w.attempt(a, "basic.consume", queue=name, no_ack=True)


@case
def in_a_transaction(w: World) -> None:
    a, b = w.client("A"), w.client("B")
    a.call(1, "basic.consume", queue=PSEUDO, consumer_tag="r", no_ack=True)
    name = _request(w, a)
    b.call(1, "tx.select")
    b.publish(1, "", name, b"answer")
    b.call(1, "tx.commit")
    a.receive()
    w.say("a request is judged when it is published")
    b.publish(1, "", "nowhere", b"m", reply_to=PSEUDO)
    w.outcome_or_barrier(b)


@case
def a_transaction_that_is_rolled_back(w: World) -> None:
    a, b = _requester(w), w.client("B")
    name = _request(w, a)
    b.call(1, "tx.select")
    b.publish(1, "", name, b"rolled back")
    b.call(1, "tx.rollback")
    b.publish(1, "", name, b"committed")
    b.call(1, "tx.commit")
    a.receive()


@case
def cancelling(w: World) -> None:
    a = _requester(w)
    w.attempt(a, "basic.cancel", consumer_tag="r", nowait=True)
    w.attempt(a, "basic.consume", queue=PSEUDO, no_ack=True)
