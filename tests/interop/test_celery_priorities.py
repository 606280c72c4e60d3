"""Celery with a priority queue: what is urgent is done first."""

from __future__ import annotations

from pathlib import Path

import pytest
from kombu import Queue

from tests.helpers.broker_process import BrokerProcess
from tests.interop.test_celery import client
from tests.interop.test_celery_late import worker

pytestmark = pytest.mark.slow


def test_urgent_tasks_are_done_first(own_broker: BrokerProcess, tmp_path: Path) -> None:
    """Nine of three priorities wait for one worker, which takes one at a time."""
    notes = tmp_path / "notes"
    with worker(own_broker.url, "declares", tmp_path, "urgent") as first:
        first.wait_for("ready\\.")
        first.stop()
    with client(own_broker.url) as app:
        app.conf.task_queues = [Queue("urgent", queue_arguments={"x-max-priority": 10})]
        for round_ in range(3):
            for priority in (0, 5, 9):
                app.send_task(
                    "late.note",
                    (str(notes), f"{priority} {round_}"),
                    queue="urgent",
                    priority=priority,
                )
    with worker(own_broker.url, "works", tmp_path, "urgent") as second:
        second.wait_for("late.note.*succeeded", 9)
        second.stop()
    expected = [f"{priority} {round_}" for priority in (9, 5, 0) for round_ in range(3)]
    assert notes.read_text().splitlines() == expected
