"""``RestingQueue``: the interface of a queue's backing that the engine uses.

Backings live in the package above and know the engine; the engine knows them by this class only.
In: files that are to be given up, targets, the time.  Out: what is still needed, how much is in
memory, how fast it leaves.
"""

from typing import Final

from mypy_extensions import i64

from penstock.core.clock_types import WallMs
from penstock.storage.index.queue_index import QueueIndex

INFINITE: Final[i64] = -1
"""As a target: keep everything in memory."""
FLUSHED: Final[i64] = 0
MORE_TO_FLUSH: Final[i64] = 1
WAITS_FOR_DISK: Final[i64] = 2
"""How a flush went.  The last: a segment takes nothing before a job on its file is over, and the
end of each job wakes the loop, so there is nothing to try until then."""


class RestingQueue:
    """A queue as the engine sees it.

    ``reader`` is who wants to know that something arrived, a name the engine only passes on.
    """

    queue_id: i64

    def __init__(self) -> None:
        self.reader: object = None
        self.paged_bytes: i64 = 0  # since memory became short
        self.paging_since_ms = WallMs(0)

    def set_reader(self, reader: object) -> None:
        self.reader = reader

    def note_paging(self, now_ms: WallMs) -> None:
        """Memory has become short, and this holds too much of it."""
        self.paged_bytes = 0
        self.paging_since_ms = now_ms

    def note_paged(self, size_bytes: i64) -> None:
        """So much less is in memory than before a slice; less than 0 = more has come in."""
        if size_bytes > 0:
            self.paged_bytes += size_bytes

    def needs_file(self, file_no: i64) -> bool:
        """May something of journal files up to this one be needed after a crash?"""
        raise NotImplementedError

    def flush_file(self, file_no: i64, quota: i64) -> i64:
        """Write to segments what lives only in journal files up to this one.

        At most about ``quota`` messages; FLUSHED = nothing is left, the index may be synced.
        """
        raise NotImplementedError

    def flush_safe(self, quota: i64) -> i64:
        """As ``flush_file`` of all files, but for what a segment may not speak of yet."""
        raise NotImplementedError

    def journal_only_count(self) -> i64:
        """Living messages that are in the journal, and rest in no segment."""
        raise NotImplementedError

    def flushed(self, file_no: i64) -> None:
        """All that was found by ``flush_file`` is on its way to the disk, and will be synced."""
        raise NotImplementedError

    def ram_bytes(self) -> i64:
        """What of it is in memory, contents and objects, unacknowledged ones too."""
        raise NotImplementedError

    def byte_rate(self) -> i64:
        """How many of these bytes leave in a second, on the average of the last ones."""
        raise NotImplementedError

    def set_target(self, target_bytes: i64) -> None:
        """So much may stay in memory; ``INFINITE`` = all of it."""
        raise NotImplementedError

    def page(self, target_bytes: i64, quota: i64) -> bool:
        """Let go of memory over the target, about ``quota`` messages; True = there is more."""
        raise NotImplementedError

    def tick(self, now_ms: WallMs) -> bool:
        """Some time has passed: averages move; False = not again before it is woken."""
        raise NotImplementedError

    def converting(self) -> bool:
        """Is a change of mode under way that ``page`` goes on with?"""
        raise NotImplementedError

    def index_or_none(self) -> QueueIndex | None:
        raise NotImplementedError

    def segment_entries(self) -> i64:
        raise NotImplementedError

    def note_delivered(self) -> None:
        """Before a clean stop: what was handed out is to be marked so after the start."""
        raise NotImplementedError

    def may_expire(self) -> bool:
        """May a message here have a time to die?"""
        raise NotImplementedError
