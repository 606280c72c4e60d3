"""``penstock pipeline validate``: good messages go on, bad ones into quarantine."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.failure import Failure
from penstock.cli.options import option
from penstock.cli.pipelines.common import (
    EXIT_CODES,
    SHORT_MESSAGES_MAX,
    Common,
    accept_data_loss_option,
    asking_broker,
    at_work,
    check_spark,
    common_options,
    one_line,
    say_failure,
    say_summary,
    take_over_option,
)
from penstock.cli.pipelines.subscription import (
    Subscribed,
    left_of,
    source_options,
    subscribe,
    subscription_options,
)

if TYPE_CHECKING:
    from penstock.spark.jobs.validating import Judged, PublishTarget, ValidateJob

EPILOG = f"""{EXIT_CODES}
\b
Run it again after any failure: it goes on where it was, and each message is
published once. Its place is kept in --checkpoint, by default under
$XDG_STATE_HOME/penstock: one for a queue, and for each group of a stream.

\b
Examples:
  penstock pipeline validate --queue in --schema order.json
      --good-to exchange:clean --bad-to queue:quarantine
  penstock pipeline validate --queue in --schema 'id long not null, name string'
      --good-to queue:orders --bad-to queue:quarantine --every 10s
  penstock pipeline validate --stream clicks --schema click.json
      --good-to queue:clean --bad-to queue:quarantine
"""


@click.command(epilog=EPILOG)
@subscription_options
@option("--schema", "A file with a JSON Schema, or columns: 'id long, name string'.", required=True)
@option(
    "--good-to", "exchange:NAME (the key stays) or queue:NAME.", required=True, metavar="TARGET"
)
@option("--bad-to", "The same for messages at fault.", required=True, metavar="TARGET")
@option(
    "--max-messages",
    "Largest number of messages in one batch, which is one transaction.",
    click.IntRange(1),
    100_000,
)
@accept_data_loss_option
@take_over_option
@common_options()
def validate(
    common: Common,
    schema: str,
    good_to: str,
    bad_to: str,
    max_messages: int,
    accept_data_loss: bool,
    take_over: bool,
    **what: str | None,
) -> None:
    """Sort messages by a schema: good ones to one place, bad ones to another.

    A bad message gets the headers x-error and x-error-path and is otherwise as it was.  Both
    kinds of a batch are published in one transaction, and acknowledged in the queue after it.  A
    stream keeps its messages; --group names this reader of it (default: validate).
    """
    options = source_options(common.group, **what)
    if "stream" in options:
        options.setdefault("group", "validate")
    if not re.fullmatch(r"local(\[[^]]+\])?", common.master):
        raise click.UsageError("--master must be local or local[N]: the schema is checked here")
    check_spark(common)
    from penstock.spark.jobs.validating import ValidateJob
    from penstock.spark.state.places import home_of

    good, bad = parse_target("--good-to", good_to), parse_target("--bad-to", bad_to)
    rules = _schema(schema)
    subscribed = subscribe(common, options)
    with asking_broker():
        for target in (good, bad):
            check_target(common.url, target, subscribed.queues)
    subject = subscribed.subject
    place = f"{subject}.{options['group']}" if "stream" in options else subject
    job = ValidateJob(
        url=common.url,
        source=options,
        subject=subject,
        queues=subscribed.queues,
        schema=rules,
        good=good,
        bad=bad,
        home=home_of("validate", common.url, place, common.checkpoint),
        batch_messages=max_messages,
        every_s=common.every_s,
        master=common.master,
        take_over=take_over,
        fail_on_data_loss=not accept_data_loss,
        short=common.every_s is None and subscribed.ready <= SHORT_MESSAGES_MAX,
    )
    if common.dry_run:
        _show_plan(job, subscribed, common)
        return
    _run(job, subscribed, common)


def parse_target(option: str, text: str) -> "PublishTarget":
    from penstock.spark.jobs.validating import PublishTarget

    kind, _, name = text.partition(":")
    if kind == "exchange" and name:
        return PublishTarget(name, None)
    if kind == "queue" and name:
        return PublishTarget("", name)
    raise click.UsageError(f"{option} is {text!r}; write exchange:NAME or queue:NAME")


def check_target(url: str, target: "PublishTarget", queues: tuple[str, ...]) -> None:
    """A target that is not there, or that is the input itself, is told before Spark starts."""
    from pyspark_penstock.sink_options import parse_sink_options
    from pyspark_penstock.staging_client import Stager

    if target.exchange == "" and target.routing_key in queues:
        raise click.UsageError(f"queue '{target.routing_key}' would be fed with its own messages")
    with Stager(parse_sink_options({"url": url, "exchange": target.exchange})) as stager:
        leads = stager.target(target.exchange, target.routing_key or "")
    if target.exchange == "" and not leads:
        raise Failure(f"no queue '{target.routing_key}' to send to", "declare it first")


def _schema(text: str) -> Any:
    """A JSON Schema from a file; else DDL, which Spark reads later."""
    import jsonschema  # noqa: F401 - of DDL, too: workers need it

    from penstock.spark.jobs.checking import BadSchema, load_schema
    from penstock.spark.state.places import KeysInUrl, check_no_keys

    try:
        check_no_keys(text)
    except KeysInUrl as error:
        raise click.UsageError(f"--schema: {error}") from error
    path = Path(text).expanduser()
    if path.is_file():
        try:
            return load_schema(path.read_text(encoding="utf-8"))
        except (BadSchema, OSError, UnicodeDecodeError) as error:
            raise click.UsageError(f"--schema {text}: {error}") from error
    if text.endswith(".json") or " " not in text.strip():
        raise click.UsageError(f"--schema: there is no file {text}")
    return text


def _show_plan(job: "ValidateJob", subscribed: Subscribed, common: Common) -> None:
    if common.as_text:
        click.echo(f"queue {subscribed}: {subscribed.ready} messages ready")
        click.echo(f"checkpoint: {job.home / 'checkpoint'}")
    plan = {
        "dry_run": True,
        "queue": str(subscribed),
        "ready": subscribed.ready,
        "batches": -(-subscribed.ready // job.batch_messages),
        "good_to": job.good._asdict(),
        "bad_to": job.bad._asdict(),
        "schema": job.schema,
        "checkpoint": job.home / "checkpoint",
    }
    say_summary(plan)


def _run(job: "ValidateJob", subscribed: Subscribed, common: Common) -> None:
    from penstock.spark.jobs.checking import BadSchema
    from penstock.spark.jobs.validating import run_validate

    total = subscribed.ready if common.every_s is None else None
    with at_work(common, job.home, total, job.home / "checkpoint") as (teller, stopping):

        def on_batch(one: "Judged") -> None:
            line = f"batch {one.batch}: {one.messages} messages, {one.bad} of them bad"
            teller.batch(line, one.messages)

        try:
            done = run_validate(job, on_batch, stopping, say_failure)
        except BadSchema as error:
            raise click.UsageError(f"--schema: {one_line(str(error))}") from error
    left = left_of(common, job.source)
    end = {"left_in_queue": left, "seconds": teller.seconds}
    say_summary({"queue": str(subscribed)} | done | end)
