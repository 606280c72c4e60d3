"""The pure parts: sorting, projecting, values, names of bindings, the start screen."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.management.facts.rows import jsonable, properties_key
from penstock.management.http import listing
from penstock.management.http.access import credentials
from penstock.management.http.bodies import to_json
from penstock.management.http.listing import BadQuery, ListQuery, sort_key, sorted_in_chunks
from penstock.management.start_screen import start_screen
from penstock.settings.listener_table import is_loopback
from penstock.settings.settings import load_settings

SCALARS = st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-5, 5) | st.text(max_size=3)
JSON_VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(st.lists(st.tuples(SCALARS, st.integers()), max_size=40), st.booleans())
def test_sorting_in_chunks_is_sorting(items: list[tuple[Any, int]], reverse: bool) -> None:
    whole = sorted(items, key=lambda item: sort_key(item[0]), reverse=reverse)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listing, "SORT_CHUNK", 3)
        chunked = sorted_in_chunks(items, lambda item: sort_key(item[0]), reverse)
    assert chunked == whole, "also stable"


@given(JSON_VALUES, JSON_VALUES)
def test_any_two_json_values_have_an_order(left: object, right: object) -> None:
    assert (sort_key(left) < sort_key(right)) + (sort_key(right) < sort_key(left)) <= 1


def test_columns_never_change_the_row() -> None:
    row: dict[str, object] = {"name": "q", "a": {"b": {"c": 1, "d": 2}, "e": 3}}
    before = json.dumps(row)
    assert ListQuery({"columns": "a.b.c,name,nosuch,a.x.y"}).project(row) == {
        "name": "q",
        "a": {"b": {"c": 1}},
    }
    assert ListQuery({"columns": "a,a.b.c"}).project(row)["a"] == row["a"]
    assert ListQuery({"columns": "a.b,a.e"}).project(row) == {"a": row["a"]}
    assert ListQuery({"columns": "name.deeper"}).project(row) == {"name": "q"}
    assert ListQuery({"columns": ","}).project(row) is row
    assert json.dumps(row) == before


@pytest.mark.parametrize(
    "query",
    [
        {"page": "1", "name": "(" * 5, "use_regex": "true"},
        {"page": "1", "name": "a" * 2000},
        {"page": "٣"},
        {"page": "1" * 5000},
        {"page": "1", "name": "a{99999999999999999999}", "use_regex": "true"},
    ],
    ids=["regex", "long", "digits of others", "many digits", "overflow"],
)
def test_nonsense_is_refused(query: dict[str, str]) -> None:
    with pytest.raises(BadQuery):
        ListQuery(query)


FIELD_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5)
    | st.decimals(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=10,
)


@given(FIELD_VALUES)
def test_every_field_value_becomes_strict_json(value: object) -> None:
    text = json.dumps(jsonable(value), allow_nan=False)
    if value is None or isinstance(value, (bool, int, str)):
        assert json.loads(text) == value


def test_field_values_that_json_lacks() -> None:
    assert jsonable({"a": [b"\xff\x00", Decimal("1.50"), float("nan")]}) == {
        "a": ["�\x00", "1.50", "nan"]
    }


@given(st.text(max_size=20), st.text(max_size=20))
def test_names_of_bindings_tell_them_apart(one: str, other: str) -> None:
    arguments: dict[str, object] = {"x-match": "all", "k": 1}
    names = [properties_key(key, use) for key in (one, other) for use in ({}, arguments)]
    plain = [name.isascii() and "/" not in name and name != "" for name in names]
    assert all(plain)
    if one.isprintable() and other.isprintable() and one != other:
        assert len(set(names)) == 4
    assert properties_key(one, dict(reversed(arguments.items()))) == names[1]


@pytest.mark.parametrize(
    "key, spelt",
    [
        ("", "~"),
        ("order.*", "order.%2A"),
        ("#", "%23"),
        ("a b/é", "a+b%2F%C3%A9"),
        ("az~-_.!*'();:@", "az%7E-_.%21%2A%27%28%29%3B%3A%40"),
        ("&=+$,/?%#[]", "%26%3D%2B%24%2C%2F%3F%25%23%5B%5D"),
    ],
)
def test_names_of_bindings_are_spelt_as_rabbitmq_spells_them(key: str, spelt: str) -> None:
    assert properties_key(key, {}) == spelt


@pytest.mark.parametrize(
    "address, expected",
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.0.0.1", False),
        ("::ffff:10.0.0.1", False),
        ("fe80::1%eth0", False),
        ("", False),
        ("localhost", False),
    ],
)
def test_loopback(address: str, expected: bool) -> None:
    assert is_loopback(address) is expected


@given(st.text(max_size=30))
def test_any_authorization_header_is_read_or_refused(header: str) -> None:
    given_credentials = credentials(header)
    assert given_credentials is None or len(given_credentials) == 2


def screen(text: str = "", ready_ms: float = 123.4, *, log_in: bool = True) -> str:
    settings = load_settings(text, {}, {}).with_data_dir("/data", "default, writable")
    return start_screen(
        settings,
        version="1.2.3",
        pid=77,
        compiled=True,
        listeners=[
            ("amqp", settings.bind, 5673),
            ("nsq", settings.bind, 4150),
            ("nsq/http", settings.bind, 4151),
            ("nsqlookupd", settings.bind, 4160),
            ("nsqlookupd/http", settings.bind, 4161),
            ("http", settings.bind, 15673),
        ],
        recovery="2 durable queues, 3 messages",
        log_in=log_in,
        ready_ms=ready_ms,
    )


def test_the_start_screen_has_what_a_user_needs() -> None:
    text = screen()
    for word in (
        "Penstock 1.2.3, pid 77, compiled",
        "amqp://127.0.0.1:5673",
        "NSQ         127.0.0.1:4150",
        "NSQ         http://127.0.0.1:4151/",
        "nsqlookupd  127.0.0.1:4160",
        "nsqlookupd  http://127.0.0.1:4161/",
        "http://127.0.0.1:15673/",
        "/data (default, writable)",
        "2 durable queues, 3 messages",
        "guest / guest, from this machine only",
    ):
        assert word in text
    assert text.splitlines()[-1] == "ready in 123 ms"
    assert "warning" not in text


def test_the_start_screen_warns_of_an_etcd_that_others_may_write() -> None:
    text = screen('cluster_etcd_endpoints = ["etcd-1.local:2379"]')
    assert "  warning     etcd at etcd-1.local:2379 is used without a user" in text


def test_the_start_screen_shows_no_credentials_that_do_not_hold() -> None:
    text = screen('bind = "0.0.0.0"\nloopback_users = []', log_in=False)
    assert "log in as   a user of the data directory" in text
    assert "guest" not in text


def test_the_start_screen_hides_a_password_of_ones_own() -> None:
    words = 'default_user = "ann"\ndefault_pass = "s3cret"\nbind = "0.0.0.0"\n'
    text = screen(words + "plain_text_passwords = true")
    assert "s3cret" not in text
    assert "ann / (the password you set)" in text
    assert text.count("warning") == 1
    assert "passwords cross the network in plain text" in text
    assert "passwords from other machines are refused" in screen(words)


@pytest.mark.parametrize(
    "text, warning",
    [
        ('bind = "0.0.0.0"', "no client can log in from the network"),
        ('bind = "::"\nloopback_users = []', "everybody on the network knows guest / guest"),
        ('bind = "192.0.2.7"\nloopback_users = []', "everybody"),
        ('nsqlookupd_bind = "0.0.0.0"', "nsqlookupd at 0.0.0.0:4160 needs no log-in: everything"),
        (
            'default_user = "ann"\nbind = "::"\nnsq_user = "ann"',
            "NSQ at [::]:4151 needs no log-in: everything that user may",
        ),
        (
            'default_user = "ann"\nbind = "0.0.0.0"\nprometheus_objects_open = true',
            "metrics at 0.0.0.0:15692 needs no log-in",
        ),
        ("loopback_users = []", ""),
        ('nsq_user = "guest"', ""),
        ('bind = "localhost"\nloopback_users = []', ""),
    ],
)
def test_the_start_screen_warns_about_open_doors(text: str, warning: str) -> None:
    shown = screen(text)
    assert ("  warning " in shown) == bool(warning)
    assert warning in shown


def test_the_start_screen_warns_about_open_doors_whatever_users_there_are() -> None:
    assert "needs no log-in" in screen('nsqlookupd_bind = "0.0.0.0"', log_in=False)


def test_an_ipv6_address_makes_a_valid_url() -> None:
    assert "amqp://[::1]:5673" in screen('bind = "::1"')


def test_numbers_that_json_has_not_are_written_as_null() -> None:
    value = {"a": [1.5, float("inf"), (float("nan"), 2)], "b": -math.inf}
    assert to_json(value) == b'{"a":[1.5,null,[null,2]],"b":null}'
