"""``penstock trace-on`` and ``trace-off``: the firehose, through the management API.

Option and output are rabbitmqctl's, which scripts know; its names, with ``_``, are taken, too.
As there, a restart of the broker switches it off.
"""

from urllib.parse import quote

import click

from penstock.cli.management import Management, command
from penstock.cli.tables import say

VHOST = click.option(
    "-p", "--vhost", default="/", show_default=True, help="The virtual host whose messages."
)


@command("trace-on -p shop", VHOST)
def trace_on(vhost: str, management: Management, output: str) -> None:
    """Copy all messages to amq.rabbitmq.trace.

    Until trace-off or the end of the broker.  Bind a queue to that exchange with `publish.#`,
    `deliver.#`, `publish.<exchange>` or `deliver.<queue>`: each message that is published or
    delivered comes there too, with headers that say from whom and to whom.
    """
    if output != "json":
        click.echo(f'Starting tracing for vhost "{vhost}" ...')
    _switch(management, vhost, on=True)
    say({"vhost": vhost, "tracing": True}, output, f"Trace enabled for vhost {vhost}")


@command("trace-off -p shop", VHOST)
def trace_off(vhost: str, management: Management, output: str) -> None:
    """End what trace-on began."""
    if output != "json":
        click.echo(f'Stopping tracing for vhost "{vhost}" ...')
    _switch(management, vhost, on=False)
    say({"vhost": vhost, "tracing": False}, output, f"Trace disabled for vhost {vhost}")


def _switch(management: Management, vhost: str, *, on: bool) -> None:
    path = f"/api/vhosts/{quote(vhost, safe='')}"
    management.get(path)  # else a slip in the name would make a new one
    management.put(path, {"tracing": on})
