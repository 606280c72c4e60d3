"""``StreamBacking``: where the messages of a stream rest, as the management sees it.

The queue (``stream.py``) reads its log by cursors.  Nothing is fetched here, nothing acknowledged:
of the verbs of a backing only those are here that count, retire and delete.
"""

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from penstock.backing.interface import BackingQueue
from penstock.backing.noting import SetNotes
from penstock.backing.variable_queue import VariableQueue
from penstock.core.clock_types import WallMs
from penstock.core.errors import PreconditionFailed
from penstock.core.headers import DEDUPLICATION_HEADER, HeaderReader
from penstock.core.message import Message
from penstock.queues.context import STREAM, queue_type
from penstock.queues.range_groups import RangeGroups
from penstock.storage.common.read_retry import ReadRetry
from penstock.storage.journal.journal import Journal
from penstock.streams.log import NO_BOUND, StreamLog
from penstock.streams.marks import NAME_BYTES_MAX, Marks
from penstock.streams.streams import Streams

FILTER_VALUE: Final = "x-stream-filter-value"
NUMBER_DIGITS_MAX: Final = 18


def publisher_of(key: object) -> tuple[str, int]:
    """``orders-7:123`` -> the name of a publisher and its number; "" = it is no such text."""
    name, _, digits = key.rpartition(":") if isinstance(key, str) else ("", "", "")
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= NUMBER_DIGITS_MAX
    if not is_number or len(name.encode("utf-8", "surrogateescape")) > NAME_BYTES_MAX:
        return "", 0
    return name, int(digits)


MakeBacking = Callable[[int, bool, int, dict[str, object]], BackingQueue]


@final
class BackingChoice:
    """Makes the backing of a stream, or lets ``make`` make one."""

    def __init__(
        self, streams: Streams, journal: Journal, reader: HeaderReader, make: MakeBacking
    ) -> None:
        self._streams = streams
        self._journal = journal
        self._reader = reader
        self._make = make

    def make(
        self, queue_id: int, durable: bool, segment_entries: int, arguments: dict[str, object]
    ) -> BackingQueue:
        if queue_type(arguments) == STREAM:
            once = arguments.get("x-message-deduplication") is True
            return StreamBacking(self._streams, self._journal, self._reader, queue_id, once)
        return self._make(queue_id, durable, segment_entries, arguments)


@final
class StreamBacking(BackingQueue):
    """``stream``: the queue's number; ``once``: it takes each number of a publisher once."""

    def __init__(
        self, streams: Streams, journal: Journal, reader: HeaderReader, stream: i64, once: bool
    ) -> None:
        self.stream: i64 = stream
        self.log: StreamLog = streams.open(stream)
        self.groups: RangeGroups = RangeGroups(self.log)
        self.is_cut: bool = False  # the end of the log is being given up: nothing is appended
        self.notes: SetNotes | None = None  # of a master with mirrors
        self._streams: Streams = streams
        self.journal: Journal = journal
        self.reader: HeaderReader = reader
        self._fault: str = ""
        self._retry: ReadRetry = ReadRetry()
        self.duplicate_count: i64 = 0
        self._once: bool = once
        self._deleted: bool = False
        self._number_publishers()

    def _number_publishers(self) -> None:
        if self._once:
            for message in self.log.marks.behind:
                self._is_new(message, message.seq_id)
            self.log.marks.number_publishers()

    def publish(self, messages: list[Message], now_ms: WallMs) -> None:
        """The journal notes how much of the stream is on disk already: a start compares."""
        if self._once:
            messages = self._new_of(messages)
        if messages:
            before = self.log.pending_bytes()
            self.log.append(messages, self._filter_values(messages), now_ms)
            self._note(self.log.pending_bytes() - before)
        if self.notes is not None:
            self.notes.published(messages, WallMs(0))  # also none: the publisher waits for it

    def _filter_values(self, messages: list[Message]) -> list[bytes]:
        """Empty = none has one."""
        values: list[bytes] = []
        some = False
        for message in messages:
            value = self.reader.read(message, FILTER_VALUE)
            text = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else b""
            values.append(text)
            some = some or len(text) > 0
        return values if some else []

    def _new_of(self, messages: list[Message]) -> list[Message]:
        taken: list[Message] = []
        for message in messages:
            if self._is_new(message, self.log.next_offset + len(taken)):
                taken.append(message)
        self.duplicate_count += len(messages) - len(taken)
        return taken

    def _is_new(self, message: Message, offset: i64) -> bool:
        """Is its number above all that its publisher gave before?  So is one without a number."""
        name, number = publisher_of(self.reader.read(message, DEDUPLICATION_HEADER))
        return name == "" or self.log.marks.publishers.move(name, number, offset)

    def _note(self, size: i64) -> None:
        assert not self.is_cut, "nothing is appended to what is being cut"
        self._streams.note(self.log, size)
        self.journal.reserve(self.stream, self.log.durable_offset)

    def retire(self, now_ms: WallMs) -> None:
        if self.log.retire(now_ms) > 0:
            self._note(0)
            if self.notes is not None:
                self.notes.ended_between(0, self.log.first_offset)

    def keep_positions(self) -> None:
        """Those that moved, with the next group."""
        if self.log.marks.positions.changed:
            self._note(0)
            self._tell(self.log.marks.positions)

    def forget_position(self, name: str) -> bool:
        """True = there was one of that name."""
        known = self.log.marks.positions.forget(name)
        self.keep_positions()
        return known

    # -- mirrors ---------------------------------------------------------------------------

    def set_notes(self, notes: SetNotes | None) -> None:
        """What is told to mirrors from now on; None = there are none.

        Readers see only what these have (``StreamLog.show_below``), until there are none.
        """
        self.notes = notes
        self.log.show_below(NO_BOUND if notes is None else 0)

    def begin_term(self, term: i64) -> None:
        """Of a master of this stream."""
        self.log.marks.begin_term(term, self.log.next_offset)
        self._note(0)
        self._tell(self.log.marks.terms)

    def _tell(self, marks: Marks) -> None:
        if self.notes is not None:
            self.notes.marked(marks.kind, len(marks), marks.rows())

    def append_copies(self, messages: list[Message]) -> None:
        """The next ones, as the master has numbered them."""
        before = self.log.pending_bytes()
        self.log.append_copies(messages, self._filter_values(messages))
        if self._once:
            for message in messages:
                self._is_new(message, message.seq_id)
        self._note(self.log.pending_bytes() - before)

    def retire_below(self, floor: i64) -> None:
        """The master has let go of what is below."""
        if self.log.retire_below(floor) > 0:
            self._note(0)

    def take_marks(self, kind: i64, count: i64, rows: bytes) -> None:
        """Those of the master, and no others."""
        self.log.marks.of_kind(kind).replace(rows, count)
        self._note(0)

    def add_marks(self, kind: i64, count: i64, rows: bytes) -> None:
        """Those of the master, which may be older than what is known here."""
        self.log.marks.of_kind(kind).add(rows, count)
        self._note(0)

    def give_up(self, offset: i64) -> None:
        """What is from there on, and maybe a little before: ``is_cut`` until it is done."""
        self._note(0)
        self.is_cut = True
        self._streams.give_up(self.log, offset, self._reopen)

    def _reopen(self) -> None:
        limits = self.log.limits
        self.log = self._streams.open(self.stream)
        self.log.set_limits(limits)
        self.groups = RangeGroups(self.log)
        self._number_publishers()
        self.is_cut = False

    # -- reading ---------------------------------------------------------------------------

    def failed(self, error: Exception) -> None:
        """A reader met damage, or a disk that fails."""
        if self._fault == "":
            self._fault = str(error)
            self._streams.stopped(self.stream, self._fault)

    def may_read_again(self, now_ms: WallMs) -> bool:
        """Called a few times a second; True = there is a fault no more."""
        if not self._retry.is_due(self._fault != "", now_ms):
            return False
        self._fault = ""
        return True

    # -- its end ---------------------------------------------------------------------------

    def has(self, log: StreamLog) -> bool:
        """False: it was deleted, or its end is being given up and another takes its place."""
        return log is self.log and not (self.is_cut or self._deleted)

    def delete(self) -> list[list[Message]]:
        self._deleted = True
        self._streams.delete(self.stream)
        self.journal.forget_queue(self.stream)
        return []

    # -- what is known ---------------------------------------------------------------------

    def ready_count(self) -> i64:
        return self.log.next_offset - self.log.first_offset

    def ready_bytes(self) -> i64:
        return self.log.segments.total_bytes

    def positions(self) -> VariableQueue:
        raise PreconditionFailed("a stream has no variable queue: it is read from its log")

    def why_stopped(self) -> str:
        return self._fault

    def next_due_ms(self) -> WallMs:
        """Of retention, or of the next try to read; 0 = never."""
        due_ms = self.log.next_retirement_ms()
        if self._fault != "" and (due_ms == 0 or self._retry.at_ms() < due_ms):
            return self._retry.at_ms()
        return due_ms

    def set_reader(self, reader: object) -> None:
        self._streams.read_by(self.stream, reader)

    def check(self) -> None:
        self.log.check()
