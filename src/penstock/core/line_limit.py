"""``LineLimit``: lines of the log that strangers cause, bounded.

A machine that reaches a listener causes a line with each connection that is refused, so of one
address in a minute a few are lines and the others are not.  So many addresses have lines at all: a
client of IPv6 has as many addresses as it likes.  Log-ins, which are events as well, have
``broker.rules.bounded_events``.
"""

from collections import Counter
from collections.abc import Hashable
from typing import Final

WINDOW_S: Final = 60.0
KEYS_MAX: Final = 1000


class LineLimit:
    """``most``: lines of one key, mostly an address, in a window of time."""

    def __init__(self, most: int = 1, keys_max: int = KEYS_MAX, window_s: float = WINDOW_S) -> None:
        self._most = most
        self._keys_max = keys_max
        self._window_s = window_s
        self._began_s = -window_s
        self._counts: Counter[Hashable] = Counter()  # in this window

    def allows(self, key: Hashable, now_s: float) -> bool:
        """One more line of that key; each is asked for once."""
        if not 0 <= now_s - self._began_s < self._window_s:
            self._began_s = now_s
            self._counts.clear()
        if key not in self._counts and len(self._counts) >= self._keys_max:
            return False
        self._counts[key] += 1
        return self._counts[key] <= self._most
