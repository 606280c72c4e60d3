"""``Recent``: rates of counters over the last seconds, computed by the reader.

The caller passes the counters; the samples of the last ten seconds are kept, so several
visitors of one page see the same rate, and the broker keeps nothing for them.  The first look
knows no rate.  The memory is bounded: the thing least recently looked at is forgotten.
"""

from collections import OrderedDict, deque
from typing import Final

from penstock.core.clock_types import WallMs

WINDOW_MS: Final = 10_000
APART_MS: Final = 500
"""Looks closer together than this are one."""
KEYS_MAX: Final = 256

Counts = dict[str, int]


class Recent:
    """By any key."""

    def __init__(self) -> None:
        self._seen: OrderedDict[object, deque[tuple[WallMs, Counts]]] = OrderedDict()

    def rates(self, key: object, counts: Counts, now_ms: WallMs) -> dict[str, float | None]:
        """A second, of each counter; None = not known yet."""
        looks = self._looks(key)
        while looks and (now_ms - looks[0][0] > WINDOW_MS or now_ms < looks[0][0]):
            looks.popleft()
        if looks and any(counts[name] < looks[-1][1].get(name, 0) for name in counts):
            looks.clear()  # it is another one of the same name
        if not looks or now_ms - looks[-1][0] >= APART_MS:
            looks.append((now_ms, counts))
        then_ms, then = looks[0]
        if now_ms - then_ms < APART_MS:
            return dict.fromkeys(counts)
        passed_s = (now_ms - then_ms) / 1000
        return {name: round((count - then[name]) / passed_s, 2) for name, count in counts.items()}

    def _looks(self, key: object) -> deque[tuple[WallMs, Counts]]:
        looks = self._seen.setdefault(key, deque())
        self._seen.move_to_end(key)
        if len(self._seen) > KEYS_MAX:
            self._seen.popitem(last=False)
        return looks
