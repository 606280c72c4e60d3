"""What a master knows of its mirrors: who is stuck, and what is told no when nobody will answer."""

from __future__ import annotations

from penstock.cluster.mirrors.safety import STUCK_MS, Answer, SafeLine
from penstock.core.confirm_watermark import PendingConfirms


def test_who_gets_further_is_slow_and_not_stuck() -> None:
    """One parcel within the time is enough, however far it is behind."""
    answer = Answer()
    now_ms = 1000
    for parcel in range(1, 20):
        assert not answer.is_stuck(1000, now_ms)
        now_ms += STUCK_MS - 1
        answer.hear(parcel, 0, is_complete=False)
    assert not answer.is_stuck(1000, now_ms)
    assert not answer.is_stuck(1000, now_ms + STUCK_MS)
    assert answer.is_stuck(1000, now_ms + STUCK_MS + 1)


def test_who_has_everything_is_never_stuck() -> None:
    answer = Answer()
    answer.hear(7, 7, is_complete=True)
    for now_ms in (1, 10 * STUCK_MS):
        assert not answer.is_stuck(7, now_ms)


def test_what_nobody_will_say_is_told_no_and_what_is_the_brokers_waits_on() -> None:
    waits = PendingConfirms()
    line = SafeLine(waits)
    for parcel in (1, 2, 3):
        line.wait_for(parcel)
    first, letter, last = waits.take()
    letter.resend = True
    line.give_up()
    assert (first.lost, first.done, last.lost, last.done) == (True, True, True, True)
    assert not letter.done
    line.check()
    line.reach(2)
    assert not letter.done, "it waits for all that was told"
    line.give_up()
    line.check()
    line.reach(3)
    assert letter.done
    assert not letter.lost
    line.give_up()
    line.check()


def test_who_publishes_to_a_lone_master_is_to_go_elsewhere() -> None:
    waits = PendingConfirms()
    line = SafeLine(waits)
    line.cut_off("it is cut off")
    assert not line.wait_for(1)
    assert not line.wait_for(1)
    publisher, letter = waits.take()
    letter.must_arrive()
    assert (publisher.away_text, publisher.lost) == ("it is cut off", False)
    line.tell_refused()
    assert (publisher.lost, publisher.done) == (True, True)
    assert (letter.lost, letter.done) == (True, False), "the broker publishes it again"
    assert waits.take_moved()
    line.check()


def test_what_another_node_passed_on_waits_until_that_node_knows() -> None:
    waits = PendingConfirms()
    line = SafeLine(waits)
    line.wait_for(1)
    [wait] = waits.take()
    wait.relayed = True
    line.give_up()
    line.check()
    assert not wait.lost
    line.begin()
    assert (wait.lost, wait.done) == (True, True)
