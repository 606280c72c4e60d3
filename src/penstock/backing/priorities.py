"""The backing of a queue with priorities: one backing for each, the highest goes first.

    publish ─► the part of the message's priority, at most the highest there is
    fetch   ◄─ the highest part that has something, then the next

    x-max-priority   0 to that number; a message without a priority has 0
    quorum queues    0 to 31; a message without one has 4.  They have no such backing before a
                     message comes that names another priority, and parts as they are needed

Parts number their messages each for itself, so a position means nothing across them: a
queue with priorities is not read by position.  A token carries its priority in its flags;
the disk does not keep it, for the part that reads a message back knows it.

While the first message of a part is on its way from the disk, lower parts give nothing:
what waits for it is as short as one read, and the order is what the queue is for.

A queue that takes a message only once (``x-message-deduplication``) has such a backing too, of one
part if it has no priorities, and ``MessageKeys`` beside it (deduplication.py).

Most queues use few of the priorities they were declared with.  ``_used`` names the parts
that ever had a message, highest first, and nothing here looks at the others.

Invariants (``check``):
  R1  ``_used`` is descending, and every part with a message ready is in it
  R2  ``_parts`` is ascending by priority
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.backing.deduplication import EVERY_SEQ_ID, MessageKeys
from penstock.backing.interface import BackingQueue
from penstock.backing.variable_queue import VariableQueue
from penstock.core.clock_types import WallMs
from penstock.core.errors import PreconditionFailed
from penstock.core.message import (
    LEAST_PRIORITY,
    PRIORITY_BITS,
    PRIORITY_MASK,
    PRIORITY_SHIFT,
    Message,
    priority_flags,
)
from penstock.storage.definitions.records import NO_PRIORITIES, QUORUM_NORMAL, QUORUM_PRIORITIES

LOWEST_FIRST: Final = "lowest"


def classic_priorities(
    parts: list[VariableQueue], drop_order: str, keys: MessageKeys | None = None
) -> "PriorityBacking":
    """``parts[p]`` holds the messages of priority p; ``drop_order``: of a full queue."""
    lowest_first = drop_order == LOWEST_FIRST
    return PriorityBacking(dict(enumerate(parts)), len(parts) - 1, 0, [], lowest_first, keys)


def without_priorities(part: VariableQueue, keys: MessageKeys) -> "PriorityBacking":
    return PriorityBacking({0: part}, NO_PRIORITIES, 0, [0], False, keys)


def quorum_priorities(normal: VariableQueue) -> "PriorityBacking":
    """Of a quorum queue whose messages without a priority are in ``normal``."""
    parts = {QUORUM_NORMAL: normal}
    return PriorityBacking(
        parts, QUORUM_PRIORITIES - 1, QUORUM_NORMAL, [QUORUM_NORMAL], False, None
    )


@final
class PriorityBacking(BackingQueue):
    """``parts``: by priority.  ``top``: the highest, or NO_PRIORITIES: all are in part 0.

    ``normal``: the priority of messages that name none.

    ``used``: the priorities that have messages already.  ``drops_lowest``: when the queue is full,
    the lowest priority loses first; else what would be delivered next.
    """

    def __init__(
        self,
        parts: dict[int, VariableQueue],
        top: i64,
        normal: i64,
        used: list[int],
        drops_lowest: bool,
        keys: MessageKeys | None,
    ) -> None:
        self._parts: dict[int, VariableQueue] = parts
        self._top: i64 = top
        self._normal: i64 = normal
        self._used: list[int] = used
        self._drops_lowest: bool = drops_lowest
        self._keys: MessageKeys | None = keys
        self._reader: object = None

    def parts(self) -> list[VariableQueue]:
        return list(self._parts.values())

    def priorities(self) -> list[int]:
        return list(self._parts)

    def keys(self) -> MessageKeys | None:
        return self._keys

    def adopted(self) -> None:
        """After recovery: parts may hold messages from before."""
        for priority, part in self._parts.items():
            if part.ready_count() > 0 or part.count_delayed() > 0:
                self._use(priority)
        if self._keys is not None:
            self._keys.adopted()

    def _use(self, priority: i64) -> VariableQueue:
        number = int(priority)
        if number not in self._used:
            self._used.append(number)
            self._used.sort(reverse=True)
        return self.part_of(number)

    def part_of(self, priority: int) -> VariableQueue:
        """Of a quorum queue it is made when it is needed."""
        part = self._parts.get(priority)
        if part is None:
            normal = self._parts[int(self._normal)]
            part = normal.sibling(priority_place(priority))
            part.set_reader(self._reader)
            part.set_mode(normal.tiers.lazy)
            self._parts[priority] = part
            self._parts = dict(sorted(self._parts.items()))
        return part

    def _priority(self, message: Message) -> i64:
        if self._top == NO_PRIORITIES:
            return 0
        priority = (message.flags & PRIORITY_MASK) >> PRIORITY_SHIFT
        if priority == 0 and message.flags & LEAST_PRIORITY == 0:
            priority = self._normal
        return priority if priority < self._top else self._top

    def _by_priority(self, messages: list[Message]) -> list[list[Message]]:
        """Of each priority that occurs, its messages in their order."""
        if len(messages) == 1:
            return [messages]
        hands: dict[int, list[Message]] = {}
        for message in messages:
            priority = int(self._priority(message))
            hand = hands.get(priority)
            if hand is None:
                hands[priority] = [message]
            else:
                hand.append(message)
        return list(hands.values())

    def _part_of(self, messages: list[Message]) -> VariableQueue:
        return self._parts[int(self._priority(messages[0]))]

    # -- in ------------------------------------------------------------------------------

    def publish(self, messages: list[Message], now_ms: WallMs) -> None:
        self._publish(messages, WallMs(0), now_ms)

    def publish_delayed(self, messages: list[Message], until_ms: WallMs, now_ms: WallMs) -> None:
        """After a start the keys of what is still delayed are not known."""
        self._publish(messages, until_ms, now_ms)

    def _publish(self, messages: list[Message], until_ms: WallMs, now_ms: WallMs) -> None:
        keys = self._keys
        if keys is not None:
            messages = keys.new_of(messages)
        for hand in self._by_priority(messages):
            priority = self._priority(hand[0])
            part = self._use(priority)
            if until_ms > 0:
                part.publish_delayed(self._marked(hand, priority), until_ms, now_ms)
            else:
                part.publish(self._marked(hand, priority), now_ms)
        if keys is not None:
            keys.published(messages)

    def delay(self, messages: list[Message], until_ms: WallMs) -> None:
        for hand in self._by_priority(messages):
            self._part_of(hand).delay(hand, until_ms)

    def count_delayed(self) -> i64:
        return sum(int(self._parts[one].count_delayed()) for one in self._used)

    def next_due_ms(self) -> WallMs:
        return _earliest([self._parts[one].next_due_ms() for one in self._used])

    def release_due(self, now_ms: WallMs, at_most: i64) -> i64:
        count: i64 = 0
        for priority in self._used:
            count += self._parts[priority].release_due(now_ms, at_most - count)
        return count

    # -- out -----------------------------------------------------------------------------

    def fetch(self, max_messages: i64, max_bytes: i64) -> list[Message]:
        if self._keys is not None and not self._keys.are_known():
            return []
        return self._fetch(self._used, max_messages, max_bytes)

    def fetch_surplus(self, max_messages: i64, max_bytes: i64) -> list[Message]:
        """The lowest priority loses first, and of it the oldest (or as ``fetch``: a setting)."""
        if self._keys is not None and self._keys.unread:
            return []
        order = self._used[::-1] if self._drops_lowest else self._used
        return self._fetch(order, max_messages, max_bytes)

    def _fetch(self, order: list[int], max_messages: i64, max_bytes: i64) -> list[Message]:
        fetched: list[Message] = []
        for priority in order:
            part = self._parts[priority]
            if part.ready_count() == 0:
                continue
            some = self._marked(part.fetch(max_messages, max_bytes), priority)
            for message in some:
                max_bytes -= message.size
            max_messages -= len(some)
            fetched.extend(some)
            if part.ready_count() > 0 or max_messages <= 0 or max_bytes <= 0:
                break
        return self._handed_out(fetched)

    def _handed_out(self, messages: list[Message]) -> list[Message]:
        if self._keys is not None:
            self._keys.handed_out(messages)
        return messages

    def _marked(self, messages: list[Message], priority: i64) -> list[Message]:
        if self._top == NO_PRIORITIES:
            return messages
        mark: i64 = 0
        if priority != self._normal:
            mark = priority_flags(priority)
        for message in messages:
            message.flags = (message.flags & ~PRIORITY_BITS) | mark
        return messages

    def unfetch(self, messages: list[Message]) -> None:
        if self._keys is not None:
            self._keys.came_back(messages)
        for hand in self._by_priority(messages):
            self._part_of(hand).unfetch(hand)

    def ack(self, messages: list[Message]) -> None:
        if self._keys is not None:
            self._keys.forget(messages)
        for hand in self._by_priority(messages):
            self._part_of(hand).ack(hand)

    def ack_behind(self, messages: list[Message]) -> None:
        if self._keys is not None:
            self._keys.forget(messages)
        for hand in self._by_priority(messages):
            self._part_of(hand).ack_behind(hand)

    def requeue(self, messages: list[Message]) -> None:
        if self._keys is not None:
            self._keys.came_back(messages)
        for hand in self._by_priority(messages):
            self._part_of(hand).requeue(hand)

    def note_attempts(self, messages: list[Message]) -> None:
        for hand in self._by_priority(messages):
            self._part_of(hand).note_attempts(hand)

    # -- time ----------------------------------------------------------------------------

    def expire(self, now_ms: WallMs, at_most: i64) -> i64:
        if self._keys is not None:
            late = self.fetch_expired(now_ms, at_most)
            self.ack(late)
            return len(late)
        count: i64 = 0
        for priority in self._used:
            count += self._parts[priority].expire(now_ms, at_most - count)
        return count

    def fetch_expired(self, now_ms: WallMs, max_messages: i64) -> list[Message]:
        return self._expired(now_ms, max_messages, is_sweep=False)

    def sweep_expired(self, now_ms: WallMs, max_messages: i64) -> list[Message]:
        return self._expired(now_ms, max_messages, is_sweep=True)

    def _expired(self, now_ms: WallMs, max_messages: i64, *, is_sweep: bool) -> list[Message]:
        late: list[Message] = []
        for priority in self._used:
            room = max_messages - len(late)
            if room <= 0:
                break
            part = self._parts[priority]
            found = (
                part.sweep_expired(now_ms, room) if is_sweep else part.fetch_expired(now_ms, room)
            )
            late.extend(self._marked(found, priority))
        return self._handed_out(late)

    def next_sweep_ms(self) -> WallMs:
        return _earliest([self._parts[one].next_sweep_ms() for one in self._used])

    def next_expiry_ms(self) -> WallMs:
        return _earliest([self._parts[one].next_expiry_ms() for one in self._used])

    def may_expire(self) -> bool:
        return any(self._parts[one].may_expire() for one in self._used)

    # -- all of it -----------------------------------------------------------------------

    def purge(self) -> i64:
        if self._keys is not None:
            self._keys.forget_ready(EVERY_SEQ_ID)
        return sum(int(part.purge()) for part in self._parts.values())

    def purge_step(self, most: i64) -> i64:
        """Keys are forgotten with the last, by ``purge``."""
        for part in self._parts.values():
            if part.ready_count() > 0:
                return part.purge_step(most)
        return 0

    def delete(self) -> list[list[Message]]:
        if self._keys is not None:
            self._keys.forget_keys()
        return [piece for part in self._parts.values() for piece in part.delete()]

    def ready_count(self) -> i64:
        return sum(int(self._parts[one].ready_count()) for one in self._used)

    def ready_bytes(self) -> i64:
        return sum(int(self._parts[one].ready_bytes()) for one in self._used)

    def set_reader(self, reader: object) -> None:
        self._reader = reader
        for part in self._parts.values():
            part.set_reader(reader)

    def set_mode(self, lazy: bool) -> None:
        for part in self._parts.values():
            part.set_mode(lazy)

    def await_head(self) -> None:
        for priority in self._used:
            if self._parts[priority].ready_count() > 0:
                self._parts[priority].await_head()
                return

    def why_stopped(self) -> str:
        """Of a mirror's copy as well, in which no priority is used."""
        for part in self._parts.values():
            why = part.why_stopped()
            if why != "":
                return why
        return ""

    def whole(self, message: Message) -> Message | None:
        whole = self._parts[int(self._priority(message))].whole(message)
        if whole is not None:
            self._marked([whole], self._priority(message))
        return whole

    # -- positions, which a queue with priorities has not --------------------------------

    def positions(self) -> VariableQueue:
        """Of one part, or of a quorum queue that has none now but normal messages."""
        if self._top == NO_PRIORITIES:
            return self._parts[0]
        for priority, part in self._parts.items():
            if self._normal == 0 or (priority != self._normal and part.tiers.living_count() > 0):
                raise _no_positions()
        return self._parts[int(self._normal)]

    def drop_below(self, seq_id: i64) -> i64:
        count = self.positions().drop_below(seq_id)
        if self._keys is not None:
            self._keys.forget_ready(seq_id)
        return count

    def drop_step(self, below: i64, most: i64) -> i64:
        part = self.positions()
        count = part.drop_step(below, most)
        if self._keys is not None:
            self._keys.forget_ready(min(below, part.tiers.floor_seq_id()))
        return count

    def drop_some(self, seq_ids: list[int]) -> i64:
        count = self.positions().drop_some(seq_ids)
        if self._keys is not None:
            self._keys.forget_chosen(seq_ids)
        return count

    def take_chosen(self, priority: i64, seq_ids: list[int]) -> list[Message]:
        taken = self._parts[int(priority)].take_chosen(0, seq_ids)
        # The disk does not know the priority, and ``ack`` asks.
        return self._handed_out(self._marked(taken, priority))

    def check(self) -> None:
        """Assert R1 and R2, and what every part promises."""
        assert self._used == sorted(set(self._used), reverse=True), "R1"
        assert list(self._parts) == sorted(self._parts), "R2"
        for priority, part in self._parts.items():
            assert part.ready_count() == 0 or priority in self._used, "R1"
            part.check()
        if self._keys is not None:
            self._keys.check()


def priority_place(priority: int) -> int:
    """Of its part among the queue ids of a quorum queue: the first is that of normal messages."""
    return (priority - QUORUM_NORMAL) % QUORUM_PRIORITIES


def _earliest(times_ms: list[WallMs]) -> WallMs:
    """0 = never, of each of them and of all."""
    return min([time_ms for time_ms in times_ms if time_ms > 0], default=WallMs(0))


def _no_positions() -> PreconditionFailed:
    return PreconditionFailed(
        "a queue with priorities (x-max-priority, or messages with a priority in a quorum queue)"
        " cannot be read by position: bind a queue without them to the same exchange, and read that"
    )
