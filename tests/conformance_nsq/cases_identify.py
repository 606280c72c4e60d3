"""IDENTIFY: every field and its bounds, what is answered, and when it may be said."""

import json
from typing import Any

from tests.conformance_nsq.case import World, case


def _one(w: World, **fields: Any) -> None:
    """One IDENTIFY on a connection of its own; an error ends it."""
    a = w.client()
    if a.identify(**fields).kind == "error":
        a.fate()
    a.close_socket()


@case()
def without_negotiation_the_answer_is_ok(w: World) -> None:
    _one(w)
    _one(w, feature_negotiation=False)
    _one(w, client_id="c", hostname="h", user_agent="u/1")


@case()
def what_is_negotiated(w: World) -> None:
    _one(w, feature_negotiation=True)
    _one(w, feature_negotiation=True, msg_timeout=1500, sample_rate=7, output_buffer_size=100)
    _one(w, feature_negotiation=True, output_buffer_size=-1, output_buffer_timeout=-1)
    _one(w, feature_negotiation=True, deflate=True, deflate_level=3)
    _one(w, feature_negotiation=True, deflate=True)
    _one(w, feature_negotiation=True, deflate=True, deflate_level=9)
    _one(w, feature_negotiation=True, deflate=True, deflate_level=-4)
    _one(w, feature_negotiation=True, snappy=True)


@case()
def tls_is_not_offered_without_a_certificate(w: World) -> None:
    _one(w, feature_negotiation=True, tls_v1=True)
    _one(w, tls_v1=True)


@case("bare")
def compression_that_is_switched_off_is_not_offered(w: World) -> None:
    _one(w, feature_negotiation=True, deflate=True)
    _one(w, feature_negotiation=True, snappy=True)
    _one(w, feature_negotiation=True, snappy=True, deflate=True)


@case()
def both_compressions_at_once(w: World) -> None:
    _one(w, feature_negotiation=True, snappy=True, deflate=True)
    _one(w, snappy=True, deflate=True)


@case()
def heartbeat_interval(w: World) -> None:
    for value in (-2, -1, 0, 1, 999, 1000, 60_000, 60_001):
        _one(w, heartbeat_interval=value)


@case()
def output_buffer_size(w: World) -> None:
    for value in (-2, -1, 0, 1, 63, 64, 65_536, 65_537):
        _one(w, output_buffer_size=value)


@case()
def output_buffer_timeout(w: World) -> None:
    for value in (-2, -1, 0, 1, 24, 25, 30_000, 30_001):
        _one(w, output_buffer_timeout=value)


@case()
def sample_rate(w: World) -> None:
    for value in (-1, 0, 1, 99, 100):
        _one(w, sample_rate=value)


@case()
def msg_timeout(w: World) -> None:
    for value in (-1, 0, 1, 999, 1000, 900_000, 900_001):
        _one(w, msg_timeout=value)


@case("small")
def bounds_that_are_configured(w: World) -> None:
    _one(w, feature_negotiation=True)
    for value in (3000, 3001):
        _one(w, msg_timeout=value)
    for value in (5000, 5001):
        _one(w, heartbeat_interval=value)
    for value in (1000, 1001):
        _one(w, output_buffer_size=value, output_buffer_timeout=value)
    _one(w, feature_negotiation=True, deflate=True, deflate_level=6)


@case()
def wrong_types(w: World) -> None:
    for field, value in (
        ("client_id", 1),
        ("hostname", []),
        ("user_agent", {}),
        ("feature_negotiation", "true"),
        ("heartbeat_interval", "1000"),
        ("heartbeat_interval", 1000.5),
        ("output_buffer_size", True),
        ("tls_v1", 1),
        ("deflate_level", "high"),
        ("sample_rate", "1"),
        ("msg_timeout", [1]),
    ):
        w.say(f"{field} = {value!r}")
        a = w.client()
        a.send("IDENTIFY", json.dumps({field: value}).encode())
        event = a.receive_quietly()
        # The rest of the text is the JSON reader's own.
        a.note(f"< {event.kind} {' '.join(event.text.split()[:6])}")
        a.fate()


@case()
def bodies_that_are_no_json_object(w: World) -> None:
    for body in (b"{", b"[]", b"1", b'"x"', b"\xff", b"{} {}", b" "):
        a = w.client()
        a.send("IDENTIFY", body)
        event = a.receive_quietly()
        a.note(f"< {event.kind} {' '.join(event.text.split()[:6])}")
        a.fate()


@case()
def null_and_unknown_fields(w: World) -> None:
    a = w.client()
    a.ask("IDENTIFY", b"null")
    for field in ("client_id", "heartbeat_interval", "tls_v1"):
        _one(w, **{field: None})
    _one(w, short_id="x", long_id="y", something={"else": 1})
    _one(w, topology_region="r", topology_zone="z")
    _one(w, FEATURE_NEGOTIATION=True)


@case()
def body_sizes(w: World) -> None:
    for size in (b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x80\0\0\0"):
        a = w.client()
        a.send_raw(b"IDENTIFY\n" + size, f"IDENTIFY with size {size!r}")
        a.fate()
    a = w.client()
    a.send_raw(b"IDENTIFY\n\0\0", "IDENTIFY with half a size")
    a.finish_sending()
    a.fate()
    a = w.client()
    a.send_raw(b"IDENTIFY\n\0\0\0\5{}", "IDENTIFY with half a body")
    a.finish_sending()
    a.fate()


@case()
def a_body_over_the_limit(w: World) -> None:
    a = w.client()
    a.send_raw(b"IDENTIFY\n" + (5_242_880 + 1).to_bytes(4, "big"), "IDENTIFY of 5242881 bytes")
    a.fate()


@case("small")
def a_body_over_a_small_limit(w: World) -> None:
    _one(w, user_agent="u" * 400)


@case()
def twice(w: World) -> None:
    a = w.client()
    a.identify(client_id="one")
    a.identify(client_id="two", feature_negotiation=True, msg_timeout=2000)
    a.ask(f"SUB {w.name('t')} c")
    a.identify(client_id="three")
    a.fate()


@case()
def parameters_are_passed_over(w: World) -> None:
    a = w.client()
    a.ask("IDENTIFY and more", b"{}")
    a.ask(f"PUB {w.name('t')}", b"x")


@case()
def after_publishing(w: World) -> None:
    a = w.client()
    t = w.name("t")
    a.ask(f"PUB {t}", b"x")
    a.identify(client_id="late")
    a.ask(f"PUB {t}", b"x")
