"""Spring's AMQP template, admin and listener containers, with quorum queues.

Confirms, answers by direct reply-to, a second attempt after an exception of the listener, and a
dead letter.  What a listener gives back does not count for the delivery limit, here as in RabbitMQ
4.3.6, where this program hears the same.
"""

from __future__ import annotations

import pytest

from tests.helpers.broker_process import BrokerProcess
from tests.interop.programs import SPRING, built, finish, missing_reason, start

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]  # it may have to fetch its libraries


def test_template_and_listeners(broker: BrokerProcess) -> None:
    reason = missing_reason(SPRING)
    if reason:
        pytest.skip(reason)
    assert finish(start(SPRING, built(SPRING), broker.url)) == {
        "confirmed": 50,
        "answered": 50,
        "handled": 49,
        "letter": "order 49",
        "died": True,
    }
