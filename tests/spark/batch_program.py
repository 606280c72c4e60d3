"""What Spark does with the sink, without Spark: batch after batch, from a checkpoint; is killed.

    batch_program.py URL QUEUE DIRECTORY BATCHES

The files of DIRECTORY are Spark's: ``query`` is the query's id, ``offsets`` the batch that was
planned, ``commits`` the last one whose commit was noted.  Each batch is staged by three tasks, the
first of which may be run twice.
"""

from __future__ import annotations

import os
import random
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from pyspark_penstock.sink import Identity, _Writing
from pyspark_penstock.sink_options import parse_sink_options

PER_BATCH = 90
TASKS = 3


def rows(batch: int, task: int) -> Iterator[pa.RecordBatch]:
    """The same whenever it is computed; every fifth batch has large bodies."""
    each = PER_BATCH // TASKS
    first = batch * PER_BATCH + task * each
    tail = b":" + b"x" * (6000 if batch % 5 == 4 else 20)
    yield pa.RecordBatch.from_pydict(
        {"body": [b"%d" % n + tail for n in range(first, first + each)]}
    )


def note(path: Path, text: str) -> None:
    """As Spark's log: there or not, never half."""
    beside = path.with_suffix(".new")
    with beside.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.rename(path)


def main(url: str, queue: str, directory: str, batches: str) -> int:
    place = Path(directory)
    query, commits = place / "query", place / "commits"
    if not query.exists():
        note(query, uuid.uuid4().hex)
    run = uuid.uuid4().hex
    sink = _Writing(parse_sink_options({"url": url, "queue": queue, "reconnectTimeout": "30s"}))
    batch = int(commits.read_text()) + 1 if commits.exists() else 0
    while batch < int(batches):
        who = Identity(query.read_text(), run, batch)
        if random.random() < 0.2:
            sink._write(who, rows(batch, 0))  # an attempt that nobody asks for
        tasks = [sink._write(who, rows(batch, task)) for task in range(TASKS)]
        sink._commit(list(tasks))
        note(commits, str(batch))
        print(batch, flush=True)
        batch += 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
