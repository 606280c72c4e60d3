"""The judge of a load: what clients were promised, what they got, and how long they had to wait.

Clients say lines (tests/interop/CONVERSATION.md, "A load"); an ``Account`` is what was said about
one queue, and ``heard`` all of it in its order.  What must be true when everything is healed and
drained:

    every confirmed message was received by somebody                         (``lost``)
    a message that is received again is marked as redelivered               (``unmarked``)
    who receives messages of one publisher's life for the first time, unmarked, receives them in
    the order in which they were published                                  (``disordered``)
    nothing is received that nobody sent                                    (``invented``)

Publishers never publish a message again, so whatever comes twice was doubled by the broker, which
is allowed as long as it says so.  *Gap* is the longest time in which no publisher of a queue had a
confirm: a failover as clients see it.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise

LINE = re.compile(r"(\d+) (life|\+|-|\?|\*|impatient|end) (.+)")


class Account:
    """Of one queue.  ``keeps_order``, ``marks``: whether its protocol promises that (NSQ: no)."""

    def __init__(self, queue: str, *, keeps_order: bool = True, marks: bool = True) -> None:
        self.queue = queue
        self.keeps_order = keeps_order
        self.marks = marks
        self.confirmed: dict[str, int] = {}  # when
        self.unanswered: set[str] = set()
        self.refused: set[str] = set()
        self.received: dict[str, int] = {}  # how often
        self.unmarked: list[str] = []
        self.disordered: list[str] = []
        self.lives: Counter[str] = Counter()
        self.impatient = 0
        self.ended: set[str] = set()
        self.heard: list[str] = []
        self._last: dict[tuple[str, str], int] = {}  # (consumer's, publisher's life): the number

    def hear(self, line: str) -> None:
        """Of a client's program; what a library says by itself has no time in front."""
        self.heard.append(line)
        if not line[:1].isdigit():
            return
        found = LINE.fullmatch(line)
        assert found is not None, f"a client of {self.queue} says: {line}"
        at_ms, word, rest = int(found[1]), found[2], found[3]
        if word == "+":
            self.confirmed[rest] = at_ms
        elif word == "-":
            self.refused.add(rest)
        elif word == "?":
            self.unanswered.add(rest)
        elif word == "*":
            self._receive(*rest.split(" "))
        elif word == "life":
            self.lives[rest.rpartition(".")[0]] += 1
        elif word == "impatient":
            self.impatient += 1
        else:
            self.ended.add(rest)

    def _receive(self, consumer: str, one: str, mark: str) -> None:
        times = self.received[one] = self.received.get(one, 0) + 1
        if mark == "1":
            return
        if times > 1 and self.marks:
            self.unmarked.append(f"{one} at {consumer}")
        publisher, _, number = one.partition(":")
        key = (consumer, publisher)
        if self.keeps_order and int(number) <= self._last.get(key, 0):
            self.disordered.append(f"{one} at {consumer}, after {self._last[key]}")
        self._last[key] = max(int(number), self._last.get(key, 0))

    # -- the judgement ---------------------------------------------------------------------

    def missing(self) -> set[str]:
        return self.confirmed.keys() - self.received.keys()

    def invented(self) -> set[str]:
        return self.received.keys() - self.confirmed.keys() - self.unanswered - self.refused

    def gap_ms(self, since_ms: int = 0) -> int:
        times = sorted(at for at in list(self.confirmed.values()) if at >= since_ms)
        if since_ms:
            times.insert(0, since_ms)  # nothing may have been confirmed between that and the blow
        return max((later - at for at, later in pairwise(times)), default=0)

    def counts(self) -> Counter[str]:
        return Counter(
            {
                "confirmed": len(self.confirmed),
                "received": len(self.received),
                "lost": len(self.missing()),
                "duplicates": sum(self.received.values()) - len(self.received),
                "refused": len(self.refused),
                "unanswered": len(self.unanswered - self.confirmed.keys()),
                "reconnects": sum(times - 1 for times in self.lives.values()),
            }
        )

    def judge(self) -> None:
        problems = {
            "lost, though confirmed": sorted(self.missing()),
            "received twice, unmarked": self.unmarked,
            "out of order": self.disordered,
            "received, but never sent": sorted(self.invented()),
        }
        said = [f"{len(ids)} {what}: {', '.join(ids[:5])}" for what, ids in problems.items() if ids]
        assert not said, f"{self.queue} ({told(self.counts())}): " + "; ".join(said)
        assert self.confirmed, f"{self.queue}: nothing was confirmed"


def told(counts: Counter[str]) -> str:
    return ", ".join(f"{number:,} {what}" for what, number in counts.items())
