"""``RamQueue`` against the promise of every backing, and what is its own affair."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import settings

from penstock.backing.ram_queue import RamQueue
from penstock.core.message import REDELIVERED, Message
from penstock.storage.message_log import MessageLog, RecoveredQueue
from tests.backing.backing_suite import ADDRESS, BackingMachine


class DurableRamQueue(BackingMachine):
    def make(self, log: MessageLog | None, queue_id: int) -> Any:
        return RamQueue(log, queue_id)

    def recover(self, backing: Any, found: RecoveredQueue) -> None:
        backing.recover(found.messages, found.next_seq_id)


class TransientRamQueue(DurableRamQueue):
    durable = False


for machine in (DurableRamQueue, TransientRamQueue):
    machine.TestCase.settings = settings(
        max_examples=settings().max_examples, stateful_step_count=40, deadline=None
    )
TestDurable = DurableRamQueue.TestCase
TestTransient = TransientRamQueue.TestCase


def filled(count: int, size: int = 10) -> RamQueue:
    queue = RamQueue(None, 0)
    queue.publish([Message(b"x" * size, ADDRESS, 0, 0) for _ in range(count)], 1)
    return queue


def seq_ids(messages: list[Message]) -> list[int]:
    return [int(message.seq_id) for message in messages]


def test_what_was_not_handed_out_stays_behind_what_comes_back_late() -> None:
    """Unfetched messages belong to the run they came from, or order is lost.

    0 and 5 are out; 1, 2 and 3 came back.  Those three are fetched, only 1 is handed out; now
    5 comes back.  It was published after 2 and 3.
    """
    queue = filled(8)
    first = queue.fetch(6, 10**6)
    queue.requeue(first[1:4])
    fetched = queue.fetch(3, 10**6)
    assert seq_ids(fetched) == [1, 2, 3]
    queue.unfetch(fetched[1:])
    queue.requeue([first[5]])
    queue.check()
    order = []
    while found := queue.fetch(100, 10**6):
        order += seq_ids(found)
    assert order == [2, 3, 5, 6, 7]


def test_unfetched_messages_are_not_marked() -> None:
    queue = filled(3)
    queue.unfetch(queue.fetch(3, 10**6))
    assert not any(message.flags & REDELIVERED for message in queue.fetch(3, 10**6))


@pytest.mark.parametrize("count", [100, 5000])
def test_a_taken_message_is_let_go(count: int) -> None:
    """The dead part of a run must not keep the bodies: they may be a hundred megabytes each."""
    queue = filled(count)
    watched = queue.fetch(count // 2, 10**9)
    queue.ack(watched)
    free = [Message(b"", ADDRESS, 0, 0) for _ in watched]
    assert references(watched) == references(free)


def references(messages: list[Message]) -> list[int]:
    return [sys.getrefcount(message) for message in messages]


def test_the_ends_cost_the_same_however_long_the_queue_is() -> None:
    """Taking and giving back at the head must not copy the rest of the queue."""
    queue = filled(200_000)
    calls = 2_000
    for _ in range(calls):
        queue.unfetch(queue.fetch(10, 10**6))
    # Copying 200,000 references 2,000 times would take seconds; and nothing may move.
    assert seq_ids(queue.fetch(2, 10**6)) == [0, 1]
