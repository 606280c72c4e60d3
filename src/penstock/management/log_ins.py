"""Log-ins over HTTP: counted, and a line in the log for each that is refused, up to a bound.

[warning] <connection> HTTP access denied: user 'ann' from 10.0.0.7: Login was refused

Whoever tries passwords would fill the disk with such lines: of those in one minute the first ones
are written, and with the next one how many were not.
"""

import logging
import time
from collections.abc import Callable
from typing import Final

from penstock.broker.access import User
from penstock.management.access import Visitor

LINES_MAX: Final = 20
WINDOW_S: Final = 60.0
NAME_MAX: Final = 255

log = logging.getLogger("penstock.connection")


class LogIns:
    """How often somebody showed a name and a password, and was not let in."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self.total = 0
        self.failed = 0
        self._clock_s = clock_s
        self._window_ends_s = 0.0
        self._lines = 0  # in this window, those that were not written too

    def forget(self) -> None:
        self.total = 0
        self.failed = 0

    def counted(
        self,
        authenticate: Callable[[str, str, bool], User],
        name: str,
        password: str,
        peer_is_loopback: bool,
    ) -> Visitor:
        """Who it is; on the data loop.  Raises AccessRefused."""
        self.total += 1
        self.failed += 1
        visitor = Visitor(authenticate(name, password, peer_is_loopback))
        self.failed -= 1
        return visitor

    def refused(self, name: str, peer: str, why: object) -> None:
        """A line, unless there were many; not on the data loop."""
        now_s = self._clock_s()
        if now_s >= self._window_ends_s:
            if self._lines > LINES_MAX:
                log.warning("HTTP access denied %d times more", self._lines - LINES_MAX)
            self._window_ends_s = now_s + WINDOW_S
            self._lines = 0
        self._lines += 1
        if self._lines <= LINES_MAX:
            text = "HTTP access denied: user '%s' from %s: %s"
            log.warning(text, _on_one_line(name[:NAME_MAX]), peer, _on_one_line(str(why)))


def _on_one_line(text: str) -> str:
    """Visitors choose what they call themselves: no name begins a line of its own."""
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in text
    )
