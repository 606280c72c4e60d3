"""``penstock pipeline archive``: a queue into a table, each message exactly once."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.options import option
from penstock.cli.pipelines.common import (
    EXIT_CODES,
    SECONDS,
    Common,
    accept_data_loss_option,
    at_work,
    check_spark,
    common_options,
    failing_well,
    say,
    say_failure,
    say_summary,
    take_over_option,
)
from penstock.cli.pipelines.lake import (
    CATALOG_WORDS,
    TABLE_PLACE,
    begun_table,
    catalog_options,
)
from penstock.cli.pipelines.sorting import (
    SORTING_WORDS,
    decoding_of,
    sorting_of,
    sorting_options,
)
from penstock.cli.pipelines.subscription import (
    Subscribed,
    left_of,
    source_options,
    subscribe,
    subscription_options,
)

if TYPE_CHECKING:
    from collections import Counter

    from penstock.spark.jobs.archive import ArchiveJob
    from penstock.spark.tables.landing import LakeTable
    from penstock.spark.tables.parts import Sorting
    from penstock.spark.tables.publishing import Landed
    from pyspark_penstock.body_columns import BodyColumn
    from pyspark_penstock.table_files import Layout

PARTITION_COLUMNS = (
    *("day", "hour", "published_day", "queue", "exchange", "routing_key", "type", "app_id"),
    "content_type",
)
LEAST_WORDS = ("min_batch_mb", "max_delay_s")
DELAY_MAX_S = 600.0
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
  penstock pipeline archive --queues-pattern 'orders\\..*' --to './lake/{{queue}}' --every 30s
  penstock pipeline archive --queue orders --table lake.orders --partition-by day \\
      --catalog-uri sqlite:///catalog.db --warehouse ./lake
"""


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _checked(names: tuple[str, ...], decoded: "tuple[BodyColumn, ...]") -> tuple[str, ...]:
    """Of a column that ``--columns`` makes there may be directories if it is text."""
    allowed = (*PARTITION_COLUMNS, *(one.name for one in decoded if one.kind.word == "string"))
    if not set(names) <= set(allowed) or len(set(names)) != len(names):
        raise click.UsageError(
            f"--partition-by {','.join(names)}: give each at most once of {', '.join(allowed)}"
        )
    return names


def _kind(table_format: str | None, table_name: str | None) -> str:
    if (table_format == "iceberg") != (table_name is not None) and table_format is not None:
        raise click.UsageError("--format iceberg and --table belong together")
    return table_format or "parquet"


@click.command(epilog=EPILOG)
@subscription_options
@option(
    "--to place",
    "Directory of a plain or Delta table, or s3://, gs://, abfs://; lake/{queue}: one per queue.",
    TABLE_PLACE,
)
@option("--table table_name", "Name of an Iceberg table, such as lake.orders.", metavar="NAME")
@catalog_options
@option(
    "--format table_format",
    "Plain files, or a Delta table; --table is iceberg.",
    click.Choice(["parquet", "delta", "iceberg"]),
)
@click.option(
    "--partition-by",
    metavar="COLUMN,…",
    help=f"Directories day=…/queue=…; of {', '.join(PARTITION_COLUMNS)}. Default: those of the"
    " table that is there; of a new one none, of a plain one with --every day.",
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
@sorting_options
@option(
    "--max-messages batch_messages",
    "Largest number of messages in one batch.",
    click.IntRange(1),
    1_000_000,
)
@option("--max-batch-mb", "About the largest size of one batch.", click.IntRange(1), 1024)
@option(
    "--min-batch-mb",
    "With --every: wait until a batch is about so large, or for --max-delay.",
    click.IntRange(1),
)
@option("--max-delay max_delay_s", "With --min-batch-mb: the longest wait (10m).", SECONDS)
@accept_data_loss_option
@take_over_option
@common_options()
def archive(
    common: Common,
    place: Path | str | None,
    table_name: str | None,
    table_format: str | None,
    partition_by: str | None,
    max_file_mb: int,
    compression: str,
    raw_properties: bool,
    batch_messages: int,
    max_batch_mb: int,
    accept_data_loss: bool,
    take_over: bool,
    **what: Any,
) -> None:
    """Land a queue in a table, each message exactly once.

    Messages are acknowledged after the file that holds them is on disk.  A queue that is named
    must have no consumers meanwhile; to archive what others consume, name the exchange and a
    group, or the topic and a channel: the archive then gets messages of its own.  A stream keeps
    its messages and has any number of readers; --group names this one (default: the table).
    """
    words = {word: what.pop(word) for word in CATALOG_WORDS}
    sorted_by = {word: what.pop(word) for word in SORTING_WORDS}
    least = {word: what.pop(word) for word in LEAST_WORDS}
    options = source_options(common.group, **what)
    columns = decoding_of(sorted_by).columns
    kind = _kind(table_format, table_name)
    given = None if partition_by is None else _checked(_names(partition_by), columns)
    table = begun_table(
        place, table_name, words, table_format=kind, partition_by=given,
        endless=common.every_s is not None,
    )  # fmt: skip
    if "stream" in options:
        options.setdefault("group", str(place or table.home))
    check_spark(common)
    from penstock.spark.jobs.archive import ArchiveJob
    from pyspark_penstock.table_files import Layout

    fields = _message_columns(table, raw_properties=raw_properties)
    layout = Layout(
        fields, table.partition_by, max_file_mb << 20, compression, decoded=columns,
        with_fault=bool(columns),
    )  # fmt: skip
    sorting = sorting_of(sorted_by, table, messages_stay="stream" in options)
    if sorting.merge_on and options.keys() & {"queues", "queuesPattern"}:
        raise click.UsageError("--merge-on: messages of several queues have no order; read one")
    _check(sorting, layout, table)
    batch_bytes = min(max_batch_mb << 20, sorting.batch_bytes_max)
    least = _least(common, batch_bytes, **least)
    subscribed = subscribe(common, options)
    job = ArchiveJob(
        url=common.url,
        vhost=common.vhost,
        source=options,
        subject=subscribed.subject,
        queues=subscribed.queues,
        table=table,
        layout=layout,
        checkpoint=common.checkpoint,
        batch_messages=batch_messages,
        batch_bytes=batch_bytes,
        **least,
        every_s=common.every_s,
        master=common.master,
        fail_on_data_loss=not accept_data_loss,
        take_over=take_over,
        sorting=sorting,
    )
    (_show_plan if common.dry_run else _run)(job, subscribed, common)


def _least(
    common: Common, batch_bytes: int, min_batch_mb: int | None, max_delay_s: float | None
) -> dict[str, Any]:
    """For how many bytes a batch waits, and how long; raises UsageError."""
    if min_batch_mb is None:
        if max_delay_s is not None:
            raise click.UsageError("--max-delay belongs to --min-batch-mb")
        return {}
    if common.every_s is None:
        raise click.UsageError("--min-batch-mb belongs to --every: another run takes what there is")
    if min_batch_mb << 20 > batch_bytes:
        raise click.UsageError(f"--min-batch-mb: the largest batch is {batch_bytes >> 20} MB")
    return {"least_bytes": min_batch_mb << 20, "delay_max_s": max_delay_s or DELAY_MAX_S}


def _check(sorting: "Sorting", layout: "Layout", table: "LakeTable") -> None:
    """Before the broker is asked and Spark takes its time."""
    from penstock.spark.launcher.session import LOG_NAME
    from penstock.spark.tables.landing import Landing
    from penstock.spark.tables.per_queue import TablePerQueue

    if isinstance(table, TablePerQueue):
        if sorting.note():
            raise click.UsageError(
                f"{table}: --where, --rest, --quarantine and --merge-on are for one table; archive"
                " that queue by a pipeline of its own"
            )
        return
    with failing_well(table.home / LOG_NAME):
        sorting.targets(layout, table, lambda one: Landing(one, "/", table.name, None))


def _message_columns(table: "LakeTable", *, raw_properties: bool) -> tuple[str, ...]:
    """A table that was begun before there was ``incarnation`` keeps the columns it has."""
    from penstock.spark.tables.table import Table
    from pyspark_penstock.options import DEFAULT_COLUMNS

    old = isinstance(table, Table) and table.lacks("incarnation")
    columns = DEFAULT_COLUMNS if old else (*DEFAULT_COLUMNS, "incarnation")
    return (*columns, "properties_raw") if raw_properties else columns


def _show_plan(job: "ArchiveJob", subscribed: Subscribed, common: Common) -> None:
    from dataclasses import replace

    from pyspark.sql.pandas.types import from_arrow_schema  # which does without pandas

    from penstock.spark.state.notes import last_planned
    from pyspark_penstock.table_files import table_schema

    landing = job.landing()
    last = last_planned(landing.checkpoint)
    columns = from_arrow_schema(table_schema(replace(job.layout, partition_by=())))
    schema = {one.name: one.dataType.simpleString() for one in columns}
    batches = -(-subscribed.ready // job.batch_messages)
    plan = {
        "queues": {
            queue: {"ready": head.ready, "from_seq_id": head.floor, "next_seq_id": head.next_seq}
            for queue, head in zip(subscribed.queues, subscribed.heads, strict=True)
        },
        "ready": subscribed.ready,
        "batches": batches,
        "to": str(job.table),
        "format": job.table.format,
        "partition_by": list(job.table.partition_by),
        "checkpoint": str(landing.checkpoint),
        "continues_after_batch": last,
        "schema": schema,
    }
    if common.as_text:
        for queue, head in zip(subscribed.queues, subscribed.heads, strict=True):
            click.echo(f"queue {queue}: {head.ready} messages ready, seq_id from {head.floor}")
        click.echo(
            f"table {job.table}: about {batches} more {'batch' if batches == 1 else 'batches'}"
        )
        state = "new" if last is None else f"goes on after batch {last}"
        click.echo(f"checkpoint {landing.checkpoint}: {state}")
        for name, kind in schema.items():
            click.echo(f"  {name:18} {kind}")
    say_summary({"dry_run": True} | plan)


def _run(job: "ArchiveJob", subscribed: Subscribed, common: Common) -> None:
    from penstock.spark.jobs.archive import run_archive

    landing = job.landing()
    total = subscribed.ready if common.every_s is None else None
    if total == 0 and common.as_text:
        is_own = bool({"topic", "exchange"} & job.source.keys())
        more = ": a new channel or group gets what is published from now on" if is_own else ""
        say(f"no messages wait in {subscribed}{more}")
    with at_work(common, landing.home, total, landing.checkpoint) as (teller, stopping):

        def on_landed(landed: "Landed", elsewhere: "Counter[str]") -> None:
            more = [
                f"{count} {name.replace('_', ' ')}" for name, count in elsewhere.items() if count
            ]
            again = ", landed by an earlier run" if landed.before else ""
            line = ", ".join([f"batch {landed.batch}: {landed.messages} messages{again}", *more])
            teller.batch(line, 0 if landed.before else landed.messages + elsewhere.total())

        summary = run_archive(job, on_landed, stopping, say_failure)
    say_summary(
        {"queue": str(subscribed), "to": str(job.table)}
        | summary
        | {"left_in_queue": left_of(common, job.source), "seconds": teller.seconds}
    )
