"""``penstock pipeline dlq``: what is in a dead-letter queue, and back to where it came from."""

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.failure import Failure
from penstock.cli.pipelines.common import (
    EXIT_CODES,
    Common,
    asking_broker,
    check_spark,
    common_options,
    failing_well,
    plain_path,
    say_summary,
)

if TYPE_CHECKING:
    from penstock.spark.browsing import Extent

SHORT_MESSAGES_MAX = 200_000

EPILOG = f"""{EXIT_CODES}
\b
Examples:
  penstock pipeline dlq report --queue dlq
  penstock pipeline dlq report --queue dlq --out report.html
  penstock pipeline dlq report --queue dlq --out report.json --no-samples
"""


@click.group(short_help="Look through dead letters, and send them back.")
def dlq() -> None:
    """Look through dead letters, and send them back."""


@dlq.command(epilog=EPILOG, short_help="Say what is in a dead-letter queue, and why.")
@click.option("--queue", required=True, help="The dead-letter queue; it stays as it is.")
@click.option("--out", help="Write the report there: a name ending in .html or .json.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    help="Look at so many of the oldest messages only.",
)
@click.option(
    "--error-header",
    "error_headers",
    multiple=True,
    metavar="NAME",
    help="Header in which consumers leave their error; may be repeated, the first one wins.",
)
@click.option(
    "--samples",
    type=click.IntRange(min=0, max=1000),
    default=10,
    show_default=True,
    help="How many messages are shown with the beginning of their body.",
)
@click.option("--no-samples", is_flag=True, help="Show nothing of any body.")
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
    from penstock.spark.browsing import look
    from penstock.spark.dlq_report import ERROR_HEADERS, ReportJob

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
    from penstock.spark.browsing import scratch
    from penstock.spark.dlq_report import report as make_report
    from penstock.spark.pipeline import explained, session
    from penstock.spark.session import LOG_NAME

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
    from penstock.spark.dlq_page import dlq_page

    if target.suffix == ".html":
        text = dlq_page(found)
    else:
        text = json.dumps(found, indent=2, ensure_ascii=True) + "\n"
    try:
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise Failure(f"cannot write the report: {error}", "give another --out") from error


def _tell(found: dict[str, Any], target: Path | None) -> None:
    from penstock.spark.dlq_page import verdict
    from penstock.spark.html_report import visible

    click.echo(visible(verdict(found)))
    for title, key in (("reason", "reasons"), ("queue", "source_queues"), ("error", "errors")):
        for row in found[key][:5]:
            name = "(none)" if row["value"] is None else visible(row["value"])
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
