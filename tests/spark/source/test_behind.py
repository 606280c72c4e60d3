"""What goes on behind whoever hands it over: in order, bounded, and its failures are told."""

from __future__ import annotations

import threading

import pytest

from pyspark_penstock.behind import Behind


def test_all_is_done_in_order_and_in_one_other_thread() -> None:
    done: list[int] = []
    threads: set[int] = set()

    def work(number: int) -> None:
        done.append(number)
        threads.add(threading.get_ident())

    with Behind(100) as behind:
        for number in range(50):
            behind.do(10, work, number)
        behind.settle()
    assert done == list(range(50))
    assert len(threads) == 1
    assert threading.get_ident() not in threads


def test_no_more_waits_than_is_allowed() -> None:
    going_on = threading.Event()
    handed_over: list[int] = []

    def hand_over() -> None:
        for number in range(4):
            behind.do(40, going_on.wait)
            handed_over.append(number)

    with Behind(100) as behind:
        hand = threading.Thread(target=hand_over)
        hand.start()
        hand.join(0.3)
        assert handed_over == [0, 1]
        going_on.set()
        hand.join()
        assert handed_over == [0, 1, 2, 3]


def test_one_piece_that_is_too_large_is_done_before_it_goes_on() -> None:
    done: list[int] = []
    with Behind(100) as behind:
        behind.do(1000, done.append, 1)
        assert done == [1]


def test_a_failure_is_raised_where_the_work_comes_from() -> None:
    going_on = threading.Event()

    def fail() -> None:
        going_on.wait()
        raise OSError("disk full")

    with Behind(100) as behind:
        behind.do(60, fail)
        going_on.set()
        with pytest.raises(OSError, match="disk full"):
            behind.do(60, fail)
    going_on.clear()
    with Behind(100) as behind:
        behind.do(10, fail)
        going_on.set()
        with pytest.raises(OSError, match="disk full"):
            behind.settle()
