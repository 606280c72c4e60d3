"""A project for Spark's Declarative Pipelines that reads a queue and answers into another.

In: a directory that does not exist or is empty, and two queues.  Out: files, to be changed by
their owner.  ``spark-pipelines`` comes with ``pyspark[pipelines]``, which is not needed here.
"""

import json
from pathlib import Path

from penstock.core.errors import PenstockError

SPEC = """\
# Run it with: spark-pipelines run --conf spark.sql.catalogImplementation=hive
name: {name}
storage: {storage}
libraries:
  - glob:
      include: transformations/**
"""

TRANSFORMATIONS = '''\
"""From a queue to a table, to counts, and to answers in another queue."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

QUEUE = {queue}
ANSWERS = {answers}

spark = SparkSession.active()


@dp.table
def messages() -> DataFrame:
    """Every message once; acknowledged in the queue when it is in the table."""
    columns = "seq_id,body,routing_key,enqueued_at,message_id"
    reader = spark.readStream.format("penstock").option("queue", QUEUE)
    return reader.option("columns", columns).load()


@dp.materialized_view
def messages_by_key() -> DataFrame:
    return spark.read.table("messages").groupBy("routing_key").count()


dp.create_sink(name="answers", format="penstock", options={{"queue": ANSWERS}})


@dp.append_flow(target="answers")
def answered() -> DataFrame:
    """An answer for each message of the table; each is published once."""
    rows = spark.readStream.table("messages")
    return rows.select(
        f.to_json(f.struct("seq_id", "routing_key")).alias("body"),
        f.col("message_id").alias("correlation_id"),
    )
'''

README = """\
# {name}

Reads the queue `{queue}` into the table `messages`, counts it in `messages_by_key`, and sends an
answer for each message to the queue `{answers}`. Both queues must exist; the first must have no
consumers while this runs.

    pip install 'penstock-broker[spark]' 'pyspark[pipelines]'
    export PENSTOCK_URL=amqp://user:password@host:5672/%2f
    spark-pipelines dry-run
    spark-pipelines run --conf spark.sql.catalogImplementation=hive

- Each run handles what is there and ends; start it by a timer.
- The `--conf` is needed from the second run on: without it Spark forgets its tables at the end of
  a run and finds their files in the way. It cannot be set in `spark-pipeline.yml`. The catalog is
  then in `metastore_db`, in the directory you start it from.
- The data is in `pipeline-storage`, with the place in the queue. Messages are acknowledged when
  they are in the table, so `--full-refresh` cannot bring them back: it empties the table.
- An alarming stack trace with SESSION_CLOSED at the end of a run is harmless.

Change `transformations/orders.py`; `spark-pipelines dry-run` says whether it holds together.
"""


class NotEmpty(PenstockError):
    """There is something already."""

    fix = "name another directory"


def write_project(directory: Path, queue: str, answers: str) -> list[Path]:
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise NotEmpty(f"{directory} is there and not empty")
    storage = directory / "pipeline-storage"
    storage.mkdir(parents=True, exist_ok=True)
    texts = {
        # A string of JSON is one of YAML.
        "spark-pipeline.yml": SPEC.format(
            name=json.dumps(directory.name), storage=json.dumps(storage.absolute().as_uri())
        ),
        "transformations/orders.py": TRANSFORMATIONS.format(
            queue=json.dumps(queue), answers=json.dumps(answers)
        ),
        "README.md": README.format(name=directory.name, queue=queue, answers=answers),
    }
    written = []
    for name, text in texts.items():
        path = directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return written
