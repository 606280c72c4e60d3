"""Avro bodies as columns of a table: schemas, encodings, and octets that are no record."""

from __future__ import annotations

import io
import json
import random
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from pyspark_penstock.avro_bodies import avro_columns, avro_reader
from pyspark_penstock.body_columns import FAULT, BodyDecoding, parse_body_columns
from pyspark_penstock.columns import arrow_schema

fastavro = pytest.importorskip("fastavro", reason="no fastavro: make deps-spark")

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "type", "type": {"type": "enum", "name": "Type", "symbols": ["NEW", "GONE"]}},
        {
            "name": "total",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2},
        },
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "born", "type": ["null", {"type": "int", "logicalType": "date"}]},
        {"name": "key", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "items", "type": {"type": "array", "items": {
            "type": "record", "name": "Item", "fields": [
                {"name": "sku", "type": "string"}, {"name": "share", "type": "float"},
            ]}}},
        {"name": "gift", "type": ["null", "Item"]},
        {"name": "tags", "type": {"type": "map", "values": "string"}},
        {"name": "raw", "type": {"type": "fixed", "name": "Four", "size": 4}},
    ],
}  # fmt: skip
TEXT = json.dumps(SCHEMA)
ORDER: dict[str, Any] = {
    "id": 7,
    "type": "NEW",
    "total": Decimal("12.50"),
    "at": datetime(2026, 1, 2, 3, tzinfo=UTC),
    "born": None,
    "key": UUID(int=5),
    "items": [{"sku": "x", "share": 0.5}],
    "gift": {"sku": "y", "share": 1.0},
    "tags": {"a": "b"},
    "raw": b"1234",
}


def encoded(order: dict[str, Any] = ORDER) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(SCHEMA), order)
    return stream.getvalue()


def decoded(decoding: BodyDecoding, *bodies: bytes) -> list[dict[str, Any]]:
    rows = pa.RecordBatch.from_pylist([{"body": one} for one in bodies], arrow_schema(("body",)))
    found = decoding.decoder()(rows)
    found.validate(full=True)
    columns: list[dict[str, Any]] = found.drop_columns(["body"]).to_pylist()
    return columns


def test_each_field_of_the_schema_is_a_column() -> None:
    columns = avro_columns(TEXT, ("type", "body"))
    born = encoded(ORDER | {"born": date(2020, 2, 29), "gift": None})
    first, second = decoded(BodyDecoding(columns, TEXT), encoded(), born)
    renamed = {("body_type" if name == "type" else name): ORDER[name] for name in ORDER}
    assert first == renamed | {"key": str(UUID(int=5)), "tags": [("a", "b")], FAULT: None}
    assert (second["born"], second["gift"]) == (date(2020, 2, 29), None)
    kinds = {one.name: str(one.type()) for one in columns}
    assert kinds["total"] == "decimal128(8, 2)"
    assert kinds["raw"] == "binary"


def test_columns_may_be_chosen_by_paths() -> None:
    columns = parse_body_columns("sku string from gift.sku, id long, n int from total", ())
    (row,) = decoded(BodyDecoding(columns, TEXT), encoded())
    assert "/total is no int" in row[FAULT]
    columns = parse_body_columns("sku string from gift.sku, id long", ())
    (row,) = decoded(BodyDecoding(columns, TEXT), encoded())
    assert (row["sku"], row["id"], row[FAULT]) == ("y", 7, None)


def test_the_single_object_encoding_has_the_fingerprint_of_its_schema() -> None:
    """That of the schema "int" stands in Apache's own test data: 7275a51a3f395c8f."""
    from fastavro.schema import fingerprint, to_parsing_canonical_form

    assert fingerprint('"int"', "CRC-64-AVRO") == "8f5c393f1ad57572"
    canonical = to_parsing_canonical_form(fastavro.parse_schema(SCHEMA))
    header = b"\xc3\x01" + bytes.fromhex(fingerprint(canonical, "CRC-64-AVRO"))
    columns = parse_body_columns("id long", ())
    good, other = decoded(
        BodyDecoding(columns, TEXT), header + encoded(), b"\xc3\x01" + bytes(8) + encoded()
    )
    assert (good["id"], good[FAULT]) == (7, None)
    assert "no Avro record of the schema" in other[FAULT]


def test_a_registry_s_header_names_one_of_the_ids() -> None:
    columns = parse_body_columns("id long", ())
    bodies = [
        b"\x00" + (17).to_bytes(4, "big") + encoded(),
        b"\x00" + (18).to_bytes(4, "big") + encoded(),
        encoded(),
        b"\x00\x00",
    ]
    good, other, bare, short = decoded(BodyDecoding(columns, TEXT, (17, 19)), *bodies)
    assert (good["id"], good[FAULT]) == (7, None)
    assert "has the id 18 in the registry, which is not given" in other[FAULT]
    for one in (bare, short):
        assert "no header of a schema registry" in one[FAULT]
    (plain,) = decoded(BodyDecoding(columns, TEXT), bodies[0])
    assert plain[FAULT], "without ids there is no such header"


def test_octets_that_are_no_record_are_at_fault_and_stop_nothing() -> None:
    chance, body = random.Random(7), encoded()
    broken = []
    for _ in range(400):
        octets = bytearray(body)
        octets[chance.randrange(len(octets))] = chance.randrange(256)
        broken.append(bytes(octets[: chance.randrange(len(octets) + 1)]))
    decoding = BodyDecoding(avro_columns(TEXT, ("type",)), TEXT)
    rows = decoded(decoding, b"", body + b"x", b'{"id": 7}', *broken, body)
    assert "1 octets are left over" in rows[1][FAULT]
    assert all("no Avro record" in rows[n][FAULT] for n in (0, 2))
    assert rows[-1][FAULT] is None


def of_field(kind: Any) -> str:
    return json.dumps({"type": "record", "name": "A", "fields": [{"name": "x", "type": kind}]})


@pytest.mark.parametrize(
    "schema, told",
    [
        ("{", "Expecting property name"),
        ('"string"', "not that of a record"),
        (of_field("text"), "text"),
        (of_field(["null", "A"]), "record A contains itself"),
        (of_field({"type": "array", "items": "null"}), "without octets may be endless"),
        (of_field(["int", "string"]), "x may be of several types"),
        (of_field({"type": "int", "logicalType": "time-millis"}), "x is time-millis"),
    ],
)
def test_a_schema_that_no_table_can_have_is_refused(schema: str, told: str) -> None:
    with pytest.raises(ValueError) as refused:
        avro_columns(schema, ())
    assert told in str(refused.value)


def test_a_reader_refuses_what_would_not_end() -> None:
    endless = {"type": "array", "items": {"type": "record", "name": "Empty", "fields": []}}
    with pytest.raises(ValueError, match="endless"):
        avro_reader(of_field(endless))
