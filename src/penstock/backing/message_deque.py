"""``MessageDeque``: messages in ascending order, taken from either end, given back at the front.

A list with a moving head: taking from the front is a slice, giving back what was taken
writes it to its old places, and the dead part is cut off when it is the larger half, so both
ends cost amortised constant time.  Dead places hold no message: its content may be large.
"""

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from penstock.core.clock_types import WallMs
from penstock.core.message import Message, seq_id_of

DEAD_HEAD_MIN: Final[i64] = 1024
FEW_CHOSEN: Final = 8
"""So many are searched for one by one; for more all that lies between them is looked at."""
_GONE: Final = Message(b"", b"", 0, WallMs(0))
"""Stands where a message was taken from."""
NO_MESSAGES: Final[list[Message]] = []
"""Of all that never had one: most queues are empty.  Nothing is ever appended to it."""


@final
@mypyc_attr(acyclic=True)
class MessageDeque:
    """``messages[head:]`` are the ones that are here."""

    def __init__(self) -> None:
        self.messages: list[Message] = NO_MESSAGES
        self.head: i64 = 0

    def count(self) -> i64:
        return len(self.messages) - self.head

    def first(self) -> Message:
        return self.messages[self.head]

    def last(self) -> Message:
        return self.messages[len(self.messages) - 1]

    def live(self) -> list[Message]:
        return self.messages[self.head :]

    def take(self, count: i64) -> list[Message]:
        """The first ones."""
        start = self.head
        taken = self.messages[start : start + count]
        self.head += len(taken)
        size: i64 = len(self.messages)
        if self.head == size:
            self.messages = []
            self.head = 0
        elif self.head >= DEAD_HEAD_MIN and self.head * 2 > size:
            del self.messages[: self.head]
            self.head = 0
        else:
            self.messages[start : self.head] = [_GONE] * len(taken)
        return taken

    def take_chosen(self, seq_ids: list[int]) -> list[Message]:
        """Those with these ascending numbers, wherever they are."""
        if self.count() == 0 or len(seq_ids) == 0:
            return []
        if len(seq_ids) <= FEW_CHOSEN:
            return self._take_few(seq_ids)
        start = self.first_at(seq_ids[0])
        end = self.first_at(seq_ids[len(seq_ids) - 1] + 1)
        chosen = set(seq_ids)
        taken: list[Message] = []
        kept: list[Message] = []
        for place in range(start, end):
            message = self.messages[place]
            if int(message.seq_id) in chosen:
                taken.append(message)
            else:
                kept.append(message)
        if taken:
            self.replace(start, end, kept)
        return taken

    def _take_few(self, seq_ids: list[int]) -> list[Message]:
        taken: list[Message] = []
        for seq_id in seq_ids:
            place = self.first_at(seq_id)
            if place < len(self.messages) and self.messages[place].seq_id == seq_id:
                taken.append(self.messages[place])
                del self.messages[place]
        if self.count() == 0:
            self.take_all()
        return taken

    def take_between(self, start: i64, end: i64) -> list[Message]:
        """Those numbered from ``start`` up to and without ``end``."""
        first = self.first_at(start)
        after = self.first_at(end)
        if first == self.head:
            return self.take(after - first)
        taken = self.messages[first:after]
        del self.messages[first:after]
        return taken

    def replace(self, start: i64, end: i64, kept: list[Message]) -> None:
        """What is at these places of ``messages`` gives way to some of it."""
        self.messages[start:end] = kept
        if self.count() == 0:
            self.take_all()

    def take_all(self) -> list[Message]:
        own = self.head == 0 and len(self.messages) > 0
        taken = self.messages if own else self.live()
        self.messages = NO_MESSAGES
        self.head = 0
        return taken

    def take_last(self, count: i64) -> list[Message]:
        """The last ones, in order."""
        if count >= self.count():
            return self.take_all()
        start: i64 = len(self.messages) - count
        taken = self.messages[start:]
        del self.messages[start:]
        return taken

    def append_all(self, messages: list[Message]) -> None:
        """Behind all that are here."""
        if self.head == len(self.messages):  # a list of its own, also for ``NO_MESSAGES``
            self.messages = messages[:]
            self.head = 0
        else:
            self.messages.extend(messages)

    def put_back(self, messages: list[Message]) -> None:
        """Before all that are here, as after a take."""
        count: i64 = len(messages)
        if count <= self.head:
            self.messages[self.head - count : self.head] = messages
            self.head -= count
        else:
            self.messages = messages + self.live()
            self.head = 0

    def merge(self, messages: list[Message]) -> None:
        """Put ascending messages at their places."""
        if len(messages) == 0:
            return
        if self.count() == 0:
            self.append_all(messages)
        elif messages[len(messages) - 1].seq_id < self.first().seq_id:
            self.put_back(messages)
        elif messages[0].seq_id > self.last().seq_id:
            self.messages.extend(messages)
        else:
            start = self.first_at(messages[0].seq_id)
            merged: list[Message] = []
            place = start
            for message in messages:
                upto = self.first_at(message.seq_id, place)
                if place < upto:
                    merged.extend(self.messages[place:upto])
                    place = upto
                merged.append(message)
            self.messages[start:place] = merged

    def first_at(self, seq_id: i64, low: i64 = 0) -> i64:
        """Place in ``messages`` of the first one with at least this seq_id, from ``low`` on."""
        if low < self.head:
            low = self.head
        high: i64 = len(self.messages)
        while low < high:
            middle = (low + high) // 2
            if self.messages[middle].seq_id < seq_id:
                low = middle + 1
            else:
                high = middle
        return low


def ascending(messages: list[Message]) -> list[Message]:
    """The same list when it is in order, else a sorted one."""
    for i in range(1, len(messages)):
        if messages[i].seq_id < messages[i - 1].seq_id:
            return sorted(messages, key=seq_id_of)
    return messages
