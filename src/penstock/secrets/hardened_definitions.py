"""What of exported definitions falls short: ``penstock config check --hardened --definitions``.

In: the JSON that ``penstock definitions export`` writes, or RabbitMQ.  ``DEFINITION_ROWS`` is the
table, as ``ROWS`` of ``hardening.py`` is that of the configuration.
"""

import base64
import binascii
import hashlib
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from penstock.secrets.hardening import Shortcoming

ADMINISTRATOR: Final = "administrator"
DEFAULT_NAMES: Final = frozenset({"guest", "admin", "administrator", "root", "rabbitmq", "user"})
COMMON_PASSWORDS: Final = ("guest", "admin", "password", "rabbitmq", "changeme", "secret")
SHA256: Final = "rabbit_password_hashing_sha256"
SALT_BYTES: Final = 4
EVERYTHING: Final = frozenset({".*", "^.*$", "^.*", ".*$"})
RIGHTS: Final = ("configure", "write", "read")

Definitions = dict[str, list[dict[str, Any]]]
"""The lists of an export."""


class DefinitionRow(NamedTuple):
    """``shortcomings``: what is not as ``asked``, as the end of 'NAME: ...'."""

    name: str
    asked: str
    cure: str
    shortcomings: Callable[[Definitions], Iterator[str]]


def definition_shortcomings(found: object) -> list[Shortcoming]:
    """In the order of the table.  Raises ValueError if these are no definitions."""
    rows_of = found if isinstance(found, dict) else {}
    lists: Definitions = {
        key: [row for row in rows if isinstance(row, dict)]
        for key, rows in rows_of.items()
        if isinstance(rows, list)
    }
    if "users" not in lists:
        raise ValueError("definitions of a whole node are a JSON object with a list of users")
    return [
        Shortcoming(row.name, what, row.cure)
        for row in DEFINITION_ROWS
        for what in row.shortcomings(lists)
    ]


def _administrators(found: Definitions) -> set[str]:
    return {user["name"] for user in _users(found) if ADMINISTRATOR in _tags(user)}


def _users(found: Definitions) -> Iterator[dict[str, Any]]:
    return (user for user in found["users"] if isinstance(user.get("name"), str))


def _tags(user: dict[str, Any]) -> list[str]:
    """RabbitMQ before 3.11 writes them as one text."""
    tags = user.get("tags", [])
    return tags.split(",") if isinstance(tags, str) else list(tags)


def _default_names(found: Definitions) -> Iterator[str]:
    for name in sorted(_administrators(found)):
        if name.lower() in DEFAULT_NAMES:
            yield f"{name!r} is an administrator, and a name that is tried first"


def _guessed(found: Definitions) -> Iterator[str]:
    """Of fast hashes alone: of others a guess takes as long as for anybody else."""
    for user in _users(found):
        try:
            raw = base64.b64decode(str(user.get("password_hash", "")), validate=True)
        except binascii.Error:
            continue
        name, salt = user["name"], raw[:SALT_BYTES]
        guesses = {"", name, name.lower(), *COMMON_PASSWORDS}
        hashes = {hashlib.sha256(salt + guess.encode()).digest() for guess in guesses}
        if user.get("hashing_algorithm") == SHA256 and raw[SALT_BYTES:] in hashes:
            yield f"that of {name!r} is its name, empty, or among the commonest"


def _fast_hashes(found: Definitions) -> Iterator[str]:
    for user in _users(found):
        algorithm = str(user.get("hashing_algorithm", SHA256))
        if user.get("password_hash") and algorithm.startswith("rabbit_password_hashing_"):
            yield f"{user['name']!r} has {algorithm.removeprefix('rabbit_password_hashing_')}"


def _all_rights(found: Definitions) -> Iterator[str]:
    administrators = _administrators(found)
    for row in found.get("permissions", []):
        everything = all(row.get(right) in EVERYTHING for right in RIGHTS)
        if everything and row.get("user") not in administrators:
            yield f"{row.get('user')!r} may do everything in {row.get('vhost')!r}"


def _free_vhosts(found: Definitions) -> Iterator[str]:
    limits: dict[object, set[str]] = {}
    for row in found.get("parameters", []):
        if row.get("component") == "vhost-limits" and isinstance(row.get("value"), dict):
            limits[row.get("vhost")] = set(row["value"])
    for vhost in found.get("vhosts", []):
        known = limits.get(vhost.get("name"), set())
        lacking = [one for one in ("max-connections", "max-queues") if one not in known]
        if lacking:
            yield f"{vhost.get('name')!r} has no {' and no '.join(lacking)}"


DEFINITION_ROWS: Final = (
    DefinitionRow("administrators", "their names are none that everybody tries",
        "another user with that tag; penstock user delete", _default_names),
    DefinitionRow("passwords", "no fast hash shows one that everybody tries",
        "penstock user password", _guessed),
    DefinitionRow("hashes", "scrypt", 'password_hashing = "scrypt", and one log-in of the user',
        _fast_hashes),
    DefinitionRow("rights", "only administrators have all rights in a virtual host",
        "penstock user allow", _all_rights),
    DefinitionRow("limits of virtual hosts", "of connections and queues",
        "penstockctl set_vhost_limits", _free_vhosts),
)  # fmt: skip
