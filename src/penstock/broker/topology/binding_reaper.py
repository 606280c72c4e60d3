"""Removes the bindings of deleted queues and exchanges, some a turn.

``Departure``: a destination was deleted.  In: what leads there.  Out: the same exchanges, without
it; those that are deleted with their last binding are gone.  More than some thousand exchanges
take several turns; ``Sources.leaving`` keeps messages from the destination meanwhile.

``BindingReaper``: in: exchanges that have dismissed a destination, or were deleted themselves, with
more bindings than a client can wait for.  Out: the same exchanges without them, after some turns of
a millisecond or two, in memory and in the definitions.  Nothing of it is seen from outside.
"""

from collections import deque
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from penstock.core.clock_types import WallMs
from penstock.core.long_work import LongWork
from penstock.core.steps import steps
from penstock.core.turn_part import TurnPart
from penstock.routing.exchanges import Exchange, Sources
from penstock.storage.definitions.definitions import Definitions

if TYPE_CHECKING:
    from penstock.broker.topology.vhost import Vhost

DEPARTURES_AT_ONCE: Final[i64] = 256
"""Exchanges of one step."""
DEPARTURE_STEPS: Final[i64] = 400
"""Of each exchange: it is often deleted, and noted as such."""
GONE_AT_ONCE: Final = 2048
GONE_STEPS: Final[i64] = 40
"""Of each destination that nothing leads to any more."""
SWEPT_AT_ONCE: Final[i64] = 200
"""Bindings of one turn; a topic exchange takes some microseconds for each."""


@final
class Departure(LongWork):
    """Of a deleted queue or exchange, and of the exchanges that are deleted for it."""

    def __init__(self, vhost: "Vhost", destination: object) -> None:
        self._vhost = vhost
        # A list of work, not a recursion: a client may chain as many exchanges as it likes.
        self._left: deque[tuple[Exchange, object]] = deque()
        self._gone: list[object] = []
        self._follow(destination)

    def _follow(self, destination: object) -> None:
        sources = self._vhost.sources
        self._gone.append(destination)
        sources.leave(destination, True)
        for exchange in sources.of(destination):
            self._left.append((exchange, destination))

    def step(self) -> bool:
        at_most: i64 = DEPARTURES_AT_ONCE
        while len(self._left) > 0 and at_most > 0:
            at_most -= 1
            steps.count(DEPARTURE_STEPS)
            exchange, destination = self._left.popleft()
            if self._vhost.leave(exchange, destination):
                self._follow(exchange)
        self._vhost.forget_routes()
        if len(self._left) > 0:
            return True
        some = self._gone[-GONE_AT_ONCE:]
        del self._gone[-GONE_AT_ONCE:]
        steps.count(GONE_STEPS * len(some))
        for destination in some:
            self._vhost.sources.leave(destination, False)
        return len(self._gone) > 0


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
