"""``LineLimit``: lines of the log that strangers cause, bounded.

A machine that reaches a listener causes a line with each connection that is refused, so of one
address in a minute a few are lines and the others are not.  All addresses together have a bound,
too: a client of IPv6 has as many addresses as it likes.  Log-ins, which are events as well, have
``broker.rules.bounded_events``.
"""

from collections import Counter
from collections.abc import Hashable
from typing import Final

WINDOW_S: Final = 60.0
LINES_MAX: Final = 1000


class LineLimit:
    """``most``: lines of one key, mostly an address, in a window of time; ``all_max``: of all."""

    def __init__(self, most: int = 1, all_max: int = LINES_MAX, window_s: float = WINDOW_S) -> None:
        self._most = most
        self._all_max = all_max
        self._window_s = window_s
        self._began_s = -window_s
        self._counts: Counter[Hashable] = Counter()  # in this window
        self._count = 0  # of all keys

    def allows(self, key: Hashable, now_s: float) -> bool:
        """One more line of that key; each is asked for once."""
        if not 0 <= now_s - self._began_s < self._window_s:
            self._began_s = now_s
            self._counts.clear()
            self._count = 0
        if self._count >= self._all_max or self._counts[key] >= self._most:
            return False
        self._counts[key] += 1
        self._count += 1
        return True
