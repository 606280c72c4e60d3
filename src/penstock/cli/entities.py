"""Commands that declare and delete: queues, exchanges, bindings, virtual hosts.

Each is one request to the management API.  ``-o json`` prints what was asked for when it is done.
"""

import difflib
import json
from typing import Final

import click

from penstock.cli.failure import Failure
from penstock.cli.management import Management, connecting
from penstock.cli.storage import queue
from penstock.cli.tables import say, shown
from penstock.client.management import path_of

VHOST: Final = click.option("--vhost", default="/", show_default=True, help="Virtual host.")
ARGUMENT: Final = click.option(
    "--argument",
    "arguments",
    multiple=True,
    metavar="NAME=VALUE",
    help="Repeatable; the value is JSON, or else text.",
)
DURABLE: Final = click.option(
    "--durable/--transient", default=True, show_default=True, help="Does it outlive a restart?"
)
DEFAULT_EXCHANGE: Final = "amq.default"


def arguments_of(pairs: tuple[str, ...]) -> dict[str, object]:
    """``x-max-length=5`` is a number, ``x-dead-letter-exchange=dlx`` text."""
    found: dict[str, object] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not name or not equals:
            raise click.UsageError(f"--argument {pair!r}: wanted NAME=VALUE")
        try:
            found[name] = json.loads(text)
        except ValueError:
            found[name] = text
    return found


def warn_of_unknown(arguments: dict[str, object]) -> None:
    """The broker keeps an unknown argument of a queue without effect, as RabbitMQ does."""
    from penstock.broker.rules.queue_options import QUEUE_ARGUMENTS as KNOWN

    for name in arguments:
        if name.startswith("x-") and name not in KNOWN:
            near = difflib.get_close_matches(name, KNOWN, n=1)
            advice = f"; did you mean {near[0]}?" if near else ""
            click.echo(f"warning: the argument {shown(name)} has no effect here{advice}", err=True)


def must_be_there(what: str, name: str, vhost: str, found: object) -> None:
    """``found`` is None when the API said that there is none."""
    if found is None:
        raise Failure(
            f"there is no {what} {name!r} in virtual host {vhost!r}",
            f"`penstock {what}s` lists them; --vhost names another virtual host",
        )


@queue.command(
    short_help="Make a queue.",
    epilog="\b\nExample:\n  penstock queue declare orders --argument x-max-length=1000",
)
@click.argument("name")
@VHOST
@DURABLE
@click.option("--auto-delete", is_flag=True, help="It goes with its last consumer.")
@ARGUMENT
@connecting
def declare(
    name: str,
    vhost: str,
    durable: bool,
    auto_delete: bool,
    arguments: tuple[str, ...],
    management: Management,
    output: str,
) -> None:
    """Make a queue; one that is there already must be just like it."""
    wanted = {
        "durable": durable,
        "auto_delete": auto_delete,
        "arguments": arguments_of(arguments),
    }
    management.put(path_of("queues", vhost, name), wanted)
    warn_of_unknown(arguments_of(arguments))
    say({"queue": name, "vhost": vhost, **wanted}, output, "")


@queue.command(
    short_help="Delete a queue and its messages.",
    epilog="\b\nExample:\n  penstock queue delete orders --if-empty",
)
@click.argument("name")
@VHOST
@click.option("--if-empty", is_flag=True, help="Only when it holds no message.")
@click.option("--if-unused", is_flag=True, help="Only when it has no consumer.")
@connecting
def delete(
    name: str, vhost: str, if_empty: bool, if_unused: bool, management: Management, output: str
) -> None:
    """Delete a queue and its messages."""
    path = path_of("queues", vhost, name)
    must_be_there("queue", name, vhost, management.get(path, absent=(404,)))
    asked = [*(["if-empty=true"] if if_empty else []), *(["if-unused=true"] if if_unused else [])]
    management.delete(path + ("?" + "&".join(asked) if asked else ""))
    say({"queue": name, "vhost": vhost, "deleted": True}, output, "")


@queue.command(
    short_help="Drop a queue's ready messages.",
    epilog="\b\nExample:\n  penstock queue purge orders",
)
@click.argument("name")
@VHOST
@connecting
def purge(name: str, vhost: str, management: Management, output: str) -> None:
    """Drop a queue's ready messages; those that consumers hold stay."""
    path = path_of("queues", vhost, name)
    must_be_there("queue", name, vhost, management.get(path, absent=(404,)))
    management.delete(path + "/contents")
    say({"queue": name, "vhost": vhost, "purged": True}, output, "")


@click.group(
    short_help="Make or delete an exchange.",
    epilog="\b\nExample:\n  penstock exchange declare orders --type topic",
)
def exchange() -> None:
    """Make or delete an exchange."""


@exchange.command(
    "declare",
    short_help="Make an exchange.",
    epilog="\b\nExample:\n  penstock exchange declare orders --type topic",
)
@click.argument("name")
@click.option("--type", "kind", default="direct", show_default=True, help="direct, fanout, …")
@VHOST
@DURABLE
@click.option("--auto-delete", is_flag=True, help="It goes with its last binding.")
@click.option("--internal", is_flag=True, help="Clients cannot publish to it.")
@ARGUMENT
@connecting
def declare_exchange(
    name: str,
    kind: str,
    vhost: str,
    durable: bool,
    auto_delete: bool,
    internal: bool,
    arguments: tuple[str, ...],
    management: Management,
    output: str,
) -> None:
    """Make an exchange; one that is there already must be just like it."""
    wanted = {
        "type": kind,
        "durable": durable,
        "auto_delete": auto_delete,
        "internal": internal,
        "arguments": arguments_of(arguments),
    }
    management.put(path_of("exchanges", vhost, name), wanted)
    say({"exchange": name, "vhost": vhost, **wanted}, output, "")


@exchange.command(
    "delete",
    short_help="Delete an exchange.",
    epilog="\b\nExample:\n  penstock exchange delete orders --if-unused",
)
@click.argument("name")
@VHOST
@click.option("--if-unused", is_flag=True, help="Only when nothing is bound to it.")
@connecting
def delete_exchange(
    name: str, vhost: str, if_unused: bool, management: Management, output: str
) -> None:
    """Delete an exchange and its bindings."""
    path = path_of("exchanges", vhost, name)
    must_be_there("exchange", name, vhost, management.get(path, absent=(404,)))
    management.delete(path + ("?if-unused=true" if if_unused else ""))
    say({"exchange": name, "vhost": vhost, "deleted": True}, output, "")


TO_EXCHANGE: Final = click.option(
    "--to-exchange", is_flag=True, help="DESTINATION is an exchange, not a queue."
)
KEY: Final = click.option("--key", default="", help="Routing key.")


def _bindings_path(vhost: str, source: str, destination: str, to_exchange: bool) -> str:
    kind = "e" if to_exchange else "q"
    return path_of("bindings", vhost, "e", source or DEFAULT_EXCHANGE, kind, destination)


@click.command(
    short_help="Bind a queue to an exchange.",
    epilog="\b\nExample:\n  penstock bind orders invoices --key 'order.*'",
)
@click.argument("source")
@click.argument("destination")
@KEY
@TO_EXCHANGE
@VHOST
@ARGUMENT
@connecting
def bind(
    source: str,
    destination: str,
    key: str,
    to_exchange: bool,
    vhost: str,
    arguments: tuple[str, ...],
    management: Management,
    output: str,
) -> None:
    """Let messages of exchange SOURCE go to queue DESTINATION."""
    wanted = {"routing_key": key, "arguments": arguments_of(arguments)}
    management.post(_bindings_path(vhost, source, destination, to_exchange), wanted)
    say({"source": source, "destination": destination, "vhost": vhost, **wanted}, output, "")


@click.command(
    short_help="Take a binding away.",
    epilog="\b\nExample:\n  penstock unbind orders invoices --key 'order.*'",
)
@click.argument("source")
@click.argument("destination")
@KEY
@TO_EXCHANGE
@VHOST
@ARGUMENT
@connecting
def unbind(
    source: str,
    destination: str,
    key: str,
    to_exchange: bool,
    vhost: str,
    arguments: tuple[str, ...],
    management: Management,
    output: str,
) -> None:
    """Take away the binding with this key and these arguments."""
    path = _bindings_path(vhost, source, destination, to_exchange)
    wanted = (key, arguments_of(arguments))
    for found in management.get(path, absent=(404,)) or []:
        if (found["routing_key"], found["arguments"]) == wanted:
            properties = path_of(found["properties_key"]).removeprefix("/api")
            management.delete(path + properties)
            say({"source": source, "destination": destination, "unbound": True}, output, "")
            return
    raise Failure(
        f"{source!r} is not bound to {destination!r} with key {key!r}",
        "`penstock bindings` lists what is bound, with the arguments that --argument must repeat",
    )


@click.group(
    short_help="Make or delete a virtual host.",
    epilog="\b\nExample:\n  penstock vhost add shop --description 'the web shop'",
)
def vhost() -> None:
    """Make or delete a virtual host."""


@vhost.command(
    "add",
    short_help="Make a virtual host.",
    epilog="\b\nExample:\n  penstock vhost add shop --description 'the web shop'",
)
@click.argument("name")
@click.option("--description", default="", help="What it is for.")
@connecting
def add_vhost(name: str, description: str, management: Management, output: str) -> None:
    """Make a virtual host; users have no access to it before `penstock user allow`."""
    management.put(path_of("vhosts", name), {"description": description})
    say({"vhost": name, "description": description}, output, "")


@vhost.command(
    "delete",
    short_help="Delete a virtual host and all in it.",
    epilog="\b\nExample:\n  penstock vhost delete shop --yes",
)
@click.argument("name")
@click.confirmation_option(prompt="This deletes all its queues and messages. Go on?")
@connecting
def delete_vhost(name: str, management: Management, output: str) -> None:
    """Delete a virtual host with its exchanges, queues and messages."""
    path = path_of("vhosts", name)
    if management.get(path, absent=(404,)) is None:
        raise Failure(f"there is no virtual host {name!r}", "`penstock vhosts` lists them")
    management.delete(path)
    say({"vhost": name, "deleted": True}, output, "")
