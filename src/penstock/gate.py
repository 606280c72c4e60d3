"""``Gate``: which connections are let in, by address, number and rate, before anything is read.

    listener, address ─► admit ─► "" or the reason: counted, and a line in the log within bounds

One for all listeners of a node; several threads use it.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable
from threading import Lock
from typing import Final

from penstock.core.events.line_limit import LineLimit
from penstock.settings.entry import AddressRules, network_of
from penstock.settings.listener_table import PEER
from penstock.settings.settings import Settings

REASONS: Final = {
    "address": "its address may not use this listener",
    "address_connections": "its address has as many connections as it may",
    "address_rate": "its address opens too many connections in a second",
    "rate": "too many connections are opened in a second",
    "descriptors": "few descriptors are left, or too many that have not logged in",
}

logger: Final = logging.getLogger("penstock.connection")


class Gate:
    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self.counts: dict[str, int] = dict.fromkeys(REASONS, 0)
        self._clock = clock
        self._lock = Lock()
        self._open: Counter[str] = Counter()  # connections by address
        self._second = 0.0  # when the one began in which these came:
        self._came: Counter[str] = Counter()
        self._lines = LineLimit()
        self.renew(settings)

    def renew(self, settings: Settings) -> None:
        """The settings were read again; those that are in stay."""
        self._rules = AddressRules(settings.address_rules)
        self._most_of_address = settings.connection_max_per_address
        self._rate = settings.connection_rate_per_s
        self._rate_of_address = settings.connection_rate_per_address_per_s

    def admit(self, protocol: str, address: str, is_proxy: bool = False) -> str:
        """Why it is not let in; "" = it is, and ``left`` has to be called once.

        ``is_proxy``: the listener's clients come through proxies.
        """
        key = network_of(address)
        with self._lock:
            reason = self._why_not(protocol, address, key, is_proxy)
            if not reason:
                self._open[key] += 1
                return ""
        self.refused(reason, protocol, address)
        return reason

    def is_allowed(self, protocol: str, address: str) -> bool:
        """The same by address alone, once a proxy has said which it is; counted if it is not."""
        if self._rules.allow(protocol, address):
            return True
        self.refused("address", protocol, address)
        return False

    def left(self, address: str) -> None:
        """A connection that was let in is over."""
        key = network_of(address)
        with self._lock:
            self._open[key] -= 1
            if self._open[key] <= 0:
                del self._open[key]

    def refused(self, reason: str, protocol: str, address: str) -> None:
        """Count it, and say so."""
        with self._lock:
            self.counts[reason] += 1
            if not self._lines.allows((reason, address), self._clock()):
                return
        logger.warning("%s connection from %s refused: %s", protocol, address, REASONS[reason])

    def _why_not(self, protocol: str, address: str, key: str, is_proxy: bool) -> str:
        allow = self._rules.allow_proxy if is_proxy else self._rules.allow
        if not allow(protocol, address):
            return "address"
        if protocol == PEER:
            return ""
        if 0 < self._most_of_address <= self._open[key]:
            return "address_connections"
        now_s = self._clock()
        if now_s - self._second >= 1:
            self._second = now_s
            self._came.clear()
        if 0 < self._rate_of_address <= self._came[key]:
            return "address_rate"
        if 0 < self._rate <= self._came.total():
            return "rate"
        if self._rate or self._rate_of_address:
            self._came[key] += 1
        return ""
