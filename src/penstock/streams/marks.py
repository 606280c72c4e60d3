"""``Marks``: by name the furthest number that was told, kept in the log of a stream.

Three kinds: the positions of readers (the number is an offset, beside it the time of that
message), the numbers of publishers (beside each the offset of the message), and of a mirrored
stream the terms of its masters (the number is the offset at which the term began).  In: ``move``.
Out: the payload of a block that has all of them (docs/formats/streams.md, clauses 3.5 to 3.7).
"""

from typing import Final, final

from librt.strings import BytesWriter, read_i64_be, write_i64_be
from mypy_extensions import i64

from penstock.core.message import Message
from penstock.streams.block_codec import POSITIONS, PUBLISHERS, TERMS

POSITIONS_MAX: Final[i64] = 1000
"""Readers of one stream that have their position kept."""
PUBLISHERS_MAX: Final[i64] = 255
"""Publishers of one stream whose numbers are known; RabbitMQ's limit."""
TERMS_MAX: Final[i64] = 255
"""What came before the oldest of them counts as one term."""
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
        self.changed = False
        self.sealed = self.rows()
        self.sealed_count = len(self._by_name)

    def rows(self) -> bytes:
        """The payload of a block that has all of them."""
        writer = BytesWriter()
        for name, mark in self._by_name.items():
            encoded = name.encode("utf-8", "surrogateescape")
            writer.append(len(encoded))
            writer.write(encoded)
            write_i64_be(writer, mark.number)
            write_i64_be(writer, mark.beside)
        return writer.getvalue()

    def replace(self, payload: bytes, count: i64) -> None:
        """Those of another copy of the stream, and no others."""
        self._by_name = {}
        self.add(payload, count)

    def add(self, payload: bytes, count: i64) -> None:
        """As ``read``, beside those there are."""
        self.read(payload, count)
        self.changed = len(self._by_name) > 0

    def read(self, payload: bytes, count: i64) -> bool:
        """Take over those of a block; False = the payload holds something else."""
        at: i64 = 0
        while at < len(payload):
            name_end: i64 = at + 1 + i64(payload[at])
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

    ``terms``        of its masters, if it has mirrors or had some
    ``is_numbered``  the numbers of publishers are kept
    ``behind``       at a start: messages that came after the last block of them
    """

    def __init__(self) -> None:
        self.positions: Marks = Marks(POSITIONS, POSITIONS_MAX)
        self.publishers: Marks = Marks(PUBLISHERS, PUBLISHERS_MAX)
        self.terms: Marks = Marks(TERMS, TERMS_MAX)
        self.is_numbered: bool = False
        self.behind: list[Message] = []

    def of_kind(self, kind: i64) -> Marks:
        if kind == TERMS:
            return self.terms
        return self.positions if kind == POSITIONS else self.publishers

    def begin_term(self, term: i64, offset: i64) -> None:
        """Of a master, whose messages are numbered from ``offset`` on; once for each."""
        if self.terms.find(str(int(term))) is None:
            self.terms.move(str(int(term)), offset, 0)

    def term_begins(self) -> dict[int, int]:
        """By term the offset at which it began; what came before them all is term 0."""
        begins = {0: 0}
        for name in self.terms.names():
            mark = self.terms.find(name)
            if mark is not None and name.isascii() and name.isdigit():
                begins[int(name)] = int(mark.number)
        return begins

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
        if len(self.terms) > 0:
            self.terms.seal()
            begin.append(self.terms)
        if len(self.positions) > 0:
            self.positions.seal()
            begin.append(self.positions)
        return begin


def common_offset(one: dict[int, int], one_end: i64, other: dict[int, int], other_end: i64) -> i64:
    """Up to which offset two copies of a stream have the same messages.

    Of each, where terms began (``StreamMarks.term_begins``) and where it ends.  Both have a part of
    what the master of their newest common term had: the shorter part is in both.
    """
    last = 0
    for term in one:
        if term > last and term in other:
            last = term
    return min(_end_of(one, last, one_end), _end_of(other, last, other_end))


def _end_of(begins: dict[int, int], term: int, end: i64) -> i64:
    """Where another term began, or the log ends."""
    for later, offset in begins.items():
        if later > term and offset < end:
            end = offset
    return end
