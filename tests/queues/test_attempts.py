"""Attempts are known after everything: paging, journal files that went, kills and clean stops."""

from __future__ import annotations

import random

import pytest

from penstock.core.clock_types import WallMs
from penstock.core.message import Message, attempts_of
from penstock.queues.consumers import Consumer, OutputWindow, SharedWindow
from penstock.queues.limits import QueueLimits
from tests.backing.engine_tools import OpenEngine, limits, message
from tests.helpers.queues import local_queue, new_context
from tests.helpers.sim_files import SimFileSystem

QUEUE_ID = 7
ENDINGS = ["none", "paged", "clean", "kill", "power", "retired"]


class Node:
    """One queue on a disk; it counts at return (``x-delivery-limit``) or at delivery (leases)."""

    def __init__(self, files: SimFileSystem, *, leased: bool) -> None:
        self.files = files
        self.opened = OpenEngine(
            files,
            {QUEUE_ID: 16},
            limits(embed=200, journal=1, paging=1 << 40),
            journal_file_bytes=600,
            store_file_bytes=3000,
        )
        self.leased = leased
        context = new_context()
        self.deaths = context.deaths
        self.queue = local_queue(self.opened.queues[QUEUE_ID], context)
        if leased:
            assert self.queue.use_leases()
        else:
            self.queue.set_limits(QueueLimits(delivery_limit=100))
        self.consumer = Consumer("c", "c", OutputWindow(), SharedWindow(), False, 100, False, {})
        self.queue.add_consumer(self.consumer)

    def take(self) -> list[Message]:
        """All there is, waiting for the disk."""
        taken: list[Message] = []
        while self.queue.backing.ready_count() > 0:
            self.queue.backing.await_head()
            for delivery in self.queue.deliver(1):
                taken += delivery.messages
        return taken

    def try_in_vain(self) -> None:
        """All go out and come back."""
        taken = self.take()
        assert taken
        self.queue.requeue({self.consumer: taken}, True, WallMs(0))

    def page_out(self) -> None:
        self.opened.engine.ram.paging_bytes = 8
        for _ in range(20):
            self.opened.work(1)
            self.opened.commit()
            self.opened.run_jobs()
        assert self.queue.backing.tiers.delta_count > 0 or self.queue.backing.ready_count() < 65
        self.opened.engine.ram.paging_bytes = 1 << 40

    def retire(self) -> None:
        """The journal goes on to other files, and lets go of those from before."""
        before = self.opened.engine.journal.current.number
        while self.opened.engine.journal.oldest().number <= before:
            self.queue.publish([message(b"x" * 100)], 1)
            self.opened.settle(1)

    def end(self, how: str) -> Node:
        if how == "clean":
            self.opened.close_cleanly()
        elif how == "kill":
            self.opened.commit()
            self.files.kill()
        elif how == "power":
            self.opened.commit()
            self.files.power_cut(random.Random(3))
        elif how == "retired":
            self.retire()
            self.files.power_cut(random.Random(3))
        elif how == "paged":
            self.page_out()
            return self
        else:
            return self
        return Node(self.files, leased=self.leased)


@pytest.mark.parametrize("leased", [False, True], ids=["limited", "leased"])
@pytest.mark.parametrize("rests", [False, True], ids=["young", "rested"])
@pytest.mark.parametrize("first", ENDINGS)
@pytest.mark.parametrize("second", ENDINGS)
def test_no_attempt_is_forgotten(first: str, second: str, *, rests: bool, leased: bool) -> None:
    node = Node(SimFileSystem(), leased=leased)
    batch = [message(b"%d:" % i + b"y" * (300 * (i % 2))) for i in range(300 if rests else 5)]
    node.queue.publish(batch, 1)
    node.opened.commit()
    node.consumer.prefetch = 1000
    if rests:
        node.page_out()
    for ending in (first, second):
        node.consumer.prefetch = 1000
        node.try_in_vain()
        node = node.end(ending)
        node.queue.backing.check()
    node.consumer.prefetch = 100_000
    counted = {attempts_of(one) for one in node.take() if one.content[:1] != b"x"}
    assert counted == {3 if leased else 2}


@pytest.mark.parametrize("persistent", [True, False])
def test_a_limit_holds_for_what_was_paged_out(persistent: bool) -> None:
    """Each time all of it rests between two tries."""
    node = Node(SimFileSystem(), leased=False)
    node.queue.set_limits(QueueLimits(delivery_limit=2))
    node.consumer.prefetch = 1000
    node.queue.publish([message(b"%d" % i, persistent=persistent) for i in range(200)], 1)
    for left in (200, 200, 0):
        node.page_out()
        node.try_in_vain()
        assert node.queue.backing.ready_count() == left
