"""Commands about users and what they may do, and about policies.

Each is one request to the management API.  A password is never an argument, where every user of
the machine could read it: it is asked for, or read from standard input.
"""

import json
import sys
from typing import Final

import click

from penstock.cli.entities import VHOST
from penstock.cli.failure import Failure
from penstock.cli.management import Management, connecting
from penstock.cli.tables import say
from penstock.client.management import path_of

TAGS: Final = click.option(
    "--tag",
    "tags",
    multiple=True,
    help="Repeatable: administrator, monitoring, policymaker, management, or one of your own.",
)


@click.group(
    short_help="Add and change users.",
    epilog="\b\nExample:\n  penstock user add anna --tag management",
)
def user() -> None:
    """Add and change users, and what they may do."""


def _new_password() -> str:
    """From a person twice, from a program once."""
    if sys.stdin.isatty():
        return str(click.prompt("Password", hide_input=True, confirmation_prompt=True))
    password = sys.stdin.readline().rstrip("\n")
    if not password:
        raise Failure("no password on standard input", "printf '%s\\n' SECRET | penstock user …")
    return password


def _tags_of(name: str, management: Management) -> list[str]:
    found = management.get(path_of("users", name), absent=(404,))
    if found is None:
        raise Failure(f"there is no user {name!r}", "`penstock users` lists them")
    tags = found["tags"]
    return tags.split(",") if isinstance(tags, str) else list(tags)


@user.command(
    "add",
    short_help="Make a user.",
    epilog="\b\nExample:\n  penstock user add anna --tag management",
)
@click.argument("name")
@TAGS
@connecting
def add_user(name: str, tags: tuple[str, ...], management: Management, output: str) -> None:
    """Make a user; the password is asked for, or the first line of standard input."""
    if management.get(path_of("users", name), absent=(404,)) is not None:
        raise Failure(f"there is a user {name!r} already", "`penstock user password` changes them")
    wanted = {"password": _new_password(), "tags": ",".join(tags)}
    management.put(path_of("users", name), wanted)
    say({"user": name, "tags": list(tags)}, output, "")


@user.command(short_help="Change a password.", epilog="\b\nExample:\n  penstock user password anna")
@click.argument("name")
@connecting
def password(name: str, management: Management, output: str) -> None:
    """Change a password: it is asked for, or the first line of standard input."""
    tags = _tags_of(name, management)
    management.put(path_of("users", name), {"password": _new_password(), "tags": ",".join(tags)})
    say({"user": name, "tags": tags}, output, "")


@user.command(
    "delete", short_help="Delete a user.", epilog="\b\nExample:\n  penstock user delete anna"
)
@click.argument("name")
@connecting
def delete_user(name: str, management: Management, output: str) -> None:
    """Delete a user."""
    _tags_of(name, management)
    management.delete(path_of("users", name))
    say({"user": name, "deleted": True}, output, "")


@user.command(
    short_help="Say what a user may do.",
    epilog="\b\nExample:\n  penstock user allow anna --vhost shop --configure '' --read '^orders'",
)
@click.argument("name")
@VHOST
@click.option("--configure", default=".*", show_default=True, help="Names they may declare.")
@click.option("--write", default=".*", show_default=True, help="Names they may publish to.")
@click.option("--read", default=".*", show_default=True, help="Names they may consume from.")
@connecting
def allow(
    name: str,
    vhost: str,
    configure: str,
    write: str,
    read: str,
    management: Management,
    output: str,
) -> None:
    """Say what a user may do in a virtual host, in regular expressions over names."""
    wanted = {"configure": configure, "write": write, "read": read}
    management.put(path_of("permissions", vhost, name), wanted)
    say({"user": name, "vhost": vhost, **wanted}, output, "")


@user.command(
    short_help="Keep a user out of a virtual host.",
    epilog="\b\nExample:\n  penstock user deny anna --vhost shop",
)
@click.argument("name")
@VHOST
@connecting
def deny(name: str, vhost: str, management: Management, output: str) -> None:
    """Take away all permissions of a user in a virtual host."""
    path = path_of("permissions", vhost, name)
    if management.get(path, absent=(404,)) is None:
        raise Failure(
            f"user {name!r} has no permissions in virtual host {vhost!r}",
            "`penstock permissions` lists them",
        )
    management.delete(path)
    say({"user": name, "vhost": vhost, "denied": True}, output, "")


@click.group(
    short_help="Set and take away policies.",
    epilog="\b\nExample:\n  penstock policy set short '^tmp' '{\"message-ttl\": 60000}'",
)
def policy() -> None:
    """Set and take away policies: what holds for queues and exchanges by their names."""


OPERATOR: Final = click.option("--operator", is_flag=True, help="An operator policy.")


def _policy_path(operator: bool, vhost: str, name: str) -> str:
    return path_of("operator-policies" if operator else "policies", vhost, name)


@policy.command(
    "set",
    short_help="Set a policy.",
    epilog="\b\nExample:\n  penstock policy set short '^tmp' '{\"message-ttl\": 60000}'",
)
@click.argument("name")
@click.argument("pattern")
@click.argument("definition")
@VHOST
@click.option("--priority", type=int, default=0, show_default=True, help="The highest one wins.")
@click.option(
    "--apply-to",
    type=click.Choice(["all", "queues", "exchanges"]),
    help="Default: all; queues for an operator policy.",
)
@OPERATOR
@connecting
def set_policy(
    name: str,
    pattern: str,
    definition: str,
    vhost: str,
    priority: int,
    apply_to: str | None,
    operator: bool,
    management: Management,
    output: str,
) -> None:
    """Set a policy for all whose names match PATTERN; DEFINITION is a JSON object."""
    try:
        parsed = json.loads(definition)
    except ValueError as error:
        raise click.UsageError(f"DEFINITION is no JSON: {error}") from error
    wanted = {
        "pattern": pattern,
        "definition": parsed,
        "priority": priority,
        "apply-to": apply_to or ("queues" if operator else "all"),
    }
    management.put(_policy_path(operator, vhost, name), wanted)
    say({"policy": name, "vhost": vhost, **wanted}, output, "")


@policy.command(
    "delete",
    short_help="Take a policy away.",
    epilog="\b\nExample:\n  penstock policy delete short",
)
@click.argument("name")
@VHOST
@OPERATOR
@connecting
def delete_policy(
    name: str, vhost: str, operator: bool, management: Management, output: str
) -> None:
    """Take a policy away."""
    path = _policy_path(operator, vhost, name)
    if management.get(path, absent=(404,)) is None:
        raise Failure(
            f"there is no policy {name!r} in virtual host {vhost!r}",
            "`penstock policies` lists them",
        )
    management.delete(path)
    say({"policy": name, "vhost": vhost, "deleted": True}, output, "")
