"""``VhostDefaults``: what a new virtual host begins with, by its name.

In: the setting ``vhost_defaults``, which is JSON; a pattern or right that is left out is ``.*``:

    {"limits":   {ID: {"vhost_pattern": "^a", "max-connections": 10, "max-queues": 100}},
     "policies": {NAME: {"vhost_pattern": "^a", "queue_pattern": "^q", "apply_to": "all",
                         "max-length": 1000}},
     "users":    {NAME: {"vhost_pattern": "^a", "password": TEXT, "tags": [TAG],
                         "configure": "^q", "write": "^q", "read": "^q"}}}

Out: of the limits the first ones whose pattern is in the name, of operator policies and users all.
What is no pattern in a policy is its definition.  A user without a password cannot log in.
"""

from collections.abc import Callable
from typing import Any, Final, final

from penstock.broker.rules.access import HASHING, hash_password
from penstock.broker.rules.budget import VHOST_LIMITS
from penstock.broker.rules.policies import Policy, check_policy
from penstock.core import patterns
from penstock.core.errors import PreconditionFailed, SettingInvalid
from penstock.core.json_reading import json_of
from penstock.storage.definitions.records import PermissionRecord, UserRecord

Json = dict[str, Any]
ALL: Final = ".*"
PATTERN: Final = "vhost_pattern"
RIGHTS: Final = ("configure", "write", "read")
PATTERNS: Final = (PATTERN, *RIGHTS)
TYPES: Final[dict[str, type]] = {
    **dict.fromkeys((PATTERN, "queue_pattern", "apply_to", "password", *RIGHTS), str),
    **dict.fromkeys(VHOST_LIMITS, int),
    "tags": list,
}
FIELDS: Final = {
    "limits": (PATTERN, *VHOST_LIMITS),
    "policies": None,
    "users": (PATTERN, "password", "tags", *RIGHTS),
}
"""By section; None: any, for they are a policy's definition."""


@final
class VhostDefaults:
    """Of one node."""

    def __init__(self, text: str = "", new_salt: Callable[[], bytes] = bytes) -> None:
        """Raises SettingInvalid, which names what is wrong."""
        sections = _read(text)
        self._limits = [_split(one) for one in sections["limits"].values()]
        self._policies = [_policy(name, one) for name, one in sections["policies"].items()]
        self._users = [_user(name, one, new_salt) for name, one in sections["users"].items()]

    def limits(self, vhost: str) -> dict[str, int]:
        for pattern, limits in self._limits:
            if patterns.found(pattern, vhost):
                return limits
        return {}

    def policies(self, vhost: str) -> list[Policy]:
        """To be put as operator policies."""
        return [policy for pattern, policy in self._policies if patterns.found(pattern, vhost)]

    def users(self, vhost: str) -> list[tuple[UserRecord, PermissionRecord]]:
        """Each with what it may do there."""
        return [
            (user, PermissionRecord(user.name, vhost, *rights))
            for pattern, user, rights in self._users
            if patterns.found(pattern, vhost)
        ]


def _read(text: str) -> dict[str, dict[str, Json]]:
    try:
        found = json_of(text or "{}")
    except ValueError as error:
        raise SettingInvalid(f"vhost_defaults is no JSON: {error}") from error
    if not isinstance(found, dict) or not found.keys() <= FIELDS.keys():
        raise SettingInvalid(f"vhost_defaults is a JSON object of {', '.join(FIELDS)}")
    for section, named in found.items():
        for name, values in named.items() if isinstance(named, dict) else [(section, None)]:
            _check(f"vhost_defaults: {section}: {name}", FIELDS[section], values)
    return {section: found.get(section, {}) for section in FIELDS}


def _check(where: str, known: tuple[str, ...] | None, values: object) -> None:
    if not isinstance(values, dict):
        raise SettingInvalid(f"{where} is no JSON object")
    for field, value in values.items():
        if known is not None and field not in known:
            raise SettingInvalid(f"{where}: {field} is not one of {', '.join(known)}")
        if field in TYPES and type(value) is not TYPES[field]:
            raise SettingInvalid(f"{where}: {field} is no {TYPES[field].__name__}")
        if field in PATTERNS:
            try:
                patterns.check(value)
            except patterns.Refused as error:
                raise SettingInvalid(f"{where}: {field}: {error}") from error


def _split(values: Json) -> tuple[str, Json]:
    """The pattern of virtual hosts, and the rest."""
    return values.get(PATTERN, ALL), {key: one for key, one in values.items() if key != PATTERN}


def _policy(name: str, values: Json) -> tuple[str, Policy]:
    pattern, definition = _split(values)
    queues, kind = definition.pop("queue_pattern", ALL), definition.pop("apply_to", "all")
    policy = Policy(name, queues, kind, 0, definition)
    try:
        check_policy(policy, operator=True)
    except PreconditionFailed as error:
        raise SettingInvalid(f"vhost_defaults: policies: {name}: {error}") from error
    return pattern, policy


def _user(
    name: str, values: Json, new_salt: Callable[[], bytes]
) -> tuple[str, UserRecord, tuple[str, str, str]]:
    password = values.get("password", "")
    hashed = hash_password(password, new_salt()) if password else ""
    configure, write, read = [values.get(one, ALL) for one in RIGHTS]
    user = UserRecord(name, hashed, HASHING, values.get("tags", []))
    return values.get(PATTERN, ALL), user, (configure, write, read)
