"""``DiskRoom``: keeps the reserve of the data directory, and gives it up where a full disk must not
be in the way (``storage/common/reserve.py`` says what it is for).

    the journal grows ─────────► the reserve grows; if it cannot, the gate is closed (admission.py)
    a change of definitions ───► a piece for it, at once; nothing left: the broker waits for space
    a start on a full disk ────► all of it, before anything is opened
"""

import logging
import shutil
import time
from collections.abc import Callable
from typing import Final

from penstock.core.clock_types import MonoMs
from penstock.runtime.disk.worker import RETRY_MS
from penstock.storage.common.files import FileSystem
from penstock.storage.common.reserve import Reserve, wanted_bytes

PIECE_BYTES: Final = 1024 * 1024
STEP_BYTES: Final = 16 * 1024 * 1024
"""The reserve grows by so much at a time, so that the loop does not stand still."""

logger = logging.getLogger("penstock")


class DiskRoom:
    """See the head of this file; a change without room fails, until ``wait_while`` is called."""

    def __init__(self, files: FileSystem, directory: str) -> None:
        self._waits: Callable[[], bool] = lambda: False
        self._directory = directory
        self._reserve = Reserve(files, directory)
        self._look_at_ms = MonoMs(0)
        if self._reserve.held_bytes > shutil.disk_usage(directory).free:
            logger.warning(
                "the disk of %s is nearly full: the start uses the reserve of %d bytes",
                directory,
                self._reserve.held_bytes,
            )
            self._reserve.shrink(0)

    def wait_while(self, condition: Callable[[], bool]) -> None:
        """While it holds, a change waits for room."""
        self._waits = condition

    def look(self, now_ms: MonoMs, journal_bytes: int, journal_file_bytes: int) -> bool:
        """Is the reserve as large as it should be?  Asked again twice a second if not."""
        wanted = int(wanted_bytes(journal_bytes, journal_file_bytes))
        if self._reserve.held_bytes >= wanted:
            if self._reserve.held_bytes > wanted + 2 * journal_file_bytes:
                self._reserve.shrink(wanted)
            return True
        if now_ms < self._look_at_ms:
            return False
        while self._reserve.held_bytes < wanted:
            if not self._reserve.grow(min(wanted, self._reserve.held_bytes + STEP_BYTES)):
                self._look_at_ms = MonoMs(now_ms + RETRY_MS)
                return False
        return True

    def make_room(self) -> bool:
        """For a change of the definitions that found none; False = there is none to be had."""
        if self._reserve.shrink(max(0, self._reserve.held_bytes - PIECE_BYTES)):
            return True
        if not self._waits():
            return False
        logger.warning("no space for definitions on the disk of %s: waiting", self._directory)
        time.sleep(RETRY_MS / 1000)
        return True
