"""Commands that declare and delete: queues, exchanges, bindings, virtual hosts.

Each is one request to the management API.  ``-o json`` prints the request's arguments when it has
succeeded.
"""

import difflib
import json
from typing import Any, Final

import click

from penstock.cli.data.storage import queue
from penstock.cli.failure import Failure
from penstock.cli.management import NAME, Management, command, example
from penstock.cli.options import option
from penstock.cli.tables import shown
from penstock.client.management import path_of

VHOST: Final = option("--vhost", "Virtual host.", default="/")
ARGUMENT: Final = option(
    "--argument arguments",
    "Repeatable; the value is JSON, or else text.",
    multiple=True,
    metavar="NAME=VALUE",
)
DURABLE: Final = option("--durable/--transient", "Does it outlive a restart?", default=True)
BINDING: Final = (
    click.argument("source"),
    click.argument("destination"),
    click.option("--key", default="", help="Routing key."),
    option("--to-exchange", "DESTINATION is an exchange, not a queue.", is_flag=True),
    VHOST,
    ARGUMENT,
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


def absent(kind: str, name: str, vhost: str) -> tuple[str, str]:
    """Cause and fix for a queue or exchange that does not exist."""
    cause = f"there is no {kind} {name!r} in virtual host {vhost!r}"
    return cause, f"`penstock {kind}s` lists them; --vhost names another virtual host"


def _declare(kind: str, management: Management, arguments: tuple[str, ...], **given: Any) -> None:
    """Declare a queue or exchange ``given["name"]`` in ``given["vhost"]`` with the rest."""
    name, vhost = given.pop("name"), given.pop("vhost")
    wanted = {**given, "arguments": arguments_of(arguments)}
    management.do(f"declare_{kind}", vhost=vhost, **{kind: name}, **wanted)
    if kind == "queue":
        warn_of_unknown(wanted["arguments"])
    management.say({kind: name, "vhost": vhost, **wanted})


def _remove(kind: str, management: Management, name: str, vhost: str, **conditions: bool) -> None:
    """Delete a queue or exchange if each of ``conditions`` that is true holds."""
    management.must_find(path_of(f"{kind}s", vhost, name), *absent(kind, name, vhost))
    query = {key.replace("_", "-"): "true" for key, wanted in conditions.items() if wanted}
    management.do(f"delete_{kind}", vhost=vhost, **{kind: name}, **query)
    management.say({kind: name, "vhost": vhost, "deleted": True})


@command(
    "queue declare orders --argument x-max-length=1000",
    NAME,
    VHOST,
    DURABLE,
    option("--auto-delete", "It goes with its last consumer.", is_flag=True),
    ARGUMENT,
    of=queue,
)
def declare(**given: Any) -> None:
    """Make a queue; one that is there already must be just like it."""
    _declare("queue", **given)


@command(
    "queue delete orders --if-empty",
    NAME,
    VHOST,
    option("--if-empty", "Only when it holds no message.", is_flag=True),
    option("--if-unused", "Only when it has no consumer.", is_flag=True),
    of=queue,
)
def delete(**given: Any) -> None:
    """Delete a queue and its messages."""
    _remove("queue", **given)


@command("queue purge orders", NAME, VHOST, of=queue)
def purge(name: str, vhost: str, management: Management) -> None:
    """Drop a queue's ready messages; those that consumers hold stay."""
    management.must_find(path_of("queues", vhost, name), *absent("queue", name, vhost))
    management.do("purge_queue", vhost=vhost, queue=name)
    management.say({"queue": name, "vhost": vhost, "purged": True})


@click.group(
    short_help="Make or delete an exchange.", epilog=example("exchange declare orders --type topic")
)
def exchange() -> None:
    """Make or delete an exchange."""


@command(
    "exchange declare orders --type topic",
    NAME,
    option("--type", "direct, fanout, …", default="direct"),
    VHOST,
    DURABLE,
    option("--auto-delete", "It goes with its last binding.", is_flag=True),
    option("--internal", "Clients cannot publish to it.", is_flag=True),
    ARGUMENT,
    of=exchange,
)
def declare_exchange(**given: Any) -> None:
    """Make an exchange; one that is there already must be just like it."""
    _declare("exchange", **given)


@command(
    "exchange delete orders --if-unused",
    NAME,
    VHOST,
    option("--if-unused", "Only when nothing is bound to it.", is_flag=True),
    of=exchange,
    short="Delete an exchange.",
)
def delete_exchange(**given: Any) -> None:
    """Delete an exchange and its bindings."""
    _remove("exchange", **given)


def _bindings_path(vhost: str, source: str, destination: str, to_exchange: bool) -> str:
    kind = "e" if to_exchange else "q"
    return path_of("bindings", vhost, "e", source or DEFAULT_EXCHANGE, kind, destination)


@command("bind orders invoices --key 'order.*'", *BINDING, short="Bind a queue to an exchange.")
def bind(key: str, arguments: tuple[str, ...], management: Management, **between: Any) -> None:
    """Let messages of exchange SOURCE go to queue DESTINATION."""
    wanted = {"routing_key": key, "arguments": arguments_of(arguments)}
    management.post(_bindings_path(**between), wanted)
    ends = {name: between[name] for name in ("source", "destination", "vhost")}
    management.say({**ends, **wanted})


@command("unbind orders invoices --key 'order.*'", *BINDING, short="Take a binding away.")
def unbind(key: str, arguments: tuple[str, ...], management: Management, **between: Any) -> None:
    """Take away the binding with this key and these arguments."""
    path = _bindings_path(**between)
    source, destination = between["source"], between["destination"]
    wanted = (key, arguments_of(arguments))
    for found in management.get(path, absent=(404,)) or []:
        if (found["routing_key"], found["arguments"]) == wanted:
            properties = path_of(found["properties_key"]).removeprefix("/api")
            management.delete(path + properties)
            management.say({"source": source, "destination": destination, "unbound": True})
            return
    raise Failure(
        f"{source!r} is not bound to {destination!r} with key {key!r}",
        "`penstock bindings` lists what is bound, with the arguments that --argument must repeat",
    )


@click.group(
    short_help="Make or delete a virtual host.",
    epilog=example("vhost add shop --description 'the web shop'"),
)
def vhost() -> None:
    """Make or delete a virtual host."""


@command(
    "vhost add shop --description 'the web shop'",
    NAME,
    click.option("--description", default="", help="What it is for."),
    of=vhost,
)
def add_vhost(name: str, description: str, management: Management) -> None:
    """Make a virtual host; users have no access to it before `penstock user allow`."""
    management.do("add_vhost", vhost=name, description=description)
    management.say({"vhost": name, "description": description})


@command(
    "vhost delete shop --yes",
    NAME,
    click.confirmation_option(prompt="This deletes all its queues and messages. Go on?"),
    of=vhost,
    short="Delete a virtual host and all in it.",
)
def delete_vhost(name: str, management: Management) -> None:
    """Delete a virtual host with its exchanges, queues and messages."""
    there = path_of("vhosts", name)
    management.must_find(
        there, f"there is no virtual host {name!r}", "`penstock vhosts` lists them"
    )
    management.do("delete_vhost", vhost=name)
    management.say({"vhost": name, "deleted": True})
