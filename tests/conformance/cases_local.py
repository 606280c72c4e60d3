"""``x-local-random`` exchanges of RabbitMQ 4: one of the bound queues, and those are classic."""

from tests.conformance.case import World, case
from tests.helpers import raw_codec as codec
from tests.helpers.raw_amqp import RawClient

TYPE = "x-local-random"


def _exchange(w: World, client: RawClient, base: str = "x") -> str:
    return w.exchange(client, base, TYPE, auto_delete=True)


@case
def declared(w: World) -> None:
    a = w.client()
    for more in ({}, {"durable": True}, {"arguments": {"alternate-exchange": "amq.fanout"}}):
        x = w.name("x")
        w.attempt(a, "exchange.declare", exchange=x, type=TYPE, **more)
        w.attempt(a, "exchange.declare", exchange=x, type=TYPE, **more)
        w.attempt(a, "exchange.declare", exchange=x, type="direct", **more)
        w.attempt(a, "exchange.delete", exchange=x)


@case
def bound_by_a_key(w: World) -> None:
    a = w.client()
    x, q = _exchange(w, a), w.queue(a, exclusive=True)
    w.attempt(a, "queue.bind", queue=q, exchange=x, routing_key="k")
    w.attempt(a, "queue.bind", queue=q, exchange=x, routing_key="")
    w.attempt(a, "queue.bind", queue=q, exchange=x, routing_key="", arguments={"a": 1})
    w.attempt(a, "queue.unbind", queue=q, exchange=x, routing_key="k")


@case
def a_quorum_queue_bound(w: World) -> None:
    a = w.client()
    x = _exchange(w, a)
    q = w.queue(a, durable=True, arguments={"x-queue-type": "quorum"})
    w.attempt(a, "queue.bind", queue=q, exchange=x, routing_key="k")
    w.attempt(a, "queue.bind", queue=q, exchange=x, routing_key="")
    w.purge(q)


@case
def a_stream_bound(w: World) -> None:
    a = w.client()
    x = _exchange(w, a)
    q = w.queue(a, durable=True, arguments={"x-queue-type": "stream"})
    w.attempt(a, "queue.bind", queue=q, exchange=x, routing_key="")
    w.attempt(a, "queue.delete", queue=q)


@case
def an_exchange_bound(w: World) -> None:
    a = w.client()
    x, target = _exchange(w, a), w.exchange(a, "target", "fanout", auto_delete=True)
    for key in ("", "k"):
        w.attempt(a, "exchange.bind", destination=target, source=x, routing_key=key)
    w.attempt(a, "exchange.bind", destination=x, source=target, routing_key="k")


@case
def every_message_to_one_queue(w: World) -> None:
    a = w.client()
    x = _exchange(w, a)
    queues = [w.queue(a, f"q{place}", exclusive=True) for place in range(3)]
    for queue in queues:
        a.call(1, "queue.bind", queue=queue, exchange=x, routing_key="")
    for number in range(200):
        w.put(f"key-{number}", b"m", exchange=x)
    counts = []
    for queue in queues:
        a.send_off_record(codec.method_frame(1, "queue.purge", queue=queue))
        counts.append(a.receive_quietly().args["messages"])
    w.say(f"{sum(counts)} messages, each queue has some: {min(counts) > 0}")


@case
def without_a_queue(w: World) -> None:
    a = w.client()
    x = w.exchange(a, "x", TYPE)
    a.publish(1, x, "k", b"one", mandatory=True)
    a.receive()
    a.receive()
    w.attempt(a, "exchange.delete", exchange=x)
