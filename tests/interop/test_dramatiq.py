"""Dramatiq: a worker process, delays, retries and its dead letters.

It makes three queues of each: Q, whose rejected messages go to Q.XQ, Q.DQ for messages that are not
due, which workers hold unacknowledged, and Q.XQ, where the dead stay for seven days.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from unittest import mock

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.helpers.broker_process import BrokerProcess
from tests.interop.app_process import ANSWER_S, AppProcess

Connect = Callable[..., pika.BlockingConnection]
MODULE = "tests.interop.dramatiq_app"


def worker(url: str, directory: Path, name: str = "dramatiq") -> AppProcess:
    arguments = ["dramatiq", MODULE, "--processes", "1", "--threads", "2", "--verbose"]
    running = AppProcess(url, name, directory, arguments)
    try:
        running.wait_for("Worker process is ready for action")
    except BaseException:
        running.kill()
        raise
    return running


def actors(url: str) -> ModuleType:
    """The application's module, connected to this broker: what a web process would import."""
    sys.modules.pop(MODULE, None)
    with mock.patch.dict(os.environ, {"INTEROP_BROKER_URL": url}):
        return importlib.import_module(MODULE)


@pytest.fixture(scope="module")
def app(
    broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[AppProcess, ModuleType]]:
    with worker(broker.url, tmp_path_factory.mktemp("dramatiq")) as running:
        module = actors(broker.url)
        yield running, module
        module.broker.close()
        running.stop()


def lines(path: Path, count: int) -> list[str]:
    """The file, as soon as it has so many lines."""
    deadline = time.monotonic() + ANSWER_S
    while True:
        found = path.read_text().splitlines() if path.exists() else []
        if len(found) >= count:
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.02)


App = tuple[AppProcess, ModuleType]


def test_messages_are_worked_on(app: App, tmp_path: Path) -> None:
    for number in range(20):
        app[1].note.send(str(tmp_path / "notes"), f"{number}")
    assert sorted(map(int, lines(tmp_path / "notes", 20))) == list(range(20))


def test_delayed_messages_wait(app: App, tmp_path: Path) -> None:
    notes = str(tmp_path / "notes")
    began = time.monotonic()
    app[1].note.send_with_options(args=(notes, "second"), delay=1500)
    app[1].note.send_with_options(args=(notes, "first"), delay=700)
    assert lines(tmp_path / "notes", 2) == ["first", "second"]
    assert time.monotonic() - began >= 1.5


def test_what_fails_is_tried_again_later(app: App, tmp_path: Path) -> None:
    app[1].third_time.send(str(tmp_path / "notes"))
    # At least half of the 400 ms: the rest is chance.
    first, second, third = map(float, lines(tmp_path / "notes", 3))
    assert second - first >= 0.2
    assert third - second >= 0.2


def test_what_fails_for_good_is_a_dead_letter(app: App, channel: BlockingChannel) -> None:
    app[1].hopeless.send("so be it")
    app[0].wait_for("so be it")
    deadline = time.monotonic() + ANSWER_S
    while (got := channel.basic_get("work.XQ", auto_ack=True))[0] is None:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    _, properties, body = got
    assert json.loads(body)["args"] == ["so be it"]
    death = properties.headers["x-death"][0]
    assert (death["queue"], death["reason"], death["count"]) == ("work", "rejected", 1)


def test_a_killed_worker_loses_nothing(own_broker: BrokerProcess, tmp_path: Path) -> None:
    notes, go = tmp_path / "notes", tmp_path / "go"
    module = actors(own_broker.url)
    module.wait_for_file.send(str(go), str(notes))
    module.note.send_with_options(args=(str(notes), "delayed"), delay=1000)
    with worker(own_broker.url, tmp_path) as first:
        lines(notes, 1)
        first.kill()
    go.touch()
    with worker(own_broker.url, tmp_path, "second") as second:
        assert {"began", "done", "delayed"} <= set(lines(notes, 4))
        module.broker.close()
        second.stop()


def test_it_connects_again_after_kill_9(own_broker: BrokerProcess, tmp_path: Path) -> None:
    """Confirmed work and delayed work are there when the broker is."""
    notes = tmp_path / "notes"
    module = actors(own_broker.url)
    with worker(own_broker.url, tmp_path) as running:
        module.note.send_with_options(args=(str(notes), "delayed"), delay=3000)
        own_broker.kill()
        own_broker.start()
        module.note.send(str(notes), "at once")
        assert set(lines(notes, 2)) == {"at once", "delayed"}
        module.broker.close()
        running.stop()
