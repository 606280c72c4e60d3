"""Alternate exchanges: where messages go that an exchange routes nowhere (item 34)."""

from typing import Any

from tests.conformance.case import World, case
from tests.helpers.raw_amqp import RawClient


def _exchange(w: World, client: RawClient, base: str, type_: str, to: str | None = None) -> str:
    """One that goes with its last binding, so that nothing of a case stays behind."""
    arguments: dict[str, Any] = {} if to is None else {"alternate-exchange": to}
    return w.exchange(client, base, type_, auto_delete=True, arguments=arguments)


def _queue(w: World, client: RawClient, base: str, exchange: str, key: str = "") -> str:
    queue = w.queue(client, base, exclusive=True)
    client.call(1, "queue.bind", queue=queue, exchange=exchange, routing_key=key)
    return queue


def _who_has_it(w: World, client: RawClient, *queues: str) -> None:
    for queue in queues:
        w.attempt(client, "basic.get", queue=queue, no_ack=True)
        w.attempt(client, "queue.purge", queue=queue)


@case
def what_is_routed_nowhere_else(w: World) -> None:
    """Item 34: with the key and the exchange it was published with."""
    a = w.client()
    other = _exchange(w, a, "other", "fanout")
    spare = _queue(w, a, "spare", other)
    x = _exchange(w, a, "x", "direct", other)
    mine = _queue(w, a, "mine", x, "mine")
    for key in ("mine", "nobody's"):
        a.publish(1, x, key, b"m", headers={"n": 1})
        w.barrier(a)
        _who_has_it(w, a, mine, spare)


@case
def counts_as_routed(w: World) -> None:
    """Items 34 and 80: a mandatory message is not returned, and comes back when both fail."""
    a = w.client()
    w.attempt(a, "confirm.select")
    other = _exchange(w, a, "other", "direct")
    spare = _queue(w, a, "spare", other, "k")
    x = _exchange(w, a, "x", "direct", other)
    _queue(w, a, "mine", x, "mine")
    a.publish(1, x, "k", b"m", mandatory=True)
    a.receive()
    a.publish(1, x, "nobody's", b"m", mandatory=True)
    a.receive()
    a.receive()
    _who_has_it(w, a, spare)


@case
def a_missing_one(w: World) -> None:
    a = w.client()
    x = _exchange(w, a, "x", "direct", w.name("missing"))
    _queue(w, a, "mine", x, "mine")
    a.publish(1, x, "k", b"m", mandatory=True)
    a.receive()
    w.barrier(a)


@case
def one_that_comes_and_goes(w: World) -> None:
    a = w.client()
    other = w.name("other")
    x = _exchange(w, a, "x", "fanout", other)
    a.publish(1, x, "k", b"1", mandatory=True)
    a.receive()
    w.attempt(a, "exchange.declare", exchange=other, type="fanout", auto_delete=True)
    spare = _queue(w, a, "spare", other)
    a.publish(1, x, "k", b"2", mandatory=True)
    w.barrier(a)
    _who_has_it(w, a, spare)
    w.attempt(a, "exchange.delete", exchange=other)
    a.publish(1, x, "k", b"3", mandatory=True)
    a.receive()
    w.attempt(a, "exchange.delete", exchange=x)


@case
def a_chain_of_them(w: World) -> None:
    a = w.client()
    third = _exchange(w, a, "third", "topic")
    second = _exchange(w, a, "second", "topic", third)
    first = _exchange(w, a, "first", "topic", second)
    queues = [_queue(w, a, "q1", first, "a.*"), _queue(w, a, "q2", second, "b.*")]
    queues.append(_queue(w, a, "q3", third, "#"))
    for key in ("a.1", "b.1", "c.1"):
        a.publish(1, first, key, b"m", mandatory=True)
        w.barrier(a)
        _who_has_it(w, a, *queues)


@case
def a_cycle_of_them(w: World) -> None:
    a = w.client()
    names = [w.name("one"), w.name("two")]
    for name, other in (names, reversed(names)):
        a.call(1, "exchange.declare", exchange=name, type="direct", auto_delete=True,
               arguments={"alternate-exchange": other})  # fmt: skip
    one, two = names
    mine = _queue(w, a, "mine", two, "k")
    a.publish(1, one, "k", b"m", mandatory=True)
    w.barrier(a)
    _who_has_it(w, a, mine)
    a.publish(1, one, "nobody's", b"m", mandatory=True)
    a.receive()
    w.attempt(a, "exchange.delete", exchange=one)
    a.call(1, "exchange.declare", exchange=one, type="fanout", auto_delete=True,
           arguments={"alternate-exchange": one})  # fmt: skip
    w.say("its own")
    a.publish(1, one, "nobody's", b"m", mandatory=True)
    a.receive()
    w.attempt(a, "exchange.delete", exchange=one)


@case
def of_an_exchange_behind_a_binding(w: World) -> None:
    """A bound exchange that routes nowhere uses its own; the one before it has routed."""
    a = w.client()
    outer_spare = _exchange(w, a, "outer-spare", "fanout")
    inner_spare = _exchange(w, a, "inner-spare", "fanout")
    outer = _exchange(w, a, "outer", "fanout", outer_spare)
    inner = _exchange(w, a, "inner", "direct", inner_spare)
    w.attempt(a, "exchange.bind", source=outer, destination=inner)
    queues = [_queue(w, a, "q", inner, "k")]
    queues.append(_queue(w, a, "of-outer", outer_spare))
    queues.append(_queue(w, a, "of-inner", inner_spare))
    for key in ("k", "nobody's"):
        a.publish(1, outer, key, b"m", mandatory=True)
        w.barrier(a)
        _who_has_it(w, a, *queues)
    w.attempt(a, "exchange.unbind", source=outer, destination=inner)


@case
def a_bound_exchange_without_queues_has_routed(w: World) -> None:
    a = w.client()
    spare = _exchange(w, a, "spare", "fanout")
    x = _exchange(w, a, "x", "fanout", spare)
    empty = w.exchange(a, "empty", "fanout")
    q = _queue(w, a, "q", spare)
    w.attempt(a, "exchange.bind", source=x, destination=empty)
    a.publish(1, x, "k", b"m", mandatory=True)
    a.receive()
    _who_has_it(w, a, q)
    w.attempt(a, "exchange.delete", exchange=empty)


@case
def an_internal_one(w: World) -> None:
    a = w.client()
    inside = w.exchange(a, "inside", "fanout", auto_delete=True, internal=True)
    q = _queue(w, a, "q", inside)
    x = _exchange(w, a, "x", "direct", inside)
    a.publish(1, x, "k", b"m", mandatory=True)
    w.barrier(a)
    _who_has_it(w, a, q)
    w.attempt(a, "exchange.delete", exchange=x)


@case
def one_that_routes_by_headers(w: World) -> None:
    a = w.client()
    other = _exchange(w, a, "other", "headers")
    q = w.queue(a, exclusive=True)
    w.attempt(a, "queue.bind", queue=q, exchange=other, arguments={"colour": "red"})
    x = _exchange(w, a, "x", "topic", other)
    for colour in ("red", "blue"):
        a.publish(1, x, "k", b"m", headers={"colour": colour})
        w.barrier(a)
        _who_has_it(w, a, q)
    w.attempt(a, "exchange.delete", exchange=x)


@case
def the_default_exchange(w: World) -> None:
    a = w.client()
    q = w.queue(a, exclusive=True)
    x = w.name("x")
    w.attempt(a, "exchange.declare", exchange=x, type="direct", auto_delete=True,
              arguments={"alternate-exchange": ""})  # fmt: skip
    a.publish(1, x, q, b"m", mandatory=True)
    w.outcome(a)
    w.attempt(a, "queue.declare", queue=q, passive=True)
    w.attempt(a, "exchange.delete", exchange=x)


@case
def of_the_wrong_type(w: World) -> None:
    """Items 26 and 34."""
    a = w.client()
    for value in (1, True, None, ["x"], {"x": 1}):
        w.attempt(a, "exchange.declare", exchange=w.name("x"), type="direct",
                  arguments={"alternate-exchange": value})  # fmt: skip


@case
def another_one_than_before(w: World) -> None:
    """Item 26."""
    a = w.client()
    other = w.name("other")
    x = _exchange(w, a, "x", "direct", other)
    for arguments in ({"alternate-exchange": other}, {"alternate-exchange": "third"}, {}):
        w.attempt(a, "exchange.declare", exchange=x, type="direct", auto_delete=True,
                  arguments=arguments)  # fmt: skip
    w.attempt(a, "exchange.delete", exchange=x)
    plain = _exchange(w, a, "plain", "direct")
    w.attempt(a, "exchange.declare", exchange=plain, type="direct", auto_delete=True,
              arguments={"alternate-exchange": other})  # fmt: skip
    w.attempt(a, "exchange.delete", exchange=plain)


@case
def a_dead_letter_takes_it_too(w: World) -> None:
    """Items 34 and 90."""
    a = w.client()
    other = _exchange(w, a, "other", "fanout")
    morgue = _queue(w, a, "morgue", other)
    grave = _exchange(w, a, "grave", "direct", other)
    q = w.queue(a, exclusive=True, arguments={"x-dead-letter-exchange": grave})
    w.put(q, b"one")
    w.attempt(a, "basic.get", queue=q)
    a.send(1, "basic.consume", queue=morgue, consumer_tag="c", no_ack=True)
    a.receive()
    a.send(1, "basic.reject", delivery_tag=1, requeue=False)
    a.receive()
    w.attempt(a, "exchange.delete", exchange=grave)
