"""``penstock pipeline dlq``: what is in a dead-letter queue, and back to where it came from."""

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.failure import Failure
from penstock.cli.options import option
from penstock.cli.pipelines.common import (
    EXIT_CODES,
    Common,
    Teller,
    asking_broker,
    check_spark,
    common_options,
    failing_well,
    one_line,
    plain_path,
    say_summary,
    stop_on_signals,
)

if TYPE_CHECKING:
    from penstock.spark.dataframes.browsing import Extent
    from penstock.spark.jobs.redrive import RedriveJob, Redriven

SHORT_MESSAGES_MAX = 200_000

EPILOG = f"""{EXIT_CODES}
\b
Examples:
  penstock pipeline dlq report --queue dlq
  penstock pipeline dlq report --queue dlq --out report.html
  penstock pipeline dlq report --queue dlq --out report.json --no-samples
"""


@click.group(epilog="\b\nExample:\n  penstock pipeline dlq report --help")
def dlq() -> None:
    """Look through dead letters, and send them back."""


@dlq.command(epilog=EPILOG, short_help="Say what is in a dead-letter queue, and why.")
@option("--queue", "The dead-letter queue; it stays as it is.", required=True)
@option("--out", "Write the report there: a name ending in .html or .json.")
@option("--limit", "Look at so many of the oldest messages only.", click.IntRange(1))
@option(
    "--error-header error_headers",
    "Header in which consumers leave their error; may be repeated, the first one wins.",
    multiple=True,
    metavar="NAME",
)
@option(
    "--samples",
    "How many messages are shown with the beginning of their body.",
    click.IntRange(0, 1000),
    10,
)
@option("--no-samples", "Show nothing of any body.", is_flag=True)
@common_options(stream=False, group=False)
def report(
    common: Common,
    queue: str,
    out: str | None,
    limit: int | None,
    error_headers: tuple[str, ...],
    samples: int,
    no_samples: bool,
) -> None:
    """Say what is in a dead-letter queue, and why: reasons, sources, errors, samples.

    Nothing is acknowledged, consumers may go on meanwhile.  Error texts and keys of JSON
    objects are part of the report; --no-samples leaves bodies out of it.
    """
    target = _target(out)
    check_spark(common)
    from penstock.spark.dataframes.browsing import look
    from penstock.spark.reports.dlq_report import ERROR_HEADERS, ReportJob

    with asking_broker():
        extent = look(common.url, queue, limit)
    job = ReportJob(error_headers or ERROR_HEADERS, 0 if no_samples else samples)
    if common.dry_run:
        _show_plan(extent, job.error_headers, target, common)
        return
    started_s = time.monotonic()
    found = _report(common, extent, job)
    if target is not None:
        _write(target, found)
    if common.as_text:
        _tell(found, target)
    seconds = round(time.monotonic() - started_s, 1)
    say_summary(_summary(found, target) | {"seconds": seconds})


def _target(out: str | None) -> Path | None:
    if out is None:
        return None
    path = plain_path(out)
    if path.suffix not in (".html", ".json"):
        raise click.UsageError("--out must end in .html or .json")
    if not path.parent.is_dir():
        raise click.UsageError(f"--out: there is no directory {path.parent}")
    return path


def _show_plan(
    extent: "Extent", error_headers: "tuple[str, ...] | Any", target: Path | None, common: Common
) -> None:
    if common.as_text:
        click.echo(f"queue {extent.queue}: {extent.ready} messages ready; it stays as it is")
        click.echo(f"seq_id {extent.start} to {extent.end - 1} would be read")
    plan = {
        "dry_run": True,
        "queue": extent.queue,
        "ready": extent.ready,
        "from_seq_id": extent.start,
        "upto_seq_id": extent.end,
        "error_headers": list(error_headers),
        "out": str(target) if target else None,
    }
    say_summary(plan)


def _report(common: Common, extent: "Extent", job: Any) -> dict[str, Any]:
    from penstock.spark.dataframes.browsing import scratch
    from penstock.spark.launcher.failures import explained
    from penstock.spark.launcher.session import LOG_NAME, session
    from penstock.spark.reports.dlq_report import report as make_report

    name = f"penstock dlq report {extent.queue}"
    short = extent.ready <= SHORT_MESSAGES_MAX
    with (
        scratch() as home,
        failing_well(home / LOG_NAME),
        session(name, common.master, common.url, home, short=short) as spark,
        explained(),
    ):
        return make_report(spark, extent, job)


def _write(target: Path, found: dict[str, Any]) -> None:
    from penstock.spark.reports.dlq_page import dlq_page

    if target.suffix == ".html":
        text = dlq_page(found)
    else:
        text = json.dumps(found, indent=2, ensure_ascii=True) + "\n"
    try:
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise Failure(f"cannot write the report: {error}", "give another --out") from error


def _tell(found: dict[str, Any], target: Path | None) -> None:
    from penstock.spark.reports.dlq_page import verdict

    click.echo(one_line(verdict(found)))
    for title, key in (("reason", "reasons"), ("queue", "source_queues"), ("error", "errors")):
        for row in found[key][:5]:
            name = "(none)" if row["value"] is None else one_line(row["value"])
            click.echo(f"  {title:7} {row['count']:>10,}  {name}")
    if target is not None:
        click.echo(f"report: {target}")


def _summary(found: dict[str, Any], target: Path | None) -> dict[str, Any]:
    return {
        "queue": found["queue"],
        "messages": found["messages"],
        "left_in_queue": found["ready"],
        "reasons": {row["value"] or "none": row["count"] for row in found["reasons"]},
        "out": str(target) if target else None,
    }


# -- back ------------------------------------------------------------------------------------

REDRIVE_EPILOG = f"""{EXIT_CODES}
\b
Columns for --where are those of a queue and: death_reason, death_queue, death_count,
death_exchange, death_routing_key, first_death_queue, first_death_reason, first_death_at,
origin_exchange, origin_routing_key, redrive_count.

\b
Run it again after any failure: it first ends what it had begun.

\b
Examples:
  penstock pipeline dlq redrive --queue dlq --dry-run
  penstock pipeline dlq redrive --queue dlq --where "death_reason = 'rejected'" --limit 100
  penstock pipeline dlq redrive --queue dlq --to exchange:orders
      --where "get_json_object(cast(body as string), '$.customer') = 'acme'"
"""


@dlq.command(epilog=REDRIVE_EPILOG, short_help="Send dead letters back.")
@option("--queue", "The dead-letter queue; it must have no consumers.", required=True)
@option("--where", "Which messages; the others stay where they are.", metavar="SQL")
@option(
    "--to",
    "auto (the queue each died in first), exchange:NAME or queue:NAME.",
    default="auto",
    metavar="TARGET",
)
@option("--routing-key", "With --to exchange:NAME, instead of the first one it had.")
@option("--limit", "At most so many, the oldest first.", click.IntRange(1))
@option("--max-redrives", "Who was sent back so often stays.", click.IntRange(1), 3)
@option("--take-over", "Take the queue from another pipeline.", is_flag=True)
@option("--checkpoint", "Directory that keeps what is begun.")
@common_options(stream=False, group=False)
def redrive(
    common: Common,
    queue: str,
    where: str | None,
    to: str,
    routing_key: str | None,
    limit: int | None,
    max_redrives: int,
    take_over: bool,
) -> None:
    """Send dead letters back to where they died, each once.

    What is sent is published and then acknowledged; everything else keeps its place. The
    header x-redrive-count counts how often a message was sent back.  --dry-run does start
    Spark: it says how many messages would go where.
    """
    from penstock.cli.pipelines.validate import check_target, parse_target

    if to != "auto":
        parse_target("--to", to)
    if routing_key is not None and not to.startswith("exchange:"):
        raise click.UsageError("--routing-key goes with --to exchange:NAME")
    check_spark(common)
    from penstock.spark.dataframes.browsing import look
    from penstock.spark.jobs.redrive import RedriveJob
    from penstock.spark.state.places import home_of

    with asking_broker():
        extent = look(common.url, queue)
        if to != "auto":
            check_target(common.url, parse_target("--to", to), queue)
    job = RedriveJob(
        url=common.url,
        queue=queue,
        where=where,
        to=to,
        routing_key=routing_key,
        limit=limit,
        redrives_max=max_redrives,
        home=home_of("redrive", common.url, queue, common.checkpoint),
        master=common.master,
        take_over=take_over,
    )
    _redrive(job, extent, common)


def _redrive(job: "RedriveJob", extent: "Extent", common: Common) -> None:
    from penstock.spark.dataframes.browsing import look
    from penstock.spark.launcher.session import LOG_NAME

    started_s = time.monotonic()
    teller = Teller(common.output, min(extent.ready, job.limit or extent.ready))

    def on_slice(messages: int) -> None:
        verb = "would be sent back" if common.dry_run else "sent back"
        teller.batch(f"{messages} messages {verb}", messages)

    with failing_well(job.home / LOG_NAME), stop_on_signals() as stopping, asking_broker():
        done = _in_session(job, on_slice, stopping, common, short=extent.ready)
    teller.end()
    left = None
    with suppress(Failure), asking_broker():  # what was done is done, whatever became of it since
        left = look(job.url, job.queue).ready
    seconds = round(time.monotonic() - started_s, 1)
    dry = {"dry_run": True} if common.dry_run else {}
    say_summary(
        dry | {"queue": job.queue} | done.as_dict() | {"left_in_queue": left, "seconds": seconds}
    )


def _in_session(
    job: "RedriveJob", on_slice: Any, stopping: Any, common: Common, *, short: int
) -> "Redriven":
    from penstock.spark.jobs.redrive import opened, run_redrive
    from penstock.spark.launcher.session import session
    from penstock.spark.state.places import locked

    name = f"penstock dlq redrive {job.queue}"
    with (
        locked(job.home, f"redrive of '{job.queue}'"),
        opened(job, dry_run=common.dry_run) as reader,
        session(name, job.master, job.url, job.home, short=short <= SHORT_MESSAGES_MAX) as spark,
    ):
        return run_redrive(spark, job, reader, on_slice, stopping, dry_run=common.dry_run)
