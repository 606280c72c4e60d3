"""Field tables written tag by tag, independently of the codec under test.

A field is a pair (tag, value): ``{"a": ("I", 1), "b": ("S", b"x"), "c": ("V", None)}``.
"""

from __future__ import annotations

import struct

type_formats = {
    "b": ">b",
    "B": ">B",
    "s": ">h",
    "u": ">H",
    "I": ">i",
    "i": ">I",
    "l": ">q",
    "L": ">q",
    "T": ">Q",
    "f": ">f",
    "d": ">d",
    "t": ">B",
}

Field = tuple[str, object]


def typed_table(fields: dict[str, Field]) -> bytes:
    """The table with its length in front."""
    data = b""
    for name, field in fields.items():
        data += bytes([len(name)]) + name.encode() + typed_value(field)
    return struct.pack(">I", len(data)) + data


def typed_value(field: Field) -> bytes:
    tag, value = field
    return tag.encode() + _payload(tag, value)


def _payload(tag: str, value: object) -> bytes:
    if tag == "V":
        return b""
    if tag == "F":
        assert isinstance(value, dict)
        return typed_table(value)
    if tag == "A":
        assert isinstance(value, list)
        data = b"".join(typed_value(item) for item in value)
        return struct.pack(">I", len(data)) + data
    if tag in ("S", "x"):
        assert isinstance(value, bytes)
        return struct.pack(">I", len(value)) + value
    if tag == "D":
        assert isinstance(value, tuple)
        return struct.pack(">BI", *value)
    return struct.pack(type_formats[tag], value)
