"""Removes the bindings of deleted entities from ``definitions.db``, some at a time.

Deleting 100,000 rows takes longer than anybody wants to wait, so a queue or exchange with many
bindings is deleted at once and its bindings later, some at a time.  Meanwhile the table ``leaving``
says that they are dead: every binding has a number, and what was deleted names the number below
which bindings to it (or, of an exchange, from it) are no more.  Its name may be used again at once:
new bindings have higher numbers.  A virtual host that is being removed stands in ``leaving`` too:
the next start goes on with it.

Here are the statements and the judgement; ``definitions`` runs them.
"""

from typing import Final, final

from penstock.storage.definitions.values import name_in_cell

SWEPT_AT_ONCE: Final = 200
"""Bindings of one slice: a millisecond, and what the commit then takes."""

TO_QUEUE: Final = "queue"
TO_EXCHANGE: Final = "exchange"
FROM_EXCHANGE: Final = "source"
VHOST: Final = "vhost"
"""Not of bindings: it goes with everything in it."""

_KEY: Final = "vhost, source, destination_type, destination, routing_key, arguments"
_BY_DESTINATION: Final = (
    "INDEXED BY bindings_by_destination WHERE vhost = ? AND destination_type = '{side}'"
    " AND destination = ?"
)
_FOUND: Final = {
    TO_QUEUE: _BY_DESTINATION.format(side="queue"),
    TO_EXCHANGE: _BY_DESTINATION.format(side="exchange"),
    FROM_EXCHANGE: "WHERE vhost = ? AND source = ?",
}

Departure = tuple[str, str, str]
"""Side, virtual host, name."""


def slice_statement(side: str) -> str:
    """Deletes some bindings of one departure: virtual host, name, number and how many."""
    return (
        f"DELETE FROM bindings WHERE ({_KEY}) IN"  # noqa: S608 - all of it stands above
        f" (SELECT {_KEY} FROM bindings {_FOUND[side]} AND number < ? LIMIT ?)"
    )


@final
class Departures:
    """What was deleted and still has rows."""

    def __init__(self) -> None:
        self.below: dict[Departure, int] = {}
        self.vhosts: set[str] = set()

    def take(self, row: tuple[str, str | bytes, str | bytes, int]) -> None:
        """A row of ``leaving``."""
        side, vhost, name, below = row
        if side == VHOST:
            self.vhosts.add(name_in_cell(vhost))
            return
        self.below[(side, name_in_cell(vhost), name_in_cell(name))] = below

    def covers(
        self, vhost: str, source: str, destination_type: str, destination: str, number: int
    ) -> bool:
        """Is this binding dead?"""
        if not self.below:
            return False
        ends = ((FROM_EXCHANGE, source), (destination_type, destination))
        return any(number < self.below.get((side, vhost, name), 0) for side, name in ends)

    def forget_vhost(self, vhost: str) -> None:
        self.vhosts.discard(vhost)
        for departure in list(self.below):
            if departure[1] == vhost:
                del self.below[departure]
