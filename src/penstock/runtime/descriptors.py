"""Descriptors: the last of them are for files of our own, however many clients connect.

The kernel gives the lowest number that is free, so a number tells how many are in use, be it by
AMQP, by HTTP or by the engine: a connection whose number is in the reserve is refused at once.

Connections without a log-in may have a part of the descriptors, and those of one address (of IPv6,
one network of 64 bits) a part of that: they do not keep out clients that log in.  They are counted
anew when there seem to be too many.
"""

import logging
import resource
from collections import Counter
from collections.abc import Mapping
from typing import Final

from penstock.core.clock_types import MonoMs
from penstock.runtime.connection import Connection
from penstock.settings.entry import network_of

DESCRIPTORS_RESERVED: Final = 64
"""The engine opens files in several threads; it must never wait for a connection to close."""
STRANGER_PARTS: Final = 2
ADDRESS_PARTS: Final = 4
"""Of the descriptors for clients: what all may have that have not logged in, and one address."""
CONNECTIONS_PER_MS: Final = 100
"""To count many costs time: that is done the less often the more there are."""
SAY_AGAIN_MS: Final = 60_000

logger: Final = logging.getLogger("penstock.loop")


class Descriptors:
    """Of this process, under its limit at the start."""

    def __init__(self) -> None:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._end = clients_end(soft)
        self._limit = soft
        self._said_ms = MonoMs(-SAY_AGAIN_MS)
        self._counted_ms = MonoMs(0)
        self._strangers: Counter[str] = Counter()  # by address, when last counted, and since

    def has_room(
        self,
        descriptor: int,
        address: str,
        connections: Mapping[int, Connection],
        now_ms: MonoMs,
    ) -> bool:
        """For one from ``address`` that was given this number; ``connections``: all there are."""
        if descriptor >= self._end:
            self._say(now_ms, f"few of {self._limit} descriptors are left, for the engine")
            return False
        address = network_of(address)
        pause_ms = len(connections) // CONNECTIONS_PER_MS
        if self._is_crowded(address) and now_ms - self._counted_ms >= pause_ms:
            self._counted_ms = now_ms
            strangers = (one for one in connections.values() if one.is_stranger())
            self._strangers = Counter(network_of(one.peer[0]) for one in strangers)
        if self._is_crowded(address):
            here, there = self._strangers[address], self._strangers.total()
            self._say(now_ms, f"{here} of {address}, {there} of all, have not logged in")
            return False
        self._strangers[address] += 1
        return True

    def _is_crowded(self, address: str) -> bool:
        strangers = self._strangers
        if strangers[address] >= self._end // ADDRESS_PARTS:
            return True
        return strangers.total() >= self._end // STRANGER_PARTS

    def _say(self, now_ms: MonoMs, why: str) -> None:
        if now_ms - self._said_ms >= SAY_AGAIN_MS:
            self._said_ms = now_ms
            logger.warning("a connection is refused: %s", why)


def clients_end(soft: int) -> int:
    """Where the reserve begins; of a limit that is very low, half."""
    if soft == resource.RLIM_INFINITY:
        return 2**31
    return max(soft // 2, soft - DESCRIPTORS_RESERVED)
