"""Timestamps on published messages (``message_timestamp``): when, which, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.broker import KEEP, OVERWRITE
from penstock.protocols.amqp.codec.header_edit import with_timestamp
from penstock.protocols.amqp.codec.properties import body_of, decode_properties
from tests.helpers import raw_codec as codec
from tests.helpers.connection_pair import ClientEnd, QuietBroker
from tests.helpers.live_broker import LiveBroker
from tests.helpers.raw_amqp import open_client

NOW_MS = 1_700_000_000_123
BOTH = {"timestamp": NOW_MS // 1000, "headers": {"timestamp_in_ms": NOW_MS}}


def node_that(stamping: int) -> QuietBroker:
    node = QuietBroker()
    node.broker.options = node.broker.options._replace(stamping=stamping)
    node.now_ms = NOW_MS
    return node


def got(client: ClientEnd, queue: str = "q") -> dict[str, Any]:
    """The properties of the next message."""
    client.received = b""
    client.method(1, "basic.get", queue=queue, no_ack=True)
    (answer,) = client.methods()
    assert answer[0] == "basic.get-ok"
    properties: dict[str, Any] = answer[1]["properties"]
    for name, value in properties.get("headers", {}).items():
        if isinstance(value, codec.Typed):
            assert value.letter == "l"
            properties["headers"][name] = value.value
    return properties


@pytest.mark.parametrize("stamping", [KEEP, OVERWRITE])
def test_a_message_without_any_gets_both(stamping: int) -> None:
    client = node_that(stamping).client()
    client.call("queue.declare", queue="q")
    client.publish("", "q")
    assert got(client) == BOTH


@pytest.mark.parametrize(
    "stamping, seconds, ms", [(KEEP, 5, 6), (OVERWRITE, NOW_MS // 1000, NOW_MS)]
)
def test_what_the_publisher_says_stays_or_not(stamping: int, seconds: int, ms: int) -> None:
    client = node_that(stamping).client()
    client.call("queue.declare", queue="q")
    headers = {"a": 1, "timestamp_in_ms": codec.Typed("l", 6), "z": "z"}
    client.publish("", "q", timestamp=5, headers=headers, app_id="app")
    told = got(client)
    assert told == {
        "timestamp": seconds,
        "headers": {"a": 1, "timestamp_in_ms": ms, "z": "z"},
        "app_id": "app",
    }
    assert list(told["headers"]) == list(headers)


def test_each_is_kept_for_itself() -> None:
    client = node_that(KEEP).client()
    client.call("queue.declare", queue="q")
    client.publish("", "q", timestamp=5)
    assert got(client) == BOTH | {"timestamp": 5}


def test_by_default_a_content_is_what_it_was() -> None:
    client = QuietBroker().client()
    client.call("queue.declare", queue="q")
    client.publish("", "q", app_id="app")
    assert got(client) == {"app_id": "app"}


def test_in_a_transaction_it_is_the_time_of_the_publish() -> None:
    node = node_that(KEEP)
    client = node.client()
    client.call("queue.declare", queue="q")
    client.call("tx.select")
    client.publish("", "q")
    node.tick(5000)
    client.call("tx.commit")
    assert got(client) == BOTH


def test_a_letter_keeps_the_time_its_message_came() -> None:
    node = node_that(OVERWRITE)
    client = node.client()
    client.call("queue.declare", queue="morgue")
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "morgue"}
    client.call("queue.declare", queue="q", arguments=letters | {"x-message-ttl": 100})
    client.publish("", "q")
    node.tick(5000)
    told = got(client, "morgue")
    assert (told["timestamp"], told["headers"]["timestamp_in_ms"]) == (NOW_MS // 1000, NOW_MS)


def test_a_headers_exchange_may_look_at_it() -> None:
    client = node_that(KEEP).client()
    client.call("queue.declare", queue="q")
    client.call("exchange.declare", exchange="x", type="headers")
    client.call("queue.bind", queue="q", exchange="x", arguments={"timestamp_in_ms": None})
    client.publish("x", "")
    assert got(client) == BOTH


PROPERTIES = st.fixed_dictionaries(
    {},
    optional={
        "content_type": st.sampled_from(["", "text/plain", "x" * 255]),
        "headers": st.dictionaries(st.sampled_from(["a", "b"]), st.integers(0, 9)),
        "delivery_mode": st.sampled_from([1, 2]),
        "correlation_id": st.text(max_size=20),
        "message_id": st.text(max_size=20),
        "timestamp": st.integers(0, 2**64 - 1),
        "type": st.text(max_size=20),
        "user_id": st.just("guest"),
        "app_id": st.text(max_size=20),
    },
)


@given(PROPERTIES, st.binary(max_size=40), st.booleans())
def test_nothing_else_is_changed(properties: dict[str, Any], body: bytes, overwrite: bool) -> None:
    content = with_timestamp(codec.content_frames(1, body, properties), NOW_MS, overwrite)
    wanted = dict(properties)
    wanted["headers"] = {**wanted.get("headers", {}), "timestamp_in_ms": NOW_MS}
    if overwrite or "timestamp" not in properties:
        wanted["timestamp"] = NOW_MS // 1000
    told = decode_properties(content).as_dict()
    assert told == {name: value for name, value in wanted.items() if value is not None}
    assert body_of(content) == body
    frames, rest = codec.split_frames(content)
    assert rest == b""
    assert [frame.type for frame in frames] == [codec.HEADER] + [codec.BODY] * bool(body)


def test_the_setting(tmp_path: Path) -> None:
    with LiveBroker(tmp_path, ("--message-timestamp", "keep")) as running:
        client = open_client(running.url)
        client.call(1, "queue.declare", queue="q", exclusive=True)
        client.publish(1, "", "q", b"m")
        told = client.call(1, "basic.get", queue="q", no_ack=True).properties
        client.close_socket()
    assert abs(told["headers"]["timestamp_in_ms"].value // 1000 - told["timestamp"]) <= 1
