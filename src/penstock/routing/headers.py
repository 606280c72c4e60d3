"""Headers exchanges: a binding's arguments are compared with a message's headers.

``x-match`` in the arguments says how (``all`` when it is missing):

    all, any                every, or at least one, argument matches; those whose name
                            begins with ``x-`` are left out of it
    all-with-x, any-with-x  the same with them; only ``x-match`` itself is left out

An argument without a value (void) matches any value, but not a missing header.  Values
are compared as RabbitMQ compares them: numbers and times by value whatever their type,
text with bytes, but ``true`` is not 1 and a number is not its spelling; values inside
arrays and tables have to be of the same type too.  Two accidents of RabbitMQ are left
out: a table inside a table need not have its fields in the same order here, and integers
inside arrays and tables need not have the same width.

With no argument to compare, ``all`` matches every message and ``any`` none.
"""

from decimal import Decimal
from math import isfinite
from typing import Final, final

from penstock.core.errors import PreconditionFailed
from penstock.core.steps import steps
from penstock.routing.matcher import Matcher, RoutingContext, append_once

X_MATCH: Final = "x-match"
X_MATCH_VALUES: Final = ("all", "any", "all-with-x", "any-with-x")


@final
class HeadersPattern:
    """One binding: its arguments, ready to be compared.

    ``serial``  place in the order of binding
    ``keys``    where the index has it
    """

    __slots__ = ("destination", "every", "keys", "serial", "wanted")

    def __init__(self, destination: object, arguments: dict[str, object], serial: int) -> None:
        mode = x_match(arguments)
        with_x = mode.endswith("-with-x")
        self.destination: object = destination
        self.serial: int = serial
        self.keys: list[tuple[str, object]] = []
        self.every: bool = mode.startswith("all")
        self.wanted: list[tuple[str, object]] = [
            (name, value)
            for name, value in arguments.items()
            if name != X_MATCH and (with_x or not name.startswith("x-"))
        ]

    def matches(self, headers: dict[str, object]) -> bool:
        for name, value in self.wanted:
            matches = name in headers and (value is None or same_value(value, headers[name]))
            if matches != self.every:
                return matches
        return self.every


Patterns = dict[int, HeadersPattern]
"""By serial number."""


@final
class HeadersMatcher(Matcher):
    """All bindings of one headers exchange, found by what they ask for.

    ``fields`` has, for a header's name and a value (as ``value_key`` gives it), the patterns
    that ask for it: ``any`` patterns under each of their arguments, so to be there is to
    match; ``all`` patterns under one, that which fewest others had, and are then compared.
    So a match costs what the message's headers point at, not what there is.
    """

    def __init__(self) -> None:
        super().__init__()
        self.needs_headers = True
        self.patterns: dict[tuple[int, str, str], HeadersPattern] = {}
        self.fields: dict[str, dict[object, Patterns]] = {}
        self.unconditional: Patterns = {}
        self.serial: int = 0

    def check(self, routing_key: str, arguments: dict[str, object]) -> None:
        x_match(arguments)

    def add(self, destination: object, routing_key: str, arguments: dict[str, object]) -> None:
        self.serial += 1
        pattern = HeadersPattern(destination, arguments, self.serial)
        self.patterns[(id(destination), routing_key, arguments_key(arguments))] = pattern
        keys = [(name, value_key(value)) for name, value in pattern.wanted]
        if pattern.every:
            keys = self.rarest(keys)
            if not keys:
                self.unconditional[pattern.serial] = pattern
        pattern.keys = keys
        for name, key in keys:
            values = self.fields.get(name)
            if values is None:
                values = {}
                self.fields[name] = values
            bucket = values.get(key)
            if bucket is None:
                bucket = {}
                values[key] = bucket
            bucket[pattern.serial] = pattern

    def rarest(self, keys: list[tuple[str, object]]) -> list[tuple[str, object]]:
        """The one with fewest patterns so far; to have any value at all says least."""
        best: list[tuple[str, object]] = []
        fewest = -1
        for name, key in keys:
            values = self.fields.get(name)
            bucket = None if values is None else values.get(key)
            count = 0 if bucket is None else len(bucket)
            if key is PRESENT:
                count += len(self.patterns)
            if fewest < 0 or count < fewest:
                fewest = count
                best = [(name, key)]
        return best

    def remove(self, destination: object, routing_key: str, arguments: dict[str, object]) -> None:
        pattern = self.patterns.pop((id(destination), routing_key, arguments_key(arguments)))
        self.unconditional.pop(pattern.serial, None)
        for name, key in pattern.keys:
            values = self.fields[name]
            bucket = values[key]
            del bucket[pattern.serial]
            if not bucket:
                del values[key]
                if not values:
                    del self.fields[name]

    def match(self, routing_key: str, context: RoutingContext | None, found: list[object]) -> None:
        given: dict[str, object] = {} if context is None else context.headers
        hits = self.unconditional.copy()
        for name, value in given.items():
            values = self.fields.get(name)
            if values is None:
                continue
            bucket = values.get(value_key(value))
            if bucket is not None:
                compare(bucket, given, hits)
            if value is not None:
                bucket = values.get(PRESENT)
                if bucket is not None:
                    compare(bucket, given, hits)
        if len(hits) > 0:
            append_once([hits[serial].destination for serial in sorted(hits)], set(), found)


def compare(bucket: Patterns, headers: dict[str, object], hits: Patterns) -> None:
    steps.count(len(bucket))
    for serial, pattern in bucket.items():
        if not pattern.every or pattern.matches(headers):
            hits[serial] = pattern


@final
class Present:
    """The key of arguments without a value, which every value matches."""


PRESENT: Final = Present()


def value_key(value: object) -> object:
    """Equal and hashed equally for values that are ``same_value``, and for no others."""
    if value is None:
        return PRESENT
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    if isinstance(value, float) and value != value:  # noqa: PLR0124 - nothing is the same as NaN
        return object()
    if isinstance(value, Decimal):
        return ("decimal", value.as_tuple())
    if isinstance(value, (list, tuple, dict)):
        return ("many", canonical(value) if value else "")
    return value


def x_match(arguments: dict[str, object]) -> str:
    """The mode a binding asks for; ``PreconditionFailed`` for one that does not exist."""
    if X_MATCH not in arguments:
        return "all"
    value = arguments[X_MATCH]
    if not isinstance(value, str):
        raise PreconditionFailed(
            f"Invalid x-match field type {type_name(value)} (value {term(value)}); expected longstr"
        )
    if value not in X_MATCH_VALUES:
        raise PreconditionFailed(
            f"Invalid x-match field value {term(value)}; "
            "expected all, any, all-with-x, or any-with-x"
        )
    return value


def arguments_key(arguments: dict[str, object]) -> str:
    """Equal for equal arguments in any order, and for no others: what tells bindings apart.

    Unlike matching it keeps 1, 1.0, "1" and true apart.
    """
    return canonical(arguments) if arguments else ""


def canonical(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(sorted([f"{k!r}:{canonical(v)}" for k, v in value.items()])) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join([canonical(item) for item in value]) + "]"
    return f"{type(value).__name__} {value!r}"


# -- comparing values ----------------------------------------------------------------------


def same_value(wanted: object, given: object) -> bool:
    if isinstance(wanted, bool) or isinstance(given, bool):
        return wanted is given
    if isinstance(wanted, (str, bytes)):
        return isinstance(given, (str, bytes)) and as_bytes(wanted) == as_bytes(given)
    if isinstance(wanted, (int, float)):
        return isinstance(given, (int, float)) and wanted == given
    if isinstance(wanted, Decimal):
        # 1.0 and 1.00 are different numbers of digits and so not the same field.
        return isinstance(given, Decimal) and wanted.as_tuple() == given.as_tuple()
    if isinstance(wanted, (list, tuple, dict)) and isinstance(given, (list, tuple, dict)):
        # Inside arrays and tables the types count; an empty array is an empty table.
        return canonical(wanted) == canonical(given) or not (wanted or given)
    return wanted is None and given is None


def as_bytes(value: str | bytes) -> bytes:
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value


# -- RabbitMQ's words for a value ----------------------------------------------------------


def type_name(value: object) -> str:
    """The field's type as RabbitMQ calls it; an ``int`` of a class of its own is a time."""
    # Asked first: compiled code takes what it knows to be an int for a plain one.
    kind = type(value)
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        if kind is not int:
            return "timestamp"
        return "signedint" if -(2**31) <= value < 2**31 else "long"
    if isinstance(value, str):
        return "longstr"
    if isinstance(value, bytes):
        return "binary"
    if isinstance(value, float):
        return "double"
    if isinstance(value, Decimal):
        return "decimal"
    if isinstance(value, dict):
        return "table"
    return "void" if value is None else "array"


def is_integer(value: object) -> bool:
    """An integer of any width: no truth value, no time."""
    return type(value) is int


def term(value: object) -> str:
    """The value as RabbitMQ's texts print it."""
    if value is None:
        return "undefined"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, bytes)):
        return binary_term(as_bytes(value))
    if isinstance(value, dict):
        fields = [f"{{{term(k)},{type_name(v)},{term(v)}}}" for k, v in value.items()]
        return "[" + ",".join(fields) + "]"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join([f"{{{type_name(v)},{term(v)}}}" for v in value]) + "]"
    if isinstance(value, float):
        return float_term(value)
    if isinstance(value, Decimal):
        sign, digits, exponent = value.as_tuple()
        number = "".join([str(digit) for digit in digits])
        return f"{{{-int(exponent)},{'-' if sign else ''}{number}}}"
    return str(int(value)) if isinstance(value, int) else str(value)


def float_term(value: float) -> str:
    """The shorter of 100.0 and 1.0e2, and always the latter from 2**53 on."""
    if not isfinite(value):
        return str(value)
    _, figures, exponent = Decimal(repr(abs(value))).as_tuple()
    digits = "".join([str(figure) for figure in figures]).rstrip("0") or "0"
    place = len(figures) + int(exponent)  # of the point, counted from the first digit
    if value == 0:
        place = 1
    minus = "-" if str(value).startswith("-") else ""
    if 0 < place < len(digits):
        return f"{minus}{digits[:place]}.{digits[place:]}"
    if place == 0:
        return f"{minus}0.{digits}"
    shown = f"{digits[0]}.{digits[1:] or '0'}e{place - 1}"
    cost = len(str(place - 1)) + (3 if len(digits) == 1 else 2)
    if place < 0:
        return minus + (f"0.{'0' * -place}{digits}" if 2 - place <= cost else shown)
    zeros = place - len(digits)
    if zeros + 2 <= cost and abs(value) < 1 << 53:
        return f"{minus}{digits}{'0' * zeros}.0"
    return minus + shown


def binary_term(data: bytes) -> str:
    if not data:
        return "<<>>"
    if data.isascii() and data.decode().isprintable():
        return '<<"' + data.decode().replace("\\", "\\\\").replace('"', '\\"') + '">>'
    return "<<" + ",".join([str(octet) for octet in data]) + ">>"
