"""Celery with late acknowledgement: what a worker had begun is not lost with it.

Workers are killed, tasks wait for their time, and the broker is killed while they wait.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator
from pathlib import Path

import celery
import pytest

from tests.helpers.broker_process import BrokerProcess
from tests.interop.app_process import ANSWER_S, AppProcess
from tests.interop.test_celery import client

pytestmark = pytest.mark.slow


def worker(url: str, name: str, directory: Path, queue: str = "late") -> AppProcess:
    command = [
        *("celery", "-A", "tests.interop.celery_late_app"),
        *("worker", "-n", f"{name}@localhost", "-Q", queue, "--loglevel", "INFO"),
    ]
    return AppProcess(url, name, directory, command)


@pytest.fixture
def app(own_broker: BrokerProcess) -> Iterator[celery.Celery]:
    with client(own_broker.url) as opened:
        opened.conf.task_default_queue = "late"
        # Without it Celery does not ask whether the broker has a task before it is killed.
        opened.conf.broker_transport_options = {"confirm_publish": True}
        yield opened


def test_a_task_whose_worker_is_killed_is_done_by_another(
    own_broker: BrokerProcess, app: celery.Celery, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    with worker(own_broker.url, "first", tmp_path) as first:
        first.wait_for("ready\\.")
        result = app.send_task("late.wait_for_file", (str(go),))
        first.wait_for("waiting in")
        first.kill()
        go.touch()
        with worker(own_broker.url, "second", tmp_path) as second:
            assert result.get(timeout=ANSWER_S) == "done"
            second.stop()


def test_tasks_wait_for_their_time_through_a_killed_worker(
    own_broker: BrokerProcess, app: celery.Celery, tmp_path: Path
) -> None:
    """A worker holds tasks that are not due unacknowledged, so they are there again after it."""
    notes = tmp_path / "notes"
    with worker(own_broker.url, "first", tmp_path) as first:
        first.wait_for("ready\\.")
        due = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=6)
        for text in ("eta 1", "eta 2", "eta 3"):
            app.send_task("late.note", (str(notes), text), eta=due)
        first.wait_for("late.note.*received", 3)
        first.kill()
    assert not notes.exists()
    with worker(own_broker.url, "second", tmp_path) as second:
        second.wait_for("late.note.*succeeded", 3)
        assert time.time() >= due.timestamp()
        assert sorted(notes.read_text().splitlines()) == ["eta 1", "eta 2", "eta 3"]
        second.stop()


@pytest.mark.long  # the one above has countdowns, too
def test_retries_come_after_their_countdown(
    own_broker: BrokerProcess, app: celery.Celery, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    with worker(own_broker.url, "only", tmp_path) as only:
        assert app.send_task("late.flaky", (str(notes),)).get(timeout=ANSWER_S) == 2
        only.stop()
    first, second, third = map(float, notes.read_text().split())
    assert second - first >= 0.5
    assert third - second >= 1.0


def test_a_task_outlives_the_broker_it_was_acknowledged_to(
    own_broker: BrokerProcess, app: celery.Celery, tmp_path: Path
) -> None:
    """The broker is killed while a task runs: the worker connects again, and nothing is lost."""
    go = tmp_path / "go"
    with worker(own_broker.url, "only", tmp_path) as only:
        only.wait_for("ready\\.")
        tasks = [app.send_task("late.wait_for_file", (str(go),)).id for _ in range(2)]
        only.wait_for("waiting in")
        own_broker.kill()
        only.wait_for("Connection to broker lost")
        own_broker.start()
        go.touch()
        # The one that was running may be done twice, for its acknowledgement was lost.
        for task in tasks:
            only.wait_for(f"late.wait_for_file\\[{task}\\] succeeded")
        only.stop()
