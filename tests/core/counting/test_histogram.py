"""The histogram's promise: every percentile is right to within one per cent."""

from __future__ import annotations

import math

from hypothesis import example, given
from hypothesis import strategies as st

from penstock.core.counting.histogram import Histogram, SlidingHistogram, bucket_middle, bucket_of

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
    found = filled(values).percentile(fraction)
    assert abs(found - exact) <= exact / 100 + 1


@given(values_ns)
@example(1 << 37)
@example((1 << 63) - 1)
def test_buckets_grow_with_their_values_and_hold_them(value: int) -> None:
    bucket = bucket_of(value)
    assert 0 <= bucket <= bucket_of((1 << 63) - 1)
    assert bucket_of(bucket_middle(bucket)) == bucket
    assert bucket_of(max(0, value - 1)) <= bucket


@given(st.lists(values_ns, max_size=50), st.lists(values_ns, max_size=50))
def test_merging_is_as_if_one_process_had_seen_all(one: list[int], other: list[int]) -> None:
    merged = Histogram()
    for values in (one, other):
        part = filled(values)
        merged.merge(part.packed(), part.sum, part.greatest)
    whole = filled(one + other)
    assert merged.packed() == whole.packed()
    assert (merged.count, merged.greatest) == (whole.count, whole.greatest)
    assert math.isclose(merged.mean(), whole.mean(), rel_tol=1e-9)


def test_an_empty_histogram_has_zero_everywhere() -> None:
    assert Histogram().percentile(0.99) == 0
    assert Histogram().mean() == 0.0


def test_many_equal_values_may_be_added_at_once() -> None:
    histogram = Histogram()
    histogram.add(5_000, 99)
    histogram.add(1_000_000, 1)
    assert histogram.count == 100
    assert abs(histogram.percentile(0.99) - 5_000) <= 50
    assert histogram.percentile(1.0) == 1_000_000


def test_counts_by_bounds_add_up() -> None:
    times = Histogram()
    for took_ms in (-5, 0, 1, 2, 3, 60_000, 61_000):
        times.add(took_ms, 1)
    assert times.counts([1, 2, 5, 60_000]) == [3, 1, 1, 1, 1]
    assert times.sum == 121_006


# -- the window --------------------------------------------------------------------------------


def count_at(window: SlidingHistogram, now_ms: int) -> int:
    total = Histogram()
    window.add_to(total, now_ms)
    return int(total.count)


def test_values_leave_after_a_window_at_the_latest() -> None:
    window = SlidingHistogram(1000)
    window.add(1, 10)
    assert count_at(window, 500) == 1
    window.add(2, 700)  # the second half
    assert count_at(window, 1000) == 2
    assert count_at(window, 1001) == 1, "the first half is over"
    assert count_at(window, 1501) == 0


def test_a_clock_that_is_set_back_keeps_no_value_for_longer() -> None:
    window = SlidingHistogram(1000)
    window.add(1, 3_600_000)
    window.add(2, 10)
    assert count_at(window, 400) == 1
    assert count_at(window, 1500) == 0


def test_after_a_long_rest_nothing_is_left() -> None:
    window = SlidingHistogram(1000)
    window.add(1, 10)
    assert count_at(window, 1_000_000) == 0
    window.add(5, 1_000_100)
    assert count_at(window, 1_000_200) == 1


@given(st.lists(st.integers(0, 700), max_size=60))
def test_a_window_holds_between_a_half_and_a_whole(steps: list[int]) -> None:
    window = SlidingHistogram(1000)
    now_ms, times = 0, []
    for step in steps:
        now_ms += step
        times.append(now_ms)
        window.add(1, now_ms)
        count = count_at(window, now_ms)
        assert sum(1 for time in times if time > now_ms - 500) <= count
        assert count <= sum(1 for time in times if time >= now_ms - 1001)
