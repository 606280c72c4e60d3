"""``OnLoop``: how the thread of management asks the data loop."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, ParamSpec, Protocol, TypeVar

from penstock.core.pending import Ticket

AGAIN_S: Final = 0.005
"""From one look at what the data loop waits for to the next."""

T = TypeVar("T")
P = ParamSpec("P")
SLICE: Final = 100
"""Objects of a portion, connections and channels together."""


class OnLoop(Protocol):
    """Runs a short function on the data loop."""

    def __call__(
        self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> Awaitable[T]: ...


async def answered(ticket: Ticket) -> None:
    """Until it is done, by whatever thread."""
    while not ticket.done:  # noqa: ASYNC110 - no event: the ticket knows no asyncio
        await asyncio.sleep(AGAIN_S)


class Part(NamedTuple):
    session: object
    numbers: Sequence[int]
    is_first: bool


def portions(sessions: Iterable[tuple[object, Sequence[int]]]) -> Iterator[list[Part]]:
    """As much of sessions and their channels as one call on the data loop may describe.

    A connection may have thousands of channels, so a number of connections says little about how
    long describing them takes.  Every session is in at least one part, with channels or without.
    """
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
