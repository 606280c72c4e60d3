"""The write-ahead log of an SQLite file: tells a torn tail from damage.

In: the path of the database, not open.  Out: nothing, or ``Corrupt``.  SQLite takes the log up to
the first frame that is not true and ignores the rest, whatever the rest is.  A crash leaves at
most one transaction unfinished at the end: each commit is synced before the next transaction is
written.  So a frame that is not true and has a commit and a further frame behind it was
on the disk once, and so was everything behind it: that is damage.  The last
transaction may be torn or damaged: the log does not tell the two apart.

The format is SQLite's (sqlite.org/fileformat2.html, section 4): a header of 32 bytes, then
frames of 24 bytes and a page.  Header and frames have the salts of this generation of the log,
and a checksum over everything before.
"""

import os
import struct
from typing import Final

from penstock.core.errors import Corrupt

HEADER_BYTES: Final = 32
FRAME_HEADER_BYTES: Final = 24
MAGIC: Final = 0x377F0682
"""With the last bit set, checksums are over big-endian words."""
MASK: Final = 0xFFFFFFFF
PAGE_BYTES: Final = range(512, 65_537)

Sums = tuple[int, int]


def check_log(path: str) -> None:
    """Raises Corrupt, with the place, where what is damaged had been committed."""
    log = f"{path}-wal"
    try:
        with open(log, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return
    if len(data) <= HEADER_BYTES:
        return
    place = damaged_at(data)
    if place >= 0:
        raise Corrupt(
            f"{log}: damaged at offset {place}, and changes were committed behind that;"
            f" restore {os.path.basename(path)} and {os.path.basename(log)} from a copy, or cut"
            f" off what is behind the damage, and lose it: truncate -s {place} {log}"
        )


def log_bytes(path: str) -> int:
    """0 where there is no log, as of a database in memory."""
    try:
        return os.path.getsize(f"{path}-wal")
    except FileNotFoundError:
        return 0


def damaged_at(data: bytes) -> int:
    """Where the first frame is that is not true though it was committed; -1 = nowhere."""
    magic, _version, page_bytes, _number, salt, salt2, sum1, sum2 = struct.unpack_from(">8I", data)
    order = ">" if magic & 1 else "<"
    sums = _add(data[:24], order, (0, 0))
    if magic | 1 != MAGIC | 1 or sums != (sum1, sum2) or page_bytes not in PAGE_BYTES:
        return 0  # the header is synced before the first frame is written
    frame_bytes = FRAME_HEADER_BYTES + page_bytes
    last = len(data) - frame_bytes
    at = HEADER_BYTES
    true = True
    committed = False
    false_at = -1
    while at <= last:
        _page, size, its_salt, its_salt2, sum1, sum2 = struct.unpack_from(">6I", data, at)
        of_this_log = (its_salt, its_salt2) == (salt, salt2)
        if true:
            if of_this_log:
                sums = _add(data[at : at + 8], order, sums)
                sums = _add(data[at + FRAME_HEADER_BYTES : at + frame_bytes], order, sums)
            true = of_this_log and sums == (sum1, sum2)
            if not true:
                false_at = at
        if not true and of_this_log:
            if committed:
                return false_at
            committed = size > 0
        at += frame_bytes
    return -1


def _add(data: bytes, order: str, sums: Sums) -> Sums:
    """SQLite's checksum, continued over ``data``, a multiple of 8 bytes."""
    first, second = sums
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for i in range(0, len(words), 2):
        first = (first + words[i] + second) & MASK
        second = (second + words[i + 1] + first) & MASK
    return first, second
