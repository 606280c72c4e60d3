"""``RoundRobinAllocator``: one message each for the consumers of a priority group, in turn.

    ring ─► consumers with room, no more than messages ─► deal ─► a hand for each ─► ring
                                                              └─► messages that found no room

A deal costs steps for the messages it deals, and none for consumers that get nothing.  Of a crowd
it takes only as many consumers as one pass has messages for; where the queue has several for each
consumer of the crowd, one gets several together, because each delivery is a write and comes back as
a read.
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.core.clock_types import WallMs
from penstock.core.message import REDELIVERED, Message
from penstock.queues.consumers import UNLIMITED, Consumer, PriorityGroup

DELIVER_MESSAGES_MAX: Final[i64] = 8192
DELIVER_BYTES_MAX: Final[i64] = 256 * 1024
"""One pass stays within the processor's cache, and lets other queues have their turn; but it
takes at least what one read of a socket can bring, else publishers outrun consumers."""
DELIVERIES_AT_ONCE: Final[i64] = 1024
"""Each costs its session much more than one message more in it: no pass makes more of them."""
CROWD: Final[i64] = 64
"""More consumers in turn than this are a crowd."""
TOGETHER_MOST: Final[i64] = 8
"""Messages that one consumer of a crowd gets before the next in turn, in one delivery."""


@final
class Delivery:
    """Messages for one consumer, in queue order; ``again_count`` of them not for the first time.

    ``kept``: what its session keeps until it is settled, if not the messages themselves.
    """

    def __init__(
        self,
        consumer: Consumer,
        messages: list[Message],
        again_count: i64 = 0,
        kept: list[Message] | None = None,
    ) -> None:
        self.consumer = consumer
        self.messages = messages
        self.kept = messages if kept is None else kept
        self.again_count: i64 = again_count


@final
class RoundRobinAllocator:
    """One deal; ``messages_wanted`` and ``bytes_wanted`` say what is to be fetched for it.

    What it took out of the ring is back there after ``deal``.
    """

    def __init__(
        self, group: PriorityGroup, ready: i64, ready_bytes: i64, most_takers: i64
    ) -> None:
        """``ready``: so many messages wait, of so many bytes."""
        self.takers: list[Consumer] = []
        self.hands: list[list[Message]] = []
        self.unacked_count: i64 = 0  # dealt, and to be settled
        self.messages_wanted: i64 = 0
        self.bytes_wanted: i64 = 0
        self._ring = group.ring
        self._rooms: list[int] = []
        # Two consumers of one session see the messages in order, each in a delivery of its own.
        self._in_order: bool = group.shares_holder
        self._turns: list[int] = []  # in that case, who got them: places in ``takers``
        crowd = self._ring.length()
        enough = UNLIMITED
        together: i64 = 1
        if crowd > CROWD:
            enough = _messages_in_a_pass(ready, ready_bytes)
            if not self._in_order:
                together = min(max(ready // crowd, 1), TOGETHER_MOST)
        expected: i64 = 0
        while expected < enough and len(self.takers) < min(ready, most_takers):
            consumer = self._ring.take()
            if consumer is None:
                break
            self.takers.append(consumer)
            self.hands.append([])
            expected += min(consumer.room(), together)
        # No consumer gets its next ones before all others in the ring had theirs.
        most = together if self._ring.has_room() else DELIVER_MESSAGES_MAX
        for consumer in self.takers:
            room = min(consumer.room(), most)
            self._rooms.append(int(room))
            self.messages_wanted += room
            self.bytes_wanted += consumer.outlet.room_bytes()
        if self._in_order and self.messages_wanted > most_takers:
            self.messages_wanted = most_takers

    def deal(self, messages: list[Message]) -> list[Message]:
        """Returns the last messages, for which no consumer had room."""
        rooms = self._rooms
        still: list[int] = list(range(len(self.takers)))  # that may still have room
        turn: i64 = 0
        dealt: i64 = 0
        last: i64 = -1
        for message in messages:
            taker: i64 = -1
            while len(still) > 0:
                if turn >= len(still):
                    turn = 0
                taker = still[turn]
                # A shared window shrinks while we deal, so room is asked for each message.
                if rooms[taker] > 0 and self.takers[taker].shared.room() > 0:
                    break
                del still[turn]
            if len(still) == 0:
                break
            self.hands[taker].append(message)
            rooms[taker] -= 1
            consumer = self.takers[taker]
            if not consumer.no_ack:
                consumer.take(1)
                self.unacked_count += 1
            if self._in_order:
                self._turns.append(int(taker))
            last = taker
            dealt += 1
            turn += 1
        self._ring.put_first(self.takers[last + 1 :])
        self._ring.put_last(self.takers[: last + 1])
        return messages[dealt:]

    def deliveries(self, messages: list[Message]) -> list[Delivery]:
        """Of what was dealt; ``messages`` as they were given to ``deal``."""
        if self._in_order:
            return [
                Delivery(self.takers[self._turns[place]], [messages[place]])
                for place in range(len(self._turns))
            ]
        return [
            Delivery(self.takers[place], self.hands[place])
            for place in range(len(self.takers))
            if len(self.hands[place]) > 0
        ]


def _messages_in_a_pass(ready: i64, ready_bytes: i64) -> i64:
    """About as many as ``DELIVER_BYTES_MAX`` holds; a few, where they are large."""
    if ready_bytes <= 0:
        return DELIVER_MESSAGES_MAX
    return max(DELIVER_BYTES_MAX * ready // ready_bytes, CROWD)


def stamp(messages: list[Message], latest_ms: WallMs) -> None:
    """None lives longer than that."""
    for message in messages:
        if message.expires_at_ms == 0 or message.expires_at_ms > latest_ms:
            message.expires_at_ms = latest_ms


def is_late(message: Message, now_ms: WallMs) -> bool:
    """Is its time to live over: too late for a first delivery, or for another one?"""
    if message.flags & REDELIVERED:
        return 0 < message.expires_at_ms <= now_ms
    return 0 < message.expires_at_ms < now_ms
