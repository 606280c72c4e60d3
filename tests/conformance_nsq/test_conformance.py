"""Penstock tells NSQ's clients what nsqd 1.3.0 tells them: errors, frames, counters, order.

Every case runs against the broker under test; its transcript must be the recorded one, save for
what ``differences.py`` lists.  With ``PENSTOCK_TEST_NSQD`` naming the program nsqd there is
one more test, which puts the record itself to the test.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.conformance_nsq import differences, record
from tests.conformance_nsq.runner import Outcome, load_cases, run_cases
from tests.conformance_nsq.servers import SERVERS, Nsqd, Penstock
from tests.helpers import certificates

RECORDED = record.read()
CASES = load_cases()
NSQD = os.environ.get("PENSTOCK_TEST_NSQD", "")

pytestmark = pytest.mark.skipif(certificates.MISSING is not None, reason=str(certificates.MISSING))


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest) -> dict[str, Outcome]:
    """The cases asked for, run side by side once; the tests then look at one each."""
    wanted = {
        str(item.callspec.params["name"])
        for item in request.session.items
        if isinstance(item, pytest.Function)
        and item.originalname == test_answers_like_nsqd.__name__
    }
    return run_cases(Penstock(), wanted)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", sorted(CASES))
def test_answers_like_nsqd(name: str, outcomes: dict[str, Outcome]) -> None:
    outcome = outcomes[name]
    assert not outcome.error, "\n".join([outcome.error, *outcome.lines])
    assert outcome.lines == differences.expected(name, RECORDED[name])


def test_every_difference_names_cases_and_says_why() -> None:
    assert differences.changed_cases() <= set(CASES)
    for difference in differences.DIFFERENCES:
        assert difference.reason.strip()
        assert difference.changes
        assert all(change.theirs != change.ours for change in difference.changes)


def test_every_case_names_a_server() -> None:
    assert {case.server for case in CASES.values()} == set(SERVERS)


if NSQD:  # Debian has none: where nobody names one this is no test that was left out

    @pytest.mark.slow
    @pytest.mark.timeout(240)
    def test_the_record_is_what_nsqd_says() -> None:
        told = run_cases(Nsqd(Path(NSQD)), CASES)
        failed = {name: outcome.error for name, outcome in told.items() if outcome.error}
        assert not failed
        assert {name: outcome.lines for name, outcome in told.items()} == RECORDED
