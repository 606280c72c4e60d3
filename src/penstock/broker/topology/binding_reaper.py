"""``BindingReaper``: removes the bindings of deleted queues and exchanges, some a turn.

In: exchanges that have dismissed a destination, or were deleted themselves, with more bindings
than a client can wait for.  Out: the same exchanges without them, after some turns of a
millisecond or two, in memory and in the definitions.  Nothing here is seen from outside.
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.core.clock_types import WallMs
from penstock.core.turn_part import TurnPart
from penstock.routing.exchanges import Exchange, Sources
from penstock.storage.definitions.definitions import Definitions

SWEPT_AT_ONCE: Final[i64] = 200
"""Bindings of one turn; a topic exchange takes some microseconds for each."""


@final
class BindingReaper(TurnPart):
    """The last of the exchanges stays until the definitions have no rows left to delete."""

    def __init__(self, definitions: Definitions) -> None:
        # None: rows of the process before, perhaps
        self._exchanges: list[Exchange | None] = [None]
        super().__init__(self._exchanges)
        self._definitions = definitions
        self.sources: Final = Sources()
        self._waiting: set[int] = set()  # their ids

    def add(self, exchange: Exchange) -> None:
        """It may have dismissed bindings, or not."""
        if id(exchange) not in self._waiting:
            self._waiting.add(id(exchange))
            self._exchanges.append(exchange)

    def run(self, now_ms: WallMs, idle: bool) -> bool:
        exchanges = self._exchanges
        rows_left = self._definitions.sweep()
        left: i64 = SWEPT_AT_ONCE
        while exchanges and left > 0:
            exchange = exchanges[0]
            if exchange is not None:
                left -= exchange.sweep(left)
            if (exchange is not None and exchange.dismissed) or (rows_left and len(exchanges) == 1):
                break
            self._waiting.discard(id(exchange))
            exchanges.pop(0)
        return len(exchanges) > 0
