"""Which bytes of which log file are alive, and which files may go.

In: what ``MessageLog`` appends and buries, as counts and bytes per file.  Out: files to drop
(nobody needs them any more) and files to compact (half of the log is garbage that cannot be
dropped).  Nothing here touches the disk; message_log.py tells the whole story.

An acknowledgement must stay while a copy of its message does.  ``needs`` and ``copies_of``
say so file by file, not message by message: sets of a few numbers, at the price that one
message left in an old file may hold back all later ones until it is relocated.

Invariants (``check``):
  F1  a file's live count and bytes are the sums over the queues' shares, none negative
  F2  live bytes of a file are within its size (of the current one: with the buffer)
  F3  the totals are the sums over the files
  F4  the current file has the highest number
  F5  needs and copies_of name older files only, hence never go in circles
"""

from typing import Final, final

from mypy_extensions import i64

FILES_COMPACTED_AT_ONCE: Final = 4


@final
class LogFile:
    """What the running log knows of one file.

    ``needs``      files with messages whose acknowledgement lies here
    ``copies_of``  files that hold older copies of messages that live here
    """

    __slots__ = ("copies_of", "live_bytes", "live_count", "needs", "number", "size")

    def __init__(self, number: i64, size: i64) -> None:
        self.number: i64 = number
        self.size: i64 = size
        self.live_count: i64 = 0
        self.live_bytes: i64 = 0
        self.needs: set[int] = set()
        self.copies_of: set[int] = set()


@final
class LogFiles:
    """The files that exist as far as the log is concerned, oldest first."""

    __slots__ = (
        "_by_number",
        "_something_died",
        "compact_above_bytes",
        "current",
        "dropped_count",
        "live_bytes",
        "live_count",
        "total_bytes",
    )

    def __init__(self, compact_above_bytes: i64) -> None:
        self.compact_above_bytes: i64 = compact_above_bytes
        self.current: LogFile = LogFile(0, 0)
        self.total_bytes: i64 = 0
        self.live_bytes: i64 = 0
        self.live_count: i64 = 0
        self.dropped_count: i64 = 0
        self._by_number: dict[int, LogFile] = {}
        self._something_died: bool = True  # some file may have become droppable

    def count(self) -> int:
        return len(self._by_number)

    def get(self, number: i64) -> LogFile:
        return self._by_number[int(number)]

    def add(self, file: LogFile) -> None:
        """A newer file than all so far; it becomes the current one."""
        assert file.number > self.current.number
        if self.current.live_count == 0:
            self._something_died = True
        self.current = file
        self._by_number[int(file.number)] = file
        self.total_bytes += file.size

    def grow_current(self, size: i64) -> None:
        self.current.size += size
        self.total_bytes += size

    def sizes_before_current(self) -> dict[int, int]:
        sizes: dict[int, int] = {}
        for number, file in self._by_number.items():
            if file is not self.current:
                sizes[number] = int(file.size)
        return sizes

    # -- life and death --------------------------------------------------------------------

    def born(self, file: LogFile, count: i64, size: i64) -> None:
        file.live_count += count
        file.live_bytes += size
        self.live_count += count
        self.live_bytes += size

    def died(self, file: LogFile, count: i64, size: i64) -> None:
        file.live_count -= count
        file.live_bytes -= size
        self.live_count -= count
        self.live_bytes -= size
        if file.live_count == 0:
            self._something_died = True

    def acked_in_current(self, file: LogFile) -> None:
        """The current file gets an acknowledgement of a message that lives in ``file``."""
        needs = self.current.needs
        if file is not self.current:
            needs.add(int(file.number))
        if file.copies_of:
            needs.update(self._still_there(file.copies_of))

    def copied_to_current(self, file: LogFile) -> None:
        """The current file gets a copy of a message that lived in ``file``."""
        copies_of = self.current.copies_of
        if int(file.number) not in copies_of:
            copies_of.add(int(file.number))
            copies_of.update(self._still_there(file.copies_of))

    def _still_there(self, numbers: set[int]) -> list[int]:
        return [number for number in numbers if number in self._by_number]

    # -- garbage ---------------------------------------------------------------------------

    def _droppable(self) -> list[LogFile]:
        """Files nobody needs, oldest first: dropping one may set the next ones free."""
        gone: set[int] = set()
        droppable: list[LogFile] = []
        for number, file in self._by_number.items():
            if file is self.current or file.live_count > 0:
                continue
            if all(n in gone or n not in self._by_number for n in file.needs):
                gone.add(number)
                droppable.append(file)
        return droppable

    def drop(self) -> list[int]:
        """Forget the files nobody needs; their numbers, for the log to write down."""
        if not self._something_died:
            return []
        self._something_died = False
        dropped: list[int] = []
        for file in self._droppable():
            del self._by_number[int(file.number)]
            self.total_bytes -= file.size
            dropped.append(int(file.number))
        self.dropped_count += len(dropped)
        return dropped

    def to_compact(self) -> list[int]:
        """Files whose live messages are worth appending again, oldest first.

        When the log is large and more than half garbage (what the next ``drop`` takes not
        counted): files that are half garbage themselves, and files that block dead ones.
        """
        if not self._mostly_garbage(self.total_bytes):
            return []
        droppable = {int(file.number) for file in self._droppable()}
        left = self.total_bytes
        blocking: set[int] = set()
        for number, file in self._by_number.items():
            if number in droppable:
                left -= file.size
            elif file.live_count == 0 and file is not self.current:
                blocking.update(file.needs)
        return self._worth_moving(blocking) if self._mostly_garbage(left) else []

    def _mostly_garbage(self, total: i64) -> bool:
        return total > self.compact_above_bytes and (total - self.live_bytes) * 2 > total

    def _worth_moving(self, blocking: set[int]) -> list[int]:
        chosen: list[int] = []
        for number, file in self._by_number.items():
            if file is self.current or file.live_count == 0:
                continue
            if number in blocking or file.live_bytes * 2 < file.size:
                chosen.append(number)
                if len(chosen) == FILES_COMPACTED_AT_ONCE:
                    break
        return chosen

    def check(self, counts: dict[int, int], sizes: dict[int, int], buffer_bytes: i64) -> None:
        """Assert the invariants, given the sums over the queues' shares by file."""
        total: i64 = 0
        live_bytes: i64 = 0
        live_count: i64 = 0
        for number, file in self._by_number.items():
            assert file.live_count == counts.get(number, 0), "F1"
            assert file.live_bytes == sizes.get(number, 0), "F1"
            room = file.size + buffer_bytes if file is self.current else file.size
            assert 0 <= file.live_bytes <= room, "F2"
            assert number <= self.current.number, "F4"
            assert all(n < number for n in file.needs | file.copies_of), "F5"
            total += file.size
            live_bytes += file.live_bytes
            live_count += file.live_count
        assert total == self.total_bytes, "F3"
        assert live_bytes == self.live_bytes, "F3"
        assert live_count == self.live_count == sum(counts.values()), "F3"
