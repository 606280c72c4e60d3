"""Avro bodies: their fields, and the columns that a schema means.

In: a schema as JSON, and bodies that hold one record each: its bare encoding; or Avro's
single-object encoding, whose first ten octets have the fingerprint of the schema (Avro 1.12,
"Single-object encoding"); or, where ids of it are given, the record behind the header that schema
registries write, an octet 0 and the id of a schema.  Out: a dictionary for each body, as JSON's
are, for ``body_columns``; a body that is no such record raises ValueError.  Needs the package
``fastavro`` where workers run.

Refused are schemas whose decoding a body could keep going for ever, or as deep as it likes: arrays
of items without octets, and records that contain themselves.
"""

import io
import json
import struct
from collections.abc import Callable
from typing import Any, Final

from pyspark_penstock.body_columns import SAME, BodyColumn, Kind

MARKER: Final = b"\xc3\x01"
HEADER_BYTES: Final = 10
REGISTRY_HEADER: Final = struct.Struct(">BI")
"""Of Confluent's wire format, which other registries write as well: 0, and the schema's id."""
PLAIN: Final = {"float": "double", "bytes": "binary", "fixed": "binary", "enum": "string"} | {
    one: one for one in ("string", "boolean", "int", "long", "double")
}
LOGICAL: Final = {
    "date": "date",
    "timestamp-millis": "timestamp",
    "timestamp-micros": "timestamp",
    "uuid": "string",
}
UNDECODABLE: Final = (
    ValueError, EOFError, IndexError, KeyError, TypeError, ArithmeticError, MemoryError,
)  # fmt: skip
"""What fastavro raises for octets that are no record."""


def avro_columns(text: str, taken: tuple[str, ...]) -> tuple[BodyColumn, ...]:
    """A column for each field of the record; ``body_NAME`` where ``taken`` has the name.

    Raises ValueError for a schema that is none, or whose fields no table can have.
    """
    schema = _parsed(text, expand=True)
    lower = {name.lower() for name in taken}
    return tuple(
        BodyColumn(
            f"body_{one['name']}" if one["name"].lower() in lower else one["name"],
            _kind(one["type"], one["name"]),
            required=False,
            source=one["name"],
            of_header=False,
        )
        for one in schema["fields"]
    )


def avro_reader(text: str, ids: tuple[int, ...] = ()) -> Callable[[bytes], dict[str, Any]]:
    """Raises ValueError for a schema that is none; so does what it returns for a body.

    ``ids``: each body has the header of a registry, with one of them; () = none has one.
    """
    from fastavro import schemaless_reader
    from fastavro.schema import fingerprint, to_parsing_canonical_form

    schema = _parsed(text, expand=False)
    canonical = to_parsing_canonical_form(schema)
    header = MARKER + bytes.fromhex(fingerprint(canonical, "CRC-64-AVRO"))

    def read(body: bytes) -> dict[str, Any]:
        stream = io.BytesIO(body)
        if ids:
            stream.seek(_behind_registry_header(body, ids))
        else:
            stream.seek(HEADER_BYTES if body.startswith(header) else 0)
        try:
            fields: Any = schemaless_reader(stream, schema, None)
        except UNDECODABLE as error:
            other = body.startswith(MARKER) and not body.startswith(header)
            hint = "; it may name another schema by its fingerprint" if other else ""
            raise ValueError(f"no Avro record of the schema: {error}{hint}") from error
        left = len(body) - stream.tell()
        if left:
            raise ValueError(f"no Avro record of the schema: {left} octets are left over")
        found: dict[str, Any] = fields  # the schema is that of a record
        return found

    return read


def _behind_registry_header(body: bytes, ids: tuple[int, ...]) -> int:
    if len(body) < REGISTRY_HEADER.size or body[0]:
        raise ValueError("no header of a schema registry: it begins with an octet 0 and an id")
    _, number = REGISTRY_HEADER.unpack_from(body)
    if number not in ids:
        raise ValueError(f"its schema has the id {number} in the registry, which is not given")
    return REGISTRY_HEADER.size


def _parsed(text: str, *, expand: bool) -> dict[str, Any]:
    """``expand``: named types stand where they are used, as columns want them."""
    from fastavro.schema import SchemaParseException, UnknownType, parse_schema

    try:
        raw = json.loads(text)
        _check(raw, {}, ())
        schema = parse_schema(raw, expand=expand)
    except (SchemaParseException, UnknownType, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"no Avro schema: {error!r}") from error
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise ValueError("the schema is not that of a record")
    return schema


def _check(schema: Any, known: dict[str, Any], within: tuple[str, ...]) -> None:
    """``known``: named types so far; ``within``: records that this part is inside of."""
    if isinstance(schema, list):
        for one in schema:
            _check(one, known, within)
    elif isinstance(schema, str):
        name = schema.rpartition(".")[2]
        if name in within:
            raise ValueError(f"record {name} contains itself, which no column can have")
    elif schema["type"] in ("record", "error"):
        known[schema["name"].rpartition(".")[2]] = schema
        for one in schema["fields"]:
            _check(one["type"], known, (*within, schema["name"].rpartition(".")[2]))
    elif schema["type"] == "array":
        if not _has_octets(schema["items"], known):
            raise ValueError("an array of items without octets may be endless")
        _check(schema["items"], known, within)
    elif schema["type"] == "map":
        _check(schema["values"], known, within)
    elif isinstance(schema["type"], dict | list):
        _check(schema["type"], known, within)


def _has_octets(schema: Any, known: dict[str, Any]) -> bool:
    if isinstance(schema, str):
        named = known.get(schema.rpartition(".")[2])
        return schema != "null" if named is None else _has_octets(named, known)
    if isinstance(schema, list):
        return True  # the number of the branch
    if schema["type"] == "record":
        return any(_has_octets(one["type"], known) for one in schema["fields"])
    return not (schema["type"] == "null" or (schema["type"] == "fixed" and not schema["size"]))


def _kind(schema: Any, field: str) -> Kind:
    if isinstance(schema, list):
        some = [one for one in schema if one not in ("null", {"type": "null"})]
        if len(some) != 1:
            raise ValueError(f"{field} may be of several types: choose the others by --columns")
        return _kind(some[0], field)
    word = schema if isinstance(schema, str) else schema["type"]
    if not isinstance(word, str):
        return _kind(word, field)
    whole = {} if isinstance(schema, str) else schema
    logical = whole.get("logicalType")
    if word == "record":
        found = [(one["name"], _kind(one["type"], one["name"])) for one in whole["fields"]]
        return Kind("struct", parts=tuple(found))
    if word in ("array", "map"):
        part = _kind(whole["items" if word == "array" else "values"], field)
        return Kind(word, parts=(("element" if word == "array" else "value", part),))
    if logical == "decimal":
        return Kind("decimal", whole["precision"], whole.get("scale", 0))
    kind = PLAIN.get(word) if logical is None else LOGICAL.get(logical)
    if kind is None:
        raise ValueError(
            f"{field} is {logical or word}, which no column can have: choose others by --columns"
        )
    return Kind(SAME.get(kind, kind))
