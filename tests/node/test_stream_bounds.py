"""What clients of streams may ask for is done in shares, and what it holds is bounded."""

from __future__ import annotations

import errno
import itertools

import pytest

from penstock.queues.stream import (
    DELIVER_BYTES_MAX,
    READERS_AT_ONCE,
    READS_AT_ONCE,
    StreamQueue,
)
from penstock.queues.stream_start import FILTERS_MAX, filter_of
from penstock.streams import cursor as at
from penstock.streams.cursor import PASSED_AT_ONCE, Start, StreamCursor
from penstock.streams.filtering import Wanted
from penstock.streams.log import StreamLimits
from penstock.streams.reading import HEADS_AT_ONCE
from tests.helpers import raw_codec as codec
from tests.helpers.connection_pair import ClientEnd, QuietBroker
from tests.node.test_streams import declare
from tests.streams.stream_tools import StreamWorld

BODY = b"x" * 10_000


def filled(node: QuietBroker, count: int, body: bytes = BODY) -> StreamQueue:
    """A stream with a block for each of ``count`` messages, most of them on disk alone."""
    client = node.client()
    declare(client, "s")
    for _ in range(count):
        client.publish("", "s", body)
    queue = node.broker.vhosts["/"].queues["s"]
    assert isinstance(queue, StreamQueue)
    return queue


def consuming(number: int, offset: object) -> bytes:
    return codec.method_frame(
        1,
        "basic.consume",
        queue="s",
        consumer_tag=f"c{number}",
        nowait=True,
        arguments={"x-stream-offset": offset},
    )


def consume(client: ClientEnd, number: int, offset: object, prefetch: int) -> None:
    client.method(1, "basic.qos", prefetch_count=prefetch)
    client.send(consuming(number, offset))


def test_a_pass_gives_all_consumers_together_one_share() -> None:
    node = QuietBroker()
    queue = filled(node, 100)
    client = node.client()
    client.call("basic.qos", prefetch_count=50)
    for number in range(30):
        client.send(consuming(number, "first"), run=False)
    sizes = [len(client.received)]
    while sizes[-1] < 30 * 50 * len(BODY) and len(sizes) < 2000:
        queue.wake()
        node.turn.begin(node.now_ms, node.mono_ms)
        node.turn.run(node.now_ms, True)
        node.flush()
        sizes.append(len(client.received))
    shares = [after - before for before, after in itertools.pairwise(sizes)]
    assert max(shares) < 3 * DELIVER_BYTES_MAX  # a turn may have two passes
    tags = {fields["consumer_tag"] for name, fields in client.methods() if name == "basic.deliver"}
    assert len(tags) == 30


def test_no_consumer_waits_for_those_before_it() -> None:
    """Of many that could take all the time, each has its turn."""
    node = QuietBroker()
    queue = filled(node, 400)
    clients = [node.client() for _ in range(5)]
    node.worker.hold = True
    for number, client in enumerate(clients):
        consume(client, number, "first", 1000)
    node.worker.hold = False
    for _ in range(12):
        queue.wake()
        node.turn.begin(node.now_ms, node.mono_ms)
        node.turn.run(node.now_ms, True)
        node.flush()
    counts = [len([body for body in client.bodies() if body]) for client in clients]
    assert min(counts) > 0, counts
    assert max(counts) < 8 * min(counts), counts


def test_reads_under_way_are_few_however_many_consumers() -> None:
    node = QuietBroker()
    queue = filled(node, 400)
    node.worker.hold = True
    client = node.client()
    for number in range(100):
        consume(client, number, 2 * number, 1)
    assert len(node.worker.held) == READS_AT_ONCE
    node.worker.hold = False
    node.run()
    assert sum(consumer.outstanding for consumer in queue.consumers) == 100


def test_a_pass_looks_at_some_of_many_readers_and_an_acknowledgement_at_one() -> None:
    node = QuietBroker()
    queue = filled(node, 1)
    client = node.client()
    client.call("basic.qos", prefetch_count=1)
    count = 2 * READERS_AT_ONCE + 10
    client.send(b"".join(consuming(number, "next") for number in range(count)))
    node.committer.hold = True
    client.publish("", "s", b"x")
    client.publish("", "s", b"y")
    node.committer.finish()
    node.committer.hold = False
    sizes = []
    while sum(sizes) < count and len(sizes) < 20:
        node.turn.begin(node.now_ms, node.mono_ms)
        node.turn.run(node.now_ms, True)
        sizes.append(sum(int(consumer.outstanding) for consumer in queue.consumers) - sum(sizes))
    assert 0 < max(sizes) <= 2 * READERS_AT_ONCE  # a turn may have two passes
    queue.check()
    resting = [consumer.tag for consumer in queue.consumers if consumer.resting]
    client.send(codec.method_frame(1, "basic.ack", delivery_tag=7), run=False)
    node.broker.queue_turns.take_wakeup(queue)
    assert [one.consumer.tag for one in queue.deliver(node.now_ms)] == ["c6"]
    queue.check()
    assert len(resting) >= count - READERS_AT_ONCE


def test_readers_that_leave_while_a_read_is_under_way_leave_nothing() -> None:
    node = QuietBroker()
    queue = filled(node, 400)
    node.worker.hold = True
    client = node.client()
    for number in range(20):
        consume(client, number, 2 * number, 1)
    for number in range(15):
        client.call("basic.cancel", consumer_tag=f"c{number}")
    queue.check()
    node.worker.hold = False
    node.run()
    queue.check()
    assert sum(consumer.outstanding for consumer in queue.consumers) == 5
    client.drop()
    queue.check()
    assert not queue.consumers
    assert node.streams.cache.held_bytes == 0


def test_a_reader_without_room_keeps_no_read_of_others_waiting() -> None:
    """What was read for it is taken over, and bounded by the cache, though it takes nothing."""
    node = QuietBroker()
    queue = filled(node, 400)
    node.worker.hold = True
    stuck, free = node.client(), node.client()
    for number in range(READS_AT_ONCE):
        consume(stuck, number, 10 * number, 1)
    stuck.blocked = True
    stuck.session.outlet.open = False
    for number in range(3):
        consume(free, 100 + number, 200 + 10 * number, 1)
    node.worker.hold = False
    node.run()
    queue.check()
    by_tag = {consumer.tag: consumer.outstanding for consumer in queue.consumers}
    assert [by_tag[f"c{100 + number}"] for number in range(3)] == [1, 1, 1]
    assert by_tag["c0"] == 0


def test_a_deleted_stream_has_nothing_at_hand() -> None:
    node = QuietBroker()
    filled(node, 200)
    client = node.client()
    consume(client, 1, "first", 1)
    assert node.streams.cache.held_bytes > 0
    client.method(1, "queue.delete", queue="s")
    assert node.streams.cache.held_bytes == 0


def test_an_outlet_without_room_gets_one_share_and_no_spin() -> None:
    node = QuietBroker()
    filled(node, 300)
    client = node.client()
    client.blocked = True
    for number in range(20):
        consume(client, number, "first", 1000)
    node.run()  # it comes to rest
    assert len(client.session.out) < 4 * 512 * 1024
    client.blocked = False
    node.run()
    node.tick(10)
    assert len([body for body in client.bodies() if body]) > 300


def test_a_look_passes_over_few_blocks_of_the_cache() -> None:
    world = StreamWorld(cache_bytes=10_000_000)
    for number in range(500):
        world.append(b"a" if number < 499 else b"b", values=[b"a" if number < 499 else b"b"])
        world.flush()
    cursor = StreamCursor(world.log, Start(at.FIRST), Wanted([b"b"], False))
    looks = 1
    while not cursor.look():
        assert cursor.passing
        assert cursor.offset <= looks * PASSED_AT_ONCE
        looks += 1
    assert [one.content for one in cursor.take(9)] == [b"b"]
    assert not cursor.passing


def test_a_read_passes_over_so_many_blocks_at_most() -> None:
    """The thread has the reads of all queues to do."""
    world = StreamWorld(StreamLimits(segment_bytes=100_000_000), cache_bytes=0)
    count = int(HEADS_AT_ONCE) + 1000
    for number in range(count):
        value = b"b" if number == count - 1 else b"a"
        world.append(value, values=[value])
        world.seal()
    while world.sealed:
        world.commit()
    cursor = StreamCursor(world.log, Start(at.FIRST), Wanted([b"b"], False))
    assert not cursor.look()
    [read] = world.board.reads
    world.run_jobs()
    assert read.done
    assert not cursor.look()
    assert cursor.offset == HEADS_AT_ONCE
    assert [one.content for one in world.read(cursor)] == [b"b"]


def test_a_filter_of_very_many_values_is_none() -> None:
    """As many as a frame has room for would be looked for in each block of the stream."""
    assert filter_of({"x-stream-filter": [f"v{n}" for n in range(FILTERS_MAX)]}) is not None
    assert filter_of({"x-stream-filter": [f"v{n}" for n in range(FILTERS_MAX + 1)]}) is None


def many_segments(count: int) -> StreamWorld:
    world = StreamWorld(StreamLimits(segment_bytes=100))
    for _ in range(count):
        world.append(bytes(200))
        world.flush()
    return world


@pytest.mark.parametrize("after", range(0, 60, 7))
def test_a_file_that_cannot_be_removed_goes_with_a_later_group(after: int) -> None:
    """The stream tries again behind a later group, without a restart, and reports the reason."""
    world = many_segments(80)
    world.log.set_limits(StreamLimits(max_bytes=1000, segment_bytes=100))
    world.files.fail("remove", errno.EIO, after)
    assert world.log.retire(world.now_ms) > after
    world.flush()
    fault = world.log.take_fault()
    assert ".stm is not removed: [Errno 5] Input/output error" in fault
    assert len(world.files.names) > len(world.log.segments)
    world.append(b"next")
    world.flush()
    while world.log.retire(world.now_ms):
        world.flush()
    world.flush()
    assert len(world.files.names) == len(world.log.segments)
    assert world.log.take_fault() == ""
