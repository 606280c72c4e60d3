"""Claims: a batch as a list of ranges to be read, instead of the messages themselves.

With option ``claims=true`` a stream's rows are not messages but leave to read them: queue,
incarnation, first and last position, and the token of the reader's lease.  A worker that gets
a claim fetches the messages itself (``read_claim``) and does with them what it likes, so bodies
do not cross Spark's Java process twice.  Positions, acknowledgements and fencing are those of
every other stream: the claims of a batch are the same after a restart, but for the token.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import RecordBatch
    from pyspark.sql.types import StructType

    from pyspark_penstock.options import Settings

TERM_SHIFT = 40
"""In a cluster a queue's n-th master numbers from ``n << 40``, wherever the one before was."""

CLAIM_MESSAGES_MIN = 20_000
"""A range is not cut finer than this: starting to read costs more than reading a few."""


class Claim(NamedTuple):
    """Leave to read ``start <= seq_id < end``."""

    queue: str
    incarnation: str
    start: int
    end: int
    token: int


def claim_schema() -> "StructType":
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(_arrow_schema())


def claim_batch(claim: Claim) -> "RecordBatch":
    import pyarrow as pa

    # A token fills 64 bits; Spark's numbers are signed.
    values = claim._replace(token=claim.token - (1 << 64 if claim.token >> 63 else 0))
    return pa.RecordBatch.from_pylist([values._asdict()], _arrow_schema())


def _arrow_schema() -> "pa.Schema":
    import pyarrow as pa

    kinds = (pa.string(), pa.string(), pa.int64(), pa.int64(), pa.int64())
    return pa.schema(list(zip(Claim._fields, kinds, strict=True)))


def claims_in(rows: "Iterable[tuple[Any, ...]]") -> list[Claim]:
    claims = [Claim(*row) for row in rows]
    return [claim._replace(token=claim.token % (1 << 64)) for claim in claims]


def read_claim(settings: "Settings", claim: Claim) -> "Iterator[RecordBatch]":
    from pyspark_penstock.source import RangePartition, read_range

    return read_range(settings, RangePartition(*claim))


def holes_in(start: int, end: int, messages: int) -> int:
    """Numbers without a message; 0 for a range that ends in another master's: not known."""
    return end - start - messages if start >> TERM_SHIFT == end >> TERM_SHIFT else 0


def pieces_of(width: int, pieces_max: int) -> int:
    """How many claims to make of a range."""
    return max(min(pieces_max, -(-width // CLAIM_MESSAGES_MIN)), 1)
