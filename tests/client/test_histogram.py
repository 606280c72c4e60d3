"""The histogram's promise: every percentile is right to within one per cent."""

from __future__ import annotations

import math

from hypothesis import example, given
from hypothesis import strategies as st

from penstock.client.histogram import BUCKETS, Histogram, bucket_middle, bucket_of

values_ns = st.one_of(
    st.integers(0, 200),
    st.integers(0, 10**9),
    st.integers(0, 2**63 - 1),
)


def filled(values: list[int]) -> Histogram:
    histogram = Histogram()
    for value in values:
        histogram.add(value, 1)
    return histogram


@given(st.lists(values_ns, min_size=1, max_size=200), st.sampled_from([0.01, 0.5, 0.75, 0.99, 1.0]))
def test_a_percentile_is_the_nearest_rank_within_one_percent(
    values: list[int], fraction: float
) -> None:
    exact = sorted(values)[max(1, math.ceil(fraction * len(values))) - 1]
    found = filled(values).percentile_ns(fraction)
    assert abs(found - exact) <= exact / 100 + 1


@given(values_ns)
@example(1 << 37)
@example((1 << 63) - 1)
def test_buckets_grow_with_their_values_and_hold_them(value: int) -> None:
    bucket = bucket_of(value)
    assert 0 <= bucket < BUCKETS
    assert bucket_of(bucket_middle(bucket)) == bucket
    assert bucket_of(max(0, value - 1)) <= bucket


@given(st.lists(values_ns, max_size=50), st.lists(values_ns, max_size=50))
def test_merging_is_as_if_one_process_had_seen_all(one: list[int], other: list[int]) -> None:
    merged = Histogram()
    for values in (one, other):
        part = filled(values)
        merged.merge(part.packed(), part.sum_ns, part.max_ns)
    whole = filled(one + other)
    assert merged.packed() == whole.packed()
    assert (merged.count, merged.max_ns) == (whole.count, whole.max_ns)
    assert math.isclose(merged.mean_ns(), whole.mean_ns(), rel_tol=1e-9)


def test_an_empty_histogram_has_zero_everywhere() -> None:
    assert Histogram().percentile_ns(0.99) == 0
    assert Histogram().mean_ns() == 0.0


def test_many_equal_values_may_be_added_at_once() -> None:
    histogram = Histogram()
    histogram.add(5_000, 99)
    histogram.add(1_000_000, 1)
    assert histogram.count == 100
    assert abs(histogram.percentile_ns(0.99) - 5_000) <= 50
    assert histogram.percentile_ns(1.0) == 1_000_000
