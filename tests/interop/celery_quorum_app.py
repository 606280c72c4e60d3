"""The Celery application of test_celery_quorum: default settings, and quorum queues."""

import os
import time

from celery import Celery

app = Celery("quorum", broker=os.environ["INTEROP_BROKER_URL"], backend="rpc://")
app.conf.task_default_queue_type = "quorum"
app.conf.task_default_queue = "work"


@app.task(name="quorum.add")
def add(left: int, right: int) -> int:
    return left + right


@app.task(name="quorum.now")
def now() -> float:
    return time.time()
