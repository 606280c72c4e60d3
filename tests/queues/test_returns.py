"""What comes back to a queue with leases: its bytes, its time, its place, and after its end."""

from __future__ import annotations

from penstock.core.message import Message
from penstock.queues.consumers import Consumer, OutputWindow, SharedWindow
from penstock.queues.leases import TWIN, Leases
from penstock.queues.limits import QueueLimits
from tests.helpers.engines import transient_backing
from tests.helpers.queues import local_queue
from tests.helpers.raw_codec import content_frames

NOW_MS = 1_000_000
TIMEOUT_MS = 1000


def message(body: bytes = b"12345678") -> Message:
    return Message(content_frames(1, body, {}), b"", 0, 0)


class Held:
    """A queue of three messages, in flight with one consumer."""

    def __init__(self, limits: QueueLimits | None = None, *, count: int = 3) -> None:
        self.queue = local_queue(transient_backing())
        assert self.queue.use_leases()
        if limits is not None:
            self.queue.set_limits(limits)
        assert self.queue.leases is not None
        self.leases: Leases = self.queue.leases
        self.consumer = Consumer("c", None, OutputWindow(), SharedWindow(), False, 0, False, {})
        self.queue.add_consumer(self.consumer)
        self.owner = self.leases.join(self.consumer)
        self.queue.publish([message() for _ in range(count)], NOW_MS)

    def take(self, now_ms: int = NOW_MS) -> list[Message]:
        taken: list[Message] = []
        for delivery in self.queue.deliver(now_ms):
            for one in delivery.messages:
                key = b"%016x" % one.seq_id
                self.leases.grant(self.owner, one, key, now_ms, TIMEOUT_MS)
                taken.append(one)
        return taken

    def give_back(self, messages: list[Message], delay_ms: int, now_ms: int) -> None:
        for one in messages:
            self.leases.take(self.owner, b"%016x" % one.seq_id)
        self.queue.give_back(self.consumer, messages, delay_ms, now_ms)


def test_an_id_that_is_taken_twice_gets_another_each_time() -> None:
    held = Held(count=4)
    messages = held.queue.backing.fetch(4, 1 << 20)
    first = b"%016x" % int(TWIN | messages[2].seq_id)
    keys = [
        held.leases.grant(held.owner, one, key, NOW_MS, TIMEOUT_MS)
        for one, key in zip(messages, [first, b"a" * 16, b"a" * 16, b"a" * 16], strict=True)
    ]
    assert len(set(keys)) == 4
    held.leases.check()
    assert len(held.leases.expired(NOW_MS + TIMEOUT_MS, 100)) == 4


def test_bytes_of_bodies_are_right_whatever_comes_back() -> None:
    held = Held(QueueLimits(max_length_bytes=1000))
    for round_ in range(20):
        now_ms = NOW_MS + 10 * round_
        held.give_back(held.take(now_ms), 5, now_ms)
        held.queue.release_due(now_ms + 5)
    assert held.queue.backing.ready_count() == 3
    for _ in range(121):
        held.queue.publish([message()], NOW_MS + 1000)
    assert held.queue.backing.ready_count() == 124, "992 bytes fit"
    assert held.queue.dropped_count() == 0


def test_bytes_of_bodies_are_right_when_a_consumer_leaves() -> None:
    held = Held(QueueLimits(max_length_bytes=24))
    held.take()
    held.queue.remove_consumer(held.consumer)
    held.queue.give_back_all(held.owner)
    held.queue.publish([message()], NOW_MS)
    assert held.queue.backing.ready_count() == 3
    assert held.queue.dropped_count() == 1


def test_time_to_live_of_a_deferred_message_begins_when_it_is_due() -> None:
    held = Held(count=0)
    held.queue.remove_consumer(held.consumer)
    held.queue.set_limits(QueueLimits(message_ttl_ms=500))
    held.queue.publish_deferred([message()], NOW_MS + 1000, NOW_MS)
    held.queue.release_due(NOW_MS + 1000)
    assert held.queue.backing.ready_count() == 1
    held.queue.expire(NOW_MS + 1499)
    assert held.queue.backing.ready_count() == 1
    held.queue.expire(NOW_MS + 1501)
    assert held.queue.backing.ready_count() == 0


def test_what_is_due_comes_behind_what_a_reader_of_ranges_has_passed() -> None:
    held = Held(count=0)
    queue = held.queue
    queue.remove_consumer(held.consumer)
    queue.publish_deferred([message(b"late")], NOW_MS + 100, NOW_MS)
    queue.publish([message(), message()], NOW_MS)
    queue.ranges.open()
    assert [one.seq_id for one in queue.backing.reads.read_range(0, 9, 9, 999)] == [1, 2]
    queue.release_due(NOW_MS + 100)
    assert queue.ranges.drop_below(3) == 2
    (late,) = queue.backing.reads.read_range(3, 9, 9, 999)
    assert late.seq_id == 3


def test_what_is_given_back_to_a_deleted_queue_is_gone() -> None:
    held = Held()
    one, two, three = held.take()
    held.queue.end()
    held.give_back([one], 0, NOW_MS)
    held.give_back([two], 50, NOW_MS)
    held.queue.give_back_all(held.owner)
    assert held.queue.unacked_count == 0
    assert held.consumer.outstanding == 0
    assert held.queue.backing.ready_count() == 0
    assert held.queue.deferred_count() == 0
    assert three.seq_id == 2
