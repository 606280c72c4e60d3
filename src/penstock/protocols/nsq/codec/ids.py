"""Ids of messages: 64 bits, in the layout of nsqd, as 16 hexadecimal digits.

    time, in units of 2^20 ns since an epoch   42 bits
    node                                       10 bits
    sequence                                   12 bits

The time and the node are the first 13 digits, the sequence is the last 3: a run of messages takes
one prefix and a slice of a table, and no number is formatted for each.

An id must differ from every one before; that it tells the time is a courtesy.  So nothing here
waits, as nsqd does: when the clock goes back the time stays where it was, and when the 4096
sequences of one unit are used up the time goes on by one unit, ahead of the clock.
"""

from typing import Final, final

from mypy_extensions import i64

EPOCH: Final[i64] = 1288834974288
UNIT_BITS: Final[i64] = 20
NODE_MAX: Final = 1023
SEQUENCES: Final[i64] = 4096
ID_BYTES: Final = 16

SUFFIXES: Final = [b"%03x" % number for number in range(4096)]
"""The last digits of an id, by its sequence."""


@final
class IdFactory:
    """Of one node.  ``take`` a run, then ``prefix`` and ``first`` say which ids it is."""

    def __init__(self, node: int) -> None:
        self.prefix: bytes = b""  # thirteen digits
        self.first: i64 = 0  # its place among ``SUFFIXES``
        self._node: i64 = node
        self._time: i64 = 0
        self._next: i64 = 0  # the next sequence of this time

    def take(self, wanted: i64, now_ns: i64) -> i64:
        """How many ids there are in one run, at least one and at most as many as wanted."""
        time = (now_ns >> UNIT_BITS) - EPOCH
        if time > self._time:
            self._begin(time)
        elif self._next == SEQUENCES:
            self._begin(self._time + 1)
        count = SEQUENCES - self._next
        if count > wanted:
            count = wanted
        self.first = self._next
        self._next += count
        return count

    def one(self, now_ns: i64) -> bytes:
        """A single id."""
        self.take(1, now_ns)
        return self.prefix + SUFFIXES[self.first]

    def _begin(self, time: i64) -> None:
        self._time = time
        self._next = 0
        self.prefix = b"%013x" % int(time << 10 | self._node)
