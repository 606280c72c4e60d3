"""Exchanges: declare, delete, bind, and where a message goes."""

from collections.abc import Iterable
from typing import Any

from tests.conformance.case import World, case
from tests.helpers.raw_amqp import RawClient


@case
def declare_every_type(w: World) -> None:
    """Item 25."""
    a = w.client()
    for type_ in ("direct", "fanout", "topic", "headers"):
        x = w.name(f"x-{type_}")
        w.attempt(a, "exchange.declare", exchange=x, type=type_, durable=True)
        w.attempt(a, "exchange.declare", exchange=x, type=type_, durable=True)
        w.attempt(a, "exchange.delete", exchange=x)


@case
def declare_unknown_type(w: World) -> None:
    """Item 25."""
    a = w.client()
    w.attempt(a, "exchange.declare", exchange=w.name("x"), type="sideways")


@case
def declare_empty_type(w: World) -> None:
    """Item 25."""
    a = w.client()
    w.attempt(a, "exchange.declare", exchange=w.name("x"), type="")


@case
def declare_unknown_type_of_an_existing_exchange(w: World) -> None:
    a = w.client()
    x = w.exchange(a, auto_delete=True)
    w.attempt(a, "exchange.declare", exchange=x, type="sideways")


@case
def declare_inequivalent(w: World) -> None:
    """Items 24 and 26."""
    a = w.client()
    x = w.exchange(a, type_="direct")
    w.attempt(a, "exchange.declare", exchange=x, type="fanout")
    w.attempt(a, "exchange.declare", exchange=x, type="direct", durable=True)
    w.attempt(a, "exchange.declare", exchange=x, type="direct", auto_delete=True)
    w.attempt(a, "exchange.declare", exchange=x, type="direct", internal=True)
    w.attempt(a, "exchange.declare", exchange=x, type="direct",
              arguments={"alternate-exchange": "other"})  # fmt: skip
    w.attempt(a, "exchange.declare", exchange=x, type="fanout", durable=True)
    w.attempt(a, "exchange.declare", exchange=x, type="direct", arguments={"x-mine": 1})
    w.attempt(a, "exchange.delete", exchange=x)


@case
def declare_passive(w: World) -> None:
    """Item 29."""
    a = w.client()
    x = w.exchange(a, type_="direct", auto_delete=True)
    w.attempt(a, "exchange.declare", exchange=x, type="fanout", durable=True, passive=True)
    w.attempt(a, "exchange.declare", exchange=w.name("none"), type="direct", passive=True)
    w.attempt(a, "exchange.declare", exchange="amq.topic", type="", passive=True)
    w.attempt(a, "exchange.declare", exchange="", type="direct", passive=True)
    w.attempt(a, "exchange.delete", exchange=x)


@case
def declare_reserved_name(w: World) -> None:
    """Item 28."""
    a = w.client()
    w.attempt(a, "exchange.declare", exchange="amq.mine", type="direct")
    w.attempt(a, "exchange.declare", exchange="amq.", type="direct")
    w.attempt(a, "exchange.declare", exchange="amq", type="direct", auto_delete=True)
    w.attempt(a, "exchange.delete", exchange="amq")


@case
def declare_predeclared_again(w: World) -> None:
    """Item 28."""
    a = w.client()
    for name, type_ in (
        ("amq.direct", "direct"), ("amq.fanout", "fanout"), ("amq.topic", "topic"),
        ("amq.headers", "headers"), ("amq.match", "headers"),
    ):  # fmt: skip
        w.attempt(a, "exchange.declare", exchange=name, type=type_, durable=True)
    w.attempt(a, "exchange.declare", exchange="amq.direct", type="fanout", durable=True)
    w.attempt(a, "exchange.declare", exchange="amq.direct", type="direct")


@case
def default_exchange_cannot_be_changed(w: World) -> None:
    """Items 27 and 39."""
    a = w.client()
    q = w.queue(a, exclusive=True)
    x = w.exchange(a)
    w.attempt(a, "exchange.declare", exchange="", type="direct", durable=True)
    w.attempt(a, "exchange.delete", exchange="")
    w.attempt(a, "queue.bind", queue=q, exchange="", routing_key="k")
    w.attempt(a, "queue.unbind", queue=q, exchange="", routing_key=q)
    w.attempt(a, "exchange.bind", destination=x, source="", routing_key="k")
    w.attempt(a, "exchange.bind", destination="", source=x, routing_key="k")
    w.attempt(a, "exchange.unbind", destination=x, source="", routing_key="k")
    w.attempt(a, "exchange.delete", exchange=x)


@case
def delete_predeclared(w: World) -> None:
    """Item 28."""
    a = w.client()
    for name in ("amq.direct", "amq.fanout", "amq.topic", "amq.headers", "amq.match"):
        w.attempt(a, "exchange.delete", exchange=name)
    w.attempt(a, "exchange.delete", exchange="amq.nothing")


@case
def delete_missing(w: World) -> None:
    """Item 30."""
    a = w.client()
    x = w.exchange(a)
    w.attempt(a, "exchange.delete", exchange=x)
    w.attempt(a, "exchange.delete", exchange=x)
    w.attempt(a, "exchange.delete", exchange=x, if_unused=True)


@case
def delete_if_unused(w: World) -> None:
    """Item 30: used means: somebody is bound to it; being bound to somebody is no use."""
    a = w.client()
    q = w.queue(a, exclusive=True)
    x, upstream = w.exchange(a, "x"), w.exchange(a, "up")
    w.attempt(a, "queue.bind", queue=q, exchange=x, routing_key="k")
    w.attempt(a, "exchange.delete", exchange=x, if_unused=True)
    w.attempt(a, "queue.unbind", queue=q, exchange=x, routing_key="k")
    w.attempt(a, "exchange.bind", destination=x, source=upstream, routing_key="k")
    w.attempt(a, "exchange.delete", exchange=upstream, if_unused=True)
    w.attempt(a, "exchange.delete", exchange=x, if_unused=True)
    w.attempt(a, "exchange.delete", exchange=upstream, if_unused=True)


@case
def auto_delete_with_the_last_binding(w: World) -> None:
    """Item 31."""
    a = w.client()
    q = w.queue(a, exclusive=True)
    x = w.exchange(a, auto_delete=True)
    w.attempt(a, "queue.bind", queue=q, exchange=x, routing_key="1")
    w.attempt(a, "queue.bind", queue=q, exchange=x, routing_key="2")
    w.attempt(a, "queue.unbind", queue=q, exchange=x, routing_key="1")
    w.attempt(a, "exchange.declare", exchange=x, type="direct", passive=True)
    w.attempt(a, "queue.unbind", queue=q, exchange=x, routing_key="2")
    w.attempt(a, "exchange.declare", exchange=x, type="direct", passive=True)


@case
def auto_delete_unbind_of_what_is_not_bound(w: World) -> None:
    """Item 31: an unbind that removes nothing does not delete the exchange."""
    a = w.client()
    q = w.queue(a, exclusive=True)
    x = w.exchange(a, auto_delete=True)
    w.attempt(a, "queue.unbind", queue=q, exchange=x, routing_key="1")
    w.attempt(a, "exchange.declare", exchange=x, type="direct", passive=True)
    w.attempt(a, "exchange.delete", exchange=x)


@case
def auto_delete_when_the_queue_goes(w: World) -> None:
    """Item 31."""
    a = w.client()
    q = w.queue(a, exclusive=True)
    x = w.exchange(a, auto_delete=True)
    w.attempt(a, "queue.bind", queue=q, exchange=x, routing_key="1")
    w.attempt(a, "queue.delete", queue=q)
    w.attempt(a, "exchange.declare", exchange=x, type="direct", passive=True)


@case
def auto_delete_runs_up_a_chain(w: World) -> None:
    """Item 31: x is bound to up: when x goes, up has no binding left and goes too."""
    a = w.client()
    q = w.queue(a, exclusive=True)
    x, up = w.exchange(a, "x", auto_delete=True), w.exchange(a, "up", auto_delete=True)
    w.attempt(a, "exchange.bind", destination=x, source=up, routing_key="1")
    w.attempt(a, "queue.bind", queue=q, exchange=x, routing_key="1")
    w.attempt(a, "queue.unbind", queue=q, exchange=x, routing_key="1")
    w.attempt(a, "exchange.declare", exchange=x, type="direct", passive=True)
    w.attempt(a, "exchange.declare", exchange=up, type="direct", passive=True)


@case
def auto_delete_as_destination_only(w: World) -> None:
    """Item 31: losing the binding towards it does not delete an exchange."""
    a = w.client()
    x, up = w.exchange(a, "x", auto_delete=True), w.exchange(a, "up")
    w.attempt(a, "exchange.bind", destination=x, source=up, routing_key="1")
    w.attempt(a, "exchange.unbind", destination=x, source=up, routing_key="1")
    w.attempt(a, "exchange.declare", exchange=x, type="direct", passive=True)
    w.attempt(a, "exchange.delete", exchange=x)
    w.attempt(a, "exchange.delete", exchange=up)


@case
def internal_exchange(w: World) -> None:
    """Item 32."""
    a = w.client()
    q = w.queue(a, exclusive=True)
    x = w.exchange(a, internal=True)
    front = w.exchange(a, "front", "fanout")
    w.attempt(a, "queue.bind", queue=q, exchange=x, routing_key="k")
    w.attempt(a, "exchange.bind", destination=x, source=front)
    a.publish(1, x, "k")
    w.barrier(a)
    a.publish(1, front, "k")
    w.attempt(a, "basic.get", queue=q, no_ack=True)
    w.attempt(a, "exchange.delete", exchange=x)
    w.attempt(a, "exchange.delete", exchange=front)


@case
def bind_missing(w: World) -> None:
    """Item 37."""
    a = w.client()
    q, x = w.queue(a, exclusive=True), w.exchange(a)
    none = w.name("none")
    w.attempt(a, "queue.bind", queue=q, exchange=none, routing_key="k")
    w.attempt(a, "queue.bind", queue=none, exchange=x, routing_key="k")
    w.attempt(a, "queue.bind", queue=none, exchange=none, routing_key="k")
    w.attempt(a, "exchange.bind", destination=x, source=none, routing_key="k")
    w.attempt(a, "exchange.bind", destination=none, source=x, routing_key="k")
    w.attempt(a, "exchange.delete", exchange=x)


@case
def unbind_missing(w: World) -> None:
    """Item 37."""
    a = w.client()
    q, x = w.queue(a, exclusive=True), w.exchange(a)
    none = w.name("none")
    w.attempt(a, "queue.unbind", queue=q, exchange=none, routing_key="k")
    w.attempt(a, "queue.unbind", queue=none, exchange=x, routing_key="k")
    w.attempt(a, "queue.unbind", queue=q, exchange=x, routing_key="k")
    w.attempt(a, "exchange.unbind", destination=x, source=none, routing_key="k")
    w.attempt(a, "exchange.unbind", destination=none, source=x, routing_key="k")
    w.attempt(a, "exchange.delete", exchange=x)


@case
def bind_twice_delivers_once(w: World) -> None:
    """Item 37."""
    a = w.client()
    q, x = w.queue(a, exclusive=True), w.exchange(a)
    w.attempt(a, "queue.bind", queue=q, exchange=x, routing_key="k")
    w.attempt(a, "queue.bind", queue=q, exchange=x, routing_key="k")
    w.attempt(a, "queue.bind", queue=q, exchange=x, routing_key="k", arguments={"a": 1})
    a.publish(1, x, "k")
    w.attempt(a, "queue.purge", queue=q)
    w.say("one unbind removes one of two bindings that differ in arguments")
    w.attempt(a, "queue.unbind", queue=q, exchange=x, routing_key="k")
    a.publish(1, x, "k")
    w.attempt(a, "queue.purge", queue=q)
    w.attempt(a, "queue.unbind", queue=q, exchange=x, routing_key="k", arguments={"a": 1})
    a.publish(1, x, "k")
    w.attempt(a, "queue.purge", queue=q)
    w.attempt(a, "exchange.delete", exchange=x)


@case
def bind_to_the_last_declared_queue(w: World) -> None:
    """Item 42: an empty queue name is the last one declared there; an empty key, its name."""
    a = w.client()
    x = w.exchange(a)
    w.attempt(a, "queue.bind", exchange=x, routing_key="k")
    q = w.queue(a, exclusive=True)
    w.attempt(a, "queue.bind", exchange=x)
    a.publish(1, x, q)
    w.attempt(a, "queue.purge")
    a.publish(1, x, "")
    w.attempt(a, "queue.purge")
    w.attempt(a, "queue.unbind", exchange=x)
    a.publish(1, x, q)
    w.attempt(a, "queue.purge")
    w.attempt(a, "exchange.delete", exchange=x)


@case
def durable_exchange_and_transient_queue(w: World) -> None:
    """Item 38."""
    a = w.client()
    q = w.queue(a, exclusive=True)
    w.attempt(a, "queue.bind", queue=q, exchange="amq.direct", routing_key=q)
    a.publish(1, "amq.direct", q)
    w.attempt(a, "basic.get", queue=q, no_ack=True)


@case
def default_exchange_routes_by_queue_name(w: World) -> None:
    """Item 39."""
    a = w.client()
    q = w.queue(a, exclusive=True)
    a.publish(1, "", q, b"m")
    w.attempt(a, "basic.get", queue=q, no_ack=True)
    a.publish(1, "", w.name("none"), b"m")
    w.barrier(a)


@case
def default_exchange_by_a_name_it_does_not_have(w: World) -> None:
    a = w.client()
    w.attempt(a, "exchange.declare", exchange="amq.default", type="direct", passive=True)
    a.publish(1, "amq.default", "k")
    w.outcome(a)


def _route(
    w: World, a: RawClient, exchange: str, queues: dict[str, str], key: str, **properties: Any
) -> None:
    """Publish once and write down which of the queues got it, and how often."""
    a.publish(1, exchange, key, b"m", **properties)
    found = []
    for label, queue in queues.items():
        a.send_off_record(_purge(queue))
        count = a.receive_quietly().args["messages"]
        found.append(label if count == 1 else f"{label}*{count}" if count else "")
    a.note(f"< routed to {' | '.join(filter(None, found)) or 'nobody'}")


def _purge(queue: str) -> bytes:
    from tests.helpers.raw_codec import method_frame

    return method_frame(1, "queue.purge", queue=queue)


def _bound_queues(
    w: World, a: RawClient, exchange: str, bindings: Iterable[tuple[str, str, dict[str, Any]]]
) -> dict[str, str]:
    queues = {}
    for label, key, arguments in bindings:
        queues[label] = w.queue(a, label, exclusive=True)
        w.attempt(a, "queue.bind", queue=queues[label], exchange=exchange, routing_key=key,
                  arguments=arguments)  # fmt: skip
    return queues


TOPIC_PATTERNS = (
    "", ".", "..", "#", "*", "a", "a.b", "a.*", "*.b", "a.#", "#.b", "a.#.b", "#.#", "#.*",
    "*.#", "*.*", "*.*.*", "a.*.b", "#.a.#", "a.#.#", "a..b", "a.*.*", "#.", ".#", "*.", ".*",
    "a#", "a*", "#a", "**", "##",
)  # fmt: skip
TOPIC_KEYS = (
    "", ".", "..", "a", "b", "a.b", "a.", ".a", ".b", "a..b", "a.b.c", "a.x.b", "a.x.y.b",
    "b.a", "a.a", "x.a.y", "a.b.a.b", "#", "*", "a.#", "a.*", "a#", "a*", "#a", "**", "##",
)  # fmt: skip


@case
def topic_table(w: World) -> None:
    """Item 36: every pattern against every key."""
    a = w.client()
    x = w.exchange(a, type_="topic")
    queues = _bound_queues(w, a, x, ((f"[{p}]", p, {}) for p in TOPIC_PATTERNS))
    for key in TOPIC_KEYS:
        _route(w, a, x, queues, key)
    w.attempt(a, "exchange.delete", exchange=x)


@case
def topic_two_patterns_one_queue(w: World) -> None:
    """Item 36."""
    a = w.client()
    x = w.exchange(a, type_="topic")
    q = w.queue(a, exclusive=True)
    for pattern in ("a.*", "#.b", "a.b"):
        w.attempt(a, "queue.bind", queue=q, exchange=x, routing_key=pattern)
    _route(w, a, x, {"q": q}, "a.b")
    w.attempt(a, "queue.unbind", queue=q, exchange=x, routing_key="a.*")
    _route(w, a, x, {"q": q}, "a.b")
    _route(w, a, x, {"q": q}, "a.c")
    w.attempt(a, "exchange.delete", exchange=x)


HEADER_BINDINGS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("none", {}),
    ("all:empty", {"x-match": "all"}),
    ("any:empty", {"x-match": "any"}),
    ("default:a=1", {"a": 1}),
    ("all:a=1", {"x-match": "all", "a": 1}),
    ("any:a=1", {"x-match": "any", "a": 1}),
    ("all:a=1,b=2", {"x-match": "all", "a": 1, "b": 2}),
    ("any:a=1,b=2", {"x-match": "any", "a": 1, "b": 2}),
    ("all:a void", {"x-match": "all", "a": None}),
    ("any:a void", {"x-match": "any", "a": None}),
    ("all:a='1'", {"x-match": "all", "a": "1"}),
    ("all:a=1.0", {"x-match": "all", "a": 1.0}),
    ("all:a=true", {"x-match": "all", "a": True}),
    ("all:a=[1]", {"x-match": "all", "a": [1]}),
    ("all:a={b:1}", {"x-match": "all", "a": {"b": 1}}),
    ("all:x-a=1", {"x-match": "all", "x-a": 1}),
    ("all:x-a=1,b=2", {"x-match": "all", "x-a": 1, "b": 2}),
    ("all-with-x:x-a=1", {"x-match": "all-with-x", "x-a": 1}),
    ("any-with-x:x-a=1,b=2", {"x-match": "any-with-x", "x-a": 1, "b": 2}),
)  # fmt: skip
MESSAGE_HEADERS: tuple[dict[str, Any], ...] = (
    {}, {"a": 1}, {"a": 2}, {"b": 2}, {"a": 1, "b": 2}, {"a": 1, "b": 3}, {"a": 1, "b": 2, "c": 3},
    {"a": "1"}, {"a": 1.0}, {"a": True}, {"a": False}, {"a": None}, {"a": [1]}, {"a": [1, 2]},
    {"a": {"b": 1}}, {"x-a": 1}, {"x-a": 1, "b": 2}, {"x-a": 2, "b": 2}, {"x-match": "all"},
)  # fmt: skip


@case
def headers_table(w: World) -> None:
    """Item 35: every binding against every set of headers."""
    from tests.helpers.raw_codec import Typed

    a = w.client()
    x = w.exchange(a, type_="headers")
    queues = _bound_queues(w, a, x, ((label, "k", args) for label, args in HEADER_BINDINGS))
    _route(w, a, x, queues, "k")
    for headers in MESSAGE_HEADERS:
        _route(w, a, x, queues, "k", headers=headers)
    w.say("integer widths do not matter")
    for letter in "bBsuIil":
        _route(w, a, x, queues, "", headers={"a": Typed(letter, 1)})
    w.attempt(a, "exchange.delete", exchange=x)


@case
def headers_bad_x_match(w: World) -> None:
    """Item 35."""
    a = w.client()
    q, x = w.queue(a, exclusive=True), w.exchange(a, type_="headers")
    for value in ("some", "ALL", "", 1, True, None, b"all"):
        w.attempt(a, "queue.bind", queue=q, exchange=x, arguments={"x-match": value})
    w.attempt(a, "exchange.delete", exchange=x)


@case
def fanout_and_direct(w: World) -> None:
    a = w.client()
    for type_ in ("fanout", "direct"):
        x = w.exchange(a, f"x-{type_}", type_)
        queues = _bound_queues(w, a, x, ((f"[{k}]", k, {}) for k in ("", "a", "b", "#")))
        for key in ("", "a", "b", "c", "#"):
            _route(w, a, x, queues, key)
        w.attempt(a, "exchange.delete", exchange=x)


@case
def exchange_to_exchange(w: World) -> None:
    """Item 33: a diamond and a cycle: each queue gets one copy."""
    a = w.client()
    top = w.exchange(a, "top", "fanout")
    left, right = w.exchange(a, "left", "fanout"), w.exchange(a, "right", "topic")
    q = w.queue(a, exclusive=True)
    w.attempt(a, "exchange.bind", destination=left, source=top)
    w.attempt(a, "exchange.bind", destination=right, source=top)
    w.attempt(a, "exchange.bind", destination=right, source=top)
    w.attempt(a, "queue.bind", queue=q, exchange=left)
    w.attempt(a, "queue.bind", queue=q, exchange=right, routing_key="a.#")
    _route(w, a, top, {"q": q}, "a.b")
    w.attempt(a, "exchange.bind", destination=top, source=left)
    w.attempt(a, "exchange.bind", destination=top, source=top)
    _route(w, a, top, {"q": q}, "a.b")
    w.attempt(a, "exchange.unbind", destination=left, source=top)
    _route(w, a, top, {"q": q}, "a.b")
    _route(w, a, top, {"q": q}, "b")
    w.attempt(a, "exchange.delete", exchange=right)
    _route(w, a, top, {"q": q}, "a.b")
    for x in (left, top):
        w.attempt(a, "exchange.delete", exchange=x)


@case
def deliver_shows_the_first_exchange(w: World) -> None:
    """Item 33."""
    a = w.client()
    top, x = w.exchange(a, "top", "fanout"), w.exchange(a, "x")
    q = w.queue(a, exclusive=True)
    w.attempt(a, "exchange.bind", destination=x, source=top)
    w.attempt(a, "queue.bind", queue=q, exchange=x, routing_key="k")
    a.publish(1, top, "k")
    w.attempt(a, "basic.get", queue=q, no_ack=True)
    w.attempt(a, "exchange.delete", exchange=x)
    w.attempt(a, "exchange.delete", exchange=top)


@case
def nowait(w: World) -> None:
    a = w.client()
    q = w.queue(a, exclusive=True)
    x = w.name("x")
    w.say("no answer to any of these but the last")
    a.send(1, "exchange.declare", exchange=x, type="direct", nowait=True)
    a.send(1, "queue.bind", queue=q, exchange=x, routing_key="k", nowait=True)
    a.send(1, "exchange.bind", destination=x, source="amq.fanout", nowait=True)
    a.send(1, "exchange.unbind", destination=x, source="amq.fanout", nowait=True)
    a.publish(1, x, "k")
    w.attempt(a, "basic.get", queue=q, no_ack=True)
    a.send(1, "exchange.delete", exchange=x, nowait=True)
    w.attempt(a, "exchange.declare", exchange=x, type="direct", passive=True)


@case
def alternate_exchange_argument(w: World) -> None:
    a = w.client()
    q, other = w.queue(a, exclusive=True), w.exchange(a, "other", "fanout")
    w.attempt(a, "queue.bind", queue=q, exchange=other)
    x = w.name("x")
    w.attempt(a, "exchange.declare", exchange=x, type="direct", auto_delete=True,
              arguments={"alternate-exchange": other})  # fmt: skip
    w.attempt(a, "exchange.delete", exchange=x)
    w.attempt(a, "exchange.delete", exchange=other)


@case
def bindings_between_what_is_missing(w: World) -> None:
    """Of two missing ends the source is named."""
    a = w.client()
    x, source, target = w.exchange(a, auto_delete=True), w.name("source"), w.name("target")
    for method in ("exchange.bind", "exchange.unbind"):
        w.attempt(a, method, destination=target, source=source)
        w.attempt(a, method, destination=target, source=x)
        w.attempt(a, method, destination=x, source=source)
        for ends in (("", source), (target, ""), ("", "")):
            w.attempt(a, method, destination=ends[0], source=ends[1])
    w.attempt(a, "exchange.delete", exchange=x)
