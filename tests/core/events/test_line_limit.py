"""Lines of the log that strangers cause are bounded by key, by window and by number of keys."""

from __future__ import annotations

from penstock.core.events.line_limit import LineLimit


def test_of_each_key_there_are_so_many_lines_in_a_window() -> None:
    limit = LineLimit(2, window_s=60.0)
    assert [limit.allows("a", now) for now in (0, 1, 2)] == [True, True, False]
    assert limit.allows("b", 2)
    assert not limit.allows("a", 59.9)
    assert limit.allows("a", 60.0)


def test_ever_new_keys_have_no_lines_without_end() -> None:
    limit = LineLimit(2, all_max=3)
    assert sum(limit.allows(number // 2, 1.0) for number in range(1000)) == 3
    assert limit.allows("later", 61.0)


def test_a_clock_that_goes_back_begins_a_window() -> None:
    limit = LineLimit()
    assert limit.allows("a", 100.0)
    assert limit.allows("a", 50.0)
