"""``HistoryFile``: a week of the node's numbers on disk, by minutes (docs/formats/history.md).

    minute m is over ─► write(m, numbers)   one record, at the place m modulo the number of places
    start            ─► read(m)             those of the last week, the oldest first

A record counts when its checksum fits and its minute is within the week: what a crash has torn,
and what was never written, is a minute without numbers.  A file with another head (of another
release, or damaged) begins anew.  No error of the disk is more than a line in the log: charts are
no messages.  Every method may wait for the disk, and is for one thread at a time.
"""

import logging
import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from penstock.core.checksum import crc32

STEP_S: Final = 60
PLACES: Final = 7 * 24 * 60
"""Minutes of a week."""
HEAD: Final = struct.Struct(">3sBIIII44x")
MAGIC: Final = b"PSH"
VERSION: Final = 1
HIGHEST: Final = (1 << 64) - 1

Record = tuple[int, tuple[int, ...]]
"""The minute, counted from 1970, and its numbers."""

log = logging.getLogger("penstock.management")


class HistoryFile:
    """``names``: of the numbers of a record, in their order."""

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        self._path: Final = path
        known = crc32("\n".join(names).encode())
        self._head: Final = HEAD.pack(MAGIC, VERSION, STEP_S, PLACES, len(names), known)
        self._numbers: Final = struct.Struct(f">{1 + len(names)}Q")
        self._record_bytes: Final = self._numbers.size + 4
        self._failed = False

    def read(self, minute: int) -> list[Record]:
        """Of the week before that minute; makes the file where there is none."""
        try:
            data = self._path.read_bytes() if self._path.exists() else b""
            if data[: HEAD.size] != self._head:
                if data:
                    log.warning("%s is damaged or of another release: begun anew", self._path)
                self._begin()
                return []
        except OSError as error:
            self._fail(error)
            return []
        found = [self._record(data, place) for place in range(PLACES)]
        week = range(minute - PLACES, minute)
        return sorted(one for one in found if one is not None and one[0] in week)

    def write(self, minute: int, numbers: Sequence[int]) -> None:
        record = self._numbers.pack(minute, *(min(max(one, 0), HIGHEST) for one in numbers))
        try:
            file = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.pwrite(file, record + crc32(record).to_bytes(4), self._at(minute % PLACES))
            finally:
                os.close(file)
            self._failed = False
        except OSError as error:
            self._fail(error)

    def _begin(self) -> None:
        unfinished = self._path.with_suffix(".unfinished")
        unfinished.write_bytes(self._head)
        os.truncate(unfinished, self._at(PLACES))
        unfinished.rename(self._path)

    def _at(self, place: int) -> int:
        return HEAD.size + place * self._record_bytes

    def _record(self, data: bytes, place: int) -> Record | None:
        start = self._at(place)
        record = data[start : start + self._numbers.size]
        check = data[start + self._numbers.size : start + self._record_bytes]
        if len(check) < 4 or int.from_bytes(check) != crc32(record):
            return None
        minute, *numbers = self._numbers.unpack(record)
        return (minute, tuple(numbers)) if minute % PLACES == place else None

    def _fail(self, error: OSError) -> None:
        if not self._failed:
            log.warning("charts are not kept on disk: %s: %s", self._path, error.strerror)
        self._failed = True
