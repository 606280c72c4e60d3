"""``TurnShare``: how many bytes readers, or how many steps works, get in one turn of the loop.

What publishers have sent is taken first, as each turn begins by reading sockets.  What readers get
after that makes the turn longer, and with it the time in which a publisher waits for its confirm.
So readers have a share of a turn: the full one, or a small one while something published is not
on disk yet.  A turn that is over sooner is only followed by the next one sooner: readers have all
the time that publishers do not need, and at least the small share of each turn.
"""

from typing import final

from mypy_extensions import i64


@final
class TurnShare:
    """Of a turn ``full_bytes``, or ``small_bytes`` while publishers wait."""

    def __init__(self, full_bytes: i64, small_bytes: i64) -> None:
        self._full_bytes: i64 = full_bytes
        self._small_bytes: i64 = small_bytes
        self._turn: i64 = -1
        self._left: i64 = 0

    def left(self, turn: i64, publishers_wait: bool) -> i64:
        """Of the turn with that number, or at that time; 0 or below: others have had it."""
        if turn != self._turn:
            self._turn = turn
            self._left = self._small_bytes if publishers_wait else self._full_bytes
        return self._left

    def spend(self, size: i64) -> None:
        """May be more than there is, by one message or block."""
        self._left -= size
