"""Memory that a burst of messages has left goes back to the system, in small steps."""

from __future__ import annotations

import re
import sys
import threading
import time
from pathlib import Path

import pika

from penstock.node.machine import Heap
from penstock.node.resting_heap import BLOCKS_MAX, LOOKS, SIZES, RestingHeap
from tests.helpers.live_broker import LiveBroker

MIB = 1024 * 1024
PATIENCE_S = 20.0
BODY = b"x" * 32768
COUNT = 2000  # 64 MiB
OFTEN_LOOKING = """
import sys
from penstock.node import resource_monitor
resource_monitor.MEMORY_MS = 1
sys.argv[0] = "penstock"
from penstock.__main__ import main
main()
"""


class CountedHeap(Heap):
    """Has as many gaps of each size as it is told."""

    def __init__(self, gaps: dict[int, int]) -> None:
        super().__init__()
        self.gaps = gaps
        self.rounds = 0
        self.taken: list[int] = []
        self.discarded_bytes = 0
        self.most = 0  # blocks in one call
        self.free_to_go = threading.Event()
        self.free_to_go.set()

    def end(self) -> int:
        self.rounds += 1
        return 1 << 40

    def take_gaps(self, end: int, count: int, size: int) -> list[int]:
        taken = min(count, self.gaps[size])
        self.gaps[size] -= taken
        self.taken += [1] * taken
        self.most = max(self.most, taken)
        return [1] * taken

    def discard(self, blocks: list[int], size: int) -> None:
        self.free_to_go.wait(PATIENCE_S)
        self.discarded_bytes += size * len(blocks)

    def give_back(self, blocks: list[int]) -> None:
        self.most = max(self.most, len(blocks))
        del self.taken[: len(blocks)]


def look(resting: RestingHeap, used_bytes: int, times: int = 1) -> None:
    for _ in range(times):
        resting.look(used_bytes)
        for thread in threading.enumerate():
            if thread.name == "discard":
                thread.join(PATIENCE_S)


def test_all_gaps_go_and_come_back_in_steps() -> None:
    gaps = {SIZES[1]: 2 * BLOCKS_MAX + 7, SIZES[0]: 3}
    heap = CountedHeap(dict(gaps))
    resting = RestingHeap(heap)
    look(resting, 1100 * MIB, 3)
    look(resting, 0, LOOKS - 1)
    assert heap.rounds == 0  # it may come again
    look(resting, 0, 4)
    assert heap.discarded_bytes == sum(size * count for size, count in gaps.items())
    assert len(heap.taken) == 2 * BLOCKS_MAX + 10
    look(resting, 0, 10)
    assert (heap.rounds, heap.taken, heap.most) == (1, [], BLOCKS_MAX)


def test_a_backlog_that_comes_and_goes_keeps_its_memory() -> None:
    heap = CountedHeap(dict.fromkeys(SIZES, 5))
    resting = RestingHeap(heap)
    for _ in range(10):
        look(resting, 500 * MIB)
        look(resting, 0, LOOKS - 1)
    look(resting, 400 * MIB, 10)  # nor is it worth it for a fifth
    assert heap.rounds == 0
    look(resting, 350 * MIB, LOOKS)
    assert heap.rounds == 1


def test_blocks_stay_taken_until_the_system_has_their_pages() -> None:
    heap = CountedHeap(dict.fromkeys(SIZES, 5))
    heap.free_to_go.clear()
    resting = RestingHeap(heap)
    resting.look(100 * MIB)
    for _ in range(2 * LOOKS):
        resting.look(0)
    assert len(heap.taken) == 5
    heap.free_to_go.set()
    look(resting, 0, 4)
    assert (heap.taken, heap.discarded_bytes) == ([], 5 * sum(SIZES))


class OftenLooking(LiveBroker):
    """Looks at its memory each time the loop turns, so that the test need not wait for seconds."""

    def command(self) -> list[str]:
        return [sys.executable, "-c", OFTEN_LOOKING, *super().command()[3:]]

    def resident_bytes(self) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)
        assert found is not None
        return int(found[1]) * 1024


def test_a_drained_burst_leaves_the_process(tmp_path: Path) -> None:
    with OftenLooking(tmp_path) as broker:
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        channel = connection.channel()
        channel.queue_declare("burst")
        channel.queue_declare("rest")
        before = broker.resident_bytes()
        for number in range(COUNT):  # what the queue "rest" keeps lies between the gaps
            channel.basic_publish("", "burst" if number % 100 else "rest", BODY)
        held = channel.queue_declare("burst", passive=True).method.message_count
        assert held == COUNT - COUNT // 100
        assert broker.resident_bytes() - before > 60 * MIB
        channel.queue_purge("burst")
        until = time.monotonic() + PATIENCE_S
        while broker.resident_bytes() - before > 12 * MIB:
            assert time.monotonic() < until, broker.resident_bytes() - before
            connection.process_data_events(0.05)
        connection.close()
