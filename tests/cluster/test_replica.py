"""Copies of queues, small stories: priorities, deduplication, terms, gaps, returns."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.backing.deduplication import MessageKeys
from penstock.backing.priorities import PriorityBacking, classic_priorities
from penstock.backing.variable_queue import VariableQueue
from penstock.cluster.mirrors.backing import HELD_MS, SLICE_MESSAGES, MirroredBacking
from penstock.cluster.mirrors.operations import Parcel, read_parcel
from penstock.cluster.mirrors.replica import TERM_SHIFT, Replica, begin_term
from penstock.cluster.mirrors.sync import Joiner, Syncer
from penstock.cluster.mirrors.sync_codec import (
    CHUNK_HEADER_BYTES,
    SyncAsk,
    encode_question,
    read_chunk,
    read_question,
)
from penstock.core.byte_reader import Malformed
from penstock.core.clock_types import MonoMs
from penstock.core.message import PERSISTENT, PRIORITY_SHIFT, REDELIVERED, Message
from penstock.protocols.amqp.codec.header_reader import AmqpHeaderReader
from penstock.protocols.amqp.codec.properties import body_of
from tests.backing.engine_tools import OpenEngine, limits, message
from tests.cluster.mirror_tools import Pair, set_of
from tests.helpers.raw_codec import content_frames
from tests.helpers.sim_files import SimFileSystem

NOW_MS = 1_000_000
TERM = 3
FIRST = 16_384
"""A new queue of a data directory that nobody closed begins there."""


def engine(files: SimFileSystem | None = None, queues: int = 1) -> OpenEngine:
    return OpenEngine(files or SimFileSystem(), {1 + place: 16 for place in range(queues)})


def pair_of(master: OpenEngine, copy: OpenEngine) -> Pair:
    mirrored = MirroredBacking(master.queues[1], {}, ("/", "q"))
    mirrored.begin(TERM, 0)
    return joined(mirrored, copy)


def joined(mirrored: MirroredBacking, copy: OpenEngine) -> Pair:
    replica = Replica(copy.queues[1], copy.engine.journal)
    while replica.prepare():
        pass
    replica.follow(TERM, False)
    return Pair(mirrored, replica, copy)


def publish(queue: VariableQueue, count: int, **kinds: bool) -> list[Message]:
    batch = [message(b"message %d" % place, **kinds) for place in range(count)]
    queue.publish(batch, NOW_MS)
    return batch


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
    whole = len(pair.mirrored.writer())
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


def parcel_of(number: int, term: int = TERM) -> Parcel:
    return Parcel(term, number, [])


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


# -- synchronisation -----------------------------------------------------------------------


def test_a_copy_that_returns_is_sent_what_differs() -> None:
    master, files = engine(), SimFileSystem()
    copy = engine(files)
    publish(master.queues[1], 500)
    pair = pair_of(master, copy)
    assert pair.synchronise().sent_count == 500
    files.kill()
    publish(master.queues[1], 20)
    master.queues[1].ack(master.queues[1].fetch(100, 1 << 20))
    pair.mirrored.take_operations()
    again = joined(pair.mirrored, engine(files))
    syncer = again.synchronise()
    assert syncer.sent_count == 20
    assert set_of(again.replica.backing.parts()[0], NOW_MS) == set_of(master.queues[1], NOW_MS)


@pytest.mark.parametrize("stop", ["clean", "retired"])
def test_what_a_copy_that_has_returned_hears_is_kept(stop: str) -> None:
    """Its numbers go on below where a queue of its own would have gone on after the kill."""

    def small() -> OpenEngine:
        return OpenEngine(files, {1: 16}, limits(journal=9000), journal_file_bytes=4000)

    master, files = engine(), SimFileSystem()
    publish(master.queues[1], 50)
    pair = pair_of(master, small())
    pair.synchronise()
    files.kill()
    again = joined(pair.mirrored, small())
    again.synchronise()
    opened, journal = again.opened, again.opened.engine.journal
    files_until = journal.current.number + (0 if stop == "clean" else 3)
    while journal.files[0].number <= files_until:
        publish(master.queues[1], 50)
        again.tell()
        opened.settle(NOW_MS)
        if stop == "clean":
            opened.close_cleanly()
            break
    files.kill()
    assert set_of(engine(files).queues[1], NOW_MS) == set_of(master.queues[1], NOW_MS)


def test_what_ended_here_untold_is_fetched_again_with_its_segment() -> None:
    """It was the master and acknowledged 100 to 109; nobody heard of it, and another went on."""
    master, files = engine(), SimFileSystem()
    publish(master.queues[1], 500)
    pair = pair_of(master, engine(files))
    pair.synchronise()
    pair.opened.engine.ram.paging_bytes = 8
    pair.opened.settle(NOW_MS)
    pair.replica.backing.parts()[0].drop_some(list(range(FIRST + 100, FIRST + 110)))
    pair.opened.settle(NOW_MS)
    files.kill()
    again = joined(pair.mirrored, engine(files))
    syncer = again.synchronise()
    assert syncer.sent_count == 16, "its segment has 16 places"
    assert set_of(again.replica.backing.parts()[0], NOW_MS) == set_of(master.queues[1], NOW_MS)
    again.opened.commit()
    files.power_cut(random.Random(1))
    assert set_of(engine(files).queues[1], NOW_MS) == set_of(master.queues[1], NOW_MS)


def copy_with_endings(segments: int, size: int = 10) -> tuple[OpenEngine, SimFileSystem]:
    """A master, and the disk of a mirror that acknowledged a message of each segment untold."""
    master, files = engine(), SimFileSystem()
    batch = [message(b"m" * size) for _ in range(16 * segments)]
    master.queues[1].publish(batch, NOW_MS)
    pair = pair_of(master, engine(files))
    pair.synchronise()
    pair.opened.engine.ram.paging_bytes = 8
    pair.opened.settle(NOW_MS)
    pair.replica.backing.parts()[0].drop_some(list(range(FIRST, FIRST + 16 * segments, 16)))
    pair.opened.settle(NOW_MS)
    files.kill()
    return master, files


def test_segments_in_which_something_ended_are_forgotten_in_steps() -> None:
    """A step reads once or gives up one, however many there are; the copy hears nothing then."""
    master, files = copy_with_endings(60)
    opened = engine(files)
    queue = opened.queues[1]
    before = len(files.calls)
    replica = Replica(queue, opened.engine.journal)
    assert files.calls[before:] == []
    replica.follow(TERM, False)
    joiner = Joiner(replica, opened.engine.journal)
    steps = 0
    while not replica.is_ready:
        assert replica.apply(parcel_of(steps + 1))
        assert replica.number == 0
        assert joiner.next_question() is None
        before = len(files.calls)
        there = int(queue.ready_count())
        assert replica.prepare()
        replica.tick(NOW_MS)
        steps += 1
        assert there - queue.ready_count() <= 16
        done = [call.split()[0] for call in files.calls[before:]]
        assert done in (["pread"], ["remove", "sync_dir"]), done
        replica.check()
    assert steps >= 2 * 50
    assert not replica.prepare()
    mirrored = MirroredBacking(master.queues[1], {}, ("/", "q"))
    mirrored.begin(TERM, 0)
    again = Pair(mirrored, replica, opened)
    again.synchronise()
    assert set_of(queue, NOW_MS) == set_of(master.queues[1], NOW_MS)


def test_a_segment_that_cannot_be_read_is_not_one_without_messages() -> None:
    """What ended in it cannot be fetched into a segment that says so: the copy waits."""
    master, files = copy_with_endings(20)
    opened = engine(files)
    queue = opened.queues[1]
    replica = Replica(queue, opened.engine.journal)
    files.fail("pread")
    assert not replica.prepare()
    assert not replica.prepare()
    assert "Input/output error" in queue.why_stopped()
    now_ms = NOW_MS
    for _ in range(20):
        now_ms += 1000
        queue.tick(now_ms)
        while replica.prepare():
            pass
    assert replica.is_ready
    mirrored = MirroredBacking(master.queues[1], {}, ("/", "q"))
    mirrored.begin(TERM, 0)
    replica.follow(TERM, False)
    again = Pair(mirrored, replica, opened)
    again.synchronise()
    again.opened.commit()
    files.power_cut(random.Random(1))
    assert set_of(engine(files).queues[1], NOW_MS) == set_of(master.queues[1], NOW_MS)


def test_a_copy_that_becomes_master_half_way_has_what_it_has_not_forgotten() -> None:
    _, files = copy_with_endings(8)
    opened = engine(files)
    replica = Replica(opened.queues[1], opened.engine.journal)
    queue = opened.queues[1]
    there = int(queue.ready_count())
    for _ in range(7):
        assert replica.prepare()
    replica.promote(TERM + 1)
    queue.check()
    assert len(set_of(queue, NOW_MS)) == queue.ready_count() == there - 3 * 15


def test_consuming_shortens_a_synchronisation() -> None:
    master = engine()
    publish(master.queues[1], 400)
    pair = pair_of(master, engine())
    syncer = Syncer(pair.mirrored, 50, 0)
    chunks = 0
    while not pair.joiner.is_done():
        pair.opened.commit()
        question = pair.joiner.next_question()
        if question is not None:
            syncer.ask(question)
        master.queues[1].ack(master.queues[1].fetch(50, 1 << 20))
        pair.tell()
        chunk = syncer.take_chunk()
        if chunk is not None:
            pair.joiner.take_chunk(chunk)
            chunks += 1
    assert syncer.sent_count <= 250
    assert chunks < 7
    assert set_of(pair.replica.backing.parts()[0], NOW_MS) == {}


def test_a_copy_is_complete_when_all_that_it_lacked_was_consumed() -> None:
    """The last word came with a parcel, and no chunk is to come."""
    master, copy = engine(), engine()
    queue = VariableQueue(master.engine, 2, True, 16)  # its first place is 0
    publish(queue, 30)
    mirrored = MirroredBacking(queue, {}, ("/", "q"))
    mirrored.begin(TERM, 0)
    pair = joined(mirrored, copy)
    syncer = Syncer(mirrored, 10, 0)
    question = pair.joiner.next_question()
    assert question is not None
    syncer.ask(question)
    pair.tell()
    chunk = syncer.take_chunk()
    assert chunk is not None
    pair.joiner.take_chunk(chunk)
    queue.ack(queue.fetch(25, 1 << 20))
    pair.tell()
    copy.commit()
    assert pair.joiner.next_question() is None
    copy.commit()
    assert pair.joiner.is_done()
    assert set_of(pair.replica.backing.parts()[0], NOW_MS) == set_of(queue, NOW_MS)
    pair.replica.check()
    publish(queue, 1)
    pair.tell()
    assert set_of(pair.replica.backing.parts()[0], NOW_MS) == set_of(queue, NOW_MS)


def test_a_cancelled_synchronisation_goes_on_where_it_was() -> None:
    master = engine()
    publish(master.queues[1], 300)
    pair = pair_of(master, engine())
    syncer = Syncer(pair.mirrored, 100, 0)
    question = pair.joiner.next_question()
    assert question is not None
    syncer.ask(question)
    pair.tell()
    chunk = syncer.take_chunk()
    assert chunk is not None
    pair.joiner.take_chunk(chunk)
    pair.opened.commit()
    pair.joiner.next_question()
    pair.joiner.cancel()
    assert syncer.left == 200
    assert syncer.eta_ms(1000) == 2000
    assert pair.synchronise().sent_count == 200
    assert len(set_of(pair.replica.backing.parts()[0], NOW_MS)) == 300


def test_how_far_a_synchronisation_is_counts_every_message_once() -> None:
    """What is published meanwhile is told and not asked for; what is consumed is not either."""
    master = engine()
    queue = master.queues[1]
    publish(queue, 300)
    pair = pair_of(master, engine())
    syncer = Syncer(pair.mirrored, 100, 0)
    seen: list[tuple[int, int]] = []
    while (question := pair.joiner.next_question()) is not None:
        syncer.ask(question)
        pair.tell()
        chunk = syncer.take_chunk()
        assert chunk is not None
        pair.joiner.take_chunk(chunk)
        seen.append((int(syncer.looked_count), int(syncer.left)))
        assert pair.joiner.left == syncer.left
        pair.opened.commit()
        publish(queue, 50)
        if len(seen) == 2:
            queue.ack(queue.fetch(40, 1 << 20))
        pair.tell()
    assert seen[:3] == [(100, 200), (200, 100), (260, 0)]
    assert seen[-1] == (260, 0)


def test_a_chunk_is_bounded_by_bytes_and_by_messages() -> None:
    master = engine()
    master.queues[1].publish([message(b"x" * 300_000) for _ in range(9)], NOW_MS)
    pair = pair_of(master, engine())
    sizes = []
    syncer = Syncer(pair.mirrored, 4096, 0)
    while not pair.joiner.is_done():
        pair.opened.commit()
        question = pair.joiner.next_question()
        if question is not None:
            syncer.ask(question)
            pair.tell()
            chunk = syncer.take_chunk()
            assert chunk is not None
            sizes.append(len(chunk))
            pair.joiner.take_chunk(chunk)
    assert max(sizes) < 1_100_000
    assert len(sizes) == 3


def test_a_chunk_waits_for_the_parcel_it_was_read_behind() -> None:
    master = engine()
    publish(master.queues[1], 10)
    pair = pair_of(master, engine())
    question = pair.joiner.next_question()
    assert question is not None
    syncer = Syncer(pair.mirrored, 100, 0)
    syncer.ask(question)
    parcel = pair.mirrored.take_operations()
    assert parcel is not None, "who has heard nothing is sent something to hear"
    chunk = syncer.take_chunk()
    assert chunk is not None
    pair.joiner.take_chunk(chunk)
    assert set_of(pair.replica.backing.parts()[0], NOW_MS) == {}
    pair.replica.apply(read_parcel(parcel))
    pair.joiner.advance()
    assert len(set_of(pair.replica.backing.parts()[0], NOW_MS)) == 10


# -- bytes of a synchronisation ------------------------------------------------------------


def a_chunk() -> bytes:
    master = engine()
    publish(master.queues[1], 3)
    pair = pair_of(master, engine())
    question = pair.joiner.next_question()
    assert question is not None
    syncer = Syncer(pair.mirrored, 100, 0)
    syncer.ask(question)
    pair.mirrored.take_operations()
    chunk = syncer.take_chunk()
    assert chunk is not None
    return chunk


def a_question() -> bytes:
    return encode_question(SyncAsk(1, 2, 3, 4, 500, [(5, 6), (10, 40)]))


def test_a_question_is_read() -> None:
    question = read_question(a_question())
    assert (question.term, question.number, question.part) == (1, 2, 3)
    assert (question.low, question.upto) == (4, 500)
    assert question.have == [(5, 6), (10, 40)]


@given(seed=st.integers(0, 2**32))
def test_noise_is_refused_or_read(seed: int) -> None:
    rng = random.Random(seed)
    for whole, read in ((a_question(), read_question), (A_CHUNK, read_chunk)):
        data = bytearray(whole)
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(data))
            if rng.random() < 0.6:
                data[at] ^= 1 << rng.randrange(8)
            else:
                del data[at:]
                data += rng.randbytes(rng.randint(1, 5))
        try:
            read(bytes(data))  # type: ignore[operator]
        except Malformed:
            continue


A_CHUNK = a_chunk()


@pytest.mark.parametrize("size", range(CHUNK_HEADER_BYTES))
def test_no_beginning_of_a_header_is_a_chunk(size: int) -> None:
    with pytest.raises(Malformed):
        read_chunk(A_CHUNK[:size])


def test_a_chunk_that_answers_a_cancelled_question_is_dropped() -> None:
    copy = engine()
    replica = Replica(copy.queues[1], copy.engine.journal)
    replica.follow(TERM, False)
    joiner = Joiner(replica, copy.engine.journal)
    assert joiner.next_question() is not None
    other = bytearray(A_CHUNK)
    other[27:35] = (77).to_bytes(8, "big")
    joiner.take_chunk(bytes(other))
    assert joiner.is_waiting()
    replica.apply(parcel_of(1))
    joiner.take_chunk(A_CHUNK)
    assert not joiner.is_waiting()
    assert len(set_of(copy.queues[1], NOW_MS)) == 3
