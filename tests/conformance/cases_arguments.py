"""Optional arguments by their types: what is the same as what, what is refused in which words."""

from typing import Any

from tests.conformance.case import World, case
from tests.helpers.raw_amqp import RawClient
from tests.helpers.raw_codec import Typed


def _declared(w: World, a: RawClient, name: str, **arguments: Any) -> None:
    table = {key.replace("_", "-"): value for key, value in arguments.items()}
    w.attempt(a, "queue.declare", queue=name, exclusive=True, arguments=table)


def _declared_alone(w: World, a: RawClient, key: str, *values: Any) -> None:
    """Each as the first declaration of a queue."""
    for value in values:
        _declared(w, a, w.name("q"), **{key: value})


@case
def an_integer_is_no_float(w: World) -> None:
    a = w.client()
    for key, number in (
        ("x_message_ttl", 10),
        ("x_expires", 60000),
        ("x_max_length", 10),
        ("x_max_length_bytes", 123456),
        ("x_max_priority", 10),
    ):
        q = w.name("q")
        _declared(w, a, q, **{key: number})
        _declared(w, a, q, **{key: float(number)})
        _declared(w, a, q, **{key: Typed("f", float(number))})
        for letter in "lT":
            _declared(w, a, q, **{key: Typed(letter, number)})
    for number in (1e20, 1.5, 1e-7, -100.0, 1e16, 0.0001):
        _declared(w, a, q, x_max_priority=number)


@case
def a_text_and_a_byte_array(w: World) -> None:
    a = w.client()
    for key, text in (
        ("x_dead_letter_exchange", "amq.direct"),
        ("x_dead_letter_routing_key", "k"),
        ("x_queue_mode", "lazy"),
        ("x_overflow", "drop-head"),
        ("x_queue_type", "classic"),
    ):
        more = {"x_dead_letter_exchange": ""} if key == "x_dead_letter_routing_key" else {}
        q = w.name("q")
        _declared(w, a, q, **more, **{key: text})
        _declared(w, a, q, **more, **{key: text.encode()})
        _declared(w, a, q, **more, **{key: b"other"})
        _declared(w, a, w.name("new"), **more, **{key: text.encode()})


@case
def a_text_and_a_byte_array_of_exchanges(w: World) -> None:
    a = w.client()
    x = w.exchange(a, arguments={"alternate-exchange": "amq.direct"}, auto_delete=True)
    for value in (b"amq.direct", b"other", 5, None):
        w.attempt(
            a,
            "exchange.declare",
            exchange=x,
            type="direct",
            auto_delete=True,
            arguments={"alternate-exchange": value},
        )
    w.attempt(a, "exchange.delete", exchange=x)


@case
def a_number_of_another_type(w: World) -> None:
    a = w.client()
    values = (Typed("T", 10), Typed("D", (0, 10)), 10.0, b"10", True, None, {"a": 1}, [1], "10")
    _declared_alone(w, a, "x_message_ttl", *values)
    w.say("beside a queue that has a number, and one that has none")
    q, plain = w.name("q"), w.name("plain")
    _declared(w, a, q, x_message_ttl=10)
    _declared(w, a, plain)
    for value in values:
        if not (isinstance(value, Typed) and value.letter == "D"):
            _declared(w, a, q, x_message_ttl=value)
        _declared(w, a, plain, x_message_ttl=value)


@case
def a_queue_type_of_another_type(w: World) -> None:
    a = w.client()
    values = (Typed("T", 10), Typed("D", (1, 10)), 10.0, b"classic", True, None, {"a": 1}, [1], 1)
    _declared_alone(w, a, "x_queue_type", *values)
    plain = w.name("plain")
    _declared(w, a, plain)
    for value in values:
        _declared(w, a, plain, x_queue_type=value)


@case
def the_version_of_a_queue(w: World) -> None:
    a = w.client()
    plain, first = w.name("plain"), w.name("first")
    _declared(w, a, plain)
    _declared(w, a, plain, x_queue_version=2)
    _declared(w, a, first, x_queue_version=1)
    _declared(w, a, first)
    _declared(w, a, first, x_queue_version=2)
    _declared_alone(w, a, "x_queue_version", 2, 3, 0, -1, "2", 2.0, Typed("T", 2))


@case
def of_other_queue_types(w: World) -> None:
    """Refused when a queue is made, and not compared."""
    a = w.client()
    plain = w.name("plain")
    _declared(w, a, plain)
    for key, value in (
        ("x_max_age", "7D"),
        ("x_max_in_memory_length", 5),
        ("x_max_in_memory_bytes", 5),
        ("x_quorum_initial_group_size", 3),
        ("x_initial_cluster_size", 3),
        ("x_stream_max_segment_size_bytes", 100000),
        ("x_dead_letter_strategy", "at-least-once"),
        ("x_queue_leader_locator", "balanced"),
    ):
        _declared_alone(w, a, key, value, None)
        _declared(w, a, plain, **{key: value})
    _declared(w, a, w.name("q"), x_max_age="7D", x_message_ttl="a")


@case
def of_consumers(w: World) -> None:
    a = w.client()
    q = w.queue(a, exclusive=True)
    for key, value in (
        ("x-stream-offset", "first"),
        ("x-stream-offset", 5),
        ("x-cancel-on-ha-failover", "yes"),
        ("x-cancel-on-ha-failover", True),
        ("x-priority", Typed("T", 3)),
        ("x-priority", b"3"),
        ("x-nobody-knows", 1),
    ):
        w.attempt(
            a, "basic.consume", queue=q, consumer_tag=f"{key} {value}", arguments={key: value}
        )
