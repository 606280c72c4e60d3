"""Streams on a disk that fails or is full: nothing is confirmed before it is on disk."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest

from penstock.core.errors import Corrupt
from penstock.storage.definitions.definitions import Definitions
from penstock.streams.writer import OPEN_FILES_MAX
from tests.helpers.connection_pair import ClientEnd, QuietBroker
from tests.node.test_streams import after_a_power_cut, consume, declare, delivered, expected, fill

VERBS = ("pwrite", "sync", "sync_dir", "open_write")
BEFORE = 3


@pytest.fixture
def definitions(tmp_path: Path) -> str:
    return str(tmp_path / "definitions.db")


def stream_with_some(definitions: str) -> tuple[QuietBroker, ClientEnd]:
    """A segment takes two messages."""
    node = QuietBroker(definitions=definitions)
    client = node.client()
    declare(client, "s", stream_max_segment_size_bytes=150)
    fill(node, client, "s", range(BEFORE))
    return node, client


def publish(node: QuietBroker, client: ClientEnd, number: int) -> bool:
    """Was it confirmed?"""
    client.publish("", "s", b"m%d" % number)
    node.run()
    told = [name for name, _ in client.methods()]
    assert told in ([], ["basic.ack"])
    return bool(told)


@pytest.mark.parametrize("after", range(5))
@pytest.mark.parametrize("verb", VERBS)
def test_a_disk_that_fails_ends_the_node_and_nothing_confirmed_is_lost(
    definitions: str, verb: str, after: int
) -> None:
    node, client = stream_with_some(definitions)
    node.files.fail(verb, errno.EIO, after)
    number = BEFORE
    while publish(node, client, number):
        number += 1
        assert number < BEFORE + 30, f"{verb} was never called"
    assert node.committer.error is not None, "a node ends with this"
    reader = node.client()
    consume(reader, "s", "first")
    seen = delivered(node, reader)
    assert seen == expected(*range(number)), "readers see what is not on disk"
    assert not publish(node, client, number + 1), "confirmed behind a failure"
    for seed in range(3):
        node = after_a_power_cut(node, definitions, seed)
        reader = node.client()
        consume(reader, "s", "first")
        found = delivered(node, reader)
        assert found[:number] == seen
        assert found == expected(*range(len(found)))
        assert len(found) <= number + 1


@pytest.mark.parametrize("room", [0, 30, 100, 120])
def test_a_full_disk_is_waited_for(definitions: str, room: int) -> None:
    """Publishes are taken; what has no room is confirmed, and read, when there is some."""
    node, client = stream_with_some(definitions)
    reader = node.client()
    consume(reader, "s", BEFORE)
    node.committer.hold = True
    node.files.space_left = room
    for number in range(BEFORE, BEFORE + 4):
        client.publish("", "s", b"m%d" % number)
        node.run()
    for _ in range(3):
        node.committer.finish()
        node.run()
    confirms = len(client.methods())
    assert confirms < 4
    assert node.committer.stalled
    assert node.committer.error is None
    assert len(delivered(node, reader)) == confirms
    node.files.space_left = 1 << 40
    for _ in range(6):
        node.committer.finish()
        node.run()
    told = client.methods()
    assert {name for name, _ in told} == {"basic.ack"}
    assert told[-1][1]["delivery_tag"] == BEFORE + 4
    node.committer.hold = False
    node = after_a_power_cut(node, definitions)
    reader = node.client()
    consume(reader, "s", "first")
    assert delivered(node, reader) == expected(*range(BEFORE + 4))


@pytest.mark.parametrize("seed", range(8))
def test_a_deleted_stream_does_not_come_back_when_its_deletion_is_forgotten(
    definitions: str, seed: int
) -> None:
    """A start forgets deletions: the files of these streams must be gone for good by then."""
    node, client = stream_with_some(definitions)
    client.call("queue.delete", queue="s")
    node.run()
    assert not [name for name in node.files.names if name.endswith(".stm")]
    node.definitions.close()
    node.files.kill()
    node = QuietBroker(node.files, definitions)
    node = after_a_power_cut(node, definitions, seed)
    assert "s" not in node.broker.vhosts["/"].queues


def test_many_streams_share_a_few_handles(definitions: str) -> None:
    node = QuietBroker(definitions=definitions)
    client = node.client()
    names = [f"s{number}" for number in range(int(OPEN_FILES_MAX) + 20)]
    for name in names:
        declare(client, name)
        client.call("queue.bind", queue=name, exchange="amq.fanout")
    client.call("confirm.select")
    most = 0
    handles: list[int] = []
    opened = node.files.open_write

    def counting(path: str) -> int:
        nonlocal most
        handle = opened(path)
        if path.endswith(".stm"):
            handles.append(handle)
        most = max(most, sum(one in node.files.handles for one in handles))
        return handle

    node.files.open_write = counting  # type: ignore[method-assign]
    for number in range(3):
        client.publish("amq.fanout", "", b"m%d" % number)
        node.run()
        assert [name for name, _ in client.methods()] == ["basic.ack"]
    assert most == OPEN_FILES_MAX
    node = after_a_power_cut(node, definitions)
    for name in random.Random(1).sample(names, 5):
        reader = node.client()
        consume(reader, name, "first")
        assert delivered(node, reader) == expected(0, 1, 2)


@pytest.mark.parametrize("records", ["old", "deleted"])
def test_a_stream_that_the_definitions_do_not_name(
    definitions: str, tmp_path: Path, records: str
) -> None:
    """It stops the start, unless its deletion is recorded: then nothing is left of it."""
    node, _ = stream_with_some(definitions)
    stream = node.broker.vhosts["/"].queues["s"].backing.stream
    node.definitions.close()
    node.files.kill()
    other = str(tmp_path / "other.db")
    if records == "old":
        told = rf"queue {stream} \(2 segment files in streams/{stream}\)"
        with pytest.raises(Corrupt, match=told):
            QuietBroker(node.files, other)
        return
    found = Definitions(other)
    found.delete_unknown_queues([stream])
    found.commit()
    found.close()
    again = QuietBroker(node.files, other)
    assert not [name for name in again.files.names if name.endswith(".stm")]


def test_the_loop_writes_no_group_that_takes_more_than_one_sync(definitions: str) -> None:
    """300 new files of streams, each with its directory, were made by the loop itself."""
    node = QuietBroker(definitions=definitions)
    client = node.client()
    declare(client, "s")
    fill(node, client, "s", range(BEFORE))
    client = node.client()  # without confirms: none of its publishes asks for a sync

    def inline(name: str, sync_ms: float) -> int:
        before = node.committer.inline_count
        node.committer.last_sync_ms = sync_ms
        client.publish("", name, b"x")
        node.run()
        return node.committer.inline_count - before

    assert inline("s", 0.0) == 1
    assert inline("s", 5.0) == 0, "a slow disk"
    declare(client, "t")
    assert inline("t", 0.0) == 0, "its file is begun"
    assert inline("t", 0.0) == 1
    client.call("queue.bind", queue="s", exchange="amq.fanout")
    client.call("queue.bind", queue="t", exchange="amq.fanout")
    before = node.committer.inline_count
    client.publish("amq.fanout", "", b"x")
    node.run()
    assert node.committer.inline_count == before, "two files"
