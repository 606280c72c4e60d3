"""What a master knows of its mirrors: who is stuck, and what is told no when nobody will answer."""

from __future__ import annotations

from penstock.cluster.agreement.reigns import Reign
from penstock.cluster.mirrors.safety import STUCK_MS, Answer, Rests, SafeLine, SafePositions
from penstock.core.clock_types import MonoMs
from penstock.core.confirm_watermark import PendingConfirms


def test_who_gets_further_is_slow_and_not_stuck() -> None:
    """One parcel within the time is enough, however far it is behind."""
    answer = Answer()
    now_ms = 1000
    for parcel in range(1, 20):
        answer.look(1000, now_ms)
        assert not answer.is_slow(now_ms)
        now_ms += STUCK_MS - 1
        answer.hear(parcel, parcel, is_complete=False)
    answer.look(1000, now_ms)
    answer.look(1000, now_ms + STUCK_MS)
    assert not answer.is_slow(now_ms + STUCK_MS)
    assert answer.is_slow(now_ms + STUCK_MS + 1)


def test_who_has_everything_is_never_stuck() -> None:
    answer = Answer()
    answer.hear(7, 7, is_complete=True)
    for now_ms in (1, 10 * STUCK_MS):
        answer.look(7, now_ms)
        assert not answer.is_slow(now_ms)
        assert answer.applies_ms(now_ms) == answer.writes_ms(now_ms) == 0


def test_a_disk_that_takes_nothing_is_told_from_a_mirror_that_applies_nothing() -> None:
    answer = Answer()
    answer.look(5, 1000)
    answer.hear(5, 0, is_complete=True)
    answer.look(5, 2000)
    assert (answer.applies_ms(3000), answer.writes_ms(3000)) == (0, 2000)


def test_each_rest_is_twice_as_long_until_the_mirror_was_good_for_some_time() -> None:
    rests = Rests()
    assert rests.left_ms("b", 0) == 0
    now_ms = 1000
    for length_ms in (10_000, 20_000, 40_000, 80_000, 160_000, 300_000, 300_000):
        rests.begin("b", now_ms)
        rests.begin("b", now_ms + 1)  # it is told twice
        assert rests.left_ms("b", now_ms + 1) == length_ms
        now_ms += length_ms + 1
        assert rests.left_ms("b", now_ms) == 0
        assert rests.left_ms("c", now_ms) == 0
    rests.begin("b", now_ms + 6 * 300_000 + 1)
    assert rests.left_ms("b", now_ms + 6 * 300_000 + 1) == 10_000


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


# -- with a reign ----------------------------------------------------------------------------


def ruled(*copies: str) -> SafePositions:
    """Whose master is a/1."""
    safe = SafePositions("a/1", PendingConfirms())
    safe.begin()
    safe.ruled_by(Reign(1, copies, "a/1"))
    return safe


def test_a_majority_is_safe_and_its_own_disk_is_one_of_it() -> None:
    safe = ruled("a", "b", "c")
    assert safe.wait_for([], 1)
    safe.look(9, own_durable=4)
    assert (safe.applied.safe, safe.durable.safe) == (0, 0)
    safe.hear("b/1", 7, 6, is_complete=True, last_number=9)
    safe.look(9, own_durable=4)
    assert (safe.applied.safe, safe.durable.safe) == (7, 4)
    safe.hear("c/1", 5, 5, is_complete=True, last_number=9)
    safe.look(9, own_durable=4)
    assert (safe.applied.safe, safe.durable.safe) == (7, 5)
    safe.check(9)


def test_a_copy_that_is_not_complete_and_a_node_without_a_vote_do_not_count() -> None:
    safe = ruled("a", "b", "c")
    safe.hear("b/1", 9, 9, is_complete=False, last_number=9)
    safe.hear("d/1", 9, 9, is_complete=True, last_number=9)
    safe.look(9, own_durable=9)
    assert safe.durable.safe == 0
    states = safe.look_at_mirrors(9, 9, MonoMs(1))
    assert states.complete == ["d/1"]
    assert not states.may_change, "no majority is complete in this term"
    safe.hear("b/1", 9, 0, is_complete=True, last_number=9)
    safe.look(9, own_durable=9)
    assert safe.look_at_mirrors(9, 9, MonoMs(1)).may_change, "of nothing that was confirmed"


def test_the_next_change_waits_until_the_new_copies_have_what_was_confirmed() -> None:
    safe = ruled("a", "b", "c")
    safe.hear("b/1", 5, 5, is_complete=True, last_number=5)
    safe.hear("d/1", 3, 3, is_complete=True, last_number=5)
    safe.look(5, own_durable=5)
    safe.ruled_by(Reign(1, ("a", "b", "c", "d"), "a/1"))
    safe.look(5, own_durable=5)
    assert safe.durable.safe == 5, "what was confirmed is so"
    assert not safe.look_at_mirrors(5, 5, MonoMs(1)).may_change
    safe.hear("d/1", 5, 5, is_complete=True, last_number=5)
    assert safe.look_at_mirrors(5, 5, MonoMs(1)).may_change


def test_no_copy_of_a_reign_is_waited_for_by_itself() -> None:
    """However late it is."""
    safe = ruled("a", "b", "c")
    safe.hear("b/1", 1, 1, is_complete=True, last_number=1)
    for now_ms in (1, 10 * STUCK_MS, 20 * STUCK_MS):
        safe.look(5, own_durable=5)
        states = safe.look_at_mirrors(5, 5, MonoMs(now_ms))
        assert (states.silent, states.slow) == ([], [])
    assert safe.rest_ms("c/1") == 0


def test_a_queue_with_one_copy_waits_for_its_own_disk() -> None:
    safe = ruled("a")
    assert safe.wait_for([], 1)
    safe.look(1, own_durable=0)
    assert safe.durable.safe == 0
    safe.look(1, own_durable=1)
    assert safe.durable.safe == 1
