"""What publishes wait for beside the journal: numbers reached, refused and lost."""

from __future__ import annotations

from penstock.core.confirm_watermark import ConfirmWatermark, PendingConfirms, all_done


def test_a_wait_is_done_when_its_last_number_is_reached() -> None:
    waits = PendingConfirms()
    frontier = ConfirmWatermark(waits)
    one, two = frontier.number(3), frontier.number(2)
    assert waits.take() == [one, two]
    frontier.advance(2)
    frontier.check()
    assert not one.done
    assert not waits.take_moved()
    frontier.advance(3)
    assert [one.done, two.done] == [True, False]
    assert waits.take_moved()
    frontier.advance(5)
    assert all_done([one, two])
    assert one.unsafe_places(3) == []
    frontier.check()


def test_what_was_refused_is_told_by_its_place() -> None:
    frontier = ConfirmWatermark(PendingConfirms())
    frontier.number(10)
    wait = frontier.number(3)
    frontier.refuse(12)
    frontier.advance(13)
    assert wait.unsafe_places(3) == [1]
    wait.only([4, 7, 9])
    assert wait.unsafe_places(10) == [7]
    wait.cover(5, 3)
    assert wait.unsafe_places(10) == [6]
    wait.cover(2, 1)  # of a commit, which is one thing
    assert wait.unsafe_places(10) == [2]


def test_one_number_for_a_whole_batch_refuses_all_of_it() -> None:
    frontier = ConfirmWatermark(PendingConfirms())
    wait = frontier.number(1)
    frontier.refuse(1)
    frontier.advance(1)
    assert wait.unsafe_places(3) == [0, 1, 2]


def test_what_is_lost_is_not_safe_and_what_is_nobodys_is_sent_again() -> None:
    waits = PendingConfirms()
    frontier = ConfirmWatermark(waits)
    one, two = frontier.number(2), frontier.number(2)
    two.resend = True
    frontier.advance(1)
    assert frontier.lose() == [two]
    assert one.done
    assert one.unsafe_places(2) == [0, 1]
    assert not two.done
    frontier.number_again(two)
    frontier.check()
    assert (two.first, two.last) == (5, 6)
    frontier.advance(6)
    assert two.done
    assert two.unsafe_places(2) == []


def test_a_number_on_no_list_is_refused_by_nobody() -> None:
    frontier = ConfirmWatermark(PendingConfirms())
    frontier.refuse(7)
    frontier.advance(3)
    assert not frontier.has_open()
