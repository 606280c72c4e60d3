"""``penstock pipeline dlq``: what is in a dead-letter queue, and back to where it came from."""

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.options import option
from penstock.cli.pipelines.common import (
    EXIT_CODES,
    LOCAL_PATH,
    REPORT_ENDINGS,
    SHORT_MESSAGES_MAX,
    Common,
    asking_broker,
    at_work,
    check_output,
    check_spark,
    common_options,
    left_in,
    one_line,
    say_summary,
    spark_for,
    take_over_option,
    write_report,
)
from penstock.cli.pipelines.validate import check_target, parse_target

if TYPE_CHECKING:
    from penstock.spark.dataframes.browsing import Extent
    from penstock.spark.jobs.redrive import RedriveJob, Redriven

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
@option("--out", "Write the report there: a name ending in .html or .json.", LOCAL_PATH)
@option("--before", "Compare with this report, JSON of an earlier --out.", LOCAL_PATH)
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
    out: Path | None,
    before: Path | None,
    limit: int | None,
    error_headers: tuple[str, ...],
    samples: int,
    no_samples: bool,
) -> None:
    """Say what is in a dead-letter queue, and why: reasons, sources, errors, samples.

    Nothing is acknowledged, consumers may go on meanwhile.  Error texts and keys of JSON
    objects are part of the report; --no-samples leaves bodies out of it.
    """
    check_output(out, *REPORT_ENDINGS)
    earlier = None if before is None else _earlier(before, queue)
    check_spark(common)
    from penstock.spark.dataframes.browsing import look
    from penstock.spark.reports.dlq_report import ERROR_HEADERS, ReportJob

    with asking_broker():
        extent = look(common.url, queue, limit)
    job = ReportJob(error_headers or ERROR_HEADERS, 0 if no_samples else samples)
    if common.dry_run:
        _show_plan(extent, job.error_headers, out, common)
        return
    started_s = time.monotonic()
    found = _report(common, extent, job)
    if earlier is not None:
        from penstock.spark.reports.dlq_page import compared

        found["before"] = compared(found, earlier)
    if out is not None:
        write_report(out, _as_html(found) if out.suffix == ".html" else _as_json(found))
    if common.as_text:
        _tell(found, out)
    seconds = round(time.monotonic() - started_s, 1)
    say_summary(_summary(found, out) | {"seconds": seconds})


def _earlier(path: Path, queue: str) -> dict[str, Any]:
    """Raises UsageError."""
    from penstock.spark.reports.dlq_page import compared

    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        compared(found, found)
        of = found["queue"]
    except OSError as error:
        raise click.UsageError(f"--before: {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise click.UsageError(
            f"--before: {path} is no report of dlq report --out X.json"
        ) from error
    if of != queue:
        raise click.UsageError(f"--before: {path} is of queue {of}, not {queue}")
    return found


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
    from penstock.spark.reports.dlq_report import report as make_report

    name = f"dlq report {extent.queue}"
    short = extent.ready <= SHORT_MESSAGES_MAX
    with scratch() as home, spark_for(name, common, home, short=short) as spark:
        return make_report(spark, extent, job)


def _as_html(found: dict[str, Any]) -> str:
    from penstock.spark.reports.dlq_page import dlq_page

    return dlq_page(found)


def _as_json(found: dict[str, Any]) -> str:
    return json.dumps(found, indent=2, ensure_ascii=True) + "\n"


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
@option("--max-redrives redrives_max", "A message sent back so often stays.", click.IntRange(1), 3)
@take_over_option
@option("--checkpoint", "Directory that keeps what is begun.", LOCAL_PATH)
@common_options(stream=False, group=False)
def redrive(common: Common, queue: str, to: str, routing_key: str | None, **chosen: Any) -> None:
    """Send dead letters back to where they died, each once.

    What is sent is published and then acknowledged; everything else keeps its place. The
    header x-redrive-count counts how often a message was sent back.  --dry-run does start
    Spark: it says how many messages would go where.
    """
    target = None if to == "auto" else parse_target("--to", to)
    if routing_key is not None and not to.startswith("exchange:"):
        raise click.UsageError("--routing-key goes with --to exchange:NAME")
    check_spark(common)
    from penstock.spark.dataframes.browsing import look
    from penstock.spark.jobs.redrive import RedriveJob
    from penstock.spark.state.places import home_of

    with asking_broker():
        extent = look(common.url, queue)
        if target is not None:
            check_target(common.url, target, (queue,))
    home = home_of("redrive", common.url, queue, common.checkpoint)
    _redrive(
        RedriveJob(
            url=common.url,
            queue=queue,
            to=to,
            routing_key=routing_key,
            home=home,
            master=common.master,
            **chosen,
        ),
        extent,
        common,
    )


def _redrive(job: "RedriveJob", extent: "Extent", common: Common) -> None:
    total = min(extent.ready, job.limit or extent.ready)
    with at_work(common, job.home, total) as (teller, stopping), asking_broker():

        def on_slice(messages: int) -> None:
            verb = "would be sent back" if common.dry_run else "sent back"
            teller.batch(f"{messages} messages {verb}", messages)

        short = extent.ready <= SHORT_MESSAGES_MAX
        done = _in_session(job, on_slice, stopping, dry_run=common.dry_run, short=short)
    told = {"dry_run": True} if common.dry_run else {}
    told |= {"queue": job.queue} | done.as_dict()
    left = left_in(job.url, job.queue)
    say_summary(told | {"left_in_queue": left, "seconds": teller.seconds})


def _in_session(
    job: "RedriveJob", on_slice: Any, stopping: Any, *, dry_run: bool, short: bool
) -> "Redriven":
    from penstock.spark.jobs.redrive import opened, run_redrive
    from penstock.spark.launcher.session import session
    from penstock.spark.state.places import locked

    name = f"penstock dlq redrive {job.queue}"
    with (
        locked(job.home, f"redrive of '{job.queue}'"),
        opened(job, dry_run=dry_run) as reader,
        session(name, job.master, job.url, job.home, short=short) as spark,
    ):
        return run_redrive(spark, job, reader, on_slice, stopping, dry_run=dry_run)
