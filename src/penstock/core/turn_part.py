"""``TurnPart``: one part of each turn of the broker; ``runtime/turn.py`` declares their order."""

from collections.abc import Sized
from typing import Final

from mypy_extensions import mypyc_attr

from penstock.core.clock_types import WallMs

ALWAYS: Final = (None,)
"""``waiting`` of a part that runs in each turn."""


@mypyc_attr(allow_interpreted_subclasses=True)
class TurnPart:
    """``waiting``: the work there is, of this part, or shared with the objects that bring it.

    While it is empty the turn passes over the part, which then costs a comparison.
    """

    def __init__(self, waiting: Sized = ALWAYS) -> None:
        self.waiting: Final[Sized] = waiting

    def run(self, now_ms: WallMs, idle: bool) -> bool:
        """One slice; ``idle``: no socket had anything to read.  True = there is more."""
        raise NotImplementedError
