"""The ledger of delivery tags of one channel: unacknowledged messages by number.

Tags grow by one from 1 over everything the channel delivers, acknowledged or not; only
what waits for settlement has an entry.  Entries lie in two parallel lists, tag t at
``t - base``, so one settlement costs one index, whatever order they come in; settled
places are holes.  Those in front of the first open one are cut off when they are more than half of
the list, so that what lies behind them is not moved for each.

A delivery that stays open for hours would so keep a hole for each that came after it; when
the lists are nearly all holes the open ones are set aside in a dictionary, and the lists
begin anew.

The ``holder`` of a message is the session's affair and opaque here.
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.core.message import Message

ALL_OPEN: Final[i64] = -1
"""No tag: every tag that was asked for was open."""
ALL: Final[i64] = 1 << 60
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
    D2  the entry at ``head`` is the first that is no hole (or the lists are empty)
    D3  ``open_count`` entries are no holes, those set aside included
    D4  what is set aside lies below base, ascending
    """

    def __init__(self) -> None:
        self.next_tag: i64 = 1
        self.open_count: i64 = 0
        self._base: i64 = 1
        self._head: i64 = 0
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
        self._trim()

    def take(self, first_tag: i64, last_tag: i64) -> tuple[list[Settlement], i64]:
        """Close the tags first..last one by one.

        Returns what they held, and the first tag that was not open or ``ALL_OPEN``, which is also
        a tag a client may send (2**64 - 1): the caller that asks for it knows that it is not open.
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

    def take_through(self, last_tag: i64, at_most: i64 = ALL) -> list[Settlement]:
        """Close the open tags up to and including this one, the lowest first."""
        settled: list[Settlement] = []
        if len(self._aside) > 0:
            tags = self._aside_through(last_tag, at_most)
            settled = [self._aside.pop(tag) for tag in tags]
            at_most -= len(settled)
            self.open_count -= len(settled)
        current: Settlement | None = None
        count = last_tag - self._base + 1
        if count > len(self._messages):
            count = len(self._messages)
        place = self._head
        while place < count and at_most > 0:
            message = self._messages[place]
            if message is not None:
                holder = self._holders[place]
                self._messages[place] = None
                self._holders[place] = None
                if current is None or current.holder is not holder:
                    current = Settlement(holder, [])
                    settled.append(current)
                current.messages.append(message)
                self.open_count -= 1
                at_most -= 1
            place += 1
        self._trim()
        return settled

    def _aside_through(self, last_tag: i64, at_most: i64) -> list[int]:
        tags: list[int] = []
        for tag in self._aside:
            if tag > last_tag or len(tags) == at_most:
                break
            tags.append(tag)
        return tags

    def is_open(self, tag: i64) -> bool:
        if tag < self._base:
            return int(tag) in self._aside
        place = tag - self._base
        return place < len(self._messages) and self._messages[place] is not None

    def oldest_tag(self) -> i64:
        """The open delivery with the lowest tag; ``next_tag`` when none is open."""
        for tag in self._aside:
            return tag
        return self._base + self._head

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

    def open_tags(self, last_tag: i64, first_tag: i64 = 1, at_most: i64 = ALL) -> list[int]:
        """The lowest from ``first_tag`` up to and including ``last_tag``, ascending."""
        tags: list[int] = []
        if first_tag < self._base:
            tags = [tag for tag in self._aside if first_tag <= tag <= last_tag][:at_most]
        at_most -= len(tags)
        count: i64 = min(last_tag - self._base + 1, i64(len(self._messages)))
        place = first_tag - self._base
        if place < self._head:
            place = self._head
        while place < count and at_most > 0:
            if self._messages[place] is not None:
                tags.append(int(self._base + place))
                at_most -= 1
            place += 1
        return tags

    def _trim(self) -> None:
        """Step over the holes at the front (D2), or cut them off."""
        if self.open_count == len(self._aside):
            self._messages = []
            self._holders = []
            self._base = self.next_tag
            self._head = 0
            return
        head = self._head
        while self._messages[head] is None:
            head += 1
        if head * 2 > len(self._messages):
            del self._messages[:head]
            del self._holders[:head]
            self._base += head
            head = 0
        self._head = head

    def check(self) -> None:
        """Assert D1-D4."""
        assert self._base + len(self._messages) == self.next_tag, "D1"
        assert len(self._holders) == len(self._messages), "D1"
        first = [place for place, one in enumerate(self._messages) if one is not None][:1]
        assert first == [self._head] if self._messages else self._head == 0, "D2"
        open_count = len(self._aside)
        for message in self._messages:
            if message is not None:
                open_count += 1
        assert open_count == self.open_count, "D3"
        assert sorted(self._aside) == list(self._aside), "D4"
        assert all(tag < self._base for tag in self._aside), "D4"
