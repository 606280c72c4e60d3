"""The methods of AMQP 0-9-1 with RabbitMQ's extensions: one table, one codec over it.

In: the payload of a method frame (class id, method id, arguments).  Out: a ``Method``.
Back: a channel number, a method's key and its values in the table's order make the
whole frame, from type octet to end octet.

A method's *key* is ``class_id << 16 | method_id``, the four bytes its payload begins
with.  Consecutive bits share octets, lowest bit first.  Reserved fields keep the names
RabbitMQ gives them (``ticket``, ``out_of_band``) and have to be given when encoding.

Like RabbitMQ, the decoder wants the arguments to fill the payload exactly, and short
strings to be UTF-8 except the exchange and routing key of the methods that carry
content: those are bytes that only have to come back as they were sent.
"""

from collections.abc import Sequence
from typing import Final, final

from librt.strings import BytesWriter, read_i32_be
from mypy_extensions import i64

from penstock.protocols.amqp.codec.errors import MalformedArguments as MalformedArguments  # noqa: PLC0414
from penstock.protocols.amqp.codec.errors import MalformedTable, MalformedText
from penstock.protocols.amqp.codec.errors import UnknownMethod as UnknownMethod  # noqa: PLC0414
from penstock.protocols.amqp.codec.tables import (
    SHORT_STRING_MAX_BYTES,
    FieldReader,
    write_long_bytes,
    write_short_bytes,
    write_table,
    write_unsigned,
)

FRAME_METHOD: Final = 1
FRAME_END: Final = 0xCE

CONNECTION_START: Final = 0x000A000A
CONNECTION_START_OK: Final = 0x000A000B
CONNECTION_SECURE: Final = 0x000A0014
CONNECTION_SECURE_OK: Final = 0x000A0015
CONNECTION_TUNE: Final = 0x000A001E
CONNECTION_TUNE_OK: Final = 0x000A001F
CONNECTION_OPEN: Final = 0x000A0028
CONNECTION_OPEN_OK: Final = 0x000A0029
CONNECTION_CLOSE: Final = 0x000A0032
CONNECTION_CLOSE_OK: Final = 0x000A0033
CONNECTION_BLOCKED: Final = 0x000A003C
CONNECTION_UNBLOCKED: Final = 0x000A003D
CONNECTION_UPDATE_SECRET: Final = 0x000A0046
CONNECTION_UPDATE_SECRET_OK: Final = 0x000A0047
CHANNEL_OPEN: Final = 0x0014000A
CHANNEL_OPEN_OK: Final = 0x0014000B
CHANNEL_FLOW: Final = 0x00140014
CHANNEL_FLOW_OK: Final = 0x00140015
CHANNEL_CLOSE: Final = 0x00140028
CHANNEL_CLOSE_OK: Final = 0x00140029
ACCESS_REQUEST: Final = 0x001E000A
ACCESS_REQUEST_OK: Final = 0x001E000B
EXCHANGE_DECLARE: Final = 0x0028000A
EXCHANGE_DECLARE_OK: Final = 0x0028000B
EXCHANGE_DELETE: Final = 0x00280014
EXCHANGE_DELETE_OK: Final = 0x00280015
EXCHANGE_BIND: Final = 0x0028001E
EXCHANGE_BIND_OK: Final = 0x0028001F
EXCHANGE_UNBIND: Final = 0x00280028
EXCHANGE_UNBIND_OK: Final = 0x00280033
QUEUE_DECLARE: Final = 0x0032000A
QUEUE_DECLARE_OK: Final = 0x0032000B
QUEUE_BIND: Final = 0x00320014
QUEUE_BIND_OK: Final = 0x00320015
QUEUE_PURGE: Final = 0x0032001E
QUEUE_PURGE_OK: Final = 0x0032001F
QUEUE_DELETE: Final = 0x00320028
QUEUE_DELETE_OK: Final = 0x00320029
QUEUE_UNBIND: Final = 0x00320032
QUEUE_UNBIND_OK: Final = 0x00320033
BASIC_QOS: Final = 0x003C000A
BASIC_QOS_OK: Final = 0x003C000B
BASIC_CONSUME: Final = 0x003C0014
BASIC_CONSUME_OK: Final = 0x003C0015
BASIC_CANCEL: Final = 0x003C001E
BASIC_CANCEL_OK: Final = 0x003C001F
BASIC_PUBLISH: Final = 0x003C0028
BASIC_RETURN: Final = 0x003C0032
BASIC_DELIVER: Final = 0x003C003C
BASIC_GET: Final = 0x003C0046
BASIC_GET_OK: Final = 0x003C0047
BASIC_GET_EMPTY: Final = 0x003C0048
BASIC_ACK: Final = 0x003C0050
BASIC_REJECT: Final = 0x003C005A
BASIC_RECOVER_ASYNC: Final = 0x003C0064
BASIC_RECOVER: Final = 0x003C006E
BASIC_RECOVER_OK: Final = 0x003C006F
BASIC_NACK: Final = 0x003C0078
CONFIRM_SELECT: Final = 0x0055000A
CONFIRM_SELECT_OK: Final = 0x0055000B
TX_SELECT: Final = 0x005A000A
TX_SELECT_OK: Final = 0x005A000B
TX_COMMIT: Final = 0x005A0014
TX_COMMIT_OK: Final = 0x005A0015
TX_ROLLBACK: Final = 0x005A001E
TX_ROLLBACK_OK: Final = 0x005A001F

_TABLE: Final[dict[int, str]] = {
    CONNECTION_START: "connection.start: version_major octet, version_minor octet, "
    "server_properties table, mechanisms longstr, locales longstr",
    CONNECTION_START_OK: "connection.start-ok: client_properties table, mechanism shortstr, "
    "response longstr, locale shortstr",
    CONNECTION_SECURE: "connection.secure: challenge longstr",
    CONNECTION_SECURE_OK: "connection.secure-ok: response longstr",
    CONNECTION_TUNE: "connection.tune: channel_max short, frame_max long, heartbeat short",
    CONNECTION_TUNE_OK: "connection.tune-ok: channel_max short, frame_max long, heartbeat short",
    CONNECTION_OPEN: "connection.open: virtual_host shortstr, capabilities shortstr, insist bit",
    CONNECTION_OPEN_OK: "connection.open-ok: known_hosts shortstr",
    CONNECTION_CLOSE: "connection.close: reply_code short, reply_text shortstr, class_id short, "
    "method_id short",
    CONNECTION_CLOSE_OK: "connection.close-ok",
    CONNECTION_BLOCKED: "connection.blocked: reason shortstr",
    CONNECTION_UNBLOCKED: "connection.unblocked",
    CONNECTION_UPDATE_SECRET: "connection.update-secret: new_secret longstr, reason shortstr",
    CONNECTION_UPDATE_SECRET_OK: "connection.update-secret-ok",
    CHANNEL_OPEN: "channel.open: out_of_band shortstr",
    CHANNEL_OPEN_OK: "channel.open-ok: channel_id longstr",
    CHANNEL_FLOW: "channel.flow: active bit",
    CHANNEL_FLOW_OK: "channel.flow-ok: active bit",
    CHANNEL_CLOSE: "channel.close: reply_code short, reply_text shortstr, class_id short, "
    "method_id short",
    CHANNEL_CLOSE_OK: "channel.close-ok",
    ACCESS_REQUEST: "access.request: realm shortstr, exclusive bit, passive bit, active bit, "
    "write bit, read bit",
    ACCESS_REQUEST_OK: "access.request-ok: ticket short",
    EXCHANGE_DECLARE: "exchange.declare: ticket short, exchange shortstr, type shortstr, "
    "passive bit, durable bit, auto_delete bit, internal bit, nowait bit, arguments table",
    EXCHANGE_DECLARE_OK: "exchange.declare-ok",
    EXCHANGE_DELETE: "exchange.delete: ticket short, exchange shortstr, if_unused bit, nowait bit",
    EXCHANGE_DELETE_OK: "exchange.delete-ok",
    EXCHANGE_BIND: "exchange.bind: ticket short, destination shortstr, source shortstr, "
    "routing_key shortstr, nowait bit, arguments table",
    EXCHANGE_BIND_OK: "exchange.bind-ok",
    EXCHANGE_UNBIND: "exchange.unbind: ticket short, destination shortstr, source shortstr, "
    "routing_key shortstr, nowait bit, arguments table",
    EXCHANGE_UNBIND_OK: "exchange.unbind-ok",
    QUEUE_DECLARE: "queue.declare: ticket short, queue shortstr, passive bit, durable bit, "
    "exclusive bit, auto_delete bit, nowait bit, arguments table",
    QUEUE_DECLARE_OK: "queue.declare-ok: queue shortstr, message_count long, consumer_count long",
    QUEUE_BIND: "queue.bind: ticket short, queue shortstr, exchange shortstr, "
    "routing_key shortstr, nowait bit, arguments table",
    QUEUE_BIND_OK: "queue.bind-ok",
    QUEUE_PURGE: "queue.purge: ticket short, queue shortstr, nowait bit",
    QUEUE_PURGE_OK: "queue.purge-ok: message_count long",
    QUEUE_DELETE: "queue.delete: ticket short, queue shortstr, if_unused bit, if_empty bit, "
    "nowait bit",
    QUEUE_DELETE_OK: "queue.delete-ok: message_count long",
    QUEUE_UNBIND: "queue.unbind: ticket short, queue shortstr, exchange shortstr, "
    "routing_key shortstr, arguments table",
    QUEUE_UNBIND_OK: "queue.unbind-ok",
    BASIC_QOS: "basic.qos: prefetch_size long, prefetch_count short, global bit",
    BASIC_QOS_OK: "basic.qos-ok",
    BASIC_CONSUME: "basic.consume: ticket short, queue shortstr, consumer_tag shortstr, "
    "no_local bit, no_ack bit, exclusive bit, nowait bit, arguments table",
    BASIC_CONSUME_OK: "basic.consume-ok: consumer_tag shortstr",
    BASIC_CANCEL: "basic.cancel: consumer_tag shortstr, nowait bit",
    BASIC_CANCEL_OK: "basic.cancel-ok: consumer_tag shortstr",
    BASIC_PUBLISH: "basic.publish: ticket short, exchange shortstr, routing_key shortstr, "
    "mandatory bit, immediate bit",
    BASIC_RETURN: "basic.return: reply_code short, reply_text shortstr, exchange shortstr, "
    "routing_key shortstr",
    BASIC_DELIVER: "basic.deliver: consumer_tag shortstr, delivery_tag longlong, redelivered bit, "
    "exchange shortstr, routing_key shortstr",
    BASIC_GET: "basic.get: ticket short, queue shortstr, no_ack bit",
    BASIC_GET_OK: "basic.get-ok: delivery_tag longlong, redelivered bit, exchange shortstr, "
    "routing_key shortstr, message_count long",
    BASIC_GET_EMPTY: "basic.get-empty: cluster_id shortstr",
    BASIC_ACK: "basic.ack: delivery_tag longlong, multiple bit",
    BASIC_REJECT: "basic.reject: delivery_tag longlong, requeue bit",
    BASIC_RECOVER_ASYNC: "basic.recover-async: requeue bit",
    BASIC_RECOVER: "basic.recover: requeue bit",
    BASIC_RECOVER_OK: "basic.recover-ok",
    BASIC_NACK: "basic.nack: delivery_tag longlong, multiple bit, requeue bit",
    CONFIRM_SELECT: "confirm.select: nowait bit",
    CONFIRM_SELECT_OK: "confirm.select-ok",
    TX_SELECT: "tx.select",
    TX_SELECT_OK: "tx.select-ok",
    TX_COMMIT: "tx.commit",
    TX_COMMIT_OK: "tx.commit-ok",
    TX_ROLLBACK: "tx.rollback",
    TX_ROLLBACK_OK: "tx.rollback-ok",
}
"""Key ─► name, and its fields with their types."""


def _methods() -> dict[int, tuple[str, list[tuple[str, str]]]]:
    found: dict[int, tuple[str, list[tuple[str, str]]]] = {}
    for key, row in _TABLE.items():
        name, _, fields = row.partition(": ")
        pairs = [field.partition(" ") for field in fields.split(", ") if field]
        found[key] = name, [(field, kind) for field, _, kind in pairs]
    return found


METHODS: Final[dict[int, tuple[str, list[tuple[str, str]]]]] = _methods()

LOOSE_METHODS: Final[frozenset[int]] = frozenset(
    {BASIC_PUBLISH, BASIC_RETURN, BASIC_DELIVER, BASIC_GET_OK}
)
"""Methods whose short strings may be any bytes (they become surrogate escapes)."""


@final
class Method:
    """A decoded method: its name and its fields by name; ``size_bytes`` it had in its frame.

    The accessors say which type the table promises; asking for another is our mistake.
    """

    __slots__ = ("fields", "key", "name", "size_bytes")

    def __init__(self, key: int, name: str, fields: dict[str, object], size_bytes: int) -> None:
        self.key: int = key
        self.name: str = name
        self.fields: dict[str, object] = fields
        self.size_bytes: int = size_bytes

    def text(self, name: str) -> str:
        value = self.fields[name]
        assert isinstance(value, str), name
        return value

    def flag(self, name: str) -> bool:
        value = self.fields[name]
        assert isinstance(value, bool), name
        return value

    def number(self, name: str) -> int:
        value = self.fields[name]
        assert isinstance(value, int), name
        return value

    def table(self, name: str) -> dict[str, object]:
        value = self.fields[name]
        assert isinstance(value, dict), name
        return value

    def raw(self, name: str) -> bytes:
        value = self.fields[name]
        assert isinstance(value, bytes), name
        return value

    def __repr__(self) -> str:
        return f"Method({self.name}, {self.fields!r})"


def decode_method(payload: bytes) -> Method:
    """The method in the payload of a method frame."""
    if len(payload) < 4:
        raise MalformedArguments(f"type 1, all octets = {octets(payload)}: unknown_frame")
    key: i64 = i64(read_i32_be(payload, 0)) & 0xFFFFFFFF
    row = METHODS.get(key)
    if row is None:
        raise UnknownMethod(key >> 16, key & 0xFFFF)
    reader = FieldReader(payload, 4, len(payload))
    try:
        fields = decode_fields(reader, row[1], key in LOOSE_METHODS)
    except MalformedArguments as malformed:
        raise why_malformed(payload, key, malformed) from None
    if reader.offset != reader.end:
        raise cannot_decode(payload, key)
    return Method(key, row[0], fields, len(payload))


def why_malformed(payload: bytes, key: int, malformed: MalformedArguments) -> Exception:
    """RabbitMQ judges the shape of all arguments first, then texts, then tables."""
    if not has_shape(payload, METHODS[key][1]):
        return cannot_decode(payload, key)
    if isinstance(malformed, MalformedText):
        return malformed
    return MalformedTable(malformed.text, key)


def cannot_decode(payload: bytes, key: int) -> MalformedArguments:
    return MalformedArguments(f"cannot decode {octets(payload[4:])}", key)


def octets(data: bytes) -> str:
    """Bytes as RabbitMQ prints them; so many as a reply text can hold."""
    return "<<" + ",".join([str(octet) for octet in data[:256]]) + ">>"


def has_shape(payload: bytes, fields: list[tuple[str, str]]) -> bool:
    """True when the arguments are as long as their own length fields say."""
    reader = FieldReader(payload, 4, len(payload))
    try:
        decode_fields(reader, [(name, SHAPES.get(kind, kind)) for name, kind in fields], True)
    except MalformedArguments:
        return False
    return reader.offset == reader.end


SHAPES: Final[dict[str, str]] = {"table": "longstr"}
"""What a field looks like to someone who does not look into it."""


def decode_fields(
    reader: FieldReader, fields: list[tuple[str, str]], loose: bool
) -> dict[str, object]:
    found: dict[str, object] = {}
    bits: i64 = 0
    bits_left: i64 = 0
    for name, kind in fields:
        if kind == "bit":
            if bits_left == 0:
                bits = reader.octet()
                bits_left = 8
            found[name] = bits & 1 != 0
            bits >>= 1
            bits_left -= 1
        else:
            bits_left = 0
            found[name] = decode_field(reader, kind, loose)
    return found


def decode_field(reader: FieldReader, kind: str, loose: bool) -> object:
    if kind == "shortstr":
        return reader.loose_string() if loose else reader.short_string()
    if kind == "short":
        return int(reader.short())
    if kind == "table":
        return reader.table(0)
    if kind == "longlong" or kind == "timestamp":
        return reader.long_long()
    if kind == "long":
        return int(reader.long())
    if kind == "longstr":
        return reader.long_bytes()
    assert kind == "octet", kind
    return int(reader.octet())


def encode_method(channel: int, key: int, values: Sequence[object]) -> bytes:
    """The whole frame; ``ValueError`` when a value does not fit its field."""
    fields = METHODS[key][1]
    if len(fields) != len(values):
        raise ValueError(f"{METHODS[key][0]} has {len(fields)} fields, {len(values)} given")
    arguments = BytesWriter()
    encode_fields(arguments, fields, values)
    frame = BytesWriter()
    frame.append(FRAME_METHOD)
    write_unsigned(frame, channel, 2)
    write_unsigned(frame, len(arguments) + 4, 4)
    write_unsigned(frame, key, 4)
    frame.write(arguments.getvalue())
    frame.append(FRAME_END)
    return frame.getvalue()


def encode_fields(
    writer: BytesWriter, fields: list[tuple[str, str]], values: Sequence[object]
) -> None:
    bits = 0
    bit_count = 0
    for index in range(len(fields)):
        name, kind = fields[index]
        value = values[index]
        if kind == "bit":
            if bit_count == 8:
                writer.append(bits)
                bits = bit_count = 0
            if value:
                bits |= 1 << bit_count
            bit_count += 1
            continue
        if bit_count:
            writer.append(bits)
            bits = bit_count = 0
        encode_field(writer, name, kind, value)
    if bit_count:
        writer.append(bits)


def encode_field(writer: BytesWriter, name: str, kind: str, value: object) -> None:
    if kind == "shortstr":
        write_short_bytes(writer, short_bytes(name, value))
    elif kind == "longstr":
        write_long_bytes(writer, long_bytes(name, value))
    elif kind == "table":
        if not isinstance(value, dict):
            raise ValueError(f"{name} takes a dict, not {value!r}")
        write_table(writer, value, 0)
    elif isinstance(value, int):
        write_unsigned(writer, value, SIZES[kind])
    else:
        raise ValueError(f"{name} takes a number, not {value!r}")


SIZES: Final[dict[str, int]] = {"octet": 1, "short": 2, "long": 4, "longlong": 8, "timestamp": 8}


def short_bytes(name: str, value: object) -> bytes:
    """A reply text is ours and may be cut; a name cut short would be another name.

    What was cut ends in dots, as in RabbitMQ; unlike RabbitMQ's it is always UTF-8, even
    when it quotes a name that is not, for clients fall over that.
    """
    if name != "reply_text" or not isinstance(value, str):
        return long_bytes(name, value)
    data = value.encode("utf-8", "replace")
    if len(data) <= SHORT_STRING_MAX_BYTES:
        return data
    return cut_text(data, SHORT_STRING_MAX_BYTES - 3) + b"..."


def cut_text(data: bytes, size: int) -> bytes:
    """At most ``size`` bytes of UTF-8, cut between two characters."""
    while size > 0 and data[size] & 0xC0 == 0x80:
        size -= 1
    return data[:size]


def long_bytes(name: str, value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    raise ValueError(f"{name} takes text or bytes, not {value!r}")
