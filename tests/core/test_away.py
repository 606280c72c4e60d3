"""Tickets for answers that come from elsewhere."""

from __future__ import annotations

import pytest

from penstock.core.away import Answers, Away, Ticket
from penstock.core.errors import NotFound


def test_the_answer_is_claimed_once_by_who_asked_for_it() -> None:
    answers, subject = Answers(), object()
    ticket = Ticket("purge", subject)
    ticket.answer(3)
    answers.shown = ticket
    assert answers.claim("get", subject) is None
    assert answers.claim("purge", object()) is None
    assert answers.claim("purge", subject) is ticket
    assert answers.claim("purge", subject) is None


def test_a_failed_ticket_raises_and_a_lost_one_is_asked_for_anew() -> None:
    answers, subject = Answers(), object()
    answers.shown = failed = Ticket("purge", subject)
    failed.fail(NotFound("no queue"))
    with pytest.raises(NotFound):
        answers.claim("purge", subject)
    answers.shown = lost = Ticket("purge", subject)
    lost.lose()
    assert lost.done
    assert answers.claim("purge", subject) is None


def test_away_without_a_ticket_is_for_the_next_turn() -> None:
    with pytest.raises(Away) as raised:
        raise Away
    assert raised.value.ticket is None
