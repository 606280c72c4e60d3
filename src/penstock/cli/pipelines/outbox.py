"""``penstock pipeline outbox``: what comes into a table goes to an exchange, each row once."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.options import option
from penstock.cli.pipelines.common import (
    EXIT_CODES,
    Common,
    asking_broker,
    at_work,
    common_options,
    failing_well,
    say_summary,
)
from penstock.cli.pipelines.lake import CATALOG_WORDS, TABLE_PLACE, catalog_options, meant_table
from penstock.cli.pipelines.replay import target_of

if TYPE_CHECKING:
    from penstock.spark.jobs.outbox import OutboxJob

PROPERTIES = (
    *("routing_key", "message_id", "correlation_id", "reply_to", "type", "app_id", "priority"),
    *("content_type", "expiration", "timestamp", "delay_ms"),
)
EPILOG = f"""{EXIT_CODES}
\b
Run it again after any failure: it goes on where it was, and no row is sent twice or left out.

\b
Examples:
  penstock pipeline outbox --from ./lake/outbox --to-exchange events --every 5s \\
      --properties 'routing_key=kind, message_id=id'
  penstock pipeline outbox --table shop.outbox --catalog prod --to-queue orders
"""


def _pairs(ctx: click.Context, param: click.Parameter, value: str | None) -> dict[str, str]:
    pairs = [one.partition("=") for one in (value or "").split(",") if one.strip()]
    found = {name.strip(): column.strip() for name, _, column in pairs}
    if len(found) != len(pairs) or not all(found.values()) or not set(found) <= set(PROPERTIES):
        raise click.BadParameter(
            f"{value!r}: write PROPERTY=COLUMN,… with each at most once of {', '.join(PROPERTIES)}",
            ctx,
            param,
        )
    return found


@click.command(epilog=EPILOG)
@option("--from place", "Directory of a table, or s3://, gs://, abfs://.", TABLE_PLACE)
@option("--table table_name", "Name of an Iceberg table, such as shop.outbox.", metavar="NAME")
@catalog_options
@option("--to-queue", "Send to this queue.", metavar="NAME")
@option("--to-exchange", "Send to this exchange.", metavar="NAME")
@option("--routing-key", "With --to-exchange: the key of all messages.", metavar="KEY")
@option(
    "--properties",
    "Properties of messages from columns: 'routing_key=kind, message_id=id'.",
    callback=_pairs,
    metavar="PROPERTY=COLUMN,…",
)
@option(
    "--begin",
    "A new outbox sends what is in the table, or what comes from now on.",
    click.Choice(["earliest", "latest"]),
    "earliest",
)
@option("--skip-changes", "Pass over commits that change or replace rows.", is_flag=True)
@option("--name", "What this outbox is called, if a table has several.", default="outbox")
@common_options(group=False, spark=False)
def outbox(
    common: Common,
    place: Path | str | None,
    table_name: str | None,
    to_queue: str | None,
    to_exchange: str | None,
    routing_key: str | None,
    **chosen: Any,
) -> None:
    """Send each new row of a table as a message, exactly once, in the order of the commits.

    A row with a column body is a message, with the properties that its other columns name; any
    other row becomes a JSON object.  Starts no Spark.
    """
    target = target_of(to_queue, to_exchange, routing_key)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}", chosen["name"]):
        raise click.UsageError("--name is made of letters, digits and _ . - (at most 100)")
    properties = chosen["properties"]
    if "routing_key" in properties and set(target) != {"exchange"}:
        raise click.UsageError("--properties routing_key=… belongs to --to-exchange alone")
    words = {word: chosen.pop(word) for word in CATALOG_WORDS}
    table = meant_table(place, table_name, words, flag="--from")
    from penstock.spark.jobs.outbox import OutboxJob

    job = OutboxJob(
        url=common.url,
        table=table,
        target=target,
        home=common.checkpoint or table.home / "outbox" / chosen["name"],
        every_s=common.every_s,
        **chosen,
    )
    try:
        job.settings()
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if common.dry_run:
        _show_plan(job, common)
    else:
        _run(job, common)


def _show_plan(job: "OutboxJob", common: Common) -> None:
    from penstock.spark.jobs.outbox import waiting

    with failing_well(job.home):
        files, rows = waiting(job)
    told = {"name": job.name, "from": str(job.table), "to": dict(job.target), "place": job.home}
    told |= {"files": files, "messages": rows}
    if common.as_text:
        for label, value in told.items():
            click.echo(f"{label}: {value}")
    say_summary({"dry_run": True} | told)


def _run(job: "OutboxJob", common: Common) -> None:
    from penstock.spark.jobs.outbox import run_outbox

    with at_work(common, job.home, None) as (teller, stopping), asking_broker():

        def on_slice(number: int, messages: int) -> None:
            teller.batch(f"slice {number}: {messages} messages", messages)

        done = run_outbox(job, on_slice, stopping)
    told = {"name": job.name, "from": str(job.table), "to": dict(job.target)}
    say_summary(told | vars(done) | {"seconds": teller.seconds})
