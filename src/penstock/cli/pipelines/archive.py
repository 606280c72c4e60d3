"""``penstock pipeline archive``: a queue into a table, each message exactly once."""

import re
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.failure import Failure
from penstock.cli.pipelines.common import (
    EXIT_CODES,
    Common,
    Teller,
    asking_broker,
    check_spark,
    common_options,
    failing_well,
    plain_path,
    say_summary,
    stop_on_signals,
)

if TYPE_CHECKING:
    from penstock.spark.archive import ArchiveJob, Summary
    from penstock.spark.landing import Landed
    from pyspark_penstock.client import Head

SHORT_MESSAGES_MAX = 200_000
"""Spark writes so many in less time than it takes to start."""

EPILOG = f"""{EXIT_CODES}
\b
Run it again after any failure, a power cut included: it goes on where it was,
and no message is lost or doubled in the table.

\b
Examples:
  penstock pipeline archive --queue orders --to ./lake/orders
  penstock pipeline archive --queue orders --to ./lake/orders --every 30s
"""


@click.command(epilog=EPILOG, short_help="Land a queue in a table, each message once.")
@click.option("--queue", required=True, help="The queue to land.")
@click.option("--to", "table", required=True, help="Directory of the Parquet table.")
@click.option(
    "--max-messages",
    type=click.IntRange(min=1),
    default=100_000,
    show_default=True,
    help="Largest number of messages in one batch, which is one file.",
)
@click.option(
    "--accept-data-loss",
    is_flag=True,
    help="Go on with what is there when the queue was replaced or read by others.",
)
@click.option("--take-over", is_flag=True, help="Take the queue from another pipeline.")
@common_options(group=False)
def archive(
    common: Common,
    queue: str,
    table: str,
    max_messages: int,
    accept_data_loss: bool,
    take_over: bool,
) -> None:
    """Land a queue in a table, each message exactly once.

    Messages are acknowledged after the file that holds them is on disk.  The queue must
    have no consumers meanwhile; to archive what others consume, bind a queue of its own.
    """
    if not re.fullmatch(r"local(\[[^]]+\])?", common.master):
        raise click.UsageError("--master must be local or local[N]: the table is a local directory")
    from penstock.spark.archive import ArchiveJob

    check_spark(common)
    job = ArchiveJob(
        url=common.url,
        vhost=common.vhost,
        queue=queue,
        table=plain_path(table),
        checkpoint=common.checkpoint,
        batch_messages=max_messages,
        every_s=common.every_s,
        master=common.master,
        fail_on_data_loss=not accept_data_loss,
        take_over=take_over,
    )
    head = _look(job)
    if common.dry_run:
        _show_plan(job, head, common)
        return
    short = common.every_s is None and head.ready <= SHORT_MESSAGES_MAX
    _run(replace(job, short=short), head, common)


def _look(job: "ArchiveJob") -> "Head":
    """Ask the broker for the queue: most mistakes show here, before Spark takes its time."""
    from pyspark_penstock import client
    from pyspark_penstock.options import parse_url

    with (
        asking_broker(),
        client.RangeClient(parse_url(job.url), job.queue, client.BROWSE) as looker,
    ):
        return looker.opened.head


def _show_plan(job: "ArchiveJob", head: "Head", common: Common) -> None:
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
    if common.as_text:
        click.echo(f"queue {job.queue}: {head.ready} messages ready, seq_id from {head.floor}")
        click.echo(f"table {job.table}: about {batches} more files")
        state = "new" if last is None else f"goes on after batch {last}"
        click.echo(f"checkpoint {landing.checkpoint}: {state}")
        for name, kind in schema.items():
            click.echo(f"  {name:18} {kind}")
    say_summary({"dry_run": True} | plan)


def _run(job: "ArchiveJob", head: "Head", common: Common) -> None:
    from penstock.spark.archive import run_archive
    from penstock.spark.landing import Landing
    from penstock.spark.session import LOG_NAME

    started_s = time.monotonic()
    teller = Teller(common.output, head.ready if common.every_s is None else None)

    def on_landed(landed: "Landed") -> None:
        again = ", landed by an earlier run" if landed.before else ""
        line = f"batch {landed.batch}: {landed.messages} messages{again}"
        teller.batch(line, 0 if landed.before else landed.messages)

    log = Landing(job.table, job.vhost, job.queue, job.checkpoint).home / LOG_NAME
    with failing_well(log), stop_on_signals() as stopping:
        summary = run_archive(job, on_landed, stopping)
    teller.end()
    say_summary(_summary(job, summary, time.monotonic() - started_s))


def _summary(job: "ArchiveJob", summary: "Summary", seconds: float) -> dict[str, Any]:
    place = {"queue": job.queue, "to": str(job.table)}
    left: dict[str, Any] = {"left_in_queue": None, "seconds": round(seconds, 1)}
    with suppress(Failure):  # the table is complete, whatever became of the broker since
        left["left_in_queue"] = _look(job).ready
    return place | summary.as_dict() | left
