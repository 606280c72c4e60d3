"""``OnLoop``: how the thread of management asks the data loop."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, ParamSpec, Protocol, TypeVar

from penstock.core.pending import Ticket

AGAIN_S: Final = 0.005
"""From one look at what the data loop waits for to the next."""

T = TypeVar("T")
P = ParamSpec("P")


class OnLoop(Protocol):
    """Runs a short function on the data loop."""

    def __call__(
        self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> Awaitable[T]: ...


async def answered(ticket: Ticket) -> None:
    """Until it is done, by whatever thread."""
    while not ticket.done:  # noqa: ASYNC110 - no event: the ticket knows no asyncio
        await asyncio.sleep(AGAIN_S)
