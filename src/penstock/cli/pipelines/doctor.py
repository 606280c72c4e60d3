"""``penstock pipeline doctor``: what is wrong with a table or a place, and what mends it."""

from pathlib import Path

import click

from penstock.cli.failure import FAILED
from penstock.cli.options import address_option, option
from penstock.cli.pipelines.common import (
    LOCAL_PATH,
    URL_DEFAULT_WORDS,
    broker_url,
    one_line,
    say_summary,
)
from penstock.cli.pipelines.lake import (
    CATALOG_WORDS,
    TABLE_PLACE,
    asking_store,
    catalog_options,
    iceberg_named,
    meant_table,
)

EPILOG = """\b
Exit codes:
  0   nothing is wrong, or nothing that stops a pipeline or a reader
  1   there are errors
  2   wrong usage

\b
Examples:
  penstock pipeline doctor --table ./lake/orders
  penstock pipeline doctor --table s3://bucket/lake/orders
  penstock pipeline doctor --table lake.orders --catalog prod
  penstock pipeline doctor --place ~/.local/state/penstock/validate/broker_5672/in
"""


@click.command(epilog=EPILOG)
@option(
    "--table given",
    "Directory of a table, or s3://, gs://, abfs://; with --catalog or --catalog-uri the name of an"
    " Iceberg table.",
)
@catalog_options
@option("--place", "Directory of a pipeline without a table: validate's --checkpoint.", LOCAL_PATH)
@address_option("--url", f"Broker of the queues; {URL_DEFAULT_WORDS}", "PENSTOCK_URL")
@option("--offline", "Do not ask the broker about the queues.", is_flag=True)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text")
@click.pass_context
def doctor(
    ctx: click.Context,
    /,
    given: str | None,
    place: Path | None,
    url: str | None,
    offline: bool,
    output: str,
    **words: str | None,
) -> None:
    """Say what is wrong with a table, a checkpoint and its queues, and what mends it.

    Nothing is changed, and no Spark is started.
    """
    if (given is None) == (place is None):
        raise click.UsageError("say what to examine by one of --table and --place")
    from penstock.spark.reports.doctor import ERROR, examine_place, examine_table, worst
    from penstock_ranges.ranges import BROWSE, Opened
    from pyspark_penstock.client import RangeClient
    from pyspark_penstock.endpoints import parse_url

    try:
        end = parse_url(broker_url(url))
    except ValueError as error:
        raise click.UsageError(str(error)) from error

    def look(queue: str) -> Opened:
        with RangeClient(end, queue, BROWSE) as looker:
            return looker.opened

    asked = None if offline else look
    if place is not None:
        findings = list(examine_place(place, asked))
    elif any(words[word] for word in CATALOG_WORDS):
        findings = list(examine_table(iceberg_named(given or "", words), asked))
    else:
        directory = TABLE_PLACE.convert(given, None, ctx)
        table = meant_table(directory, None, dict.fromkeys(CATALOG_WORDS), flag="--table")
        with asking_store(table):
            findings = list(examine_table(table, asked))
    if output == "text":
        for one in findings:
            click.echo(f"{one.level}: {one_line(one.subject)}: {one_line(one.text)}")
            if one.cure:
                click.echo(f"  fix: {one_line(one.cure)}")
    say_summary(
        {"findings": [one._asdict() for one in findings], "worst": worst(findings) or "nothing"}
    )
    if worst(findings) == ERROR:
        ctx.exit(FAILED)
