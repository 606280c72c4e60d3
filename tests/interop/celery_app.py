"""The Celery application that the worker processes of test_celery run.

Default settings throughout: what is configured is where the broker is, and nothing else.
"""

import os

from celery import Celery

app = Celery("interop", broker=os.environ["INTEROP_BROKER_URL"], backend="rpc://")


@app.task(name="interop.add")
def add(left: int, right: int) -> int:
    return left + right


@app.task(name="interop.length")
def length(text: str) -> int:
    return len(text)


@app.task(name="interop.fail")
def fail(text: str) -> None:
    raise ValueError(text)


@app.task(name="interop.third_time", bind=True, max_retries=5, default_retry_delay=0.1)
def third_time(self) -> int:
    """Asks to be tried again until it has been."""
    if self.request.retries < 2:
        raise self.retry()
    return self.request.retries
