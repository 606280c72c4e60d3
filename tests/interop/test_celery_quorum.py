"""Celery with ``task_default_queue_type = "quorum"``, and nothing else set.

It declares 28 queues of its own then, quorum queues too, through whose times to live a task with a
countdown comes to its queue (its "native delayed delivery").
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import amqp
import celery
import pytest

from tests.helpers.broker_process import BrokerProcess
from tests.interop.app_process import ANSWER_S, AppProcess
from tests.interop.test_celery import client

pytestmark = pytest.mark.slow


@pytest.fixture
def app(own_broker: BrokerProcess, tmp_path: Path) -> Iterator[celery.Celery]:
    command = [
        *("celery", "-A", "tests.interop.celery_quorum_app"),
        *("worker", "-n", "one@localhost", "--loglevel", "INFO"),
    ]
    with AppProcess(own_broker.url, "one", tmp_path, command) as worker:
        worker.wait_for("ready\\.")
        with client(own_broker.url) as opened:
            opened.conf.task_default_queue_type = "quorum"
            opened.conf.task_default_queue = "work"
            opened.conf.broker_transport_options = {"confirm_publish": True}
            yield opened
        worker.stop()


def test_tasks_run_at_once_and_at_their_time(app: celery.Celery) -> None:
    results = [app.send_task("quorum.add", (i, i)) for i in range(20)]
    assert [result.get(timeout=ANSWER_S) for result in results] == [2 * i for i in range(20)]
    asked_s = time.time()
    late = app.send_task("quorum.now", countdown=3)
    assert 2.9 < late.get(timeout=ANSWER_S) - asked_s < ANSWER_S
    with app.connection() as connection:
        channel = connection.channel()
        for name in ("work", "celery_delayed_0", "celery_delayed_27"):
            assert channel.queue_declare(name, passive=True).queue == name
        with pytest.raises(amqp.PreconditionFailed, match="current is 'quorum'"):
            channel.queue_declare("work", durable=True, auto_delete=False)
