"""Commands about users and what they may do, and about policies.

Each is one request to the management API.  A password is never an argument, where every user of
the machine could read it: it is asked for, or read from standard input.
"""

import json
import sys
from typing import Any, Final

import click

from penstock.cli.admin.entities import VHOST
from penstock.cli.failure import Failure
from penstock.cli.management import NAME, Management, command
from penstock.cli.options import option
from penstock.cli.tables import table
from penstock.client.management import path_of
from penstock.client.requests import REQUESTS

TAGS: Final = option(
    "--tag tags",
    "Repeatable: administrator, monitoring, policymaker, management, or one of your own.",
    multiple=True,
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
    path = path_of("users", name)
    absent = f"there is no user {name!r}"
    tags = management.must_find(path, absent, "`penstock users` lists them")["tags"]
    return tags.split(",") if isinstance(tags, str) else list(tags)


@command("user add anna --tag management", NAME, TAGS, of=user)
def add_user(name: str, tags: tuple[str, ...], management: Management) -> None:
    """Make a user; the password is asked for, or the first line of standard input."""
    if management.get(path_of("users", name), absent=(404,)) is not None:
        raise Failure(f"there is a user {name!r} already", "`penstock user password` changes them")
    management.do("add_user", user=name, password=_new_password(), tags=",".join(tags))
    management.say({"user": name, "tags": list(tags)})


@command(
    "user password anna",
    NAME,
    option("--add", "As a second one: the first stays until it is dropped.", is_flag=True),
    of=user,
)
def password(name: str, add: bool, management: Management) -> None:
    """Change a password: it is asked for, or the first line of standard input."""
    tags = _tags_of(name, management)
    if add:
        management.do("add_user_password", user=name, password=_new_password())
    else:
        management.do("add_user", user=name, password=_new_password(), tags=",".join(tags))
    management.say({"user": name, "tags": tags})


@command("user passwords anna", NAME, of=user, short="Show when passwords were last used.")
def passwords(name: str, management: Management) -> None:
    """Show the passwords of a user and when each was last used, since the node's start."""
    absent = f"there is no user {name!r}"
    path = path_of("penstock", "users", name, "passwords")
    rows = management.must_find(path, absent, "`penstock users` lists them")
    columns = ("which", "hashing_algorithm", "last_used_ms")
    management.say(rows, table(columns, [[row[column] for column in columns] for row in rows]))


@command(
    "user drop-password anna",
    NAME,
    option("--newer", "The newer one, not the older one.", is_flag=True),
    of=user,
    short="Drop one of two passwords.",
)
def drop_password(name: str, newer: bool, management: Management) -> None:
    """Drop the older one of two passwords; sessions of the web UI of the user end."""
    which = "newer" if newer else "older"
    management.do("drop_user_password", user=name, which=which)
    management.say({"user": name, "dropped": which})


@command("user delete anna", NAME, of=user)
def delete_user(name: str, management: Management) -> None:
    """Delete a user."""
    _tags_of(name, management)
    management.do("delete_user", user=name)
    management.say({"user": name, "deleted": True})


@command("user locked", of=user, short="List users that are locked out.")
def locked(management: Management) -> None:
    """List users whose log-ins are refused after too many wrong passwords, on this node."""
    rows = management.get("/api/penstock/lockouts")
    shown = [(row["user"], row["address"] or "everywhere", row["until_ms"]) for row in rows]
    management.say(rows, table(("user", "address", "until_ms"), shown))


@command("user unlock anna", NAME, of=user, short="End the lock-out of a user.")
def unlock(name: str, management: Management) -> None:
    """Let a user log in again who was locked out after too many wrong passwords."""
    management.do("unlock_user", user=name)
    management.say({"user": name, "locked": False})


@command(
    "user allow anna --vhost shop --configure '' --read '^orders'",
    NAME,
    VHOST,
    option("--configure", "Names they may declare.", default=".*"),
    option("--write", "Names they may publish to.", default=".*"),
    option("--read", "Names they may consume from.", default=".*"),
    of=user,
    short="Say what a user may do.",
)
def allow(name: str, vhost: str, management: Management, **wanted: str) -> None:
    """Say what a user may do in a virtual host, in regular expressions over names."""
    management.do("set_permissions", user=name, vhost=vhost, **wanted)
    management.say({"user": name, "vhost": vhost, **wanted})


@command(
    "user deny anna --vhost shop", NAME, VHOST, of=user, short="Keep a user out of a virtual host."
)
def deny(name: str, vhost: str, management: Management) -> None:
    """Take away all permissions of a user in a virtual host."""
    absent = f"user {name!r} has no permissions in virtual host {vhost!r}"
    path = path_of("permissions", vhost, name)
    management.must_find(path, absent, "`penstock permissions` lists them")
    management.do("clear_permissions", user=name, vhost=vhost)
    management.say({"user": name, "vhost": vhost, "denied": True})


@click.group(epilog="\b\nExample:\n  penstock policy set short '^tmp' '{\"message-ttl\": 60000}'")
def policy() -> None:
    """Set, show and take away policies: what holds for queues and exchanges by their names."""


OPERATOR: Final = option("--operator", "An operator policy.", is_flag=True)


@command(
    "policy set short '^tmp' '{\"message-ttl\": 60000}'",
    NAME,
    click.argument("pattern"),
    click.argument("definition"),
    VHOST,
    option("--priority", "The highest one wins.", default=0),
    option(
        "--apply-to",
        "Default: all; queues for an operator policy.",
        click.Choice(["all", "queues", "exchanges"]),
    ),
    OPERATOR,
    of=policy,
    short="Set a policy.",
)
def set_policy(definition: str, operator: bool, management: Management, **given: Any) -> None:
    """Set a policy for all whose names match PATTERN; DEFINITION is a JSON object."""
    try:
        parsed = json.loads(definition)
    except ValueError as error:
        raise click.UsageError(f"DEFINITION is no JSON: {error}") from error
    wanted = {
        "pattern": given["pattern"],
        "definition": parsed,
        "priority": given["priority"],
        "apply-to": given["apply_to"] or ("queues" if operator else "all"),
    }
    where = {"name": given["name"], "vhost": given["vhost"]}
    management.do("set_operator_policy" if operator else "set_policy", **where, **wanted)
    management.say({"policy": given["name"], "vhost": given["vhost"], **wanted})


@command("policy show short", NAME, VHOST, OPERATOR, of=policy)
def show(name: str, vhost: str, operator: bool, management: Management) -> None:
    """Show a policy, and the queues and exchanges that it applies to."""
    kind = "operator-policies" if operator else "policies"
    found = management.must_find(path_of("penstock", kind, vhost, name), *_no_policy(name, vhost))
    rows = [(one, each) for one in ("queue", "exchange") for each in found[f"{one}_names"]]
    more = found["queues"] + found["exchanges"] - len(rows)
    lines = [
        f"{name}: applies to {found['queues']:,} queue(s) and {found['exchanges']:,} exchange(s)",
        *(f"  {key} = {found[key]}" for key in ("pattern", "apply-to", "priority")),
        *(f"  {key} = {value}" for key, value in found["definition"].items()),
        *([table(("applies to", "name"), rows)] * bool(rows)),
        *([f"and {more:,} more"] * bool(more)),
    ]
    management.say(found, "\n".join(lines))


def _no_policy(name: str, vhost: str) -> tuple[str, str]:
    absent = f"there is no policy {name!r} in virtual host {vhost!r}"
    return absent, "`penstock policies` lists them"


@command("policy delete short", NAME, VHOST, OPERATOR, of=policy)
def delete_policy(name: str, vhost: str, operator: bool, management: Management) -> None:
    """Take a policy away."""
    kind = "operator_policy" if operator else "policy"
    verb = f"clear_{kind}"
    path = REQUESTS[verb].path_of({"name": name, "vhost": vhost})
    management.must_find(path, *_no_policy(name, vhost))
    management.do(verb, name=name, vhost=vhost)
    management.say({"policy": name, "vhost": vhost, "deleted": True})
