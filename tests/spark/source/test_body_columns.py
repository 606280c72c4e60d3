"""JSON bodies and headers as columns of a table, and what is at fault."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from pyspark_penstock.body_columns import FAULT, BodyDecoder, parse_body_columns
from pyspark_penstock.columns import arrow_schema
from pyspark_penstock.table_files import DraftWriter, Layout

TAKEN = ("type", "body", "day")


def decoded(text: str, *bodies: bytes, headers: Any = None) -> list[dict[str, Any]]:
    columns = parse_body_columns(text, TAKEN)
    schema = arrow_schema(("body", "headers"))
    rows = pa.RecordBatch.from_pylist([{"body": one, "headers": headers} for one in bodies], schema)
    found = BodyDecoder(columns).decoded(rows)
    found.validate(full=True)
    rows_out: list[dict[str, Any]] = found.drop_columns(["body", "headers"]).to_pylist()
    return rows_out


def test_fields_become_values_of_their_types() -> None:
    text = (
        "id long not null, name string, Total decimal(10,2) from total, share double, ok boolean,"
        " at timestamp, born date, n int, order_type text from type, r string from header x-r"
    )
    body = {
        "id": 9007199254740993,
        "name": "ü",
        "total": 12.30,
        "share": 1,
        "ok": False,
        "at": "2026-01-01T10:00:00+01:00",
        "born": "2026-02-03",
        "n": 7.0,
        "type": "a",
        "more": [1],
    }
    (row,) = decoded(text, json.dumps(body).encode(), headers=[("x-r", "eu")])
    assert row == {
        "id": 9007199254740993,
        "name": "ü",
        "Total": Decimal("12.30"),
        "share": 1.0,
        "ok": False,
        "at": datetime(2026, 1, 1, 9, tzinfo=UTC),
        "born": date(2026, 2, 3),
        "n": 7,
        "order_type": "a",
        "r": "eu",
        FAULT: None,
    }


def test_what_is_missing_is_null_and_headers_do_not_depend_on_the_body() -> None:
    text = "id long, r string from header x-r"
    assert decoded(text, b"{}", b'{"id": null}', b"no", headers=[("x-r", "eu")]) == [
        {"id": None, "r": "eu", FAULT: None},
        {"id": None, "r": "eu", FAULT: None},
        {"id": None, "r": "eu", FAULT: "not JSON: Expecting value: line 1 column 1 (char 0)"},
    ]
    assert decoded("r string from header x-r", b"{}") == [{"r": None, FAULT: None}]


@pytest.mark.parametrize(
    "column, value, fault",
    [
        ("v long not null", "null", "/v is missing or null"),
        ("v long", "1.5", "/v is no long: 1.5"),
        ("v long", "true", "/v is no long: true"),
        ("v long", str(1 << 63), f"/v is no long: {1 << 63}"),
        ("v int", str(-(1 << 31) - 1), f"/v is no int: {-(1 << 31) - 1}"),
        ("v long", "1e400", "/v is no long: "),
        ("v double", "1e400", "/v is no double: too large"),
        ("v double", "NaN", "not JSON: NaN is no number of JSON"),
        ("v double", '"1"', '/v is no double: "1"'),
        ("v string", "1", "/v is no string: 1"),
        ("v string", '"\\ud800"', "/v is no string: "),
        ("v boolean", "1", "/v is no boolean: 1"),
        ("v decimal(4,2)", "1.234", "/v is no decimal(4, 2): 1.234"),
        ("v decimal(4,2)", "100", "/v is no decimal(4, 2): 100"),
        ("v decimal(4,2)", "1e999999999", "/v is no decimal(4, 2): too large"),
        ("v date", '"2026-13-01"', "/v is no date: "),
        ("v timestamp", '"2026-01-01T10:00"', "names no zone"),
        ("v timestamp", '"0001-01-01T00:00+14:00"', "/v is no timestamp: "),
        ("v long", "[" * 100000, "not JSON: "),
    ],
)
def test_a_value_that_does_not_fit_is_a_fault_with_its_place(
    column: str, value: str, fault: str
) -> None:
    (row,) = decoded(f"other string, {column}", f'{{"other": "x", "v": {value}}}'.encode())
    assert fault in row[FAULT]
    assert row["v"] is row["other"] is None


@pytest.mark.parametrize("body", [b"", b"[1]", b"3", b"\xff", b"null"])
def test_a_body_that_is_no_object_is_a_fault(body: bytes) -> None:
    assert decoded("id long", body)[0][FAULT]


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_no_body_stops_those_behind_it(body: bytes) -> None:
    text = "a string, b decimal(38,10), c timestamp, d date, e long, f double, g boolean"
    assert decoded(text, body, b'{"a": "x"}')[1]["a"] == "x"


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.integers() | st.text(), st.lists))
def test_no_value_stops_those_behind_it(value: Any) -> None:
    text = "a string, b decimal(38,10), c timestamp, d date, e long, f double, g boolean, h int"
    for name in "abcdefgh":
        body = json.dumps({name: value}).encode()
        assert decoded(text, body, b'{"a": "x"}')[1]["a"] == "x"


@pytest.mark.parametrize(
    "text, told",
    [
        ("type string", "give it another name, as in body_type string from type"),
        ("a long, A long", "is there already"),
        ("body_fault string", "is there already"),
        ("a", "is no column such as"),
        ("a varchar", "the types are string, boolean, int"),
        ("a decimal", "decimal(10,2)"),
        ("a long(3,2)", "the types are"),
        ("a decimal(40,2)", "up to 38 digits"),
        ("a decimal(2,3)", "up to 38 digits"),
        ("a long from header x", "a column of a header is a string"),
        ("", "is no column"),
    ],
)
def test_a_wrong_list_is_refused_with_what_is_right(text: str, told: str) -> None:
    with pytest.raises(ValueError) as refused:
        parse_body_columns(text, TAKEN)
    assert told in str(refused.value)


def test_a_writer_puts_them_into_files_and_directories_and_counts_faults(tmp_path: Path) -> None:
    columns = ("seq_id", "body", "headers", "timestamp")
    decoded_columns = parse_body_columns("id long, region string", TAKEN)
    layout = Layout(columns, ("published_day", "region"), decoded=decoded_columns, with_fault=True)
    bodies = [b'{"id": 1, "region": "eu"}', b"no", b'{"id": 3, "region": "us"}']
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    rows = [
        {"seq_id": n, "body": body, "timestamp": moment if n else None}
        for n, body in enumerate(bodies)
    ]
    writer = DraftWriter(layout, str(tmp_path / "drafts"), 4)
    batch = pa.RecordBatch.from_pylist(rows, arrow_schema(columns))
    writer.add(BodyDecoder(decoded_columns).decoded(batch))
    drafts = {draft.directory: draft for draft in writer.close()}
    null = "__HIVE_DEFAULT_PARTITION__"
    assert {place: (one.messages, one.faults) for place, one in drafts.items()} == {
        f"published_day={null}/region=eu": (1, 0),
        f"published_day=2026-01-02/region={null}": (1, 1),
        "published_day=2026-01-02/region=us": (1, 0),
    }
    file = parquet.read_table(drafts["published_day=2026-01-02/region=us"].path).to_pylist()
    assert [(one["id"], one["body"], one[FAULT], one["ingest_batch"]) for one in file] == [
        (3, bodies[2], None, 4)
    ]
    assert "region" not in file[0]


NESTED = {
    "customer": {"address": {"city": "Köln"}, "a.b": 1},
    "items": [{"sku": "x", "n": 2}, {"sku": "y"}],
    "tags": {"a": "1", "b": None},
    "plain.name": True,
}


def test_paths_and_nested_types() -> None:
    text = (
        "city string from customer.address.city, dotted long from /customer/a.b,"
        " plain boolean from /plain.name, street string from customer.address.street,"
        " items array<struct<sku: string, n int, total decimal(4,1)>>, tags map<string, string>,"
        " c struct<address struct<city string>> from customer, none long from none.of.these"
    )
    (row,) = decoded(text, json.dumps(NESTED).encode())
    assert row == {
        "city": "Köln",
        "dotted": 1,
        "plain": True,
        "street": None,
        "items": [{"sku": "x", "n": 2, "total": None}, {"sku": "y", "n": None, "total": None}],
        "tags": [("a", "1"), ("b", None)],
        "c": {"address": {"city": "Köln"}},
        "none": None,
        FAULT: None,
    }


@pytest.mark.parametrize(
    "column, told",
    [
        ("v string from customer.address.city.code", "/customer/address/city is no object"),
        ("v array<struct<sku long>> from items", '/items/0/sku is no long: "x"'),
        ("v struct<a long> from items", "/items is no struct: "),
        ("v array<long> from customer", "/customer is no array: "),
        ("v map<string, long> from tags", '/tags/a is no long: "1"'),
        ("v string not null from customer.address.zip", "/customer/address/zip is missing or null"),
    ],
)
def test_a_fault_in_the_depth_has_its_pointer(column: str, told: str) -> None:
    (row,) = decoded(column, json.dumps(NESTED).encode())
    assert told in row[FAULT]
    assert row["v"] is None


@pytest.mark.parametrize(
    "text, told",
    [
        ("v struct<a long, A long>", "each name once"),
        ("v struct<>", "is written struct<name type"),
        ("v map<long, string>", "the keys of a map are strings"),
        ("v array<text<long>>", "the types are string"),
        ("v array<long", "the types are string"),
    ],
)
def test_a_wrong_nested_type_is_refused(text: str, told: str) -> None:
    with pytest.raises(ValueError) as refused:
        parse_body_columns(text, TAKEN)
    assert told in str(refused.value)


def test_the_first_of_several_paths_counts_and_a_header_may_be_required() -> None:
    text = "id long not null from after.id|before.id, r string not null from header x-r"
    bodies = (b'{"after": {"id": 1}, "before": {"id": 2}}', b'{"after": null, "before": {"id": 2}}')
    rows = decoded(text, *bodies, b"{}", headers=[("x-r", "eu")])
    assert [row["id"] for row in rows] == [1, 2, None]
    assert rows[2][FAULT] == "/after/id or /before/id is missing or null"
    assert decoded(text, bodies[0])[0][FAULT] == "header x-r is missing"
