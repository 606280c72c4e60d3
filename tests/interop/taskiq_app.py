"""The taskiq application of test_taskiq: its default settings make quorum queues."""

import os

from taskiq_aio_pika import AioPikaBroker

broker = AioPikaBroker(os.environ["INTEROP_BROKER_URL"])


@broker.task(task_name="taskiq.note")
async def note(text: str) -> None:
    print(f"noted {text}", flush=True)
