"""``RemoteBacking``: the backing of a queue whose messages rest on another node.

It holds nothing but what the master's node last said of it, so that whoever counts messages may go
on asking.  Nothing is ever fetched here: ``RemoteQueue`` has what arrives.  Who would look at its
messages, or choose some, is told on which node that is possible (``QueueElsewhere``).
"""

from typing import final

from mypy_extensions import i64

from penstock.backing.interface import BackingQueue, Measured
from penstock.core.errors import NoMaster, QueueElsewhere
from penstock.core.message import Message


@final
class RemoteBacking(BackingQueue):
    """See the head of this file."""

    def __init__(self) -> None:
        self.master: str = ""  # its node; "" = there is none at present
        self.down: str = ""  # why none is expected
        self.reported_count: i64 = 0
        self.reported_bytes: i64 = 0

    def elsewhere(self) -> QueueElsewhere:
        """To be raised."""
        if self.master == "":
            return NoMaster(
                self.down or "this queue has no master at present: it waits for its next"
            )
        return QueueElsewhere(
            f"the master of this queue is on another node: ask '{self.master}' to look at or choose"
            " its messages"
        )

    # -- what is known --------------------------------------------------------------------

    def ready_count(self) -> i64:
        return self.reported_count

    def ready_bytes(self) -> i64:
        return self.reported_bytes

    def count_delayed(self) -> i64:
        return 0

    def parts(self) -> list[BackingQueue]:
        return []

    def why_stopped(self) -> str:
        return ""

    def may_expire(self) -> bool:
        return False

    def next_due_ms(self) -> i64:
        return 0

    def next_expiry_ms(self) -> i64:
        return 0

    def next_sweep_ms(self) -> i64:
        return 0

    def set_reader(self, reader: object) -> None:
        """Nothing arrives from a disk."""

    def set_mode(self, lazy: bool) -> None:
        """The master has it from the same policy."""

    def delete(self) -> None:
        self.reported_count = 0
        self.reported_bytes = 0

    def check(self) -> None:
        assert self.reported_count >= 0

    # -- what cannot be here --------------------------------------------------------------

    def release_due(self, now_ms: i64, at_most: i64) -> i64:
        return 0

    def expire(self, now_ms: i64) -> i64:
        return 0

    def fetch_expired(self, now_ms: i64, max_messages: i64) -> list[Message]:
        return []

    def sweep_expired(self, now_ms: i64, max_messages: i64) -> list[Message]:
        return []

    def fetch(self, max_messages: i64, max_bytes: i64) -> list[Message]:
        raise self.elsewhere()

    def read_range(self, start: i64, end: i64, max_messages: i64, max_bytes: i64) -> list[Message]:
        raise self.elsewhere()

    def read_some(self, start: i64, end: i64, max_messages: i64, max_bytes: i64) -> list[Message]:
        raise self.elsewhere()

    def peek_range(self, start: i64, end: i64, max_messages: i64, max_bytes: i64) -> list[Message]:
        raise self.elsewhere()

    def measure_range(self, start: i64, end: i64, max_messages: i64, max_bytes: i64) -> Measured:
        raise self.elsewhere()

    def floor_seq_id(self) -> i64:
        raise self.elsewhere()

    def next_seq_id(self) -> i64:
        raise self.elsewhere()

    def take_chosen(self, priority: i64, seq_ids: list[int]) -> list[Message]:
        raise self.elsewhere()

    def drop_below(self, seq_id: i64) -> i64:
        raise self.elsewhere()

    def drop_step(self, below: i64, most: i64) -> i64:
        raise self.elsewhere()

    def drop_some(self, seq_ids: list[int]) -> i64:
        raise self.elsewhere()
