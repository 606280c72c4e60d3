"""``Telling``: which copies hear the next parcel, where a majority of them confirms.

The master sends each parcel straight to every copy (docs/design/majority.md).  Links lose nothing
between two lives, so a parcel that was sent need not be kept; what is counted is the size of those
that were not answered, because they lie in the memory of one of the two nodes.

    hears    it is sent every parcel
    behind   too much is unanswered, or its link is full: it is sent nothing.  When it has answered
             all that it was sent it hears again, from the present number on, and fetches the rest

So a copy that stands still costs a bounded memory, and holds up nothing.

Before a master hands over to a certain copy it tells nothing for a moment, until that one and all
others that hear have done all that was told: so none has more, and that one is elected.

Invariants (``check``):
  T1  unanswered parcels ascend up to the last one sent, and their bytes are counted
  T2  no copy has more unanswered than the bound and one parcel
"""

from collections import deque
from collections.abc import Container
from typing import Final, final

from penstock.cluster.agreement.coordinator import node_of

BEHIND_BYTES: Final = 4 * 1024 * 1024
HAND_OVER_AGAIN_MS: Final = 5000
QUIET_MS: Final = 500
"""So long a master tells nothing, in each of these, while it is to hand over."""


@final
class Line:
    """To one copy; ``sent``: the number from behind which it hears."""

    def __init__(self, sent: int) -> None:
        self.is_behind: bool = False
        self.waiting_bytes: int = 0
        self.sent: int = sent
        self._waiting: deque[tuple[int, int]] = deque()  # number and size

    def tell(self, number: int, size: int, *, is_full: bool) -> bool:
        """False: it is not to be sent that parcel."""
        self.is_behind = self.is_behind or is_full or self.waiting_bytes > BEHIND_BYTES
        if not self.is_behind:
            self.sent = number
            self.waiting_bytes += size
            self._waiting.append((number, size))
        return not self.is_behind

    def answered(self, number: int) -> None:
        """It has done all that it was sent up to there."""
        while self._waiting and self._waiting[0][0] <= number:
            self.waiting_bytes -= self._waiting.popleft()[1]

    def is_waiting(self) -> bool:
        return len(self._waiting) > 0

    def go_on(self, number: int, *, is_full: bool) -> bool:
        """If it was behind, and is no more: it hears again from behind that number."""
        if not self.is_behind or self._waiting or is_full:
            return False
        self.is_behind = False
        self.sent = number
        self._waiting.append((number, 0))  # the copy answers that it has heard so
        return True

    def check(self) -> None:
        """Assert T1 and T2."""
        numbers = [number for number, _ in self._waiting]
        sizes = [size for _, size in self._waiting]
        assert numbers == sorted(set(numbers)), "T1"
        assert not numbers or numbers[-1] == self.sent, "T1"
        assert self.waiting_bytes == sum(sizes), "T1"
        assert not sizes or self.waiting_bytes - sizes[-1] <= BEHIND_BYTES, "T2"


@final
class Telling:
    """Of one master in one term: to the other copies."""

    def __init__(self) -> None:
        self.lines: dict[str, Line] = {}  # by member

    def begin(self, member: str, number: int) -> None:
        """From behind that number on it hears every parcel; what it had counts no more."""
        self.lines[member] = Line(number)

    def forget(self, member: str) -> None:
        self.lines.pop(member, None)

    def receivers(self, number: int, size: int, full: Container[str]) -> list[str]:
        """Of the next parcel; ``full``: members whose link takes no more now."""
        return [
            member
            for member, line in self.lines.items()
            if line.tell(number, size, is_full=member in full)
        ]

    def answered(self, member: str, number: int) -> None:
        line = self.lines.get(member)
        if line is not None:
            line.answered(number)

    def going_on(self, number: int, full: Container[str]) -> list[str]:
        """To be told that they hear from behind ``number`` on: it is the last parcel there was."""
        return [
            member
            for member, line in self.lines.items()
            if line.go_on(number, is_full=member in full)
        ]

    def are_level(self, node: str) -> bool:
        """Has that node's copy answered all, and each other that hears?"""
        lines = {node_of(member): line for member, line in self.lines.items()}
        hearing = [line for line in lines.values() if not line.is_behind]
        return lines.get(node) in hearing and not any(line.is_waiting() for line in hearing)

    def waiting_bytes(self, needed: int) -> int:
        """What ``needed`` of the copies have not all answered: for that publishers are to wait."""
        waiting = sorted(
            [BEHIND_BYTES if line.is_behind else line.waiting_bytes for line in self.lines.values()]
        )
        if needed == 0:
            return 0
        return waiting[needed - 1] if needed <= len(waiting) else BEHIND_BYTES

    def check(self) -> None:
        for line in self.lines.values():
            line.check()
