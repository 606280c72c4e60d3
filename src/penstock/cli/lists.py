"""Commands that list what a broker has, through its management API.

They are outside users: plain HTTP, nothing imported from the broker.  A table asks the server for
just the columns it prints; JSON is what the server said, unchanged.
"""

import shutil
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final
from urllib.parse import quote

import click

from penstock.cli.management import Management, command
from penstock.cli.options import all_of, option
from penstock.cli.tables import Fields, cells_of, fields_of, table
from penstock.client.management import path_of

VHOST: Final = option("--vhost", "Only this virtual host.")
QUEUES: Final = fields_of(
    "vhost name durable ready=messages_ready unacked=messages_unacknowledged consumers"
    " in/s=message_stats.publish_details.rate out/s=message_stats.deliver_get_details.rate"
    " bytes=message_bytes_ready in_memory=messages_ram"
)
RARE: Final = fields_of("paused deferred=messages_deferred")
"""Columns of queues that are shown when a row has one."""
QUEUE: Final = 1
"""The column of a queue's name."""


def listed(
    path: str,
    fields: Fields,
    management: Management,
    part: str = "",
    sort: str | None = None,
    every_s: float | None = None,
    total: bool = False,
    rare: Fields = (),
) -> None:
    """Print the list at ``path``: rows with ``part`` in a text, by the column ``sort``.

    ``rare``: more columns, each of them shown only while a row has a value in it.
    """
    usual, fields = len(fields), (*fields, *rare)
    if management.as_json and every_s is not None:
        raise click.UsageError("--watch prints tables, not JSON")
    if management.as_json:
        items = management.get(path)
        management.say([one for one in items if _has(cells_of(one, fields), part)])
        return
    titles = [title for title, _ in fields]
    asked = f"{path}?columns={quote(','.join(field for _, field in fields))}"
    while True:
        rows = [row for item in management.get(asked) if _has(row := cells_of(item, fields), part)]
        if sort is not None:
            rows.sort(key=lambda row: _order(row[titles.index(sort)]))
        if total:
            rows.append(_total(rows))
        if every_s is not None:
            click.clear()
        kept = [i for i in range(len(titles)) if i < usual or any(row[i] for row in rows)]
        # For people, not for programs: numbers are grouped, and rows fit.
        terminal = sys.stdout.isatty()
        width = shutil.get_terminal_size().columns if terminal else 0
        cells = [[row[i] for i in kept] for row in rows]
        shown = table([titles[i] for i in kept], cells, grouped=terminal, width=width)
        management.say(None, shown)
        if every_s is None or not _waited(every_s):
            return


def _has(row: Sequence[object], part: str) -> bool:
    return not part or any(part in cell for cell in row if isinstance(cell, str))


def _path(kind: str, vhost: str | None) -> str:
    return path_of(kind) if vhost is None else path_of(kind, vhost)


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
    for at in range(len(QUEUES) + len(RARE)):
        numbers = [row[at] for row in rows if type(row[at]) in (int, float)]
        sums.append(sum(numbers) if numbers else None)  # type: ignore[arg-type]
    sums[QUEUE] = f"total of {len(rows)}"
    return sums


def looking(fields: Fields) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The options of all lists: which rows, in which order, how often."""
    return all_of(
        click.option("--filter", "part", default="", help="Only rows with this in a text."),
        option(
            "--sort",
            "By this column: names upwards, numbers from the highest on.",
            click.Choice([title for title, _ in fields]),
        ),
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


def _listing(
    kind: str,
    example: str,
    text: str,
    fields: Fields,
    *more: Callable[[Any], Any],
    rare: Fields = (),
) -> click.Command:
    """``penstock KIND``; ``example`` says whether it takes --vhost; ``more``: its own options."""

    def run(management: Management, vhost: str | None = None, **look: Any) -> None:
        listed(_path(kind, vhost), fields, management, rare=rare, **look)

    taken = [VHOST] if "--vhost" in example or kind == "queues" else []
    line = f"{kind} {example}".rstrip()
    return command(line, *taken, looking((*fields, *rare)), *more, name=kind, text=text)(run)


queues: Final = _listing(
    "queues",
    "--filter order --sort ready --total --watch",
    "List queues: how many messages wait, how many are out with consumers, and the rates; which"
    " are paused and what is deferred (put off by NSQ's clients or until a retry), where any is.",
    QUEUES,
    option("--total", "A last row with the sums.", is_flag=True),
    rare=RARE,
)
exchanges: Final = _listing(
    "exchanges",
    "--vhost /",
    "List exchanges; the one without a name is the default exchange.",
    fields_of("vhost name type durable auto-delete=auto_delete internal"),
)
bindings: Final = _listing(
    "bindings",
    "--vhost /",
    "List bindings: which messages of which exchange go where.",
    fields_of("vhost source destination kind=destination_type routing_key=routing_key arguments"),
)
CONNECTIONS: Final = fields_of(
    "name user vhost state channels client=client_properties.product given_name=user_provided_name"
)
connections: Final = _listing("connections", "", "List client connections.", CONNECTIONS)
CHANNELS: Final = fields_of(
    "name user vhost state consumers=consumer_count prefetch=prefetch_count"
    " unacked=messages_unacknowledged unconfirmed=messages_unconfirmed"
)
channels: Final = _listing(
    "channels",
    "-o json",
    "List the channels of AMQP clients: state, prefetch, what is not settled yet.",
    CHANNELS,
)
consumers: Final = _listing(
    "consumers",
    "--vhost /",
    "List consumers and their queues.",
    fields_of(
        "vhost=queue.vhost queue=queue.name tag=consumer_tag channel=channel_details.name"
        " acks=ack_required prefetch=prefetch_count active"
    ),
)
vhosts: Final = _listing(
    "vhosts", "", "List virtual hosts.", fields_of("name description messages tracing")
)
users: Final = _listing("users", "-o json", "List users and their tags.", fields_of("name tags"))
permissions: Final = _listing(
    "permissions",
    "",
    "List permissions to configure, write and read: regular expressions over names.",
    fields_of("vhost user configure write read"),
)
POLICIES: Final = fields_of(
    "vhost name pattern apply_to=apply-to priority queues exchanges definition"
)
OPERATOR: Final = option("--operator", "Operator policies instead.", is_flag=True)


@command("policies --vhost /", VHOST, OPERATOR, looking(POLICIES))
def policies(vhost: str | None, operator: bool, management: Management, **look: Any) -> None:
    """List policies, and how many queues and exchanges each applies to."""
    kind = "operator-policies" if operator else "policies"
    listed(path_of("penstock", kind, *filter(None, [vhost])), POLICIES, management, **look)
