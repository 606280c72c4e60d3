"""AMQP 0-9-1 bytes for tests, written down a second time on purpose.

The product has its own codec; a test that used it could not notice when both ends agree
on a mistake.  So this one shares nothing with it: a table of methods copied by hand from
the specification, plain functions, slow and obvious.

Goes in: names and Python values.  Comes out: frame bytes, or the reverse.
"""

import struct
from dataclasses import dataclass
from typing import Any

METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
FRAME_END = 0xCE
PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"

# name: (class id, method id, "field:type ..."); types: o octet, h short, l long, q long long,
# b bit, s short string, S long string, t table.
_SPEC: dict[str, tuple[int, int, str]] = {
    "connection.start": (10, 10, ("version_major:o version_minor:o server_properties:t "
                                 "mechanisms:S locales:S")),
    "connection.start-ok": (10, 11, "client_properties:t mechanism:s response:S locale:s"),
    "connection.secure": (10, 20, "challenge:S"),
    "connection.secure-ok": (10, 21, "response:S"),
    "connection.tune": (10, 30, "channel_max:h frame_max:l heartbeat:h"),
    "connection.tune-ok": (10, 31, "channel_max:h frame_max:l heartbeat:h"),
    "connection.open": (10, 40, "virtual_host:s reserved_1:s reserved_2:b"),
    "connection.open-ok": (10, 41, "reserved_1:s"),
    "connection.close": (10, 50, "code:h text:s class_id:h method_id:h"),
    "connection.close-ok": (10, 51, ""),
    "connection.blocked": (10, 60, "reason:s"),
    "connection.unblocked": (10, 61, ""),
    "connection.update-secret": (10, 70, "new_secret:S reason:s"),
    "connection.update-secret-ok": (10, 71, ""),
    "channel.open": (20, 10, "reserved_1:s"),
    "channel.open-ok": (20, 11, "reserved_1:S"),
    "channel.flow": (20, 20, "active:b"),
    "channel.flow-ok": (20, 21, "active:b"),
    "channel.close": (20, 40, "code:h text:s class_id:h method_id:h"),
    "channel.close-ok": (20, 41, ""),
    "access.request": (30, 10, "realm:s exclusive:b passive:b active:b write:b read:b"),
    "access.request-ok": (30, 11, "ticket:h"),
    "exchange.declare": (40, 10, ("ticket:h exchange:s type:s passive:b durable:b auto_delete:b "
                                 "internal:b nowait:b arguments:t")),
    "exchange.declare-ok": (40, 11, ""),
    "exchange.delete": (40, 20, "ticket:h exchange:s if_unused:b nowait:b"),
    "exchange.delete-ok": (40, 21, ""),
    "exchange.bind": (40, 30, ("ticket:h destination:s source:s routing_key:s nowait:b "
                              "arguments:t")),
    "exchange.bind-ok": (40, 31, ""),
    "exchange.unbind": (40, 40, ("ticket:h destination:s source:s routing_key:s nowait:b "
                                "arguments:t")),
    "exchange.unbind-ok": (40, 51, ""),
    "queue.declare": (50, 10, ("ticket:h queue:s passive:b durable:b exclusive:b auto_delete:b "
                              "nowait:b arguments:t")),
    "queue.declare-ok": (50, 11, "queue:s messages:l consumers:l"),
    "queue.bind": (50, 20, "ticket:h queue:s exchange:s routing_key:s nowait:b arguments:t"),
    "queue.bind-ok": (50, 21, ""),
    "queue.purge": (50, 30, "ticket:h queue:s nowait:b"),
    "queue.purge-ok": (50, 31, "messages:l"),
    "queue.delete": (50, 40, "ticket:h queue:s if_unused:b if_empty:b nowait:b"),
    "queue.delete-ok": (50, 41, "messages:l"),
    "queue.unbind": (50, 50, "ticket:h queue:s exchange:s routing_key:s arguments:t"),
    "queue.unbind-ok": (50, 51, ""),
    "basic.qos": (60, 10, "prefetch_size:l prefetch_count:h global_:b"),
    "basic.qos-ok": (60, 11, ""),
    "basic.consume": (60, 20, ("ticket:h queue:s consumer_tag:s no_local:b no_ack:b exclusive:b "
                              "nowait:b arguments:t")),
    "basic.consume-ok": (60, 21, "consumer_tag:s"),
    "basic.cancel": (60, 30, "consumer_tag:s nowait:b"),
    "basic.cancel-ok": (60, 31, "consumer_tag:s"),
    "basic.publish": (60, 40, "ticket:h exchange:s routing_key:s mandatory:b immediate:b"),
    "basic.return": (60, 50, "code:h text:s exchange:s routing_key:s"),
    "basic.deliver": (60, 60, ("consumer_tag:s delivery_tag:q redelivered:b exchange:s "
                              "routing_key:s")),
    "basic.get": (60, 70, "ticket:h queue:s no_ack:b"),
    "basic.get-ok": (60, 71, "delivery_tag:q redelivered:b exchange:s routing_key:s messages:l"),
    "basic.get-empty": (60, 72, "reserved_1:s"),
    "basic.ack": (60, 80, "delivery_tag:q multiple:b"),
    "basic.reject": (60, 90, "delivery_tag:q requeue:b"),
    "basic.recover-async": (60, 100, "requeue:b"),
    "basic.recover": (60, 110, "requeue:b"),
    "basic.recover-ok": (60, 111, ""),
    "basic.nack": (60, 120, "delivery_tag:q multiple:b requeue:b"),
    "tx.select": (90, 10, ""),
    "tx.select-ok": (90, 11, ""),
    "tx.commit": (90, 20, ""),
    "tx.commit-ok": (90, 21, ""),
    "tx.rollback": (90, 30, ""),
    "tx.rollback-ok": (90, 31, ""),
    "confirm.select": (85, 10, "nowait:b"),
    "confirm.select-ok": (85, 11, ""),
}  # fmt: skip

METHOD_IDS: dict[str, tuple[int, int]] = {name: spec[:2] for name, spec in _SPEC.items()}
_NAMES = {ids: name for name, ids in METHOD_IDS.items()}
_INTEGERS = {"o": ">B", "h": ">H", "l": ">I", "q": ">Q"}
PROPERTIES = (
    "content_type:s content_encoding:s headers:t delivery_mode:o priority:o correlation_id:s "
    "reply_to:s expiration:s message_id:s timestamp:q type:s user_id:s app_id:s cluster_id:s"
)  # fmt: skip


@dataclass(frozen=True)
class Typed:
    """A table value whose type letter matters: ``Typed("s", 7)`` is a signed short."""

    letter: str
    value: Any


@dataclass(frozen=True)
class Frame:
    type: int
    channel: int
    payload: bytes


def _fields(spec: str) -> list[tuple[str, str]]:
    return [(name, letter) for name, letter in (field.split(":") for field in spec.split())]


def short_string(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return bytes([len(data)]) + data


def long_string(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack(">I", len(data)) + data


_TABLE_INTEGERS = {"b": ">b", "B": ">B", "s": ">h", "u": ">H", "I": ">i", "i": ">I", "l": ">q",
                   "T": ">Q", "f": ">f", "d": ">d", "t": ">?"}  # fmt: skip


def encode_value(value: Any) -> bytes:
    """One table value with its type letter; plain Python values get the usual letter."""
    if isinstance(value, Typed):
        letter, value = value.letter, value.value
    elif value is None:
        letter = "V"
    else:
        by_type = {bool: "t", int: "I", float: "d", str: "S", bytes: "x", dict: "F", list: "A"}
        letter = by_type[type(value)]
    head = letter.encode()
    if letter in _TABLE_INTEGERS:
        return head + struct.pack(_TABLE_INTEGERS[letter], value)
    if letter == "V":
        return head
    if letter == "D":
        return head + struct.pack(">Bi", *value)
    if letter == "F":
        return head + encode_table(value)
    if letter == "A":
        return head + long_string(b"".join(encode_value(item) for item in value))
    return head + long_string(value)


def encode_table(table: dict[str, Any] | bytes) -> bytes:
    """A table with its length; ``bytes`` are taken as the finished inside of one."""
    if isinstance(table, bytes):
        return long_string(table)
    return long_string(b"".join(short_string(k) + encode_value(v) for k, v in table.items()))


def encode_fields(spec: str, values: dict[str, Any]) -> bytes:
    out = bytearray()
    bits = 0  # bits already packed into the last byte
    for name, letter in _fields(spec):
        value = values.pop(name, {"s": "", "S": "", "t": {}}.get(letter, 0))
        if letter == "b":
            if bits % 8 == 0:
                out.append(0)
            out[-1] |= bool(value) << (bits % 8)
            bits += 1
            continue
        bits = 0
        if letter in _INTEGERS:
            out += struct.pack(_INTEGERS[letter], value)
        else:
            out += {"s": short_string, "S": long_string, "t": encode_table}[letter](value)
    assert not values, f"no such field: {sorted(values)}"
    return bytes(out)


def encode_method(name: str, **values: Any) -> bytes:
    """The payload of a method frame."""
    class_id, method_id, spec = _SPEC[name]
    return struct.pack(">HH", class_id, method_id) + encode_fields(spec, values)


def encode_frame(frame_type: int, channel: int, payload: bytes) -> bytes:
    return struct.pack(">BHI", frame_type, channel, len(payload)) + payload + bytes([FRAME_END])


def method_frame(channel: int, name: str, **values: Any) -> bytes:
    return encode_frame(METHOD, channel, encode_method(name, **values))


def encode_properties(values: dict[str, Any]) -> bytes:
    """Property flags and the values present, in the order of the specification."""
    flags = 0
    out = b""
    for index, (name, letter) in enumerate(_fields(PROPERTIES)):
        if name in values:
            flags |= 1 << (15 - index)
            out += encode_fields(f"{name}:{letter}", {name: values[name]})
    assert not set(values) - {name for name, _ in _fields(PROPERTIES)}
    return struct.pack(">H", flags) + out


def header_frame(
    channel: int, body_size: int, properties: dict[str, Any], class_id: int = 60
) -> bytes:
    payload = struct.pack(">HHQ", class_id, 0, body_size) + encode_properties(properties)
    return encode_frame(HEADER, channel, payload)


def method_fields(name: str) -> list[tuple[str, str]]:
    """The fields of a method in their order, each with the letter of its type."""
    return _fields(_SPEC[name][2])


def property_fields() -> list[tuple[str, str]]:
    return _fields(PROPERTIES)


def content_frames(
    channel: int, body: bytes, properties: dict[str, Any], frame_max: int = 131072
) -> bytes:
    """Header frame and as many body frames as the limit asks for."""
    room = frame_max - 8
    parts = [body[at : at + room] for at in range(0, len(body), room)]
    frames = b"".join(encode_frame(BODY, channel, part) for part in parts)
    return header_frame(channel, len(body), properties) + frames


class Reader:
    """Takes values off the front of a payload."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, count: int) -> bytes:
        if self.at + count > len(self.data):
            raise ValueError("payload too short")
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, fmt: str) -> Any:
        return struct.unpack(fmt, self.take(struct.calcsize(fmt)))[0]

    def short_string(self) -> str:
        return self.take(self.number(">B")).decode()

    def long_string(self) -> bytes:
        return self.take(self.number(">I"))

    def table(self) -> dict[str, Any]:
        inner = Reader(self.long_string())
        table = {}
        while inner.at < len(inner.data):
            key = inner.short_string()
            table[key] = inner.value()
        return table

    def value(self) -> Any:
        letter = self.take(1).decode("latin-1")
        if letter in _TABLE_INTEGERS:
            plain = self.number(_TABLE_INTEGERS[letter])
            return plain if letter in "tId" else Typed(letter, plain)
        if letter == "S":
            return self.long_string().decode()
        if letter == "F":
            return self.table()
        if letter == "V":
            return None
        if letter == "D":
            return Typed("D", struct.unpack(">Bi", self.take(5)))
        if letter == "A":
            inner = Reader(self.long_string())
            items = []
            while inner.at < len(inner.data):
                items.append(inner.value())
            return items
        if letter == "x":
            return self.long_string()
        raise ValueError(f"unknown table type {letter!r}")


def _decode_fields(reader: Reader, spec: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    bits = byte = 0
    for name, letter in _fields(spec):
        if letter == "b":
            if bits % 8 == 0:
                byte = reader.number(">B")
            values[name] = bool(byte >> (bits % 8) & 1)
            bits += 1
            continue
        bits = 0
        if letter in _INTEGERS:
            values[name] = reader.number(_INTEGERS[letter])
        elif letter == "S":
            values[name] = reader.long_string().decode()
        else:
            values[name] = reader.short_string() if letter == "s" else reader.table()
    return values


def decode_method(payload: bytes) -> tuple[str, dict[str, Any]]:
    """Method name and its fields; reserved fields are left out."""
    reader = Reader(payload)
    ids = (reader.number(">H"), reader.number(">H"))
    name = _NAMES[ids]
    values = _decode_fields(reader, _SPEC[name][2])
    if reader.at != len(payload):
        raise ValueError(f"{len(payload) - reader.at} bytes too many in {name}")
    return name, {k: v for k, v in values.items() if not k.startswith("reserved")}


def decode_header(payload: bytes) -> tuple[int, int, dict[str, Any]]:
    """Class id, body size, properties."""
    reader = Reader(payload)
    class_id = reader.number(">H")
    reader.number(">H")
    body_size = reader.number(">Q")
    flags = reader.number(">H")
    present = [f for i, f in enumerate(_fields(PROPERTIES)) if flags >> (15 - i) & 1]
    spec = " ".join(f"{name}:{letter}" for name, letter in present)
    return class_id, body_size, _decode_fields(reader, spec)


def split_frames(data: bytes) -> tuple[list[Frame], bytes]:
    """Whole frames at the front of ``data``, and the rest."""
    frames = []
    at = 0
    while len(data) - at >= 7:
        frame_type, channel, size = struct.unpack_from(">BHI", data, at)
        if len(data) - at < size + 8:
            break
        if data[at + 7 + size] != FRAME_END:
            raise ValueError("the broker sent a frame without its end")
        frames.append(Frame(frame_type, channel, data[at + 7 : at + 7 + size]))
        at += size + 8
    return frames, data[at:]
