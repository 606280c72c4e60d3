"""The bytes of the journal, both ways; docs/formats/journal.md is their page.

A journal file ``<N>.jif`` is a row of *blocks*, a block is a header and a row of *records*.
Everything is big-endian.  A block is believed whole or not at all: the checksum covers
header and records, and the header names the file and the offset where the block belongs,
so that a copy of a block (say, inside a message) is never taken for one, nor what an older
file left behind in the same place.

    block     magic "PSJ" 03 | file_no u32 | offset u64 | synced u64 | size u64 | crc u32 | records
    P         publish: a message record (message_record.py)
    A         'A' queue u32 seq u64                                         acknowledge one
    R         'R' queue u32 first u64 count u32                             acknowledge a run
    N         'N' queue u32 upto u64                                        reserve seq_ids
    X         'X' queue u32                                                 forget a queue
    F         'F' count u32 (file_no u32 size u64)*                         files before this
    Q         'Q' count u32 (queue u32 next_seq_id u64)*                    queues and numbers
    K         'K' count u32 (file_no u32 size u64)*                         files kept, not replayed
    D         'D' file_no u32                                               file dropped
    T         'T' queue u32 old u64 new u64                                 requeued to the tail
    L         'L' queue u32 seq u64 until_ms i64                            not before that time
    E         'E' queue u32 first u64 count u32 counts u32                  attempts and returns
    B         'B' file_no u32 size u64                                      file has that size

A 'T' ends ``old`` and stands in the same block as the publish of ``new``, so either both are
true or none.

``synced`` says how many bytes of this file were known to be on disk when the block was
sealed: if an older place is damaged all the same, no crash did it (``attests_damage``).  A *note*
is a block that is written behind a sync, where the next one will be; it says that all before it is
on disk, and has only 'N' and 'B' (``note_block``).
"""

from typing import Final, final

from librt.strings import BytesWriter, read_i32_be, read_i64_be, write_i32_be, write_i64_be
from mypy_extensions import i32, i64, u8

from penstock.core.checksum import crc32
from penstock.core.clock_types import WallMs
from penstock.core.errors import Corrupt
from penstock.storage.common.formats import numbered
from penstock.storage.common.message_record import MESSAGE, message_record_end
from penstock.storage.common.side_log import SideGroup
from penstock.storage.store.groups import StoreGroup

FORMAT_VERSION: Final = 3
MAGIC_BYTES: Final = b"PSJ"
MAGIC: Final = 0x50534A03
JOURNAL_SUFFIX: Final = ".jif"
SPARE_SUFFIX: Final = ".jif.spare"

BLOCK_HEADER_BYTES: Final[i64] = 36
CHECKED_HEADER_BYTES: Final[i64] = 32
"""The header without its last field, the checksum."""

ACK: Final = 0x41
ACK_RUN: Final = 0x52
RESERVE: Final = 0x4E
FORGET: Final = 0x58
FILES: Final = 0x46
QUEUES: Final = 0x51
KEPT: Final = 0x4B
DROP: Final = 0x44
TO_TAIL: Final = 0x54
DELAY: Final = 0x4C
ATTEMPTS: Final = 0x45
BEGUN: Final = 0x42

ACK_BYTES: Final[i64] = 13
ACK_RUN_BYTES: Final[i64] = 17
FORGET_BYTES: Final[i64] = 5
TABLE_BYTES: Final[i64] = 5
"""'F', 'Q' or 'K' without its rows."""
ROW_BYTES: Final[i64] = 12
TO_TAIL_BYTES: Final[i64] = 21
ATTEMPTS_BYTES: Final[i64] = 21
BEGUN_BYTES: Final[i64] = 13


POSITION_IDS: Final[i64] = 1 << 30
"""From here on 'N' and 'Q' say the two positions of a copy, and not the next seq_id of a queue."""


def position_ids(queue_id: i64) -> tuple[int, int]:
    """Under which the journal keeps how far that copy is complete, and what it has heard."""
    assert 0 <= queue_id < POSITION_IDS // 2
    first = POSITION_IDS + 2 * queue_id
    return int(first), int(first + 1)


def copy_of_position(position_id: i64) -> int:
    """The queue id of its copy."""
    return int((position_id - POSITION_IDS) // 2)


def journal_file_name(file_no: int) -> str:
    return f"{file_no}{JOURNAL_SUFFIX}"


def spare_file_name(file_no: int) -> str:
    """A retired file that waits to become the next one; no start reads it."""
    return f"{file_no}{SPARE_SUFFIX}"


def journal_file_no(name: str) -> int:
    """The number in the name of a journal file; 0 = some other file."""
    return numbered(name, JOURNAL_SUFFIX)


# -- blocks --------------------------------------------------------------------------------


@final
class JournalGroup:
    """What is written with one write: one block, sealed and never changed again.

    ``parts``            the records, in pieces; none = nothing to write, only to sync
    ``size``             bytes of all parts
    ``offset``           where the block begins in its file
    ``synced_offset``    bytes of the file known to be on disk when it was sealed
    ``sync``             the group must be on disk before it is reported as committed
    ``end_position``     the journal's position after the group
    ``files_to_remove``  numbers of files to delete or to use again, after the sync
    ``files_to_unlink``  the same of files to delete in any case: a backup may have a link
    ``store``            contents for the message store, to be on disk before the block is
    ``side``             the same, of the logs beside the journal
    ``written``          it needs no second write when its batch is tried again
    ``told``             how far logs beside the journal are on disk, as the block says
    """

    __slots__ = (
        "end_position", "file_no", "files_to_remove", "files_to_unlink", "offset", "parts", "side",
        "size", "store", "sync", "synced_offset", "told", "written",
    )  # fmt: skip

    def __init__(
        self,
        file_no: i64,
        offset: i64,
        synced_offset: i64,
        parts: list[bytes],
        sync: bool,
        end_position: i64,
        files_to_remove: list[int],
        side: SideGroup | None = None,
        files_to_unlink: list[int] | None = None,
        told: dict[int, int] | None = None,
    ) -> None:
        self.file_no: i64 = file_no
        self.offset: i64 = offset
        self.synced_offset: i64 = synced_offset
        self.parts: list[bytes] = parts
        size: i64 = 0
        for part in parts:
            size += len(part)
        self.size: i64 = size
        self.sync: bool = sync
        self.end_position: i64 = end_position
        self.files_to_remove: list[int] = files_to_remove
        self.files_to_unlink: list[int] = [] if files_to_unlink is None else files_to_unlink
        self.store: StoreGroup | None = None
        self.side: SideGroup | None = side
        self.written: bool = False
        self.told: dict[int, int] | None = told

    def end_offset(self) -> i64:
        """The size of the file once the group is written."""
        if self.size == 0:
            return self.offset
        return self.offset + BLOCK_HEADER_BYTES + self.size

    @property
    def data(self) -> bytes:
        """The records in one piece, for looking at them."""
        return b"".join(self.parts)

    def header(self) -> bytes:
        """The block's header; reads all records, so it is the committer's work."""
        writer = BytesWriter()
        write_i32_be(writer, MAGIC)
        write_i32_be(writer, i32(self.file_no))
        write_i64_be(writer, self.offset)
        write_i64_be(writer, self.synced_offset)
        write_i64_be(writer, self.size)
        checked = writer.getvalue()
        checksum = crc32(checked)
        for part in self.parts:
            checksum = crc32(part, checksum)
        return checked + checksum.to_bytes(4, "big")


def note_block(file_no: i64, end: i64, ends: dict[int, int], begun: i64, size: i64) -> list[bytes]:
    """What is written behind the last block of a file when that is synced up to there.

    ``ends``: logs beside the journal and how far they are on disk.  ``begun``: the next file, which
    is on disk and at least so long; 0 = none is.
    """
    writer = BytesWriter()
    for queue_id, upto in ends.items():
        write_reserve(writer, queue_id, upto)
    if begun > 0:
        write_begun(writer, begun, size)
    group = JournalGroup(file_no, end, end, [writer.getvalue()], False, 0, [])
    return [group.header(), *group.parts]


def block_end(data: bytes, at: i64, file_no: i64, base: i64 = 0) -> i64:
    """Where the block that begins at ``at`` ends; -1 when no whole, true block is there.

    ``base``: where in the file ``data`` begins.

    Of any version: all keep this header, so that a block of a later release is not taken
    for a torn one.
    """
    records = at + BLOCK_HEADER_BYTES
    if records > len(data) or (read_i32_be(data, at) ^ MAGIC) & ~0xFF:
        return -1
    if i64(read_i32_be(data, at + 4)) != file_no or read_i64_be(data, at + 8) != base + at:
        return -1
    size = read_i64_be(data, at + 24)
    if size < 0 or size > len(data) - records:
        return -1
    end = records + size
    crc = crc32(memoryview(data)[records:end], crc32(data[at : at + CHECKED_HEADER_BYTES]))
    written = i64(read_i32_be(data, at + CHECKED_HEADER_BYTES)) & 0xFFFFFFFF
    return end if crc == written else -1


def block_bytes(data: bytes, at: i64) -> i64:
    """How long the block at ``at`` says it is, true or not; 0 = no header is there."""
    if at + BLOCK_HEADER_BYTES > len(data) or (read_i32_be(data, at) ^ MAGIC) & ~0xFF:
        return 0
    size = read_i64_be(data, at + 24)
    return BLOCK_HEADER_BYTES + size if 0 <= size < 1 << 62 else 0


def synced_offset(data: bytes, at: i64) -> i64:
    """How much of the file the true block at ``at`` says was on disk."""
    return read_i64_be(data, at + 16)


def attests_damage(data: bytes, at: i64, file_no: i64) -> bool:
    """Whether a true block after ``at`` says that the bytes at ``at`` had reached the disk."""
    found: i64 = data.find(MAGIC_BYTES, int(at) + 1)
    while found >= 0:
        if block_end(data, found, file_no) >= 0 and synced_offset(data, found) > at:
            return True
        found = data.find(MAGIC_BYTES, int(found) + 1)
    return False


def damage(path: str, offset: int, size: int) -> Corrupt:
    return Corrupt(f"{path}: damaged at offset {offset}, {size} bytes")


# -- records, writing ----------------------------------------------------------------------


def write_ack(writer: BytesWriter, queue_id: i64, start: i64, end: i64) -> None:
    """Acknowledge seq_ids from ``start`` up to and without ``end``."""
    count = end - start
    assert 0 < count < 0x7FFFFFFF
    writer.append(ACK if count == 1 else ACK_RUN)
    write_i32_be(writer, i32(queue_id))
    write_i64_be(writer, start)
    if count > 1:
        write_i32_be(writer, i32(count))


def write_reserve(writer: BytesWriter, queue_id: i64, upto_seq_id: i64) -> None:
    writer.append(RESERVE)
    write_i32_be(writer, i32(queue_id))
    write_i64_be(writer, upto_seq_id)


def write_forget(writer: BytesWriter, queue_id: i64) -> None:
    writer.append(FORGET)
    write_i32_be(writer, i32(queue_id))


def write_drop(writer: BytesWriter, file_no: i64) -> None:
    writer.append(DROP)
    write_i32_be(writer, i32(file_no))


def write_begun(writer: BytesWriter, file_no: i64, size: i64) -> None:
    writer.append(BEGUN)
    write_i32_be(writer, i32(file_no))
    write_i64_be(writer, size)


def write_to_tail(writer: BytesWriter, queue_id: i64, old_seq_id: i64, new_seq_id: i64) -> None:
    writer.append(TO_TAIL)
    write_i32_be(writer, i32(queue_id))
    write_i64_be(writer, old_seq_id)
    write_i64_be(writer, new_seq_id)


def write_delay(writer: BytesWriter, queue_id: i64, seq_id: i64, until_ms: WallMs) -> None:
    writer.append(DELAY)
    write_i32_be(writer, i32(queue_id))
    write_i64_be(writer, seq_id)
    write_i64_be(writer, until_ms)


def write_attempts(writer: BytesWriter, queue_id: i64, start: i64, end: i64, counts: i64) -> None:
    """Each of the messages from ``start`` up to and without ``end`` has these ``counts_in``."""
    writer.append(ATTEMPTS)
    write_i32_be(writer, i32(queue_id))
    write_i64_be(writer, start)
    write_i32_be(writer, i32(end - start))
    write_i32_be(writer, i32(counts))


def write_table(writer: BytesWriter, kind: i64, rows: dict[int, int]) -> None:
    """'F', 'Q' or 'K': a small number and a large one in each row."""
    writer.append(u8(kind))
    write_i32_be(writer, i32(len(rows)))
    for key, value in rows.items():
        write_i32_be(writer, i32(key))
        write_i64_be(writer, i64(value))


# -- records, reading ----------------------------------------------------------------------


def record_size(data: bytes, at: i64, end: i64) -> i64:
    """Bytes of the record at ``at``; -1 when it is none or would reach over ``end``."""
    kind = i64(data[at])
    if kind == MESSAGE:
        after = message_record_end(data, at, end)
        return after - at if after >= 0 else -1
    size = _least_size(kind)
    if size < 0 or size > end - at:
        return -1
    if kind == FILES or kind == QUEUES or kind == KEPT:
        size += ROW_BYTES * (i64(read_i32_be(data, at + 1)) & 0xFFFFFFFF)
    return size if size <= end - at else -1


def _least_size(kind: i64) -> i64:
    if kind == ACK or kind == RESERVE or kind == BEGUN:
        return ACK_BYTES
    if kind == ACK_RUN:
        return ACK_RUN_BYTES
    if kind == FORGET or kind == DROP or kind == FILES or kind == QUEUES or kind == KEPT:
        return FORGET_BYTES
    if kind == ATTEMPTS:
        return ATTEMPTS_BYTES
    return TO_TAIL_BYTES if kind == TO_TAIL or kind == DELAY else -1


def read_table(data: bytes, at: i64) -> dict[int, int]:
    rows: dict[int, int] = {}
    row = at + TABLE_BYTES
    for _ in range(i64(read_i32_be(data, at + 1)) & 0xFFFFFFFF):
        rows[int(read_i32_be(data, row))] = int(read_i64_be(data, row + 4))
        row += ROW_BYTES
    return rows
