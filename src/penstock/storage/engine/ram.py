"""``RamAccount``: how many bytes of messages are in memory, over all queues of a node.

Freed contents do not leave the resident size of the process at once, so memory is counted
here and not asked of the system: each message as its content plus ``MESSAGE_OVERHEAD_BYTES``,
ready and unacknowledged alike, what waits for the disk in segments and stores, contents that have
come in part, what sessions have not sent, what is kept for other nodes, and what streams keep for
their readers.
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.storage.index.segment_jobs import WriteAccount

MESSAGE_OVERHEAD_BYTES: Final[i64] = 200
"""Of one message in memory beside its content: the object, its address, list places, malloc."""

WRITES_WAITING_MAX_BYTES: Final[i64] = 32 * 1024 * 1024

SHORT_PART: Final[i64] = 5
"""Memory is short from ``paging_bytes`` on, until one part in so many of that is free.  Queues
may keep nine tenths of it, so the target of a queue that fills up does not come and go."""

UNCOMMITTED_PART: Final[i64] = 4
"""One part in so many of the limit is for what is not committed: nothing but its end frees it, and
that could not come while publishers are held."""

INPUT_FREE_BYTES: Final[i64] = 1024 * 1024
INPUT_PART: Final[i64] = 4
INPUT_ALONE_PART: Final[i64] = 2
"""One part in so many of the limit is for contents that have come in part, of all peers and of one
that is the only one."""


@final
class RamAccount:
    """Queues page when ``used`` is over ``paging_bytes``; publishers wait over ``limit_bytes``."""

    def __init__(self, limit_bytes: i64, paging_bytes: i64, writes: WriteAccount) -> None:
        self.limit_bytes: i64 = limit_bytes
        self.paging_bytes: i64 = paging_bytes
        self.queued_bytes: i64 = 0
        self.cached_bytes: i64 = 0  # contents that wait for the message stores' files
        self.uncommitted_bytes: i64 = 0  # published in transactions that are not over
        self.input_bytes: i64 = 0  # of contents that have come in part
        self.output_bytes: i64 = 0  # written for peers that have not taken it
        self.link_bytes: i64 = 0  # sent to other nodes, which have not said that they have it
        self.stream_bytes: i64 = 0  # of the streams' readers, and read last
        self.ending_bytes: i64 = 0  # of channels that are over, until all is given back
        self._writes: WriteAccount = writes

    def set_limits(self, limit_bytes: i64, paging_bytes: i64) -> None:
        self.limit_bytes = limit_bytes
        self.paging_bytes = paging_bytes

    def count_links(self, size_bytes: i64) -> None:
        """What all links to other nodes have under way."""
        self.link_bytes = size_bytes

    def count_streams(self, size_bytes: i64) -> None:
        """What all streams have in memory for readers."""
        self.stream_bytes = size_bytes

    def used_bytes(self) -> i64:
        waiting = self.cached_bytes + self._writes.waiting_bytes
        leaving = self.output_bytes + self.link_bytes + self.ending_bytes
        coming = self.uncommitted_bytes + self.input_bytes
        return self.queued_bytes + coming + waiting + leaving + self.stream_bytes

    def count_output(self, unsent_bytes: i64) -> None:
        """Sessions have written so much that sockets have not taken."""
        self.output_bytes = unsent_bytes

    def count_ending(self, more_bytes: i64) -> None:
        self.ending_bytes += more_bytes

    def take_uncommitted(self, size_bytes: i64) -> bool:
        """False = transactions take so much already that they might never come to an end."""
        if self.uncommitted_bytes + size_bytes > self.limit_bytes // UNCOMMITTED_PART:
            return False
        self.uncommitted_bytes += size_bytes
        return True

    def give_back_uncommitted(self, size_bytes: i64) -> None:
        """A transaction is over."""
        self.uncommitted_bytes -= size_bytes

    def take_input(self, more_bytes: i64, whole_bytes: i64, held_bytes: i64) -> bool:
        """A peer has sent ``more_bytes`` of contents, and ``whole_bytes`` of what is unfinished.

        ``held_bytes`` are whole already and wait, over all peers.  False = that is more than one
        peer may have.  Small ones are always taken: else a few peers would keep out all others.
        """
        self.input_bytes += more_bytes
        if whole_bytes <= INPUT_FREE_BYTES:
            return True
        others_bytes = self.input_bytes - whole_bytes + held_bytes
        part = INPUT_ALONE_PART if others_bytes <= INPUT_FREE_BYTES else INPUT_PART
        return others_bytes + whole_bytes <= self.limit_bytes // part

    def disk_is_busy(self) -> bool:
        """So much waits for it that more would only be more in memory; its end wakes the loop."""
        return self.cached_bytes + self._writes.waiting_bytes > WRITES_WAITING_MAX_BYTES

    def must_page(self) -> bool:
        return self.used_bytes() > self.paging_bytes

    def is_short(self) -> bool:
        """Is there so little that targets, once given, hold on?"""
        return self.used_bytes() > self.paging_bytes - self.paging_bytes // SHORT_PART

    def is_full(self) -> bool:
        return self.used_bytes() > self.limit_bytes
