"""Message records, read as their page alone says, and the examples of all pages."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import NamedTuple

PAGES = Path(__file__).parents[2] / "docs/formats"


class Record(NamedTuple):
    flags: int
    queue: int
    counts: int
    seq: int
    expires_at_ms: int
    enqueued_at_ms: int
    address: bytes
    size: int
    content: bytes | int
    """The bytes, or the msg_id."""


def read_record(data: bytes, at: int) -> tuple[Record, int]:
    """message_record.md, clauses 1.1 to 1.4: the record at that place, and where it ends."""
    kind, flags, address_size, size, queue, counts, seq, expires, enqueued = struct.unpack_from(
        ">cBHIIIQqq", data, at
    )
    assert kind == b"P"
    at += 40
    address = data[at : at + address_size]
    at += address_size
    content: bytes | int
    if flags & 64:
        content, at = struct.unpack_from(">Q", data, at)[0], at + 8
    else:
        content, at = data[at : at + size], at + size
        assert len(content) == size
    return Record(flags, queue, counts, seq, expires, enqueued, address, size, content), at


def examples(page: str) -> list[bytes]:
    blocks = re.findall(r"```hex\n(.*?)```", (PAGES / page).read_text(), re.DOTALL)
    return [bytes.fromhex(re.sub(r"\s", "", block)) for block in blocks]
