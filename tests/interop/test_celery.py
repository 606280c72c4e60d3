"""Celery: real worker processes with default settings, results through ``rpc://``.

Two workers, because only then mingle and gossip have somebody to talk to.  The default worker
uses much of AMQP that tests rarely touch: a fanout exchange for control commands, reply queues
that expire, event queues with a time to live, prefetch per worker, acknowledgement in the end.
"""

from __future__ import annotations

import gc
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import celery
import pytest

from tests.helpers.broker_process import BrokerProcess
from tests.interop.app_process import ANSWER_S, AppProcess

pytestmark = pytest.mark.slow


class Worker(AppProcess):
    """A ``celery worker`` process and what it logs."""

    def __init__(self, url: str, name: str, directory: Path) -> None:
        command = [
            *("celery", "-A", "tests.interop.celery_app"),
            *("worker", "-n", f"{name}@localhost", "--task-events", "--loglevel", "INFO"),
        ]
        super().__init__(url, name, directory, command)


@contextmanager
def client(url: str) -> Iterator[celery.Celery]:
    app = celery.Celery("interop", broker=url, backend="rpc://", set_as_current=False)
    try:
        yield app
    finally:
        if app.backend.result_consumer._consumer is not None:
            app.backend.result_consumer.stop()
        app.close()
        # Celery leaves sockets of its pools to the garbage collector; that is its affair.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            del app
            gc.collect()


@pytest.fixture(scope="module")
def workers(
    broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Worker]]:
    directory = tmp_path_factory.mktemp("celery")
    first = Worker(broker.url, "first", directory)
    both = [first]
    try:
        first.wait_for("ready\\.")
        both.append(Worker(broker.url, "second", directory))
        both[1].wait_for("ready\\.")
        yield both
        for worker in both:
            worker.stop()
    finally:
        for worker in both:
            worker.kill()


@pytest.fixture
def app(broker: BrokerProcess, workers: list[Worker]) -> Iterator[celery.Celery]:
    with client(broker.url) as opened:
        yield opened


def test_the_second_worker_mingles_with_the_first(workers: list[Worker]) -> None:
    workers[1].wait_for("mingle: sync with 1 nodes")
    workers[1].wait_for("mingle: sync complete")
    workers[0].wait_for("second@localhost")


def test_a_task_returns_its_result(app: celery.Celery) -> None:
    assert app.send_task("interop.add", (2, 3)).get(timeout=ANSWER_S) == 5


def test_fifty_tasks_return_fifty_results(app: celery.Celery) -> None:
    results = [app.send_task("interop.add", (number, 1)) for number in range(50)]
    assert [result.get(timeout=ANSWER_S) for result in results] == list(range(1, 51))


def test_a_chain_passes_results_on(app: celery.Celery) -> None:
    add = app.signature("interop.add")
    steps = celery.chain(add.clone((1, 2)), add.clone((10,)), add.clone((100,)), app=app)
    assert steps.apply_async().get(timeout=ANSWER_S) == 113


def test_a_failure_comes_back_as_its_exception(app: celery.Celery) -> None:
    with pytest.raises(ValueError, match="as asked"):
        app.send_task("interop.fail", ("as asked",)).get(timeout=ANSWER_S)


def test_a_task_is_tried_again(app: celery.Celery) -> None:
    assert app.send_task("interop.third_time").get(timeout=ANSWER_S) == 2


def test_a_countdown_waits(app: celery.Celery) -> None:
    started = time.monotonic()
    assert app.send_task("interop.add", (1, 1), countdown=1).get(timeout=ANSWER_S) == 2
    assert time.monotonic() - started >= 0.9


def test_a_large_argument_arrives(app: celery.Celery) -> None:
    assert app.send_task("interop.length", ("x" * 1_000_000,)).get(timeout=ANSWER_S) == 1_000_000


def test_control_commands_reach_every_worker(app: celery.Celery) -> None:
    replies = app.control.ping(timeout=5, limit=2)
    assert sorted(name for reply in replies for name in reply) == [
        "first@localhost",
        "second@localhost",
    ]
    queues = app.control.inspect(timeout=5, limit=2).active_queues()
    assert {queue["name"] for listed in queues.values() for queue in listed} == {"celery"}


def test_events_tell_the_life_of_a_task(app: celery.Celery) -> None:
    """The listener's queue exists from its first event on: a heartbeat it asks the workers for."""
    seen: list[str] = []
    task_id = "story-of-one-task"

    def keep(event: dict[str, object]) -> None:
        if not seen:
            seen.append("listening")
            app.send_task("interop.add", (1, 2), task_id=task_id)
        elif event.get("uuid") == task_id:
            seen.append(str(event["type"]))
            receiver.should_stop = event["type"] == "task-succeeded"

    with app.connection() as connection:
        receiver = app.events.Receiver(connection, handlers={"*": keep})
        receiver.capture(limit=None, timeout=ANSWER_S, wakeup=True)
    assert seen == ["listening", "task-received", "task-started", "task-succeeded"]


def test_a_worker_comes_back_after_kill_9_and_finds_the_task(
    own_broker: BrokerProcess, tmp_path: Path
) -> None:
    """A task sent while no worker is connected waits in the durable queue ``celery``."""
    worker = Worker(own_broker.url, "survivor", tmp_path)
    try:
        worker.wait_for("ready\\.")
        own_broker.kill()
        worker.wait_for("Connection to broker lost")
        own_broker.start()
        with client(own_broker.url) as app:
            assert app.send_task("interop.add", (20, 3)).get(timeout=ANSWER_S) == 23
        worker.stop()
    finally:
        worker.kill()
