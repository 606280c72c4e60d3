"""``RamAccount``: how many bytes of messages are in memory, over all queues of a node.

Freed contents do not leave the resident size of the process at once, so memory is counted
here and not asked of the system: each message as its content plus ``MESSAGE_OVERHEAD_BYTES``,
ready and unacknowledged alike, what waits for the disk in segments and stores, what sessions
have not sent, and what is kept for other nodes.
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.storage.segment_jobs import WriteAccount

MESSAGE_OVERHEAD_BYTES: Final[i64] = 200
"""Of one message in memory beside its content: the object, its address, list places, malloc."""

UNCOMMITTED_PART: Final[i64] = 4
"""One part in so many of the limit is for what is not committed: nothing but its end frees it, and
that could not come while publishers are held."""


@final
class RamAccount:
    """Queues page when ``used`` is over ``paging_bytes``; publishers wait over ``limit_bytes``."""

    def __init__(self, limit_bytes: i64, paging_bytes: i64, writes: WriteAccount) -> None:
        self.limit_bytes: i64 = limit_bytes
        self.paging_bytes: i64 = paging_bytes
        self.queued_bytes: i64 = 0
        self.cached_bytes: i64 = 0  # contents that wait for the message stores' files
        self.uncommitted_bytes: i64 = 0  # published in transactions that are not over
        self.output_bytes: i64 = 0  # written for peers that have not taken it
        self.link_bytes: i64 = 0  # sent to other nodes, which have not said that they have it
        self._writes: WriteAccount = writes

    def used_bytes(self) -> i64:
        waiting = self.cached_bytes + self._writes.waiting_bytes
        leaving = self.output_bytes + self.link_bytes
        return self.queued_bytes + self.uncommitted_bytes + waiting + leaving

    def take_uncommitted(self, size_bytes: i64) -> bool:
        """False = transactions take so much already that they might never come to an end."""
        if self.uncommitted_bytes + size_bytes > self.limit_bytes // UNCOMMITTED_PART:
            return False
        self.uncommitted_bytes += size_bytes
        return True

    def must_page(self) -> bool:
        return self.used_bytes() > self.paging_bytes

    def is_full(self) -> bool:
        return self.used_bytes() > self.limit_bytes
