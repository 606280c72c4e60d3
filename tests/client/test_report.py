"""Adding up what a run's processes counted."""

from __future__ import annotations

import pytest

from penstock.client.plan import LoadPlan
from penstock.client.report import add_up

SECOND_NS = 1_000_000_000


def snapshot(at_s: float, messages: int) -> dict[str, float]:
    return {
        "at_ns": int(at_s * SECOND_NS),
        "published": messages,
        "consumed": messages,
        "cpu_user_s": 0.0,
        "cpu_system_s": 0.0,
    }


@pytest.mark.parametrize("looked_at_s", [9.0, 10.1])
def test_a_counted_run_is_measured_from_its_first_message(looked_at_s: float) -> None:
    workers = [
        ("publisher", {"published": 600, "first_ns": 10 * SECOND_NS, "last_ns": 12 * SECOND_NS}),
        ("consumer", {"consumed": 600, "first_ns": 11 * SECOND_NS, "last_ns": 13 * SECOND_NS}),
    ]
    begin, end = snapshot(looked_at_s, 0), snapshot(20.0, 600)
    result = add_up(LoadPlan(uri="amqp://h/", count=600), workers, begin, end)
    assert (result["publish_rate"], result["consume_rate"]) == (300.0, 200.0)


def test_a_run_of_consumers_alone_is_measured_from_their_first_delivery() -> None:
    consumer = {"consumed": 600, "first_ns": 11 * SECOND_NS, "last_ns": 13 * SECOND_NS}
    result = add_up(
        LoadPlan(uri="amqp://h/", count=600, publishers=0),
        [("consumer", consumer)],
        snapshot(9.0, 0),
        snapshot(20.0, 600),
    )
    assert (result["publish_rate"], result["consume_rate"]) == (0.0, 300.0)
