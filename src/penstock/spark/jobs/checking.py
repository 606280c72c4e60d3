"""Checks a body against a schema: JSON Schema, or columns as Spark writes them.

In: a schema (a JSON file, or DDL such as ``id long not null, name string``) and bodies.  Out:
for each body nothing, or what is wrong and where: a text and a JSON pointer.

DDL is made into a JSON Schema, so that both are judged by one engine and both say where.  The
engine is ``jsonschema``, which knows all drafts.  What it would pass over in silence is refused
before anything runs: a format it cannot check, a reference to another file or the network.
"""

import json
import re
from collections.abc import Callable, Iterator
from datetime import date, datetime, time
from typing import Any, NamedTuple

from penstock.core.errors import PenstockError

TEXT_MAX = 500
FORMATS = ("date", "date-time", "time", "email", "ipv4", "ipv6", "uuid", "regex")
_DATA = ("const", "enum", "default", "examples")
"""Keywords whose values are data, not schemas."""
_INTEGERS = {"byte": 8, "short": 16, "integer": 32, "long": 64}


class BadSchema(PenstockError):
    """The schema is none, or asks for what cannot be checked."""

    fix = "mend the schema and run the same command again"


class Fault(NamedTuple):
    text: str
    path: str  # a JSON pointer; "" = the whole body


Check = Callable[[bytes], Fault | None]


def load_schema(text: str) -> dict[str, Any] | bool:
    """A JSON Schema from the text of a file; raises BadSchema."""
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import validator_for

    try:
        schema = json.loads(text)
    except ValueError as error:
        raise BadSchema(f"the schema is not JSON: {error}") from error
    if not isinstance(schema, (dict, bool)):
        raise BadSchema("a JSON Schema is an object")
    _refuse_unchecked(schema, "")
    if isinstance(schema, dict) and "$schema" in schema:
        known = validator_for(schema, default=None)
        if known is None:
            raise BadSchema(f"the draft {schema['$schema']!r} is not known")
    try:
        _kind(schema).check_schema(schema)
    except SchemaError as error:
        raise BadSchema(f"the schema is wrong at {error.json_path}: {error.message}") from error
    _refuse_dangling(schema)
    return schema


def checker(schema: dict[str, Any] | bool) -> Check:
    """Made where it is used: it cannot travel to a worker."""
    from jsonschema.exceptions import best_match
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    # An empty registry: nothing is fetched from anywhere.
    judge = _kind(schema)(schema, registry=Registry(), format_checker=_formats())

    def check(body: bytes) -> Fault | None:
        try:
            value = json.loads(body, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            return Fault(_clean(f"not JSON: {error}"), "")
        try:
            fault = best_match(judge.iter_errors(value))
        except RecursionError:
            return Fault("nested too deep", "")
        except Unresolvable as missing:
            raise BadSchema(f"the schema refers to {missing.ref}, which is not in it") from missing
        except Exception as error:  # noqa: BLE001 - no body may stop those behind it
            return Fault(_clean(f"cannot be judged: {type(error).__name__}: {error}"), "")
        if fault is None:
            return None
        return Fault(_clean(fault.message), _pointer(fault.absolute_path))

    return check


def _kind(schema: dict[str, Any] | bool) -> Any:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for

    return validator_for(schema, default=Draft202012Validator)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _clean(text: str) -> str:
    """Fit for a header."""
    text = text if len(text) <= TEXT_MAX else text[: TEXT_MAX - 1] + "…"
    return text.encode("utf-8", "backslashreplace").decode()


def _pointer(path: Any) -> str:
    parts = (str(part).replace("~", "~0").replace("/", "~1") for part in path)
    return _clean("".join(f"/{part}" for part in parts))


# -- formats ---------------------------------------------------------------------------------


def _formats() -> Any:
    from jsonschema import FormatChecker

    formats = FormatChecker(formats=("email", "ipv4", "ipv6", "uuid", "regex"))
    for name, parse in (("date", date), ("date-time", datetime), ("time", time)):
        formats.checks(name, raises=ValueError)(_moment(parse, zone=name != "date"))
    return formats


def _moment(kind: Any, *, zone: bool) -> Callable[[object], bool]:
    def check(value: object) -> bool:
        if not isinstance(value, str):
            return True
        found = kind.fromisoformat(value)
        return not zone or found.tzinfo is not None

    return check


def _refuse_unchecked(schema: Any, place: str) -> None:
    for key, value in _keywords(schema):
        at = f"{place}/{key}"
        if key == "format" and isinstance(value, str) and value not in FORMATS:
            raise BadSchema(
                f"the format {value!r} at {at} cannot be checked; those that can: "
                f"{', '.join(FORMATS)}"
            )
        if key in ("$ref", "$dynamicRef") and isinstance(value, str) and not value.startswith("#"):
            raise BadSchema(
                f"{at} refers to {value!r}: a schema must be whole in itself, nothing is fetched"
            )
        if key not in _DATA:
            _refuse_unchecked(value, at)


def _refuse_dangling(schema: Any) -> None:
    """A reference within the schema to what is not there would be found by the first body."""
    from referencing import Registry
    from referencing.jsonschema import DRAFT202012, specification_with

    if not isinstance(schema, dict):
        return
    kind = specification_with(schema.get("$schema", ""), default=DRAFT202012)
    whole = kind.create_resource(schema)
    resolver = Registry().resolver_with_root(whole)
    for key, value in schema.items():
        _look_up(key, value, f"/{key}", resolver, kind)


def _look_up(key: str, value: Any, at: str, resolver: Any, kind: Any) -> None:
    from referencing.exceptions import Unresolvable

    if key in ("$ref", "$dynamicRef") and isinstance(value, str):
        try:
            resolver.lookup(value)
        except Unresolvable as missing:
            raise BadSchema(f"{at} refers to {value!r}, which is not in the schema") from missing
    if key in _DATA:
        return
    if isinstance(value, dict) and any(isinstance(value.get(name), str) for name in ("$id", "id")):
        resolver = resolver.in_subresource(kind.create_resource(value))  # has a root of its own
    for inner, below in _keywords(value):
        _look_up(inner, below, f"{at}/{inner}", resolver, kind)


def _keywords(schema: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(schema, dict):
        yield from schema.items()
    elif isinstance(schema, list):
        yield from ((str(place), value) for place, value in enumerate(schema))


# -- columns of Spark ------------------------------------------------------------------------


def schema_of_type(kind: Any) -> dict[str, Any]:
    """JSON Schema of a type as ``DataType.jsonValue`` says it."""
    if isinstance(kind, str):
        return _schema_of_name(kind)
    if kind["type"] == "struct":
        fields = kind["fields"]
        return {
            "type": "object",
            "properties": {
                field["name"]: _nullable(schema_of_type(field["type"]), nullable=field["nullable"])
                for field in fields
            },
            "required": [field["name"] for field in fields if not field["nullable"]],
        }
    if kind["type"] == "array":
        items = schema_of_type(kind["elementType"])
        return {"type": "array", "items": _nullable(items, nullable=kind["containsNull"])}
    if kind["type"] == "map" and kind["keyType"] == "string":
        values = schema_of_type(kind["valueType"])
        nullable = kind["valueContainsNull"]
        return {"type": "object", "additionalProperties": _nullable(values, nullable=nullable)}
    raise BadSchema(f"JSON cannot hold the type {kind['type']}")


def _schema_of_name(name: str) -> dict[str, Any]:
    if name in _INTEGERS:
        most = 1 << (_INTEGERS[name] - 1)
        return {"type": "integer", "minimum": -most, "maximum": most - 1}
    if name in ("float", "double") or re.fullmatch(r"decimal(\(\d+,-?\d+\))?", name):
        return {"type": "number"}
    simple = {
        "string": {"type": "string"},
        "boolean": {"type": "boolean"},
        "date": {"type": "string", "format": "date"},
        "timestamp": {"type": "string", "format": "date-time"},
    }
    if name not in simple:
        raise BadSchema(f"the type {name} cannot be checked in JSON")
    return simple[name]


def _nullable(schema: dict[str, Any], *, nullable: bool) -> dict[str, Any]:
    return {"anyOf": [{"type": "null"}, schema]} if nullable else schema
