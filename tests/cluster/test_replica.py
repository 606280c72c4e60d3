"""Copies of queues, small stories: priorities, deduplication, terms, gaps, returns."""

from __future__ import annotations

from penstock.backing.deduplication import MessageKeys
from penstock.backing.priorities import PriorityBacking, classic_priorities
from penstock.cluster.mirrors.backing import (
    HELD_MS,
    ROUND_BYTES_MAX,
    SLICE_MESSAGES,
    MirroredBacking,
)
from penstock.cluster.mirrors.operations import read_parcel
from penstock.cluster.mirrors.replica import TERM_SHIFT, Replica, begin_term
from penstock.core.clock_types import MonoMs
from penstock.core.message import PERSISTENT, PRIORITY_SHIFT, REDELIVERED, Message
from penstock.protocols.amqp.codec.header_reader import AmqpHeaderReader
from penstock.protocols.amqp.codec.properties import body_of
from tests.backing.engine_tools import OpenEngine, message
from tests.cluster.mirror_tools import (
    FIRST,
    NOW_MS,
    TERM,
    Pair,
    engine,
    pair_of,
    parcel_of,
    publish,
    set_of,
)
from tests.helpers.raw_codec import content_frames
from tests.helpers.sim_files import SimFileSystem

# -- where a copy rests --------------------------------------------------------------------


def test_contents_of_a_copy_leave_memory_when_they_rest_and_are_read_by_its_clients() -> None:
    opened, other = engine(), engine()
    pair = pair_of(opened, other)
    pair.synchronise()
    queue, copy = opened.queues[1], other.queues[1]

    def tell(first: int, count: int) -> None:
        queue.publish([message(b"%d " % n * 200) for n in range(first, first + count)], NOW_MS)
        pair.tell()
        other.settle(NOW_MS)

    for first in (0, 100):  # from q4, then from q1
        tell(first, 100)
        before = copy.tiers.ram_bytes
        copy.flush_safe(1000)  # as when the journal retires a file
        copy.check()
        assert copy.tiers.ram_bytes < before // 2
    assert copy.tiers.trimmed_count == 200
    queue.ack(queue.fetch(50, 1 << 20))
    pair.tell()
    other.settle(NOW_MS)
    copy.check()
    assert copy.ready_count() == 150
    assert other.engine.disk_reads == 0, "what ends is not read, nor what follows"
    tell(200, 30)
    pair.replica.promote(TERM + 1)
    got: list[bytes] = []
    while len(got) < 180:
        got += [one.content for one in copy.fetch(1000, 1 << 30)]
        other.run_jobs()
        copy.absorb()
        copy.check()
    assert got == [b"%d " % n * 200 for n in range(50, 230)]


# -- what a mirror is told -----------------------------------------------------------------


def test_nothing_is_noted_while_nobody_mirrors() -> None:
    opened = engine()
    mirrored = MirroredBacking(opened.queues[1], {}, ("/", "q"))
    publish(opened.queues[1], 3)
    assert mirrored.take_operations() is None
    mirrored.begin(TERM, 0)
    publish(opened.queues[1], 1)
    mirrored.end()
    publish(opened.queues[1], 1)
    assert mirrored.take_operations() is None
    mirrored.check()


def test_a_turn_is_one_parcel_and_a_purge_of_what_rests_is_one_range() -> None:
    opened = engine()
    queue = opened.queues[1]
    mirrored = MirroredBacking(queue, {}, ("/", "q"))
    mirrored.begin(TERM, 0)
    publish(queue, 300)
    first = mirrored.take_operations()
    assert first is not None
    queue.set_mode(True)
    opened.engine.ram.paging_bytes = 8
    opened.settle(NOW_MS)
    queue.purge()
    second = mirrored.take_operations()
    assert second is not None
    parcel = read_parcel(second)
    assert (parcel.term, parcel.number) == (TERM, 2)
    assert [operation.ranges for operation in parcel.operations] == [[(FIRST, FIRST + 300)]]


def test_what_came_and_ended_within_a_parcel_is_not_told() -> None:
    """The parcel has only its end; of a slice of which some messages live it has all messages."""
    opened, other = engine(), engine()
    pair = pair_of(opened, other)
    pair.synchronise()
    queue = opened.queues[1]
    publish(queue, 2 * int(SLICE_MESSAGES))
    whole = pair.mirrored.parcel().size()
    queue.ack(queue.fetch(int(SLICE_MESSAGES) + 1, 1 << 20))
    parcel = pair.mirrored.take_operations()
    assert parcel is not None
    assert whole // 3 < len(parcel) < 2 * whole // 3
    told = read_parcel(parcel).operations
    assert [len(one.messages) for one in told] == [int(SLICE_MESSAGES), 0]
    assert told[1].ranges == [(FIRST, FIRST + int(SLICE_MESSAGES) + 1)]
    assert pair.replica.apply(read_parcel(parcel))
    assert set_of(other.queues[1], NOW_MS) == set_of(queue, NOW_MS)
    publish(queue, 3)
    queue.ack(queue.fetch(1000, 1 << 20))
    publish(queue, 1)
    pair.tell()
    assert set_of(other.queues[1], NOW_MS) == set_of(queue, NOW_MS)
    pair.mirrored.check()


def test_a_parcel_is_held_for_disks_for_a_moment_only() -> None:
    """A copy may need what is held to find that it is complete, and publishers wait for that."""
    opened = engine()
    mirrored = MirroredBacking(opened.queues[1], {}, ("/", "q"))
    mirrored.begin(TERM, 0)

    def may_tell(mono_ms: int, *, is_under_way: bool = False) -> bool:
        return mirrored.may_tell(MonoMs(mono_ms), is_under_way=is_under_way, awaits_disks=True)

    publish(opened.queues[1], 1)
    assert [may_tell(at_ms) for at_ms in (5000, 5000 + HELD_MS - 1)] == [False, False]
    assert may_tell(5000 + HELD_MS)
    assert not may_tell(5000 + HELD_MS, is_under_way=True), "as long as it goes round"
    assert mirrored.take_operations() is not None
    publish(opened.queues[1], 1)
    assert not may_tell(9000), "each is held anew"


def test_a_large_parcel_does_not_wait_for_another_that_goes_round() -> None:
    opened = engine()
    mirrored = MirroredBacking(opened.queues[1], {}, ("/", "q"))
    mirrored.begin(TERM, 0)

    def may_tell(*, awaits_disks: bool) -> bool:
        return mirrored.may_tell(MonoMs(1), is_under_way=True, awaits_disks=awaits_disks)

    publish(opened.queues[1], 1)
    assert not may_tell(awaits_disks=False)
    while mirrored.parcel().size() <= ROUND_BYTES_MAX:
        publish(opened.queues[1], 100)
    assert may_tell(awaits_disks=False)


def test_a_large_parcel_waits_for_disks_only_where_messages_end() -> None:
    """Those that end meanwhile need not be told; where none ends a copy has it at once."""
    opened = engine()
    queue = opened.queues[1]
    mirrored = MirroredBacking(queue, {}, ("/", "q"))
    mirrored.begin(TERM, 0)

    def may_tell() -> bool:
        return mirrored.may_tell(MonoMs(1), is_under_way=False, awaits_disks=True)

    def publish_much() -> None:
        while mirrored.parcel().size() <= ROUND_BYTES_MAX:
            publish(queue, 100)

    publish_much()
    assert may_tell()
    queue.ack(queue.fetch(1, 1 << 20))
    assert not may_tell(), "in this parcel"
    mirrored.take_operations()
    publish_much()
    assert not may_tell(), "in the last one"
    mirrored.take_operations()
    publish_much()
    assert may_tell()


def test_transient_messages_are_mirrored_too() -> None:
    pair = pair_of(engine(), engine())
    pair.synchronise()
    publish(pair.mirrored.parts[0], 5, persistent=False)
    pair.tell()
    assert len(set_of(pair.replica.backing.parts()[0], NOW_MS)) == 5


# -- all kinds of backings -----------------------------------------------------------------


def keyed(number: int) -> bytes:
    headers = {"x-deduplication-header": f"key {number}"}
    return content_frames(1, b"%d" % number, {"headers": headers})


def number_of(message: Message) -> int:
    return int(body_of(message.content))


def test_priorities_and_keys_are_found_again_by_who_is_promoted() -> None:
    def backing(opened: OpenEngine) -> PriorityBacking:
        parts = list(opened.queues.values())
        return classic_priorities(parts, "lowest", MessageKeys(parts, AmqpHeaderReader()))

    master, copy = engine(queues=4), engine(queues=4)
    mirrored = MirroredBacking(backing(master), {}, ("/", "q"))
    mirrored.begin(TERM, 0)
    replica = Replica(backing(copy), copy.engine.journal)
    replica.follow(TERM, False)
    pair = Pair(mirrored, replica, copy)

    def some(start: int, end: int) -> list[Message]:
        return [
            Message(keyed(n), b"\0\0", PERSISTENT | (n % 4) << PRIORITY_SHIFT, 0)
            for n in range(start, end)
        ]

    mirrored.backing.publish(some(0, 8), NOW_MS)
    pair.tell()
    pair.synchronise(batch=2)
    mirrored.backing.publish(some(8, 16), NOW_MS)
    taken = mirrored.backing.fetch(3, 1 << 20)
    mirrored.backing.ack(taken[:1])
    pair.tell()
    replica.check()
    assert replica.is_complete()
    replica.promote(TERM + 1)
    promoted = replica.backing
    promoted.check()
    promoted.publish(some(0, 16), NOW_MS)  # all but the acknowledged one are known
    found = promoted.fetch(100, 1 << 20)
    order = [number_of(one) for one in found]
    acknowledged = number_of(taken[0])
    old = [n for n in range(16) if n != acknowledged]
    new = [acknowledged]
    assert sorted(order) == sorted(old + new)
    assert order == sorted(order, key=lambda n: (-(n % 4), n in new, n))
    assert all(bool(one.flags & REDELIVERED) == (number_of(one) in old) for one in found)


# -- terms and gaps ------------------------------------------------------------------------


def test_k5_numbers_of_a_term_begin_far_from_those_of_the_one_before() -> None:
    pair = pair_of(engine(), engine())
    pair.synchronise()
    publish(pair.mirrored.parts[0], 5)
    pair.tell()
    pair.replica.promote(TERM + 1)
    queue = pair.replica.backing.parts()[0]
    (one,) = publish(queue, 1)
    assert one.seq_id == (TERM + 1) << TERM_SHIFT
    pair.opened.settle(NOW_MS)
    queue.check()
    assert [int(m.seq_id) for m in queue.fetch(9, 1 << 20)] == [
        *range(FIRST, FIRST + 5),
        one.seq_id,
    ]


def test_a_node_that_came_back_begins_a_term_with_all_it_has() -> None:
    files = SimFileSystem()
    opened = engine(files)
    publish(opened.queues[1], 5)
    opened.queues[1].ack(opened.queues[1].fetch(2, 1 << 20))
    opened.commit()
    files.kill()
    again = engine(files)
    begin_term(again.queues[1], TERM)
    assert sorted(set_of(again.queues[1], NOW_MS)) == [FIRST + 2, FIRST + 3, FIRST + 4]
    assert again.queues[1].records.next_seq_id == TERM << TERM_SHIFT


def test_who_misses_a_parcel_is_lost() -> None:
    replica = Replica(engine().queues[1], engine().engine.journal)
    replica.follow(TERM, False)
    assert replica.apply(parcel_of(7)), "it may come in the middle of a term"
    assert replica.apply(parcel_of(8))
    assert replica.apply(parcel_of(8)), "once more is no harm"
    assert replica.apply(parcel_of(99, TERM - 1)), "nor a master that is none any more"
    assert not replica.apply(parcel_of(10))
    assert replica.is_lost


def test_a_survivor_goes_on_but_not_under_a_master_that_came_back() -> None:
    for heard_all in (True, False):
        pair = pair_of(engine(), engine())
        pair.synchronise()
        pair.replica.follow(TERM + 1, heard_all)
        assert pair.replica.is_lost != heard_all
        assert pair.replica.is_complete()
        assert pair.replica.apply(parcel_of(1, TERM + 1)) == heard_all


def test_a_parcel_is_durable_when_the_journal_is() -> None:
    pair = pair_of(engine(), engine())
    pair.synchronise()
    before = pair.replica.durable_number()
    publish(pair.mirrored.parts[0], 5)
    pair.tell()
    assert pair.replica.number == before + 1
    assert pair.replica.durable_number() == before
    assert not pair.replica.is_durable()
    pair.opened.commit()
    assert pair.replica.durable_number() == before + 1
