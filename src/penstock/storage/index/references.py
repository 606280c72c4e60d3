"""References of a segment to records in the journal: blocks of kind 4.

    payload   file_no u32 | crc u32 | rows (offset u32, size u32)

The rows name pieces of the journal file; in a row they are what a messages block has as its
payload: the records of this segment, ascending.  The checksum is CRC-32 of those bytes.  It is
worked out by the thread that writes the block: before that it is 0.
"""

from typing import Final

from librt.strings import BytesWriter, read_i32_be, write_i32_be
from mypy_extensions import i32, i64

from penstock.core.checksum import crc32
from penstock.core.errors import Corrupt
from penstock.storage.common.files import FileSystem
from penstock.storage.journal.codec import journal_file_name

ROW_BYTES: Final[i64] = 8
HEAD_BYTES: Final[i64] = 8
GAP_BYTES: Final[i64] = 64 * 1024
"""Pieces this near to each other are read in one go."""
READ_AT_MOST: Final[i64] = 4
"""A reference is good if no more than so many bytes are read for one of its own ..."""
REQUEST_BYTES: Final[i64] = 16 * 1024
"""... and if a request brings that many, or is the only one."""


def encode_references(file_no: i64, rows: bytes) -> bytes:
    """The payload, with 0 for the checksum."""
    writer = BytesWriter()
    write_i32_be(writer, i32(file_no))
    write_i32_be(writer, 0)
    writer.write(rows)
    return writer.getvalue()


def referred_file_no(payload: bytes) -> i64:
    return i64(read_i32_be(payload, 0))


def are_references(payload: bytes) -> bool:
    """Does it look like the payload of this kind?"""
    rows: i64 = len(payload) - HEAD_BYTES
    return rows >= ROW_BYTES and rows % ROW_BYTES == 0


def is_worth_it(rows: bytes) -> bool:
    """Are these pieces so near to each other that they are read as fast as one?"""
    size: i64 = 0
    read: i64 = 0
    requests: i64 = 0
    start: i64 = 0
    end: i64 = -GAP_BYTES - 1
    at: i64 = 0
    while at < len(rows):
        offset = i64(read_i32_be(rows, at))
        length = i64(read_i32_be(rows, at + 4))
        if offset - end > GAP_BYTES:
            read += end - start if requests > 0 else 0
            requests += 1
            start = offset
        end = offset + length
        size += length
        at += ROW_BYTES
    read += end - start
    return read <= READ_AT_MOST * size and (requests == 1 or requests * REQUEST_BYTES <= size)


def with_checksum(files: FileSystem, directory: str, payload: bytes) -> bytes:
    """Of a payload just made; reads what it refers to."""
    crc = crc32(_gather(files, directory, payload))
    return payload[:4] + crc.to_bytes(4, "big") + payload[HEAD_BYTES:]


def read_references(
    files: FileSystem, directory: str, payload: bytes, checked: bool = True
) -> bytes:
    """The records.  Raises Corrupt.  Not ``checked``: it has no checksum yet."""
    records = _gather(files, directory, payload)
    if checked:
        check_references(_path(directory, payload), payload, records)
    return records


def check_references(path: str, payload: bytes, records: bytes) -> None:
    """``path``: of the journal file.  Raises Corrupt."""
    if crc32(records) != i64(read_i32_be(payload, 4)) & 0xFFFFFFFF:
        start = int(read_i32_be(payload, HEAD_BYTES))
        end = int(read_i32_be(payload, len(payload) - 8) + read_i32_be(payload, len(payload) - 4))
        raise Corrupt(
            f"{path}: damaged at offset {start}, {end - start} bytes that a segment refers to;"
            " `penstock audit` with the data directory shows all of it"
        )


def pieces_of(payload: bytes) -> list[tuple[int, int]]:
    """(offset, size) each."""
    return [
        (int(read_i32_be(payload, at)), int(read_i32_be(payload, at + 4)))
        for at in range(int(HEAD_BYTES), len(payload), int(ROW_BYTES))
    ]


def _path(directory: str, payload: bytes) -> str:
    return f"{directory}/{journal_file_name(int(referred_file_no(payload)))}"


def _gather(files: FileSystem, directory: str, payload: bytes) -> bytes:
    path = _path(directory, payload)
    found: list[bytes | memoryview] = []
    rows: i64 = len(payload)
    at = HEAD_BYTES
    while at < rows:
        first = at
        start = i64(read_i32_be(payload, at))
        end = start + i64(read_i32_be(payload, at + 4))
        at += ROW_BYTES
        while at < rows and i64(read_i32_be(payload, at)) - end <= GAP_BYTES:
            end = i64(read_i32_be(payload, at)) + i64(read_i32_be(payload, at + 4))
            at += ROW_BYTES
        try:
            data = files.pread(path, int(start), int(end - start))
        except FileNotFoundError as error:
            raise Corrupt(f"{path}: is missing, and segments refer to it") from error
        if at == first + ROW_BYTES:
            found.append(data)
            continue
        view = memoryview(data)
        while first < at:
            offset = i64(read_i32_be(payload, first)) - start
            found.append(view[offset : offset + i64(read_i32_be(payload, first + 4))])
            first += ROW_BYTES
    return bytes(found[0]) if len(found) == 1 else b"".join(found)
