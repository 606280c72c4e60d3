"""``SideLog``: logs beside the journal that are written and synced with its groups.

In: what was appended to them since the last seal.  Out: a ``SideGroup``, which the committer gives
to the ``SideWriter`` before it writes the journal's block of the same group.  Streams are such
logs (``streams/streams.py``); these classes stand for a node that has none.
"""

from mypy_extensions import i64, mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class SideGroup:
    """What the logs sealed at once.

    ``small``: it takes one write and one sync, of a file that is there already.
    """

    def __init__(self) -> None:
        self.small: bool = False

    def ends(self) -> dict[int, int]:
        """Queue id -> up to where its log is on disk when the group is."""
        return {}


@mypyc_attr(allow_interpreted_subclasses=True)
class SideLog:
    """All logs of a node.

    ``dirty``           there is something to seal
    ``unsealed_bytes``  what was appended since the last seal
    """

    def __init__(self) -> None:
        self.dirty: bool = False
        self.unsealed_bytes: i64 = 0
        self._faults: list[str] = []

    def seal(self) -> SideGroup | None:
        """Freeze what was appended: each append has a record in the journal's group, too."""
        return None

    def committed(self, group: SideGroup) -> None:
        """It is on disk."""

    def reader(self, queue_id: i64) -> object:
        """The queue for which something of that log has arrived; None = there is none."""
        return None

    def stopped(self, queue_id: i64, why: str) -> None:
        """Nothing more can be read of that log for now."""
        self._faults.append(f"queue {int(queue_id)} is stopped: {why}")

    def memory_bytes(self, limit_bytes: i64) -> i64:
        """What it has in memory for readers: a part of the limit of the node's memory at most."""
        return 0

    def take_faults(self) -> list[str]:
        """A sentence for each stop since the last time."""
        faults = self._faults
        self._faults = []
        return faults

    def next_offsets(self) -> dict[int, int]:
        """Of a clean stop: queue id -> the offset behind its last message."""
        return {}


@mypyc_attr(allow_interpreted_subclasses=True)
class SideWriter:
    """Puts groups on the disk; belongs to the committer's thread.

    An ``OSError`` of ``write`` for want of space may be tried again; any other is final.
    ``unsynced``: something was written since the last sync.
    """

    def __init__(self) -> None:
        self.unsynced: bool = False

    def write(self, group: SideGroup) -> None:
        """A node without such logs seals none."""

    def sync(self) -> None:
        """Bring everything written so far to the disk."""

    def close(self) -> None:
        """Let go of all files, without a sync."""
