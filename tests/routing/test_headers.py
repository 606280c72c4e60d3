"""Headers matching against what RabbitMQ routed, and its words for wrong arguments."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import PreconditionFailed
from penstock.routing.headers import HeadersMatcher, arguments_key, same_value
from penstock.wire.amqp.tables import Timestamp, decode_table
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


def decoded(fields: dict[str, Field]) -> dict[str, object]:
    return decode_table(typed_table(fields), 0)[0]


def matches(arguments: dict[str, object], headers: dict[str, object] | None) -> bool:
    matcher = HeadersMatcher()
    queue = object()
    matcher.add(queue, "", arguments)
    found: list[object] = []
    matcher.match("any key", headers, found)
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
    matcher.match("", {"a": 1, "b": 1}, found)
    assert found == [queue]
    matcher.remove(queue, "", {"a": 1})
    found.clear()
    matcher.match("", {"a": 1, "b": 2}, found)
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
