"""The ledger of delivery tags of one channel: unacknowledged messages by number.

Tags grow by one from 1 over everything the channel delivers, acknowledged or not; only
what waits for settlement has an entry.  Entries lie in two parallel lists, tag t at
``t - base``, so one settlement costs one index, whatever order they come in; settled
places are holes until the front of the list is all holes.

A delivery that stays open for hours would so keep a hole for each that came after it; when
the lists are nearly all holes the open ones are set aside in a dictionary, and the lists
begin anew.

The ``holder`` of a message is the session's affair and opaque here.
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.core.message import Message

ALL_OPEN: Final[i64] = -1 << 63
"""No tag: every tag that was asked for was open."""
SPARSE_MIN: Final[i64] = 4096
SPARSE_RATIO: Final[i64] = 16
"""Lists at least this long, of which less than one in so many places is open, are begun anew."""


@final
class Settlement:
    """Messages of one holder, in tag order."""

    def __init__(self, holder: object, messages: list[Message]) -> None:
        self.holder = holder
        self.messages = messages


@final
class DeliveryLedger:
    """Open deliveries of one channel.

    D1  base <= next_tag, and the lists are next_tag - base long
    D2  the first entry is no hole (or the lists are empty)
    D3  ``open_count`` entries are no holes, those set aside included
    D4  what is set aside lies below base, ascending
    """

    def __init__(self) -> None:
        self.next_tag: i64 = 1
        self.open_count: i64 = 0
        self._base: i64 = 1
        self._messages: list[Message | None] = []
        self._holders: list[object] = []
        self._aside: dict[int, Settlement] = {}  # one message each

    def skip(self, count: i64) -> i64:
        """Number deliveries that are acknowledged already; returns the first tag."""
        first = self.next_tag
        self.next_tag += count
        if self.open_count == len(self._aside):
            self._base = self.next_tag
        else:
            self._messages.extend([None] * count)
            self._holders.extend([None] * count)
            self._set_aside()
        return first

    def add(self, holder: object, messages: list[Message]) -> i64:
        """Number deliveries and remember them; returns the first tag."""
        first = self.next_tag
        count: i64 = len(messages)
        self.next_tag += count
        self.open_count += count
        self._messages.extend(messages)
        if count == 1:
            self._holders.append(holder)
        else:
            self._holders.extend([holder] * count)
        self._set_aside()
        return first

    def _set_aside(self) -> None:
        """Few open tags among many holes: out of the lists with them."""
        places: i64 = len(self._messages)
        if places < SPARSE_MIN or self.open_count * SPARSE_RATIO > places:
            return
        place: i64 = 0
        while place < places:
            message = self._messages[place]
            if message is not None:
                tag = int(self._base + place)
                self._aside[tag] = Settlement(self._holders[place], [message])
            place += 1
        self._messages = []
        self._holders = []
        self._base = self.next_tag

    def take(self, first_tag: i64, last_tag: i64) -> tuple[list[Settlement], i64]:
        """Close the tags first..last one by one.

        Returns what they held, and the first tag that was not open or ``ALL_OPEN``, which is also
        a tag a client may send (2**63): the caller that asks for it knows that it is not open.
        """
        settled: list[Settlement] = []
        current: Settlement | None = None
        end: i64 = self.next_tag
        tag = first_tag
        while tag <= last_tag:
            if tag < self._base:
                old = self._aside.pop(int(tag), None)
                if old is None:
                    break
                self.open_count -= 1
                settled.append(old)
                tag += 1
                continue
            if tag >= end:
                break
            place = tag - self._base
            message = self._messages[place]
            if message is None:
                break
            holder = self._holders[place]
            self._messages[place] = None
            self._holders[place] = None
            self.open_count -= 1
            if current is None or current.holder is not holder:
                current = Settlement(holder, [])
                settled.append(current)
            current.messages.append(message)
            tag += 1
        self._trim()
        return settled, ALL_OPEN if tag > last_tag else tag

    def take_through(self, last_tag: i64) -> list[Settlement]:
        """Close every open tag up to and including this one."""
        settled: list[Settlement] = []
        if len(self._aside) > 0:
            for tag in [tag for tag in self._aside if tag <= last_tag]:
                settled.append(self._aside.pop(tag))
                self.open_count -= 1
        current: Settlement | None = None
        count = last_tag - self._base + 1
        if count > len(self._messages):
            count = len(self._messages)
        place: i64 = 0
        while place < count:
            message = self._messages[place]
            if message is not None:
                holder = self._holders[place]
                if current is None or current.holder is not holder:
                    current = Settlement(holder, [])
                    settled.append(current)
                current.messages.append(message)
                self.open_count -= 1
            place += 1
        if count > 0:
            del self._messages[:count]
            del self._holders[:count]
            self._base += count
        self._trim()
        return settled

    def take_all(self) -> list[Settlement]:
        return self.take_through(self.next_tag - 1)

    def is_open(self, tag: i64) -> bool:
        if tag < self._base:
            return int(tag) in self._aside
        place = tag - self._base
        return place < len(self._messages) and self._messages[place] is not None

    def oldest_tag(self) -> i64:
        """The open delivery with the lowest tag; ``next_tag`` when none is open."""
        for tag in self._aside:
            return tag
        return self._base

    def holder(self, tag: i64) -> object:
        """Of an open delivery."""
        if tag < self._base:
            return self._aside[int(tag)].holder
        return self._holders[tag - self._base]

    def message(self, tag: i64) -> Message:
        """Of an open delivery."""
        if tag < self._base:
            return self._aside[int(tag)].messages[0]
        message = self._messages[tag - self._base]
        assert message is not None
        return message

    def open_tags(self, last_tag: i64) -> list[int]:
        """Those up to and including this one, ascending."""
        tags = [tag for tag in self._aside if tag <= last_tag]
        count: i64 = min(last_tag - self._base + 1, i64(len(self._messages)))
        place: i64 = 0
        while place < count:
            if self._messages[place] is not None:
                tags.append(int(self._base + place))
            place += 1
        return tags

    def _trim(self) -> None:
        """Cut the holes off the front (D2)."""
        if self.open_count == len(self._aside):
            self._messages = []
            self._holders = []
            self._base = self.next_tag
            return
        holes: i64 = 0
        while self._messages[holes] is None:
            holes += 1
        if holes > 0:
            del self._messages[:holes]
            del self._holders[:holes]
            self._base += holes

    def check(self) -> None:
        """Assert D1-D4."""
        assert self._base + len(self._messages) == self.next_tag, "D1"
        assert len(self._holders) == len(self._messages), "D1"
        assert len(self._messages) == 0 or self._messages[0] is not None, "D2"
        open_count = len(self._aside)
        for message in self._messages:
            if message is not None:
                open_count += 1
        assert open_count == self.open_count, "D3"
        assert sorted(self._aside) == list(self._aside), "D4"
        assert all(tag < self._base for tag in self._aside), "D4"
