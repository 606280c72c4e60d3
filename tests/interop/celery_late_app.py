"""The Celery application of test_celery_late: tasks are acknowledged when they are done.

Documented settings for work that must not be lost with its worker; each task says in the log
that it began, so that a test knows when to pull the plug.
"""

import os
import time
from pathlib import Path

from celery import Celery
from kombu import Queue

app = Celery("late", broker=os.environ["INTEROP_BROKER_URL"], backend="rpc://")
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    worker_concurrency=1,
    task_default_queue="late",
    task_queues=[
        Queue("late"),
        Queue("urgent", queue_arguments={"x-max-priority": 10}),
    ],
)


@app.task(name="late.wait_for_file")
def wait_for_file(path: str) -> str:
    """Takes until somebody makes the file; the worker that is killed meanwhile never returns."""
    print(f"waiting in {os.getpid()}", flush=True)
    while not Path(path).exists():
        time.sleep(0.02)
    return "done"


@app.task(name="late.note")
def note(path: str, text: str) -> None:
    with Path(path).open("a") as file:
        file.write(f"{text}\n")


@app.task(name="late.flaky", bind=True, acks_late=True, max_retries=4)
def flaky(self, path: str) -> int:
    """Fails twice, waiting a little longer each time, as retry_backoff would."""
    note(path, f"{time.time()}")
    if self.request.retries < 2:
        raise self.retry(countdown=0.5 * (1 + self.request.retries))
    return self.request.retries
