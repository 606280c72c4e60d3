"""The messages within the group of a mirrored queue, by their first byte.

Bytes between groups:   R ring message | A term u64 applied u64 durable u64 complete u8 |
                        Q question | C chunk
Broadcasts in the ring: a parcel ('O', operations.py) | B term u64 heard_all u8 | T term u64
"""

from struct import Struct
from typing import Final

from mypy_extensions import i64

RING: Final[i64] = 0x52
ANSWER: Final[i64] = 0x41
QUESTION: Final[i64] = 0x51
CHUNK: Final[i64] = 0x43
PARCEL: Final[i64] = 0x4F
BEGIN: Final[i64] = 0x42
THROUGH: Final[i64] = 0x54

answer_codec: Final = Struct(">BQQQ?")
begin_codec: Final = Struct(">BQ?")
through_codec: Final = Struct(">BQ")
