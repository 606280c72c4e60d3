"""``BindingReaper``: removes the bindings of deleted queues and exchanges, some a turn.

In: exchanges that have dismissed a destination, or were deleted themselves, with more bindings
than anybody wants to wait for.  Out: the same exchanges without them, after some turns of a
millisecond or two, in memory and in the definitions.  Nothing here is seen from outside.
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.routing.exchanges import Exchange
from penstock.storage.definitions.definitions import Definitions

SWEPT_AT_ONCE: Final[i64] = 200
"""Bindings of one turn; a topic exchange takes some microseconds for each."""


@final
class BindingReaper:
    """``rows_left``: the definitions have some to delete too."""

    def __init__(self, definitions: Definitions) -> None:
        self.exchanges: list[Exchange] = []
        self.rows_left: bool = True  # of the process before, perhaps
        self._definitions = definitions

    def add(self, exchange: Exchange) -> None:
        """It may have dismissed bindings, or not."""
        self.rows_left = True
        if exchange.dismissed and not exchange.awaits_sweep:
            exchange.awaits_sweep = True
            self.exchanges.append(exchange)

    def run(self) -> bool:
        """One slice; True = there is more."""
        left: i64 = SWEPT_AT_ONCE
        while self.exchanges and left > 0:
            exchange = self.exchanges[0]
            left -= exchange.sweep(left)
            if not exchange.dismissed:
                exchange.awaits_sweep = False
                self.exchanges.pop(0)
        if self.rows_left:
            self.rows_left = self._definitions.sweep()
        return self.rows_left or len(self.exchanges) > 0
