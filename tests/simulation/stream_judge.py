"""One stream of a random life, beside a list that does the same: the judge of engine_lives.py.

``entries[offset]`` is what was appended.  Three offsets say what may become of it:

    safe   messages below it are on disk: every start must find them, and readers see these only
    floor  what retention took below it may not come back
    begin  what retention took below it is not read; until the floor is on disk it may come back

Positions of consumers are kept by name: a start finds that on disk, or a later one.

``attested`` is what was on disk before the last group: nothing says that this was there, so that
damage in it is taken for a torn write.

Readers begin at every kind of place and go on when chance says so.  What the first message must be
is computed from the list; from there on they must get each message, but what retention overtook.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from penstock.core.message import Message
from penstock.queues.stream_backing import StreamBacking
from penstock.streams import cursor as at
from penstock.streams.cursor import Start, StreamCursor
from penstock.streams.filtering import Wanted
from penstock.streams.log import StreamLimits
from tests.backing.engine_tools import PatientEngine, value_of

READERS = 4


class Entry(NamedTuple):
    content: bytes
    time_ms: int


class OnDisk(NamedTuple):
    safe: int = 0
    floor: int = 0
    positions: Mapping[str, int] = {}


class Reader:
    """``expected`` is the offset of its next message, if retention does not overtake it."""

    def __init__(self, cursor: StreamCursor, expected: int) -> None:
        self.cursor = cursor
        self.expected = expected


class JudgedStream:
    """Applies each operation of a life to the stream and to a list, and compares both."""

    def __init__(self, rng: random.Random) -> None:
        self.stream: StreamBacking
        self.counts: Counter[str] = Counter()
        self.entries: list[Entry] = []
        self.begin = 0
        self.on_disk = self.attested = OnDisk()
        self.positions: dict[str, int] = {}
        self._limits = StreamLimits(segment_bytes=rng.choice([300, 2000, 10_000]))
        self._sealed: list[tuple[OnDisk, OnDisk]] = []  # by each group, and before it
        self._readers: list[Reader] = []
        self._rng = rng

    @property
    def safe(self) -> int:
        return self.on_disk.safe

    def check(self) -> None:
        log = self.stream.log
        log.check()
        assert log.next_offset == len(self.entries)
        assert log.durable_offset == self.safe, "readers see what is not on disk, or not all"
        assert log.first_offset == self.begin
        for reader in self._readers:
            reader.cursor.check()

    # -- writing ---------------------------------------------------------------------------

    def publish(self, messages: list[Message], now_ms: int) -> None:
        contents = [one.content for one in messages]
        self.stream.publish(messages, now_ms)
        for content, one in zip(contents, messages, strict=True):
            assert one.seq_id == len(self.entries)
            self.entries.append(Entry(content, one.enqueued_at_ms))
        self.counts["messages appended"] += len(messages)

    def seal(self) -> None:
        by_now = OnDisk(len(self.entries), self.begin, dict(self.positions))
        self._sealed.append((by_now, self.on_disk))

    def commit(self, count: int) -> None:
        """So many groups more are on disk."""
        for then, before in self._sealed[:count]:
            if then != self.on_disk:
                self.attested = before
            self.on_disk = then
        del self._sealed[:count]

    def keep_position(self) -> None:
        """Of a consumer that has read some more."""
        name = self._rng.choice("ab")
        offset = self._rng.randint(self.positions.get(name, 0), self.safe + 1)
        self.stream.log.marks.positions.move(name, offset, 0)
        self.stream.keep_positions()
        self.positions[name] = offset
        self.counts["positions kept"] += 1

    def _judge_positions(self) -> None:
        marks = self.stream.log.marks.positions
        for name in {*self.positions, *marks.names()}:
            mark = marks.find(name)
            found = None if mark is None else int(mark.number)
            told = [one.positions for one in (self.on_disk, *(then for then, _ in self._sealed))]
            told.append(self.positions)  # a stop that failed has sealed them
            assert found in [one.get(name) for one in told], "a position is lost"
        self.positions = {name: int(marks.find(name).number) for name in marks.names()}

    def change_limits(self) -> None:
        rng = self._rng
        self._limits = StreamLimits(
            rng.choice([0, 0, 3000, 12_000]),
            rng.choice([0, 0, 0, 3000, 20_000]),
            rng.choice([300, 2000, 10_000]),
            rng.choice([1, 16, 255]),
        )
        self.stream.log.set_limits(self._limits)

    def retire(self, now_ms: int) -> None:
        """Neither too few segments nor one too many."""
        log, limits = self.stream.log, self._limits
        table = log.segments
        before = [(table.first(i), table.time(i), table.size(i)) for i in range(len(table))]
        self.stream.retire(now_ms)
        count = len(before) - len(table)
        self.counts["segments retired"] += count
        for i in range(len(before) - 1):
            left = sum(size for _, _, size in before[i:])
            is_last = before[i + 1][0] >= self.safe  # of those with messages that are on disk
            is_over = limits.max_bytes > 0 and left > limits.max_bytes and not is_last
            if limits.max_age_ms > 0 and before[i + 1][1] < now_ms - limits.max_age_ms:
                is_over = True
            assert (i < count) == (is_over and before[i + 1][0] <= self.safe), "retired wrongly"
            if i >= count:
                break
        self.begin = log.first_offset

    # -- reading ---------------------------------------------------------------------------

    def attach(self) -> None:
        number = self._rng.randint(-5, len(self.entries) + 10)
        start, expected = self._rng.choice(
            [
                (Start(at.FIRST), 0),
                (Start(at.NEXT), len(self.entries)),
                (Start(at.LAST), self.stream.log.last_block),
                (Start(at.OFFSET, number), number if number >= 0 else self.safe + number),
            ]
        )
        cursor = StreamCursor(self.stream.log, start)
        self._readers.append(Reader(cursor, max(self.begin, expected)))
        del self._readers[:-READERS]

    def follow(self) -> None:
        """A reader takes what is at hand; a read that is under way arrives some time."""
        if not self._readers:
            return
        reader = self._rng.choice(self._readers)
        most = self._rng.choice([1, 7, 1000])
        while reader.cursor.look() and most > 0:
            for one in reader.cursor.take(most):
                most -= 1
                self._judge_next(reader, one)

    def _judge_next(self, reader: Reader, one: Message) -> None:
        if one.seq_id != reader.expected:
            assert reader.expected < one.seq_id <= self.begin, "left out"
            assert reader.cursor.overtaken > 0
            self.counts["readers overtaken"] += 1
        self._judge(one)
        reader.expected = one.seq_id + 1
        self.counts["messages read"] += 1

    def _judge(self, one: Message) -> None:
        assert one.seq_id < self.safe, f"{one.seq_id} is read before it is on disk"
        assert one.content == self.entries[one.seq_id].content, f"{one.seq_id} is another"

    def read_on(self, opened: PatientEngine) -> None:
        """All readers come to the end."""
        for reader in self._readers:
            for one in self._read(reader.cursor, opened):
                self._judge_next(reader, one)
            assert reader.cursor.error is None
            assert max(reader.expected, self.begin) >= self.safe

    def _read(self, cursor: StreamCursor, opened: PatientEngine) -> list[Message]:
        """What it gives until it would wait for a publish."""
        found: list[Message] = []
        while cursor.look() or opened.run_reads():
            if cursor.look():
                found += cursor.take(50)
        return found

    def read_by_time(self, opened: PatientEngine, now_ms: int) -> None:
        """Its first block may begin with earlier messages."""
        time_ms = now_ms - self._rng.choice([-500, 0, 3, 1000, 10_000])
        found = self._read(StreamCursor(self.stream.log, Start(at.TIME, time_ms)), opened)
        due = [i for i in range(self.begin, self.safe) if self.entries[i].time_ms >= time_ms]
        if due:
            assert found[0].seq_id <= due[0], "found too late"
            assert [one.seq_id for one in found] == list(range(found[0].seq_id, self.safe))
            self.counts["found by time"] += found[0].seq_id > self.begin
        for one in found:
            self._judge(one)
            assert due or one.enqueued_at_ms >= time_ms

    def read_by_filter(self, opened: PatientEngine) -> None:
        values = self._rng.sample(["v1", "v3", "v9"], self._rng.randint(1, 2))
        unfiltered = self._rng.random() < 0.3
        wanted = Wanted([value.encode() for value in values], unfiltered)
        found = self._read(StreamCursor(self.stream.log, Start(at.FIRST), wanted), opened)
        told = [one.seq_id for one in found]
        assert told == sorted(set(told))
        for one in found:
            self._judge(one)
        said = {i: value_of(self.entries[i].content) for i in range(self.begin, self.safe)}
        must = {i for i, value in said.items() if value in values or (unfiltered and not value)}
        assert must <= set(told), "a filter hides what is wanted"
        self.counts["passed over"] += self.safe - self.begin - len(told)

    def read_all(self, opened: PatientEngine) -> None:
        """Raises what stops the reader, after judging what it gave."""
        cursor = StreamCursor(self.stream.log, Start(at.FIRST))
        found = self._read(cursor, opened)
        for one in found:
            self._judge(one)
        told = [one.seq_id for one in found]
        assert told == list(range(self.begin, self.begin + len(told)))
        if cursor.error is not None:
            raise cursor.error
        assert len(told) == self.safe - self.begin, "left out at the end"

    # -- the end, and after it -------------------------------------------------------------

    def closed_cleanly(self) -> None:
        self.on_disk = OnDisk(len(self.entries), self.begin, dict(self.positions))

    def reopened(self, stream: StreamBacking, opened: PatientEngine) -> None:
        """Judge what the disk has kept, and go on with that."""
        assert self.safe <= stream.log.next_offset, "lost"
        self._adopt(stream, opened)

    def reopened_damaged(self, stream: StreamBacking, opened: PatientEngine) -> None:
        """The same after a bit was changed; raises what stops the reader."""
        self._sealed.append((self.on_disk, self.attested))
        self.on_disk = self.attested
        assert self.safe <= stream.log.next_offset, "lost in silence"
        self._adopt(stream, opened)

    def _adopt(self, stream: StreamBacking, opened: PatientEngine) -> None:
        self.stream = stream
        log = stream.log
        assert log.next_offset <= len(self.entries), "from nowhere"
        assert log.durable_offset == log.next_offset
        floor = self.on_disk.floor
        assert floor <= log.first_offset <= self.begin, "retention undone, or overdone"
        self._judge_positions()
        self.counts["messages cut"] += len(self.entries) - log.next_offset
        del self.entries[log.next_offset :]
        self.begin = log.first_offset
        self.on_disk = OnDisk(log.next_offset, self.begin, dict(self.positions))
        self._sealed = []
        self._readers = []
        log.set_limits(self._limits)
        self.check()
        self.read_all(opened)
