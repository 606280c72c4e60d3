"""The rule by which operators read the states."""

from __future__ import annotations

import pytest

from penstock.core.counting.bottleneck import (
    ALARM,
    CHANNELS,
    NODES,
    NOTHING,
    QUEUES,
    STORE,
    bottleneck,
)


@pytest.mark.parametrize(
    "connections, channels, queues, stage",
    [
        (0.0, 0.0, 0.0, NOTHING),
        (0.1, 0.1, 0.1, NOTHING),
        (1.0, 0.0, 0.0, CHANNELS),
        (1.0, 0.3, 0.0, CHANNELS),
        (1.0, 0.9, 0.0, QUEUES),
        (1.0, 1.0, 0.4, QUEUES),
        (0.3, 0.3, 0.0, QUEUES),
        (1.0, 1.0, 1.0, STORE),
        (0.6, 0.4, 0.3, STORE),
    ],
)
def test_the_last_in_flow_waits_for_the_bottleneck(
    connections: float, channels: float, queues: float, stage: str
) -> None:
    verdict = bottleneck(connections, channels, queues)
    assert verdict.stage == stage
    assert verdict.sentence.endswith(".")
    assert bool(verdict.advice) == (stage != NOTHING)


def test_queues_say_what_they_wait_for() -> None:
    verdict = bottleneck(1.0, 1.0, 0.0, why="its index waits for the disk")
    assert verdict.sentence == "The queues are the bottleneck: its index waits for the disk."


def test_another_node_is_named_though_no_connection_is_in_flow() -> None:
    """Publishers wait for confirms then, not for credit."""
    why = "queue 'q' in vhost '/' waits for node 'b', its disk has taken nothing for 3.0 s"
    verdict = bottleneck(0.0, 0.0, 0.5, awaited=why)
    assert verdict.stage == NODES
    assert verdict.sentence == f"Another node is the bottleneck: {why}."
    assert bottleneck(0.0, 0.0, 0.5, blocked="low on disk", awaited=why).stage == ALARM


def test_an_alarm_is_said_before_anything_else() -> None:
    verdict = bottleneck(1.0, 1.0, 1.0, blocked="low on disk")
    assert verdict.stage == ALARM
    assert verdict.sentence == "Publishers are blocked: low on disk."
