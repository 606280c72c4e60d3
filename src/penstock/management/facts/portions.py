"""Portions of sessions with their channels, as much as one call on the data loop may describe.

A connection may have thousands of channels, so a number of connections says little about how long
describing them takes.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

SLICE: Final = 100
"""Objects of a portion, connections and channels together."""


class Part(NamedTuple):
    """A session and some of its channels, by their numbers."""

    session: object
    numbers: Sequence[int]
    is_first: bool


def portions(sessions: Iterable[tuple[object, Sequence[int]]]) -> Iterator[list[Part]]:
    """Every session is in at least one part, whether it has channels or not."""
    portion: list[Part] = []
    room = SLICE
    for session, numbers in sessions:
        at = 0
        while at == 0 or at < len(numbers):
            some = numbers[at : at + room - 1]
            portion.append(Part(session, some, at == 0))
            room -= 1 + len(some)
            at += max(len(some), 1)
            if room < 2:  # no session with a channel fits any more
                yield portion
                portion, room = [], SLICE
    if portion:
        yield portion
