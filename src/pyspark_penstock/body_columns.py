"""Columns made of bodies and headers: fields with types, and what is wrong with a body.

Bodies are JSON objects, or Avro records (``avro_bodies``).

In: a list of columns, as ``id long not null, total decimal(10,2), city string from
customer.address.city, items array<struct<sku string, n int>>, region string from header x-region``.
Out: for a batch of messages those columns and ``body_fault``: null, or why the body does not fit,
with a JSON pointer.  A row at fault has null in all columns of its body; the body itself is kept,
so that it can be decoded again by another list.

A field that is missing is null, and so is one of an object that is missing or null.  Types are
strict, as in ``penstock pipeline validate``: a number is no string, a timestamp names its zone.
Fields that no column names are left alone.
"""

import base64
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

if TYPE_CHECKING:
    import pyarrow as pa

FAULT: Final = "body_fault"
FAULT_MAX: Final = 500
NAME: Final = r"[A-Za-z_][A-Za-z0-9_]*"
COLUMN: Final = re.compile(
    rf"(?P<name>{NAME})\s+(?P<kind>.+?)"
    r"(?P<required>\s+not\s+null)?(?:\s+from\s+(?P<header>header\s+)?(?P<source>\S+))?",
    re.IGNORECASE,
)
PLAIN_KIND: Final = re.compile(r"([a-z]+)\s*(?:\(\s*(\d+)\s*,\s*(\d+)\s*\))?", re.IGNORECASE)
NESTED_KIND: Final = re.compile(r"(struct|array|map)\s*<(.*)>", re.IGNORECASE)
FIELD: Final = re.compile(rf"({NAME})(?:\s*:\s*|\s+)(.+)")
TEXT_KEY: Final = re.compile(r"string\s*,(.*)", re.IGNORECASE)
COMMA: Final = ","
PRECISION_MAX: Final = 38
DIGITS_MAX: Final = 400
INTEGER_BITS: Final = {"int": 32, "long": 64}
SAME: Final = {"bigint": "long", "integer": "int", "text": "string"}


class Kind(NamedTuple):
    """A type; ``digits`` and ``scale`` are of a decimal.

    ``parts``: the fields of a struct, the element of an array, the value of a map.
    """

    word: str
    digits: int = 0
    scale: int = 0
    parts: "tuple[tuple[str, Kind], ...]" = ()

    def __str__(self) -> str:
        return self.word if self.word != "decimal" else f"decimal{self.digits, self.scale}"

    def type(self) -> "pa.DataType":
        import pyarrow as pa

        parts = [(name, kind.type()) for name, kind in self.parts]
        kinds: dict[str, Callable[[], pa.DataType]] = {
            "string": pa.string,
            "boolean": pa.bool_,
            "int": pa.int32,
            "long": pa.int64,
            "double": pa.float64,
            "date": pa.date32,
            "timestamp": lambda: pa.timestamp("us", tz="UTC"),
            "binary": pa.binary,
            "decimal": lambda: pa.decimal128(self.digits, self.scale),
            "struct": lambda: pa.struct(parts),
            "array": lambda: pa.list_(pa.field("element", parts[0][1])),
            "map": lambda: pa.map_(pa.string(), parts[0][1]),
        }
        return kinds[self.word]()


class BodyColumn(NamedTuple):
    name: str
    kind: Kind
    required: bool
    source: str  # the header's name, or where the value is in the body, as it was written
    of_header: bool

    def type(self) -> "pa.DataType":
        return self.kind.type()

    @property
    def paths(self) -> tuple[tuple[str, ...], ...]:
        """Each is ``a.b``, or a JSON pointer ``/a/b`` (RFC 6901), which knows names with dots."""
        return tuple(map(_path, self.source.split("|")))


def _path(text: str) -> tuple[str, ...]:
    if not text.startswith("/"):
        return tuple(text.split("."))
    steps = text[1:].split("/")
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in steps)


def parse_body_columns(text: str, taken: tuple[str, ...]) -> tuple[BodyColumn, ...]:
    """``taken``: names of the columns that every message has.  Raises ValueError."""
    found: list[BodyColumn] = []
    for part in _parts(text):
        column = _parsed(part)
        if column.name.lower() in {*taken, FAULT, *(one.name.lower() for one in found)}:
            raise ValueError(
                f"column '{column.name}' is there already: give it another name, as in"
                f" body_{column.name} {column.kind} from {column.source}"
            )
        found.append(column)
    return tuple(found)


def _parts(text: str) -> list[str]:
    depth, begin, found = 0, 0, []
    for place, sign in enumerate(text):
        depth += (sign in "(<") - (sign in ")>")
        if sign == COMMA and not depth:
            found.append(text[begin:place].strip())
            begin = place + 1
    return [*found, text[begin:].strip()]


def _parsed(text: str) -> BodyColumn:
    match = COLUMN.fullmatch(text)
    if match is None:
        raise ValueError(
            f"{text!r} is no column such as 'id long not null', 'total decimal(10,2)',"
            " 'city string from customer.address.city' or 'region string from header x-region'"
        )
    kind, of_header = _kind(match["kind"].strip(), text), match["header"] is not None
    if of_header and kind.word != "string":
        raise ValueError(f"{text!r}: a column of a header is a string")
    source = match["source"] or match["name"]
    return BodyColumn(match["name"], kind, match["required"] is not None, source, of_header)


def _kind(text: str, column: str) -> Kind:
    nested = NESTED_KIND.fullmatch(text)
    if nested is not None:
        return _nested(nested[1].lower(), nested[2].strip(), column)
    plain = PLAIN_KIND.fullmatch(text)
    word = plain[1].lower() if plain else ""
    kind = SAME.get(word, word)
    digits, scale = (int(plain[2] or 0), int(plain[3] or 0)) if plain else (0, 0)
    if kind not in CONVERTERS or (kind == "decimal") != bool(digits):
        raise ValueError(
            f"{column!r}: the types are {', '.join(CONVERTERS)}; a decimal is written"
            " decimal(10,2), nested ones struct<name type, …>, array<type>, map<string, type>"
        )
    if digits > PRECISION_MAX or scale > digits:
        raise ValueError(f"{column!r}: a decimal has up to {PRECISION_MAX} digits")
    return Kind(kind, digits, scale)


def _nested(word: str, text: str, column: str) -> Kind:
    if word == "array":
        return Kind(word, parts=(("element", _kind(text, column)),))
    if word == "map":
        of_text = TEXT_KEY.fullmatch(text)
        if of_text is None:
            raise ValueError(f"{column!r}: the keys of a map are strings: map<string, type>")
        return Kind(word, parts=(("value", _kind(of_text[1].strip(), column)),))
    fields = [FIELD.fullmatch(part) for part in _parts(text)]
    names = [one[1].lower() for one in fields if one is not None]
    if len(set(names)) < len(fields):
        raise ValueError(f"{column!r}: a struct is written struct<name type, …>, each name once")
    found = [(one[1], _kind(one[2].strip(), column)) for one in fields if one is not None]
    return Kind(word, parts=tuple(found))


@dataclass(frozen=True)
class BodyDecoding:
    """How bodies become columns; () = not at all.  ``avro``: their schema, "" = they are JSON.

    ``avro_ids``: of that schema in a registry, whose header each body has; () = none has one.
    """

    columns: tuple[BodyColumn, ...] = ()
    avro: str = ""
    avro_ids: tuple[int, ...] = ()

    def decoder(self) -> "Callable[[pa.RecordBatch], pa.RecordBatch]":
        """Raises ValueError for a schema that is none."""
        if not self.columns:
            return lambda rows: rows
        if self.avro:
            from pyspark_penstock.avro_bodies import avro_reader

            return BodyDecoder(self.columns, avro_reader(self.avro, self.avro_ids)).decoded
        return BodyDecoder(self.columns).decoded


NOT_DECODED: Final = BodyDecoding()


class BodyDecoder:
    """Adds the columns to batches that have ``body``, and ``headers`` if a column is of one."""

    def __init__(
        self,
        columns: tuple[BodyColumn, ...],
        fields_of: Callable[[bytes], dict[str, Any]] | None = None,
    ) -> None:
        """``fields_of`` a body raises ValueError; None = it is JSON."""
        self._columns = columns
        self._of_body = [(one, one.paths) for one in columns if not one.of_header]
        self._fields_of = fields_of or _json_reader(columns)

    def decoded(self, messages: "pa.RecordBatch") -> "pa.RecordBatch":
        import pyarrow as pa

        names = [one.name for one, _ in self._of_body]
        rows = [self._values(body) for body in messages.column("body").to_pylist()]
        made = dict(zip(names, zip(*(values for values, _ in rows), strict=True), strict=False))
        faults = [fault for _, fault in rows]
        for one in self._columns:
            if one.of_header:
                headers = messages.column("headers").to_pylist()
                values = [dict(some or ()).get(one.source) for some in headers]
                if one.required:
                    missing = f"header {one.source} is missing"
                    faults = [
                        fault or (missing if value is None else None)
                        for fault, value in zip(faults, values, strict=True)
                    ]
            else:
                values = list(made.get(one.name, ()))
            messages = messages.append_column(one.name, pa.array(values, one.type()))
        return messages.append_column(FAULT, pa.array(faults, pa.string()))

    def _values(self, body: bytes) -> tuple[tuple[Any, ...], str | None]:
        nothing = (None,) * len(self._of_body)
        try:
            fields = self._fields_of(body)
            return tuple(_value(one, paths, fields) for one, paths in self._of_body), None
        except ValueError as error:
            return nothing, _clean(str(error))


def _json_reader(columns: tuple[BodyColumn, ...]) -> Callable[[bytes], dict[str, Any]]:
    exact = "decimal" in {word for one in columns for word in _words(one.kind)}
    decoder = json.JSONDecoder(parse_constant=_no_constant, parse_float=Decimal if exact else float)

    def read(body: bytes) -> dict[str, Any]:
        try:
            fields = decoder.decode(body.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"not JSON: {error}") from error
        if not isinstance(fields, dict):
            raise ValueError("not a JSON object")  # noqa: TRY004 - the body's fault
        return fields

    return read


def _words(kind: Kind) -> set[str]:
    return {kind.word}.union(*(_words(part) for _, part in kind.parts))


def _value(column: BodyColumn, paths: tuple[tuple[str, ...], ...], fields: Any) -> Any:
    """The first that is there; raises ValueError."""
    pointers = []
    for path in paths:
        value, pointer = _at(path, fields)
        if value is not None:
            return _converted(column.kind, value, pointer)
        pointers.append(pointer)
    if column.required:
        raise ValueError(f"{' or '.join(pointers)} is missing or null")
    return None


def _at(path: tuple[str, ...], value: Any) -> tuple[Any, str]:
    """What is there, or None; and the pointer to it."""
    pointer = ""
    for step in path:
        if value is not None and not isinstance(value, dict):
            raise ValueError(f"{pointer} is no object")
        pointer += "/" + step.replace("~", "~0").replace("/", "~1")
        value = None if value is None else value.get(step)
    return value, pointer


def _converted(kind: Kind, value: Any, pointer: str) -> Any:
    if value is None:
        return None
    if kind.word == "array" and isinstance(value, list):
        (_, item), *_ = kind.parts
        return [_converted(item, one, f"{pointer}/{place}") for place, one in enumerate(value)]
    if kind.word == "map" and isinstance(value, dict):
        (_, item), *_ = kind.parts
        return [
            (_string(kind, key), _converted(item, one, f"{pointer}/{key}"))
            for key, one in value.items()
        ]
    if kind.word == "struct" and isinstance(value, dict):
        return {
            name: _converted(part, value.get(name), f"{pointer}/{name}")
            for name, part in kind.parts
        }
    try:
        return CONVERTERS.get(kind.word, _nothing)(kind, value)
    except (ValueError, TypeError, ArithmeticError) as error:
        raise ValueError(f"{pointer} is no {kind}: {error}") from error


def _nothing(_: Kind, value: Any) -> Any:
    raise TypeError(json.dumps(value, default=str))


def _string(_: Kind, value: Any) -> str:
    if isinstance(value, UUID):
        return str(value)
    if not isinstance(value, str):
        raise TypeError(json.dumps(value, default=str))
    value.encode()  # half of a pair of surrogates is no text
    return value


def _boolean(_: Kind, value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(json.dumps(value, default=str))
    return value


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise TypeError(json.dumps(value, default=str))
    if isinstance(value, Decimal) and value.adjusted() > DIGITS_MAX:
        raise ValueError("too large")  # as an int it would be as long
    return value


def _integer(kind: Kind, value: Any) -> int:
    number = int(_number(value))
    most = 1 << (INTEGER_BITS[kind.word] - 1)
    if number != value or not -most <= number < most:
        raise ValueError(str(value))
    return number


def _double(_: Kind, value: Any) -> float:
    number = float(_number(value))
    if math.isinf(number):
        raise ValueError("too large")
    return number


def _decimal(kind: Kind, value: Any) -> Decimal:
    number = Decimal(_number(value))
    _, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)  # no constants come here
    if -exponent > kind.scale or len(digits) + exponent > kind.digits - kind.scale:
        raise ValueError(str(value))
    return number


def _date(_: Kind, value: Any) -> date:
    return value if type(value) is date else date.fromisoformat(_string(_, value))


def _timestamp(_: Kind, value: Any) -> datetime:
    moment = value if isinstance(value, datetime) else datetime.fromisoformat(_string(_, value))
    if moment.tzinfo is None:
        raise ValueError(f"{value} names no zone")
    return moment.astimezone(UTC)


def _binary(_: Kind, value: Any) -> bytes:
    """JSON has no octets: there it is base64."""
    return value if isinstance(value, bytes) else base64.b64decode(_string(_, value), validate=True)


CONVERTERS: Final[Mapping[str, Callable[[Kind, Any], Any]]] = {
    "string": _string,
    "boolean": _boolean,
    "int": _integer,
    "long": _integer,
    "double": _double,
    "decimal": _decimal,
    "date": _date,
    "timestamp": _timestamp,
    "binary": _binary,
}


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _clean(text: str) -> str:
    return text[:FAULT_MAX].encode("utf-8", "backslashreplace").decode()
