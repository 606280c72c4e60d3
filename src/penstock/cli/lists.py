"""Commands that list what a broker has, through its management API.

They are outside users: plain HTTP, nothing imported from the broker.  A table asks the server for
just the columns it prints; JSON is what the server said, unchanged.
"""

import sys
import time
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote

import click

from penstock.cli.management import Management, connecting
from penstock.cli.tables import say, table
from penstock.client.management import path_of

Fields = Sequence[tuple[str, str]]
"""Pairs of title and dotted JSON field."""

vhost_option = click.option("--vhost", default=None, help="Only this virtual host.")

QUEUES: Final[Fields] = (
    ("vhost", "vhost"),
    ("name", "name"),
    ("durable", "durable"),
    ("ready", "messages_ready"),
    ("unacked", "messages_unacknowledged"),
    ("consumers", "consumers"),
    ("in/s", "message_stats.publish_details.rate"),
    ("out/s", "message_stats.deliver_get_details.rate"),
    ("bytes", "message_bytes_ready"),
    ("in memory", "messages_ram"),
)
NAME: Final = 1
"""The column of a queue's name."""
EXCHANGES: Final[Fields] = (
    ("vhost", "vhost"),
    ("name", "name"),
    ("type", "type"),
    ("durable", "durable"),
    ("auto-delete", "auto_delete"),
    ("internal", "internal"),
)
BINDINGS: Final[Fields] = (
    ("vhost", "vhost"),
    ("source", "source"),
    ("destination", "destination"),
    ("kind", "destination_type"),
    ("routing key", "routing_key"),
    ("arguments", "arguments"),
)
CONNECTIONS: Final[Fields] = (
    ("name", "name"),
    ("user", "user"),
    ("vhost", "vhost"),
    ("state", "state"),
    ("channels", "channels"),
    ("client", "client_properties.product"),
    ("given name", "user_provided_name"),
)
CHANNELS: Final[Fields] = (
    ("name", "name"),
    ("user", "user"),
    ("vhost", "vhost"),
    ("state", "state"),
    ("consumers", "consumer_count"),
    ("prefetch", "prefetch_count"),
    ("unacked", "messages_unacknowledged"),
    ("unconfirmed", "messages_unconfirmed"),
)
CONSUMERS: Final[Fields] = (
    ("vhost", "queue.vhost"),
    ("queue", "queue.name"),
    ("tag", "consumer_tag"),
    ("channel", "channel_details.name"),
    ("acks", "ack_required"),
    ("prefetch", "prefetch_count"),
    ("active", "active"),
)
VHOSTS: Final[Fields] = (
    ("name", "name"),
    ("description", "description"),
    ("messages", "messages"),
    ("tracing", "tracing"),
)
USERS: Final[Fields] = (("name", "name"), ("tags", "tags"))
PERMISSIONS: Final[Fields] = (
    ("vhost", "vhost"),
    ("user", "user"),
    ("configure", "configure"),
    ("write", "write"),
    ("read", "read"),
)
POLICIES: Final[Fields] = (
    ("vhost", "vhost"),
    ("name", "name"),
    ("pattern", "pattern"),
    ("apply to", "apply-to"),
    ("priority", "priority"),
    ("definition", "definition"),
)


def listed(path: str, fields: Fields, management: Management, output: str) -> None:
    """Print the list at ``path``."""
    if output == "json":
        say(management.get(path), output, "")
        return
    rows = _rows(path, fields, management)
    say(None, output, _table([title for title, _ in fields], rows))


def _table(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Numbers are grouped for people, not for programs."""
    return table(titles, rows, grouped=sys.stdout.isatty())


def _rows(path: str, fields: Fields, management: Management) -> list[list[object]]:
    columns = ",".join(field for _, field in fields)
    items = management.get(f"{path}?columns={quote(columns)}")
    return [[_cell(_dig(item, field)) for _, field in fields] for item in items]


def _dig(item: Any, dotted: str) -> object:
    for part in dotted.split("."):
        item = item.get(part) if isinstance(item, dict) else None
    return item


def _cell(value: object) -> object:
    """Lists and objects as a person would write them."""
    if isinstance(value, dict):
        return ", ".join(f"{name}={inner}" for name, inner in value.items())
    if isinstance(value, list):
        return ", ".join(str(one) for one in value)
    return value


def _path(kind: str, vhost: str | None) -> str:
    return path_of(kind) if vhost is None else path_of(kind, vhost)


@click.command(
    short_help="List queues.",
    epilog="\b\nExample:\n  penstock queues --filter order --sort ready --total --watch",
)
@vhost_option
@click.option("--filter", "part", default="", help="Only queues with this in their names.")
@click.option(
    "--sort",
    type=click.Choice([title for title, _ in QUEUES]),
    help="By this column: names upwards, numbers from the highest on.",
)
@click.option("--total", is_flag=True, help="A last row with the sums.")
@click.option(
    "--watch",
    "every_s",
    type=click.FloatRange(min=0.2),
    is_flag=False,
    flag_value=2.0,
    metavar="[SECONDS]",
    help="Again and again, every 2 seconds or so often, until Ctrl-C.",
)
@connecting
def queues(
    vhost: str | None,
    part: str,
    sort: str | None,
    total: bool,
    every_s: float | None,
    management: Management,
    output: str,
) -> None:
    """List queues: how many messages wait, how many are out with consumers, and the rates."""
    path = _path("queues", vhost)
    if output == "json" and every_s is not None:
        raise click.UsageError("--watch prints tables, not JSON")
    if output == "json":
        found = management.get(path)
        say([row for row in found if part in row["name"]], output, "")
        return
    while True:
        rows = [row for row in _rows(path, QUEUES, management) if part in str(row[NAME])]
        titles = [title for title, _ in QUEUES]
        if sort is not None:
            rows.sort(key=lambda row: _order(row[titles.index(sort)]))
        if total:
            rows.append(_total(rows))
        if every_s is not None:
            click.clear()
        say(None, output, _table(titles, rows))
        if every_s is None or not _waited(every_s):
            return


def _waited(seconds: float) -> bool:
    """False = Ctrl-C."""
    try:
        time.sleep(seconds)
    except KeyboardInterrupt:
        return False
    return True


def _order(cell: object) -> tuple[float, str]:
    """Numbers from the highest on, what is not known last; texts by themselves."""
    if isinstance(cell, str):
        return 0, cell
    return (-float(cell) if isinstance(cell, int | float) else 1), ""


def _total(rows: Sequence[Sequence[object]]) -> list[object]:
    sums: list[object] = []
    for at in range(len(QUEUES)):
        numbers = [row[at] for row in rows if type(row[at]) in (int, float)]
        sums.append(sum(numbers) if numbers else None)  # type: ignore[arg-type]
    sums[NAME] = f"total of {len(rows)}"
    return sums


@click.command(short_help="List exchanges.", epilog="\b\nExample:\n  penstock exchanges --vhost /")
@vhost_option
@connecting
def exchanges(vhost: str | None, management: Management, output: str) -> None:
    """List exchanges; the one without a name is the default exchange."""
    listed(_path("exchanges", vhost), EXCHANGES, management, output)


@click.command(short_help="List bindings.", epilog="\b\nExample:\n  penstock bindings --vhost /")
@vhost_option
@connecting
def bindings(vhost: str | None, management: Management, output: str) -> None:
    """List bindings: which messages of which exchange go where."""
    listed(_path("bindings", vhost), BINDINGS, management, output)


@click.command(short_help="List connections.", epilog="\b\nExample:\n  penstock connections")
@connecting
def connections(management: Management, output: str) -> None:
    """List client connections."""
    listed(_path("connections", None), CONNECTIONS, management, output)


@click.command(short_help="List channels.", epilog="\b\nExample:\n  penstock channels -o json")
@connecting
def channels(management: Management, output: str) -> None:
    """List the channels of AMQP clients: state, prefetch, what is not settled yet."""
    listed(_path("channels", None), CHANNELS, management, output)


@click.command(short_help="List consumers.", epilog="\b\nExample:\n  penstock consumers --vhost /")
@vhost_option
@connecting
def consumers(vhost: str | None, management: Management, output: str) -> None:
    """List consumers and their queues."""
    listed(_path("consumers", vhost), CONSUMERS, management, output)


@click.command(short_help="List virtual hosts.", epilog="\b\nExample:\n  penstock vhosts")
@connecting
def vhosts(management: Management, output: str) -> None:
    """List virtual hosts."""
    listed(_path("vhosts", None), VHOSTS, management, output)


@click.command(short_help="List users.", epilog="\b\nExample:\n  penstock users -o json")
@connecting
def users(management: Management, output: str) -> None:
    """List users and their tags."""
    listed(_path("users", None), USERS, management, output)


@click.command(short_help="List permissions.", epilog="\b\nExample:\n  penstock permissions")
@connecting
def permissions(management: Management, output: str) -> None:
    """List permissions to configure, write and read: regular expressions over names."""
    listed(_path("permissions", None), PERMISSIONS, management, output)


@click.command(short_help="List policies.", epilog="\b\nExample:\n  penstock policies --vhost /")
@vhost_option
@click.option("--operator", is_flag=True, help="Operator policies instead.")
@connecting
def policies(vhost: str | None, operator: bool, management: Management, output: str) -> None:
    """List policies: what holds for queues and exchanges by their names."""
    kind = "operator-policies" if operator else "policies"
    listed(_path(kind, vhost), POLICIES, management, output)
