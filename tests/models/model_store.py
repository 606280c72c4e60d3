"""What a message store must do, done slowly: a dictionary of contents and a journal of references.

The journal is the judge of what a crash may lose: every change of a count is an entry, ``durable``
entries survive for certain, those of the groups ``written`` after them perhaps, in order and each
group whole or not at all.
"""

from __future__ import annotations

import random
from collections import Counter


class ModelStore:
    """``contents`` remembers every id ever handed out: none may come twice."""

    def __init__(self) -> None:
        self.contents: dict[int, bytes] = {}
        self.references: Counter[int] = Counter()
        self.journal: list[tuple[int, int]] = []
        self.durable = 0
        self.written: list[int] = []  # ends of groups

    @property
    def position(self) -> int:
        return len(self.journal)

    def write(self, msg_id: int, content: bytes, references: int) -> None:
        assert msg_id not in self.contents, "an id was used twice"
        assert msg_id > max(self.contents, default=0)
        self.contents[msg_id] = content
        self.change(msg_id, references)

    def change(self, msg_id: int, count: int) -> None:
        self.journal.append((msg_id, count))
        self.references[msg_id] += count
        assert self.references[msg_id] >= 0
        if self.references[msg_id] == 0:
            del self.references[msg_id]

    def alive(self) -> list[int]:
        return sorted(self.references)

    def crash(self, rng: random.Random) -> None:
        """Lose some end of the journal, not more than may be lost."""
        ends = [end for end in self.written if end > self.durable]
        del self.journal[rng.choice([self.durable, *ends]) :]
        self.durable = self.position
        self.written = []
        self.references = Counter()
        for msg_id, count in self.journal:
            self.references[msg_id] += count
        self.references = +self.references
