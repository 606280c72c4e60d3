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

from penstock.cli.management import Management, command
from penstock.cli.options import option
from penstock.cli.tables import say, table
from penstock.client.management import path_of

Fields = Sequence[tuple[str, str]]
"""Pairs of title and dotted JSON field."""


def fields_of(text: str) -> Fields:
    """``"name ready=messages_ready"``: the field is the title's own name where none is given."""
    pairs = (word.partition("=") for word in text.split())
    return [(title.replace("_", " "), field or title) for title, _, field in pairs]


VHOST: Final = option("--vhost", "Only this virtual host.")
QUEUES: Final = fields_of(
    "vhost name durable ready=messages_ready unacked=messages_unacknowledged consumers"
    " in/s=message_stats.publish_details.rate out/s=message_stats.deliver_get_details.rate"
    " bytes=message_bytes_ready in_memory=messages_ram"
)
QUEUE: Final = 1
"""The column of a queue's name."""


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


@command(
    "queues --filter order --sort ready --total --watch",
    VHOST,
    click.option("--filter", "part", default="", help="Only queues with this in their names."),
    option(
        "--sort",
        "By this column: names upwards, numbers from the highest on.",
        click.Choice([title for title, _ in QUEUES]),
    ),
    option("--total", "A last row with the sums.", is_flag=True),
    click.option(
        "--watch",
        "every_s",
        type=click.FloatRange(min=0.2),
        is_flag=False,
        flag_value=2.0,
        metavar="[SECONDS]",
        help="Again and again, every 2 seconds or so often, until Ctrl-C.",
    ),
)
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
        rows = [row for row in _rows(path, QUEUES, management) if part in str(row[QUEUE])]
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
    sums[QUEUE] = f"total of {len(rows)}"
    return sums


def _listing(kind: str, options: str, text: str, fields: str) -> click.Command:
    """``penstock KIND``; ``options`` is its example, and says whether it takes --vhost."""

    def run(management: Management, output: str, vhost: str | None = None) -> None:
        listed(_path(kind, vhost), fields_of(fields), management, output)

    taken = [VHOST] if "--vhost" in options else []
    return command(f"{kind} {options}".rstrip(), *taken, name=kind, text=text)(run)


exchanges: Final = _listing(
    "exchanges",
    "--vhost /",
    "List exchanges; the one without a name is the default exchange.",
    "vhost name type durable auto-delete=auto_delete internal",
)
bindings: Final = _listing(
    "bindings",
    "--vhost /",
    "List bindings: which messages of which exchange go where.",
    "vhost source destination kind=destination_type routing_key=routing_key arguments",
)
connections: Final = _listing(
    "connections",
    "",
    "List client connections.",
    "name user vhost state channels client=client_properties.product given_name=user_provided_name",
)
channels: Final = _listing(
    "channels",
    "-o json",
    "List the channels of AMQP clients: state, prefetch, what is not settled yet.",
    "name user vhost state consumers=consumer_count prefetch=prefetch_count"
    " unacked=messages_unacknowledged unconfirmed=messages_unconfirmed",
)
consumers: Final = _listing(
    "consumers",
    "--vhost /",
    "List consumers and their queues.",
    "vhost=queue.vhost queue=queue.name tag=consumer_tag channel=channel_details.name"
    " acks=ack_required prefetch=prefetch_count active",
)
vhosts: Final = _listing("vhosts", "", "List virtual hosts.", "name description messages tracing")
users: Final = _listing("users", "-o json", "List users and their tags.", "name tags")
permissions: Final = _listing(
    "permissions",
    "",
    "List permissions to configure, write and read: regular expressions over names.",
    "vhost user configure write read",
)
POLICIES: Final = fields_of("vhost name pattern apply_to=apply-to priority definition")
OPERATOR: Final = option("--operator", "Operator policies instead.", is_flag=True)


@command("policies --vhost /", VHOST, OPERATOR)
def policies(vhost: str | None, operator: bool, management: Management, output: str) -> None:
    """List policies: what holds for queues and exchanges by their names."""
    kind = "operator-policies" if operator else "policies"
    listed(_path(kind, vhost), POLICIES, management, output)
