"""Frames: size, end byte, type, channel, order of content; and methods nobody knows."""

import struct

from tests.conformance.case import World, case
from tests.helpers import raw_codec as codec

FRAME_MAX = 131072
_WITH_CONTENT = ("basic.publish", "basic.deliver", "basic.return", "basic.get-ok")


@case
def frame_of_exactly_frame_max(w: World) -> None:
    """Item 9: the eight bytes around the payload count: payload FRAME_MAX - 8 is the limit."""
    a = w.client(frame_max=4096)
    q = w.queue(a, exclusive=True)
    a.publish(1, "", q, b"x" * (4096 - 8))
    w.barrier(a)
    got = a.call(1, "basic.get", queue=q, no_ack=True)
    a.note(f"< {len(got.body)} bytes")


@case
def frame_payload_of_frame_max(w: World) -> None:
    """Item 9: the overhead is forgiven: a payload of FRAME_MAX bytes passes."""
    a = w.client(frame_max=4096)
    q = w.queue(a, exclusive=True)
    a.send(1, "basic.publish", routing_key=q)
    a.send_bytes(codec.header_frame(1, 4096, {}), "header 4096 bytes")
    a.send_frame(codec.BODY, 1, b"x" * 4096)
    w.barrier(a)


@case
def frame_one_byte_too_big(w: World) -> None:
    """Item 9."""
    a = w.client(frame_max=4096)
    q = w.queue(a, exclusive=True)
    a.send(1, "basic.publish", routing_key=q)
    a.send_bytes(codec.header_frame(1, 4097, {}), "header 4097 bytes")
    a.send_frame(codec.BODY, 1, b"x" * 4097)
    w.fate(a)


@case
def frame_too_big_announced_only(w: World) -> None:
    """Item 9: the size alone is enough: nobody waits for the bytes."""
    a = w.client()
    a.send_bytes(struct.pack(">BHI", 1, 1, FRAME_MAX + 1), "start of a frame one byte too big")
    w.fate(a)


@case
def frame_of_four_gigabytes_announced(w: World) -> None:
    """Item 9."""
    a = w.client()
    a.send_bytes(struct.pack(">BHI", 3, 1, 0xFFFFFFFF), "start of a frame of 4 GiB")
    w.fate(a)


@case
def frame_wrong_end(w: World) -> None:
    """Item 9."""
    a = w.client()
    frame = bytearray(codec.method_frame(1, "basic.qos"))
    frame[-1] = 0xCD
    a.send_bytes(bytes(frame), "basic.qos ending in 0xCD")
    w.fate(a)


@case
def frame_wrong_end_on_channel_0(w: World) -> None:
    """Item 9."""
    a = w.client()
    frame = codec.encode_frame(codec.HEARTBEAT, 0, b"")[:-1] + b"\x00"
    a.send_bytes(frame, "heartbeat ending in 0x00")
    w.fate(a)


def _unknown_type(w: World, frame_type: int, channel: int) -> None:
    a = w.client()
    a.send_frame(frame_type, channel, b"abc")
    w.fate(a)


@case
def frame_type_0(w: World) -> None:
    """Item 9."""
    _unknown_type(w, 0, 1)


@case
def frame_type_4(w: World) -> None:
    """Item 9."""
    _unknown_type(w, 4, 1)


@case
def frame_type_9_on_channel_0(w: World) -> None:
    """Item 9."""
    _unknown_type(w, 9, 0)


@case
def frame_type_255_on_unopened_channel(w: World) -> None:
    """Item 9."""
    _unknown_type(w, 255, 77)


@case
def heartbeat_on_channel_1(w: World) -> None:
    """Item 10."""
    a = w.client()
    a.send_frame(codec.HEARTBEAT, 1, b"")
    w.fate(a)


@case
def heartbeat_on_unopened_channel(w: World) -> None:
    """Item 10."""
    a = w.client()
    a.send_frame(codec.HEARTBEAT, 9, b"")
    w.fate(a)


@case
def heartbeat_with_payload(w: World) -> None:
    a = w.client()
    a.send_frame(codec.HEARTBEAT, 0, b"abc")
    w.fate(a, timeout_s=1.0)


@case
def empty_method_frame(w: World) -> None:
    a = w.client()
    a.send_frame(codec.METHOD, 1, b"")
    w.fate(a, timeout_s=4.0)


@case
def method_frame_of_three_bytes(w: World) -> None:
    a = w.client()
    a.send_frame(codec.METHOD, 1, b"\x00\x3c\x00")
    w.fate(a, timeout_s=4.0)


@case
def unknown_class(w: World) -> None:
    """Item 12."""
    a = w.client()
    a.send_frame(codec.METHOD, 1, struct.pack(">HH", 99, 10))
    w.fate(a, timed=False, timeout_s=4.0)


@case
def unknown_method(w: World) -> None:
    """Item 12."""
    a = w.client()
    a.send_frame(codec.METHOD, 1, struct.pack(">HH", 50, 99))
    w.fate(a, timed=False, timeout_s=4.0)


@case
def unknown_method_on_channel_0(w: World) -> None:
    """Item 12."""
    a = w.client()
    a.send_frame(codec.METHOD, 0, struct.pack(">HH", 10, 99))
    w.fate(a, timed=False, timeout_s=4.0)


@case
def unknown_class_before_open(w: World) -> None:
    """Item 12."""
    a = w.raw()
    a.start()
    a.send_frame(codec.METHOD, 0, struct.pack(">HH", 99, 99))
    w.fate(a, timed=False, timeout_s=6.0)


@case
def known_method_of_the_server(w: World) -> None:
    """Item 12: a method only a broker may send."""
    a = w.client()
    a.send(1, "queue.declare-ok", queue="x")
    w.fate(a)


@case
def deliver_from_the_client(w: World) -> None:
    a = w.client()
    a.send(1, "basic.deliver", consumer_tag="x", delivery_tag=1)
    w.fate(a, timeout_s=3.0)


@case
def return_from_the_client(w: World) -> None:
    """It carries content, so the broker waits for the content first."""
    a = w.client()
    content = codec.content_frames(1, b"m", {})
    a.send(1, "basic.return", code=312, text="NO_ROUTE")
    a.send_bytes(content, "content of it")
    w.fate(a, timeout_s=3.0)


@case
def close_ok_behind_frames_under_way(w: World) -> None:
    """What the client sent before it knew is dropped; close-ok in the same packet counts."""
    a = w.client()
    a.send(1, "basic.recover-ok")
    a.expect("connection.close")
    late = codec.content_frames(1, b"m", {}) + codec.method_frame(1, "basic.qos")
    close_ok = codec.method_frame(0, "connection.close-ok")
    a.send_bytes(late + close_ok, "content without a method, basic.qos, connection.close-ok")
    w.fate(a)


@case
def connection_method_on_channel_1(w: World) -> None:
    """Item 10."""
    a = w.client()
    a.send(1, "connection.close", code=200)
    w.fate(a)


@case
def channel_method_on_channel_0(w: World) -> None:
    a = w.client()
    a.send(0, "channel.open")
    w.fate(a)


@case
def queue_method_on_channel_0(w: World) -> None:
    a = w.client()
    a.send(0, "queue.declare", queue="never")
    w.fate(a)


@case
def header_frame_on_channel_0(w: World) -> None:
    a = w.client()
    frame = codec.header_frame(0, 1, {})
    a.send_bytes(frame, "content header on channel 0")
    w.fate(a)


@case
def body_frame_on_channel_0(w: World) -> None:
    a = w.client()
    a.send_frame(codec.BODY, 0, b"x")
    w.fate(a)


@case
def channel_above_channel_max(w: World) -> None:
    """Item 8."""
    a = w.client(channel_max=10)
    a.send(11, "channel.open")
    w.fate(a)


@case
def channel_at_channel_max(w: World) -> None:
    """Item 8."""
    a = w.client(channel_max=10)
    a.call(10, "channel.open")


@case
def more_channels_than_channel_max(w: World) -> None:
    """Item 8: numbers do not matter, their count does: 1 is open, 2 would be one too many."""
    a = w.client(channel_max=1)
    a.send(2, "channel.open")
    w.fate(a)


@case
def method_on_unopened_channel(w: World) -> None:
    """Item 18."""
    a = w.client()
    a.send(2, "queue.declare", queue="never")
    w.fate(a)


@case
def close_of_unopened_channel(w: World) -> None:
    a = w.client()
    a.send(2, "channel.close", code=200)
    w.fate(a, timeout_s=3.0)


@case
def header_on_unopened_channel(w: World) -> None:
    a = w.client()
    a.send_bytes(codec.header_frame(2, 1, {}), "content header on channel 2")
    w.fate(a)


@case
def body_on_unopened_channel(w: World) -> None:
    a = w.client()
    a.send_frame(codec.BODY, 2, b"x")
    w.fate(a)


@case
def header_without_method(w: World) -> None:
    """Item 10."""
    a = w.client()
    a.send_bytes(codec.header_frame(1, 1, {}), "content header")
    w.fate(a)


@case
def body_without_method(w: World) -> None:
    """Item 10."""
    a = w.client()
    a.send_frame(codec.BODY, 1, b"x")
    w.fate(a)


@case
def body_without_header(w: World) -> None:
    """Item 10."""
    a = w.client()
    a.send(1, "basic.publish", routing_key="q")
    a.send_frame(codec.BODY, 1, b"x")
    w.fate(a)


@case
def method_instead_of_header(w: World) -> None:
    """Item 10."""
    a = w.client()
    a.send(1, "basic.publish", routing_key="q")
    a.send(1, "basic.qos")
    w.fate(a)


@case
def method_instead_of_body(w: World) -> None:
    """Item 10."""
    a = w.client()
    a.send(1, "basic.publish", routing_key="q")
    a.send_bytes(codec.header_frame(1, 5, {}), "content header, 5 bytes to come")
    a.send(1, "basic.qos")
    w.fate(a)


@case
def header_instead_of_body(w: World) -> None:
    """Item 10."""
    a = w.client()
    a.send(1, "basic.publish", routing_key="q")
    a.send_bytes(codec.header_frame(1, 5, {}) * 2, "content header twice")
    w.fate(a)


@case
def channel_close_instead_of_header(w: World) -> None:
    """Item 10."""
    a = w.client()
    a.send(1, "basic.publish", routing_key="q")
    a.send(1, "channel.close", code=200)
    w.fate(a, timeout_s=3.0)


@case
def channel_close_instead_of_body(w: World) -> None:
    """Item 10."""
    a = w.client()
    a.send(1, "basic.publish", routing_key="q")
    a.send_bytes(codec.header_frame(1, 5, {}), "content header, 5 bytes to come")
    a.send(1, "channel.close", code=200)
    w.fate(a, timeout_s=3.0)


@case
def other_channel_between_content_frames(w: World) -> None:
    """Frames of different channels may be mixed."""
    a = w.client()
    q = w.queue(a, exclusive=True)
    a.call(2, "channel.open")
    a.send(1, "basic.publish", routing_key=q)
    a.call(2, "basic.qos", prefetch_count=1)
    a.send_bytes(codec.header_frame(1, 4, {}), "content header, 4 bytes to come")
    a.call(2, "basic.qos", prefetch_count=1)
    a.send_frame(codec.BODY, 1, b"ab")
    a.call(2, "basic.qos", prefetch_count=1)
    a.send_frame(codec.BODY, 1, b"cd")
    w.barrier(a)
    a.call(1, "basic.get", queue=q, no_ack=True)


@case
def wrong_class_in_header(w: World) -> None:
    """Item 10."""
    a = w.client()
    a.send(1, "basic.publish", routing_key="q")
    a.send_bytes(codec.header_frame(1, 1, {}, class_id=50), "content header of class 50")
    w.fate(a)


@case
def body_larger_than_announced(w: World) -> None:
    """More bytes than the header said, in one frame."""
    a = w.client()
    q = w.queue(a, exclusive=True)
    a.send(1, "basic.publish", routing_key=q)
    a.send_bytes(codec.header_frame(1, 2, {}), "content header, 2 bytes to come")
    a.send_frame(codec.BODY, 1, b"abcd")
    w.barrier(a)
    a.call(1, "basic.get", queue=q, no_ack=True)


@case
def body_after_the_last_byte(w: World) -> None:
    a = w.client()
    q = w.queue(a, exclusive=True)
    a.publish(1, "", q, b"ab")
    a.send_frame(codec.BODY, 1, b"cd")
    w.fate(a)


@case
def empty_body_has_no_body_frame(w: World) -> None:
    a = w.client()
    q = w.queue(a, exclusive=True)
    a.publish(1, "", q, b"")
    a.call(1, "basic.get", queue=q, no_ack=True)
    a.publish(1, "", q, b"")
    a.send_frame(codec.BODY, 1, b"")
    w.fate(a)


@case
def empty_body_frames_in_between(w: World) -> None:
    a = w.client()
    q = w.queue(a, exclusive=True)
    a.send(1, "basic.publish", routing_key=q)
    a.send_bytes(codec.header_frame(1, 2, {}), "content header, 2 bytes to come")
    for part in (b"", b"a", b"", b"b"):
        a.send_frame(codec.BODY, 1, part)
    a.call(1, "basic.get", queue=q, no_ack=True)


@case
def header_with_nonzero_weight(w: World) -> None:
    a = w.client()
    q = w.queue(a, exclusive=True)
    a.send(1, "basic.publish", routing_key=q)
    payload = struct.pack(">HHQH", 60, 1, 1, 0)
    a.send_frame(codec.HEADER, 1, payload)
    a.send_frame(codec.BODY, 1, b"x")
    w.fate(a, timeout_s=3.0)


@case
def header_frame_too_short(w: World) -> None:
    a = w.client()
    a.send(1, "basic.publish", routing_key="q")
    a.send_frame(codec.HEADER, 1, struct.pack(">HHQ", 60, 0, 1))
    w.fate(a, timeout_s=3.0)


@case
def header_frame_cut_in_the_body_size(w: World) -> None:
    a = w.client()
    a.send(1, "basic.publish", routing_key="q")
    a.send_frame(codec.HEADER, 1, struct.pack(">HHI", 60, 0, 1))
    w.fate(a, timed=False, timeout_s=3.0)


@case
def empty_header_frame(w: World) -> None:
    a = w.client()
    a.send(1, "basic.publish", routing_key="q")
    a.send_frame(codec.HEADER, 1, b"")
    w.fate(a, timed=False, timeout_s=3.0)


@case
def body_size_of_all_ones(w: World) -> None:
    """A message of 2^64-1 bytes announced: refused before a byte of it is stored."""
    a = w.client()
    q = w.queue(a, exclusive=True)
    a.send(1, "basic.publish", routing_key=q)
    a.send_bytes(codec.header_frame(1, 2**64 - 1, {}), "content header, 2^64-1 bytes to come")
    a.send_frame(codec.BODY, 1, b"x")
    w.fate(a, timed=False, timeout_s=1.5)


@case
def body_size_over_the_limit(w: World) -> None:
    """Item 86."""
    a = w.client()
    q = w.queue(a, exclusive=True)
    a.send(1, "basic.publish", routing_key=q)
    a.send_bytes(codec.header_frame(1, 2**27 + 1, {}), "content header, 128 MiB + 1 to come")
    a.send_frame(codec.BODY, 1, b"x")
    w.fate(a, timed=False, timeout_s=1.5)


# Property lists ------------------------------------------------------------------------


def _publish_header(w: World, flags_and_values: bytes, note: str) -> None:
    a = w.client()
    q = w.queue(a, exclusive=True)
    a.send(1, "basic.publish", routing_key=q)
    payload = struct.pack(">HHQ", 60, 0, 1) + flags_and_values
    a.send_frame(codec.HEADER, 1, payload, note)
    a.send_frame(codec.BODY, 1, b"x")
    w.fate(a, timeout_s=1.5)


@case
def properties_cut_off(w: World) -> None:
    _publish_header(w, b"\x80\x00\x20text/pl", "content type of 32 bytes, 7 there")


@case
def properties_absent_though_flagged(w: World) -> None:
    _publish_header(w, b"\xf8\x00", "five properties flagged, none there")


@case
def properties_too_many_bytes(w: World) -> None:
    _publish_header(w, b"\x00\x00abc", "no property flagged, three bytes there")


@case
def properties_reserved_flag(w: World) -> None:
    _publish_header(w, b"\x00\x02", "flag of a property that does not exist")


@case
def properties_continuation_flag(w: World) -> None:
    _publish_header(w, b"\x00\x01\x00\x00", "a second, empty flag word")


@case
def properties_headers_table_cut_off(w: World) -> None:
    _publish_header(w, b"\x20\x00\x00\x00\x00\x30\x03abcS", "headers of 48 bytes, 5 there")


@case
def properties_headers_value_cut_off(w: World) -> None:
    table = struct.pack(">I", 10) + b"\x03abcS\x00\x00\x00\xffx"
    _publish_header(w, b"\x20\x00" + table, "headers with a string longer than the table")


@case
def properties_headers_unknown_type(w: World) -> None:
    table = struct.pack(">I", 6) + b"\x03abcZ\x00"
    _publish_header(w, b"\x20\x00" + table, "headers with a value of type Z")


@case
def properties_content_type_no_utf8(w: World) -> None:
    _publish_header(w, b"\x80\x00\x02\xff\xfe", "content type that is no UTF-8")


@case
def properties_all_kinds_pass_untouched(w: World) -> None:
    """Item 89: every property and every table type comes back as it went."""
    a = w.client()
    q = w.queue(a, exclusive=True)
    t = codec.Typed
    headers = {
        "t": True, "b": t("b", -3), "B": t("B", 250), "s": t("s", -300), "u": t("u", 65000),
        "I": -70000, "i": t("i", 4_000_000_000), "l": t("l", -(2**40)), "f": t("f", 0.5),
        "d": 0.25, "D": t("D", (2, 314)), "S": "text", "A": [1, "two", [3.0, None]],
        "T": t("T", 1_700_000_000), "F": {"inner": {"deep": 1}}, "V": None, "x": b"\x00\xff",
        "": "empty key",
    }  # fmt: skip
    a.publish(1, "", q, b"m", content_type="a/b", content_encoding="gzip", headers=headers,
              delivery_mode=1, priority=7, correlation_id="c", reply_to="r", expiration="60000",
              message_id="i", timestamp=1_700_000_000, type="t", user_id="guest", app_id="a",
              cluster_id="z")  # fmt: skip
    a.call(1, "basic.get", queue=q, no_ack=True)


# Arguments of methods ------------------------------------------------------------------


def _broken_declare(w: World, tail: bytes, note: str, timeout_s: float = 4.0) -> None:
    a = w.client()
    a.send_frame(codec.METHOD, 1, struct.pack(">HHH", 50, 10, 0) + tail, note)
    w.fate(a, timeout_s=timeout_s)


@case
def arguments_cut_off(w: World) -> None:
    """Item 11."""
    _broken_declare(w, b"\x10abc", "queue.declare cut off inside the name")


@case
def arguments_missing(w: World) -> None:
    """Item 11."""
    _broken_declare(w, b"\x01q", "queue.declare without flags and table")


@case
def arguments_too_many_bytes(w: World) -> None:
    """Item 11."""
    _broken_declare(w, b"\x01q\x04" + bytes(4) + b"abc", "queue.declare, 3 bytes too many", 1.0)


@case
def arguments_table_cut_off(w: World) -> None:
    """Item 11."""
    _broken_declare(w, b"\x01q\x04\x00\x00\x00\x30\x03abcS", "table of 48 bytes, 5 there")


@case
def arguments_table_value_cut_off(w: World) -> None:
    """Item 11."""
    table = struct.pack(">I", 10) + b"\x03abcS\x00\x00\x00\xffx"
    _broken_declare(w, b"\x01q\x04" + table, "table with a string longer than the table")


@case
def arguments_table_unknown_type(w: World) -> None:
    """Item 11."""
    table = struct.pack(">I", 6) + b"\x03abcZ\x00"
    _broken_declare(w, b"\x01q\x04" + table, "table with a value of type Z")


@case
def arguments_table_key_cut_off(w: World) -> None:
    """Item 11."""
    table = struct.pack(">I", 3) + b"\x09ab"
    _broken_declare(w, b"\x01q\x04" + table, "table with a key longer than the table")


@case
def arguments_array_cut_off(w: World) -> None:
    table = struct.pack(">I", 10) + b"\x01aA\x00\x00\x00\x09I\x00\x00"
    _broken_declare(w, b"\x01q\x04" + table, "table with an array cut off")


@case
def arguments_table_inner_too_long(w: World) -> None:
    """Item 11."""
    table = struct.pack(">I", 9) + b"\x01aF\x00\x00\x00\xf0\x01b"
    _broken_declare(w, b"\x01q\x04" + table, "table in a table, longer than the outer one")


@case
def arguments_table_twice_the_same_key(w: World) -> None:
    q = codec.short_string(w.name("q"))
    pair = b"\x01aI\x00\x00\x00\x01"
    table = struct.pack(">I", 2 * len(pair)) + pair + pair
    _broken_declare(w, q + b"\x04" + table, "queue.declare with an argument given twice", 1.0)


def _nested(depth: int) -> bytes:
    table = struct.pack(">I", 0)
    for _ in range(depth):
        table = struct.pack(">I", len(table) + 3) + b"\x01aF" + table
    return table


@case
def arguments_table_nested_100_deep(w: World) -> None:
    q = codec.short_string(w.name("q"))
    _broken_declare(w, q + b"\x04" + _nested(100), "queue.declare, table 100 deep", 1.0)


@case
def arguments_table_nested_10000_deep(w: World) -> None:
    q = codec.short_string(w.name("q"))
    _broken_declare(w, q + b"\x04" + _nested(10_000), "queue.declare, table 10000 deep", 3.0)


@case
def arguments_name_no_utf8(w: World) -> None:
    """Item 23."""
    _broken_declare(w, b"\x02\xff\xfe\x04" + bytes(4), "queue.declare, name no UTF-8", 1.0)


@case
def arguments_of_exchange_declare_no_utf8(w: World) -> None:
    """Item 23."""
    a = w.client()
    payload = struct.pack(">HHH", 40, 10, 0) + b"\x02\xff\xfe\x06direct\x00" + bytes(4)
    a.send_frame(codec.METHOD, 1, payload, "exchange.declare, name no UTF-8")
    w.fate(a, timeout_s=1.0)


@case
def arguments_routing_key_no_utf8(w: World) -> None:
    """Item 23: a routing key is bytes to the broker."""
    a = w.client()
    q = w.queue(a, exclusive=True)
    x = w.exchange(a, type_="fanout", auto_delete=True)
    w.attempt(a, "queue.bind", queue=q, exchange=x)
    name = codec.short_string(x)
    payload = struct.pack(">HHH", 60, 40, 0) + name + b"\x02\xff\xfe\x00"
    a.send_frame(codec.METHOD, 1, payload, "publish with a routing key that is no UTF-8")
    a.send_off_record(codec.content_frames(1, b"m", {}))
    w.barrier(a)
    a.send_off_record(codec.method_frame(1, "queue.purge", queue=q))
    a.receive()


@case
def every_answer_from_the_client(w: World) -> None:
    """Item 12: methods only brokers say, besides those that carry a content."""
    for name in sorted(codec.METHOD_IDS):
        if name.endswith(("-ok", "-empty")) and name not in ("channel.close-ok", "basic.get-ok"):
            a = w.client()
            a.send(1, name)
            w.fate(a, timed=False, timeout_s=2.0)


@case
def every_method_on_an_unopened_channel(w: World) -> None:
    """Item 18: besides those that carry a content."""
    passed_over = (*_WITH_CONTENT, "channel.open", "channel.close-ok")
    for name in sorted(set(codec.METHOD_IDS).difference(passed_over)):
        a = w.client()
        # Without a name RabbitMQ looks for the queue that was declared last, before all else.
        named = ("queue", "s") in codec.method_fields(name)
        a.send(3, name, **({"queue": "q"} if named else {}))
        w.fate(a, timed=False, timeout_s=1.0)


@case
def close_ok_on_an_unopened_channel(w: World) -> None:
    """Item 18."""
    a = w.client()
    a.send(3, "channel.close-ok")
    w.fate(a, timed=False, timeout_s=1.0)


@case
def every_method_on_channel_0(w: World) -> None:
    """Item 10."""
    for name in sorted(codec.METHOD_IDS):
        if name not in ("connection.close", "connection.update-secret"):
            a = w.client()
            a.send(0, name)
            w.fate(a, timed=False, timeout_s=1.0)


@case
def every_method_of_the_connection_on_channel_1(w: World) -> None:
    """Item 10."""
    for name in sorted(codec.METHOD_IDS):
        if name.startswith("connection."):
            a = w.client()
            a.send(1, name)
            w.fate(a, timed=False, timeout_s=1.0)


@case
def a_name_left_out_on_an_unopened_channel(w: World) -> None:
    """Item 18."""
    a = w.client()
    a.send(3, "basic.get")
    w.fate(a, timed=False, timeout_s=1.0)
