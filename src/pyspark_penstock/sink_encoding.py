"""Rows become AMQP: what a publisher would say on channel 1, as bytes.

In: Arrow record batches of the columns below.  Out: ``basic.publish`` methods, each with its
content.  The same schema that is judged once (``check_columns``) is what ``Encoder`` is made for.

A message is its method frame, its header frame and its body frames.  Method frames are the same
for a whole address and remembered; properties that are the same in all rows are made once, so a
row costs one join of a few pieces.  Rows with properties of their own cost some microseconds
more: a string each, and the flags of those that are not null.
"""

import struct
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark_penstock.raw_properties import header_field, with_headers
from pyspark_penstock.sink_options import SHORT_BYTES_MAX, SinkSettings

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

FRAME_MAX = 131_072
BODY_FRAME_MAX = FRAME_MAX - 8
ADDRESSES_MAX = 4096

TEXT = ("string",)
NUMBER = ("tinyint", "smallint", "int", "bigint")
COLUMNS: dict[str, tuple[str, ...]] = {
    "body": ("binary", "string"),
    "exchange": TEXT,
    "routing_key": TEXT,
    "content_type": TEXT,
    "content_encoding": TEXT,
    "headers": ("map<string,string>", "array<struct<key:string,value:binary>>"),
    "priority": NUMBER,
    "correlation_id": TEXT,
    "reply_to": TEXT,
    "expiration": ("string", *NUMBER),
    "message_id": TEXT,
    "timestamp": ("timestamp", "timestamp_ntz"),
    "published_at": ("timestamp", "timestamp_ntz"),
    "type": TEXT,
    "app_id": TEXT,
    "delay_ms": NUMBER,
    "properties_raw": ("binary",),
}
"""With the types each may have, as Spark calls them."""

_FLAGS = {
    "content_type": 0x8000,
    "content_encoding": 0x4000,
    "headers": 0x2000,
    "priority": 0x0800,
    "correlation_id": 0x0400,
    "reply_to": 0x0200,
    "expiration": 0x0100,
    "message_id": 0x0080,
    "timestamp": 0x0040,
    "type": 0x0020,
    "app_id": 0x0008,
}
"""In the order in which properties are written."""
_DELIVERY_MODE = 0x1000
_FLAGS_OCTETS = struct.Struct(">H")
_U32 = struct.Struct(">I")
_U64 = struct.Struct(">Q")
_OCTETS = [bytes((number,)) for number in range(256)]


class WrongRow(ValueError):
    """A value that AMQP cannot say, or that is missing."""


def check_columns(schema: "StructType", settings: SinkSettings) -> None:
    """Raises ValueError: Spark lets every schema pass."""
    names = [name.lower() for name in schema.names]
    unknown = [name for name in names if name not in COLUMNS]
    if unknown:
        raise ValueError(
            f"penstock: column '{unknown[0]}' cannot be written; the columns are"
            f" {', '.join(COLUMNS)}: select or rename"
        )
    if len(set(names)) != len(names):
        raise ValueError("penstock: a column occurs twice")
    for field, name in zip(schema.fields, names, strict=True):
        kind = field.dataType.simpleString()
        if kind not in COLUMNS[name]:
            raise ValueError(
                f"penstock: column '{name}' is {kind}; it must be {' or '.join(COLUMNS[name])}"
            )
    if "body" not in names:
        raise ValueError("penstock: there is no column 'body' (binary or string)")
    others = sorted(set(names) & (set(_FLAGS) | {"published_at", "delay_ms"}) - {"headers"})
    if "properties_raw" in names and others:
        raise ValueError(
            f"penstock: column 'properties_raw' says all properties, so '{others[0]}' cannot be"
            " written beside it; headers are added to it"
        )
    if {"timestamp", "published_at"} <= set(names):
        raise ValueError("penstock: 'timestamp' and 'published_at' are the same; write one")
    _check_address(names, settings)


def _check_address(names: list[str], settings: SinkSettings) -> None:
    if settings.by in ("queue", "topic"):
        for name in ("exchange", "routing_key"):
            if name in names:
                raise ValueError(
                    f"penstock: column '{name}' contradicts option '{settings.by}', which says"
                    " where all rows go"
                )
        if "delay_ms" in names:
            raise ValueError(
                "penstock: column 'delay_ms' needs option 'exchange' with an exchange of the type"
                " x-delayed-message"
            )
        return
    if settings.exchange is None and "exchange" not in names:
        raise ValueError(
            "penstock: say where to with option exchange, queue or topic, or with columns"
            " 'exchange' and 'routing_key'"
        )


class Encoder:
    """For the batches of one task; ``messages`` counts what it has encoded."""

    def __init__(self, settings: SinkSettings) -> None:
        self.messages = 0
        self._settings = settings
        self._mode = b"\x02" if settings.persistent else b"\x01"
        self._methods: dict[tuple[str, str], bytes] = {}

    def encode(self, batch: "pa.RecordBatch") -> Iterator[bytes]:
        columns = {
            name.lower(): column.to_pylist()
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        }
        if columns.get("headers"):
            columns["headers"] = [_pairs(one) for one in columns["headers"]]
        bodies = columns.pop("body")
        if bodies and any(body is None for body in bodies):
            raise WrongRow("penstock: a row has no body (null); filter it, or write ''")
        if any(type(body) is str for body in bodies):
            bodies = [body.encode() for body in bodies]
        methods = self._methods_of(columns, len(bodies))
        properties = self._properties_of(columns, len(bodies))
        self.messages += len(bodies)
        # Bytes of a header frame are counted from behind its size to before its end.
        for method, tail, body in zip(methods, properties, bodies, strict=True):
            size = len(body)
            head = b"\x02\x00\x01%b\x00\x3c\x00\x00%b" % (
                _U32.pack(12 + len(tail)),
                _U64.pack(size),
            )
            if size <= BODY_FRAME_MAX:
                if size:
                    last = _U32.pack(size)
                    yield b"%b%b%b\xce\x03\x00\x01%b%b\xce" % (method, head, tail, last, body)
                else:
                    yield b"%b%b%b\xce" % (method, head, tail)
            else:
                yield b"%b%b%b\xce" % (method, head, tail)
                for at in range(0, size, BODY_FRAME_MAX):
                    piece = body[at : at + BODY_FRAME_MAX]
                    yield b"\x03\x00\x01%b%b\xce" % (_U32.pack(len(piece)), piece)

    # -- addresses ---------------------------------------------------------------------------

    def _methods_of(self, columns: dict[str, list[Any]], count: int) -> list[bytes]:
        exchanges, keys = columns.pop("exchange", None), columns.pop("routing_key", None)
        settings = self._settings
        if exchanges is None and keys is None:
            return [self._method(settings.exchange, settings.routing_key or "")] * count
        if exchanges is None:
            exchanges = [settings.exchange] * count
        if keys is None:
            keys = [settings.routing_key] * count
        return [
            self._method(
                settings.exchange if exchange is None else exchange,
                (settings.routing_key or "") if key is None else key,
            )
            for exchange, key in zip(exchanges, keys, strict=True)
        ]

    def _method(self, exchange: str | None, key: str) -> bytes:
        if exchange is None:
            raise WrongRow("penstock: a row says no exchange (null), and there is no option for it")
        method = self._methods.get((exchange, key))
        if method is None:
            # basic.publish: class 60, method 40, reserved u16, exchange, key, bits
            payload = b"\x00\x3c\x00\x28\x00\x00" + _short("exchange", exchange)
            payload += _short("routing_key", key) + b"\x00"
            method = b"\x01\x00\x01" + _U32.pack(len(payload)) + payload + b"\xce"
            if len(self._methods) >= ADDRESSES_MAX:
                self._methods.clear()
            self._methods[(exchange, key)] = method
        return method

    # -- properties --------------------------------------------------------------------------

    def _properties_of(self, columns: dict[str, list[Any]], count: int) -> list[bytes]:
        raw = columns.pop("properties_raw", None)
        if raw is not None:
            return self._as_published(raw, columns.get("headers") or [None] * count)
        if "published_at" in columns:
            columns["timestamp"] = columns.pop("published_at")
        delays = columns.pop("delay_ms", None)
        if delays is not None:
            tables = columns.get("headers") or [None] * count
            columns["headers"] = [
                (table, delay) if delay is not None else table
                for table, delay in zip(tables, delays, strict=True)
            ]
        if not columns:
            return [_FLAGS_OCTETS.pack(_DELIVERY_MODE) + self._mode] * count
        names = [name for name in _FLAGS if name in columns]
        values = [columns[name] for name in names]
        encoders = [_ENCODERS.get(name, _short) for name in names]
        kinds = list(zip(names, [_FLAGS[name] for name in names], encoders, strict=True))
        return [self._row(kinds, row) for row in zip(*values, strict=True)]

    def _as_published(self, raw: list[bytes | None], headers: list[Any]) -> list[bytes]:
        """The bytes of the first publisher, but for headers; a row may have none."""
        plain = _FLAGS_OCTETS.pack(_DELIVERY_MODE) + self._mode
        return [
            with_headers(plain if data is None else data, added or ())
            for data, added in zip(raw, headers, strict=True)
        ]

    def _row(
        self, kinds: list[tuple[str, int, Callable[[str, Any], bytes]]], row: tuple[Any, ...]
    ) -> bytes:
        flags = _DELIVERY_MODE
        parts = [b""]
        mode_is_due = True
        for (name, flag, encode), value in zip(kinds, row, strict=True):
            if mode_is_due and flag < _DELIVERY_MODE:
                parts.append(self._mode)
                mode_is_due = False
            if value is not None:
                flags |= flag
                parts.append(encode(name, value))
        if mode_is_due:
            parts.append(self._mode)
        parts[0] = _FLAGS_OCTETS.pack(flags)
        return b"".join(parts)


def _short(name: str, value: Any) -> bytes:
    data = value.encode() if type(value) is str else str(value).encode()
    if len(data) > SHORT_BYTES_MAX:
        raise WrongRow(
            f"penstock: a value of column '{name}' has {len(data)} bytes, at most"
            f" {SHORT_BYTES_MAX} are allowed"
        )
    return _OCTETS[len(data)] + data


def _priority(_name: str, value: int) -> bytes:
    if not 0 <= value <= 255:
        raise WrongRow(f"penstock: priority {value}; it must be 0 to 255")
    return _OCTETS[value]


def _expiration(name: str, value: Any) -> bytes:
    text = str(value)
    if not text.isascii() or not text.isdigit():
        raise WrongRow(f"penstock: expiration {text!r}; it must be milliseconds, from 0 on")
    return _short(name, text)


def _timestamp(_name: str, value: datetime) -> bytes:
    """In seconds; a time without a zone is UTC, as everywhere here."""
    moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    seconds = int(moment.timestamp())
    if seconds < 0:
        raise WrongRow(f"penstock: timestamp {value}; AMQP has none before 1970")
    return _U64.pack(seconds)


def _pairs(headers: list[Any] | None) -> list[Any] | None:
    if not headers or type(headers[0]) is tuple:
        return headers
    pairs = [(one or {}).values() for one in headers]
    if not all(pairs) or any(name is None for name, _ in pairs):
        raise WrongRow("penstock: a header, or its key, is null")
    return [(name, value) for name, value in pairs]


def _headers(_name: str, value: Any) -> bytes:
    """A table of strings; with a delay it comes as (table, milliseconds)."""
    delay = None
    if isinstance(value, tuple) and len(value) == 2 and type(value[1]) is int:
        value, delay = value
    fields = []
    for key, text in value or ():
        if key in ("CC", "BCC"):
            raise WrongRow(f"penstock: header '{key}' would send copies; write rows for them")
        if key == "x-delay" and delay is not None:
            continue
        fields.append(header_field(key, text))
    if delay is not None:
        fields.append(b"\x07x-delayl" + delay.to_bytes(8, "big", signed=True))
    table = b"".join(fields)
    if len(table) > FRAME_MAX // 2:
        raise WrongRow(
            f"penstock: the headers of a row take {len(table)} bytes, {FRAME_MAX // 2} are allowed"
        )
    return _U32.pack(len(table)) + table


_ENCODERS: dict[str, Callable[[str, Any], bytes]] = {
    "headers": _headers,
    "priority": _priority,
    "expiration": _expiration,
    "timestamp": _timestamp,
}
