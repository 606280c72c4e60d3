"""Headers matching against what RabbitMQ routed, and its words for wrong arguments."""

from __future__ import annotations

import time
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import PreconditionFailed
from penstock.protocols.amqp.codec.tables import Timestamp, decode_table
from penstock.routing.headers import (
    PRESENT,
    HeadersMatcher,
    HeadersPattern,
    arguments_key,
    same_value,
    value_key,
)
from penstock.routing.matcher import RoutingContext
from tests.routing.recorded_rabbitmq import HEADERS_MATCHES
from tests.routing.typed_fields import Field, typed_table

# RabbitMQ says no to these; integer widths are not kept, and a table has no order here.
FORGIVEN = [
    ({"a": ("A", [("I", 1)])}, {"a": ("A", [("l", 1)])}),
    ({"a": ("F", {"b": ("I", 1)})}, {"a": ("F", {"b": ("l", 1)})}),
    (
        {"a": ("F", {"b": ("I", 1), "c": ("I", 2)})},
        {"a": ("F", {"c": ("I", 2), "b": ("I", 1)})},
    ),
]


class Queue:
    def __init__(self, number: int) -> None:
        self.number = number


def decoded(fields: dict[str, Field]) -> dict[str, object]:
    return decode_table(typed_table(fields), 0)[0]


def in_context(headers: dict[str, object] | None) -> RoutingContext | None:
    return None if headers is None else RoutingContext(headers, 0)


def matches(arguments: dict[str, object], headers: dict[str, object] | None) -> bool:
    matcher = HeadersMatcher()
    queue = object()
    matcher.add(queue, "", arguments)
    found: list[object] = []
    matcher.match("any key", in_context(headers), found)
    assert found in ([], [queue])
    return bool(found)


@pytest.mark.parametrize("arguments, headers, expected", HEADERS_MATCHES)
def test_matches_as_rabbitmq_did(
    arguments: dict[str, Field], headers: dict[str, Field] | None, expected: bool
) -> None:
    message_headers = None if headers is None else decoded(headers)
    if (arguments, headers) in FORGIVEN:
        assert not expected
        expected = True
    assert matches(decoded(arguments), message_headers) is expected


def test_every_forgiven_case_was_recorded() -> None:
    recorded = [(arguments, headers) for arguments, headers, _ in HEADERS_MATCHES]
    assert all(case in recorded for case in FORGIVEN)


@pytest.mark.parametrize(
    "value, text",
    [
        ("ALL", 'Invalid x-match field value <<"ALL">>'),
        ("", "Invalid x-match field value <<>>"),
        ("foo", 'Invalid x-match field value <<"foo">>'),
    ],
)
def test_an_unknown_x_match_is_refused_in_rabbitmqs_words(value: str, text: str) -> None:
    with pytest.raises(PreconditionFailed) as refused:
        HeadersMatcher().add(object(), "", {"x-match": value, "a": 1})
    assert str(refused.value) == text + "; expected all, any, all-with-x, or any-with-x"


@pytest.mark.parametrize(
    "value, text",
    [
        (5, "signedint (value 5)"),
        (2**40, "long (value 1099511627776)"),
        (True, "bool (value true)"),
        (None, "void (value undefined)"),
        (b"any", 'binary (value <<"any">>)'),
        (b"\x00\x01", "binary (value <<0,1>>)"),
        (["all"], 'array (value [{longstr,<<"all">>}])'),
        ({"a": 1}, 'table (value [{<<"a">>,signedint,1}])'),
        (Timestamp(7), "timestamp (value 7)"),
        (1.5, "double (value 1.5)"),
    ],
)
def test_an_x_match_that_is_no_text_is_refused_in_rabbitmqs_words(value: object, text: str) -> None:
    with pytest.raises(PreconditionFailed) as refused:
        HeadersMatcher().add(object(), "", {"x-match": value})
    assert str(refused.value) == f"Invalid x-match field type {text}; expected longstr"


def test_a_queue_with_several_matching_bindings_is_found_once() -> None:
    matcher = HeadersMatcher()
    queue, other = object(), object()
    matcher.add(queue, "", {"a": 1})
    matcher.add(other, "", {"a": 2})
    matcher.add(queue, "", {"b": 1})
    found: list[object] = []
    matcher.match("", in_context({"a": 1, "b": 1}), found)
    assert found == [queue]
    matcher.remove(queue, "", {"a": 1})
    found.clear()
    matcher.match("", in_context({"a": 1, "b": 2}), found)
    assert found == []


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=3)
    | st.binary(max_size=3)
    | st.integers(0, 2**40).map(Timestamp)
    | st.decimals(0, 1000, places=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@given(values)
def test_a_value_is_the_same_as_itself(value: object) -> None:
    assert same_value(value, value)


@given(values, values)
def test_sameness_has_no_direction(one: object, other: object) -> None:
    assert same_value(one, other) == same_value(other, one)


@given(st.dictionaries(st.text(max_size=3), values, max_size=4))
def test_the_order_of_arguments_does_not_tell_bindings_apart(arguments: dict[str, object]) -> None:
    turned = dict(reversed(list(arguments.items())))
    assert arguments_key(turned) == arguments_key(arguments)


def test_arguments_of_different_types_tell_bindings_apart() -> None:
    ones: list[object] = [1, 1.0, "1", b"1", True, Timestamp(1), Decimal(1), [1], {"1": 1}, None]
    texts = ["[int 1]", "{'a':int 1}", "int 1", "], ["]
    keys = [arguments_key({"a": value}) for value in [*ones, *texts]]
    assert len(set(keys)) == len(keys)
    assert arguments_key({}) == ""


# -- the index against looking at every binding ----------------------------------------------

NUMBERS = (True, False, 0, 1, 1.0, -0.0, 2**70, float("nan"), float("inf"), Timestamp(1))
TEXTS = ("1", "", b"1", b"\xff", "\udcff")
OTHERS = (None, Decimal("1.0"), Decimal("1.00"), [], {}, [1], [True], {"a": 1})
VALUES = st.sampled_from([*NUMBERS, *TEXTS, *OTHERS])
TABLES = st.dictionaries(st.sampled_from(["a", "b", "c", "x-d"]), VALUES, max_size=4)
ARGUMENTS = st.builds(
    lambda table, mode: table if mode is None else table | {"x-match": mode},
    TABLES,
    st.sampled_from([None, "all", "any", "all-with-x", "any-with-x"]),
)


@given(VALUES, VALUES)
def test_keys_are_the_same_for_the_same_values_only(one: object, other: object) -> None:
    if one is None or other is None:
        assert (value_key(one) is PRESENT) == (one is None)
    else:
        assert (value_key(one) == value_key(other)) == same_value(one, other)
        if same_value(one, other):
            assert hash(value_key(one)) == hash(value_key(other))


@given(
    st.lists(st.tuples(st.integers(0, 3), ARGUMENTS, st.booleans()), max_size=25),
    st.lists(TABLES, min_size=1, max_size=5),
)
def test_the_index_finds_what_looking_at_each_binding_finds(
    bindings: list[tuple[int, dict[str, object], bool]], messages: list[dict[str, object]]
) -> None:
    matcher = HeadersMatcher()
    queues = [Queue(number) for number in range(4)]
    known: dict[tuple[int, str], HeadersPattern] = {}
    for number, arguments, goes in bindings:
        key = (number, arguments_key(arguments))
        if key not in known:
            matcher.add(queues[number], "", arguments)
            known[key] = HeadersPattern(queues[number], arguments, 0)
        if goes:
            matcher.remove(queues[number], "", arguments)
            del known[key]
        for headers in messages:
            found: list[object] = []
            matcher.match("", in_context(headers), found)
            each = [one.destination for one in known.values() if one.matches(headers)]
            assert found == list(dict.fromkeys(each))
    for number, arguments, _ in bindings:
        if known.pop((number, arguments_key(arguments)), None) is not None:
            matcher.remove(queues[number], "", arguments)
    assert not matcher.fields
    assert not matcher.unconditional


def test_a_match_compares_what_the_headers_point_at() -> None:
    """With a value that all bindings share, too: nothing here may depend on how many there are."""
    matcher = HeadersMatcher()
    for number in range(10_000):
        mode = "any" if number % 2 else "all"
        shared = {"kind": "order"} if mode == "all" else {}
        matcher.add(object(), "", shared | {"customer": number, "x-match": mode})
    started = time.process_time()
    for number in range(10_000):
        found: list[object] = []
        headers = {"kind": "order", "customer": number, "more": 1}
        matcher.match("", in_context(headers), found)
        assert len(found) == 1
    assert time.process_time() - started < 5  # a look at each would be minutes
