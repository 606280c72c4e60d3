"""Verbs whose answer comes later, and those that go on with it."""

from __future__ import annotations

import pytest

from penstock.core.errors import NotFound
from penstock.core.pending import AGAIN, Pending, Ticket, then


def test_an_answer_that_is_there_is_gone_on_with_at_once() -> None:
    assert then(3, lambda count: count + 1) == 4


def test_a_pending_answer_is_gone_on_with_when_it_is_resumed() -> None:
    ticket = Ticket()
    further = Pending(None, lambda: 3)
    outcome = then(Pending(ticket, lambda: further), str)
    assert isinstance(outcome, Pending)
    assert outcome.ticket is ticket
    outcome = outcome.resume()
    assert isinstance(outcome, Pending)
    assert outcome.ticket is None
    assert outcome.resume() == "3"


def test_what_goes_on_may_be_pending_as_well() -> None:
    ticket = Ticket()
    outcome = then(3, lambda count: Pending(ticket, lambda: count + 1))
    assert isinstance(outcome, Pending)
    assert outcome.ticket is ticket
    assert outcome.resume() == 4


def test_without_an_answer_it_is_asked_for_again() -> None:
    outcome = then(Pending(None, lambda: AGAIN), str, lambda: "asked again")
    assert isinstance(outcome, Pending)
    assert outcome.resume() == "asked again"


def test_errors_of_the_verb_that_is_waited_for_are_raised_by_the_other() -> None:
    def fail() -> int:
        raise NotFound("no queue")

    outcome = then(Pending(None, fail), str)
    assert isinstance(outcome, Pending)
    with pytest.raises(NotFound, match="no queue"):
        outcome.resume()


def test_a_lost_ticket_is_done() -> None:
    ticket = Ticket()
    ticket.lose()
    assert ticket.done
    assert ticket.lost
