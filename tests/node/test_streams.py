"""Streams of a single node over AMQP: what is confirmed stays, each consumer reads all of it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.administration import Administration
from penstock.broker.rules.policies import Policy
from penstock.core.errors import Corrupt
from penstock.storage.common.read_retry import RETRY_LEAST_MS
from tests.helpers.connection_pair import ClientEnd, QuietBroker
from tests.helpers.raw_codec import Typed

STREAM = {"x-queue-type": "stream"}


def declare(client: ClientEnd, name: str, **more: Any) -> None:
    arguments = STREAM | {f"x-{key.replace('_', '-')}": value for key, value in more.items()}
    client.call("queue.declare", queue=name, durable=True, arguments=arguments)


def consume(
    client: ClientEnd, name: str, offset: object, prefetch: int = 1000, **arguments: object
) -> None:
    client.call("basic.qos", prefetch_count=prefetch)
    client.method(
        1,
        "basic.consume",
        queue=name,
        consumer_tag=f"c-{name}",
        arguments={"x-stream-offset": offset} | arguments,
    )


def delivered(node: QuietBroker, client: ClientEnd) -> list[tuple[int, bytes]]:
    """Offset and body of what has arrived."""
    node.run()
    told = [args for name, args in client.methods() if name == "basic.deliver"]
    assert not any(args["redelivered"] for args in told)
    offsets = [args["properties"]["headers"]["x-stream-offset"].value for args in told]
    return list(zip(offsets, (args["body"] for args in told), strict=True))


def expected(*numbers: int) -> list[tuple[int, bytes]]:
    return [(number, b"m%d" % number) for number in numbers]


def fill(node: QuietBroker, client: ClientEnd, name: str, numbers: range) -> None:
    """Each message confirmed before the next comes; a second of the wall clock between them."""
    client.call("confirm.select")
    for number in numbers:
        node.now_ms += 1000
        client.publish("", name, b"m%d" % number)
        node.run()
        assert [told for told, _ in client.methods()] == ["basic.ack"]


@pytest.fixture
def definitions(tmp_path: Path) -> str:
    return str(tmp_path / "definitions.db")


@pytest.fixture
def node(definitions: str) -> Iterator[QuietBroker]:
    node = QuietBroker(definitions=definitions)
    yield node
    node.check()


def after_a_power_cut(node: QuietBroker, definitions: str, seed: int = 7) -> QuietBroker:
    """Only what was synced is there."""
    node.definitions.close()
    node.files.power_cut(random.Random(seed))
    again = QuietBroker(node.files, definitions)
    again.now_ms = node.now_ms
    return again


def test_every_kind_of_place(node: QuietBroker) -> None:
    client = node.client()
    declare(client, "s")
    begin = node.now_ms
    fill(node, client, "s", range(5))
    for offset, first in (
        ("first", 0),
        ("last", 4),
        ("next", 5),
        (2, 2),
        (-2, 3),
        (-100, 0),
        (7, 7),
        (Typed("T", begin // 1000 + 3), 2),
        (Typed("T", 1), 0),
        (Typed("T", 4_000_000_000), 5),
        ("3s", 1),
        ("1h", 0),
    ):
        reader = node.client()
        consume(reader, "s", offset)
        assert delivered(node, reader) == expected(*range(first, 5)), offset


def test_a_number_to_come_is_waited_for(node: QuietBroker) -> None:
    client, reader = node.client(), node.client()
    declare(client, "s")
    consume(reader, "s", 2)
    fill(node, client, "s", range(4))
    assert delivered(node, reader) == expected(2, 3)


def test_what_was_confirmed_is_read_after_a_power_cut(node: QuietBroker, definitions: str) -> None:
    client = node.client()
    declare(client, "s")
    fill(node, client, "s", range(20))
    for seed in range(3):
        node = after_a_power_cut(node, definitions, seed)
        reader = node.client()
        consume(reader, "s", "first")
        assert delivered(node, reader) == expected(*range(20))
        fill(node, node.client(), "s", range(0))
    fill(node, node.client(), "s", range(20, 25))
    node = after_a_power_cut(node, definitions)
    reader = node.client()
    consume(reader, "s", 18)
    assert delivered(node, reader) == expected(*range(18, 25))


def test_nothing_is_read_or_confirmed_before_it_is_on_disk(node: QuietBroker) -> None:
    client, reader = node.client(), node.client()
    declare(client, "s")
    consume(reader, "s", "first")
    client.call("confirm.select")
    node.run()
    node.committer.hold = True
    client.publish("", "s", b"m0")
    assert delivered(node, reader) == []
    assert client.methods() == []
    node.committer.hold = False
    node.committer.finish()
    assert delivered(node, reader) == expected(0)
    assert [name for name, _ in client.methods()] == ["basic.ack"]


def test_acknowledgements_are_credit(node: QuietBroker) -> None:
    client, reader = node.client(), node.client()
    declare(client, "s")
    fill(node, client, "s", range(6))
    consume(reader, "s", "first", prefetch=2)
    assert delivered(node, reader) == expected(0, 1)
    reader.method(1, "basic.ack", delivery_tag=1)
    node.now_ms += 5
    assert delivered(node, reader) == expected(2)
    reader.method(1, "basic.nack", delivery_tag=3, multiple=True, requeue=True)
    node.now_ms += 5
    assert delivered(node, reader) == expected(3, 4)
    queue = node.broker.vhosts["/"].queues["s"]
    assert queue.unacked_count == 2
    reader.drop()
    node.run()
    assert (queue.unacked_count, len(queue.consumers)) == (0, 0)


def test_a_stream_and_a_queue_share_a_publish(node: QuietBroker, definitions: str) -> None:
    client = node.client()
    declare(client, "s")
    client.call("queue.declare", queue="q", durable=True)
    client.call("queue.declare", queue="r", durable=True)
    for name in ("q", "s", "r"):
        client.call("queue.bind", queue=name, exchange="amq.fanout")
    client.call("confirm.select")
    large = b"x" * 10_000
    client.publish("amq.fanout", "", large, delivery_mode=2)
    node.run()
    node = after_a_power_cut(node, definitions)
    client = node.client()
    assert [client.call("basic.get", queue=name)["body"] for name in ("q", "r")] == [large, large]
    consume(client, "s", "first")
    assert delivered(node, client) == [(0, large)]


def test_retention_by_bytes_and_a_reader_that_it_overtakes(
    node: QuietBroker, definitions: str
) -> None:
    client, reader = node.client(), node.client()
    declare(client, "s", max_length_bytes=1000, stream_max_segment_size_bytes=300)
    fill(node, client, "s", range(2))
    consume(reader, "s", "first", prefetch=1)
    assert delivered(node, reader) == expected(0)
    fill(node, client, "s", range(2, 40))
    log = node.broker.vhosts["/"].queues["s"].backing.log
    assert log.first_offset > 20
    assert log.segments.total_bytes <= 1000 + 400
    first = log.first_offset
    reader.method(1, "basic.ack", delivery_tag=1)
    node.now_ms += 5
    assert delivered(node, reader) in (expected(1), expected(first))
    node = after_a_power_cut(node, definitions)
    reader = node.client()
    consume(reader, "s", 0)
    found = delivered(node, reader)
    assert found == expected(*range(found[0][0], 40))
    assert found[0][0] >= first


def test_retention_by_age_needs_no_publish(node: QuietBroker) -> None:
    client = node.client()
    declare(client, "s", max_age="1h", stream_max_segment_size_bytes=100)
    fill(node, client, "s", range(6))
    queue = node.broker.vhosts["/"].queues["s"]
    assert queue.counts() == (6, 0)
    node.now_ms += 3_600_000
    node.run()
    node.now_ms += 10
    node.run()
    assert queue.counts()[0] < 4
    assert len([name for name in node.files.names if name.endswith(".stm")]) < 4


def test_a_policy_reaches_streams(node: QuietBroker) -> None:
    client = node.client()
    declare(client, "s", max_age="1h")
    policy = Policy("p", "^s$", "streams", 0, {"max-age": "5m", "max-length-bytes": 100})
    Administration(node.broker, 16).put_policy("/", policy)
    limits = node.broker.vhosts["/"].queues["s"].backing.log.limits
    assert (limits.max_age_ms, limits.max_bytes) == (300_000, 100)


def test_filters_pass_blocks_over(node: QuietBroker) -> None:
    client, reader = node.client(), node.client()
    declare(client, "s")
    client.call("confirm.select")
    for number, value in enumerate(("eu", "us", None, "eu")):
        headers = {} if value is None else {"x-stream-filter-value": value}
        client.publish("", "s", b"m%d" % number, headers=headers)
        node.run()
    for wanted, numbers in (
        ({"x-stream-filter": "eu"}, (0, 3)),
        ({"x-stream-filter": ["eu", "us"]}, (0, 1, 3)),
        ({"x-stream-filter": "us", "x-stream-match-unfiltered": True}, (1, 2)),
        ({"x-stream-filter": 5}, (0, 1, 2, 3)),
    ):
        reader = node.client()
        consume(reader, "s", "first", **wanted)
        assert delivered(node, reader) == expected(*numbers), wanted


def test_filters_of_headers_look_at_each_message(node: QuietBroker) -> None:
    client = node.client()
    declare(client, "s")
    client.call("confirm.select")
    for number, headers in enumerate(
        (
            {"region": "eu", "size": 5},
            {"region": "us", "size": 5},
            {"region": "eu", "size": 6, "x-stream-filter-value": "v"},
            {},
            {"region": "eu", "paid": True},
        )
    ):
        client.publish("", "s", b"m%d" % number, headers=headers)
    node.run()
    eu, five = {"region": "eu"}, {"size": "5"}
    for wanted, numbers in (
        ({"x-stream-filter": eu}, (0, 2, 4)),
        ({"x-stream-filter": eu | {"size": 5}}, (0,)),
        ({"x-stream-filter": [eu, five], "x-filter-match-type": "all"}, (0,)),
        ({"x-stream-filter": [eu, five], "x-filter-match-type": "any"}, (0, 1, 2, 4)),
        ({"x-stream-filter": {"paid": True}}, (4,)),
        ({"x-stream-filter": {"region": ""}}, ()),
        ({"x-stream-filter": [eu, "v"]}, (2,)),
        ({"x-stream-filter": [eu, "w"]}, ()),
        ({"x-stream-filter": {}}, (0, 1, 2, 3, 4)),
    ):
        reader = node.client()
        consume(reader, "s", "first", prefetch=2, **wanted)
        found = delivered(node, reader)
        assert found == expected(*numbers[:2]), wanted
        if len(numbers) > 2:
            reader.method(1, "basic.ack", delivery_tag=2, multiple=True)
            node.now_ms += 5
            assert delivered(node, reader) == expected(*numbers[2:4]), wanted


def test_a_filter_of_headers_that_finds_nothing_lets_others_have_their_turn(
    node: QuietBroker,
) -> None:
    client = node.client()
    declare(client, "s")
    client.call("confirm.select")
    for number in range(3000):
        headers = {"last": "yes"} if number == 2999 else {"last": "no"}
        client.publish("", "s", b"m%d" % number, headers=headers)
    node.run()
    queue = node.broker.vhosts["/"].queues["s"]
    reader = node.client()
    consume(reader, "s", "first", **{"x-stream-filter": {"last": "yes"}})
    (consumer,) = queue.consumers
    assert delivered(node, reader) == expected(2999)
    assert queue.cursor_of(consumer).offset == 3000


@pytest.mark.parametrize(
    "arguments, why",
    [
        ({"x-stream-filter": {"geo-bbox": {"x": 1}}}, "unacceptable_type,table"),
        ({"x-stream-filter": [{"a": None}]}, "unacceptable_type,table"),
        ({"x-stream-filter": {"a": "b"}, "x-filter-match-type": "some"}, "invalid_match_type"),
    ],
)
def test_filters_of_headers_that_are_none(
    node: QuietBroker, arguments: dict[str, object], why: str
) -> None:
    client = node.client()
    declare(client, "s")
    consume(client, "s", "first", **arguments)
    node.run()
    (name, told), *_ = client.methods()
    assert (name, told["code"]) == ("channel.close", 406)
    assert why in told["text"]


def test_a_deleted_stream_leaves_nothing(node: QuietBroker, definitions: str) -> None:
    client = node.client()
    declare(client, "s")
    fill(node, client, "s", range(3))
    client.call("queue.delete", queue="s")
    node.run()
    node.run()
    assert not [name for name in node.files.names if name.endswith(".stm")]
    declare(client, "s")
    fill(node, client, "s", range(2))
    node = after_a_power_cut(node, definitions)
    reader = node.client()
    consume(reader, "s", "first")
    assert delivered(node, reader) == expected(0, 1)


def test_a_stream_whose_files_are_gone_stops_the_start(node: QuietBroker, definitions: str) -> None:
    client = node.client()
    declare(client, "s")
    fill(node, client, "s", range(3))
    node.definitions.close()
    for name in [name for name in node.files.names if name.endswith(".stm")]:
        node.files.remove(name)
    node.files.kill()
    with pytest.raises(Corrupt, match="messages 0 to 2 of the stream are missing at its end"):
        QuietBroker(node.files, definitions)


def test_a_reader_that_meets_a_failing_disk_goes_on_later(
    node: QuietBroker, definitions: str
) -> None:
    client = node.client()
    declare(client, "s")
    fill(node, client, "s", range(3))
    node = after_a_power_cut(node, definitions)
    backing = node.broker.vhosts["/"].queues["s"].backing
    reader = node.client()
    node.files.fail("pread")
    consume(reader, "s", "first")
    assert delivered(node, reader) == []
    assert "Input/output error" in backing.why_stopped()
    [fault] = node.engine.take_faults()
    assert "is stopped: " in fault
    node.tick(int(RETRY_LEAST_MS) // 2)
    assert delivered(node, reader) == []
    node.tick(int(RETRY_LEAST_MS))
    assert delivered(node, reader) == expected(0, 1, 2)
    assert backing.why_stopped() == ""


def test_damage_stops_readers_and_is_told_once_for_each_try(
    node: QuietBroker, definitions: str
) -> None:
    client = node.client()
    declare(client, "s")
    fill(node, client, "s", range(3))
    node = after_a_power_cut(node, definitions)
    [name] = [name for name in node.files.names if name.endswith(".stm")]
    node.files.flip(name, 8 * node.files.size(name) - 1)
    for reader in (node.client(), node.client()):
        consume(reader, "s", "first")
        assert delivered(node, reader) == expected(0, 1)
    assert len(node.engine.take_faults()) == 1
    node.tick(int(RETRY_LEAST_MS))
    assert len(node.engine.take_faults()) == 1


def test_ten_readers_decode_once(node: QuietBroker) -> None:
    client = node.client()
    declare(client, "s")
    fill(node, client, "s", range(3))
    readers = [node.client() for _ in range(10)]
    for reader in readers:
        consume(reader, "s", "first")
    assert [delivered(node, reader) for reader in readers] == [expected(0, 1, 2)] * 10
