"""Penstock tells clients what RabbitMQ tells them: codes, texts, order, fields.

Every case runs against the broker under test; its transcript must be the one recorded from
RabbitMQ 3.10.8, or 4.3.6 where only that has the subject, save for what ``differences.py`` lists.
Where RabbitMQ 3.10.8 is installed, its record is put to the test.
"""

from pathlib import Path

import pytest

from tests.conformance import differences, record
from tests.conformance.runner import Outcome, load_cases, run_cases, run_delayed_again
from tests.helpers.broker_process import BrokerProcess
from tests.helpers.rabbit import RabbitServer

RECORDS = Path(__file__).parent / "recorded"
OLD = record.read(RECORDS / "rabbitmq-3.10.8")
BOTH = record.read(RECORDS / "rabbitmq-4.3.6")
NEW = {name: lines for name, lines in BOTH.items() if name not in OLD}
RECORDED = OLD | {name: differences.in_order(lines) for name, lines in NEW.items()}
NAMES = sorted(load_cases())


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, broker: BrokerProcess) -> dict[str, Outcome]:
    """The cases asked for, run side by side once; the tests then look at one each."""
    wanted = {
        str(item.callspec.params["name"])
        for item in request.session.items
        if isinstance(item, pytest.Function)
        and item.originalname == test_answers_like_rabbitmq.__name__
    }
    return run_delayed_again(broker.url, run_cases(broker.url, wanted), _wanted(broker))


def _wanted(broker: BrokerProcess) -> dict[str, list[str]]:
    if broker.name == "rabbitmq":
        return RECORDED
    return {name: differences.expected(name, lines) for name, lines in RECORDED.items()}


@pytest.mark.parametrize("name", NAMES)
def test_answers_like_rabbitmq(
    name: str, outcomes: dict[str, Outcome], broker: BrokerProcess
) -> None:
    outcome = outcomes[name]
    assert not outcome.error, "\n".join([outcome.error, *outcome.lines])
    wanted = _wanted(broker)[name]
    if name in NEW:
        assert differences.in_order(outcome.lines) == differences.in_order(wanted)
    else:
        assert outcome.lines == wanted


def test_every_case_is_recorded_and_every_record_has_its_case() -> None:
    assert set(RECORDED) == set(NAMES)


def test_every_difference_names_cases_and_says_why() -> None:
    for difference in differences.DIFFERENCES:
        assert difference.cases
        assert set(difference.cases) <= set(NAMES)
        assert difference.reason.strip()
        assert (difference.theirs,) != difference.ours


@pytest.mark.conformance
@pytest.mark.slow
def test_the_record_is_what_rabbitmq_says(rabbit_server: RabbitServer) -> None:
    """All cases once more against the real one."""
    told = run_delayed_again(rabbit_server.url, run_cases(rabbit_server.url, OLD), OLD)
    failed = {name: outcome.error for name, outcome in told.items() if outcome.error}
    assert not failed
    assert {name: outcome.lines for name, outcome in told.items()} == OLD
