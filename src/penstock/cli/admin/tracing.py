"""``penstock trace-on`` and ``trace-off``: the firehose, through the management API.

Option and output are rabbitmqctl's, which scripts know; its names, with ``_``, are taken, too.
As there, a restart of the broker switches it off.
"""

import click

from penstock.cli.management import Management, command
from penstock.cli.options import option
from penstock.cli.tables import say
from penstock.client.management import path_of

VHOST = option("-p --vhost", "The virtual host whose messages.", default="/")


@command("trace-on -p shop", VHOST)
def trace_on(vhost: str, management: Management, output: str) -> None:
    """Copy all messages to amq.rabbitmq.trace.

    Until trace-off or the end of the broker.  Bind a queue to that exchange with `publish.#`,
    `deliver.#`, `publish.<exchange>` or `deliver.<queue>`: each message that is published or
    delivered comes there too, with headers that say from whom and to whom.
    """
    _switch(vhost, management, output, "Starting", "enabled")


@command("trace-off -p shop", VHOST)
def trace_off(vhost: str, management: Management, output: str) -> None:
    """End what trace-on began."""
    _switch(vhost, management, output, "Stopping", "disabled")


def _switch(vhost: str, management: Management, output: str, says: str, done: str) -> None:
    if output != "json":
        click.echo(f'{says} tracing for vhost "{vhost}" ...')
    management.get(path_of("vhosts", vhost))  # else a slip in the name would make a new one
    on = done == "enabled"
    management.do("add_vhost", vhost=vhost, tracing=on)
    say({"vhost": vhost, "tracing": on}, output, f"Trace {done} for vhost {vhost}")
