"""``x-recent-history`` exchanges: a queue that is bound gets the last messages at once.

Needs RabbitMQ's plug-in ``rabbitmq_recent_history_exchange``.
"""

import time
from typing import Any

from tests.conformance.case import World, case
from tests.helpers.raw_amqp import RawClient

TYPE = "x-recent-history"
LENGTH = "x-recent-history-length"
NO_STORE = "x-recent-history-no-store"


def _exchange(w: World, client: RawClient, length: int | None = None, **args: Any) -> str:
    arguments = {} if length is None else {LENGTH: length}
    return w.exchange(client, "x", TYPE, arguments=arguments, **args)


def _bound(w: World, client: RawClient, exchange: str, base: str = "q", key: str = "") -> str:
    queue = w.queue(client, base, exclusive=True)
    w.attempt(client, "queue.bind", queue=queue, exchange=exchange, routing_key=key)
    return queue


def _counted(w: World, client: RawClient, queue: str) -> None:
    """RabbitMQ's queue counts what was given to it by a binding a little later."""
    time.sleep(0.3)
    w.attempt(client, "queue.declare", queue=queue, passive=True)


def _rest(w: World, client: RawClient, queue: str) -> None:
    while w.attempt(client, "basic.get", queue=queue, no_ack=True).name == "basic.get-ok":
        pass


@case
def lengths(w: World) -> None:
    a = w.client()
    for value in (1, 5, 0, -1, "5", 5.5, True, None):
        x = w.name("x")
        w.attempt(a, "exchange.declare", exchange=x, type=TYPE, arguments={LENGTH: value})
        w.attempt(a, "exchange.delete", exchange=x)


@case
def declared_again(w: World) -> None:
    a = w.client()
    x = _exchange(w, a, 2, durable=True)
    declare = {"exchange": x, "type": TYPE}
    w.attempt(a, "exchange.declare", **declare, durable=True, arguments={LENGTH: 2})
    w.attempt(a, "exchange.declare", **declare, durable=True, arguments={LENGTH: 3})
    w.attempt(a, "exchange.declare", **declare, durable=True)
    w.attempt(a, "exchange.declare", **declare, arguments={LENGTH: 2})
    w.attempt(a, "exchange.delete", exchange=x)


@case
def the_last_ones_come_first(w: World) -> None:
    a = w.client()
    x = _exchange(w, a, 2)
    for number in range(4):
        w.put(f"k{number}", b"%d" % number, exchange=x, headers={"n": number}, delivery_mode=2)
    q = _bound(w, a, x, key="any")
    w.put("later", b"4", exchange=x)
    _rest(w, a, q)
    w.attempt(a, "exchange.delete", exchange=x)


@case
def twenty_unless_told(w: World) -> None:
    a = w.client()
    x = _exchange(w, a)
    for number in range(25):
        w.put("k", b"%d" % number, exchange=x)
    q = _bound(w, a, x)
    _counted(w, a, q)
    w.attempt(a, "basic.get", queue=q, no_ack=True)
    w.attempt(a, "exchange.delete", exchange=x)


@case
def what_is_not_to_be_kept(w: World) -> None:
    a = w.client()
    x = _exchange(w, a)
    for value in (True, False, 1, "true", None):
        w.put("k", str(value).encode(), exchange=x, headers={NO_STORE: value})
    q = _bound(w, a, x)
    w.put("k", b"at once", exchange=x, headers={NO_STORE: True})
    _rest(w, a, q)
    w.attempt(a, "exchange.delete", exchange=x)


@case
def bound_again(w: World) -> None:
    """The same binding, another one, and one that was taken back."""
    a = w.client()
    x = _exchange(w, a)
    w.put("k", b"one", exchange=x)
    q = _bound(w, a, x)
    w.attempt(a, "queue.bind", queue=q, exchange=x)
    _counted(w, a, q)
    w.attempt(a, "queue.bind", queue=q, exchange=x, routing_key="other")
    _counted(w, a, q)
    w.put("k", b"two", exchange=x)
    w.attempt(a, "queue.unbind", queue=q, exchange=x)
    w.attempt(a, "queue.bind", queue=q, exchange=x)
    _rest(w, a, q)
    w.attempt(a, "exchange.delete", exchange=x)


@case
def every_bound_queue_gets_every_message(w: World) -> None:
    a = w.client()
    x = _exchange(w, a)
    first, second = _bound(w, a, x, "first", "a"), _bound(w, a, x, "second", "b")
    w.put("c", b"one", exchange=x)
    for queue in (first, second):
        _rest(w, a, queue)
    w.attempt(a, "exchange.delete", exchange=x)


@case
def an_exchange_bound(w: World) -> None:
    """What was published goes on through it."""
    a = w.client()
    x = _exchange(w, a)
    direct = w.exchange(a, "direct", "direct")
    q = w.queue(a, exclusive=True)
    w.attempt(a, "queue.bind", queue=q, exchange=direct, routing_key="k")
    w.put("k", b"one", exchange=x)
    w.attempt(a, "exchange.bind", destination=direct, source=x)
    _rest(w, a, q)
    w.put("k", b"two", exchange=x)
    _rest(w, a, q)
    for one in (x, direct):
        w.attempt(a, "exchange.delete", exchange=one)


@case
def an_exchange_bound_that_leads_nowhere(w: World) -> None:
    a = w.client()
    x = _exchange(w, a, auto_delete=True)
    fanout = w.exchange(a, "fanout", "fanout", auto_delete=True)
    w.put("k", b"one", exchange=x)
    w.attempt(a, "exchange.bind", destination=fanout, source=x)


@case
def kept_without_a_queue(w: World) -> None:
    """It is unroutable, and in the history."""
    a = w.client()
    x = _exchange(w, a)
    a.publish(1, x, "k", b"one", mandatory=True)
    a.receive()
    a.receive()
    q = _bound(w, a, x)
    _rest(w, a, q)
    w.attempt(a, "exchange.delete", exchange=x)


@case
def gone_with_its_exchange(w: World) -> None:
    a = w.client()
    x = _exchange(w, a)
    w.put("k", b"one", exchange=x)
    w.attempt(a, "exchange.delete", exchange=x)
    w.attempt(a, "exchange.declare", exchange=x, type=TYPE)
    q = _bound(w, a, x)
    _rest(w, a, q)
    w.attempt(a, "exchange.delete", exchange=x)


@case
def copies_of_a_message(w: World) -> None:
    a = w.client()
    x = _exchange(w, a)
    w.put("k", b"one", exchange=x, headers={"CC": ["l"], "BCC": ["m"]})
    q = _bound(w, a, x)
    _rest(w, a, q)
    w.attempt(a, "exchange.delete", exchange=x)


@case
def by_another_exchange(w: World) -> None:
    """What comes from an exchange that it is bound to."""
    a = w.client()
    x = _exchange(w, a)
    fanout = w.exchange(a, "fanout", "fanout")
    w.attempt(a, "exchange.bind", destination=x, source=fanout)
    w.put("k", b"one", exchange=fanout)
    q = _bound(w, a, x)
    _rest(w, a, q)
    for one in (x, fanout):
        w.attempt(a, "exchange.delete", exchange=one)


@case
def over_its_time(w: World) -> None:
    a = w.client()
    x = _exchange(w, a)
    w.put("k", b"one", exchange=x, expiration="1")
    w.put("k", b"two", exchange=x, expiration="60000")
    q = _bound(w, a, x)
    _counted(w, a, q)
    w.attempt(a, "exchange.delete", exchange=x)


@case
def in_a_transaction(w: World) -> None:
    a = w.client()
    x = _exchange(w, a)
    w.attempt(a, "tx.select")
    a.publish(1, x, "k", b"one")
    w.attempt(a, "tx.commit")
    q = _bound(w, a, x)
    w.attempt(a, "basic.get", queue=q, no_ack=True)
    w.attempt(a, "exchange.delete", exchange=x)
