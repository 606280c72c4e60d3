"""What a schema says of bodies, and which schemas are refused."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pyspark  # noqa: F401
import pytest
from pyspark.errors import ParseException
from pyspark.sql.types import StructType

from penstock.cli.pipelines.validate import _run
from penstock.spark.jobs.checking import BadSchema, Fault, checker, load_schema, schema_of_type
from penstock.spark.jobs.validating import schema_from_ddl

ORDER = {
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": "integer"},
        "at": {"format": "date-time"},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
    },
    "$defs": {"line": {"type": "object", "properties": {"a/b": {"minimum": 0}}}},
}


def fault(body: bytes | str, schema: Any = ORDER) -> Fault | None:
    data = body if isinstance(body, bytes) else body.encode()
    return checker(load_schema(json.dumps(schema)))(data)


def test_a_body_that_fits_has_no_fault() -> None:
    for body in ('{"id": 1}', '{"id": 1, "at": "2026-01-02T03:04:05Z", "more": [null]}'):
        assert fault(body) is None
    assert fault("[1]", True) is None


@pytest.mark.parametrize(
    "body,text,path",
    [
        (b"", "not JSON", ""),
        (b"\xff\xfe", "not JSON", ""),
        ("{", "not JSON", ""),
        ('{"id": NaN}', "NaN is no number", ""),
        ("[" * 100_000, "not JSON", ""),
        ("1" * 5000, "not JSON", ""),
        ("[]", "is not of type 'object'", ""),
        ("{}", "'id' is a required property", ""),
        ('{"id": "1"}', "'1' is not of type 'integer'", "/id"),
        ('{"id": 1, "lines": [{}, {"a/b": -1}]}', "less than the minimum", "/lines/1/a~1b"),
        ('{"id": 1, "at": "2026-01-02T03:04:05"}', "is not a 'date-time'", "/at"),
        ('{"id": 1, "at": "soon"}', "is not a 'date-time'", "/at"),
    ],
)
def test_a_fault_says_what_and_where(body: bytes | str, text: str, path: str) -> None:
    found = fault(body)
    assert found is not None
    assert text in found.text
    assert found.path == path
    assert len(found.text) <= 500


@pytest.mark.parametrize(
    "body,schema",
    [
        ("1e999", {"multipleOf": 0.01}),
        ("1" + "0" * 400, {"multipleOf": 0.01}),
        ('"a{99999999999999999999}"', {"format": "regex"}),
    ],
)
def test_a_body_on_which_the_engine_breaks_is_bad_and_stops_nobody(body: str, schema: Any) -> None:
    """Whoever publishes decides what is in it; an exception here would stop the queue for good."""
    found = fault(body, schema)
    assert found is not None
    assert "cannot be judged: OverflowError" in found.text


def test_a_fault_fits_into_a_header_whatever_the_body_says() -> None:
    found = fault(json.dumps({"id": "\ud800" + "x" * 9000}))
    assert found is not None
    found.text.encode()
    assert len(found.text) <= 600


@pytest.mark.parametrize(
    "schema,complaint",
    [
        ("{", "not JSON"),
        ("[]", "is an object"),
        ('{"type": "strin"}', "wrong at"),
        ('{"properties": {"a": {"format": "hostname"}}}', "'hostname' at /properties/a/format"),
        ('{"$ref": "other.json"}', "nothing is fetched"),
        ('{"allOf": [{"$ref": "http://127.0.0.1/x"}]}', "nothing is fetched"),
        ('{"$schema": "https://example.org/draft-99"}', "is not known"),
    ],
)
def test_a_schema_that_cannot_be_held_is_refused(schema: str, complaint: str) -> None:
    with pytest.raises(BadSchema, match=complaint):
        load_schema(schema)


def test_data_in_a_schema_is_not_taken_for_keywords() -> None:
    load_schema('{"properties": {"format": {"enum": [{"format": "x", "$ref": "y"}]}}}')


def test_each_draft_is_judged_by_its_own_rules() -> None:
    schema = {"$schema": "http://json-schema.org/draft-04/schema#", "maximum": 3}
    assert fault("3", schema) is None
    schema["exclusiveMaximum"] = True
    assert fault("3", schema) is not None


def test_types_of_spark_are_judged_as_json() -> None:
    def field(name: str, kind: Any, *, nullable: bool = True) -> dict[str, Any]:
        return {"name": name, "type": kind, "nullable": nullable, "metadata": {}}

    lines = {"type": "array", "elementType": "double", "containsNull": False}
    tags = {"type": "map", "keyType": "string", "valueType": "string", "valueContainsNull": True}
    kind = {
        "type": "struct",
        "fields": [
            field("id", "long", nullable=False), field("small", "byte"), field("day", "date"),
            field("lines", lines), field("tags", tags), field("price", "decimal(10,2)"),
        ],
    }  # fmt: skip
    check = checker(schema_of_type(kind))

    def path(**values: Any) -> str | None:
        found = check(json.dumps(values).encode())
        return None if found is None else found.path

    assert path(id=1) is None
    assert path(id=1, small=-128, day="2026-01-01", lines=[1, 1.5], tags={"a": None}) is None
    assert path(id=None) == "/id"
    assert path(small=1) == ""
    assert path(id=1 << 63) == "/id"
    assert path(id=1, small=128) == "/small"
    assert path(id=1, lines=[1, None]) == "/lines/1"
    assert path(id=1, tags={"a": 1}) == "/tags/a"
    assert path(id=1, day="2026-13-01") == "/day"
    assert path(id=1, price="1") == "/price"
    for wrong in ("binary", {"type": "map", "keyType": "integer"}):
        with pytest.raises(BadSchema):
            schema_of_type(wrong)


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"$ref": "#/$defs/nope"}}, "$defs": {"line": {}}},
        {"$ref": "#nowhere"},
        {"$schema": "http://json-schema.org/draft-07/schema#", "allOf": [{"$ref": "#/x"}]},
    ],
)
def test_a_reference_to_what_is_not_there_is_found_at_the_start(schema: Any) -> None:
    with pytest.raises(BadSchema, match=r"refers to '#.*', which is not in the schema"):
        load_schema(json.dumps(schema))


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#here", "$defs": {"a": {"$anchor": "here"}}},
        {"$dynamicRef": "#it", "$dynamicAnchor": "it"},
        {"items": {"$ref": "#"}, "properties": {"$id": {}, "id": {"const": {"$ref": "#/none"}}}},
        {"$defs": {"a": {"$id": "http://x/a", "$ref": "#/$defs/b", "$defs": {"b": {}}}}},
        {
            "$schema": "http://json-schema.org/draft-04/schema#",
            "definitions": {"a": {"id": "#it"}},
            "properties": {"id": {"$ref": "#/definitions/a"}, "b": {"$ref": "#it"}},
        },
    ],
)
def test_a_reference_within_the_schema_is_found(schema: Any) -> None:
    assert load_schema(json.dumps(schema)) == schema


def test_wrong_columns_are_wrong_usage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark alone can read them, and says no in pages."""

    def refused(_: str) -> StructType:
        raise ParseException("[PARSE_SYNTAX_ERROR] near 'lnog'. SQLSTATE: 42601\n\n== SQL ==\n^^^")

    def run(job: Any, *_: Any) -> Any:
        return schema_from_ddl(job.schema)

    monkeypatch.setattr(StructType, "fromDDL", staticmethod(refused))
    monkeypatch.setattr("penstock.spark.jobs.validating.run_validate", run)
    job = SimpleNamespace(schema="id lnog", home=tmp_path)
    extent = SimpleNamespace(ready=1)
    common = SimpleNamespace(output="json", every_s=None)
    with pytest.raises(click.UsageError, match=r"--schema: 'id lnog' .* 42601$"):
        _run(job, extent, common)  # type: ignore[arg-type]
