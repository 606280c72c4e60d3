"""Blocks of messages become Arrow record batches; the columns of the DataFrame are here.

In: a ``client.Block``.  Out: a ``pyarrow.RecordBatch`` whose schema is exactly what Spark
computes from ``spark_schema`` (it compares them).  Only the columns that were asked for are
made: a reader of ``seq_id`` alone never looks at a property.
"""

import sys
from array import array
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pyspark_penstock.client import Block
from pyspark_penstock.properties import (
    PERSISTENT_MODE,
    YEAR_10000_S,
    Properties,
    decode_properties,
    split_address,
    split_content,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

REDELIVERED = 2
"""Bit of a message's flags: it was handed to a consumer before, or may have been."""
MEMO_ENTRIES_MAX = 4096

_STRING = pa.string()
_ARROW_TYPES: dict[str, pa.DataType] = {
    "seq_id": pa.int64(),
    "body": pa.binary(),
    "enqueued_at": pa.timestamp("us", tz="UTC"),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "priority": pa.int32(),
    "persistent": pa.bool_(),
    "redelivered": pa.bool_(),
    "headers": pa.map_(pa.string(), pa.string()),
    "properties_raw": pa.binary(),
}


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    return pa.schema([(name, _ARROW_TYPES.get(name, _STRING)) for name in columns])


def spark_schema(columns: Sequence[str]) -> "StructType":
    """The same for Spark; every column may be null as far as Spark is told."""
    from pyspark.sql import types

    kinds: dict[str, types.DataType] = {
        "seq_id": types.LongType(),
        "body": types.BinaryType(),
        "enqueued_at": types.TimestampType(),
        "timestamp": types.TimestampType(),
        "priority": types.IntegerType(),
        "persistent": types.BooleanType(),
        "redelivered": types.BooleanType(),
        "headers": types.MapType(types.StringType(), types.StringType()),
        "properties_raw": types.BinaryType(),
    }
    text = types.StringType()
    return types.StructType([types.StructField(c, kinds.get(c, text)) for c in columns])


_OF_PROPERTIES: dict[str, Callable[[Properties], Any]] = {
    "timestamp": lambda p: _microseconds(p.timestamp_s),
    "message_id": lambda p: p.message_id,
    "correlation_id": lambda p: p.correlation_id,
    "reply_to": lambda p: p.reply_to,
    "type": lambda p: p.type,
    "app_id": lambda p: p.app_id,
    "user_id": lambda p: p.user_id,
    "content_type": lambda p: p.content_type,
    "content_encoding": lambda p: p.content_encoding,
    "priority": lambda p: p.priority,
    "persistent": lambda p: None if p.delivery_mode is None else p.delivery_mode == PERSISTENT_MODE,
    "expiration": lambda p: p.expiration,
    "headers": lambda p: None if p.headers is None else list(p.headers.items()),
}


class BatchBuilder:
    """Makes record batches of the wanted columns, for one queue."""

    def __init__(self, queue: str, columns: Sequence[str]) -> None:
        self._queue = queue
        self._columns = columns
        self._schema = arrow_schema(columns)
        self._wants_content = any(c in _OF_PROPERTIES for c in columns) or bool(
            {"body", "properties_raw"} & set(columns)
        )
        self._wants_properties = any(c in _OF_PROPERTIES for c in columns)
        self._wants_address = bool({"exchange", "routing_key"} & set(columns))
        # Most messages of a queue share their address, and many their properties.
        self._addresses: dict[bytes, tuple[str, str]] = {}
        self._properties: dict[bytes, Properties] = {}

    def batch(self, block: Block) -> pa.RecordBatch:
        raw: list[bytes] = []
        bodies: list[bytes] = []
        if self._wants_content:
            raw, bodies = _split_contents(block)
        properties = [self._decoded(data) for data in raw] if self._wants_properties else []
        addresses = self._split_addresses(block) if self._wants_address else []
        arrays = []
        for name in self._columns:
            if name in _OF_PROPERTIES:
                value = _OF_PROPERTIES[name]
                arrays.append(pa.array([value(p) for p in properties], self._type(name)))
            elif name == "body":
                arrays.append(pa.array(bodies, pa.binary()))
            elif name == "properties_raw":
                arrays.append(pa.array(raw, pa.binary()))
            elif name == "exchange":
                arrays.append(pa.array([a[0] for a in addresses], _STRING))
            elif name == "routing_key":
                arrays.append(pa.array([a[1] for a in addresses], _STRING))
            else:
                arrays.append(self._of_block(name, block))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _of_block(self, name: str, block: Block) -> pa.Array:
        if name == "seq_id":
            return _wrapped(pa.int64(), block.seq_ids, block.count)
        if name == "enqueued_at":
            milliseconds = pa.timestamp("ms", tz="UTC")
            column = _wrapped(milliseconds, block.enqueued_at_ms, block.count)
            return column.cast(self._type(name))
        if name == "redelivered":
            return pa.array([flags & REDELIVERED != 0 for flags in block.flags], pa.bool_())
        assert name == "queue", name
        return pa.array([self._queue] * block.count, _STRING)

    def _type(self, name: str) -> pa.DataType:
        return self._schema.field(name).type

    def _decoded(self, data: bytes) -> Properties:
        found = self._properties.get(data)
        if found is None:
            if len(self._properties) >= MEMO_ENTRIES_MAX:
                self._properties.clear()
            found = self._properties[data] = decode_properties(data)
        return found

    def _split_addresses(self, block: Block) -> list[tuple[str, str]]:
        addresses = []
        at = block.addresses_at
        for length in block.address_lengths:
            data = block.payload[at : at + length]
            at += length
            found = self._addresses.get(data)
            if found is None:
                if len(self._addresses) >= MEMO_ENTRIES_MAX:
                    self._addresses.clear()
                found = self._addresses[data] = split_address(data)
            addresses.append(found)
        return addresses


def _split_contents(block: Block) -> tuple[list[bytes], list[bytes]]:
    """(property bytes, bodies) of all messages."""
    raw = []
    bodies = []
    at = block.contents_at
    for length in block.content_lengths:
        properties, body = split_content(block.payload, at, at + length)
        raw.append(properties)
        bodies.append(body)
        at += length
    return raw, bodies


def _wrapped(kind: pa.DataType, data: bytes, count: int) -> pa.Array:
    """A column of the block as it is: Arrow's layout is the wire's, on this machine."""
    if sys.byteorder == "big":
        column = array("q")
        column.frombytes(data)
        column.byteswap()
        data = column.tobytes()
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(data)])


def _microseconds(seconds: int | None) -> int | None:
    return None if seconds is None or seconds >= YEAR_10000_S else seconds * 1_000_000
