"""``penstock pipeline compact``: few large files instead of many, beside writers and readers.

Needs neither a broker nor Java.
"""

import time
from typing import TYPE_CHECKING

import click

from penstock.cli.failure import Failure
from penstock.cli.options import option
from penstock.cli.pipelines.common import say_summary
from penstock.cli.pipelines.lake import (
    CATALOG_WORDS,
    TABLE_PLACE,
    asking_store,
    catalog_options,
    iceberg_named,
    meant_table,
)
from penstock.core.errors import PenstockError

if TYPE_CHECKING:
    from penstock.spark.tables.compaction import Compacted
    from penstock.spark.tables.landing import LakeTable

EPILOG = """\b
Exit codes:
  0   done
  1   failed: no table there, or one that cannot be compacted safely
  2   wrong usage

\b
Examples:
  penstock pipeline compact --table ./lake/orders
  penstock pipeline compact --table ./lake/orders --max-file-mb 512 --dry-run
  penstock pipeline compact --table lake.orders --catalog prod --vacuum-hours 168
  penstock pipeline compact --table s3://bucket/lake/orders
"""


@click.command(epilog=EPILOG)
@option(
    "--table given",
    "Directory or s3://, gs://, abfs://; with --catalog or --catalog-uri the name of an Iceberg"
    " table.",
    required=True,
)
@catalog_options
@option(
    "--max-file-mb",
    "Size of the new files; those of half the size are left alone.",
    click.IntRange(1),
    128,
)
@option(
    "--vacuum-hours",
    "Delta, Iceberg: also remove what only versions need that are older than so many hours.",
    click.FloatRange(min=168),
)
@option("--dry-run", "Say what would be done.", is_flag=True)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text")
@click.pass_context
def compact(
    ctx: click.Context,
    /,
    given: str,
    max_file_mb: int,
    vacuum_hours: float | None,
    dry_run: bool,
    output: str,
    **words: str | None,
) -> None:
    """Make few large files of a table's many, while pipelines write and others read it.

    A Delta or Iceberg table is compacted by a transaction.  A plain table must have partitions:
    each is exchanged atomically.  A reader that listed it before and opens a file after that
    gets "no such file", and is right again when it lists anew; it never reads a message twice.
    """
    started_s = time.monotonic()
    table: LakeTable
    if words["catalog"] or words["catalog_uri"]:
        table = iceberg_named(given, words)
    else:
        place = TABLE_PLACE.convert(given, None, ctx)
        table = meant_table(place, None, dict.fromkeys(CATALOG_WORDS), flag="--table")
    done = _compacted(table, max_file_mb << 20, vacuum_hours, dry_run, output == "text")
    summary = {"table": str(table), **vars(done), "seconds": round(time.monotonic() - started_s, 1)}
    say_summary(({"dry_run": True} | summary) if dry_run else summary)


def _compacted(
    place: "LakeTable", file_bytes: int, vacuum_hours: float | None, dry_run: bool, as_text: bool
) -> "Compacted":
    from penstock.spark.tables.compaction import compact as run

    def on_partition(name: str, before: int, after: int) -> None:
        if as_text:
            click.echo(f"{name}: {before} files became {after}")

    try:
        with asking_store(place):
            return run(
                place, file_bytes, on_partition, vacuum_hours=vacuum_hours, only_plan=dry_run
            )
    except PenstockError as error:
        raise Failure(str(error), getattr(error, "fix", "")) from error
