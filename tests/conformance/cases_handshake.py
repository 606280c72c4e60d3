"""Handshake: protocol header, login, tune, open, close; right and wrong."""

import struct
from typing import Any

from tests.conformance.case import World, case, slow
from tests.helpers import raw_codec as codec
from tests.helpers.raw_amqp import RawClient


def _wrong_header(w: World, data: bytes) -> None:
    """The broker names the protocol it speaks and hangs up."""
    a = w.raw()
    a.send_bytes(data)
    a.receive_bytes(8)
    w.fate(a)


@case
def header_http_get(w: World) -> None:
    """Item 1."""
    _wrong_header(w, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")


@slow
@case
def header_amqp_0_8(w: World) -> None:
    """Item 1."""
    a = w.raw()
    a.send_bytes(b"AMQP\x01\x01\x08\x00")
    event = a.receive_quietly(2.0)
    if event.name == "connection.start":
        _note_start(a, event)
    else:
        a.receive_bytes(8)
        w.fate(a)


@case
def header_amqp_0_9(w: World) -> None:
    """Item 1: 0-9 (without the -1) is taken for 0-9-1."""
    a = w.raw()
    a.send_bytes(b"AMQP\x01\x01\x00\x09")
    _note_start(a, a.receive_quietly())


@case
def header_amqp_1_1_0_9_swapped(w: World) -> None:
    """Item 1."""
    _wrong_header(w, b"AMQP\x01\x01\x09\x00")


@case
def header_amqp_0_0_9_0(w: World) -> None:
    """Item 1."""
    a = w.raw()
    a.send_bytes(b"AMQP\x00\x00\x09\x00")
    event = a.receive_quietly(2.0)
    if event.name == "connection.start":
        _note_start(a, event)
    else:
        a.receive_bytes(8)
        w.fate(a)


@case
def header_amqp_0_0_9_2(w: World) -> None:
    """Item 1."""
    _wrong_header(w, b"AMQP\x00\x00\x09\x02")


@case
def header_amqp_1_0(w: World) -> None:
    """Item 1."""
    _wrong_header(w, b"AMQP\x00\x01\x00\x00")


@case
def header_amqp_1_0_sasl(w: World) -> None:
    """Item 1."""
    _wrong_header(w, b"AMQP\x03\x01\x00\x00")


@case
def header_wrong_first_letter(w: World) -> None:
    """Item 1: nothing is said before all eight bytes are there."""
    _wrong_header(w, b"BMQP\x00\x00\x09\x01")


@case
def header_eight_random_bytes(w: World) -> None:
    """Item 1."""
    _wrong_header(w, bytes(range(200, 208)))


@case
def header_in_two_parts(w: World) -> None:
    """Item 1."""
    a = w.raw()
    a.send_bytes(b"AMQP\x00")
    a.receive(0.3)
    a.send_bytes(b"\x00\x09\x01")
    _note_start(a, a.receive_quietly())


@case
def header_partial_then_half_close(w: World) -> None:
    """Item 1: only our half is closed: the broker must close the other one."""
    import socket

    a = w.raw()
    a.send_bytes(b"AMQP\x00")
    a.sock.shutdown(socket.SHUT_WR)
    w.fate(a)


@slow
@case
def header_never_sent(w: World) -> None:
    """Item 1."""
    a = w.raw()
    a.note("> nothing at all")
    w.fate(a)


@slow
@case
def start_ok_never_sent(w: World) -> None:
    a = w.raw()
    a.start()
    a.note("> protocol header, then nothing")
    w.fate(a)


def _note_start(a: RawClient, start: Any) -> None:
    """The parts of connection.start a client reads; values of a product are left out."""
    args = start.args
    a.note(f"< {start.name} {args['version_major']}-{args['version_minor']}")
    a.note(f"< mechanisms={args['mechanisms']!r} locales={args['locales']!r}")
    properties = args["server_properties"]
    capabilities = properties.pop("capabilities")
    a.note(f"< server properties: {sorted(properties)}")
    texts = all(isinstance(value, str) and value for value in properties.values())
    a.note(f"< server properties are non-empty strings: {texts}")
    version = properties["version"].split(".")
    a.note(f"< version is three numbers: {[part.isdigit() for part in version]}")
    for name, value in sorted(capabilities.items()):
        a.note(f"< capability {name}={value}")


@case
def start_fields(w: World) -> None:
    """Items 2 and 3."""
    a = w.raw()
    a.send_bytes(codec.PROTOCOL_HEADER)
    _note_start(a, a.receive_quietly())


def _start_ok(
    w: World, mechanism: str, response: bytes | str, **properties: Any
) -> tuple[RawClient, Any]:
    a = w.raw()
    a.start()
    a.send(
        0,
        "connection.start-ok",
        client_properties=properties,
        mechanism=mechanism,
        response=response,
        locale="en_US",
    )
    return a, None


FAILURE_CLOSE = {"authentication_failure_close": True}


@case
def login_plain(w: World) -> None:
    """Item 5."""
    a, _ = _start_ok(w, "PLAIN", f"\0{w.user}\0{w.password}")
    a.receive()


@case
def login_amqplain(w: World) -> None:
    """Item 5."""
    table = codec.encode_table({"LOGIN": w.user, "PASSWORD": w.password})[4:]
    a, _ = _start_ok(w, "AMQPLAIN", table)
    a.receive()


@case
def login_wrong_password(w: World) -> None:
    """Item 4: the client does not know authentication_failure_close: the socket just ends, late."""
    a, _ = _start_ok(w, "PLAIN", "\0guest\0wrong")
    w.fate(a)


@case
def login_wrong_password_failure_close(w: World) -> None:
    """Item 4."""
    a, _ = _start_ok(w, "PLAIN", "\0guest\0wrong", capabilities=FAILURE_CLOSE)
    w.fate(a)


@case
def login_failure_close_false(w: World) -> None:
    """Item 4."""
    no = {"authentication_failure_close": False}
    a, _ = _start_ok(w, "PLAIN", "\0guest\0wrong", capabilities=no)
    w.fate(a)


@case
def login_unknown_user_failure_close(w: World) -> None:
    """Item 4."""
    a, _ = _start_ok(w, "PLAIN", "\0nobody\0wrong", capabilities=FAILURE_CLOSE)
    w.fate(a)


@case
def login_empty_user_failure_close(w: World) -> None:
    """Item 4."""
    a, _ = _start_ok(w, "PLAIN", "\0\0", capabilities=FAILURE_CLOSE)
    w.fate(a)


@case
def login_amqplain_wrong_password(w: World) -> None:
    """Item 4."""
    table = codec.encode_table({"LOGIN": "guest", "PASSWORD": "wrong"})[4:]
    a, _ = _start_ok(w, "AMQPLAIN", table, capabilities=FAILURE_CLOSE)
    w.fate(a)


@case
def login_amqplain_without_password(w: World) -> None:
    """Item 4."""
    table = codec.encode_table({"LOGIN": "guest"})[4:]
    a, _ = _start_ok(w, "AMQPLAIN", table, capabilities=FAILURE_CLOSE)
    w.fate(a)


@case
def login_amqplain_malformed_table(w: World) -> None:
    """Item 11."""
    a, _ = _start_ok(w, "AMQPLAIN", b"\x05LOGINS\x00\x00\x00\xffguest", capabilities=FAILURE_CLOSE)
    w.fate(a)


@case
def login_malformed_plain(w: World) -> None:
    """PLAIN is authorisation, user, password with zeros between."""
    a, _ = _start_ok(w, "PLAIN", "guest:guest", capabilities=FAILURE_CLOSE)
    w.fate(a)


@case
def login_malformed_plain_without_capability(w: World) -> None:
    a, _ = _start_ok(w, "PLAIN", "guest:guest")
    w.fate(a)


@case
def login_plain_empty_response(w: World) -> None:
    a, _ = _start_ok(w, "PLAIN", "", capabilities=FAILURE_CLOSE)
    w.fate(a)


@case
def login_plain_one_zero(w: World) -> None:
    a, _ = _start_ok(w, "PLAIN", "guest\0guest", capabilities=FAILURE_CLOSE)
    w.fate(a)


@case
def login_plain_extra_zero(w: World) -> None:
    a, _ = _start_ok(w, "PLAIN", "\0guest\0guest\0", capabilities=FAILURE_CLOSE)
    w.fate(a)


@case
def login_plain_with_authorisation_id(w: World) -> None:
    a, _ = _start_ok(w, "PLAIN", f"guest\0{w.user}\0{w.password}", capabilities=FAILURE_CLOSE)
    a.receive()


@case
def login_unknown_mechanism(w: World) -> None:
    """Item 5."""
    a, _ = _start_ok(w, "KERBEROS", "x")
    w.fate(a)


@case
def login_external_without_tls(w: World) -> None:
    """Item 5: there is no certificate that could say who comes."""
    a, _ = _start_ok(w, "EXTERNAL", "", capabilities=FAILURE_CLOSE)
    w.fate(a)


@case
def login_mechanism_in_small_letters(w: World) -> None:
    """Item 5."""
    a, _ = _start_ok(w, "plain", "\0guest\0guest")
    w.fate(a)


@case
def login_empty_mechanism(w: World) -> None:
    """Item 5."""
    a, _ = _start_ok(w, "", "")
    w.fate(a)


@case
def login_strange_locale(w: World) -> None:
    """The locale is not looked at."""
    a = w.raw()
    a.start()
    a.send(0, "connection.start-ok", client_properties={}, mechanism="PLAIN",
           response="\0guest\0guest", locale="xx_YY")  # fmt: skip
    a.receive()


@case
def start_ok_malformed_table(w: World) -> None:
    """Item 11."""
    a = w.raw()
    a.start()
    payload = struct.pack(">HHI", 10, 11, 9) + b"\x03abcS\x00\x00\x00\xff" + b"\x05PLAIN"
    a.send_frame(codec.METHOD, 0, payload, "start-ok with a broken client-properties table")
    w.fate(a)


@case
def start_ok_unknown_value_type(w: World) -> None:
    """Item 11."""
    a = w.raw()
    a.start()
    a.send(0, "connection.start-ok", client_properties=b"\x03abcZ\x00", mechanism="PLAIN",
           response="\0guest\0guest", locale="en_US")  # fmt: skip
    w.fate(a)


@case
def start_ok_truncated(w: World) -> None:
    """Item 11."""
    a = w.raw()
    a.start()
    a.send_frame(codec.METHOD, 0, struct.pack(">HH", 10, 11) + b"\x00\x00", "start-ok cut off")
    w.fate(a)


@case
def start_ok_twice(w: World) -> None:
    """Item 11."""
    a = w.raw()
    a.login()
    a.send(0, "connection.start-ok", client_properties={}, mechanism="PLAIN",
           response="\0guest\0guest", locale="en_US")  # fmt: skip
    w.fate(a)


@case
def secure_ok_not_asked_for(w: World) -> None:
    """Item 11."""
    a = w.raw()
    a.login()
    a.send(0, "connection.secure-ok", response="x")
    w.fate(a)


@case
def open_before_start_ok(w: World) -> None:
    """Item 11."""
    a = w.raw()
    a.start()
    a.send(0, "connection.open", virtual_host="/")
    w.fate(a)


@case
def open_before_tune_ok(w: World) -> None:
    """Item 11."""
    a = w.raw()
    a.login()
    a.send(0, "connection.open", virtual_host="/")
    w.fate(a)


@case
def channel_open_before_start_ok(w: World) -> None:
    """Item 10."""
    a = w.raw()
    a.start()
    a.send(1, "channel.open")
    w.fate(a)


@case
def channel_open_before_connection_open(w: World) -> None:
    """Item 10."""
    a = w.raw()
    a.login()
    a.send(0, "connection.tune-ok", channel_max=10, frame_max=131072)
    a.send(1, "channel.open")
    w.fate(a)


@case
def header_frame_before_start_ok(w: World) -> None:
    """Item 10."""
    a = w.raw()
    a.start()
    a.send_frame(codec.HEADER, 0, b"\x00\x3c\x00\x00" + bytes(10))
    w.fate(a)


@case
def heartbeat_before_start_ok(w: World) -> None:
    a = w.raw()
    a.start()
    a.send_frame(codec.HEARTBEAT, 0, b"")
    w.fate(a, timeout_s=1.0)


@case
def big_frame_before_tune_ok(w: World) -> None:
    """Item 9: before the limits are agreed, 4096 bytes are the most."""
    a = w.raw()
    a.start()
    a.send(0, "connection.start-ok", client_properties={"x": "y" * 5000}, mechanism="PLAIN",
           response="\0guest\0guest", locale="en_US")  # fmt: skip
    w.fate(a)


@case
def very_big_frame_before_tune_ok(w: World) -> None:
    """Item 9."""
    a = w.raw()
    a.start()
    a.send_bytes(struct.pack(">BHI", 1, 0, 200_000) + bytes(1000), "a frame of 200000 announced")
    w.fate(a)


@case
def tune_values(w: World) -> None:
    """Item 6."""
    a = w.raw()
    a.note(f"< {a.login()}")


def _tune(w: World, **values: int) -> RawClient:
    """Tune-ok, then open in the same breath."""
    a = w.raw()
    a.login()
    a.send(0, "connection.tune-ok", **values)
    a.send(0, "connection.open", virtual_host="/")
    return a


@case
def tune_ok_lower(w: World) -> None:
    """Item 6."""
    a = _tune(w, channel_max=5, frame_max=4096, heartbeat=30)
    a.receive()


@case
def tune_ok_frame_max_zero(w: World) -> None:
    """Item 6."""
    w.fate(_tune(w, channel_max=10, frame_max=0))


@case
def tune_ok_frame_max_too_low(w: World) -> None:
    """Item 6."""
    w.fate(_tune(w, channel_max=10, frame_max=4095))


@case
def tune_ok_frame_max_too_high(w: World) -> None:
    """Item 6."""
    w.fate(_tune(w, channel_max=10, frame_max=131073))


@case
def tune_ok_channel_max_zero(w: World) -> None:
    """Item 6."""
    w.fate(_tune(w, channel_max=0, frame_max=131072))


@case
def tune_ok_channel_max_too_high(w: World) -> None:
    """Item 6."""
    w.fate(_tune(w, channel_max=2048, frame_max=131072))


@case
def tune_ok_heartbeat_higher_than_offered(w: World) -> None:
    """Item 6."""
    a = _tune(w, channel_max=10, frame_max=131072, heartbeat=600)
    a.receive()


@case
def tune_ok_truncated(w: World) -> None:
    """Item 11."""
    a = w.raw()
    a.login()
    a.send_frame(codec.METHOD, 0, struct.pack(">HHH", 10, 31, 10), "tune-ok cut off")
    w.fate(a)


@case
def everything_in_one_breath(w: World) -> None:
    """A client that waits for no answer: the whole handshake and a declare in one packet."""
    a = w.raw()
    frames = (
        codec.method_frame(0, "connection.start-ok", mechanism="PLAIN", locale="en_US",
                           response=f"\0{w.user}\0{w.password}"),
        codec.method_frame(0, "connection.tune-ok", channel_max=10, frame_max=131072),
        codec.method_frame(0, "connection.open", virtual_host="/"),
        codec.method_frame(1, "channel.open"),
        codec.method_frame(1, "queue.declare", queue=w.name("q"), exclusive=True),
    )  # fmt: skip
    a.send_bytes(codec.PROTOCOL_HEADER + b"".join(frames), "the whole handshake and a declare")
    a.note(f"< {a.receive_quietly().name}")
    for _ in range(4):
        a.receive()


@case
def open_unknown_vhost(w: World) -> None:
    """Item 7."""
    a = w.raw()
    a.login()
    a.send(0, "connection.tune-ok", channel_max=10, frame_max=131072)
    a.send(0, "connection.open", virtual_host="nowhere")
    w.fate(a)


@case
def open_empty_vhost(w: World) -> None:
    """Item 7."""
    a = w.raw()
    a.login()
    a.send(0, "connection.tune-ok", channel_max=10, frame_max=131072)
    a.send(0, "connection.open", virtual_host="")
    w.fate(a)


@case
def open_vhost_invalid_utf8(w: World) -> None:
    a = w.raw()
    a.login()
    a.send(0, "connection.tune-ok", channel_max=10, frame_max=131072)
    payload = struct.pack(">HH", 10, 40) + b"\x02\xff\xfe\x00\x00"
    a.send_frame(codec.METHOD, 0, payload, "open of a virtual host that is no UTF-8")
    w.fate(a)


@case
def open_twice(w: World) -> None:
    """Item 11."""
    a = w.client()
    a.send(0, "connection.open", virtual_host="/")
    w.fate(a)


@case
def tune_ok_again_when_open(w: World) -> None:
    """Item 11."""
    a = w.client()
    a.send(0, "connection.tune-ok", channel_max=10, frame_max=131072)
    w.fate(a)


@case
def protocol_header_again_when_open(w: World) -> None:
    a = w.client()
    a.send_bytes(codec.PROTOCOL_HEADER)
    w.fate(a)


@case
def close_handshake(w: World) -> None:
    """Item 14."""
    a = w.client()
    a.send(0, "connection.close", code=200, text="bye")
    w.fate(a, timeout_s=2.0)


@case
def close_before_open(w: World) -> None:
    a = w.raw()
    a.login()
    a.send(0, "connection.close", code=200, text="bye")
    w.fate(a)


@case
def close_before_start_ok(w: World) -> None:
    a = w.raw()
    a.start()
    a.send(0, "connection.close", code=200, text="bye")
    w.fate(a)


@case
def close_then_more_frames(w: World) -> None:
    """Item 14: what follows a close is not done."""
    a, b = w.client("A"), w.client("B")
    name = w.name("q")
    a.send(0, "connection.close", code=200, text="bye")
    a.send(1, "queue.declare", queue=name)
    w.fate(a, timeout_s=2.0)
    w.attempt(b, "queue.declare", queue=name, passive=True)


@case
def close_ok_not_asked_for(w: World) -> None:
    a = w.client()
    a.send(0, "connection.close-ok")
    w.fate(a, timeout_s=3.0)


@case
def frames_after_a_connection_error_are_ignored(w: World) -> None:
    a, b = w.client("A"), w.client("B")
    name = w.name("q")
    a.send(1, "channel.open")
    a.expect("connection.close")
    a.send(1, "queue.declare", queue=name)
    a.send(0, "connection.close-ok")
    w.fate(a)
    w.attempt(b, "queue.declare", queue=name, passive=True)


@case
def own_close_crosses_with_the_brokers(w: World) -> None:
    a = w.client()
    a.send(1, "channel.open")
    a.expect("connection.close")
    a.send(0, "connection.close", code=200, text="bye")
    w.fate(a)


@case
def update_secret(w: World) -> None:
    """Item 17."""
    a = w.client()
    a.send(0, "connection.update-secret", new_secret="guest", reason="rotation")
    event = a.receive(4.0)
    if event.name == "connection.close":
        a.send(0, "connection.close-ok")
        w.fate(a)


@slow
@case
def heartbeats_are_sent(w: World) -> None:
    """Item 13: with one second agreed, an idle broker speaks about every half second."""
    a = w.client(heartbeat=1)
    a.keep_heartbeats = True
    for _ in range(3):
        a.send_off_record(codec.encode_frame(codec.HEARTBEAT, 0, b""))
        a.expect("heartbeat", timeout_s=3.0)


@slow
@case
def heartbeats_missed(w: World) -> None:
    """Item 13: A client that says nothing for two intervals is dropped without a word."""
    a = w.client(heartbeat=1)
    w.fate(a, timed=False)
