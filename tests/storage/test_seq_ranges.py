"""``SeqRanges`` against a plain set."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.storage.common.seq_ranges import SeqRanges, ranges_of

PAIRS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)), max_size=12)


@given(rounds=st.lists(PAIRS, max_size=4), questions=st.lists(st.integers(0, 80), max_size=60))
def test_it_is_a_set(rounds: list[list[tuple[int, int]]], questions: list[int]) -> None:
    ranges = SeqRanges()
    truth: set[int] = set()
    for pairs in rounds:
        for start, size in pairs:
            ranges.add(start, start + size)
            truth.update(range(start, start + size))
        for seq_id in questions:
            assert ranges.contains(seq_id) == (seq_id in truth)
        ranges.settle()
        ranges.check()
    found = zip(ranges.starts, ranges.ends, strict=True)
    assert {seq_id for start, end in found for seq_id in range(start, end)} == truth


@given(st.lists(st.integers(0, 40)))
def test_ranges_of_ids(seq_ids: list[int]) -> None:
    ranges = ranges_of(seq_ids)
    ranges.check()
    assert sum(end - start for start, end in zip(ranges.starts, ranges.ends, strict=True)) == len(
        set(seq_ids)
    )


def test_far_ends() -> None:
    ranges = SeqRanges()
    ranges.add(0, 1)
    ranges.add(2**62, 2**63 - 1)
    assert ranges.contains(0)
    assert not ranges.contains(1)
    assert ranges.contains(2**63 - 2)
    assert len(ranges.starts) == 2
