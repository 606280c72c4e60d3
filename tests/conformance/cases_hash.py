"""``x-consistent-hash`` exchanges, as far as the line shows them.

Which queue a key leads to is each broker's own affair; that it is one, always the same and all of
them in their turn is not.  Needs RabbitMQ's plug-in ``rabbitmq_consistent_hash_exchange``.
"""

from typing import Any

from tests.conformance.case import World, case
from tests.helpers import raw_codec as codec
from tests.helpers.raw_amqp import RawClient

TYPE = "x-consistent-hash"
COUNT = 200


def _group(w: World, client: RawClient, *weights: str, **arguments: Any) -> tuple[str, list[str]]:
    """An exchange and its queues."""
    x = w.exchange(client, "x", TYPE, auto_delete=True, arguments=arguments)
    queues = []
    for place, weight in enumerate(weights):
        queue = w.queue(client, f"q{place}", exclusive=True)
        client.call(1, "queue.bind", queue=queue, exchange=x, routing_key=weight)
        queues.append(queue)
    return x, queues


def _counts(client: RawClient, queues: list[str]) -> list[int]:
    """How many each has; they are empty afterwards."""
    counts = []
    for queue in queues:
        client.send_off_record(codec.method_frame(1, "queue.purge", queue=queue))
        counts.append(client.receive_quietly().args["messages"])
    return counts


@case
def every_message_to_one_queue(w: World) -> None:
    a = w.client()
    x, queues = _group(w, a, "1", "1", "1")
    w.attempt(a, "confirm.select")
    for number in range(COUNT):
        w.put(f"key-{number}", b"m", exchange=x)
    counts = _counts(a, queues)
    w.say(f"{sum(counts)} messages, each queue has some: {min(counts) > 0}")
    for _ in range(20):
        w.put("one key", b"m", exchange=x)
    w.say(f"one key: {sorted(_counts(a, queues))}")


@case
def by_a_header(w: World) -> None:
    a = w.client()
    x, queues = _group(w, a, "1", "1", **{"hash-header": "user"})
    for number in range(COUNT):
        w.put("k", b"m", exchange=x, headers={"user": f"user-{number}"})
    w.say(f"each queue has some: {min(_counts(a, queues)) > 0}")
    for number in range(20):
        w.put(f"key-{number}", b"m", exchange=x, headers={"user": "one"})
    w.say(f"one value: {sorted(_counts(a, queues))}")
    for number in range(20):
        w.put(f"key-{number}", b"m", exchange=x)
    w.say(f"no value: {sorted(_counts(a, queues))}")


@case
def by_a_property(w: World) -> None:
    a = w.client()
    for name in ("message_id", "correlation_id"):
        x, queues = _group(w, a, "1", "1", **{"hash-property": name})
        for number in range(COUNT):
            w.put("k", b"m", exchange=x, **{name: f"id-{number}"})
        w.say(f"each queue has some: {min(_counts(a, queues)) > 0}")
        for number in range(20):
            w.put(f"key-{number}", b"m", exchange=x, **{name: "one"})
        w.say(f"one value: {sorted(_counts(a, queues))}")
    x, queues = _group(w, a, "1", "1", **{"hash-property": "timestamp"})
    for number in range(COUNT):
        w.put("k", b"m", exchange=x, timestamp=number)
    w.say(f"each queue has some: {min(_counts(a, queues)) > 0}")


@case
def what_no_exchange_may_ask(w: World) -> None:
    for arguments in (
        {"hash-header": "a", "hash-property": "message_id"},
        {"hash-property": "app_id"},
        {"hash-property": ""},
        {"hash-header": ""},
    ):
        a = w.client()
        x = w.name("x")
        answer = w.attempt(a, "exchange.declare", exchange=x, type=TYPE, auto_delete=True,
                           arguments=arguments)  # fmt: skip
        if answer.name == "exchange.declare-ok":
            w.attempt(a, "exchange.delete", exchange=x)


@case
def hash_header_of_the_wrong_type(w: World) -> None:
    a = w.client()
    w.attempt(a, "exchange.declare", exchange=w.name("x"), type=TYPE, auto_delete=True,
              arguments={"hash-header": 1})  # fmt: skip


@case
def hash_property_of_the_wrong_type(w: World) -> None:
    a = w.client()
    w.attempt(a, "exchange.declare", exchange=w.name("x"), type=TYPE, auto_delete=True,
              arguments={"hash-property": 1})  # fmt: skip


@case
def what_no_weight_is(w: World) -> None:
    a = w.client()
    x = w.exchange(a, "x", TYPE, auto_delete=True)
    q = w.queue(a, exclusive=True)
    for weight in ("", "0", "-1", "+1", "01", " 1", "1.0", "one", "1"):
        w.attempt(a, "queue.bind", queue=q, exchange=x, routing_key=weight)
    w.attempt(a, "queue.unbind", queue=q, exchange=x, routing_key="7")
    w.attempt(a, "queue.unbind", queue=q, exchange=x, routing_key="one")


@case
def without_queues(w: World) -> None:
    a = w.client()
    x, _ = _group(w, a)
    a.publish(1, x, "k", b"m", mandatory=True)
    a.receive()
    w.attempt(a, "exchange.delete", exchange=x)


@case
def other_arguments_at_the_second_declare(w: World) -> None:
    a = w.client()
    x, _ = _group(w, a)
    w.attempt(a, "exchange.declare", exchange=x, type=TYPE, auto_delete=True,
              arguments={"hash-header": "a"})  # fmt: skip
    w.attempt(a, "exchange.declare", exchange=x, type="direct", auto_delete=True)
    w.attempt(a, "exchange.delete", exchange=x)
