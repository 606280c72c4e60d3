"""Stories of the firehose: what a virtual host that is traced copies to ``amq.rabbitmq.trace``.

Needs a broker whose virtual host ``/`` was given tracing by ``definitions``, so these are no
ordinary cases: they have a runner of their own (``test_tracing.py``), which tells them one after
the other, because the firehose of one would show the messages of all.  Like cases they assert
nothing and leave a transcript.  The numbers are those of the checklist of AMQP behaviours.

Publishes and deliveries are watched by two connections: which of both is copied first is nobody's
promise.
"""

from collections.abc import Callable
from typing import Any

from tests.conformance.case import World
from tests.helpers import raw_codec as codec
from tests.helpers.raw_amqp import CLOSED, SILENCE, RawClient
from tests.helpers.raw_codec import Typed

STORIES: dict[str, Callable[[World], None]] = {}
TRACE = "amq.rabbitmq.trace"
EVERYTHING = {"content_type": "text/plain", "content_encoding": "utf-8", "delivery_mode": 2,
              "priority": 7, "correlation_id": "co", "reply_to": "re", "expiration": "60000",
              "message_id": "me", "timestamp": 1_700_000_000, "type": "ty", "user_id": "guest",
              "app_id": "ap", "cluster_id": "cl",
              "headers": {"text": "t", "number": 1, "large": Typed("l", 2**40), "flag": True,
                          "void": None, "table": {"in": "side"}, "list": ["a", 2],
                          "short": Typed("s", 3), "octets": b"x", "at": Typed("T", 5)}}  # fmt: skip


def definitions() -> dict[str, Any]:
    return {
        "vhosts": [{"name": "/", "tracing": True}, {"name": "quiet"}],
        "users": [{"name": "guest", "password": "guest", "tags": "administrator"}],
        "permissions": [
            {"user": "guest", "vhost": vhost, "configure": ".*", "write": ".*", "read": ".*"}
            for vhost in ("/", "quiet")
        ],
    }


def story(function: Callable[[World], None]) -> Callable[[World], None]:
    STORIES[function.__name__] = function
    return function


def watch(w: World, name: str, key: str) -> RawClient:
    """A connection that is sent every copy with such a key."""
    client = w.client(name)
    q = w.queue(client, f"trace-{name}", exclusive=True)
    client.send_off_record(
        codec.method_frame(1, "queue.bind", queue=q, exchange=TRACE, routing_key=key)
        + codec.method_frame(1, "basic.consume", queue=q, consumer_tag="c", no_ack=True)
    )
    client.receive_quietly()
    client.receive_quietly()
    return client


def copies(client: RawClient, count: int) -> None:
    """Write down that many copies, and that there is no other; a line for each of their headers."""
    for _ in range(count):
        event = client.receive_quietly()
        headers = event.properties.pop("headers", {})
        client.note(f"< {event}")
        for key, value in headers.items():
            client.note(f"<   {key}: {value!r}")
    rest = client.receive_quietly(0.3)
    if rest.name != SILENCE:
        client.note(f"< and more: {rest}")


def came(client: RawClient) -> bool:
    """Is there a copy?"""
    return client.receive_quietly(0.5).name != SILENCE


def leave(*clients: RawClient) -> None:
    """Wait for the end of each: only then are its exclusive queues gone everywhere."""
    for client in clients:
        client.send_off_record(codec.method_frame(0, "connection.close", code=200))
        while client.receive_quietly().name not in ("connection.close-ok", CLOSED, SILENCE):
            pass


@story
def publishes_99(w: World) -> None:
    p = watch(w, "P", "publish.#")
    a = w.client()
    x = w.exchange(a, "x", "topic", auto_delete=True)
    q = w.queue(a, exclusive=True)
    a.call(1, "queue.bind", queue=q, exchange=x, routing_key="a.#")
    a.publish(1, x, "a.b", b"all of them", **EVERYTHING)
    a.publish(1, x, "a.b", b"none")
    a.publish(1, x, "a", b"after 2038", timestamp=2**33)
    a.publish(1, "", q, b"by its name")
    a.publish(1, "", q, b"")
    copies(p, 5)
    leave(a, p)


@story
def a_long_body_99(w: World) -> None:
    p = watch(w, "P", "publish.#")
    a = w.client()
    q = w.queue(a, exclusive=True)
    a.publish(1, "", q, b"x" * 300_000, delivery_mode=2)
    copies(p, 1)
    p.note(f"frames {p.body_frame_sizes}")
    leave(a, p)


@story
def several_queues_99(w: World) -> None:
    p = watch(w, "P", "publish.#")
    a = w.client()
    x = w.exchange(a, "x", "fanout", auto_delete=True)
    y = w.exchange(a, "y", "fanout", auto_delete=True)
    for base in ("one", "two", "three"):
        q = w.queue(a, base, exclusive=True)
        a.call(1, "queue.bind", queue=q, exchange=x)
    q = w.queue(a, "four", exclusive=True)
    a.call(1, "queue.bind", queue=q, exchange=y)
    a.call(1, "exchange.bind", destination=y, source=x)
    a.publish(1, x, "k", b"m")
    copies(p, 1)
    leave(a, p)


@story
def unrouted_99(w: World) -> None:
    p = watch(w, "P", "publish.#")
    a = w.client()
    x = w.exchange(a, "x", "direct")
    y = w.exchange(a, "y", "direct", arguments={"alternate-exchange": "amq.fanout"})
    q = w.queue(a, exclusive=True)
    a.call(1, "queue.bind", queue=q, exchange="amq.fanout")
    a.call(1, "confirm.select")
    a.publish(1, x, "k", b"silent")
    a.expect("basic.ack")
    a.publish(1, x, "k", b"told", mandatory=True)
    a.expect("basic.return")
    a.expect("basic.ack")
    a.publish(1, "", w.name("missing"), b"no such queue")
    a.expect("basic.ack")
    a.publish(1, y, "k", b"the other way")
    a.expect("basic.ack")
    copies(p, 4)
    a.publish(1, w.name("missing"), "k", b"no such exchange")
    w.outcome(a)
    copies(p, 0)
    a.call(1, "exchange.delete", exchange=x)
    a.call(1, "exchange.delete", exchange=y)
    leave(a, p)


@story
def deliveries_99(w: World) -> None:
    d = watch(w, "D", "deliver.#")
    a, b = w.client("A"), w.client("B")
    q = w.queue(b, auto_delete=True)
    b.open_channel(2)
    b.call(2, "basic.consume", queue=q, consumer_tag="c")
    a.publish(1, "", q, b"one", **EVERYTHING)
    a.publish(1, "", q, b"two")
    b.expect("basic.deliver")
    b.expect("basic.deliver")
    copies(d, 2)
    b.send(2, "basic.nack", delivery_tag=1, requeue=True)
    b.expect("basic.deliver")
    copies(d, 1)
    b.send(2, "basic.ack", delivery_tag=3, multiple=True)
    copies(d, 0)
    leave(a, b, d)


@story
def deliveries_without_acknowledgement_99(w: World) -> None:
    d = watch(w, "D", "deliver.#")
    a = w.client()
    q = w.queue(a, exclusive=True)
    a.publish(1, "", q, b"got")
    a.publish(1, "", q, b"got again")
    w.attempt(a, "basic.get", queue=q)
    w.attempt(a, "basic.get", queue=q, no_ack=True)
    w.attempt(a, "basic.get", queue=q)
    copies(d, 2)
    a.send(1, "basic.recover", requeue=True)
    a.expect("basic.recover-ok")
    a.call(1, "basic.consume", queue=q, consumer_tag="c", no_ack=True)
    a.expect("basic.deliver")
    copies(d, 1)
    leave(a, d)


@story
def copies_are_not_traced_99(w: World) -> None:
    p = watch(w, "P", "#")
    a = w.client()
    q = w.queue(a, exclusive=True)
    other = w.queue(a, "other", exclusive=True)
    a.call(1, "queue.bind", queue=other, exchange=TRACE, routing_key="#")
    a.publish(1, "", q, b"m")
    copies(p, 1)
    w.attempt(a, "basic.get", queue=other)
    copies(p, 0)
    w.attempt(a, "basic.get", queue=q)
    copies(p, 1)
    w.attempt(a, "basic.get", queue=other)
    a.publish(1, TRACE, "k", b"internal")
    w.outcome(a)
    copies(p, 0)
    leave(a, p)


@story
def several_keys_99(w: World) -> None:
    p, d = watch(w, "P", "publish.#"), watch(w, "D", "deliver.#")
    a = w.client()
    q = w.queue(a, "a-q", exclusive=True)
    cc, bcc = w.queue(a, "b-cc", exclusive=True), w.queue(a, "c-bcc", exclusive=True)
    a.publish(1, "", q, b"m", headers={"CC": [cc], "BCC": [bcc], "other": 1})
    copies(p, 1)
    for queue in (q, cc, bcc):
        w.attempt(a, "basic.get", queue=queue)
        copies(d, 1)
    a.publish(1, "", q, b"m", headers={"CC": "none"})
    w.outcome(a)
    copies(p, 0)
    leave(a, p, d)


@story
def headers_decide_99(w: World) -> None:
    p = watch(w, "P", "publish.#")
    a = w.client()
    x = w.exchange(a, "x", "headers", auto_delete=True)
    q = w.queue(a, exclusive=True)
    a.call(1, "queue.bind", queue=q, exchange=x, arguments={"x-match": "all", "to": "q"})
    a.publish(1, x, "k", b"one", headers={"to": "q"})
    a.publish(1, x, "k", b"two", headers={"to": "nobody"})
    copies(p, 2)
    leave(a, p)


@story
def dead_letters_99(w: World) -> None:
    p, d = watch(w, "P", "publish.#"), watch(w, "D", "deliver.#")
    a = w.client()
    dead = w.queue(a, "dead", exclusive=True)
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    q = w.queue(a, exclusive=True, arguments=arguments)
    a.publish(1, "", q, b"m")
    copies(p, 1)
    w.attempt(a, "basic.get", queue=q)
    copies(d, 1)
    a.send(1, "basic.reject", delivery_tag=1)
    a.call(1, "basic.consume", queue=dead, consumer_tag="c")
    a.expect("basic.deliver")
    copies(p, 0)
    copies(d, 1)
    leave(a, p, d)


@story
def what_expires_at_once_99(w: World) -> None:
    p, d = watch(w, "P", "publish.#"), watch(w, "D", "deliver.#")
    a = w.client()
    q = w.queue(a, exclusive=True)
    a.publish(1, "", q, b"m", expiration="0")
    copies(p, 1)
    w.attempt(a, "basic.get", queue=q)
    copies(d, 0)
    leave(a, p, d)


@story
def refused_for_want_of_room_99(w: World) -> None:
    p = watch(w, "P", "publish.#")
    a = w.client()
    q = w.queue(a, exclusive=True, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    a.call(1, "confirm.select")
    a.publish(1, "", q, b"one")
    a.expect("basic.ack")
    a.publish(1, "", q, b"two")
    a.expect("basic.nack")
    copies(p, 2)
    leave(a, p)


@story
def transactions_99(w: World) -> None:
    p, d = watch(w, "P", "publish.#"), watch(w, "D", "deliver.#")
    a = w.client()
    q = w.queue(a, exclusive=True)
    a.call(1, "tx.select")
    a.publish(1, "", q, b"committed")
    a.call(1, "tx.commit")
    copies(p, 1)
    w.attempt(a, "basic.get", queue=q)
    copies(d, 1)
    leave(a, p, d)


@story
def a_transaction_taken_back_99(w: World) -> None:
    p = watch(w, "P", "publish.#")
    a = w.client()
    q = w.queue(a, exclusive=True)
    a.call(1, "tx.select")
    a.publish(1, "", q, b"taken back")
    a.call(1, "tx.rollback")
    w.say("a copy of what was taken back: " + ("no" if not came(p) else "yes"))
    leave(a, p)


@story
def direct_replies_99(w: World) -> None:
    p, d = watch(w, "P", "publish.#"), watch(w, "D", "deliver.#")
    a, b = w.client("A"), w.client("B")
    q = w.queue(b, auto_delete=True)
    a.call(1, "basic.consume", queue="amq.rabbitmq.reply-to", consumer_tag="c", no_ack=True)
    a.publish(1, "", q, b"question", reply_to="amq.rabbitmq.reply-to")
    b.call(1, "basic.consume", queue=q, consumer_tag="c", no_ack=True)
    key = b.expect("basic.deliver").properties["reply_to"]
    b.publish(1, "", key, b"answer")
    a.expect("basic.deliver")
    copies(p, 2)
    copies(d, 1)
    leave(a, b, p, d)


@story
def another_virtual_host_99(w: World) -> None:
    p = watch(w, "P", "#")
    a = w.raw("A")
    a.open(vhost="quiet")
    a.open_channel(1)
    q, own = w.queue(a, exclusive=True), w.queue(a, "own", exclusive=True)
    a.call(1, "queue.bind", queue=own, exchange=TRACE, routing_key="#")
    a.publish(1, "", q, b"m")
    w.attempt(a, "basic.get", queue=q)
    w.attempt(a, "basic.get", queue=own)
    copies(p, 0)
    leave(a, p)
