"""``BackingQueue``: where the messages of one queue rest.

A queue (package ``queues``) decides which consumer gets a message and when; its backing decides
where the message is meanwhile.  Everything comes in batches, in queue order.  A
backing numbers messages with ``seq_id``: growing by one at each publish, never used
twice while the queue exists, not even across a crash.

A message is in exactly one of three states here:

    ready     can be fetched
    pending   was fetched and not yet acknowledged or requeued
    gone      acknowledged or dropped; ``SETTLED`` is set on it

The object handed out by ``fetch`` is the token for ``ack`` and ``requeue``.
"""

from typing import TYPE_CHECKING

from mypy_extensions import i64, trait

from penstock.core.clock_types import WallMs
from penstock.core.message import Message

if TYPE_CHECKING:
    from penstock.backing.deduplication import MessageKeys
    from penstock.backing.variable_queue import VariableQueue


@trait
class BackingQueue:
    """The promise of every backing.

    What returns something here says what holds of messages that are no business of variable queues:
    those of streams, and of queues of other nodes.
    """

    def publish(self, messages: list[Message], now_ms: WallMs) -> None:
        """Append; sets ``seq_id`` and ``enqueued_at_ms``; persistent ones are written.

        Written is not safe: the journal's position tells when it is on disk.
        """
        raise NotImplementedError

    def publish_delayed(self, messages: list[Message], until_ms: WallMs, now_ms: WallMs) -> None:
        """As ``publish``, but none is ready before that time."""
        raise NotImplementedError

    def delay(self, messages: list[Message], until_ms: WallMs) -> None:
        """Pending becomes delayed: not ready before that time."""
        raise NotImplementedError

    def count_delayed(self) -> i64:
        return 0

    def next_due_ms(self) -> WallMs:
        """When ``release_due`` should be called next; 0 = nothing is delayed."""
        return WallMs(0)

    def release_due(self, now_ms: WallMs, at_most: i64) -> i64:
        """What is due becomes ready at the place it had; returns how many."""
        raise NotImplementedError

    def fetch(self, max_messages: i64, max_bytes: i64) -> list[Message]:
        """Take from the head: ready becomes pending.

        At least one message comes when there is one, even if it is over ``max_bytes``; none
        while the first is on its way from the disk.  Then the reader is named by the engine
        when it has arrived (``JobBoard.take_arrived``).
        """
        raise NotImplementedError

    def fetch_surplus(self, max_messages: i64, max_bytes: i64) -> list[Message]:
        """As ``fetch``, but what an overflowing queue is to lose first."""
        return self.fetch(max_messages, max_bytes)

    def unfetch(self, messages: list[Message]) -> None:
        """The last messages of the last ``fetch`` were not handed out: ready again, unmarked."""
        raise NotImplementedError

    def ack(self, messages: list[Message]) -> None:
        """Pending becomes gone, for good."""
        raise NotImplementedError

    def ack_behind(self, messages: list[Message]) -> None:
        """As ``ack``, of messages that end because of a publish which may not be synced yet.

        What rests of them on disk stays until the journal is synced up to here.
        """
        raise NotImplementedError

    def requeue(self, messages: list[Message]) -> None:
        """Pending becomes ready again at its original place, marked redelivered."""
        raise NotImplementedError

    def note_attempts(self, messages: list[Message]) -> None:
        """The attempts counted in the flags of these pending messages have changed.

        Of those that the disk keeps it is to know them, as soon as what is written now is there.
        """
        raise NotImplementedError

    def expire(self, now_ms: WallMs, at_most: i64) -> i64:
        """Drop ready messages whose time has come; returns how many."""
        raise NotImplementedError

    def fetch_expired(self, now_ms: WallMs, max_messages: i64) -> list[Message]:
        """As ``fetch``, but only from what ``expire`` would drop: it becomes pending."""
        raise NotImplementedError

    def sweep_expired(self, now_ms: WallMs, max_messages: i64) -> list[Message]:
        """Some of what is over its time anywhere in the queue; wants an ``ack`` each.

        Their contents may rest on disk (``whole``).  None of them comes back but by a crash.
        """
        raise NotImplementedError

    def next_sweep_ms(self) -> WallMs:
        """When ``sweep_expired`` should be called next; 0 = the head comes first anyway."""
        return WallMs(0)

    def next_expiry_ms(self) -> WallMs:
        """When ``expire`` should be called next; 0 = no message here will expire."""
        return WallMs(0)

    def may_expire(self) -> bool:
        """False when surely no message here has a time to die."""
        return False

    def purge(self) -> i64:
        """Drop all ready messages, leave pending ones; returns how many."""
        raise NotImplementedError

    def purge_step(self, most: i64) -> i64:
        """A part of ``purge``, as ``drop_step`` of ``drop_below``."""
        raise NotImplementedError

    def delete(self) -> list[list[Message]]:
        """The queue is gone, on disk too; returns what it had in memory, to be freed."""
        raise NotImplementedError

    def ready_count(self) -> i64:
        raise NotImplementedError

    def ready_bytes(self) -> i64:
        """Sum of the contents of ready messages."""
        raise NotImplementedError

    def disk_count(self) -> i64:
        """Ready messages whose contents are not in memory, as far as that is known here."""
        return 0

    def drop_below(self, seq_id: i64) -> i64:
        """Acknowledge every ready message numbered below ``seq_id``; returns how many."""
        raise NotImplementedError

    def drop_step(self, below: i64, most: i64) -> i64:
        """A part of ``drop_below``: about ``most`` positions, or what goes without being read.

        Nothing is fetched for consumers meanwhile.  ``floor_seq_id`` says how far it got; no
        further than before if the disk cannot be read.
        """
        raise NotImplementedError

    def drop_some(self, seq_ids: list[int]) -> i64:
        """Acknowledge those that are ready of ascending ``seq_ids``; returns how many."""
        raise NotImplementedError

    def take_chosen(self, priority: i64, seq_ids: list[int]) -> list[Message]:
        """Those that are ready of ascending ``seq_ids``, where that priority is numbered.

        Each wants an ``ack``; its content may rest on disk (``whole``).  None of them comes back
        but by a crash.
        """
        raise NotImplementedError

    def whole(self, message: Message) -> Message | None:
        """A copy of a pending message with its content, read here and now; None = damaged."""
        raise NotImplementedError

    def await_head(self) -> None:
        """Have the first message at hand, though it costs a read here and now."""
        raise NotImplementedError

    def why_stopped(self) -> str:
        """What damage keeps this backing from handing out its head; "" = none."""
        raise NotImplementedError

    def parts(self) -> "list[VariableQueue]":
        """The variable queues it is made of, by priority."""
        return []

    def priorities(self) -> list[int]:
        """Of each of ``parts``."""
        return list(range(len(self.parts())))

    def part(self, priority: int) -> "VariableQueue | None":
        """None = there is no message of that priority, and was none."""
        places = self.priorities()
        return self.parts()[places.index(priority)] if priority in places else None

    def positions(self) -> "VariableQueue":
        """What numbers all its messages, to read them by ``seq_id``.

        Raises PreconditionFailed of a queue with priorities, QueueElsewhere of another node's.
        """
        raise NotImplementedError

    def plain(self) -> "VariableQueue | None":
        """Itself, if it is one variable queue and nothing else: only that can delay messages."""
        return None

    def keys(self) -> "MessageKeys | None":
        """Of a queue that takes a message only once."""
        return None

    def adopted(self) -> None:
        """Its parts have their messages: from before a start, or of the time as a mirror."""

    def set_reader(self, reader: object) -> None:
        """The queue to be woken when a read has arrived; only packages above look at it."""
        raise NotImplementedError

    def set_mode(self, lazy: bool) -> None:
        """Lazy: messages rest on disk.  What is here follows in the background."""

    def check(self) -> None:
        """Assert the numbered invariants of this backing; O(n), for tests."""
        raise NotImplementedError
