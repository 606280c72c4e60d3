"""The bytes between master and mirrors: what is written is read, and nothing else is."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.mirrors import operations as ops
from penstock.core.byte_reader import Malformed
from penstock.core.message import (
    PERSISTENT,
    PRIORITY_SHIFT,
    REDELIVERED,
    Message,
    attempts_of,
    returns_of,
    set_attempts,
)
from penstock.streams.block_codec import POSITIONS, TERMS
from penstock.streams.marks import StreamMarks

ADDRESS = b"\x02ex\x04keys"
SEQ_IDS = st.integers(0, 1 << 61)


@st.composite
def some_messages(draw: Any) -> list[Message]:
    found = []
    for seq_id in sorted(draw(st.lists(st.integers(0, 40), min_size=1, max_size=20, unique=True))):
        flags = draw(st.sampled_from([0, PERSISTENT, REDELIVERED, PERSISTENT | REDELIVERED]))
        flags |= draw(st.integers(0, 255)) << PRIORITY_SHIFT
        content = draw(st.binary(min_size=1, max_size=40)) * draw(st.sampled_from([1, 600]))
        address = draw(st.sampled_from([ADDRESS, b"\0\0", b"\0\1k"]))
        one = Message(content, address, flags, draw(st.integers(0, 1 << 50)))
        set_attempts(one, draw(st.sampled_from([0, 1, 65_535])))
        one.seq_id = seq_id + (3 << 40)
        one.enqueued_at_ms = draw(st.integers(0, 1 << 50))
        found.append(one)
    return found


def told(one: Message) -> tuple[Any, ...]:
    return (
        one.seq_id,
        one.content,
        one.address,
        one.flags,
        one.expires_at_ms,
        one.enqueued_at_ms,
        one.size,
        attempts_of(one),
    )


def written(number: int = 1) -> ops.Pieces:
    pieces = ops.Pieces()
    ops.write_header(pieces.writer, 7, number)
    return pieces


@given(messages=some_messages(), part=st.integers(0, 255), until_ms=st.sampled_from([0, 99]))
def test_published_messages_arrive(messages: list[Message], part: int, until_ms: int) -> None:
    pieces = written(number=5)
    ops.write_publish(pieces, part, until_ms, messages)
    parcel = ops.read_parcel(pieces.joined())
    assert (parcel.term, parcel.number) == (7, 5)
    assert all(one.kind == ops.PUBLISH for one in parcel.operations)
    assert all((one.part, one.until_ms) == (part, until_ms) for one in parcel.operations)
    found = [told(one) for operation in parcel.operations for one in operation.messages]
    assert found == [told(one) for one in messages]


def test_a_large_content_is_a_piece_that_was_not_copied() -> None:
    large, small = b"l" * int(ops.OWN_PIECE_BYTES), b"s" * int(ops.OWN_PIECE_BYTES - 1)
    messages = [Message(content, bytes(ADDRESS), 0, 0) for content in (small, large, small)]
    for seq_id, one in enumerate(messages):
        one.seq_id = seq_id
    pieces = written()
    ops.write_publish(pieces, 0, 0, messages)
    size = pieces.size()
    assert [piece is large for piece in pieces.all()] == [False, True, False]
    assert size == pieces.size() == len(pieces.joined())


def test_attempts_and_returns_of_a_quorum_queue_arrive() -> None:
    one = Message(b"c", bytes(ADDRESS), 0, 0)
    one.seq_id = 4
    for _ in range(3):
        one.returned()
    one.tried()
    pieces = written()
    ops.write_publish(pieces, 0, 0, [one])
    ops.write_attempts(pieces.writer, 0, [one])
    published, counted = ops.read_parcel(pieces.joined()).operations
    (found,) = published.messages
    assert (attempts_of(found), returns_of(found)) == (1, 3)
    found.set_counts(0)
    ((seq_id, both),) = counted.counts
    found.set_counts(both)
    assert (seq_id, attempts_of(found), returns_of(found)) == (4, 1, 3)


@given(seq_ids=st.lists(SEQ_IDS, min_size=1, unique=True), kind=st.sampled_from("AML"))
def test_places_arrive_as_ranges(seq_ids: list[int], kind: str) -> None:
    pieces = written()
    ops.write_ranges(pieces.writer, ord(kind), 3, 44, ops.ranges_of(seq_ids))
    (operation,) = ops.read_parcel(pieces.joined()).operations
    assert (operation.kind, operation.part) == (ord(kind), 3)
    assert operation.until_ms == (44 if kind == "L" else 0)
    spelled = [one for start, end in operation.ranges for one in range(start, end)]
    assert spelled == sorted(seq_ids)


def test_neighbours_with_one_address_share_its_bytes() -> None:
    messages = [Message(b"c", bytes(ADDRESS), 0, 0) for _ in range(3)]
    for seq_id, one in enumerate(messages):
        one.seq_id = seq_id
    pieces = written()
    ops.write_publish(pieces, 0, 0, messages)
    (operation,) = ops.read_parcel(pieces.joined()).operations
    assert len({id(one.address) for one in operation.messages}) == 1


def test_behind_a_good_address_a_wrong_one_is_refused() -> None:
    one = message_operation()
    head, good = one[: 2 + 16], one[2 + 20 :]
    for address in (b"\x05ab", b"", ADDRESS[:-1]):
        wrong = message_operation(address=address)[2 + 20 :]
        data = head + struct.pack(">I", 3) + good + good + wrong
        with pytest.raises(Malformed, match="no exchange and routing key"):
            ops.read_parcel(written().joined() + data)


def test_a_thousand_neighbours_are_one_range() -> None:
    pieces = written()
    ops.write_ranges(pieces.writer, ops.END, 0, 0, ops.ranges_of(list(range(1000))))
    assert pieces.size() == ops.HEADER_BYTES + 6 + ops.RANGE_BYTES


@given(messages=some_messages())
def test_attempts_arrive(messages: list[Message]) -> None:
    pieces = written()
    ops.write_attempts(pieces.writer, 0, messages)
    (operation,) = ops.read_parcel(pieces.joined()).operations
    assert operation.counts == [(one.seq_id, attempts_of(one)) for one in messages]


@given(rows=st.dictionaries(st.text(max_size=60), st.integers(0, 1 << 61), max_size=9))
def test_marks_of_a_stream_arrive(rows: dict[str, int]) -> None:
    marks = StreamMarks().terms
    for name, number in rows.items():
        marks.move(name, number, 3)
    pieces = written()
    ops.write_marks(pieces.writer, TERMS, len(marks), marks.rows())
    (operation,) = ops.read_parcel(pieces.joined()).operations
    assert (operation.kind, operation.row_kind) == (ops.MARKED, TERMS)
    assert operation.row_count == len(rows)
    assert operation.rows == marks.rows()


def a_parcel() -> bytes:
    """One of each."""
    one = Message(b"content", ADDRESS, PERSISTENT, 0)
    one.seq_id = 4
    pieces = written()
    ops.write_publish(pieces, 0, 0, [one])
    ops.write_attempts(pieces.writer, 0, [one])
    ops.write_ranges(pieces.writer, ops.DELAY, 0, 1, [(4, 5)])
    ops.write_ranges(pieces.writer, ops.LET_GO, 0, 0, [(1, 2)])
    marks = StreamMarks().positions
    marks.move("reader", 7, 99)
    ops.write_marks(pieces.writer, POSITIONS, len(marks), marks.rows())
    ops.write_ranges(pieces.writer, ops.END, 0, 0, [(0, 1), (4, 5)])
    return pieces.joined()


def test_no_beginning_of_a_parcel_is_one_unless_an_operation_ends_there() -> None:
    whole = a_parcel()
    ends = 0
    for size in range(len(whole)):
        try:
            ops.read_parcel(whole[:size])
        except Malformed:
            continue
        ends += 1
    assert ends == 6  # behind the header and behind each of the first five


def range_operation(kind: bytes, *numbers: int) -> bytes:
    pairs = len(numbers) // 2
    return kind + b"\0" + struct.pack(f">I{len(numbers)}q", pairs, *numbers)


def message_operation(
    *, flags: int = 0, address: bytes = ADDRESS, content: bytes = b"c", attempts: int = 0
) -> bytes:
    head = struct.pack(">BBHIIqq", flags, 0, len(address), len(content), attempts, 0, 0)
    return b"P\0" + struct.pack(">qqI", 0, 4, 1) + head + address + content


WRONG = {
    "no known kind": b"Z\0",
    "no known version": b"",
    "an empty range": range_operation(b"A", 5, 5),
    "a range that ends before it begins": range_operation(b"A", 5, 4),
    "ranges that touch": range_operation(b"A", 1, 2, 2, 3),
    "ranges that do not ascend": range_operation(b"M", 5, 6, 1, 2),
    "a negative place": range_operation(b"A", -5, 4),
    "a delay of more places than there can be": b"L\0" + struct.pack(">qIqq", 9, 1, 0, 1 << 40),
    "no ranges at all": range_operation(b"A"),
    "more ranges than there are bytes": b"A\0" + struct.pack(">I", 1 << 30),
    "a count of 2**31 or more": b"A\0\xff\xff\xff\xff" + bytes(16),
    "a delay without a time": b"L\0" + bytes(8) + range_operation(b"A", 1, 2)[2:],
    "flags that are the queue's own": message_operation(flags=8),
    "an empty content": message_operation(content=b""),
    "an address that is none": message_operation(address=b"\x05ab"),
    "an address of no bytes": message_operation(address=b""),
    "an address with a rest": message_operation(address=ADDRESS + b"x"),
    "too many attempts": message_operation(attempts=1 << 31),
    "no messages": b"P\0" + struct.pack(">qqI", 0, 4, 0),
    "a place out of bounds": b"P\0" + struct.pack(">qqI", 0, (1 << 63) - 1, 1) + bytes(40),
    "marks of no known kind": b"K\0\1" + struct.pack(">II", 0, 0),
    "more marks than there are": b"K\0\4" + struct.pack(">II", 2, 18) + b"\1n" + bytes(16),
    "a mark beyond the end of its rows": b"K\0\4" + struct.pack(">II", 1, 17) + b"\1n" + bytes(16),
    "marks beyond the end": b"K\0\6" + struct.pack(">II", 1, 19) + b"\1n" + bytes(16),
    "attempts out of bounds": b"E\0" + struct.pack(">IqI", 1, 4, 1 << 31),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_refused(what: str) -> None:
    data = written().joined() + WRONG[what]
    if what == "no known version":
        data = data[:1] + b"\x02" + data[2:]
    with pytest.raises(Malformed):
        ops.read_parcel(data)


def test_a_good_message_by_hand_is_read() -> None:
    data = written().joined() + message_operation()
    (operation,) = ops.read_parcel(data).operations
    assert operation.messages[0].seq_id == 4


@given(seed=st.integers(0, 2**32))
def test_noise_is_refused_or_read_and_nothing_else_happens(seed: int) -> None:
    rng = random.Random(seed)
    data = bytearray(a_parcel())
    for _ in range(rng.randint(1, 4)):
        how = rng.randrange(3)
        at = rng.randrange(len(data))
        if how == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif how == 1:
            data[at:at] = rng.randbytes(rng.randint(1, 9))
        else:
            del data[at : at + rng.randint(1, 9)]
        if not data:
            break
    try:
        parcel = ops.read_parcel(bytes(data))
    except Malformed:
        return
    for operation in parcel.operations:
        for one in operation.messages:
            assert one.size == len(one.content) > 0
            assert one.seq_id >= 0
        for start, end in operation.ranges:
            assert 0 <= start < end
