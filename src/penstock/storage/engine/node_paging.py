"""``NodePaging``: which queue pages next, while the memory for messages is short.

Over ``ram.paging_bytes`` the memory monitor (memory_monitor.py) finds out what each queue may keep,
and those that hold more write to segments what is over it, the furthest over first.  Nothing more
is paged while much waits for the disk: it is in memory all the same.  A target lasts until a fifth
of ``ram.paging_bytes`` is free: between two slices there is always a little room, and memory is
short all the same.
"""

from typing import final

from mypy_extensions import i64

from penstock.core.clock_types import WallMs
from penstock.core.events.book import EventBook
from penstock.storage.engine.memory_monitor import MemoryMonitor, QueueMemory, holdings_of
from penstock.storage.engine.ram import RamAccount
from penstock.storage.engine.resting_queue import INFINITE, RestingQueue


@final
class NodePaging:
    """``slices`` were paged since the start, by id ``paged`` queues since memory became short."""

    def __init__(
        self, ram: RamAccount, queues: dict[int, RestingQueue], monitor: MemoryMonitor
    ) -> None:
        self.slices: i64 = 0
        self._ram: RamAccount = ram
        self._queues: dict[int, RestingQueue] = queues
        self._monitor: MemoryMonitor = monitor
        self._over: list[QueueMemory] = []  # over their targets, the furthest last
        self.paged: dict[int, RestingQueue] = {}

    def page(self, now_ms: WallMs, quota: i64, events: EventBook) -> bool:
        """A slice of about ``quota`` messages; True = there is more, now."""
        if not self._ram.must_page():
            self._over = []  # the targets last
            return False
        if self._ram.disk_is_busy():
            return False
        if self._monitor.is_due(now_ms, len(self._over) > 0, len(self._queues)):
            self._set_targets(now_ms, events)
        if not self._over:
            return False  # all that takes memory waits for the disk
        over = self._over.pop()
        queue = over.queue
        if int(queue.queue_id) in self._queues:
            self.slices += 1
            before = queue.ram_bytes()
            if queue.page(over.target_bytes, quota):
                self._over.append(over)
            queue.note_paged(before - queue.ram_bytes())
        return len(self._over) > 0

    def _set_targets(self, now_ms: WallMs, events: EventBook) -> None:
        """The queues may keep nine tenths of what starts paging.

        What waits for the disk leaves memory by itself: no queue has to page in its place.
        """
        paging = self._ram.paging_bytes
        kept = max(paging - paging // 10 - self._ram.stream_bytes, paging // 2)
        holdings = holdings_of(list(self._queues.values()))
        self._over = self._monitor.look(holdings, kept, paging, now_ms)
        for over in self._over:
            queue = over.queue
            if int(queue.queue_id) not in self.paged:
                self.paged[int(queue.queue_id)] = queue
                queue.note_paging(now_ms)
                held, target = int(over.held_bytes), int(over.target_bytes)
                if queue.reader is not None:  # else the queue has no name here
                    events.note("paging_begun", (queue.reader, None, held, target))
        for holding in holdings:
            if holding.target_bytes != INFINITE and int(holding.queue.queue_id) in self.paged:
                holding.queue.set_target(holding.target_bytes)

    def end(self, events: EventBook) -> None:
        """Memory is not short any more, or there is no room to page to."""
        for queue in self.paged.values():
            queue.set_target(INFINITE)
            lasted_ms = int(events.now_ms - queue.paging_since_ms)
            held, paged = int(queue.ram_bytes()), int(queue.paged_bytes)
            if queue.reader is not None:
                events.note("paging_ended", (queue.reader, None, held, paged, lasted_ms))
        self.paged = {}
        self._over = []
        self._monitor.rest()
