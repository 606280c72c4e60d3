"""``Marks``: by name the furthest number that was told, kept in the log of a stream.

Two kinds: the positions of readers (the number is an offset, beside it the time of that message),
and the numbers of publishers (beside each the offset of the message).  In: ``move``.  Out: the
payload of a block that has all of them (docs/formats/streams.md, clauses 3.5 and 3.6).
"""

from typing import Final, final

from librt.strings import BytesWriter, read_i64_be, write_i64_be
from mypy_extensions import i64

from penstock.core.message import Message
from penstock.streams.block_codec import POSITIONS, PUBLISHERS

POSITIONS_MAX: Final[i64] = 1000
"""Readers of one stream that have their position kept."""
PUBLISHERS_MAX: Final[i64] = 255
"""Publishers of one stream whose numbers are known; RabbitMQ's limit."""
NAME_BYTES_MAX: Final = 255


@final
class Mark:
    __slots__ = ("beside", "number")

    def __init__(self, number: i64, beside: i64) -> None:
        self.number: i64 = number
        self.beside: i64 = beside


@final
class Marks:
    """``kind`` of its blocks; ``limit`` names at most.

    ``changed`` since the last ``seal``
    ``sealed``   the payload of a block that has all of them as they were then: ``sealed_count``
    """

    def __init__(self, kind: i64, limit: i64) -> None:
        self.kind: i64 = kind
        self.changed: bool = False
        self.sealed: bytes = b""
        self.sealed_count: i64 = 0
        self._limit: i64 = limit
        self._by_name: dict[str, Mark] = {}  # that which moved last is the last one

    def __len__(self) -> int:
        return len(self._by_name)

    def find(self, name: str) -> Mark | None:
        return self._by_name.get(name)

    def names(self) -> list[str]:
        return list(self._by_name)

    def has_room(self, name: str) -> bool:
        """May this name have one, without another being lost?"""
        return name in self._by_name or len(self._by_name) < self._limit

    def move(self, name: str, number: i64, beside: i64) -> bool:
        """Forward only; False = it is not further.  Without room the longest at rest goes."""
        known = self._by_name.get(name)
        if known is not None and known.number >= number:
            return False
        if not self.has_room(name):
            del self._by_name[next(iter(self._by_name))]
        self._by_name.pop(name, None)
        self._by_name[name] = Mark(number, beside)
        self.changed = True
        return True

    def forget(self, name: str) -> bool:
        """True = it was there."""
        if self._by_name.pop(name, None) is None:
            return False
        self.changed = True
        return True

    def seal(self) -> None:
        """Put them down as they are now."""
        writer = BytesWriter()
        for name, mark in self._by_name.items():
            encoded = name.encode("utf-8", "surrogateescape")
            writer.append(len(encoded))
            writer.write(encoded)
            write_i64_be(writer, mark.number)
            write_i64_be(writer, mark.beside)
        self.changed = False
        self.sealed = writer.getvalue()
        self.sealed_count = len(self._by_name)

    def read(self, payload: bytes, count: i64) -> bool:
        """Take over those of a block; False = the payload holds something else."""
        at: i64 = 0
        while at < len(payload):
            name_end = at + 1 + i64(payload[at])
            if name_end + 16 > len(payload):
                return False
            name = payload[at + 1 : name_end].decode("utf-8", "surrogateescape")
            self.move(name, read_i64_be(payload, name_end), read_i64_be(payload, name_end + 8))
            at = name_end + 16
        self.changed = False
        return len(self._by_name) == count


@final
class StreamMarks:
    """Of one stream.

    ``is_numbered``  the numbers of publishers are kept
    ``behind``       at a start: messages that came after the last block of them
    """

    def __init__(self) -> None:
        self.positions: Marks = Marks(POSITIONS, POSITIONS_MAX)
        self.publishers: Marks = Marks(PUBLISHERS, PUBLISHERS_MAX)
        self.is_numbered: bool = False
        self.behind: list[Message] = []

    def of_kind(self, kind: i64) -> Marks:
        return self.positions if kind == POSITIONS else self.publishers

    def found_behind(self, messages: list[Message]) -> None:
        self.behind = messages

    def number_publishers(self) -> None:
        """From now on; those of the messages ``behind`` are known."""
        self.is_numbered = True
        self.behind = []
        self.publishers.seal()

    def take_changed(self) -> list[Marks]:
        """Those that go behind all messages that were appended, sealed."""
        changed = [marks for marks in (self.publishers, self.positions) if marks.changed]
        for marks in changed:
            marks.seal()
        return changed

    def beginning(self) -> list[Marks]:
        """Those that a segment begins with.

        Publishers as they were sealed last: their newer numbers are of messages behind these.
        """
        begin = [self.publishers] if self.is_numbered else []
        if len(self.positions) > 0:
            self.positions.seal()
            begin.append(self.positions)
        return begin
