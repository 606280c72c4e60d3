"""``penstock definitions``: everything declared, to a file and back, through the management API.

The file is RabbitMQ's JSON, so it may come from one and go to the other.  An import names each
thing the broker could not honour and then fails with exit code 1; the rest is taken all the same.
"""

import json
import sys
from typing import IO

import click

from penstock.cli.data.storage import many
from penstock.cli.failure import Failure
from penstock.cli.management import Management, asking, command
from penstock.cli.options import option
from penstock.client.management import path_of
from penstock.client.progress import Progress


def _where(vhost: str | None) -> str:
    return path_of("definitions", *([] if vhost is None else [vhost]))


@click.group(epilog="\b\nExample:\n  penstock definitions export backup.json")
def definitions() -> None:
    """Export and import everything declared."""


def _how_much(body: bytes) -> str:
    """Of what a file that is JSON has; the broker judges it."""
    try:
        found = json.loads(body)
    except ValueError:
        return ""
    lists = found.values() if isinstance(found, dict) else []
    return many(sum(len(one) for one in lists if isinstance(one, list)), "definition")


_VHOST = option("--vhost", "Only this virtual host.")


@command(
    "definitions export backup.json --vhost shop",
    click.argument("file", type=click.File("w", encoding="utf-8"), default="-"),
    _VHOST,
    of=definitions,
    short="Write definitions to a file.",
    form=asking,
)
def export_file(file: IO[str], vhost: str | None, management: Management) -> None:
    """Write definitions to FILE, or to standard output."""
    found = management.get(_where(vhost))
    file.write(json.dumps(found, indent=2) + "\n")


@command(
    "definitions import backup.json",
    click.argument("file", type=click.File("rb"), default="-"),
    _VHOST,
    of=definitions,
    short="Declare what a file has.",
)
def import_file(file: IO[bytes], vhost: str | None, management: Management) -> None:
    """Declare what FILE, or standard input, has."""
    body = file.read()
    with Progress("import").waiting(_how_much(body)):
        answer = management.post(_where(vhost) + "?partial=true", body)
    left_out = answer.get("left_out", []) if isinstance(answer, dict) else []
    management.say({"left_out": left_out})
    for line in left_out:
        sys.stderr.write(f"left out: {line}\n")
    if left_out:
        raise Failure(f"{len(left_out)} left out", "the rest was taken; see the lines above")
