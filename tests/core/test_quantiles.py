"""Quantiles against the exact ones: ranks never lie, answers are as near as promised."""

import bisect
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.quantiles import (
    BUFFER_VALUES,
    SlidingQuantiles,
    TargetedQuantiles,
    error_of,
)

TARGETS = [0.5, 0.9, 0.99]
shares = st.lists(
    st.sampled_from([0.01, 0.1, 0.5, 0.9, 0.95, 0.99, 0.999, 1.0]), min_size=1, max_size=4
)
counts = st.integers(0, 6 * BUFFER_VALUES)
kinds = st.sampled_from(["uniform", "lognormal", "few", "ascending", "descending"])


def values_of(kind: str, count: int, seed: int) -> list[float]:
    dice = random.Random(seed)
    if kind == "lognormal":
        return [dice.lognormvariate(3, 2) for _ in range(count)]
    if kind == "few":
        return [float(dice.randrange(5)) for _ in range(count)]
    values = [dice.random() * 1e9 for _ in range(count)]
    if kind == "uniform":
        return values
    return sorted(values, reverse=kind == "descending")


def fed(targets: list[float], values: list[float]) -> TargetedQuantiles:
    quantiles = TargetedQuantiles(targets)
    for value in values:
        quantiles.insert(value)
    return quantiles


def assert_ranks_true(quantiles: TargetedQuantiles, values: list[float]) -> None:
    """Between the least and the greatest rank there is one that the value has."""
    values = sorted(values)
    for value, least, greatest in quantiles.ranks():
        first = bisect.bisect_left(values, value) + 1
        last = bisect.bisect_right(values, value)
        assert first <= greatest
        assert least <= last


def rank_error(values: list[float], answer: float, share: float) -> float:
    """How far from the wanted rank the nearest rank of the answer is."""
    values = sorted(values)
    wanted = math.ceil(share * len(values))
    first = bisect.bisect_left(values, answer) + 1
    last = bisect.bisect_right(values, answer)
    assert first <= last, "an answer is one of the values"
    return max(first - wanted, wanted - last, 0)


@given(shares, kinds, counts, st.integers())
def test_an_answer_is_off_by_no_more_than_promised(
    targets: list[float], kind: str, count: int, seed: int
) -> None:
    values = values_of(kind, count, seed)
    quantiles = fed(targets, values)
    quantiles.flush()
    quantiles.check()
    assert quantiles.count() == count
    assert_ranks_true(quantiles, values)
    if not values:
        return
    for share in targets:
        assert rank_error(values, quantiles.query(share), share) <= error_of(share) * count + 1


@given(shares, st.lists(st.tuples(kinds, counts, st.integers()), min_size=2, max_size=4))
def test_merged_summaries_tell_no_lies(
    targets: list[float], parts: list[tuple[str, int, int]]
) -> None:
    whole: list[float] = []
    merged = TargetedQuantiles(targets)
    for kind, count, seed in parts:
        values = values_of(kind, count, seed)
        whole += values
        merged.merge(fed(targets, values))
        merged.check()
    assert merged.count() == len(whole)
    assert_ranks_true(merged, whole)


@pytest.mark.parametrize("kind", ["uniform", "lognormal", "ascending"])
def test_merging_alike_streams_costs_no_more_than_twice_the_error(kind: str) -> None:
    whole: list[float] = []
    merged = TargetedQuantiles(TARGETS)
    for seed in range(8):
        values = values_of(kind, 2000, seed)
        whole += values
        merged.merge(fed(TARGETS, values))
    for share in TARGETS:
        error = rank_error(whole, merged.query(share), share)
        assert error <= 2 * error_of(share) * len(whole)


def test_the_last_hundredth_is_not_the_greatest() -> None:
    values = values_of("ascending", 10_000, 3)
    assert fed(TARGETS, values).query(0.99) < values[-50]


def test_little_is_kept_of_much() -> None:
    quantiles = fed(TARGETS, values_of("uniform", 50_000, 1))
    assert len(quantiles.ranks()) < 300


def test_a_merge_leaves_the_other_as_it_was() -> None:
    one, other = fed(TARGETS, [1.0, 2.0]), fed(TARGETS, [3.0])
    one.merge(other)
    one.merge(other)
    assert one.count() == 4
    assert other.ranks() == [(3.0, 1, 1)]


def test_nothing_was_seen() -> None:
    assert TargetedQuantiles(TARGETS).query(0.5) == 0.0


# -- the window --------------------------------------------------------------------------------


def count_at(window: SlidingQuantiles, now_ms: int) -> int:
    total = TargetedQuantiles(TARGETS)
    window.add_to(total, now_ms)
    window.check()
    return int(total.count())


def test_values_leave_after_a_window_at_the_latest() -> None:
    window = SlidingQuantiles(TARGETS, 1000, 0)
    window.insert(1.0, 10)
    assert count_at(window, 500) == 1
    window.insert(2.0, 700)  # the second half
    assert count_at(window, 1000) == 2
    assert count_at(window, 1001) == 1, "the first half is over"
    assert count_at(window, 1501) == 0


def test_after_a_long_rest_nothing_is_left() -> None:
    window = SlidingQuantiles(TARGETS, 1000, 0)
    window.insert(1.0, 10)
    assert count_at(window, 1_000_000) == 0
    window.insert(5.0, 1_000_100)
    assert count_at(window, 1_000_200) == 1


@given(st.lists(st.integers(0, 700), max_size=60))
def test_a_window_holds_between_a_half_and_a_whole(steps: list[int]) -> None:
    window = SlidingQuantiles(TARGETS, 1000, 0)
    now_ms, times = 0, []
    for step in steps:
        now_ms += step
        times.append(now_ms)
        window.insert(1.0, now_ms)
        count = count_at(window, now_ms)
        assert sum(1 for time in times if time > now_ms - 500) <= count
        assert count <= sum(1 for time in times if time >= now_ms - 1001)
