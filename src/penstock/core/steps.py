"""``steps``: what work cost that one peer asks for, counted in one unit over the whole node.

A step is a node that a routing key reaches in a tree of patterns, a pattern of headers that is
compared, or as much of anything else.  ``STEPS_MAX`` of them are some milliseconds: as many as one
peer, or one part of the broker, has in a turn of the loop.
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.core.errors import PreconditionFailed

STEPS_MAX: Final[i64] = 200_000
"""Some milliseconds."""
UNLIMITED: Final[i64] = 1 << 62


@final
class Steps:
    """``taken`` grows for ever; ``left`` is what the publish that is routed may still take."""

    def __init__(self) -> None:
        self.taken: i64 = 0
        self.left: i64 = UNLIMITED

    def limit(self) -> None:
        """A publish of a client is routed."""
        self.left = STEPS_MAX

    def unlimit(self) -> None:
        """It has been."""
        self.left = UNLIMITED

    def count(self, count: i64) -> None:
        """So many were taken that no publish is refused for."""
        self.taken += count

    def take(self, count: i64, routing_key: str) -> None:
        """Raises PreconditionFailed when a publish needs too many."""
        self.taken += count
        self.left -= count
        if self.left < 0:
            raise PreconditionFailed(
                f"too many patterns match a part of the routing key '{routing_key}'"
            )


steps: Final = Steps()
