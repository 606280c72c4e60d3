"""What ``latency`` and ``flow`` share: where the event log comes from and where the report goes.

    --from-events DIR     a directory of the log, as the broker writes it
    otherwise             fetched from the broker at --url, into --fetch-to or a place of its own

A Spark that is not on this machine must be able to read the directory too, so it has to be named
then.  A report is JSON or HTML, by the ending of ``--out``.
"""

import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.failure import Failure
from penstock.cli.options import all_of, option
from penstock.cli.pipelines.common import (
    LOCAL_PATH,
    REPORT_ENDINGS,
    SECONDS,
    Common,
    asking_broker,
    check_output,
    check_spark,
    say_summary,
    spark_for,
    write_report,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.reports.html_report import TimeWindows

    Make = Callable[[SparkSession, Path, float, float | None], dict[str, Any]]


@dataclass(frozen=True)
class EventJob:
    name: str
    from_events: Path | None
    fetch_to: Path | None
    out: Path | None
    window_s: float
    since_s: float | None


event_options = all_of(
    option("--from-events", "Read this directory, not a broker's log.", LOCAL_PATH, metavar="DIR"),
    option("--fetch-to", "Keep what is fetched from the broker here.", LOCAL_PATH, metavar="DIR"),
    option("--window window_s", "Length of a window.", SECONDS, "1m"),
    option("--since since_s", "Only the end of the log: 30m, 1h.", SECONDS),
    option("--out", "Write the report: .html or .json.", LOCAL_PATH, metavar="FILE"),
)
"""The command gets them as keywords and hands them to ``event_job``."""


def event_job(name: str, common: Common, given: dict[str, Any]) -> EventJob:
    job = EventJob(name, **given)
    if job.from_events and job.fetch_to:
        raise click.UsageError("--from-events and --fetch-to exclude each other")
    check_output(job.out, *REPORT_ENDINGS)
    is_local = re.match(r"local(\[|$)", common.master)
    if not is_local and not job.from_events and not job.fetch_to:
        raise click.UsageError(
            "a Spark elsewhere must be able to read the log: name a shared directory"
            " by --fetch-to or --from-events"
        )
    return job


def run_event_job(
    job: EventJob,
    common: Common,
    make: "Make",
    to_html: Callable[[dict[str, Any]], str],
    to_text: Callable[[dict[str, Any]], str],
    to_summary: Callable[[dict[str, Any]], dict[str, Any]],
) -> None:
    started_s = time.monotonic()
    check_spark(common)
    from penstock.spark.dataframes.browsing import scratch

    with scratch() as home:
        directory = _directory(job, common, home, fetch=not common.dry_run)
        if common.dry_run:
            _show_plan(job, common, directory)
            return
        with spark_for(job.name, common, home) as spark:
            report = make(spark, directory, job.window_s, job.since_s)
    if job.out is not None:
        text = json.dumps(report, indent=1) if job.out.suffix == ".json" else to_html(report)
        write_report(job.out, text)
    if common.as_text:
        click.echo(to_text(report))
    out = None if job.out is None else str(job.out)
    seconds = round(time.monotonic() - started_s, 1)
    say_summary({"pipeline": job.name} | to_summary(report) | {"out": out, "seconds": seconds})


def _directory(job: EventJob, common: Common, home: Path, *, fetch: bool) -> Path:
    from penstock.spark.dataframes.event_frames import NoEvents, check_directory, fetch_events

    try:
        if job.from_events is not None:
            check_directory(job.from_events)
            return job.from_events
        directory = job.fetch_to or home / "events"
        with asking_broker():
            if fetch:
                fetch_events(common.url, directory)
                check_directory(directory)
            else:
                _look(common)
        return directory
    except NoEvents as error:
        raise Failure(str(error), error.fix) from error


def _look(common: Common) -> None:
    from pyspark_penstock.endpoints import parse_url
    from pyspark_penstock.report_client import EventClient

    with EventClient(parse_url(common.url)) as client:
        client.login()
        client.files()


def _show_plan(job: EventJob, common: Common, directory: Path) -> None:
    source = str(directory) if job.from_events else f"the event log of {common.vhost!r}'s broker"
    plan = {
        "events": source,
        "window_s": job.window_s,
        "since_s": job.since_s,
        "master": common.master,
        "out": None if job.out is None else str(job.out),
    }
    if common.as_text:
        for name, value in plan.items():
            click.echo(f"{name:9} {'-' if value is None else value}")
    say_summary({"dry_run": True, "pipeline": job.name} | plan)


def moment(at_ms: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at_ms / 1000))


def span_of(report: dict[str, Any], windows: Sequence[dict[str, Any]]) -> "TimeWindows":
    from penstock.spark.reports.html_report import TimeWindows

    width_ms = 1000 * report["window_s"]
    starts_ms = [window["start_ms"] for window in windows]
    first_ms = min([report["from_ms"], *starts_ms])
    last_ms = max([report["until_ms"], *(start_ms + width_ms for start_ms in starts_ms)])
    return TimeWindows(starts_ms, width_ms, first_ms, last_ms)


def facts_of(report: dict[str, Any]) -> list[tuple[str, str | int | float | None]]:
    return [
        ("from", moment(report["from_ms"])),
        ("until", moment(report["until_ms"])),
        ("covered by the log, s", report["covered_s"]),
        ("window, s", report["window_s"]),
    ]
