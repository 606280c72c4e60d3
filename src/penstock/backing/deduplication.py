"""A backing that takes a message only once: around any other, for queues that ask for it.

    publish ─► known key?  ─ yes ─► gone, as if it had been taken
                           ─ no ──► key noted ─► the backing within
    acknowledged, dropped, expired, purged: its key is forgotten

A message's key is its header ``x-deduplication-header``; those without one are all taken.
A key is known as long as a message with it is in the queue, ready or handed out, as the
community's plug-in for RabbitMQ has it (``x-message-deduplication``).

Keys are in memory: about 200 bytes for each message that has one, wherever the message
rests.  A start reads the messages to find them again, a mirror that becomes master reads them in
steps, one for each publish and fetch.  Until all are read, or while that fails, nothing is known to
be new: what is published is kept, and nothing is handed out.  What was published meanwhile with a
key that was there is gone then.

Invariants (``check``):
  K1  keys and places are each other's inverse
  K2  what is handed out and has a key is in ``_out``; the others in ``_keys`` are ready
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.backing.interface import BackingQueue
from penstock.backing.variable_queue import VariableQueue
from penstock.core.clock_types import WallMs
from penstock.core.headers import DEDUPLICATION_HEADER, HeaderReader
from penstock.core.message import PRIORITY_MASK, PRIORITY_SHIFT, Message

READ_AT_ONCE: Final[i64] = 4096
READ_BYTES: Final[i64] = 8 * 1024 * 1024
STEP_MESSAGES: Final[i64] = 128
STEP_BYTES: Final[i64] = 256 * 1024
"""A step ends with the message that makes it so much."""
EVERY_SEQ_ID: Final[i64] = 1 << 62


@final
class DeduplicatingBacking(BackingQueue):
    """``within`` is the backing that holds the messages."""

    def __init__(self, within: BackingQueue, reader: HeaderReader) -> None:
        self.duplicate_count: i64 = 0
        self._within: BackingQueue = within
        self._reader: HeaderReader = reader
        self._keys: dict[str, int] = {}
        self._places: dict[int, str] = {}
        self._out: set[int] = set()
        self._has_parts: bool = len(within.parts()) > 1
        self._unread: bool = False  # there may be keys that are not known
        self._read_upto: list[int] = []  # by part, while that is so: a seq_id
        self._kept_from: list[int] = []  # likewise: what came since then may have a known key

    def parts(self) -> list[VariableQueue]:
        return self._within.parts()

    def priorities(self) -> list[int]:
        return self._within.priorities()

    def within(self) -> BackingQueue:
        return self._within

    # -- keys ----------------------------------------------------------------------------

    def _place(self, message: Message) -> int:
        """Its own among all messages of the queue, in memory or read back from disk."""
        place = int(message.seq_id) << 8  # of a late term more than 63 bits
        if self._has_parts:
            place |= int((message.flags & PRIORITY_MASK) >> PRIORITY_SHIFT)
        return place

    def _key(self, message: Message) -> str:
        value = self._reader.read(message, DEDUPLICATION_HEADER)
        return "" if value is None else f"{type(value).__name__} {value}"

    def _note(self, key: str, place: int) -> None:
        self._keys[key] = place
        self._places[place] = key

    def _forget(self, place: int) -> None:
        key = self._places.pop(place, None)
        if key is not None:
            del self._keys[key]
            self._out.discard(place)

    def forget_keys(self) -> None:
        """Nothing is published here until ``adopted``."""
        self._keys = {}
        self._places = {}
        self._out = set()

    def _handed_out(self, messages: list[Message]) -> list[Message]:
        if self._places:
            for message in messages:
                place = self._place(message)
                if place in self._places:
                    self._out.add(place)
        return messages

    def _came_back(self, messages: list[Message]) -> None:
        if self._out:
            for message in messages:
                self._out.discard(self._place(message))

    def adopted(self) -> None:
        """The keys of what is there are to be found; the newest of two has it."""
        self._within.adopted()
        self.forget_keys()  # it may have been a mirror for a while
        parts = self._within.parts()
        self._read_upto = [0] * len(parts)
        self._kept_from = [int(part.records.next_seq_id) for part in parts]
        self._unread = True

    def read_all_keys(self) -> None:
        """As far as the disk can be read.  Only a start has time for it."""
        while self._unread and self._read_keys(READ_AT_ONCE, READ_BYTES) is not None:
            pass

    def _knows_keys(self) -> bool:
        """After one more step of reading, if need be; the queue is called again for the next."""
        left, left_bytes = STEP_MESSAGES, STEP_BYTES
        while self._unread and left > 0 and left_bytes > 0:
            if self._within.why_stopped() != "":
                return False
            messages = self._read_keys(left, left_bytes)
            if messages is None:
                return False
            left -= len(messages)
            for message in messages:
                left_bytes -= message.size
        if self._unread:
            self._within.parts()[0].call_reader()
        return not self._unread

    def _read_keys(self, most: i64, size: i64) -> list[Message] | None:
        """Of some more messages of a part, of those from before first; returns them.

        None = the disk cannot be read.
        """
        parts = self._within.parts()
        old = [part for part in range(len(parts)) if self._read_upto[part] < self._kept_from[part]]
        self._unread = len(old) > 0
        for number in old or range(len(parts)):
            part, start = parts[number], self._read_upto[number]
            end = self._kept_from[number] if old else EVERY_SEQ_ID
            failed_before = part.records.failed_reads
            messages = part.reads.read_range(start, end, most, size)
            self._learn(number, messages)
            if part.records.failed_reads > failed_before:
                self._unread = True
                return None
            if messages:
                self._unread = True
                self._read_upto[number] = int(messages[-1].seq_id) + 1
                return messages
            if old:
                self._read_upto[number] = end
        return []

    def _learn(self, priority: i64, messages: list[Message]) -> None:
        """The newer of two has their key; but what came while keys were unknown is gone."""
        repeated: list[int] = []
        for message in messages:
            key = self._key(message)
            if key == "":
                continue
            place = int(message.seq_id) << 8 | int(priority)
            known = self._keys.get(key, place)
            if known != place and message.seq_id >= self._kept_from[priority]:
                repeated.append(int(message.seq_id))
            else:
                self._places.pop(known, None)
                self._note(key, place)
        if repeated:
            self.duplicate_count += self._within.parts()[priority].drop_some(repeated)

    # -- in and out ----------------------------------------------------------------------

    def publish(self, messages: list[Message], now_ms: WallMs) -> None:
        self._publish(messages, WallMs(0), now_ms)

    def publish_delayed(self, messages: list[Message], until_ms: WallMs, now_ms: WallMs) -> None:
        """After a start the keys of what is still delayed are not known."""
        self._publish(messages, until_ms, now_ms)

    def _publish(self, messages: list[Message], until_ms: WallMs, now_ms: WallMs) -> None:
        if not self._knows_keys():
            self._put(messages, until_ms, now_ms)
            return
        taken: list[Message] = []
        keys: list[str] = []
        new: set[str] = set()
        for message in messages:
            key = self._key(message)
            if key != "":
                if key in self._keys or key in new:
                    self.duplicate_count += 1
                    continue
                new.add(key)
            taken.append(message)
            keys.append(key)
        if not taken:
            return
        self._put(taken, until_ms, now_ms)
        for place in range(len(taken)):
            if keys[place] != "":
                self._note(keys[place], self._place(taken[place]))

    def _put(self, messages: list[Message], until_ms: WallMs, now_ms: WallMs) -> None:
        if until_ms > 0:
            self._within.publish_delayed(messages, until_ms, now_ms)
        else:
            self._within.publish(messages, now_ms)

    def fetch(self, max_messages: i64, max_bytes: i64) -> list[Message]:
        if not self._knows_keys():
            return []
        return self._handed_out(self._within.fetch(max_messages, max_bytes))

    def fetch_surplus(self, max_messages: i64, max_bytes: i64) -> list[Message]:
        if self._unread:
            return []
        return self._handed_out(self._within.fetch_surplus(max_messages, max_bytes))

    def unfetch(self, messages: list[Message]) -> None:
        self._came_back(messages)
        self._within.unfetch(messages)

    def requeue(self, messages: list[Message]) -> None:
        self._came_back(messages)
        self._within.requeue(messages)

    def ack(self, messages: list[Message]) -> None:
        self._forget_all(messages)
        self._within.ack(messages)

    def ack_behind(self, messages: list[Message]) -> None:
        self._forget_all(messages)
        self._within.ack_behind(messages)

    def _forget_all(self, messages: list[Message]) -> None:
        if self._places:
            for message in messages:
                self._forget(self._place(message))

    def expire(self, now_ms: WallMs, at_most: i64) -> i64:
        late = self.fetch_expired(now_ms, at_most)
        if late:
            self.ack(late)
        return len(late)

    def fetch_expired(self, now_ms: WallMs, max_messages: i64) -> list[Message]:
        return self._handed_out(self._within.fetch_expired(now_ms, max_messages))

    def sweep_expired(self, now_ms: WallMs, max_messages: i64) -> list[Message]:
        return self._handed_out(self._within.sweep_expired(now_ms, max_messages))

    def purge(self) -> i64:
        self._forget_ready(EVERY_SEQ_ID)
        return self._within.purge()

    def drop_below(self, seq_id: i64) -> i64:
        count = self._within.drop_below(seq_id)
        self._forget_ready(seq_id)
        return count

    def drop_step(self, below: i64, most: i64) -> i64:
        count = self._within.drop_step(below, most)
        floor = self.positions().tiers.floor_seq_id()
        self._forget_ready(below if below < floor else floor)
        return count

    def drop_some(self, seq_ids: list[int]) -> i64:
        count = self._within.drop_some(seq_ids)
        chosen = set(seq_ids)
        for place in list(self._places):
            if place >> 8 in chosen and place not in self._out:
                self._forget(place)
        return count

    def take_chosen(self, priority: i64, seq_ids: list[int]) -> list[Message]:
        return self._handed_out(self._within.take_chosen(priority, seq_ids))

    def _forget_ready(self, below: i64) -> None:
        for place in list(self._places):
            if place >> 8 < below and place not in self._out:
                self._forget(place)

    def purge_step(self, most: i64) -> i64:
        """The keys are forgotten with the last, by ``purge``."""
        return self._within.purge_step(most)

    def delete(self) -> list[list[Message]]:
        self.forget_keys()
        return self._within.delete()

    # -- as within -----------------------------------------------------------------------

    def count_delayed(self) -> i64:
        return self._within.count_delayed()

    def next_due_ms(self) -> WallMs:
        return self._within.next_due_ms()

    def release_due(self, now_ms: WallMs, at_most: i64) -> i64:
        return self._within.release_due(now_ms, at_most)

    def next_sweep_ms(self) -> WallMs:
        return self._within.next_sweep_ms()

    def next_expiry_ms(self) -> WallMs:
        return self._within.next_expiry_ms()

    def may_expire(self) -> bool:
        return self._within.may_expire()

    def note_attempts(self, messages: list[Message]) -> None:
        self._within.note_attempts(messages)

    def ready_count(self) -> i64:
        return self._within.ready_count()

    def positions(self) -> VariableQueue:
        return self._within.positions()

    def ready_bytes(self) -> i64:
        return self._within.ready_bytes()

    def whole(self, message: Message) -> Message | None:
        return self._within.whole(message)

    def await_head(self) -> None:
        self._within.await_head()

    def why_stopped(self) -> str:
        return self._within.why_stopped()

    def set_reader(self, reader: object) -> None:
        self._within.set_reader(reader)

    def set_mode(self, lazy: bool) -> None:
        self._within.set_mode(lazy)

    def check(self) -> None:
        """Assert K1 and K2, and what the backing within promises."""
        assert {place: key for key, place in self._keys.items()} == self._places, "K1"
        assert self._out <= set(self._places), "K2"
        self._within.check()
