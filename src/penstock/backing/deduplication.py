"""``MessageKeys``: what a queue knows that takes a message only once (``PriorityBacking``).

    publish ─► known key?  ─ yes ─► gone, as if it had been taken
                           ─ no ──► key noted ─► its part of the queue
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

from penstock.backing.variable_queue import VariableQueue
from penstock.core.headers import DEDUPLICATION_HEADER, HeaderReader
from penstock.core.message import PRIORITY_MASK, PRIORITY_SHIFT, Message

READ_AT_ONCE: Final[i64] = 4096
READ_BYTES: Final[i64] = 8 * 1024 * 1024
STEP_MESSAGES: Final[i64] = 128
STEP_BYTES: Final[i64] = 256 * 1024
"""A step ends with the message that makes it so much."""
EVERY_SEQ_ID: Final[i64] = 1 << 62


@final
class MessageKeys:
    """Of the messages in ``parts``, the queues of one queue by priority."""

    def __init__(self, parts: list[VariableQueue], reader: HeaderReader) -> None:
        self.duplicate_count: i64 = 0
        self.unread: bool = False  # there may be keys that are not known
        self._parts: list[VariableQueue] = parts
        self._reader: HeaderReader = reader
        self._keys: dict[str, int] = {}
        self._places: dict[int, str] = {}
        self._out: set[int] = set()
        self._coming: list[str] = []  # of what is being published
        self._read_upto: list[int] = []  # by part, while some are unread: a seq_id
        self._kept_from: list[int] = []  # likewise: what came since then may have a known key

    def _place(self, message: Message) -> int:
        """Its own among all messages of the queue, in memory or read back from disk."""
        place = int(message.seq_id) << 8  # of a late term more than 63 bits
        if len(self._parts) > 1:
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
        """Nothing is published until ``adopted``."""
        self._keys = {}
        self._places = {}
        self._out = set()

    def handed_out(self, messages: list[Message]) -> list[Message]:
        if self._places:
            for message in messages:
                place = self._place(message)
                if place in self._places:
                    self._out.add(place)
        return messages

    def came_back(self, messages: list[Message]) -> None:
        if self._out:
            for message in messages:
                self._out.discard(self._place(message))

    def adopted(self) -> None:
        """The keys of what is there are to be found; the newest of two has it."""
        self.forget_keys()  # it may have been a mirror for a while
        self._read_upto = [0] * len(self._parts)
        self._kept_from = [int(part.records.next_seq_id) for part in self._parts]
        self.unread = True

    def read_all_keys(self) -> None:
        """As far as the disk can be read.  Only a start has time for it."""
        while self.unread and self._read_keys(READ_AT_ONCE, READ_BYTES) is not None:
            pass

    def are_known(self) -> bool:
        """After one more step of reading, if need be; the queue is called again for the next."""
        left, left_bytes = STEP_MESSAGES, STEP_BYTES
        while self.unread and left > 0 and left_bytes > 0:
            if any(part.why_stopped() != "" for part in self._parts):
                return False
            messages = self._read_keys(left, left_bytes)
            if messages is None:
                return False
            left -= len(messages)
            for message in messages:
                left_bytes -= message.size
        if self.unread:
            self._parts[0].call_reader()
        return not self.unread

    def _read_keys(self, most: i64, size: i64) -> list[Message] | None:
        """Of some more messages of a part, of those from before first; returns them.

        None = the disk cannot be read.
        """
        parts = self._parts
        old = [part for part in range(len(parts)) if self._read_upto[part] < self._kept_from[part]]
        self.unread = len(old) > 0
        for number in old or range(len(parts)):
            part, start = parts[number], self._read_upto[number]
            end = self._kept_from[number] if old else EVERY_SEQ_ID
            failed_before = part.records.failed_reads
            messages = part.reads.read_range(start, end, most, size)
            self._learn(number, messages)
            if part.records.failed_reads > failed_before:
                self.unread = True
                return None
            if messages:
                self.unread = True
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
            self.duplicate_count += self._parts[priority].drop_some(repeated)

    # -- in and out ----------------------------------------------------------------------

    def new_of(self, messages: list[Message]) -> list[Message]:
        """Those to be published: no message with their key is there.  ``published`` is next.

        While keys are unread all of them; then those with a known key are gone later.
        """
        self._coming = []
        if not self.are_known():
            return messages
        taken: list[Message] = []
        new: set[str] = set()
        for message in messages:
            key = self._key(message)
            if key != "":
                if key in self._keys or key in new:
                    self.duplicate_count += 1
                    continue
                new.add(key)
            taken.append(message)
            self._coming.append(key)
        return taken

    def published(self, messages: list[Message]) -> None:
        """They have their numbers."""
        for place in range(len(self._coming)):
            if self._coming[place] != "":
                self._note(self._coming[place], self._place(messages[place]))

    def forget(self, messages: list[Message]) -> None:
        """They end."""
        if self._places:
            for message in messages:
                self._forget(self._place(message))

    def forget_chosen(self, seq_ids: list[int]) -> None:
        chosen = set(seq_ids)
        for place in list(self._places):
            if place >> 8 in chosen and place not in self._out:
                self._forget(place)

    def forget_ready(self, below: i64) -> None:
        for place in list(self._places):
            if place >> 8 < below and place not in self._out:
                self._forget(place)

    def check(self) -> None:
        """Assert K1 and K2."""
        assert {place: key for key, place in self._keys.items()} == self._places, "K1"
        assert self._out <= set(self._places), "K2"
