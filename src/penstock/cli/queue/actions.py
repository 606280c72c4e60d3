"""``penstock queue pause``, ``resume`` and ``peek``: one queue, through the management API."""

import json
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import click

from penstock.cli.data.storage import VHOST, many, queue
from penstock.cli.management import NAME, Management, command
from penstock.cli.options import option
from penstock.cli.tables import say, shown
from penstock.client.management import path_of


def act(
    action: str, name: str, vhost: str, management: Management, output: str, **more: str
) -> None:
    """Ask for it, and say so."""
    asked = {"action": action, **more}
    management.do("queue_action", queue=name, vhost=vhost, **asked)
    say({"queue": name, "vhost": vhost, **asked}, output, "")


@command(
    "queue pause orders", NAME, VHOST, of=queue, short="Let a queue take messages and give none."
)
def pause(name: str, vhost: str, management: Management, output: str) -> None:
    """Let a queue take messages and give none, until it is resumed; over restarts too."""
    act("pause", name, vhost, management, output)


@command(
    "queue resume orders", NAME, VHOST, of=queue, short="Let a paused queue give messages again."
)
def resume(name: str, vhost: str, management: Management, output: str) -> None:
    """Let a paused queue give messages again."""
    act("resume", name, vhost, management, output)


@command(
    "queue peek orders --from 120000 --count 3",
    NAME,
    VHOST,
    option("--from", "Position (seq_id) of the first one.", click.IntRange(0)),
    click.option("--count", type=click.IntRange(1, 1000), default=10, show_default=True),
    option("--priority", "Of a queue with priorities.", click.IntRange(0, 255)),
    of=queue,
    short="Look at messages without taking them.",
)
def peek(name: str, vhost: str, management: Management, output: str, **where: int | None) -> None:
    """Look at messages where they lie: nothing is taken, and nothing marked as redelivered."""
    asked = urlencode({option: value for option, value in where.items() if value is not None})
    found = management.get(f"{path_of('queues', vhost, name, 'messages')}?{asked}")
    if output == "json":
        say(found, output, "")
        return
    for message in found["messages"]:
        click.echo(lines_of(message))
    rest = f"; go on with --from {found['next']}" if found["next"] is not None else ""
    shown = many(len(found["messages"]), "message")
    click.echo(f"{shown} of positions {found['first']} to {found['end'] - 1}{rest}")


def lines_of(message: Mapping[str, Any]) -> str:
    """A message with its position, for people."""
    where = f"{message['exchange'] or '(default)'} {message['routing_key']!r}"
    again = " redelivered" if message["redelivered"] else ""
    properties = json.dumps(message["properties"]) if message["properties"] else ""
    at_s = message["enqueued_at_ms"] / 1000
    when = f"since {time.strftime('%Y-%m-%d %H:%M:%S UTC', time.gmtime(at_s))}"
    size = many(message["payload_bytes"], "byte")
    lines = [f"{message['seq_id']}  {where}  {size}  {when}{again}"]
    if properties:
        lines.append("    " + properties)
    lines += ["    " + shown(line) for line in message["payload"].split("\n")]
    return "\n".join(lines)
