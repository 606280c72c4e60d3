"""The data source's own client, decoder and columns, held against the broker's."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.protocols.amqp.codec import properties as broker_properties
from penstock.protocols.amqp.codec.errors import MalformedArguments
from penstock_ranges import frames as range_frames
from penstock_ranges import ranges
from pyspark_penstock import client, properties
from pyspark_penstock.columns import BatchBuilder, arrow_schema
from pyspark_penstock.endpoints import Endpoint
from pyspark_penstock.options import ARRAY, COLUMNS
from pyspark_penstock.properties import header_list
from pyspark_penstock.sink_encoding import Encoder
from pyspark_penstock.sink_options import parse_sink_options
from tests.helpers.raw_codec import Typed, content_frames, encode_properties
from tests.spark.range_host import RangeHost

ALL = {
    "content_type": "text/plain",
    "content_encoding": "gzip",
    "headers": {"a": 1, "b": "zwei", "c": True, "d": None, "e": {"f": [1, 2.5, "x"]}},
    "delivery_mode": 2,
    "priority": 7,
    "correlation_id": "c-1",
    "reply_to": "answers",
    "expiration": "60000",
    "message_id": "m-1",
    "timestamp": 1_700_000_000,
    "type": "order",
    "user_id": "guest",
    "app_id": "shop",
    "cluster_id": "",
}


@pytest.fixture
def host() -> Iterator[RangeHost]:
    with RangeHost() as running:
        running.hall.declare("q")
        yield running


def opened(host: RangeHost, mode: int, token: int = 0) -> client.RangeClient:
    return client.RangeClient(host.endpoint, "q", mode, token)


# -- constants and bytes ---------------------------------------------------------------------


SHORT = st.text(max_size=60)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**31), 2**31 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
PROPERTIES = st.fixed_dictionaries(
    {},
    optional={
        **{
            name: SHORT
            for name, kind in zip(properties.Properties._fields, properties.KINDS, strict=True)
            if kind == "s"
        },
        "headers": st.dictionaries(st.text(max_size=12), VALUES, max_size=4),
        "delivery_mode": st.integers(0, 255),
        "priority": st.integers(0, 255),
        "timestamp": st.integers(0, 2**64 - 1),
    },
)


@given(PROPERTIES, st.binary(max_size=400), st.integers(20, 200))
def test_content_is_read_as_the_broker_reads_it(
    given_properties: dict[str, Any], body: bytes, frame_max: int
) -> None:
    content = content_frames(1, body, given_properties, frame_max)
    broker_side = broker_properties.decode_properties(content).as_dict()
    raw, read_body = properties.split_content(b"??" + content + b"!!", 2, 2 + len(content))
    read = properties.decode_properties(raw)
    assert read_body == body == broker_properties.body_of(content)
    expected = dict.fromkeys(properties.Properties._fields) | broker_side
    expected["timestamp_s"] = expected.pop("timestamp", None)
    if expected["headers"] is not None:
        expected["headers"] = {
            name: properties.as_text(value) for name, value in expected["headers"].items()
        }
    assert read._asdict() == expected


@given(st.binary(max_size=120))
def test_any_bytes_are_read_or_called_unreadable_as_by_the_broker(data: bytes) -> None:
    """Where the broker's decoder fails, ours gives nothing; neither does anything else."""
    frame = content_frames(1, b"", {})
    content = frame[:3] + (12 + len(data)).to_bytes(4, "big") + frame[7:19] + data + b"\xce"
    ours = properties.decode_properties(data)
    with suppress(UnicodeDecodeError):
        try:
            broker_properties.decode_properties(content)
        except MalformedArguments:
            assert ours == properties.UNREADABLE
            return
        assert ours != properties.UNREADABLE or data[:2] in (b"\0\0", b"\0\1", b"\0\2", b"\0\3")


@pytest.mark.parametrize(
    "value,text",
    [
        ("plain", "plain"),
        (None, None),
        (True, "true"),
        (12, "12"),
        (-1.5, "-1.5"),
        (Typed("T", 1_700_000_000), "1700000000"),
        (Typed("D", (2, 12345)), "123.45"),
        (Typed("s", -3), "-3"),
        (Typed("u", 65535), "65535"),
        (b"bytes", "bytes"),
        (b"\xff\x00", "\\xff\x00"),
        ([1, "zwei", None], '[1,"zwei",null]'),
        ({"k": {"n": [True]}}, '{"k":{"n":[true]}}'),
        ([Typed("D", (1, 15))], '["1.5"]'),
    ],
)
def test_header_values_become_text(value: Any, text: str | None) -> None:
    raw = encode_properties({"headers": {"h": value}})
    assert properties.decode_properties(raw).headers == {"h": text}


def test_an_array_has_all_headers_in_their_order_with_their_octets() -> None:
    """Kafka's shape; the map keeps the first of one name, and texts."""
    fields = [("b", b"S\0\0\0\3\0\xff\x80"), ("a", b"I\0\0\0\7"), ("b", b"V"), ("c", b"t\1")]
    table = b"".join(bytes((len(name),)) + name.encode() + value for name, value in fields)
    raw = b"\x20\0" + len(table).to_bytes(4, "big") + table
    found = properties.decode_properties(raw, properties.header_list).headers
    assert found == [("b", b"\0\xff\x80"), ("a", b"7"), ("b", None), ("c", b"true")]
    assert properties.decode_properties(raw).headers == {
        "b": "\0\\xff\\x80", "a": "7", "c": "true",
    }  # fmt: skip
    for cut in range(2, len(raw)):
        assert properties.decode_properties(raw[:cut], properties.header_list) == (
            properties.UNREADABLE
        )


def test_decimal_is_exact() -> None:
    assert properties.as_text(Decimal("0.10")) == "0.10"


# -- over a socket ---------------------------------------------------------------------------


def test_a_range_arrives_as_it_was_published(host: RangeHost) -> None:
    with host.lock:
        host.hall.publish("q", [b"a", b"", b"c" * 300_000], **ALL)
    with opened(host, ranges.BROWSE) as reader:
        blocks = list(reader.blocks(0, 3, 1 << 20, with_body=True))
    table = pa.Table.from_batches([BatchBuilder("q", COLUMNS, "life").batch(b) for b in blocks])
    assert table.schema == arrow_schema(COLUMNS)
    rows = table.to_pylist()
    assert [row["body"] for row in rows] == [b"a", b"", b"c" * 300_000]
    row = rows[0]
    assert row.pop("enqueued_at") == dt.datetime.fromtimestamp(1_700_000_000, dt.UTC)
    assert row.pop("timestamp") == dt.datetime.fromtimestamp(1_700_000_000, dt.UTC)
    assert row.pop("properties_raw") == encode_properties(ALL)
    assert dict(row.pop("headers")) == {
        "a": "1", "b": "zwei", "c": "true", "d": None, "e": '{"f":[1,2.5,"x"]}',
    }  # fmt: skip
    assert row == {
        "seq_id": 0, "body": b"a", "queue": "q", "exchange": "ex", "routing_key": "key.q",
        "message_id": "m-1", "correlation_id": "c-1", "reply_to": "answers", "type": "order",
        "app_id": "shop", "user_id": "guest", "content_type": "text/plain",
        "content_encoding": "gzip", "priority": 7, "persistent": True, "expiration": "60000",
        "redelivered": False, "incarnation": "life",
    }  # fmt: skip


def test_headers_as_an_array_are_written_as_they_were_read(host: RangeHost) -> None:
    with host.lock:
        host.hall.publish("q", [b"a"], headers={"z": b"\0\xff", "a": "ü", "n": None})
        host.hall.publish("q", [b"b"])
    with opened(host, ranges.BROWSE) as reader:
        [block] = reader.blocks(0, 2, 1 << 20, with_body=True)
    columns = ("body", "headers")
    batch = BatchBuilder("q", columns, headers=ARRAY).batch(block)
    assert batch.schema == arrow_schema(columns, ARRAY)
    assert batch.column("headers").to_pylist() == [
        [
            {"key": "z", "value": b"\0\xff"},
            {"key": "a", "value": "ü".encode()},
            {"key": "n", "value": None},
        ],
        None,
    ]
    encoder = Encoder(parse_sink_options({"queue": "q"}))
    contents = [piece[piece.index(b"\x02\0\1") :] for piece in encoder.encode(batch)]
    first, second = (
        properties.decode_properties(properties.split_content(one, 0, len(one))[0], header_list)
        for one in contents
    )
    assert first.headers == [("z", b"\0\xff"), ("a", "ü".encode()), ("n", None)]
    assert second.headers is None


def test_a_message_without_properties_has_nulls(host: RangeHost) -> None:
    with host.lock:
        host.hall.publish("q", [b"x"])
    with opened(host, ranges.BROWSE) as reader:
        [block] = reader.blocks(0, 1, 1 << 20, with_body=True)
    [row] = BatchBuilder("q", COLUMNS, "life").batch(block).to_pylist()
    known = {"seq_id", "body", "queue", "exchange", "routing_key", "enqueued_at", "redelivered",
             "incarnation", "properties_raw"}  # fmt: skip
    assert {name for name, value in row.items() if value is not None} == known


def test_a_timestamp_beyond_the_calendar_is_null(host: RangeHost) -> None:
    with host.lock:
        host.hall.publish("q", [b"x"], timestamp=1_700_000_000_000_000)
    with opened(host, ranges.BROWSE) as reader:
        [block] = reader.blocks(0, 1, 1 << 20, with_body=False)
    assert BatchBuilder("q", ["timestamp"]).batch(block).to_pylist() == [{"timestamp": None}]


def test_bodies_stay_at_home_when_nobody_asked_for_them(host: RangeHost) -> None:
    with host.lock:
        host.hall.publish("q", [b"x" * 100_000] * 10)
    with opened(host, ranges.BROWSE) as reader:
        [block] = reader.blocks(0, 10, 1 << 24, with_body=False)
    assert len(block.payload) < 2000


def test_a_plan_reaches_over_many_looks(host: RangeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.protocols.ranges.reading.PLAN_MESSAGES_MAX", 7)
    with host.lock:
        host.hall.publish("q", [b"x"] * 100)
        size = len(host.hall.queues["q"].backing.reads.read_range(0, 1, 1, 1)[0].content)
    with opened(host, ranges.READ) as reader:
        assert reader.plan(0, 100, 1000, 1 << 30) == (100, 100, 100 * size)
        assert reader.plan(0, 100, 30, 1 << 30) == (30, 30, 30 * size)
        assert reader.plan(0, 100, 1000, 20 * size) == (20, 20, 20 * size)
        assert reader.plan(0, 100, 1000, 20 * size + 1) == (20, 20, 20 * size)
        assert reader.plan(0, 100, 1000, 1) == (1, 1, size)
        assert reader.plan(100, 100, 5, 5) == (100, 0, 0)


def test_refusals_have_classes_of_their_own(host: RangeHost) -> None:
    with opened(host, ranges.READ):
        with pytest.raises(client.Locked, match="being read by another pipeline"):
            opened(host, ranges.READ)
        with pytest.raises(client.Fenced):
            opened(host, ranges.JOIN, 4711)
    with pytest.raises(client.LeaseGone):
        opened(host, ranges.JOIN, 4711)
    with pytest.raises(client.Refused) as refused:
        client.RangeClient(host.endpoint, "nobody", ranges.BROWSE)
    assert refused.value.code == range_frames.NOT_FOUND
    assert str(refused.value) == "no queue 'nobody' in vhost '/'"


def test_nobody_there_is_connection_lost() -> None:
    with pytest.raises(client.ConnectionLost, match=r"cannot connect .* 127\.0\.0\.1:1"):
        client.RangeClient(Endpoint("127.0.0.1", 1, "/", "guest", "guest"), "q", ranges.BROWSE)


def test_a_cut_line_is_connection_lost(host: RangeHost) -> None:
    reader = opened(host, ranges.BROWSE)
    host.drop_connections()
    with pytest.raises(client.ConnectionLost):
        reader.wait(0, 0)
    reader.close()
