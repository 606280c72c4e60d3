"""The Dramatiq application of test_dramatiq: ``python -m dramatiq`` runs its actors."""

import os
import time
from pathlib import Path

import dramatiq
from dramatiq.brokers.rabbitmq import RabbitmqBroker

broker = RabbitmqBroker(url=os.environ["INTEROP_BROKER_URL"], confirm_delivery=True)
dramatiq.set_broker(broker)


@dramatiq.actor(queue_name="work")
def note(path: str, text: str) -> None:
    with Path(path).open("a") as file:
        file.write(f"{text}\n")


@dramatiq.actor(queue_name="work", max_retries=3, min_backoff=400, max_backoff=400)
def third_time(path: str) -> None:
    note.fn(path, f"{time.time()}")
    if len(Path(path).read_text().split()) < 3:
        raise ValueError("not yet")


@dramatiq.actor(queue_name="work", max_retries=0)
def hopeless(text: str) -> None:
    raise ValueError(text)


@dramatiq.actor(queue_name="work")
def wait_for_file(path: str, notes: str) -> None:
    note.fn(notes, "began")
    while not Path(path).exists():
        time.sleep(0.02)
    note.fn(notes, "done")
