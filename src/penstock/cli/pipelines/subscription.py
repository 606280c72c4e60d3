"""What a pipeline reads, on the command line: a queue, several, or messages of its own.

``--queue``; or ``--queues a,b``; or ``--queues-pattern 'orders.*'``; or ``--stream``, whose
messages stay; or ``--exchange`` with ``--group`` (and ``--routing-key``), which makes a durable
queue for that group, so live consumers are untouched; or NSQ's ``--topic`` with ``--channel``.
Exactly one of them.  What it comes to is the source's options of the same names.
"""

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from penstock.cli.failure import Failure
from penstock.cli.options import all_of, option
from penstock.cli.pipelines.common import Common, asking_broker

if TYPE_CHECKING:
    from penstock_ranges.ranges import Head


@dataclass(frozen=True)
class Subscribed:
    options: dict[str, str]  # of the source
    subject: str  # names the pipeline's place in a table
    queues: tuple[str, ...]
    heads: "tuple[Head, ...]"

    @property
    def ready(self) -> int:
        return sum(head.ready for head in self.heads)

    def __str__(self) -> str:
        is_pattern = "queuesPattern" in self.options
        return self.subject if is_pattern else ", ".join(self.queues)


subscription_options = all_of(
    option("--queue", "The queue to read."),
    option("--queues", "Several queues.", metavar="NAME,…"),
    option(
        "--queues-pattern",
        "Queues whose whole name matches a regular expression, new ones with the next batch.",
        metavar="REGEXP",
    ),
    option("--stream", "A stream: its messages stay, and others may read it, too."),
    option("--exchange", "With --group: what comes through an exchange."),
    option("--routing-key", "With --exchange: which of it; all if left out.", metavar="KEY,…"),
    option("--topic", "With --channel: a topic of NSQ."),
    option(
        "--channel",
        "The channel of that topic. Made when it is not there: it gets what comes from then on.",
    ),
)
"""They arrive as ``queue``, ``queues``, ``exchange``, ``routing_key``, …"""


def source_options(
    group: str | None,
    queue: str | None,
    queues: str | None,
    queues_pattern: str | None,
    stream: str | None,
    exchange: str | None,
    routing_key: str | None,
    topic: str | None,
    channel: str | None,
) -> dict[str, str]:
    given = {"queue": queue, "queues": queues, "queuesPattern": queues_pattern, "stream": stream}
    given |= {"exchange": exchange, "topic": topic}
    chosen = [name for name, value in given.items() if value]
    if len(chosen) != 1:
        raise click.UsageError(
            "say what to read by exactly one of --queue, --queues, --queues-pattern, --stream,"
            " --exchange (with --group) and --topic (with --channel)"
        )
    more = {"group": group, "routingKey": routing_key, "channel": channel}
    owners = {"group": ("exchange", "stream"), "routingKey": ("exchange",), "channel": ("topic",)}
    for name, value in more.items():
        if value and chosen[0] not in owners[name]:
            flag = "routing-key" if name == "routingKey" else name
            raise click.UsageError(f"--{flag} belongs to --{' or --'.join(owners[name])}")
    for name, needed in (("exchange", "group"), ("topic", "channel")):
        if chosen[0] == name and not more[needed]:
            raise click.UsageError(
                f"--{name} needs --{needed}: the name under which this pipeline gets messages of "
                "its own, and finds its place again"
            )
    return {name: value for name, value in (given | more).items() if value}


def subscribe(common: Common, options: dict[str, str]) -> Subscribed:
    """Ask the broker: most mistakes show here, before Spark takes its time.

    A dry run makes nothing; a real one has the broker make the queue of a group or channel.  Only a
    pipeline that keeps running waits for the first queue of a pattern.
    """
    from penstock_ranges.ranges import BROWSE
    from pyspark_penstock import client
    from pyspark_penstock.options import parse_options
    from pyspark_penstock.planner import subscribe as ask

    try:
        # A user at the shell is told at once; the query itself is patient.
        settings = parse_options({**options, "url": common.url, "reconnectTimeout": "0ms"})
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    with asking_broker():
        ends = settings.subscription.is_pattern and common.every_s is None
        queues = ask(settings, make=not common.dry_run and not ends)
        heads = []
        for queue in queues:
            with client.RangeClient(settings.endpoint, queue, BROWSE) as looker:
                head = looker.opened.head
                if settings.subscription.is_stream:  # what was read stays there
                    at = max(looker.follow(settings.subscription.group), head.floor)
                    head = head._replace(floor=at, ready=head.next_seq - at)
                heads.append(head)
    return Subscribed(options, _subject(options), tuple(queues), tuple(heads))


def left_of(common: Common, options: dict[str, str]) -> int | None:
    with suppress(Failure):
        return subscribe(common, options).ready
    return None


def _subject(options: dict[str, str]) -> str:
    if "exchange" in options:
        return f"{options['exchange']}.{options['group']}"
    if "topic" in options:
        return f"{options['topic']}.{options['channel']}"
    for name in ("queue", "stream"):
        if name in options:
            return options[name]
    if "queuesPattern" in options:
        return f"/{options['queuesPattern']}/"
    return ",".join(sorted(name.strip() for name in options["queues"].split(",")))
