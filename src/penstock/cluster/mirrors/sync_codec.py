"""The bytes of a synchronisation: a mirror's questions and the master's chunks (mirrors/sync.py).

    question   'Q' version | term u64 | number u64 | part u8 | low u64 | upto u64 |
               count u32 | (start u64, end u64)*
               "I know nothing of [low, upto).  Of it I have these places, from before."
    chunk      'C' version | term u64 | number u64 | part u8 | low u64 | upto u64 | next u64 |
               left u64 | operations
               "As of parcel ``number``, this is how [low, upto) differs."

Everything is big-endian; the operations of a chunk are those of a parcel (operations.py).  The
parser believes nothing and raises ``Malformed``.
"""

from typing import Final, NamedTuple

from librt.strings import BytesWriter, read_i32_be, read_i64_be, write_i32_be, write_i64_be
from mypy_extensions import i32, i64, u8

from penstock.cluster.mirrors.operations import SEQ_ID_MAX, Operation, Ranges, read_operations
from penstock.core.byte_reader import Malformed

QUESTION: Final = 0x51
CHUNK: Final = 0x43
VERSION: Final = 1
QUESTION_BYTES: Final[i64] = 39
CHUNK_HEADER_BYTES: Final[i64] = 51
CHUNK_BYTES: Final[i64] = 1024 * 1024
"""So many bytes of contents a chunk has at most, or one message."""
PLACES_ASKED: Final[i64] = 65_536
"""So many places at most a mirror says it has, in one question."""


class SyncAsk(NamedTuple):
    term: int
    number: int  # of the last parcel the mirror applied; 0 = it heard none
    part: int
    low: int
    upto: int
    have: Ranges


class Chunk(NamedTuple):
    term: int
    number: int
    part: int
    low: int
    upto: int
    next_seq_id: int  # no parcel up to ``number`` reached it
    left: int  # messages below, about
    operations: list[Operation]


# -- bytes ---------------------------------------------------------------------------------


def encode_question(question: SyncAsk) -> bytes:
    writer = BytesWriter()
    writer.append(QUESTION)
    write_head(writer, question.term, question.number, question.part, question.low, question.upto)
    write_i32_be(writer, i32(len(question.have)))
    for start, end in question.have:
        write_i64_be(writer, start)
        write_i64_be(writer, end)
    return writer.getvalue()


def read_question(data: bytes) -> SyncAsk:
    size: i64 = len(data)
    if size < QUESTION_BYTES or i64(data[0]) != QUESTION or i64(data[1]) != VERSION:
        raise Malformed("this is no question for a synchronisation of version 1")
    term, number = read_i64_be(data, 2), read_i64_be(data, 10)
    low, upto = read_i64_be(data, 19), read_i64_be(data, 27)
    _check_head(term, number, low, upto)
    if i64(read_i32_be(data, 35)) * 16 != size - QUESTION_BYTES:
        raise Malformed("a question's ranges are not as many as it says")
    have: Ranges = []
    last = low - 1
    for at in range(QUESTION_BYTES, size, 16):
        start = read_i64_be(data, at)
        end = read_i64_be(data, at + 8)
        if start <= last or end <= start or end > upto:
            raise Malformed("a question's ranges do not ascend within its bounds")
        if end - start > PLACES_ASKED:
            raise Malformed("a question's range has too many places")
        have.append((int(start), int(end)))
        last = end
    return SyncAsk(term, number, i64(data[18]), low, upto, have)


def read_chunk(data: bytes) -> Chunk:
    if len(data) < CHUNK_HEADER_BYTES or i64(data[0]) != CHUNK or i64(data[1]) != VERSION:
        raise Malformed("this is no chunk of a synchronisation of version 1")
    term, number = read_i64_be(data, 2), read_i64_be(data, 10)
    low, upto = read_i64_be(data, 19), read_i64_be(data, 27)
    next_seq_id, left = read_i64_be(data, 35), read_i64_be(data, 43)
    _check_head(term, number, low, upto)
    if not 0 <= next_seq_id <= SEQ_ID_MAX or left < 0:
        raise Malformed("a chunk's numbers are out of bounds")
    operations = read_operations(data, CHUNK_HEADER_BYTES)
    return Chunk(term, number, i64(data[18]), low, upto, next_seq_id, left, operations)


def write_head(writer: BytesWriter, term: i64, number: i64, part: i64, low: i64, upto: i64) -> None:
    writer.append(VERSION)
    write_i64_be(writer, term)
    write_i64_be(writer, number)
    writer.append(u8(part))
    write_i64_be(writer, low)
    write_i64_be(writer, upto)


def _check_head(term: i64, number: i64, low: i64, upto: i64) -> None:
    if term < 0 or number < 0 or not 0 <= low < upto or upto > SEQ_ID_MAX:
        raise Malformed("the bounds of a synchronisation are none")
