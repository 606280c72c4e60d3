"""``RangeLease``: the queue as the property of one reader of ranges, which excludes consumers.

A token is a number that only grows: a reader with a newer one fences off those with older ones.
"""

from typing import final

from mypy_extensions import i64, mypyc_attr


@final
@mypyc_attr(acyclic=True)
class RangeLease:
    """Of one queue; ``begun_elsewhere``: another node was its master, and none was opened here."""

    def __init__(self) -> None:
        self.token: i64 = 0  # the newest
        self.held: bool = False
        self.begun_elsewhere: bool = False

    def begin(self, token: i64, *, elsewhere: bool = False) -> None:
        """Tokens up to this one may have been given out."""
        self.token = token
        self.begun_elsewhere = elsewhere

    def open(self, token: i64) -> i64:
        """``token``: one that is known, or 0 for a new one."""
        self.token = token if token > 0 else self.token + 1
        self.held = True
        self.begun_elsewhere = False
        return self.token

    def close(self) -> None:
        self.held = False
