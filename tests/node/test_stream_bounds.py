"""What clients of streams may ask for is done in shares, and what it holds is bounded."""

from __future__ import annotations

import errno
import itertools

import pytest

from penstock.queues.stream import (
    BESIDE_PUBLISHERS_BYTES,
    KEPT_WHOLE_BYTES,
    READER_BYTES,
    READERS_AT_ONCE,
    READS_AT_ONCE,
    TURN_BYTES,
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


def turn(node: QuietBroker) -> None:
    node.turn.begin(node.now_ms, node.mono_ms)
    node.turn.run(node.now_ms, True)
    node.flush()


def test_a_turn_gives_all_consumers_together_one_share() -> None:
    node = QuietBroker()
    queue = filled(node, 100)
    client = node.client()
    client.call("basic.qos", prefetch_count=50)
    for number in range(30):
        client.send(consuming(number, "first"), run=False)
    sizes = [len(client.received)]
    while sizes[-1] < 30 * 50 * len(BODY) and len(sizes) < 2000:
        queue.wake()
        turn(node)
        sizes.append(len(client.received))
    shares = [after - before for before, after in itertools.pairwise(sizes)]
    assert max(shares) < 1.1 * TURN_BYTES
    tags = {fields["consumer_tag"] for name, fields in client.methods() if name == "basic.deliver"}
    assert len(tags) == 30


def test_what_a_consumer_does_not_settle_is_kept_without_contents() -> None:
    node = QuietBroker()
    queue = filled(node, 1000)
    client = node.client()
    consume(client, 0, "first", 1000)
    for _ in range(100):
        queue.wake()
        turn(node)
    ledger = client.session.channels[1].ledger
    assert ledger.open_count == queue.unacked_count == 1000
    kept = [ledger.message(tag) for tag in ledger.open_tags(1000)]
    assert [message.seq_id for message in kept] == list(range(1000))
    assert sum(len(message.content) for message in kept) < KEPT_WHOLE_BYTES + 2 * READER_BYTES
    assert b"".join(client.bodies()) == BODY * 1000
    client.method(1, "basic.ack", delivery_tag=1000, multiple=True)
    turn(node)
    assert ledger.open_count == queue.unacked_count == 0


def reading(node: QuietBroker) -> list[ClientEnd]:
    """Consumers that take all they get, of a stream that has more for them than a turn gives."""
    queue = filled(node, 200)
    clients = [node.client() for _ in range(5)]
    node.worker.hold = True
    for number, client in enumerate(clients):
        consume(client, number, "first", 1000)
    node.worker.hold = False
    queue.wake()
    turn(node)
    return clients


def test_readers_get_less_of_a_turn_while_something_published_is_not_on_disk() -> None:
    """And the small share in each turn all the same."""
    node = QuietBroker()
    publisher = node.client()
    clients = reading(node)
    node.committer.hold = True
    publisher.publish("", "s", b"x", run=False)
    before = sum(len(client.received) for client in clients)
    for _ in range(4):
        turn(node)
        after = sum(len(client.received) for client in clients)
        assert 0 < after - before < 1.1 * BESIDE_PUBLISHERS_BYTES
        before = after
    node.committer.finish()
    node.committer.hold = False
    turn(node)
    turn(node)
    after = sum(len(client.received) for client in clients)
    assert after - before > 2 * BESIDE_PUBLISHERS_BYTES


def test_a_reader_gets_some_of_a_turn_and_then_the_next_one_does() -> None:
    node = QuietBroker()
    clients = reading(node)
    before = [len(client.received) for client in clients]
    turn(node)
    got = [len(client.received) - size for client, size in zip(clients, before, strict=True)]
    assert max(got) < 1.1 * READER_BYTES, got
    assert sum(size > 0 for size in got) >= 4, got


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
        turn(node)
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
    queue.begin_turn()
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
