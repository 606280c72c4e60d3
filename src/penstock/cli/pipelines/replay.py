"""``penstock pipeline replay``: a table's messages to a broker again, each once."""

import hashlib
import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.failure import Failure
from penstock.cli.options import option
from penstock.cli.pipelines.common import (
    EXIT_CODES,
    Common,
    at_work,
    check_spark,
    common_options,
    failing_well,
    say,
    say_summary,
)
from penstock.cli.pipelines.lake import (
    CATALOG_WORDS,
    TABLE_PLACE,
    asking_store,
    catalog_options,
    meant_table,
)
from penstock.core.errors import PenstockError

if TYPE_CHECKING:
    from penstock.spark.jobs.replay import Plan, ReplayJob

_KINDS = {"queue": "queue", "exchange": "exchange", "routingKey": "routing key"}
EPILOG = f"""{EXIT_CODES}
\b
Stopped or failed, it goes on with --resume: no message is sent twice, none is left out.

\b
Examples:
  penstock pipeline replay --from ./lake/orders --to-queue orders-again
  penstock pipeline replay --from ./lake/events --since 2026-11-01T08:00 --until 2026-11-01T09:00 \\
      --where "routing_key like 'eu.%'" --to-exchange events --rate 5000/s
  penstock pipeline replay --from s3://bucket/lake/orders --to-queue orders-again
  penstock pipeline replay --table lake.orders --catalog prod --to-queue orders-again
"""


def _moment(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise click.BadParameter(
            f"{value!r} is not a time such as 2026-11-01T08:00 (UTC) or 2026-11-01T08:00+01:00",
            ctx,
            param,
        ) from None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def _number(unit: str) -> Any:
    def parse(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
        if value is None:
            return None
        match = re.fullmatch(rf"([0-9]+(?:\.[0-9]+)?)({unit})?", value)
        if match is None or float(match[1]) <= 0:
            raise click.BadParameter(f"{value!r} is not a number above 0 (with {unit})", ctx, param)
        return float(match[1])

    return parse


@click.command(epilog=EPILOG)
@option(
    "--from place", "Directory of a plain or Delta table, or s3://, gs://, abfs://.", TABLE_PLACE
)
@option("--table table_name", "Name of an Iceberg table, such as lake.orders.", metavar="NAME")
@catalog_options
@option("--since", "Taken by the broker then or later.", callback=_moment, metavar="TIME")
@option("--until", "Taken by the broker before.", callback=_moment, metavar="TIME")
@click.option("--where", default="", metavar="SQL", help="Only messages for which this is true.")
@option("--to-queue", "Send to this queue.", metavar="NAME")
@option("--to-exchange", "Send to this exchange, by the old routing key.", metavar="NAME")
@option("--routing-key", "With --to-exchange: another key, for all.", metavar="KEY")
@option("--rate", "So many messages a second.", metavar="N/s", callback=_number("/s"))
@option("--speed", "So many times as they came.", metavar="Nx", callback=_number("x"))
@option(
    "--order",
    "As the broker took them, or queue by queue in its order.",
    click.Choice(["time", "seq"]),
    "time",
)
@option("--name", "What this replay is called; default from what is sent where.")
@option("--resume", "Go on where a replay of this name ended.", is_flag=True)
@common_options(stream=False, group=False)
def replay(
    common: Common,
    place: Path | str | None,
    table_name: str | None,
    to_queue: str | None,
    to_exchange: str | None,
    routing_key: str | None,
    name: str | None,
    **chosen: Any,
) -> None:
    """Send a table's messages to a broker again, each exactly once, in their order.

    They carry the headers x-replay-name and x-original-seq besides their own.
    """
    if chosen["rate"] is not None and chosen["speed"] is not None:
        raise click.UsageError("--rate and --speed exclude each other")
    target = target_of(to_queue, to_exchange, routing_key)
    if name is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}", name):
        raise click.UsageError("--name is made of letters, digits and _ . - (at most 100)")
    words = {word: chosen.pop(word) for word in CATALOG_WORDS}
    lake = meant_table(place, table_name, words, flag="--from")
    check_spark(common)
    from penstock.spark.jobs.replay import ReplayJob, check_replay

    options: dict[str, Any] = chosen | {"name": name or "", "target": target, "say": say}
    job = _named(ReplayJob(url=common.url, master=common.master, lake=lake, **options))
    try:
        plan = check_replay(job)
    except PenstockError as error:
        raise Failure(str(error), getattr(error, "fix", "")) from error
    if common.dry_run:
        _show_plan(job, plan, common)
    else:
        _run(job, plan, common)


def target_of(
    to_queue: str | None, to_exchange: str | None, routing_key: str | None
) -> dict[str, str]:
    if (to_queue is None) == (to_exchange is None):
        raise click.UsageError("say where to by one of --to-queue and --to-exchange")
    if to_queue is not None:
        if routing_key is not None:
            raise click.UsageError("--routing-key belongs to --to-exchange")
        return {"queue": to_queue}
    assert to_exchange is not None
    key = {} if routing_key is None else {"routingKey": routing_key}
    return {"exchange": to_exchange} | key


def _named(job: "ReplayJob") -> "ReplayJob":
    """The same options are the same replay, so that sending twice needs a word."""
    from dataclasses import replace

    if job.name:
        return job
    choice = json.dumps(job.choice(), sort_keys=True)
    digest = hashlib.sha256(choice.encode()).hexdigest()[:8]
    stem = re.sub(r"[^A-Za-z0-9_-]", "-", job.lake.name) or "table"
    return replace(job, name=f"{stem[:60]}-{digest}".lstrip("-_"))


def _show_plan(job: "ReplayJob", plan: "Plan | None", common: Common) -> None:
    from penstock.spark.jobs.replay import count_chosen
    from penstock.spark.launcher.session import LOG_NAME

    told: dict[str, Any] = {"name": job.name, "from": str(job.lake), "to": job.target}
    if plan is not None:
        told |= {"slices_done": plan.done, "slices": len(plan.slices)}
        told["messages_left"] = plan.messages_left
    else:
        told["messages_in_time"] = _count(job)
        told["messages"] = told["messages_in_time"]
        if job.where:
            with failing_well(job.home / LOG_NAME):
                told["messages"] = count_chosen(job)
    if common.as_text:
        target = ", ".join(f"{_KINDS[kind]} {name}" for kind, name in job.target.items())
        for label, value in (told | {"to": target}).items():
            click.echo(f"{label.replace('_', ' ')}: {value}")
    say_summary({"dry_run": True} | told)


def _count(job: "ReplayJob") -> int:
    from pyarrow import compute

    from penstock.spark.tables.additions import opened

    wanted = compute.scalar(True)
    if job.since is not None:
        wanted = wanted & (compute.field("enqueued_at") >= job.since)
    if job.until is not None:
        wanted = wanted & (compute.field("enqueued_at") < job.until)
    total = 0
    with asking_store(job.lake):
        for path in job.lake.files():
            with opened(job.lake, path) as file:
                if job.since is None and job.until is None:
                    total += file.metadata.num_rows
                else:
                    total += file.read(["enqueued_at"]).filter(wanted).num_rows
    return total


def _run(job: "ReplayJob", plan: "Plan | None", common: Common) -> None:
    from penstock.spark.jobs.replay import run_replay

    total = plan.messages_left if plan else None
    with at_work(common, job.home, total) as (teller, stopping):

        def on_slice(number: int, messages: int, slices: int) -> None:
            teller.batch(f"slice {number + 1} of {slices}: {messages} messages", messages)

        done = run_replay(job, on_slice, stopping)
    place = {"name": job.name, "from": str(job.lake), "to": job.target}
    say_summary(place | vars(done) | {"seconds": teller.seconds})
