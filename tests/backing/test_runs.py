"""Runs give away chosen messages without looking at all that lie between."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.backing.message_deque import MessageDeque
from penstock.core.message import Message


class CountingList(list[Message]):
    looks = 0

    def __getitem__(self, place: Any) -> Any:
        self.looks += 1
        return super().__getitem__(place)


def run_of(count: int) -> MessageDeque:
    run = MessageDeque()
    for seq_id in range(0, 2 * count, 2):
        message = Message(b"", b"", 0, 0)
        message.seq_id = seq_id
        run.append_all([message])
    return run


@pytest.mark.parametrize("chosen", [[2, 4, 5, 18, 99], [0, 19], list(range(20)), list(range(9))])
@pytest.mark.parametrize("taken_before", [0, 1])
def test_chosen_ones_are_taken_and_the_others_stay(chosen: list[int], taken_before: int) -> None:
    run = run_of(10)
    run.take(taken_before)
    here = [int(one.seq_id) for one in run.live()]
    taken = [int(one.seq_id) for one in run.take_chosen(chosen)]
    assert taken == [one for one in here if one in chosen]
    assert [int(one.seq_id) for one in run.live()] == [one for one in here if one not in chosen]
    assert run.count() == len(run.live())


def test_few_are_found_without_looking_at_those_between() -> None:
    run = run_of(10_000)
    counting = CountingList(run.messages)
    run.messages = counting
    assert len(run.take_chosen([0, 19_998])) == 2
    assert counting.looks < 100


def test_what_comes_back_between_others_is_merged_where_it_belongs() -> None:
    run = run_of(10_000)
    run.take(3)
    for first in (5, 7_001, 19_990):  # among them, and behind the last
        back = run_of(10).messages
        for place, message in enumerate(back):
            message.seq_id = first + 6 * place + (first + 1) % 2
        run.merge(back)
    numbers = [int(one.seq_id) for one in run.live()]
    assert numbers == sorted(numbers)
    assert len(set(numbers)) == 10_000 - 3 + 30
    assert run.count() == len(numbers)


def test_few_that_come_back_are_merged_without_looking_at_all_others() -> None:
    run = run_of(10_000)
    counting = CountingList(run.messages)
    run.messages = counting
    back = run_of(3).messages
    for place, message in enumerate(back):
        message.seq_id = 9_001 + 2 * place
    run.merge(back)
    assert counting.looks < 100
