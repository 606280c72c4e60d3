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
  penstock pipeline dlq report --queue orders.dlq --queue returns.dlq --out report.html
"""


@click.group(epilog="\b\nExample:\n  penstock pipeline dlq report --help")
def dlq() -> None:
    """Look through dead letters, and send them back."""


@dlq.command(epilog=EPILOG, short_help="Say what is in a dead-letter queue, and why.")
@option(
    "--queue queues",
    "A dead-letter queue, repeatable; it stays as it is.",
    required=True,
    multiple=True,
)
@option("--out", "Write the report there: a name ending in .html or .json.", LOCAL_PATH)
@option("--before", "Compare with this report, JSON of an earlier --out.", LOCAL_PATH)
@option("--limit", "Look at so many of the oldest messages of a queue only.", click.IntRange(1))
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
    queues: tuple[str, ...],
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
    queues = tuple(dict.fromkeys(queues))
    earlier = {} if before is None else _earlier(before, queues)
    check_spark(common)
    from penstock.spark.dataframes.browsing import look
    from penstock.spark.reports.dlq_report import ERROR_HEADERS, ReportJob

    with asking_broker():
        extents = [look(common.url, queue, limit) for queue in queues]
    job = ReportJob(error_headers or ERROR_HEADERS, 0 if no_samples else samples)
    if common.dry_run:
        _show_plan(extents, job.error_headers, out, common)
        return
    started_s = time.monotonic()
    reports = _reports(common, extents, job)
    for found in reports:
        if earlier:
            from penstock.spark.reports.dlq_page import compared

            found["before"] = compared(found, earlier[found["queue"]])
    if out is not None:
        write_report(out, _as_html(reports) if out.suffix == ".html" else _as_json(reports))
    if common.as_text:
        for found in reports:
            if len(reports) > 1:
                click.echo(f"queue {one_line(found['queue'])}")
            _tell(found)
        if out is not None:
            click.echo(f"report: {out}")
    seconds = round(time.monotonic() - started_s, 1)
    told = {"out": str(out) if out else None, "seconds": seconds}
    say_summary(_joined([_summary(found) for found in reports]) | told)


def _joined(reports: list[dict[str, Any]]) -> dict[str, Any]:
    """A report of one queue is not in a list."""
    return reports[0] if len(reports) == 1 else {"queues": reports}


def _earlier(path: Path, queues: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    from penstock.spark.reports.dlq_page import compared

    try:
        read: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        found = {one["queue"]: one for one in read.get("queues", [read])}
        for one in found.values():
            compared(one, one)
    except OSError as error:
        raise click.UsageError(f"--before: {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise click.UsageError(
            f"--before: {path} is no report of dlq report --out X.json"
        ) from error
    for queue in queues:
        if queue not in found:
            raise click.UsageError(f"--before: {path} is of queue {', '.join(found)}, not {queue}")
    return found


def _show_plan(
    extents: "list[Extent]", error_headers: Any, target: Path | None, common: Common
) -> None:
    plans = []
    for extent in extents:
        if common.as_text:
            click.echo(f"queue {extent.queue}: {extent.ready} messages ready; it stays as it is")
            click.echo(f"seq_id {extent.start} to {extent.end - 1} would be read")
        plan = {"queue": extent.queue, "ready": extent.ready, "from_seq_id": extent.start}
        plans.append(plan | {"upto_seq_id": extent.end})
    told = {"error_headers": list(error_headers), "out": str(target) if target else None}
    say_summary({"dry_run": True} | _joined(plans) | told)


def _reports(common: Common, extents: "list[Extent]", job: Any) -> list[dict[str, Any]]:
    from penstock.spark.dataframes.browsing import scratch
    from penstock.spark.reports.dlq_report import report as make_report

    name = f"dlq report {', '.join(extent.queue for extent in extents)}"
    short = sum(extent.ready for extent in extents) <= SHORT_MESSAGES_MAX
    with scratch() as home, spark_for(name, common, home, short=short) as spark:
        return [make_report(spark, extent, job) for extent in extents]


def _as_html(reports: list[dict[str, Any]]) -> str:
    from penstock.spark.reports.dlq_page import dlq_page

    return dlq_page(reports)


def _as_json(reports: list[dict[str, Any]]) -> str:
    return json.dumps(_joined(reports), indent=2, ensure_ascii=True) + "\n"


def _tell(found: dict[str, Any]) -> None:
    from penstock.spark.reports.dlq_page import verdict

    click.echo(one_line(verdict(found)))
    for title, key in (("reason", "reasons"), ("queue", "source_queues"), ("error", "errors")):
        for row in found[key][:5]:
            name = "(none)" if row["value"] is None else one_line(row["value"])
            click.echo(f"  {title:7} {row['count']:>10,}  {name}")


def _summary(found: dict[str, Any]) -> dict[str, Any]:
    return {
        "queue": found["queue"],
        "messages": found["messages"],
        "left_in_queue": found["ready"],
        "reasons": {row["value"] or "none": row["count"] for row in found["reasons"]},
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
