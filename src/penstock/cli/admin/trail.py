"""``penstock trail``: the audit trail of a node: who did what, from where, with what answer.

(``penstock audit`` is another command: it checks a data directory.)
"""

import json
from typing import Any
from urllib.parse import urlencode

import click

from penstock.cli.management import Management, command
from penstock.cli.options import option
from penstock.cli.tables import table

PATH = "/api/penstock/audit"
FIELDS = {"by": "user"}


@command(
    "trail --by ann --action queue_deleted",
    option("--by", "Records of this user.", default=""),
    option("--address", "From this address.", default=""),
    option("--protocol", "amqp091, nsq, ranges or http.", default=""),
    option("--action", "As queue_declared, login_refused, request_answered.", default=""),
    option("--answer", "ok, refused, or a code.", default=""),
    option("--object", "A text in the object, as the name of a queue.", default=""),
    option("--count", "Of the newest records.", default=100),
)
def trail(count: int, management: Management, output: str, **wanted: str) -> None:
    """Show the newest records of a node's audit trail, the newest first.

    For administrators. With -o json the answer has one record a line.
    """
    given = {FIELDS.get(name, name): value for name, value in wanted.items() if value}
    found: list[dict[str, Any]] = []
    before: str | None = ""
    while before is not None and len(found) < count:
        page = {"limit": min(count - len(found), 1000)} | ({"before": before} if before else {})
        answer = management.get(f"{PATH}?{urlencode(given | page)}")
        found += answer["records"]
        before = answer["next"]
    if output == "json":
        for record in found:
            click.echo(json.dumps(record))
        return
    names = ("at", "user", "protocol", "address", "action", "object", "answer")
    click.echo(table(names, [tuple(_shown(one[name]) for name in names) for one in found]))


def _shown(value: object) -> str:
    if not isinstance(value, dict):
        return str(value)
    return " ".join(f"{name}={text}" for name, text in value.items())
