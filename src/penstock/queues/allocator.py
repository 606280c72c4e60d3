"""``RoundRobinAllocator``: one message each for the consumers of a priority group, in turn.

Looking for consumers with room costs one step for each consumer and each pass, never for each
message: a thousand consumers that take nothing, because their sockets are not read or their windows
are full, stand beside the deal and not in it.

    consumers with room, in turn ─► deal ─► a hand for each; messages that found no room
"""

from typing import final

from mypy_extensions import i64

from penstock.core.clock_types import WallMs
from penstock.core.message import (
    LEAST_PRIORITY,
    PRIORITY_MASK,
    PRIORITY_SHIFT,
    REDELIVERED,
    Message,
)
from penstock.queues.consumers import Consumer, PriorityGroup


@final
class Delivery:
    """Messages for one consumer, in queue order; ``again_count`` of them not for the first time."""

    def __init__(self, consumer: Consumer, messages: list[Message], again_count: i64 = 0) -> None:
        self.consumer = consumer
        self.messages = messages
        self.again_count: i64 = again_count


@final
class RoundRobinAllocator:
    """One deal; ``messages_wanted`` and ``bytes_wanted`` say what is to be fetched for it."""

    def __init__(self, ring: PriorityGroup, most_messages: i64) -> None:
        """``most_messages``: no consumer gets more in one deal."""
        self.takers: list[Consumer] = []
        self.hands: list[list[Message]] = []
        self.unacked_count: i64 = 0  # dealt, and to be settled
        self.messages_wanted: i64 = 0
        self.bytes_wanted: i64 = 0
        self._ring = ring
        self._places: list[int] = []  # of the takers in the ring
        self._rooms: list[int] = []
        count: i64 = len(ring.members)
        place = ring.next % count if count > 0 else 0
        for _ in range(count):
            consumer = ring.members[place]
            room = consumer.room()
            if room > most_messages:
                room = most_messages
            if room > 0:
                self.takers.append(consumer)
                self.hands.append([])
                self._places.append(int(place))
                self._rooms.append(int(room))
                self.messages_wanted += room
                self.bytes_wanted += consumer.outlet.room_bytes()
            place += 1
            if place == count:
                place = 0

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
            last = taker
            dealt += 1
            turn += 1
        if last >= 0:
            self._ring.served_upto(self._places[last])
        return messages[dealt:]


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


def place_in_queue(message: Message) -> int:
    """Its own among all messages of the queue: parts of a queue number theirs each for itself."""
    part = (message.flags & PRIORITY_MASK) >> PRIORITY_SHIFT
    if message.flags & LEAST_PRIORITY:
        part = 255  # quorum queues, the only ones with that bit, end at 31
    return int(message.seq_id << 8 | part)


def in_order(messages: list[Message], deliveries: list[Delivery]) -> list[Delivery]:
    """The same in message order: two consumers of one session see it."""
    takers: dict[int, Consumer] = {}
    for delivery in deliveries:
        for message in delivery.messages:
            takers[place_in_queue(message)] = delivery.consumer
    return [Delivery(takers[place_in_queue(message)], [message]) for message in messages]
