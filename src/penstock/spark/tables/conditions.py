"""A condition on messages as text becomes what workers judge batches by.

In: ``routing_key like 'eu.%' and not priority >= 5``, ``headers."x-region" in ('eu', 'us')``,
``customer.city is not null``: comparisons of a column with a value, ``in``, ``between``, ``like``
with a ``%`` at the end, ``is null``, joined by ``and``, ``or``, ``not``.  pyiceberg reads it, whose
grammar is that of SQL's conditions; a worker has no Java that could.  Out: an expression of Arrow,
which can be pickled.  As in SQL a comparison with null is neither true nor false.
"""

from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import reduce
from operator import and_, eq, ge, gt, invert, le, lt, ne, or_
from typing import TYPE_CHECKING, Any, Final

from penstock.core.errors import PenstockError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.compute import Expression

COMPARISONS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "EqualTo": eq,
    "NotEqualTo": ne,
    "GreaterThan": gt,
    "GreaterThanOrEqual": ge,
    "LessThan": lt,
    "LessThanOrEqual": le,
}


class WrongCondition(PenstockError):
    """The text is no condition on the columns there are."""

    fix = "write it as in: routing_key like 'eu.%' and headers.\"x-region\" = 'eu'"


def parse_condition(text: str, schema: "pa.Schema") -> "Expression":
    """``schema``: of the columns that messages have.  Raises WrongCondition."""
    from pyiceberg.expressions.parser import parse
    from pyparsing import ParseException

    try:
        return _translated(parse(text), schema)
    except ParseException as error:
        unread = text[error.loc :] or "its end"
        raise WrongCondition(f"{text!r} is no condition: not understood at {unread!r}") from error
    except (ValueError, TypeError) as error:
        raise WrongCondition(f"{text!r} is no condition: {error}") from error


def _translated(node: Any, schema: "pa.Schema") -> "Expression":
    from pyarrow import compute as pc

    kind = type(node).__name__
    if kind in ("And", "Or"):
        join = and_ if kind == "And" else or_
        return join(_translated(node.left, schema), _translated(node.right, schema))
    if kind == "Not":
        return ~_translated(node.child, schema)
    if kind in ("AlwaysTrue", "AlwaysFalse"):
        return pc.scalar(kind == "AlwaysTrue")
    column, type_ = _column(node.term.name, schema)
    if kind in COMPARISONS:
        return COMPARISONS[kind](column, _value(node.literal, type_, node.term.name))
    if kind in ("In", "NotIn"):  # not is_in(), for which null is no unknown value
        values = sorted(node.literals, key=repr)
        found = reduce(or_, (column == _value(one, type_, node.term.name) for one in values))
        return invert(found) if kind == "NotIn" else found
    if kind in ("IsNull", "NotNull"):
        return column.is_null() if kind == "IsNull" else column.is_valid()
    if kind in ("StartsWith", "NotStartsWith"):
        found = pc.starts_with(column, node.literal.value)
        return invert(found) if kind == "NotStartsWith" else found
    raise WrongCondition(f"{kind} is not supported")


def _column(name: str, schema: "pa.Schema") -> "tuple[Expression, pa.DataType]":
    """A column, a header or a field of a struct; names are separated by dots."""
    import pyarrow as pa
    from pyarrow import compute as pc

    first, *more = name.split(".")
    if first not in schema.names:
        raise WrongCondition(f"there is no column {first}; there are {', '.join(schema.names)}")
    kind = schema.field(first).type
    if pa.types.is_map(kind) and more:
        key = pa.scalar(".".join(more), kind.key_type)
        return pc.map_lookup(pc.field(first), key, "first"), kind.item_type
    for step in more:
        if not pa.types.is_struct(kind) or kind.get_field_index(step) < 0:
            raise WrongCondition(f"column {first} has no {name.removeprefix(first + '.')}")
        kind = kind.field(step).type
    if pa.types.is_nested(kind):
        raise WrongCondition(f"{name} is a {kind}: name one of its parts")
    return pc.field(first, *more), kind


def _value(literal: Any, kind: "pa.DataType", name: str) -> "pa.Scalar[Any]":
    import pyarrow as pa

    value = literal.value
    try:
        if pa.types.is_decimal(kind):
            return pa.scalar(Decimal(value), kind)
        return pa.scalar(value).cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ArithmeticError) as error:
        hint = "; a time names its zone, as in '2026-11-28T08:00:00Z'" * pa.types.is_timestamp(kind)
        raise WrongCondition(f"{name} is {kind}, not {literal.value!r}{hint}") from error
