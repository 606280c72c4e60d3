"""The messages within the group of a mirrored queue, by their first byte.

Bytes between groups:   R ring message | A term u64 applied u64 durable u64 complete u8 |
                        Q question | C chunk
Where a majority confirms (star_group.py):
                        A | Q | C | a parcel | J term u64 | D term u64 | E term u64 |
                        G term u64 number u64
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
FOLLOW: Final[i64] = 0x4A
UNREADABLE: Final[i64] = 0x44
BEGIN_AGAIN: Final[i64] = 0x45
GO_ON_BEHIND: Final[i64] = 0x47

answer_codec: Final = Struct(">BQQQ?")
begin_codec: Final = Struct(">BQ?")
through_codec: Final = Struct(">BQ")
follow_codec: Final = Struct(">BQ")
go_on_codec: Final = Struct(">BQQ")
