"""``penstock pipeline archive``: a queue into a table, each message exactly once."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.cli.options import option
from penstock.cli.pipelines.common import (
    EXIT_CODES,
    LOCAL_PATH,
    Common,
    accept_data_loss_option,
    at_work,
    check_spark,
    common_options,
    say_failure,
    say_summary,
    take_over_option,
)
from penstock.cli.pipelines.subscription import (
    Subscribed,
    left_of,
    source_options,
    subscribe,
    subscription_options,
)

if TYPE_CHECKING:
    from penstock.spark.jobs.archive import ArchiveJob
    from penstock.spark.tables.publishing import Landed

PARTITION_COLUMNS = (
    *("day", "hour", "queue", "exchange", "routing_key", "type", "app_id", "content_type"),
)
COMPRESSIONS = ("zstd", "snappy", "lz4", "none")

EPILOG = f"""{EXIT_CODES}
\b
Run it again after any failure, a power cut included: it goes on where it was,
and no message is lost or doubled in the table.

\b
Examples:
  penstock pipeline archive --queue orders --to ./lake/orders
  penstock pipeline archive --queue orders --to ./lake/orders --every 30s
  penstock pipeline archive --stream clicks --to ./lake/clicks --every 30s
  penstock pipeline archive --exchange events --routing-key 'eu.#' --group lake \\
      --to ./lake/events --partition-by day --format delta
"""


def _columns(ctx: click.Context, param: click.Parameter, value: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in value.split(",") if name.strip())
    wrong = [name for name in names if name not in PARTITION_COLUMNS]
    if wrong or len(set(names)) != len(names):
        allowed = ", ".join(PARTITION_COLUMNS)
        raise click.BadParameter(f"{value!r}: give each at most once of {allowed}", ctx, param)
    return names


@click.command(epilog=EPILOG)
@subscription_options
@option("--to directory", "Directory of the table.", LOCAL_PATH, required=True)
@option(
    "--format table_format",
    "Plain files, or a Delta table.",
    click.Choice(["parquet", "delta"]),
    "parquet",
)
@click.option(
    "--partition-by",
    metavar="COLUMN,…",
    default="",
    callback=_columns,
    help=f"Directories day=…/queue=…; of {', '.join(PARTITION_COLUMNS)}.",
)
@option(
    "--max-file-mb", "Begin another file when one has reached this size.", click.IntRange(1), 128
)
@option("--compression", "Of the Parquet files.", click.Choice(COMPRESSIONS), COMPRESSIONS[0])
@option(
    "--raw-properties",
    "Add the column properties_raw, for a replay that keeps every bit.",
    is_flag=True,
)
@option(
    "--max-messages batch_messages",
    "Largest number of messages in one batch.",
    click.IntRange(1),
    1_000_000,
)
@option("--max-batch-mb", "About the largest size of one batch.", click.IntRange(1), 1024)
@accept_data_loss_option
@take_over_option
@common_options()
def archive(
    common: Common,
    directory: Path,
    table_format: str,
    partition_by: tuple[str, ...],
    max_file_mb: int,
    compression: str,
    raw_properties: bool,
    batch_messages: int,
    max_batch_mb: int,
    accept_data_loss: bool,
    take_over: bool,
    **what: str | None,
) -> None:
    """Land a queue in a table, each message exactly once.

    Messages are acknowledged after the file that holds them is on disk.  A queue that is named
    must have no consumers meanwhile; to archive what others consume, name the exchange and a
    group, or the topic and a channel: the archive then gets messages of its own.  A stream keeps
    its messages and has any number of readers; --group names this one (default: the table).
    """
    options = source_options(common.group, **what)
    if "stream" in options:
        options.setdefault("group", str(directory.absolute()))
    check_spark(common)
    from penstock.spark.jobs.archive import ArchiveJob
    from penstock.spark.tables.table import Table
    from pyspark_penstock.options import COLUMNS, DEFAULT_COLUMNS
    from pyspark_penstock.table_files import Layout

    columns = COLUMNS if raw_properties else DEFAULT_COLUMNS
    subscribed = subscribe(common, options)
    job = ArchiveJob(
        url=common.url,
        vhost=common.vhost,
        source=options,
        subject=subscribed.subject,
        queues=subscribed.queues,
        table=Table(directory, table_format, partition_by),
        layout=Layout(columns, partition_by, max_file_mb << 20, compression),
        checkpoint=common.checkpoint,
        batch_messages=batch_messages,
        batch_bytes=max_batch_mb << 20,
        every_s=common.every_s,
        master=common.master,
        fail_on_data_loss=not accept_data_loss,
        take_over=take_over,
    )
    if common.dry_run:
        _show_plan(job, subscribed, common)
        return
    _run(job, subscribed, common)


def _show_plan(job: "ArchiveJob", subscribed: Subscribed, common: Common) -> None:
    from penstock.spark.state.notes import last_planned
    from pyspark_penstock.columns import spark_schema

    landing = job.landing()
    last = last_planned(landing.checkpoint)
    schema = {f.name: f.dataType.simpleString() for f in spark_schema(job.layout.columns)}
    batches = -(-subscribed.ready // job.batch_messages)
    plan = {
        "queues": {
            queue: {"ready": head.ready, "from_seq_id": head.floor, "next_seq_id": head.next_seq}
            for queue, head in zip(subscribed.queues, subscribed.heads, strict=True)
        },
        "ready": subscribed.ready,
        "batches": batches,
        "to": str(job.table.directory),
        "format": job.table.format,
        "partition_by": list(job.table.partition_by),
        "checkpoint": str(landing.checkpoint),
        "continues_after_batch": last,
        "schema": schema,
    }
    if common.as_text:
        for queue, head in zip(subscribed.queues, subscribed.heads, strict=True):
            click.echo(f"queue {queue}: {head.ready} messages ready, seq_id from {head.floor}")
        click.echo(f"table {job.table.directory}: about {batches} more batches")
        state = "new" if last is None else f"goes on after batch {last}"
        click.echo(f"checkpoint {landing.checkpoint}: {state}")
        for name, kind in schema.items():
            click.echo(f"  {name:18} {kind}")
    say_summary({"dry_run": True} | plan)


def _run(job: "ArchiveJob", subscribed: Subscribed, common: Common) -> None:
    from penstock.spark.jobs.archive import run_archive

    landing = job.landing()
    total = subscribed.ready if common.every_s is None else None
    with at_work(common, landing.home, total, landing.checkpoint) as (teller, stopping):

        def on_landed(landed: "Landed") -> None:
            again = ", landed by an earlier run" if landed.before else ""
            line = f"batch {landed.batch}: {landed.messages} messages{again}"
            teller.batch(line, 0 if landed.before else landed.messages)

        summary = run_archive(job, on_landed, stopping, say_failure)
    say_summary(
        {"queue": str(subscribed), "to": str(job.table.directory)}
        | summary
        | {"left_in_queue": left_of(common, job.source), "seconds": teller.seconds}
    )
