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
from penstock.cli.management import NAME, Management, command
from penstock.cli.tables import say
from penstock.client.management import path_of

TAGS: Final = click.option(
    "--tag",
    "tags",
    multiple=True,
    help="Repeatable: administrator, monitoring, policymaker, management, or one of your own.",
)


@click.group(epilog="\b\nExample:\n  penstock user add anna --tag management")
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


@command("user add anna --tag management", NAME, TAGS, of=user, name="add", short="Make a user.")
def add_user(name: str, tags: tuple[str, ...], management: Management, output: str) -> None:
    """Make a user; the password is asked for, or the first line of standard input."""
    if management.get(path_of("users", name), absent=(404,)) is not None:
        raise Failure(f"there is a user {name!r} already", "`penstock user password` changes them")
    wanted = {"password": _new_password(), "tags": ",".join(tags)}
    management.put(path_of("users", name), wanted)
    say({"user": name, "tags": list(tags)}, output, "")


@command("user password anna", NAME, of=user, short="Change a password.")
def password(name: str, management: Management, output: str) -> None:
    """Change a password: it is asked for, or the first line of standard input."""
    tags = _tags_of(name, management)
    management.put(path_of("users", name), {"password": _new_password(), "tags": ",".join(tags)})
    say({"user": name, "tags": tags}, output, "")


@command("user delete anna", NAME, of=user, name="delete", short="Delete a user.")
def delete_user(name: str, management: Management, output: str) -> None:
    """Delete a user."""
    _tags_of(name, management)
    management.delete(path_of("users", name))
    say({"user": name, "deleted": True}, output, "")


@command(
    "user allow anna --vhost shop --configure '' --read '^orders'",
    NAME,
    VHOST,
    click.option("--configure", default=".*", show_default=True, help="Names they may declare."),
    click.option("--write", default=".*", show_default=True, help="Names they may publish to."),
    click.option("--read", default=".*", show_default=True, help="Names they may consume from."),
    of=user,
    short="Say what a user may do.",
)
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


@command(
    "user deny anna --vhost shop", NAME, VHOST, of=user, short="Keep a user out of a virtual host."
)
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


@click.group(epilog="\b\nExample:\n  penstock policy set short '^tmp' '{\"message-ttl\": 60000}'")
def policy() -> None:
    """Set and take away policies: what holds for queues and exchanges by their names."""


OPERATOR: Final = click.option("--operator", is_flag=True, help="An operator policy.")


def _policy_path(operator: bool, vhost: str, name: str) -> str:
    return path_of("operator-policies" if operator else "policies", vhost, name)


@command(
    "policy set short '^tmp' '{\"message-ttl\": 60000}'",
    NAME,
    click.argument("pattern"),
    click.argument("definition"),
    VHOST,
    click.option(
        "--priority", type=int, default=0, show_default=True, help="The highest one wins."
    ),
    click.option(
        "--apply-to",
        type=click.Choice(["all", "queues", "exchanges"]),
        help="Default: all; queues for an operator policy.",
    ),
    OPERATOR,
    of=policy,
    name="set",
    short="Set a policy.",
)
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


@command(
    "policy delete short",
    NAME,
    VHOST,
    OPERATOR,
    of=policy,
    name="delete",
    short="Take a policy away.",
)
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
