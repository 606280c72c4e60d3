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
from typing import Final, final

from penstock.core.errors import PreconditionFailed
from penstock.routing.matcher import Matcher

X_MATCH: Final = "x-match"
X_MATCH_VALUES: Final = ("all", "any", "all-with-x", "any-with-x")


@final
class HeadersPattern:
    """One binding: its arguments, ready to be compared."""

    __slots__ = ("destination", "every", "wanted")

    def __init__(self, destination: object, arguments: dict[str, object]) -> None:
        mode = x_match(arguments)
        with_x = mode.endswith("-with-x")
        self.destination: object = destination
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


@final
class HeadersMatcher(Matcher):
    """All bindings of one headers exchange; a match looks at each of them."""

    def __init__(self) -> None:
        super().__init__()
        self.needs_headers = True
        self.patterns: dict[tuple[int, str, str], HeadersPattern] = {}

    def add(self, destination: object, routing_key: str, arguments: dict[str, object]) -> None:
        identity = (id(destination), routing_key, arguments_key(arguments))
        self.patterns[identity] = HeadersPattern(destination, arguments)

    def remove(self, destination: object, routing_key: str, arguments: dict[str, object]) -> None:
        del self.patterns[(id(destination), routing_key, arguments_key(arguments))]

    def match(
        self, routing_key: str, headers: dict[str, object] | None, found: list[object]
    ) -> None:
        given: dict[str, object] = {} if headers is None else headers
        seen: set[int] = set()
        for pattern in self.patterns.values():
            identity = id(pattern.destination)
            if identity not in seen and pattern.matches(given):
                seen.add(identity)
                found.append(pattern.destination)


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
    return str(int(value)) if isinstance(value, int) else str(value)


def binary_term(data: bytes) -> str:
    if not data:
        return "<<>>"
    if data.isascii() and data.decode().isprintable():
        return '<<"' + data.decode().replace("\\", "\\\\").replace('"', '\\"') + '">>'
    return "<<" + ",".join([str(octet) for octet in data]) + ">>"
