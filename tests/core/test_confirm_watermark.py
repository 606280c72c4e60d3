"""What publishes wait for beside the journal: numbers reached, refused and lost."""

from __future__ import annotations

from penstock.core.confirm_watermark import ConfirmWatermark, PendingConfirms, all_done


def test_a_wait_is_done_when_its_last_number_is_reached() -> None:
    waits = PendingConfirms()
    watermark = ConfirmWatermark(waits)
    one, two = watermark.number(3), watermark.number(2)
    assert waits.take() == [one, two]
    watermark.advance(2)
    watermark.check()
    assert not one.done
    assert not waits.take_moved()
    watermark.advance(3)
    assert [one.done, two.done] == [True, False]
    assert waits.take_moved()
    watermark.advance(5)
    assert all_done([one, two])
    assert one.unsafe_places(3) == []
    watermark.check()


def test_what_was_refused_is_told_by_its_place() -> None:
    watermark = ConfirmWatermark(PendingConfirms())
    watermark.number(10)
    wait = watermark.number(3)
    watermark.refuse(12)
    watermark.advance(13)
    assert wait.unsafe_places(3) == [1]
    wait.only([4, 7, 9])
    assert wait.unsafe_places(10) == [7]
    wait.cover(5, 3)
    assert wait.unsafe_places(10) == [6]
    wait.cover(2, 1)  # of a commit, which is one thing
    assert wait.unsafe_places(10) == [2]


def test_one_number_for_a_whole_batch_refuses_all_of_it() -> None:
    watermark = ConfirmWatermark(PendingConfirms())
    wait = watermark.number(1)
    watermark.refuse(1)
    watermark.advance(1)
    assert wait.unsafe_places(3) == [0, 1, 2]


def test_what_is_lost_is_not_safe_and_what_is_nobodys_is_sent_again() -> None:
    waits = PendingConfirms()
    watermark = ConfirmWatermark(waits)
    one, two = watermark.number(2), watermark.number(2)
    two.resend = True
    watermark.advance(1)
    assert watermark.lose() == [two]
    assert one.done
    assert one.unsafe_places(2) == [0, 1]
    assert not two.done
    watermark.number_again(two)
    watermark.check()
    assert (two.first, two.last) == (5, 6)
    watermark.advance(6)
    assert two.done
    assert two.unsafe_places(2) == []


def test_a_number_on_no_list_is_refused_by_nobody() -> None:
    watermark = ConfirmWatermark(PendingConfirms())
    watermark.refuse(7)
    watermark.advance(3)
    assert not watermark.has_open()
