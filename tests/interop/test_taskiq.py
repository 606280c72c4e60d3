"""taskiq over aio-pika: a worker process with default settings."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from taskiq_aio_pika import AioPikaBroker

from tests.helpers.broker_process import BrokerProcess
from tests.interop.app_process import AppProcess

pytestmark = pytest.mark.slow


async def ask(url: str, count: int) -> None:
    broker = AioPikaBroker(url)

    @broker.task(task_name="taskiq.note")
    async def note(text: str) -> None:
        raise AssertionError("it runs in the worker")

    await broker.startup()
    for number in range(count):
        await note.kiq(f"task {number}")
    await broker.shutdown()


def test_tasks_are_done(own_broker: BrokerProcess, tmp_path: Path) -> None:
    command = ["taskiq", "worker", "tests.interop.taskiq_app:broker", "--workers", "1"]
    with AppProcess(own_broker.url, "worker", tmp_path, command) as worker:
        worker.wait_for("Listening started")
        asyncio.run(ask(own_broker.url, 5))
        for number in range(5):
            worker.wait_for(f"noted task {number}")
