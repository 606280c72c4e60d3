"""How many objects a visit to the data loop may have, with samples and without."""

from __future__ import annotations

from penstock.management.http.lists import SLICE, SLICE_WITH_SAMPLES, runs, slices
from penstock.management.statistics.completing import asked_now

PAIRS = [("/", f"q{number}") for number in range(150)]


def test_only_what_becomes_rows_with_samples_is_read_in_small_slices() -> None:
    asked = asked_now.set({"lengths": (60, 5)})
    try:
        assert len(next(slices(PAIRS))) == SLICE_WITH_SAMPLES
        assert [len(names) for _, names in runs(PAIRS)] == [SLICE, 50]
    finally:
        asked_now.reset(asked)
    assert len(next(slices(PAIRS))) == SLICE
