"""The bytes of the message store, both ways; docs/formats/message_store.md is their page.

A store file ``<N>.rdq`` is a row of *groups*, a group is a header and a row of *records*, a
record is one message's content behind a small header.  Everything is big-endian.

    group     magic "PSR" 01 | file_no u32 | offset u64 | synced u64 | size u64 |
              next_msg_id u64 | crc u32 | records
    record    size u32 | msg_id u64 | crc u32 | content

The group's checksum covers its header only, a record's covers size, msg_id and content: a
record can be read and judged alone, from any place in the file, which is what reads do while
files are rewritten under them.  A group is believed whole or not at all: header and every
record in it.  The header names the file and the offset where the group belongs, so that a
copy of it (say, inside a message) is never taken for one.

``synced`` says how many bytes of this file were known to be on disk when the group was
sealed: damage below that was not done by a crash.  A file written by compaction is synced
before it gets its name, so its one group attests all of itself.

The *table* is what a clean stop leaves, so that the next start need not read the files.
"""

import sys
from array import array
from struct import Struct
from typing import Final, final

from mypy_extensions import i64

from penstock.core.checksum import crc32
from penstock.core.errors import Corrupt
from penstock.storage.common.formats import numbered

FORMAT_VERSION: Final = 1
MAGIC_BYTES: Final = b"PSR\x01"
TABLE_MAGIC_BYTES: Final = b"PST\x01"
STORE_SUFFIX: Final = ".rdq"
UNFINISHED_SUFFIX: Final = ".rdt"

GROUP_HEADER_BYTES: Final[i64] = 44
RECORD_HEADER_BYTES: Final[i64] = 16
CONTENT_BYTES_MAX: Final[i64] = 512 * 1024 * 1024

_GROUP: Final = Struct(">4sIQQQQ")
_RECORD: Final = Struct(">IQ")
_CRC: Final = Struct(">I")
_TABLE: Final = Struct(">4sQII")
_TABLE_FILE: Final = Struct(">IQI")


def store_file_name(file_no: int) -> str:
    return f"{file_no}{STORE_SUFFIX}"


def unfinished_file_name(file_no: int) -> str:
    return f"{file_no}{UNFINISHED_SUFFIX}"


def store_file_no(name: str, suffix: str = STORE_SUFFIX) -> int:
    """The number in the name of a store file; 0 = some other file."""
    return numbered(name, suffix)


def damage(path: str, offset: int, size: int) -> Corrupt:
    return Corrupt(
        f"{path}: damaged at offset {offset}, {size} bytes;"
        " `penstock audit DIR` shows what the data directory DIR holds"
    )


# -- groups --------------------------------------------------------------------------------


def group_header(file_no: i64, offset: i64, synced: i64, size: i64, next_msg_id: i64) -> bytes:
    checked = _GROUP.pack(MAGIC_BYTES, file_no, offset, synced, size, next_msg_id)
    return checked + _CRC.pack(crc32(checked))


@final
class GroupHeader:
    """A group's header as read; ``read_group_header`` makes only true ones."""

    __slots__ = ("next_msg_id", "size", "synced", "version")

    def __init__(self, version: i64, synced: i64, size: i64, next_msg_id: i64) -> None:
        self.version: i64 = version
        self.synced: i64 = synced
        self.size: i64 = size
        self.next_msg_id: i64 = next_msg_id


def read_group_header(data: bytes, file_no: i64, offset: i64) -> GroupHeader | None:
    """The header at the start of ``data``, which was read at ``offset``; None = no true one.

    Of any version: all keep this header, so that a group of a later release is not taken
    for a torn one.
    """
    if len(data) < GROUP_HEADER_BYTES or data[:3] != MAGIC_BYTES[:3]:
        return None
    checked = data[:40]
    if crc32(checked) != int.from_bytes(data[40:44], "big"):
        return None
    fields = _GROUP.unpack(checked)
    if i64(fields[1]) != file_no or i64(fields[2]) != offset:
        return None
    return GroupHeader(data[3], fields[3], fields[4], fields[5])


# -- records -------------------------------------------------------------------------------


def record_header(msg_id: i64, content: bytes) -> bytes:
    """Reads all of the content for the checksum, so it is a thread's work."""
    checked = _RECORD.pack(len(content), msg_id)
    return checked + _CRC.pack(crc32(content, crc32(checked)))


def is_record_header(header: bytes, msg_id: i64, size: i64) -> bool:
    """Whether these 16 bytes announce that content (the checksum is not looked at)."""
    return header[:12] == _RECORD.pack(size, msg_id)


def is_record(header: bytes, content: bytes, msg_id: i64, size: i64) -> bool:
    """Whether header and content are the true record of that message."""
    if len(content) != size or not is_record_header(header, msg_id, size):
        return False
    return crc32(content, crc32(header[:12])) == int.from_bytes(header[12:16], "big")


# -- the table -----------------------------------------------------------------------------


@final
class FileTable:
    """The rows of one file: arrays that ascend together by msg_id."""

    __slots__ = ("ids", "number", "offsets", "references", "size", "sizes")

    def __init__(self, number: i64, size: i64) -> None:
        self.number: i64 = number
        self.size: i64 = size
        self.ids: array[int] = array("q")
        self.offsets: array[int] = array("q")
        self.sizes: array[int] = array("i")
        self.references: array[int] = array("i")

    def add(self, msg_id: i64, offset: i64, size: i64, references: i64) -> None:
        """A row for a record at that place, with a content of that size."""
        self.ids.append(msg_id)
        self.offsets.append(offset)
        self.sizes.append(size)
        self.references.append(references)

    def cut(self, count: int) -> None:
        """Forget all rows but the first ones."""
        del self.ids[count:]
        del self.offsets[count:]
        del self.sizes[count:]
        del self.references[count:]

    def grow(self, size: i64) -> None:
        """The file gets so many bytes more."""
        self.size += size

    def trim(self) -> None:
        """No more rows will come: give back what the arrays hold in reserve for them."""
        self.ids = self.ids[:]
        self.offsets = self.offsets[:]
        self.sizes = self.sizes[:]
        self.references = self.references[:]


def encode_table(next_msg_id: i64, next_file_no: i64, files: list[FileTable]) -> bytes:
    parts = [_TABLE.pack(TABLE_MAGIC_BYTES, next_msg_id, next_file_no, len(files))]
    for file in files:
        parts.append(_TABLE_FILE.pack(file.number, file.size, len(file.ids)))
        parts.append(_big_endian(file.ids))
        parts.append(_big_endian(file.offsets))
        parts.append(_big_endian(file.sizes))
        parts.append(_big_endian(file.references))
    return b"".join(parts)


def _big_endian(values: "array[int]") -> bytes:
    if sys.byteorder == "big":
        return values.tobytes()
    swapped = values[:]
    swapped.byteswap()
    return swapped.tobytes()


@final
class TableReader:
    """Takes a table apart; raises ``ValueError`` for anything that is none."""

    def __init__(self, data: bytes) -> None:
        if len(data) < _TABLE.size or data[:4] != TABLE_MAGIC_BYTES:
            raise ValueError("not a table of this version")
        fields = _TABLE.unpack(data[: _TABLE.size])
        self.next_msg_id: i64 = fields[1]
        self.next_file_no: i64 = fields[2]
        self.files: list[FileTable] = []
        self._data: bytes = data
        self._at: i64 = _TABLE.size
        for _ in range(int(fields[3])):
            self.files.append(self._file())
        if self._at != len(data):
            raise ValueError("too long")

    def _file(self) -> FileTable:
        fields = _TABLE_FILE.unpack(self._take(_TABLE_FILE.size))
        count = int(fields[2])
        file = FileTable(fields[0], fields[1])
        self._fill(file.ids, count)
        self._fill(file.offsets, count)
        self._fill(file.sizes, count)
        self._fill(file.references, count)
        return file

    def _fill(self, values: "array[int]", count: int) -> None:
        values.frombytes(self._take(count * values.itemsize))
        if sys.byteorder != "big":
            values.byteswap()

    def _take(self, size: i64) -> bytes:
        data = self._data[self._at : self._at + size]
        if len(data) != size:
            raise ValueError("too short")
        self._at += size
        return data
