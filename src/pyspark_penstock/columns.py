"""Blocks of messages become Arrow record batches; the columns of the DataFrame are here.

In: a ``ranges.Block``.  Out: a ``pyarrow.RecordBatch`` whose schema is exactly what Spark
computes from ``spark_schema`` (it compares them).  Only the columns that were asked for are
made: a reader of ``seq_id`` alone never looks at a property.  Columns are made whole, by Arrow;
what has to be done in Python is done once for all messages of the block that share it.
"""

import struct
import sys
from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyarrow import compute

from penstock_ranges.ranges import Block
from pyspark_penstock.options import ARRAY, MAP
from pyspark_penstock.properties import (
    FIXED_BYTES,
    FRAME_END_BYTES,
    FRAME_HEAD_BYTES,
    PERSISTENT_MODE,
    YEAR_10000_S,
    Properties,
    decode_properties,
    header_list,
    header_texts,
    split_address,
    split_content,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

REDELIVERED = 2
"""Bit of a message's flags: it was handed to a consumer before, or may have been."""

_STRING = pa.string()
_ARROW_TYPES: dict[str, pa.DataType] = {
    "seq_id": pa.int64(),
    "body": pa.binary(),
    "enqueued_at": pa.timestamp("us", tz="UTC"),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "priority": pa.int32(),
    "persistent": pa.bool_(),
    "redelivered": pa.bool_(),
    "properties_raw": pa.binary(),
}
_HEADERS: Final = {
    MAP: (pa.map_(_STRING, _STRING), header_texts),
    ARRAY: (pa.list_(pa.struct([("key", _STRING), ("value", pa.binary())])), header_list),
}
"""Of each ``headersFormat``: the column's type, and what reads it."""


def arrow_schema(columns: Sequence[str], headers: str = MAP) -> pa.Schema:
    """``headers``: the format of that column."""
    types = _ARROW_TYPES | {"headers": _HEADERS[headers][0]}
    return pa.schema([(name, types.get(name, _STRING)) for name in columns])


def spark_schema(columns: Sequence[str], headers: str = MAP) -> "StructType":
    """The same for Spark; every column may be null as far as Spark is told."""
    from pyspark.sql.pandas.types import from_arrow_schema  # which does without pandas

    return from_arrow_schema(arrow_schema(columns, headers))


_OF_PROPERTIES: dict[str, Callable[[tuple[Any, ...]], Iterable[Any]] | None] = {
    "timestamp": lambda values: [_microseconds(one) for one in values],
    "message_id": None,
    "correlation_id": None,
    "reply_to": None,
    "type": None,
    "app_id": None,
    "user_id": None,
    "content_type": None,
    "content_encoding": None,
    "priority": None,
    "persistent": lambda modes: [None if m is None else m == PERSISTENT_MODE for m in modes],
    "expiration": None,
    "headers": lambda tables: [list(t.items()) if isinstance(t, dict) else t for t in tables],
}
"""What becomes of the values of a property on their way into its column; None = nothing."""
_PLACES = {name: place for place, name in enumerate(Properties._fields)}
_PLACES |= {"timestamp": _PLACES["timestamp_s"], "persistent": _PLACES["delivery_mode"]}


class BatchBuilder:
    """Makes record batches of the wanted columns, for one queue."""

    def __init__(
        self, queue: str, columns: Sequence[str], incarnation: str = "", headers: str = MAP
    ) -> None:
        self._of_queue = {"queue": queue, "incarnation": incarnation}
        self._columns = columns
        self._schema = arrow_schema(columns, headers)
        self._decode = partial(decode_properties, headers=_HEADERS[headers][1])
        self._wants_properties = any(c in _OF_PROPERTIES for c in columns)
        self._wants_content = self._wants_properties or bool(
            {"body", "properties_raw"} & {*columns}
        )
        self._wants_address = bool({"exchange", "routing_key"} & {*columns})

    def batch(self, block: Block) -> pa.RecordBatch:
        made: dict[str, pa.Array] = {}
        if self._wants_content:
            raw, made["body"] = split_contents(block)
            made["properties_raw"] = raw
            if self._wants_properties:
                made |= self._of_properties(raw)
        if self._wants_address:
            made |= _of_addresses(block)
        arrays = [made[c] if c in made else self._of_block(c, block) for c in self._columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _of_properties(self, raw: pa.Array) -> dict[str, pa.Array]:
        """Each spelling is decoded once, and its values are dealt out to all who share it."""
        encoded = raw.dictionary_encode()
        found = list(zip(*map(self._decode, encoded.dictionary.to_pylist()), strict=True))
        made: dict[str, pa.Array] = {}
        for name in self._columns:
            if name not in _OF_PROPERTIES or not found:
                continue
            values = found[_PLACES[name]]
            if values[0] is None and values.count(None) == len(values):
                made[name] = pa.nulls(len(raw), self._type(name))
                continue
            shape = _OF_PROPERTIES[name]
            column = pa.array(values if shape is None else shape(values), self._type(name))
            made[name] = column if len(column) == len(raw) else column.take(encoded.indices)
        return made

    def _of_block(self, name: str, block: Block) -> pa.Array:
        if name == "seq_id":
            return _wrapped(pa.int64(), block.seq_ids, block.count)
        if name == "enqueued_at":
            milliseconds = pa.timestamp("ms", tz="UTC")
            column = _wrapped(milliseconds, block.enqueued_at_ms, block.count)
            return column.cast(self._type(name))
        if name == "redelivered":
            flags = pa.Array.from_buffers(
                pa.uint8(), block.count, [None, pa.py_buffer(block.flags)]
            )
            bits = compute.bit_wise_and(flags, pa.scalar(REDELIVERED, pa.uint8()))
            return compute.not_equal(bits, pa.scalar(0, pa.uint8()))
        return pa.repeat(pa.scalar(self._of_queue[name], _STRING), block.count)

    def _type(self, name: str) -> pa.DataType:
        return self._schema.field(name).type


# -- contents and addresses ------------------------------------------------------------------


def split_contents(block: Block) -> tuple[pa.Array, pa.Array]:
    """(property bytes, bodies) of all messages.

    Mostly the headers of a block's messages are equally long and each body is one frame: then Arrow
    cuts all of them at once.
    """
    contents = _cut(block.payload, block.contents_at, block.content_lengths)
    return _split_alike(block, contents) or _split_each(block)


def _split_alike(block: Block, contents: pa.Array) -> tuple[pa.Array, pa.Array] | None:
    if block.count == 0:
        return None
    at = block.contents_at
    size = int.from_bytes(block.payload[at + 3 : at + FRAME_HEAD_BYTES], "big")
    if not _all_are(compute.binary_slice(contents, 3, FRAME_HEAD_BYTES), size):
        return None
    header_end = FRAME_HEAD_BYTES + size + FRAME_END_BYTES
    raw = compute.binary_slice(contents, FRAME_HEAD_BYTES + FIXED_BYTES, header_end - 1)
    if max(block.content_lengths) == header_end:
        return raw, pa.repeat(pa.scalar(b"", pa.binary()), block.count)  # no bodies at all
    around = header_end + FRAME_HEAD_BYTES + FRAME_END_BYTES
    if min(block.content_lengths) < around:
        return None
    expected = [length - around for length in block.content_lengths]
    sizes = compute.binary_slice(contents, header_end + 3, header_end + FRAME_HEAD_BYTES)
    if sizes.buffers()[2][: 4 * block.count] != struct.pack(f">{block.count}I", *expected):
        return None
    return raw, compute.binary_slice(contents, header_end + FRAME_HEAD_BYTES, -FRAME_END_BYTES)


def _split_each(block: Block) -> tuple[pa.Array, pa.Array]:
    raw = []
    bodies = []
    payload, at = bytes(block.payload), block.contents_at
    for length in block.content_lengths:
        properties, body = split_content(payload, at, at + length)
        raw.append(properties)
        bodies.append(body)
        at += length
    return pa.array(raw, pa.binary()), pa.array(bodies, pa.binary())


def _of_addresses(block: Block) -> dict[str, pa.Array]:
    encoded = _cut(block.payload, block.addresses_at, block.address_lengths).dictionary_encode()
    found = [split_address(data) for data in encoded.dictionary.to_pylist()]
    return {
        "exchange": pa.array([one[0] for one in found], _STRING).take(encoded.indices),
        "routing_key": pa.array([one[1] for one in found], _STRING).take(encoded.indices),
    }


# -- helpers ---------------------------------------------------------------------------------


def _cut(payload: bytes | memoryview, at: int, lengths: Sequence[int]) -> pa.Array:
    """So many bytes after another from there on, as one column; nothing is copied."""
    count = len(lengths)
    # Twice as fast as an array of them, and done for every message.
    offsets = struct.pack(f"={count + 1}i", *accumulate(lengths, initial=0))
    data = pa.py_buffer(payload).slice(at)
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), data])


def _all_are(column: pa.Array, number: int) -> bool:
    wanted = pa.scalar(number.to_bytes(4, "big"), pa.binary())
    return bool(compute.all(compute.equal(column, wanted)).as_py())


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
