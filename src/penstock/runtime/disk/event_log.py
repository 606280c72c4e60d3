"""``EventLog``: events become lines in files, in a thread of its own.

    collector ─ put(events) ─► thread ─► events-00000001.jsonl, events-00000002.jsonl, …

The files are append-only, begun anew at every start, and bounded: at ``file_bytes`` the next one
begins, above ``limit_bytes`` or ``FILES_MAX`` the oldest goes.  The event log is never synced: it
is not worth a broker's fsync, so a power cut may cost the last half minute.  The audit trail is,
once for what has come together.

**The broker never waits for it.**  What is put while ``WAITING_MAX`` events wait is dropped; so is
what a full or failing disk does not take.  How many were dropped, and why, is the first event
that is written when writing works again.  A write that was cut short leaves a line whose checksum
does not fit: the next attempt begins a new file, so such a line is always the last of its file.
"""

import logging
import os
import re
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from penstock.clocks import wall_ms
from penstock.core.events.kinds import line_of

EVENTS: Final = "events"
FILE_NAME: Final = re.compile(r"([a-z]+)-([0-9]{8,})\.jsonl")
"""Its name before the number says what is in it."""
FILES_MAX: Final = 1000
WAITING_MAX: Final = 50_000
CHUNK: Final = 200
"""So many lines are made in one go: the interpreter's lock is never held for long."""
STOP_TIMEOUT_S: Final = 5.0
SLOW: Final = "the disk was too slow"

logger = logging.getLogger("penstock.events")


class EventLog:
    """Writes from ``start`` to ``stop``; ``put`` and ``dropped`` are for one thread."""

    def __init__(
        self,
        directory: Path,
        file_bytes: int,
        limit_bytes: int,
        told: Callable[[list[Any]], None] | None = None,
        writes: bool = True,
        name: str = EVENTS,
        line: Callable[..., bytes] = line_of,
        is_synced: bool = False,
    ) -> None:
        """``told`` hears of all events, in the thread; without ``writes`` nothing else does.

        ``name``: of the files; ``line``: takes what ``line_of`` takes, and what else events have.
        """
        self.directory = directory
        self.writes = writes
        self._told = told
        self._name = name
        self._line = line
        self._is_synced = is_synced
        self._file_bytes = min(file_bytes, limit_bytes // 2)
        self._limit_bytes = limit_bytes
        self._waiting: deque[list[Any]] = deque()
        self._waiting_count = 0
        self._lock = threading.Lock()
        self._something = threading.Event()
        self._stopping = False
        self._dropped: dict[str, int] = {}
        self.dropped_count = 0  # since the start
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)
        self._fd = -1
        self._size = 0
        self._number = 0
        self._failing = ""  # why, once it was said

    # -- on the loop -----------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def put(self, events: list[Any]) -> None:
        """To be written soon, or dropped; never waits."""
        with self._lock:
            if self._waiting_count + len(events) > WAITING_MAX:
                self._count_dropped(SLOW, len(events))
                return
            self._waiting_count += len(events)
            self._waiting.append(events)
        self._something.set()

    def drop(self, count: int, because: str) -> None:
        """So many events never came here."""
        with self._lock:
            self._count_dropped(because, count)

    def _count_dropped(self, because: str, count: int) -> None:
        """Holding the lock."""
        self._dropped[because] = self._dropped.get(because, 0) + count
        self.dropped_count += count

    def stop(self) -> None:
        """Write what waits, for a few seconds at most."""
        self._stopping = True
        self._something.set()
        if self._thread.is_alive():
            self._thread.join(STOP_TIMEOUT_S)

    # -- in the thread ---------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            self._something.wait()
            self._something.clear()
            stopping = self._stopping
            self.write_waiting()
            if stopping:
                self._close()
                return

    def write_waiting(self) -> None:
        """Everything there is."""
        while True:
            with self._lock:
                if not self._waiting:
                    return
                events = self._waiting.popleft()
            for at in range(0, len(events), CHUNK):
                if self._told is not None:
                    self._told(events[at : at + CHUNK])
                if self.writes:
                    self._write(events[at : at + CHUNK])
            with self._lock:
                self._waiting_count -= len(events)

    def _write(self, events: list[Any]) -> None:
        data = b"".join([self._line(*event) for event in events])
        with self._lock:
            dropped, self._dropped = self._dropped, {}
        if dropped:
            now_ms = wall_ms()
            told = [self._line(now_ms, "events_dropped", (n, why)) for why, n in dropped.items()]
            data = b"".join(told) + data
        try:
            self._append(data)
        except OSError as error:
            self._failed(error, len(events), dropped)
            return
        if self._failing:
            logger.warning("%s is written again", self.directory)
            self._failing = ""

    def _append(self, data: bytes) -> None:
        if self._fd < 0 or self._size >= self._file_bytes:
            self._next_file()
        count = os.write(self._fd, data)
        self._size += count
        if count < len(data):
            raise OSError(28, "No space left on device")
        if self._is_synced:
            os.fdatasync(self._fd)

    def _failed(self, error: OSError, count: int, dropped: dict[str, int]) -> None:
        """What was cut short may be no line's end: go on in a new file."""
        self._close()
        because = error.strerror or "the disk failed"
        if because != self._failing:
            logger.warning("events are dropped: %s: %s", self.directory, because)
            self._failing = because
        with self._lock:
            for why, number in dropped.items():
                self._dropped[why] = self._dropped.get(why, 0) + number
            self._count_dropped(because, count)

    def _next_file(self) -> None:
        self._close()
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        files = event_files(self.directory, self._name)
        newest = int(FILE_NAME.fullmatch(files[-1].name)[2]) if files else 0  # type: ignore[index]
        self._number = max(self._number, newest) + 1
        self._make_room(files)
        path = self.directory / f"{self._name}-{self._number:08}.jsonl"
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        self._size = 0

    def _make_room(self, files: list[Path]) -> None:
        """So that the files, the new one full, are within the limit."""
        sizes = [file.stat().st_size for file in files]
        total = sum(sizes) + self._file_bytes
        for count, (file, size) in enumerate(zip(files, sizes, strict=True)):
            if total <= self._limit_bytes and len(files) - count < FILES_MAX:
                return
            file.unlink(missing_ok=True)
            total -= size

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def event_files(directory: Path, name: str = EVENTS) -> list[Path]:
    """Those of an event log, or of another of that name; the oldest first."""
    if not directory.is_dir():
        return []
    found = [
        file
        for file in directory.iterdir()
        if (match := FILE_NAME.fullmatch(file.name)) is not None and match[1] == name
    ]
    return sorted(found, key=lambda file: (len(file.name), file.name))
