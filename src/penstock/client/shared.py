"""Shared memory of the processes of a load run: counters in one page, and room to send.

The memory is an anonymous file whose descriptor every process inherits; each slot is
written by one process only, eight bytes at a time.  Slot 0 is the stop sign.

Room is an event counter per publisher (Linux eventfd): consumers add what they have
consumed, turn by turn to each publisher; a publisher takes all there is.
"""

import mmap
import os
from typing import Final, Self

SLOT_BYTES: Final = 8
STOP_NOTHING: Final = 0
STOP_PUBLISHING: Final = 1
STOP_ALL: Final = 2


class Counters:
    """One slot per worker, and the stop sign."""

    def __init__(self, descriptor: int, workers: int) -> None:
        self.descriptor = descriptor
        self._memory = mmap.mmap(descriptor, (1 + workers) * SLOT_BYTES)
        self._slots = memoryview(self._memory).cast("q")

    @classmethod
    def create(cls, workers: int) -> Self:
        descriptor = os.memfd_create("penstock-bench")
        os.ftruncate(descriptor, (1 + workers) * SLOT_BYTES)
        return cls(descriptor, workers)

    @property
    def stop(self) -> int:
        return self._slots[0]

    def ask_to_stop(self, what: int) -> None:
        """``STOP_PUBLISHING`` or ``STOP_ALL``; what was asked before stays asked."""
        self._slots[0] = max(self._slots[0], what)

    def put(self, worker: int, count: int) -> None:
        self._slots[1 + worker] = count

    def total(self, first: int, count: int) -> int:
        return sum(self._slots[1 + first : 1 + first + count])

    def close(self) -> None:
        self._slots.release()
        self._memory.close()
        os.close(self.descriptor)


class SendWindow:
    """How much one publisher may still send before consumers have caught up."""

    def __init__(self, descriptor: int, initial: int) -> None:
        self.descriptor = descriptor
        self.left = initial

    @staticmethod
    def create() -> int:
        return os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def spend(self, count: int) -> None:
        self.left -= count

    def take(self) -> None:
        """Fetch what consumers have given since."""
        try:
            self.left += os.eventfd_read(self.descriptor)
        except BlockingIOError:
            return


class SendWindowFeed:
    """The consumers' side: deals what was consumed out to the publishers in turn."""

    def __init__(self, descriptors: list[int]) -> None:
        self._descriptors = descriptors
        self._turn = 0

    def give(self, count: int) -> None:
        if self._descriptors and count > 0:
            self._turn = (self._turn + 1) % len(self._descriptors)
            os.eventfd_write(self._descriptors[self._turn], count)
