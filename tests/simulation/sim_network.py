"""A network in one process: frames are lost, late, out of order, doubled; places are cut off.

All chance comes from the generator that is handed in.  A place is any name; who is at it is not the
network's business.  What is in flight when its sender dies arrives all the same.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Iterable
from typing import Any


class SimNetwork:
    """``loss`` and ``doubling``: shares of the frames; delays are up to ``slowest_ms``."""

    def __init__(
        self,
        rng: random.Random,
        *,
        loss: float = 0.05,
        doubling: float = 0.05,
        slowest_ms: int = 30,
    ) -> None:
        self.rng = rng
        self.loss = loss
        self.doubling = doubling
        self.slowest_ms = slowest_ms
        self.counts: Counter[str] = Counter()
        self._under_way: dict[str, list[tuple[int, int, str, Any]]] = {}
        self._order = itertools.count()
        self._island: dict[str, int] = {}  # place → part of the network; not here: 0
        self._cuts: set[tuple[str, str]] = set()  # sender, receiver

    # -- partitions -----------------------------------------------------------------------

    def cut_off(self, places: Iterable[str]) -> None:
        """These hear one another, and nobody else."""
        self.counts["partitions"] += 1
        island = max(self._island.values(), default=0) + 1
        for place in places:
            self._island[place] = island

    def cut(self, one: str, other: str) -> None:
        """These two hear nothing of each other, and all else."""
        self.counts["cuts"] += 1
        self._cuts |= {(one, other), (other, one)}

    def cut_one_way(self, sender: str, receiver: str) -> None:
        self.counts["cuts"] += 1
        self._cuts.add((sender, receiver))

    def heal(self) -> None:
        self._island.clear()
        self._cuts.clear()

    def reaches(self, one: str, other: str) -> bool:
        if (one, other) in self._cuts:
            return False
        return self._island.get(one, 0) == self._island.get(other, 0)

    @property
    def is_whole(self) -> bool:
        return not self._island and not self._cuts

    # -- frames -----------------------------------------------------------------------------

    def send(self, sender: str, receiver: str, frame: Any, now_ms: int) -> None:
        self.counts["frames"] += 1
        if self.rng.random() < self.loss:
            self.counts["lost"] += 1
            return
        self._put(sender, receiver, frame, now_ms)
        if self.rng.random() < self.doubling:
            self.counts["doubled"] += 1
            self._put(sender, receiver, frame, now_ms)

    def _put(self, sender: str, receiver: str, frame: Any, now_ms: int) -> None:
        due_ms = now_ms + self.rng.randint(1, self.slowest_ms)
        waiting = self._under_way.setdefault(receiver, [])
        if waiting and due_ms < waiting[0][0]:
            self.counts["early"] += 1
        heapq.heappush(waiting, (due_ms, next(self._order), sender, frame))

    def arrived(self, receiver: str, now_ms: int) -> list[tuple[str, Any]]:
        """What has come by now; across a cut nothing does, whenever it was sent."""
        waiting = self._under_way.get(receiver, [])
        found: list[tuple[str, Any]] = []
        while waiting and waiting[0][0] <= now_ms:
            _, _, sender, frame = heapq.heappop(waiting)
            if self.reaches(sender, receiver):
                found.append((sender, frame))
            else:
                self.counts["cut"] += 1
        return found

    def forget(self, place: str) -> None:
        """Nobody is there any more."""
        self._under_way.pop(place, None)
