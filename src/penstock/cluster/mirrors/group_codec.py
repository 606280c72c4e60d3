"""The messages within the group of a mirrored queue, by their first byte.

Bytes between groups:   R ring message | A term u64 applied u64 durable u64 complete u8 |
                        Q question | C chunk
Broadcasts in the ring: a parcel ('O', operations.py) | B term u64 heard_all u8 | T term u64

The name of a member in the ring is ``name/incarnation#n``.
"""

from collections.abc import Sequence
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


def member_of(ring_name: str) -> str:
    """``name/incarnation#n``, one joining of this member, without the number."""
    return ring_name.rpartition("#")[0]


def joining_of(ring_name: str) -> int:
    """The number: of two joinings the later one has the higher."""
    return int(ring_name.rpartition("#")[2])


def is_former(ring_name: str, names: Sequence[str]) -> bool:
    """A later joining of that member is among them: this one spoke of a queue deleted since."""
    member, joining = member_of(ring_name), joining_of(ring_name)
    for name in names:  # noqa: SIM110 - compiled code has no generators
        if member_of(name) == member and joining_of(name) > joining:
            return True
    return False
