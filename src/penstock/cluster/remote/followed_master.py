"""``FollowedMaster``: which life of a node a remote queue with copies follows as its master.

A queue follows a master once: a master that it follows anew gets no request of before.
"""

from typing import TYPE_CHECKING, Final, final

from penstock.core.clock_types import MonoMs

if TYPE_CHECKING:
    from penstock.cluster.remote.queue import RemoteQueue

LEADERLESS_MS: Final = 5000
"""A queue whose copies have elected no master for so long counts as down."""


@final
class FollowedMaster:
    """Of one queue, which may be another object from time to time."""

    def __init__(self) -> None:
        self._queue: RemoteQueue | None = None
        self._member = ""
        self._missed_ms = MonoMs(0)  # since when there is none; 0 = not looked at since

    def begin(self, queue: "RemoteQueue", member: str) -> bool:
        """False: it is followed already."""
        if self._queue is queue and self._member == member:
            return False
        self._queue, self._member, self._missed_ms = queue, member, MonoMs(0)
        return True

    def end(self) -> None:
        self._queue = None

    def is_there(self) -> bool:
        return self._queue is not None

    def is_missed(self, queue: "RemoteQueue", mono_ms: MonoMs) -> bool:
        """There has been none for long; to be asked now and then."""
        if self._queue is queue:
            return False
        self._missed_ms = self._missed_ms or mono_ms
        return mono_ms - self._missed_ms > LEADERLESS_MS
