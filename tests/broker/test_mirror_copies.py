"""Copies of mirrored queues on disk: hidden, found again, promoted and demoted, over any stop."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.broker.administration import Administration
from penstock.broker.budgets import memory_bytes
from penstock.broker.rules.policies import Policy
from penstock.broker.topology.mirror_copies import PREFIX, Copy
from penstock.broker.vhost_removal import VhostRemoval
from penstock.cluster.mirrors.replica import TERM_SHIFT, Replica, begin_term
from penstock.core.message import REDELIVERED
from penstock.queues.queue import Queue
from penstock.storage.definitions.range_readers import RangeReaders
from tests.broker.copy_tools import (
    KEYED,
    LIFE,
    PLAIN,
    PRIORITIES,
    SEGMENT_ENTRIES,
    STOPS,
    TERM,
    Node,
    all_of,
    declare,
    demoted,
    enter,
    part_of,
    parts_of,
    promoted,
    some,
    synchronised,
    take,
)


@pytest.fixture
def rng() -> random.Random:
    seed = int(os.environ.get("PENSTOCK_SEED", str(random.randrange(2**32))))
    print(f"seed {seed}")
    return random.Random(seed)


@pytest.fixture
def node(tmp_path: Path, rng: random.Random) -> Iterator[Node]:
    one = Node(tmp_path, rng)
    yield one
    one.close()


@pytest.fixture
def master(tmp_path: Path, rng: random.Random) -> Iterator[Node]:
    one = Node(tmp_path, rng, "master")
    yield one
    one.close()


# -- hidden --------------------------------------------------------------------------------


@pytest.mark.parametrize("how", STOPS)
def test_a_copy_is_found_again_and_seen_by_nobody(node: Node, master: Node, how: str) -> None:
    queue = declare(master, "q", PRIORITIES)
    queue.publish(some(40), master.now_ms)
    queue.publish_deferred(some(8, first=40), master.now_ms + 60_000, master.now_ms)
    pair = synchronised(master, node, "q", PRIORITIES)
    expected = all_of(queue.backing, 0)
    assert sum(map(len, expected)) == 48
    assert all_of(pair.replica.backing, 0) == expected
    node.run()
    for _ in range(2):
        node.stop(how)
        assert node.vhost.queues == {}
        assert node.vhost.queue_ids == {}
        copy = node.vhost.copies.find("q", LIFE)
        assert copy is not None
        assert copy.recovered
        assert copy.arguments == PRIORITIES
        replica = node.replica(copy)
        replica.check()
        assert all_of(copy.backing, 0) == expected
    assert node.vhost.copies.find("q", "another") is None


# -- another role --------------------------------------------------------------------------


def bindings(node: Node) -> list[str]:
    return sorted(
        one.routing_key for exchange in node.vhost.exchanges.values() for one in exchange.bindings()
    )


def kept_bindings(node: Node) -> list[str]:
    return sorted(one.routing_key for one in node.quiet.definitions.load().bindings)


@pytest.mark.parametrize("how", [None, *STOPS])
@pytest.mark.parametrize(
    "arguments", [PLAIN, PRIORITIES, KEYED], ids=["plain", "priorities", "keys"]
)
def test_there_and_back(
    node: Node, master: Node, how: str | None, arguments: dict[str, object]
) -> None:
    """A mirror becomes master, serves, and is a mirror again; stopped between every two steps."""
    queue = declare(master, "q", arguments)
    queue.publish(some(40), master.now_ms)
    due_ms = master.now_ms + 60_000
    queue.publish_deferred(some(8, first=40), due_ms, master.now_ms)
    synchronised(master, node, "q", arguments)
    expected = all_of(queue.backing, 0)
    node.vhost.declare_exchange("x", "direct", True, False, False, {})
    node.vhost.bind_queue(node.enter_remote("q", arguments), "x", "k", {})
    node.run()
    assert node.records() == [PREFIX + "q"]
    assert kept_bindings(node) == []
    if how is not None:
        node.stop(how)
        assert bindings(node) == []
        node.vhost.bind_queue(node.enter_remote("q", arguments), "x", "k", {})

    queue = promoted(node, "q", TERM + 1)
    for _ in range(2):
        assert node.records() == ["q"]
        assert node.vhost.copies.copies == {}
        assert list(node.vhost.queue_ids) == ["q"]
        assert bindings(node) == kept_bindings(node) == ["k"]
        node.quiet.check()
        assert all_of(queue.backing, 0) == expected
        if how is not None:
            node.stop(how)
            queue = node.vhost.queues["q"]
            begin_term(queue.backing, TERM + 1)
    queue.publish(some(4, first=100), node.now_ms)
    reader, handed = take(node, queue, 10)
    assert all(one.flags & REDELIVERED for one in handed if one.seq_id < (TERM + 1) << TERM_SHIFT)
    queue.settle(reader, handed[:5])
    expected = all_of(queue.backing, 0)
    assert sum(map(len, expected)) == 47
    node.run()
    if how is not None:
        node.stop(how)
        queue = node.vhost.queues["q"]
        assert all_of(queue.backing, 0) == expected
        reader, handed = take(node, queue, 10)

    copy = demoted(node, "q")
    assert not copy.recovered
    for _ in range(2):
        assert node.records() == [PREFIX + "q"]
        assert node.vhost.queue_ids == {}
        assert kept_bindings(node) == []
        node.vhost.copies.check()
        assert all_of(copy.backing, 0) == expected
        if how is None:
            replica = Replica(copy.backing, node.quiet.engine.journal, is_whole=True)
            assert replica.is_complete()
            replica.check()
        else:
            node.stop(how)
            copy = node.vhost.copies.copies["q"]
    queue.settle(reader, handed[5:])
    assert all_of(copy.backing, 0) == expected
    node.vhost.copies.check()
    node.vhost.copies.drop("q")
    node.run()
    assert node.records() == []


# -- what a queue has under way when its master goes -----------------------------------------


def lone_queue(node: Node, arguments: dict[str, object], count: int = 40) -> Queue:
    queue = declare(node, "q", arguments)
    queue.publish(some(count), node.now_ms)
    node.run()
    return queue


def whole(node: Node, copy: Copy) -> Replica:
    """What was handed out is back, and nothing of it is lost or goes on by itself."""
    node.vhost.copies.check()
    replica = Replica(copy.backing, node.quiet.engine.journal, is_whole=True)
    replica.tick(node.now_ms)
    replica.check()
    return replica


def test_what_was_dying_is_in_the_copy_and_its_letters_end_nothing_there(node: Node) -> None:
    declare(node, "graves", PLAIN)
    arguments: dict[str, object] = {
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "graves",
    }
    queue = lone_queue(node, arguments)
    expected = all_of(queue.backing, 0)
    reader, handed = take(node, queue, 10)
    node.quiet.committer.hold = True
    queue.reject(reader, handed[:5])
    node.run()  # buried, and nothing of it is on disk
    queue.reject(reader, handed[5:])  # not even buried
    copy = demoted(node, "q")
    node.quiet.committer.hold = False
    node.quiet.committer.finish()
    node.run()
    assert node.vhost.queues["graves"].backing.ready_count() == 5
    whole(node, copy)
    assert all_of(copy.backing, 0) == expected


def test_what_a_sweep_or_a_person_holds_is_ready_again(node: Node) -> None:
    queue = lone_queue(node, PLAIN, 100)
    expected = all_of(queue.backing, 0)
    queue.backing.set_mode(True)
    node.run()
    node.run()
    part = part_of(queue.backing)
    assert part.tiers.delta_count > 0
    in_memory = int(part.ready_count() - part.tiers.delta_count)
    held = queue.take_chosen(0, [1, 40, 41, 70, 99])
    assert len(held) == 5
    assert int(queue.backing.ready_count()) == 95, in_memory
    copy = demoted(node, "q")
    whole(node, copy)
    assert int(part.ready_count()) == 100
    assert all_of(copy.backing, 0) == expected


def test_what_a_channel_has_in_flight_or_moves_to_its_tail_is_back(node: Node) -> None:
    queue = lone_queue(node, PLAIN)
    assert queue.use_leases()
    reader, handed = take(node, queue, 10)
    leases = queue.leases
    assert leases is not None
    owner = leases.join(reader)
    for one in handed[:8]:
        leases.grant(owner, one, b"%016x" % int(one.seq_id), node.now_ms, 60_000)
    node.quiet.committer.hold = True
    queue.publish_deferred(some(3, first=40), node.now_ms + 100, node.now_ms)
    queue._deferred.release_to_tail()  # somebody may have read by position
    node.run()
    part = part_of(queue.backing)
    assert part.records.next_seq_id == 46  # three of them have moved, each with one record
    expected = all_of(queue.backing, node.now_ms)
    assert sum(map(len, expected)) == 43
    copy = demoted(node, "q")
    assert reader.outstanding == 2  # those without a deadline
    queue.settle(reader, handed[8:])
    assert reader.outstanding == 0
    assert leases.count() == 0
    node.quiet.committer.hold = False
    node.quiet.committer.finish()
    node.run()
    whole(node, copy)
    assert int(part.ready_count()) == 43
    assert all_of(copy.backing, node.now_ms) == expected


def test_a_reader_of_ranges_is_fenced_off(node: Node) -> None:
    queue = lone_queue(node, PLAIN)
    queue.range_lease.begin(node.now_ms + 1_000_000)
    token = queue.ranges.open()
    readers = RangeReaders(node.quiet.definitions)
    readers.put_token("/", "q", LIFE, token)
    readers.put_start("/", "q", LIFE, "latest", 5)
    node.run()
    demoted(node, "q")
    assert not queue.ranges.is_current(token)
    assert list(readers.tokens()) == []
    assert readers.start("/", "q", LIFE) is None
    again = promoted(node, "q", TERM)
    assert not again.ranges.is_current(token)
    assert again.ranges.open() > token


def test_a_queue_that_the_start_found_is_a_copy_as_any_other(node: Node) -> None:
    """Times to live had its head read; and segments in which something ended are given up."""
    queue = declare(node, "q", PLAIN)
    messages = some(40)
    for one in messages:
        one.expires_at_ms = node.now_ms + 3_600_000
    queue.publish(messages, node.now_ms)
    node.stop("clean")  # they rest in segments
    queue = node.vhost.queues["q"]
    reader, handed = take(node, queue, 20)
    queue.settle(reader, handed[:2])
    node.run()
    node.stop("kill")
    queue = node.vhost.queues["q"]
    assert part_of(queue.backing).ahead.is_reading()
    copy = node.vhost.copies.from_queue(queue)
    assert copy.recovered
    node.enter_remote("q", PLAIN)
    replica = node.replica(copy)
    for _ in range(3):
        node.run()
        replica.tick(node.now_ms)
        replica.check()
    assert part_of(copy.backing).records.fault == ""
    places = sorted(all_of(copy.backing, 0)[0])
    assert places == [*range(16, 40)]  # the two are in the first segment


# -- going -----------------------------------------------------------------------------------


def test_a_copy_goes_with_its_queue_and_with_no_other(node: Node) -> None:
    for name in ("a", "b"):
        node.open_copy(name, PRIORITIES)
    node.vhost.delete_queue(node.enter_remote("a", PRIORITIES, "life of another"))
    node.run()
    assert node.records() == [PREFIX + "a", PREFIX + "b"]
    node.vhost.delete_queue(node.enter_remote("a", PRIORITIES))
    node.run()
    assert node.records() == [PREFIX + "b"]
    assert len(node.quiet.engine.queues) == 4
    node.stop("kill")
    assert len(node.quiet.engine.queues) == 4


def test_at_a_start_copies_of_no_queue_go(node: Node) -> None:
    for name in ("here", "gone", "anew"):
        node.open_copy(name, PLAIN)
    node.run()
    node.stop("clean")
    gone = node.vhost.copies.drop_all_but({"here": LIFE, "anew": "life9", "other": LIFE})
    assert sorted(gone) == ["anew", "gone"]
    node.run()
    assert node.records() == [PREFIX + "here"]
    node.stop("power cut")
    assert list(node.vhost.copies.copies) == ["here"]


def test_a_new_one_takes_the_place_of_what_was_there(node: Node) -> None:
    first = node.vhost.copies.open("q", LIFE, False, PLAIN)
    second = node.vhost.copies.open("q", "life2", True, PRIORITIES)
    assert second.queue_id > first.queue_id
    node.run()
    node.stop("kill")
    assert node.vhost.copies.find("q", LIFE) is None
    copy = node.vhost.copies.find("q", "life2")
    assert copy is not None
    assert (copy.queue_id, copy.auto_delete) == (second.queue_id, True)
    assert copy.arguments == PRIORITIES


def test_a_virtual_host_takes_its_copies_with_it(node: Node) -> None:
    broker = node.quiet.broker
    for vhost in broker.vhosts.values():
        for number in range(70):
            vhost.copies.open(f"q{number}", LIFE, False, PLAIN)
    removal = VhostRemoval(broker, broker.vhosts["other"], lambda _name, _count: False)
    for _ in range(100):
        if removal.step()[0]:
            break
    node.run()
    assert len(node.quiet.engine.queues) == 70
    node.stop("clean")
    assert list(node.quiet.broker.vhosts) == ["/"]
    assert len(node.vhost.copies.copies) == 70


# -- a stop in the middle --------------------------------------------------------------------


@pytest.mark.parametrize("how", ["kill", "power cut"])
@pytest.mark.parametrize("committed", [False, True])
def test_a_change_of_role_is_there_or_not(
    node: Node, master: Node, how: str, committed: bool
) -> None:
    """Definitions and journal go to the disk one after the other, and either may be missing."""
    queue = declare(master, "q", PRIORITIES)
    queue.publish(some(40), master.now_ms)
    synchronised(master, node, "q", PRIORITIES)
    expected = all_of(queue.backing, 0)
    node.enter_remote("q", PRIORITIES)
    node.run()
    begin_term(node.vhost.copies.copies["q"].backing, TERM + 1)
    enter(node, node.vhost.copies.to_queue("q", node.now_ms))
    if committed:
        node.quiet.definitions.commit()
    node.stop(how)
    assert node.records() == (["q"] if committed else [PREFIX + "q"])
    there = {**node.vhost.queues, **node.vhost.copies.copies}
    assert list(there) == ["q"]
    assert all_of(there["q"].backing, 0) == expected
    if not committed:
        return
    queue = node.vhost.queues["q"]
    begin_term(queue.backing, TERM + 1)
    queue.publish(some(4, first=50), node.now_ms)
    assert (
        min(part.records.next_seq_id for part in parts_of(queue.backing)) > TERM + 1 << TERM_SHIFT
    )
    expected = all_of(queue.backing, 0)
    node.run()
    node.vhost.copies.from_queue(queue)
    node.stop(how)
    assert node.records() == ["q"]
    assert all_of(node.vhost.queues["q"].backing, 0) == expected


# -- as any durable queue --------------------------------------------------------------------


def test_memory_and_disk_of_copies_are_the_virtual_hosts(node: Node, master: Node) -> None:
    queue = declare(master, "q", PLAIN)
    queue.publish(some(100), master.now_ms)
    synchronised(master, node, "q", PLAIN)
    copy = node.vhost.copies.copies["q"]
    assert memory_bytes(copy.backing) > 0
    for more, is_over in ((0, True), (10_000, False)):
        node.vhost.budget.set("max-memory-bytes", int(memory_bytes(copy.backing)) - 1 + more)
        node.quiet.broker.budgets.tick(node.now_ms)
        assert ("/" in node.quiet.broker.admission.vhost_reasons) == is_over


def test_a_lazy_copy_rests_on_disk_and_follows_the_policy(node: Node, master: Node) -> None:
    queue = declare(master, "q", PLAIN)
    queue.publish(some(100), master.now_ms)
    pair = synchronised(master, node, "q", PLAIN)
    part = part_of(pair.replica.backing)
    node.run()
    assert not part.tiers.lazy
    assert part.tiers.delta_count == 0
    admin = Administration(node.quiet.broker, SEGMENT_ENTRIES)
    admin.put_policy("/", Policy("p", "q", "all", 0, {"queue-mode": "lazy"}))
    for _ in range(3):
        node.run()
    assert part.tiers.lazy
    resting = int(part.tiers.delta_count)
    assert resting > 0
    queue.publish(some(50, first=100), master.now_ms)
    pair.tell()
    node.run()
    assert part.tiers.delta_count == resting + 50
    node.stop("kill")
    assert part_of(node.vhost.copies.copies["q"].backing).tiers.lazy
    assert all_of(node.vhost.copies.copies["q"].backing, 0) == all_of(queue.backing, 0)
    node.vhost.copies.drop("q")
    assert part_of(node.vhost.copies.open("q", LIFE, False, PLAIN).backing).tiers.lazy


def test_a_copy_that_pages_is_nobodys_event(node: Node, master: Node) -> None:
    queue = declare(master, "q", PLAIN)
    queue.publish(some(200), master.now_ms)
    pair = synchronised(master, node, "q", PLAIN)
    part = part_of(pair.replica.backing)
    noted: list[str] = []
    node.quiet.engine.ram.paging_bytes = 100
    for _ in range(5):
        node.run()
        noted += [event.kind for event in node.quiet.broker.events.take()]
    assert part.tiers.delta_count > 0
    assert part.paged_bytes > 0
    node.quiet.engine.ram.paging_bytes = 1 << 40
    node.run()
    assert not [kind for kind in noted if kind.startswith("paging")]
