"""Descriptors: the last of them are for files of our own, whatever guests have the others.

The kernel gives the lowest number that is free, so a number tells how many are in use, be it by
AMQP, by HTTP or by the engine: a guest whose number is in the reserve is turned away at the door.
"""

import logging
import resource
from typing import Final

DESCRIPTORS_RESERVED: Final = 64
"""The engine opens files in several threads; it must never wait for a guest to leave."""
SAY_AGAIN_MS: Final = 60_000

logger: Final = logging.getLogger("penstock.loop")


class Descriptors:
    """Of this process, under its limit at the start."""

    def __init__(self) -> None:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._end = guests_end(soft)
        self._limit = soft
        self._said_ms = -SAY_AGAIN_MS

    def has_room(self, descriptor: int, now_ms: int) -> bool:
        """For the guest who was given this number."""
        if descriptor < self._end:
            return True
        if not 0 <= now_ms - self._said_ms < SAY_AGAIN_MS:
            self._said_ms = now_ms
            text = "a connection is refused: few of %d descriptors are left, for the engine"
            logger.warning(text, self._limit)
        return False


def guests_end(soft: int) -> int:
    """Where the reserve begins; of a limit that is very low, half."""
    if soft == resource.RLIM_INFINITY:
        return 2**31
    return max(soft // 2, soft - DESCRIPTORS_RESERVED)
