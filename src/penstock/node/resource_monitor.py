"""``ResourceMonitor``: looks at the process and its disk, tells the alarms and the log.

    resident size, every second ─► alarms     free disk, 0.1 to 10 s ─► alarms, forecast

Called by the data loop between two turns, which come four times a second when nothing happens
and as often as there is work otherwise.  So it looks ten times a second only while clients are
at work, which is the only time at which the broker itself eats ten times a second's worth of
disk.  ``statvfs`` takes microseconds on a local disk, and on one that hangs the broker stops
anyway, since small groups are written by the same thread; a thread of its own would buy nothing.

The interval is RabbitMQ's: the time in which half of what is left above the limit would be
gone at 250 MB a second, from 100 ms to 10 s; 10 s while the alarm is set.  Here the alarm looks
again after a second, because publishers wait for it.  A new limit is a reason to look at once: the
old interval was that of the old limit.  When the disk cannot be asked it is tried
``RETRIES`` times more, ``RETRY_MS`` apart; then no publisher is held for the disk any more, and
the log says so.

A resident size over the limit is not told at once: first the C library is asked to give free
memory back, in a thread because that may take a while, and at most every ``TRIM_MS``.
"""

import gc
import logging
import threading
from collections.abc import Callable
from typing import Final

from penstock.broker.rules.admission import DISK, MEMORY, Admission
from penstock.broker.rules.alarms import UNKNOWN
from penstock.core.capacity import DiskLimit, MemoryLimit
from penstock.core.clock_types import MonoMs
from penstock.node.machine import ASSUMED_BYTES, Heap, free_space, resident_bytes
from penstock.node.resting_heap import RestingHeap

MEMORY_MS: Final = 1000
TRIM_MS: Final = 5000
DISK_LEAST_MS: Final = 100
DISK_MOST_MS: Final = 10_000
DISK_ALARM_MS: Final = 1000
BYTES_PER_MS: Final = 250_000
RETRY_MS: Final = 120_000
RETRIES: Final = 10
_MIB: Final = 1 << 20

logger = logging.getLogger("penstock.alarm")


class ResourceMonitor:
    """One node's."""

    def __init__(
        self,
        admission: Admission,
        node_name: str,
        data_dir: str,
        resident: Callable[[], int] = resident_bytes,
        space: Callable[[str], tuple[int, int]] = free_space,
        heap: Heap | None = None,
    ) -> None:
        self.failures = 0  # to ask the disk, in a row
        self._admission = admission
        self._alarms = admission.alarms
        self._node_name = node_name
        self._data_dir = data_dir
        self._resident = resident
        self._alarms.measure_with(resident)
        self._space = space
        self._heap = heap or Heap()
        self._resting = RestingHeap(self._heap)
        self._memory_at_ms = MonoMs(0)
        self._disk_at_ms = MonoMs(0)
        self._trimmed_at_ms = MonoMs(-TRIM_MS)
        self._told = (False, False)
        self._limits = (-1, -1)

    def set_limits(
        self, total_bytes: int, memory: MemoryLimit, paging_ratio: float, disk: DiskLimit
    ) -> None:
        """As configured; ``total_bytes`` 0 = not known."""
        if total_bytes == 0:
            total_bytes = ASSUMED_BYTES
            logger.warning(
                "unknown total memory size; assuming memory size is %d MiB (%d bytes)",
                total_bytes // _MIB,
                total_bytes,
            )
        self._alarms.set_machine(total_bytes, paging_ratio)
        self._alarms.set_memory_limit(memory)
        self._alarms.set_disk_limit(disk)

    def begin(self, now_ms: MonoMs, messages_bytes: int) -> None:
        """The node is up and nothing was published yet: what it takes now is the base."""
        gc.collect()
        self._heap.trim()
        self._alarms.set_base(self._resident() - messages_bytes)
        self._memory_at_ms = self._disk_at_ms = now_ms
        self.look(now_ms)

    def look(self, now_ms: MonoMs) -> None:
        """What is due; costs a comparison or two when nothing is."""
        if now_ms >= self._memory_at_ms:
            self._memory_at_ms = MonoMs(now_ms + MEMORY_MS)
            self._look_at_memory(now_ms)
        alarms = self._alarms
        is_new_limit = alarms.disk_limit_bytes != self._limits[1]
        if now_ms >= self._disk_at_ms or (is_new_limit and self.failures == 0):
            self._disk_at_ms = MonoMs(now_ms + self._look_at_disk(now_ms))
        if self._limits != (alarms.memory_limit_bytes, alarms.disk_limit_bytes):
            self._tell_limits()
        if self._told != (alarms.memory, alarms.disk):
            self._tell_alarms()

    def _look_at_memory(self, now_ms: MonoMs) -> None:
        self._alarms.note_memory(now_ms)
        resident = self._resident()
        over = resident > self._alarms.memory_limit_bytes
        if over and self._heap.can_trim() and now_ms - self._trimmed_at_ms >= TRIM_MS:
            self._trimmed_at_ms = now_ms
            threading.Thread(target=self._heap.trim, name="trim", daemon=True).start()
            return
        self._alarms.look_at_resident(resident)
        if self._heap.can_trim():
            self._resting.look(int(self._alarms.take_most_bytes()))

    def _look_at_disk(self, now_ms: MonoMs) -> int:
        """Milliseconds until the next look."""
        try:
            free, size = self._space(self._data_dir)
        except OSError as error:
            return self._cannot_look(error)
        self.failures = 0
        self._alarms.forecast.note(now_ms, free)
        self._alarms.look_at_disk(free, size)
        if self._alarms.disk:
            return DISK_ALARM_MS
        margin = free - self._alarms.disk_limit_bytes
        return min(max(2 * margin // BYTES_PER_MS, DISK_LEAST_MS), DISK_MOST_MS)

    def _cannot_look(self, error: OSError) -> int:
        self.failures += 1
        self._alarms.look_at_disk(UNKNOWN, self._alarms.disk_bytes)
        if self.failures <= RETRIES:
            logger.warning(
                "cannot read the free space of %s: %s; trying again in %d s",
                self._data_dir,
                error.strerror,
                RETRY_MS // 1000,
            )
            return RETRY_MS
        logger.warning(
            "cannot read the free space of %s: %s; free disk space monitoring is off",
            self._data_dir,
            error.strerror,
        )
        return 1 << 62

    # -- the log ---------------------------------------------------------------------------

    def _tell_limits(self) -> None:
        alarms = self._alarms
        memory, disk = alarms.memory_limit_bytes, alarms.disk_limit_bytes
        if memory != self._limits[0]:
            logger.info(
                "Memory high watermark set to %d MiB (%d bytes) of %d MiB (%d bytes) total",
                memory // _MIB,
                memory,
                alarms.total_bytes // _MIB,
                alarms.total_bytes,
            )
            if 0 < memory <= alarms.base_bytes:
                logger.warning(
                    "the broker alone takes %d bytes: nothing is left for messages",
                    alarms.base_bytes,
                )
        if disk != self._limits[1]:
            logger.info("Disk free limit set to %dMB", disk // 1_000_000)
        self._limits = (memory, disk)

    def _tell_alarms(self) -> None:
        alarms = self._alarms
        memory, disk = alarms.memory, alarms.disk
        if memory != self._told[0]:
            logger.info(
                "vm_memory_high_watermark %s. Memory used:%d allowed:%d",
                "set" if memory else "clear",
                max(alarms.used_bytes(), alarms.resident_bytes),
                alarms.memory_limit_bytes,
            )
            tell_alarm(self._admission, MEMORY, self._node_name, is_set=memory)
        if disk != self._told[1]:
            logger.info(
                "Free disk space is %s. Free bytes: %d. Limit: %d",
                "insufficient" if disk else "sufficient",
                alarms.disk_free_bytes,
                alarms.disk_limit_bytes,
            )
            tell_alarm(self._admission, DISK, self._node_name, is_set=disk)
        self._told = (memory, disk)


def tell_alarm(admission: Admission, resource: str, node: str, *, is_set: bool) -> None:
    """RabbitMQ's lines, on every node of a cluster: operators have rules that look for them."""
    if is_set:
        logger.warning(
            "%s resource limit alarm set on node '%s'.\n\n%s\n%s\n%s",
            resource,
            node,
            "*" * 58,
            "*** Publishers will be blocked until this alarm clears ***",
            "*" * 58,
        )
        return
    logger.warning("%s resource limit alarm cleared on node '%s'", resource, node)
    if not admission.is_short_of(resource):
        logger.warning("%s resource limit alarm cleared across the cluster", resource)
