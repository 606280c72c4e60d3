"""What rows become, and what is refused: judged by the tests' own codec, and by the broker's."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyspark  # noqa: F401
import pytest
from pyspark.sql import types as t

from penstock.protocols.amqp.codec.decoder import AmqpDecoder
from penstock.protocols.amqp.codec.events import PublishRun
from penstock.protocols.amqp.codec.methods import CHANNEL_OPEN, encode_method
from pyspark_penstock.columns import arrow_schema
from pyspark_penstock.options import ARRAY
from pyspark_penstock.sink_encoding import (
    COLUMNS,
    Encoder,
    WrongRow,
    check_columns,
)
from pyspark_penstock.sink_options import SinkSettings, parse_sink_options
from pyspark_penstock.staging_client import blocks
from tests.helpers import raw_codec as codec

LIST = arrow_schema(["headers"], ARRAY).field(0).type


def settings(**options: str) -> SinkSettings:
    return parse_sink_options(options or {"queue": "q"})


def encoded(columns: dict[str, Any], **options: str) -> bytes:
    batch = pa.RecordBatch.from_pydict(columns)
    return b"".join(Encoder(settings(**options)).encode(batch))


def messages(data: bytes) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    frames, rest = codec.split_frames(data)
    assert not rest
    for frame in frames:
        assert frame.channel == 1
        if frame.type == codec.METHOD:
            name, fields = codec.decode_method(frame.payload)
            assert name == "basic.publish"
            found.append({"to": (fields["exchange"], fields["routing_key"]), "body": b""})
        elif frame.type == codec.HEADER:
            found[-1]["properties"] = codec.decode_header(frame.payload)[2]
        else:
            found[-1]["body"] += frame.payload
    return found


def accepted(data: bytes) -> int:
    """How many messages the broker's own decoder makes of it."""
    decoder = AmqpDecoder(131_072, 1 << 27)
    decoder.open(b"")
    decoder.receive(encode_method(1, CHANNEL_OPEN, [""]), 0)
    count = 0
    for event in decoder.receive(data, 0):
        assert isinstance(event, PublishRun), event
        count += len(event.messages)
    return count


def test_a_body_alone() -> None:
    data = encoded({"body": [b"one", b"", b"three"]})
    assert [(one["to"], one["body"]) for one in messages(data)] == [
        (("", "q"), b"one"),
        (("", "q"), b""),
        (("", "q"), b"three"),
    ]
    assert messages(data)[0]["properties"] == {"delivery_mode": 2}
    assert accepted(data) == 3


def test_text_is_utf_8_and_transient_is_said() -> None:
    (one,) = messages(encoded({"body": ["größe"]}, queue="q", persistent="false"))
    assert one["body"] == "größe".encode()
    assert one["properties"] == {"delivery_mode": 1}


def test_a_large_body_has_several_frames() -> None:
    body = bytes(range(256)) * 2000
    data = encoded({"body": [body, b"x"]})
    assert [one["body"] for one in messages(data)] == [body, b"x"]
    assert accepted(data) == 2


def test_all_properties() -> None:
    moment = datetime(2026, 11, 21, 8, 30, tzinfo=UTC)
    columns = {
        "type": ["order"],
        "message_id": ["m"],
        "body": [b"b"],
        "correlation_id": ["c"],
        "reply_to": ["r"],
        "app_id": ["a"],
        "content_type": ["text/plain"],
        "content_encoding": ["utf-8"],
        "priority": pa.array([7], pa.int32()),
        "expiration": ["60000"],
        "published_at": pa.array([moment], pa.timestamp("us", tz="UTC")),
        "headers": pa.array([[("k", "v"), ("n", None)]], pa.map_(pa.string(), pa.string())),
        "delay_ms": pa.array([1500], pa.int64()),
        "routing_key": ["eu.de"],
    }
    data = encoded(columns, exchange="later")
    (one,) = messages(data)
    assert one["to"] == ("later", "eu.de")
    assert one["properties"] == {
        "content_type": "text/plain",
        "content_encoding": "utf-8",
        "headers": {"k": "v", "n": None, "x-delay": codec.Typed("l", 1500)},
        "delivery_mode": 2,
        "priority": 7,
        "correlation_id": "c",
        "reply_to": "r",
        "expiration": "60000",
        "message_id": "m",
        "timestamp": int(moment.timestamp()),
        "type": "order",
        "app_id": "a",
    }
    assert accepted(data) == 1


def test_headers_of_an_array_keep_their_order_and_octets() -> None:
    pairs = [("b", b"\xff"), ("a", None), ("b", b"2")]
    columns = {"body": [b"x"], "headers": pa.array([pairs], LIST)}
    plain = encoded(columns)
    assert b"\x01bS\0\0\0\x01\xff\x01aV\x01bS\0\0\0\x012" in plain
    raw = codec.encode_properties({"headers": {"a": 1, "k": "v"}})
    again = encoded(columns | {"properties_raw": [raw]})
    assert b"\x01kS\0\0\0\x01v\x01bS\0\0\0\x01\xff\x01aV\x01b" in again


def test_null_is_not_set_and_addresses_may_differ() -> None:
    columns = {
        "body": [b"1", b"2", b"3"],
        "message_id": ["m", None, None],
        "priority": pa.array([None, 1, None], pa.int32()),
        "exchange": ["e", None, "f"],
        "routing_key": [None, "k", "k"],
    }
    found = messages(encoded(columns, exchange="d", routingKey="own"))
    assert [one["to"] for one in found] == [("e", "own"), ("d", "k"), ("f", "k")]
    assert [one["properties"] for one in found] == [
        {"message_id": "m", "delivery_mode": 2},
        {"priority": 1, "delivery_mode": 2},
        {"delivery_mode": 2},
    ]


@pytest.mark.parametrize(
    "columns, text",
    [
        ({"body": [b"x", None]}, "no body"),
        ({"body": [b"x"], "message_id": ["m" * 256]}, "has 256 bytes"),
        ({"body": [b"x"], "priority": [256]}, "priority 256"),
        ({"body": [b"x"], "expiration": ["soon"]}, "expiration 'soon'"),
        (
            {
                "body": [b"x"],
                "headers": pa.array([[("CC", "k")]], pa.map_(pa.string(), pa.string())),
            },
            "header 'CC'",
        ),
        ({"body": [b"x"], "headers": pa.array([[(None, b"v")]], LIST)}, "its key, is null"),
        ({"body": [b"x"], "headers": pa.array([[None]], LIST)}, "a header, or its key"),
    ],
)
def test_rows_amqp_cannot_say(columns: dict[str, Any], text: str) -> None:
    with pytest.raises(WrongRow, match=text):
        encoded(columns)


def test_blocks_are_the_same_bytes() -> None:
    pieces = [b"x" * size for size in (10, 600_000, 3_000_000, 5)]
    cut = list(blocks(iter(pieces)))
    assert b"".join(cut) == b"".join(pieces)
    assert max(map(len, cut)) <= 1_000_000


# -- columns -------------------------------------------------------------------------------------


def schema(**kinds: t.DataType) -> t.StructType:
    return t.StructType([t.StructField(name, kind) for name, kind in kinds.items()])


KINDS = (
    t.BinaryType(),
    t.StringType(),
    t.MapType(t.StringType(), t.StringType()),
    t.ArrayType(t.StructType().add("key", "string").add("value", "binary")),
    t.ByteType(),
    t.ShortType(),
    t.IntegerType(),
    t.LongType(),
    t.TimestampType(),
    t.TimestampNTZType(),
)


def test_every_allowed_type_is_allowed() -> None:
    known = {kind.simpleString(): kind for kind in KINDS}
    for name, allowed in COLUMNS.items():
        for kind in allowed:
            fields = {"body": t.BinaryType()} | {name: known[kind]}
            check_columns(schema(**fields), settings(exchange="e"))


@pytest.mark.parametrize(
    "fields, options, text",
    [
        ({"payload": t.BinaryType()}, {"queue": "q"}, "column 'payload' cannot be written"),
        ({"message_id": t.StringType()}, {"queue": "q"}, "no column 'body'"),
        ({"body": t.LongType()}, {"queue": "q"}, "'body' is bigint; it must be binary or string"),
        (
            {"body": t.BinaryType(), "routing_key": t.StringType()},
            {"queue": "q"},
            "contradicts option 'queue'",
        ),
        ({"body": t.BinaryType()}, {"routingKey": "k"}, "say where to"),
        (
            {"body": t.BinaryType(), "delay_ms": t.LongType()},
            {"queue": "q"},
            "x-delayed-message",
        ),
        (
            {
                "body": t.BinaryType(),
                "timestamp": t.TimestampType(),
                "published_at": t.TimestampType(),
            },
            {"queue": "q"},
            "are the same; write one",
        ),
    ],
)
def test_wrong_columns(fields: dict[str, t.DataType], options: dict[str, str], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        check_columns(schema(**fields), settings(**options))


# -- options -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options, text",
    [
        ({"queue": "q", "exchange": "e"}, "options 'exchange' and 'queue' are given"),
        ({"queue": "q", "routingKey": "k"}, "'routingKey' belongs to 'exchange'"),
        ({"queue": "q", "delivery": "maybe"}, "must be one of exactly-once, at-least-once"),
        ({"queue": "q", "mandatory": "yes"}, "must be one of fail, drop, count"),
        ({"queue": "q", "stageMaxBytes": "much"}, "must be a size"),
        ({"queue": "q", "persistant": "true"}, "unknown option 'persistant'"),
        ({"path": "q"}, "takes no path"),
        (
            {"queue": "q", "delivery": "at-least-once", "txnId": "t"},
            "'txnId' needs 'delivery' exactly-once",
        ),
        ({"queue": "q", "txnId": "t" * 252}, "option 'txnId' is longer than 251 bytes"),
        ({"queue": "q", "txnId": "é" * 126}, "option 'txnId' is longer than 251 bytes"),
    ],
)
def test_wrong_options(options: dict[str, str], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        parse_sink_options(options)


def test_what_options_mean() -> None:
    found = parse_sink_options({"topic": "orders", "checkpointLocation": "/c"})
    assert (found.exchange, found.routing_key) == ("nsq.orders", "")
    assert (found.delivery, found.mandatory, found.persistent) == ("exactly-once", "fail", True)
    with pytest.raises(ValueError, match="for batch writes only"):
        parse_sink_options({"queue": "q", "txnId": "t"}).check_for_stream()
