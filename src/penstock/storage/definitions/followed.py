"""The table of the cluster this node follows, and of the revision its definitions have reached.

In: the founding of the cluster and a revision of its coordinator, in the transaction that has the
changes up to there.  Out: the same after a restart.  A coordinator that knows another founding, or
is at a smaller revision, has lost its data: what is missing there was not deleted.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from penstock.storage.definitions.parameters import Change

FOLLOWED: Final = """
CREATE TABLE followed (founding TEXT NOT NULL, revision INTEGER NOT NULL);
"""
BRINGS: Final = -1
"""As a revision: this node brings what it has to a cluster that is founded anew."""
YIELDS: Final = -2
"""It brings what it has, but for queues that another node has brought: it gives its own up."""


class Followed(NamedTuple):
    """``revision`` below 0: see above."""

    founding: str
    revision: int


def follow(change: Change, founding: str, revision: int) -> None:
    change("DELETE FROM followed")
    change("INSERT INTO followed VALUES (?, ?)", founding, revision)


def load_followed(rows: Callable[[str], list[tuple[str | bytes | int, ...]]]) -> Followed | None:
    """None: it never was in a cluster, or was last in one of release 0.1."""
    for founding, revision in rows("SELECT founding, revision FROM followed"):
        return Followed(str(founding), int(revision))
    return None
