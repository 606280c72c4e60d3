"""``penstock migrate``: from another broker to this one, and back.

    definitions   what is declared, through the management APIs
    queues        messages, from broker to broker over AMQP, confirmed there before forgotten here
    verify        what both sides hold, queue by queue

Every command may be repeated.  ``queues`` that was interrupted, even killed, goes on where it was.
"""

import json
import re
import sys
import time
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

import click

from penstock.cli.failure import BrokerUnavailable, Failure
from penstock.cli.management import Management
from penstock.cli.nsq.taking_over import nsqd
from penstock.cli.options import address_option, option
from penstock.cli.tables import table
from penstock.client.amqp import ClientError, Endpoint
from penstock.client.endpoint import ChannelClosed, ConnectionLost
from penstock.client.management import DEFAULT_URL
from penstock.client.shovel import QueueMover

HTTP_PORT: Final = 15672
IDENTITY: Final = "internal_cluster_id"
AGAIN: Final = "run the same command again: it goes on where it was, and nothing is lost"
EXPORT: Final = "give a file of `rabbitmqctl export_definitions` or the address of a management API"
SAY_EVERY_S: Final = 1.0
FIELDS: Final = "name,vhost,messages,messages_ready,messages_unacknowledged,type,exclusive"


@click.group(epilog="\b\nExample:\n  penstock migrate queues --help")
def migrate() -> None:
    """Move from another broker, and back."""


# -- definitions ---------------------------------------------------------------------------


migrate.add_command(nsqd)


@migrate.command(
    short_help="Take over what is declared.",
    epilog="""\b
Examples:
  penstock migrate definitions --from http://guest:guest@old:15672 --dry-run
  penstock migrate definitions --from rabbit.json --to http://guest:guest@new:15672""",
)
@address_option("--from source", "Where they are now.", required=True, metavar="URL|FILE")
@address_option("--to target", "", default=DEFAULT_URL, metavar="URL")
@option("--dry-run", "Only say what would be left out; change nothing.", is_flag=True)
def definitions(source: str, target: str, dry_run: bool) -> None:
    """Take over users, virtual hosts, exchanges, queues, bindings and policies.

    What cannot be taken is named, and the exit code is then 1; the rest is there all the same.
    """
    found = _definitions_of(source)
    if dry_run:
        from penstock.cli.data.rehearsal import left_out_of

        left_out = left_out_of(found)
    else:
        body = json.dumps(found).encode()
        answer = _management(target, "--to").post("/api/definitions?partial=true", body)
        left_out = [] if answer is None else answer["left_out"]
    for line in left_out:
        click.echo(f"left out: {line}", err=True)
    counts = ", ".join(
        f"{len(found[kind])} {kind}"
        for kind in ("users", "vhosts", "exchanges", "queues", "bindings", "policies")
        if isinstance(found.get(kind), list)
    )
    click.echo(
        f"read {counts}; left out: {len(left_out)}{' (nothing was changed)' if dry_run else ''}"
    )
    if left_out:
        raise Failure(f"{len(left_out)} items cannot be honoured", "the lines above name them")


def _definitions_of(source: str) -> dict[str, Any]:
    if source.startswith(("http://", "https://")):
        found = _management(source, "--from").get("/api/definitions")
    else:
        try:
            with open(source, encoding="utf-8") as file:
                found = json.load(file)
        except (OSError, ValueError) as error:
            raise Failure(f"cannot read definitions from {source}: {error}", EXPORT) from error
    if not isinstance(found, dict):
        raise Failure(f"{source} holds no definitions", EXPORT)
    return _without_identity(found)


def _without_identity(found: dict[str, Any]) -> dict[str, Any]:
    """The name RabbitMQ gives each cluster by itself stays with that cluster."""
    rows = found.get("global_parameters")
    if isinstance(rows, list):
        kept = [row for row in rows if not _is_identity(row)]
        return {**found, "global_parameters": kept}
    return found


def _is_identity(row: object) -> bool:
    return isinstance(row, dict) and row.get("name") == IDENTITY


# -- messages ------------------------------------------------------------------------------


@migrate.command(
    short_help="Move the messages of queues.",
    epilog="""\b
Example:
  penstock migrate queues --from amqp://guest:guest@old/ --to amqp://guest:guest@new/ \\
      --queues '^orders' --stop-when-empty""",
)
@address_option("--from source", "", required=True, metavar="AMQP_URL")
@address_option("--to target", "", required=True, metavar="AMQP_URL")
@click.option("--queues", "pattern", default=".*", show_default=True, metavar="REGEX")
@address_option("--from-http", "Management API of the source.", metavar="URL")
@option("--stop-when-empty", "End when nothing is ready at the source.", is_flag=True)
@option("--window", "Messages under way per queue.", default=500)
def queues(
    source: str,
    target: str,
    pattern: str,
    from_http: str | None,
    stop_when_empty: bool,
    window: int,
) -> None:
    """Move the messages of queues, in order, until Ctrl-C or until they are empty.

    The queues must be declared at the target. Messages that consumers of the source hold are not
    moved. Interrupted, even killed, it loses nothing; some messages may then come twice.
    """
    here, there = _endpoint(source), _endpoint(target)
    names = _names(here, pattern, from_http)
    try:
        shovel = QueueMover(here, there, names, window)
    except ChannelClosed as error:
        raise Failure(str(error), "declare it first: `penstock migrate definitions`") from error
    except ConnectionLost as error:
        raise BrokerUnavailable(str(error), AGAIN) from error
    except ClientError as error:
        raise Failure(str(error)) from error
    progress = Progress(shovel)
    try:
        while not (stop_when_empty and shovel.is_empty()):
            shovel.step()
            progress.look()
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
    except ConnectionLost as error:
        raise BrokerUnavailable(str(error), AGAIN) from error
    except ClientError as error:
        raise Failure(str(error), AGAIN) from error
    finally:
        progress.end()
        shovel.close()
    _tell_moved(shovel)


class Progress:
    """A line a second on standard error: overwritten on a terminal, plain lines elsewhere."""

    def __init__(self, shovel: QueueMover) -> None:
        self._shovel = shovel
        self._total = sum(queue.total for queue in shovel.queues)
        self.began_s = self._said_s = time.monotonic()
        self._live = sys.stderr.isatty()

    def look(self) -> None:
        now_s = time.monotonic()
        if now_s - self._said_s >= SAY_EVERY_S:
            self._said_s = now_s
            ending = "\x1b[K\r" if self._live else "\n"
            sys.stderr.write(self.text(now_s) + ending)
            sys.stderr.flush()

    def text(self, now_s: float) -> str:
        moved = self._shovel.moved
        rate = moved / max(0.001, now_s - self.began_s)
        text = f"{moved} of {self._total} messages, {rate:.0f}/s"
        if self._shovel.blocked is not None:
            return f"{text}; the target takes nothing: {self._shovel.blocked}"
        if 0 < moved < self._total:
            text += f", {(self._total - moved) / rate:.0f} s left"
        return text

    def end(self) -> None:
        if self._live:
            sys.stderr.write("\n")


def _tell_moved(shovel: QueueMover) -> None:
    rows = [(queue.name, queue.moved) for queue in shovel.queues]
    click.echo(table(("queue", "moved"), rows))
    renamed = sum(queue.renamed for queue in shovel.queues)
    unnamed = sum(queue.unnamed for queue in shovel.queues)
    if renamed:
        click.echo(f"header CC is now x-migrated-cc in {renamed} messages")
    if unnamed:
        click.echo(f"the property user_id was taken off {unnamed} messages")


def _names(source: Endpoint, pattern: str, url: str | None) -> list[str]:
    """Queues of the source that the pattern finds; raises Failure when there are none."""
    if re.fullmatch(r"[\w-]+", pattern):
        return [pattern]
    wanted = _compiled(pattern)
    management = _management(url, "--from-http") if url else _beside(source)
    names = []
    for row in _queue_rows(management, source.vhost):
        if not wanted.search(row["name"]):
            continue
        if row.get("exclusive") or row.get("type") == "stream":
            click.echo(f"skipped: {row['name']} is exclusive or a stream", err=True)
            continue
        names.append(row["name"])
    if not names:
        raise Failure(f"no queue of the source fits {pattern!r}")
    return sorted(names)


# -- counts --------------------------------------------------------------------------------


@migrate.command(
    short_help="Compare both sides.",
    epilog="""\b
Example:
  penstock migrate verify --from http://guest:guest@old:15672 --to http://guest:guest@new:15672""",
)
@address_option("--from source", "Management API.", required=True, metavar="URL")
@address_option("--to target", "Management API.", required=True, metavar="URL")
@click.option("--vhost", default="/", show_default=True)
@click.option("--queues", "pattern", default=".*", show_default=True, metavar="REGEX")
def verify(source: str, target: str, vhost: str, pattern: str) -> None:
    """Compare the messages of each queue; exit code 1 unless all are at the target.

    RabbitMQ's counts may be some seconds old.
    """
    here, there = (
        {row["name"]: row for row in _queue_rows(_management(url, option), vhost)}
        for url, option in ((source, "--from"), (target, "--to"))
    )
    rows = []
    for name in sorted(here):
        if not _compiled(pattern).search(name):
            continue
        left = here[name].get("messages", 0)
        arrived = there[name].get("messages", 0) if name in there else None
        state = "missing" if arrived is None else "left at the source" if left else "moved"
        rows.append((name, left, arrived, state))
    click.echo(table(("queue", "source", "target", "state"), rows))
    open_ones = [name for name, _, _, state in rows if state != "moved"]
    if open_ones:
        raise Failure(
            f"{len(open_ones)} of {len(rows)} queues are not moved", "`penstock migrate queues`"
        )


# -- both sides ----------------------------------------------------------------------------


def _endpoint(url: str) -> Endpoint:
    try:
        return Endpoint.parse(url)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise click.UsageError(f"--queues {pattern!r}: {error}") from error


def _management(url: str, option: str) -> Management:
    """User and password stand in the URL, which ``option`` gave; guest without."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port or HTTP_PORT
    except ValueError as error:
        raise click.UsageError(f"{url.rpartition('@')[2]!r}: {error}") from error
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    user, password = unquote(parts.username or "guest"), unquote(parts.password or "guest")
    return Management(
        f"{parts.scheme}://{host}:{port}{parts.path.rstrip('/')}", user, password, option
    )


def _beside(endpoint: Endpoint) -> Management:
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    url = f"http://{host}:{HTTP_PORT}"
    return Management(url, endpoint.user, endpoint.password, option="--from, or give --from-http")


def _queue_rows(management: Management, vhost: str) -> list[dict[str, Any]]:
    found = management.get(f"/api/queues/{quote(vhost, safe='')}?columns={FIELDS}")
    if not isinstance(found, list):
        raise Failure(f"{management.url} does not list queues", "is that a management API?")
    return found
