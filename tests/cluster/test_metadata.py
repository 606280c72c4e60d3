"""Records of a cluster ⇄ keys and values: both ways the same, and nothing else is taken."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.cluster.agreement import metadata as md
from penstock.core.errors import Corrupt
from penstock.storage.definitions.parameters import ParameterRecord
from penstock.storage.definitions.records import (
    BindingRecord,
    PermissionRecord,
    PolicyRecord,
    TopicPermissionRecord,
    UserRecord,
    VhostMetadata,
    VhostRecord,
)

NAMES = st.one_of(
    st.sampled_from(["/", "a/b", "%2F", "ü", "", ".", "~", "a b", "*", "amq.topic"]),
    st.binary(max_size=12).map(lambda raw: raw.decode("utf-8", "surrogateescape")),
)
VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(allow_nan=False),
        NAMES,
        st.binary(max_size=8),
        st.decimals(allow_nan=False, allow_infinity=False, places=2),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=6,
)
TABLES = st.dictionaries(st.one_of(NAMES, st.just("$bytes")), VALUES, max_size=3)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), NAMES),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=5,
)
FLAGS = st.booleans()
TAGS = st.lists(NAMES, max_size=3)
NUMBERS = st.integers(-1, 2**60)
COMPONENTS = st.sampled_from(["shovel", "federation-upstream"])
NONE = st.just("")
HEX = st.text("0123456789abcdef", min_size=32, max_size=32)
RECORDS: Any = st.one_of(
    st.builds(
        lambda name, text, tags, is_protected: VhostRecord(
            name, metadata=VhostMetadata(text, tuple(tags), "", is_protected)
        ),
        NAMES,
        NAMES,
        TAGS,
        FLAGS,
    ),
    st.builds(UserRecord, NAMES, NAMES, NAMES, TAGS),
    st.builds(PermissionRecord, NAMES, NAMES, NAMES, NAMES, NAMES),
    st.builds(TopicPermissionRecord, NAMES, NAMES, NAMES, NAMES, NAMES),
    st.builds(
        PolicyRecord,
        NAMES,
        st.sampled_from(["policy", "operator"]),
        NAMES,
        NAMES,
        st.sampled_from(["queues", "exchanges", "all"]),
        st.integers(-(2**31), 2**31),
        TABLES,
    ),
    st.builds(
        md.LimitsMeta,
        st.sampled_from(["vhost", "user"]),
        NAMES,
        st.dictionaries(NAMES, NUMBERS, max_size=3),
    ),
    st.builds(ParameterRecord, NAMES, JSON, NONE, NONE, NONE),
    st.builds(ParameterRecord, NAMES, JSON, NAMES, COMPONENTS, NAMES),
    st.builds(md.ExchangeMeta, NAMES, NAMES, NAMES, FLAGS, FLAGS, FLAGS, TABLES, NAMES),
    st.builds(md.QueueMeta, NAMES, NAMES, HEX, NAMES, FLAGS, FLAGS, TABLES, NAMES, FLAGS, NAMES),
    st.builds(
        BindingRecord, NAMES, NAMES, NAMES, st.sampled_from(["queue", "exchange"]), NAMES, TABLES
    ),
)

EXAMPLE = {
    "vhosts/%2F": '{"description":"","tags":[],"v":1}',
    "exchanges/%2F/logs": '{"arguments":{},"auto_delete":false,"durable":true,"internal":false,'
    '"type":"topic","v":1}',
    "queues/%2F/orders": '{"arguments":{"x-max-length":5},"auto_delete":false,"durable":true,'
    '"home":"penstock@a","incarnation":"00112233445566778899aabbccddeeff","owner":"",'
    '"paused":false,"v":1}',
    "bindings/%2F/q/orders/logs/-qPbvIvNqQwKAQmgEK2-": '{"arguments":{"x-match":"all"},'
    '"routing_key":"order.#","v":1}',
}
"""That of docs/formats/metadata.md."""


def numbered(_value: object) -> str:
    """Keys have slashes, and names of tests should not."""
    return "case"


@given(RECORDS)
def test_what_is_written_is_read_again(record: md.Record) -> None:
    key, value = md.key_of(record), md.value_of(record)
    again = md.read(key, value)
    assert type(again) is type(record)
    assert (md.key_of(again), md.value_of(again)) == (key, value)
    names = set(record._fields) - {"segment_entries"}
    for name in names:
        assert getattr(again, name) == getattr(record, name), name
    assert key.isascii()
    assert value.isascii()
    assert md.kind_of(key) in md.FIELDS


@given(RECORDS, RECORDS)
@example(
    ParameterRecord("p", 1, "/", "shovel", "one"), ParameterRecord("p", 1, "/", "shovel", "two")
)
def test_different_things_have_different_keys(one: md.Record, other: md.Record) -> None:
    """The same key means the same thing, though perhaps not the same of it."""
    key = md.key_of(one)
    if key != md.key_of(other):
        return
    assert type(one) is type(other)
    names = {"vhost", "name", "user", "exchange", "source", "destination", "routing_key"}
    if not isinstance(one, BindingRecord):  # whose key has a hash of its value
        names -= md.FIELDS[md.kind_of(key)].keys()
    for name in names:
        assert getattr(one, name, None) == getattr(other, name, None)


@pytest.mark.parametrize("key", EXAMPLE, ids=["vhost", "exchange", "queue", "binding"])
def test_the_example_of_the_page(key: str) -> None:
    record = md.read(key, EXAMPLE[key])
    assert (md.key_of(record), md.value_of(record)) == (key, EXAMPLE[key])


def test_a_binding_to_a_queue_is_below_the_prefix_of_that_queue_only() -> None:
    binding = BindingRecord("/", "logs", "orders", "queue", "k" * 255, {})
    key = md.key_of(binding)
    assert key.startswith(md.bindings_to("/", "queue", "orders"))
    assert not key.startswith(md.bindings_to("/", "exchange", "orders"))
    assert not key.startswith(md.bindings_to("/", "queue", "order"))
    assert len(key) < len(md.bindings_to("/", "queue", "orders")) + 30


def test_arguments_and_routing_key_cannot_be_taken_for_each_other() -> None:
    assert md.binding_hash("", {"a": "b"}) != md.binding_hash('{"a":"b"}', {})
    assert md.binding_hash("1", {}) != md.binding_hash("", {"1": 1})
    assert md.binding_hash("", {"a": b"x"}) != md.binding_hash("", {"a": "x"})
    assert md.binding_hash("", {"a": Decimal("1.0")}) != md.binding_hash("", {"a": 1.0})


@pytest.mark.parametrize(
    "key",
    [
        "queues",
        "queues/%2F",
        "queues/%2f/x",
        "queues///x/",
        "queues/%2F/a b",
        "queues/%2F/%61",
        "queues/%2F/x/y",
        "nothing/%2F/x",
        "bindings/%2F/q/orders/logs",
    ],
    ids=numbered,
)
def test_a_path_is_spelt_in_one_way(key: str) -> None:
    with pytest.raises(Corrupt, match="no path"):
        md.read(key, EXAMPLE["queues/%2F/orders"])


def changed(**fields: object) -> str:
    value = {**json.loads(EXAMPLE["queues/%2F/orders"]), **fields}
    return json.dumps({name: field for name, field in value.items() if field is not None})


@pytest.mark.parametrize(
    "value, why",
    [
        ("", "no JSON"),
        ("[]", "no version"),
        (changed(v=None), "no version"),
        (changed(v=True), "no version"),
        (changed(v=2), "version that this release does not know"),
        (changed(home=None), "lacks fields or has unknown ones: home"),
        (changed(odd=1), "lacks fields or has unknown ones: odd"),
        (changed(durable=1), "durable that is no bool"),
        (changed(arguments=[]), "arguments that is no dict"),
        (changed(arguments={"a": {"$bytes": "*"}}), "cannot be read"),
        (changed(arguments={"a": {"$decimal": "x"}}), "cannot be read"),
    ],
    ids=numbered,
)
def test_what_is_no_queue_is_refused_and_named(value: str, why: str) -> None:
    with pytest.raises(Corrupt, match=why) as refused:
        md.read("queues/%2F/orders", value)
    assert "queues/%2F/orders" in str(refused.value)


@pytest.mark.parametrize(
    "key, value",
    [
        ("vhosts/a", '{"description":"","tags":[1],"v":1}'),
        ("limits/vhost/a", '{"limits":{"max-queues":true},"v":1}'),
        ("limits/node/a", '{"limits":{},"v":1}'),
        ("bindings/%2F/x/a/b/c", '{"arguments":{},"routing_key":"","v":1}'),
        ("bindings/%2F/q/a/b/c", '{"arguments":{},"routing_key":"","v":1}'),
    ],
    ids=numbered,
)
def test_what_contradicts_its_key_or_type_is_refused(key: str, value: str) -> None:
    with pytest.raises(Corrupt, match=key):
        md.read(key, value)


def test_exclusive_queues_go_with_their_member() -> None:
    mine = md.QueueMeta("/", "q", "0" * 32, "a", True, False, {}, "a/1")
    assert md.is_leased(mine)
    shared = md.QueueMeta("/", "q", "0" * 32, "a", True, False, {})
    assert not md.is_leased(shared)


def test_a_release_before_protection_reads_virtual_hosts_without_it() -> None:
    value = md.value_of(VhostRecord("v", metadata=VhostMetadata("text")))
    assert json.loads(value).keys() == {"v", "description", "tags"}
    found = md.read("vhosts/v", value)
    assert isinstance(found, VhostRecord)
    assert not found.metadata.protected_from_deletion


@pytest.mark.parametrize(
    "record",
    [
        md.QueueMeta("/", "q", "0" * 32, "a", True, False, {}),
        md.ExchangeMeta("/", "x", "topic", True, False, False, {}),
    ],
    ids=["queue", "exchange"],
)
def test_without_a_known_user_it_is_written_as_before(
    record: md.QueueMeta | md.ExchangeMeta,
) -> None:
    assert "user" not in json.loads(md.value_of(record))
    assert md.read(md.key_of(record), md.value_of(record)) == record
    known = record._replace(user="ann")
    assert md.read(md.key_of(known), md.value_of(known)) == known
