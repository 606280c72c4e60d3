"""``PendingAcks``: what was handed out and waits for its acknowledgement.

The field keeps three trees (body in memory, body on disk, embedded); here the message says
itself which it is, and all are in one list in the order of delivery.  Settling is a flag on
the message and two counters, no look-up; the list is cleaned when half of it is dead, so
that costs amortised constant time, and at the latest when the dead hold a megabyte.

Invariants (``check``):
  P1  count and bytes are the sums over the entries that are PENDING; ram_bytes and ram_count
      over those of them whose content is in memory
  P2  no living entry is given twice (one that came back and went out again is in the list
      twice)
  P3  none before ``_rested`` is PENDING and in the journal alone, unless it is in the list twice
"""

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from penstock.backing.message_deque import NO_MESSAGES
from penstock.core.message import INDEXED, LOGGED, PENDING, STORED, Message

DEAD_MIN: Final[i64] = 1024
DEAD_BYTES_MAX: Final[i64] = 1024 * 1024


def is_restless(message: Message) -> bool:
    """Is it handed out, and in the journal alone?"""
    return message.flags & (PENDING | LOGGED | INDEXED) == PENDING | LOGGED


def may_rest(message: Message, file_no: i64, below: i64, durable_msg_id: i64) -> bool:
    """Does it belong to a flush of these files of the journal?"""
    return (
        message.file_no <= file_no
        and message.seq_id < below
        and (not message.flags & STORED or message.msg_id <= durable_msg_id)
    )


@final
@mypyc_attr(acyclic=True)
class PendingAcks:
    def __init__(self) -> None:
        self.count: i64 = 0
        self.bytes: i64 = 0
        self.ram_count: i64 = 0
        self.ram_bytes: i64 = 0
        self.highest_seq_id: i64 = -1  # never below that of any entry
        self._entries: list[Message] = NO_MESSAGES
        self._dead_bytes: i64 = 0
        self._came_back: bool = False  # some that may be in the list are none of these any more
        self._has_twice: bool = False  # and may have been added again
        self._rested: i64 = 0  # none before this place is in the journal alone
        # Between these places nothing has its content in memory.
        self._trimmed_start: i64 = 0
        self._trimmed_end: i64 = 0

    def add(self, messages: list[Message], size: i64) -> None:
        """All with their contents at hand, flagged PENDING, ascending."""
        count: i64 = len(messages)
        if self.count == 0:
            self._entries = messages[:]
            self._forget()
        else:
            self._entries.extend(messages)
            self._has_twice = self._came_back
        self.count += count
        self.bytes += size
        self.ram_count += count
        self.ram_bytes += size
        last = messages[count - 1].seq_id
        if last > self.highest_seq_id:
            self.highest_seq_id = last

    def remove(self, count: i64, size: i64, ram_count: i64, ram_bytes: i64) -> None:
        """So many are not PENDING any more; the caller has cleared their flags."""
        self.count -= count
        self.bytes -= size
        self.ram_count -= ram_count
        self.ram_bytes -= ram_bytes
        self._dead_bytes += ram_bytes
        if self.count == 0:
            self._entries = NO_MESSAGES
            self._forget()
            return
        here: i64 = len(self._entries)
        if here > 2 * self.count + DEAD_MIN or (
            self._dead_bytes > DEAD_BYTES_MAX and self._dead_bytes > self.ram_bytes
        ):
            self._clean()

    def youngest_in_ram(self, quota: i64) -> list[Message]:
        """Up to so many whose content is in memory, from the end."""
        if self._has_twice:
            self._clean()
        found: list[Message] = []
        place: i64 = len(self._entries)
        while place > 0 and len(found) < quota and len(found) < self.ram_count:
            if place == self._trimmed_end and self._trimmed_start < place:
                place = self._trimmed_start  # those in between have lost it before
                continue
            place -= 1
            message = self._entries[place]
            if message.flags & PENDING and len(message.content) > 0:
                found.append(message)
        self._trimmed_start = place
        self._trimmed_end = len(self._entries)
        return found

    def trimmed(self, count: i64, size: i64) -> None:
        """Those just found have lost their content; 0 = they have not."""
        self.ram_count -= count
        self.ram_bytes -= size
        if count == 0:
            self._trimmed_start = 0
            self._trimmed_end = 0

    def regained(self, size: i64) -> None:
        """One of them has its content again."""
        self.ram_count += 1
        self.ram_bytes += size
        self._trimmed_start = 0
        self._trimmed_end = 0

    def restless(self, file_no: i64, below: i64, durable_msg_id: i64, quota: i64) -> list[Message]:
        """Up to so many that are in the journal alone, and may go to a segment."""
        if self._has_twice:
            self._clean()
        end: i64 = len(self._entries)
        while self._rested < end and not is_restless(self._entries[self._rested]):
            self._rested += 1
        found: list[Message] = []
        place = self._rested
        while place < end and len(found) < quota:
            message = self._entries[place]
            if is_restless(message) and may_rest(message, file_no, below, durable_msg_id):
                found.append(message)
            place += 1
        return found

    def look_anew(self) -> None:
        """Some that were in a segment, or need none, may be in the journal alone now."""
        self._rested = 0

    def came_back(self) -> None:
        """Some of those removed may be added again."""
        self._came_back = self.count > 0

    def _forget(self) -> None:
        self._came_back = False
        self._has_twice = False
        self._rested = 0
        self._dead_bytes = 0
        self._trimmed_start = 0
        self._trimmed_end = 0
        self.highest_seq_id = -1

    def _clean(self) -> None:
        self._entries = self.live()
        self._forget()
        highest: i64 = -1
        for message in self._entries:
            if message.seq_id > highest:
                highest = message.seq_id
        self.highest_seq_id = highest

    def live(self) -> list[Message]:
        """The pending ones, in order of delivery."""
        living = [message for message in self._entries if message.flags & PENDING]
        if not self._has_twice:
            return living
        once: dict[int, Message] = {}
        for message in living:
            once[int(message.seq_id)] = message
        return list(once.values())

    def check(self) -> None:
        count: i64 = 0
        size: i64 = 0
        ram_count: i64 = 0
        ram_bytes: i64 = 0
        seen: set[int] = set()
        for message in self.live():
            assert int(message.seq_id) not in seen, "P2"
            seen.add(int(message.seq_id))
            assert message.seq_id <= self.highest_seq_id, "P1"
            count += 1
            size += message.size
            if len(message.content) > 0:
                ram_count += 1
                ram_bytes += message.size
        if not self._has_twice:
            assert not any(map(is_restless, self._entries[: self._rested])), "P3"
        assert count == self.count, "P1"
        assert size == self.bytes, "P1"
        assert ram_count == self.ram_count, "P1"
        assert ram_bytes == self.ram_bytes, "P1"
