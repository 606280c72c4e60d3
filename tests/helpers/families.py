"""Queues among which messages move, judged together: a confirmed message is in one of them.

A family is a queue and those to which its messages go by a transaction, as dead letters, or when a
delay ends.  A crash may leave a message at both ends of its way, never at neither.  Where the head
is dropped (``keeps``) a message may be missing if so many newer ones are there.
"""

from __future__ import annotations

from collections import Counter

Found = dict[str, list[bytes]]
"""The bodies in each queue."""


class Family:
    """Its messages are numbers; they are published in their order."""

    def __init__(self, name: str, *queues: str, keeps: int = 0) -> None:
        self.name = name
        self.queues = queues
        self.keeps = keeps
        self.sent: set[int] = set()
        self.lasting: set[int] = set()  # confirmed, or found after a start
        self.moved: set[int] = set()  # by a transaction whose commit was answered

    def body(self, number: int, size: int) -> bytes:
        self.sent.add(number)
        return f"{self.name}:{number}:".encode() + b"x" * size

    def judge(self, found: Found, counts: Counter[str]) -> None:
        """Fails if something is lost, was never sent, or was moved and is back."""
        places = [numbers_of(self.name, found[queue]) for queue in self.queues]
        there = set[int]().union(*places)
        assert there <= self.sent, f"{self.name}: never sent: {sorted(there - self.sent)[:5]}"
        missing = self.lasting - there
        lost = sorted(one for one in missing if not self.is_dropped(one, there))
        assert not lost, f"{self.name}: lost {lost[:5]}, {len(lost)} of {len(self.lasting)}"
        back = sorted(self.moved & places[0])
        assert not back, f"{self.name}: {back[:5]} came back after the commit was answered"
        counts["judged"] += len(self.lasting)
        for queue, numbers in zip(self.queues[1:], places[1:], strict=True):
            counts[f"{self.name} found in {queue}"] += len(numbers)
        if self.keeps:
            counts[f"{self.name} dropped"] += len(missing)

    def is_dropped(self, number: int, there: set[int]) -> bool:
        return self.keeps > 0 and sum(one > number for one in there) >= self.keeps

    def looked_at(self, found: Found, drained: tuple[str, ...]) -> None:
        """What a start found stays, but for what was acknowledged for certain since."""
        numbers = {queue: numbers_of(self.name, found[queue]) for queue in self.queues}
        self.lasting = set[int]().union(*numbers.values())
        for queue in drained:
            self.lasting -= numbers.get(queue, set())


def numbers_of(name: str, bodies: list[bytes]) -> set[int]:
    parts = [body.split(b":", 2) for body in bodies if body.startswith(name.encode() + b":")]
    return {int(number) for _, number, _ in parts}
