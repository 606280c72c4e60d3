"""``RestingHeap``: what a burst of messages has left in the heap goes back to the system.

A freed message leaves a gap in the C library's heap, which is used again; the resident size of the
process stays what it was at the peak.  Once a second the node gives ``look`` the highest number of
bytes that messages took since the last look.  When that is far below the peak and has been for
``LOOKS`` looks, a round begins: all gaps are taken out of the heap in blocks, a thread hands the
pages of these to the system, and then the heap gets the blocks back.  The loop's thread has the
messages, so its heap has the gaps; those of less than the smallest block are not found.
"""

import threading
from collections import deque
from typing import Final

from penstock.node.machine import Heap

LOOKS: Final = 5
"""A backlog that comes and goes within so many seconds keeps its memory."""
WORTH_BYTES: Final = 16 * 1024 * 1024
SIZES: Final = (64 * 1024, 1024 * 1024)
"""Of blocks, in bytes; a round takes the largest first."""
BLOCKS_MAX: Final = 512
"""That a look takes or gives back, in about one millisecond."""


class RestingHeap:
    """Of the thread that calls it."""

    def __init__(self, heap: Heap) -> None:
        self._heap = heap
        self._used: deque[int] = deque([0], LOOKS)
        self._peak_bytes = 0  # since the last round
        self._end = 0  # of the heap when the round began
        self._sizes: list[int] = []  # that the round is to take yet
        self._blocks: list[int] = []
        self._thread: threading.Thread | None = None

    def look(self, used_bytes: int) -> None:
        """``used_bytes``: of messages, at most since the last look."""
        self._used.append(used_bytes)
        self._peak_bytes = max(self._peak_bytes, used_bytes)
        if self._thread is not None and self._thread.is_alive():
            return
        if not self._blocks and self._is_far_below_peak():
            self._peak_bytes = used_bytes
            self._end = self._heap.end()
            self._sizes = list(SIZES)
        if self._sizes:
            self._take()
        elif self._blocks:
            self._heap.give_back(self._blocks[-BLOCKS_MAX:])
            del self._blocks[-BLOCKS_MAX:]

    def _is_far_below_peak(self) -> bool:
        """By a quarter, so that a long drain has few rounds."""
        return max(self._used) + WORTH_BYTES < self._peak_bytes // 4 * 3

    def _take(self) -> None:
        size = self._sizes[-1]
        blocks = self._heap.take_gaps(self._end, BLOCKS_MAX, size)
        if len(blocks) < BLOCKS_MAX:
            self._sizes.pop()
        self._blocks += blocks
        self._thread = threading.Thread(
            target=self._heap.discard, args=(blocks, size), name="discard", daemon=True
        )
        self._thread.start()
