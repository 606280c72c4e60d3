"""``penstock close-connection``: end a client's connection, through the management API.

The broker sends an AMQP client connection.close with 320 CONNECTION_FORCED and the reason given
here.  Most clients connect again at once; to keep a client out, change its user's password or
permissions.
"""

import click

from penstock.cli.management import NAME, Management, command
from penstock.cli.tables import say
from penstock.client.management import path_of


@command(
    "close-connection '127.0.0.1:41000 -> 127.0.0.1:5672' moving",
    NAME,
    click.argument("reason", required=False),
)
def close_connection(name: str, reason: str | None, management: Management, output: str) -> None:
    """Close a client's connection.

    NAME: as `penstock connections` shows it. The broker sends an AMQP client REASON.
    """
    headers = {} if reason is None else {"X-Reason": " ".join(reason.split())}
    management.delete(path_of("connections", name), headers)
    say({"connection": name, "closed": True}, output, "")
