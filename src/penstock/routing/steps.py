"""What routes cost, in steps (``core/steps.py``), and the bounds of that.

a publish of a client    ``steps.limit``: it is refused when it needs more than ``STEPS_MAX``
a turn of a connection   what is left of its publishes waits for the next turn (``Link``)
the broker's own routes  a ``RoutingShare`` in each turn.  These cannot be refused: a route that
needs more stops with ``RouteUnfinished`` and goes on in the next turn
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.core.steps import STEPS_MAX, steps


class RouteUnfinished(Exception):
    """The share of the turn is used up; the same question goes on from there in the next one."""


@final
class Walk:
    """Of one key through the patterns of one exchange: the nodes that ``at`` words have reached.

    Bindings may come and go between two turns.  A destination whose binding was there all the time
    is found, one whose binding went is not.
    """

    def __init__(self, at: i64, reached: list[object]) -> None:
        self.at: Final[i64] = at
        self.reached: Final = reached


@final
class RoutingShare:
    """Of one part of the broker: its steps in a turn, and how far its ``unfinished`` route came."""

    def __init__(self) -> None:
        self.walks: dict[tuple[int, str], Walk] = {}  # by matcher and key
        self.unfinished: bool = False
        self._until: i64 = 0
        self._owner: object = None

    def begin(self) -> None:
        """A turn."""
        self._until = steps.taken + STEPS_MAX

    def is_over(self) -> bool:
        return steps.taken >= self._until

    def of(self, owner: object) -> "RoutingShare":
        """A route of this message is asked for; what another one left is forgotten."""
        if self.walks and self._owner != owner:
            self.walks = {}
        self.unfinished = False
        self._owner = owner
        return self

    def stop(self, matcher: object, routing_key: str, walk: Walk) -> None:
        """Remember it; raises RouteUnfinished if the share is over."""
        self.walks[(id(matcher), routing_key)] = walk
        if self.is_over():
            self.unfinished = True
            raise RouteUnfinished
