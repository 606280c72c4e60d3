"""``penstock pipeline``: Spark jobs one can run without knowing Spark.

Everything a user needs to decide is an option here; everything that takes time (pyspark, the
JVM) is imported after the cheap questions have been asked: is the queue there, is Spark
installed, is there a Java.  The last line on standard output is a JSON summary.
"""

import json
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.failure import Failure, Unavailable
from penstock.core.errors import PenstockError

if TYPE_CHECKING:
    from penstock.spark.archive import ArchiveJob, Summary
    from penstock.spark.landing import Landed
    from pyspark_penstock.client import Head

SHORT_MESSAGES_MAX = 200_000
"""Spark writes so many in less time than it takes to start."""
DEFAULT_URL = "amqp://guest:guest@127.0.0.1:5672/%2f"


@click.group(help="Land queues in tables.")
def pipeline() -> None:
    pass


def _seconds(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """``30s``, ``5m``, ``500ms`` or a number of seconds."""
    if value is None:
        return None
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)?", value)
    if match is None or float(match[1]) <= 0:
        raise click.BadParameter(f"{value!r} is not a time such as 30s, 5m or 500ms", ctx, param)
    return float(match[1]) * {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}[match[2] or "s"]


EPILOG = """\b
Exit codes:
  0   everything that was in the queue is in the table (or: stopped by a signal)
  1   failed: no Spark or Java, queue missing or in use, data lost, disk full
  2   wrong usage
  69  no broker answers at that address

\b
Run it again after any failure, a power cut included: it goes on where it was,
and no message is lost or doubled in the table.

\b
Examples:
  penstock pipeline archive --queue orders --to ./lake/orders
  penstock pipeline archive --queue orders --to ./lake/orders --every 30s
"""


@pipeline.command(epilog=EPILOG)
@click.option("--queue", required=True, help="The queue to land.")
@click.option("--to", "table", required=True, help="Directory of the Parquet table.")
@click.option("--url", help=f"Broker; default $PENSTOCK_URL, else {DEFAULT_URL}")
@click.option("--once", is_flag=True, help="Land what is there now, then end (the default).")
@click.option(
    "--every", metavar="TIME", callback=_seconds, help="Keep running, a batch each so often."
)
@click.option("--checkpoint", help="Where Spark keeps its place; default inside --to.")
@click.option(
    "--max-messages",
    type=click.IntRange(min=1),
    default=100_000,
    show_default=True,
    help="Largest number of messages in one batch, which is one file.",
)
@click.option("--master", default="local[2]", show_default=True, help="Spark master.")
@click.option(
    "--accept-data-loss",
    is_flag=True,
    help="Go on with what is there when the queue was replaced or read by others.",
)
@click.option("--take-over", is_flag=True, help="Take the queue from another pipeline.")
@click.option("--dry-run", is_flag=True, help="Say what would be done; starts no Spark.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text")
def archive(
    queue: str,
    table: str,
    url: str | None,
    once: bool,
    every: float | None,
    checkpoint: str | None,
    max_messages: int,
    master: str,
    accept_data_loss: bool,
    take_over: bool,
    dry_run: bool,
    output: str,
) -> None:
    """Land a queue in a Parquet table, each message exactly once.

    Messages are acknowledged after the file that holds them is on disk.  The queue must
    have no consumers meanwhile; to archive what others consume, bind a queue of its own.
    """
    if once and every is not None:
        raise click.UsageError("--once and --every exclude each other")
    if not re.fullmatch(r"local(\[[^]]+\])?", master):
        raise click.UsageError("--master must be local or local[N]: the table is a local directory")
    _check_spark_installed()
    job = _job(
        queue, table, url, every, checkpoint, max_messages, master, accept_data_loss, take_over
    )
    head = _look(job)
    if dry_run:
        _show_plan(job, head, output)
        return
    short = every is None and head.ready <= SHORT_MESSAGES_MAX
    _run(replace(job, short=short), output)


def _check_spark_installed() -> None:
    from penstock.spark.java import JavaMissing
    from penstock.spark.session import SparkMissing, check_installed

    try:
        check_installed()
    except (SparkMissing, JavaMissing) as error:
        raise Failure(str(error), error.fix) from error


def _job(
    queue: str,
    table: str,
    url: str | None,
    every: float | None,
    checkpoint: str | None,
    max_messages: int,
    master: str,
    accept_data_loss: bool,
    take_over: bool,
) -> "ArchiveJob":
    from penstock.spark.archive import ArchiveJob
    from penstock.spark.landing import NotLocal, local_path
    from pyspark_penstock.options import parse_url

    url = url or os.environ.get("PENSTOCK_URL") or DEFAULT_URL
    try:
        endpoint = parse_url(url)
        return ArchiveJob(
            url=url,
            vhost=endpoint.vhost,
            queue=queue,
            table=local_path(table),
            checkpoint=local_path(checkpoint) if checkpoint else None,
            batch_messages=max_messages,
            every_s=every,
            master=master,
            fail_on_data_loss=not accept_data_loss,
            take_over=take_over,
        )
    except (ValueError, NotLocal) as error:
        raise click.UsageError(str(error)) from error


def _look(job: "ArchiveJob") -> "Head":
    """Ask the broker for the queue: most mistakes show here, before Spark takes its time."""
    from pyspark_penstock import client
    from pyspark_penstock.options import parse_url

    try:
        with client.RangeClient(parse_url(job.url), job.queue, client.BROWSE) as looker:
            return looker.opened.head
    except client.ConnectionLost as error:
        raise Unavailable(str(error), "start it with 'penstock serve', or name it by --url") from (
            error
        )
    except client.Refused as error:
        raise Failure(str(error), _advice(error.code)) from error


def _advice(code: int) -> str:
    from pyspark_penstock import client

    return {
        client.NOT_FOUND: "declare the queue first; 'penstock queues' lists those there are",
        client.ACCESS_REFUSED: "check user and password in --url or PENSTOCK_URL",
        client.MALFORMED: "the port in --url must be the AMQP port of a Penstock",
    }.get(code, "")


def _show_plan(job: "ArchiveJob", head: "Head", output: str) -> None:
    from penstock.spark.landing import Landing
    from pyspark_penstock.columns import spark_schema
    from pyspark_penstock.options import DEFAULT_COLUMNS

    landing = Landing(job.table, job.vhost, job.queue, job.checkpoint)
    last = landing.last_planned()
    schema = {f.name: f.dataType.simpleString() for f in spark_schema(DEFAULT_COLUMNS)}
    batches = -(-head.ready // job.batch_messages)
    plan = {
        "queue": job.queue,
        "ready": head.ready,
        "from_seq_id": head.floor,
        "next_seq_id": head.next_seq,
        "batches": batches,
        "to": str(job.table),
        "checkpoint": str(landing.checkpoint),
        "continues_after_batch": last,
        "schema": schema,
    }
    if output == "text":
        click.echo(f"queue {job.queue}: {head.ready} messages ready, seq_id from {head.floor}")
        click.echo(f"table {job.table}: about {batches} more files")
        state = "new" if last is None else f"goes on after batch {last}"
        click.echo(f"checkpoint {landing.checkpoint}: {state}")
        for name, kind in schema.items():
            click.echo(f"  {name:18} {kind}")
    click.echo(json.dumps({"dry_run": True} | plan))


def _run(job: "ArchiveJob", output: str) -> None:
    from penstock.spark.archive import BrokerUnreachable, run_archive
    from penstock.spark.landing import Landing
    from penstock.spark.session import LOG_NAME

    started_s = time.monotonic()

    def on_landed(landed: "Landed") -> None:
        if output == "text":
            again = ", landed by an earlier run" if landed.before else ""
            click.echo(f"batch {landed.batch}: {landed.messages} messages{again}")

    try:
        with _signals_stop() as stopping:
            summary = run_archive(job, on_landed, stopping)
    except BrokerUnreachable as error:
        raise Unavailable(str(error), "start the broker, then run the same command again") from (
            error
        )
    except PenstockError as error:
        log = Landing(job.table, job.vhost, job.queue, job.checkpoint).home / LOG_NAME
        fix = f"see {log}; when it is mended, run the same command again"
        raise Failure(str(error), fix) from error
    click.echo(json.dumps(_summary(job, summary, time.monotonic() - started_s)))


def _summary(job: "ArchiveJob", summary: "Summary", seconds: float) -> dict[str, Any]:
    place = {"queue": job.queue, "to": str(job.table)}
    left: dict[str, Any] = {"left_in_queue": None, "seconds": round(seconds, 1)}
    with suppress(Failure):  # the table is complete, whatever became of the broker since
        left["left_in_queue"] = _look(job).ready
    return place | summary.as_dict() | left


@contextmanager
def _signals_stop() -> "Iterator[threading.Event]":
    """SIGTERM and SIGINT end the pipeline between two looks, not in the middle."""
    stopping = threading.Event()
    before = {
        number: signal.signal(number, lambda *_: stopping.set())
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
