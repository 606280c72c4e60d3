"""A copy is synchronised: what is fetched, what comes meanwhile, and the bytes that say so."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.backing.variable_queue import VariableQueue
from penstock.cluster.mirrors.backing import MirroredBacking
from penstock.cluster.mirrors.operations import read_parcel
from penstock.cluster.mirrors.replica import Replica
from penstock.cluster.mirrors.sync import Joiner, Syncer
from penstock.cluster.mirrors.sync_codec import (
    CHUNK_HEADER_BYTES,
    SyncAsk,
    encode_question,
    read_chunk,
    read_question,
)
from penstock.core.byte_reader import Malformed
from tests.backing.engine_tools import OpenEngine, limits, message
from tests.cluster.mirror_tools import (
    FIRST,
    NOW_MS,
    TERM,
    Pair,
    engine,
    joined,
    pair_of,
    parcel_of,
    publish,
    set_of,
)
from tests.helpers.sim_files import SimFileSystem


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
    """The former master acknowledged 100 to 109; no mirror heard that, and one became master."""
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
    """The joiner asks for no message that is published, or consumed, while it synchronises."""
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


def asked(pair: Pair) -> Syncer:
    """The master's side, with the first question of the joiner."""
    question = pair.joiner.next_question()
    assert question is not None
    syncer = Syncer(pair.mirrored, 100, 0)
    syncer.ask(question)
    return syncer


def test_a_chunk_waits_for_the_parcel_it_was_read_behind() -> None:
    master = engine()
    publish(master.queues[1], 10)
    pair = pair_of(master, engine())
    syncer = asked(pair)
    parcel = pair.mirrored.take_operations()
    assert parcel is not None, "the master sends a parcel to a mirror that has heard none"
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
    syncer = asked(pair)
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
