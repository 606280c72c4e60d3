"""The metadata of a cluster, as keys and values of the coordinator.

In: records, as ``definitions.db`` has them too.  Out: a key (a path whose parts are
percent-encoded) and a value (a JSON object with a version); and back, strictly: a path that is
spelt otherwise than it would be written, a field too many or too few, a type that is not the
field's own or a version that is not known is ``Corrupt``, and names the key.  A node that does
not understand what the cluster agreed on must not guess.

Common to the cluster, hence here: virtual hosts, users, their permissions, policies, limits,
global parameters, exchanges, queues and bindings, the transient ones too: every node routes.

A node's own, hence only in its ``definitions.db``:

- queue ids and the size of index segments: they name files on its disk;
- copies of mirrored queues (``amq.mirror.``): what is in them is each node's own business;
- internal queues (``amq.delayed.``, ``amq.backlog.``, ``amq.staged.``): a message waits on the node
  that took it, and goes on from there to wherever its bindings lead;
- staged sets, producers and pipelines: a batch is decided by one transaction of one node's
  ``definitions.db``, and its sets are on that disk; which node may, is agreed (``batch_homes.py``);
- starts and leases of readers of ranges: they belong to the node that has the queue's master;
- what forgets itself when a process ends: tracing, counters.

A binding's key begins with where it leads, so a queue goes with all its bindings by one prefix,
however many there are.  It ends with a hash of routing key and arguments: they may be long.
docs/formats/metadata.md is the other half of this file.
"""

import json
from base64 import urlsafe_b64encode
from hashlib import blake2b
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

from penstock.core.errors import Corrupt
from penstock.core.json_reading import json_of
from penstock.storage.definitions.parameters import ParameterRecord
from penstock.storage.definitions.records import (
    BindingRecord,
    PermissionRecord,
    PolicyRecord,
    TopicPermissionRecord,
    UserRecord,
    VhostMetadata,
    VhostRecord,
)
from penstock.storage.definitions.values import arguments_to_json, table_from_json, to_json_value

VERSION: Final = 1
HASH_BYTES: Final = 15
"""Of routing key and arguments: 20 letters in the key, and no two alike by chance."""

Fields = dict[str, Any]


class ExchangeMeta(NamedTuple):
    """An exchange, the transient ones too."""

    vhost: str
    name: str
    type: str
    durable: bool
    auto_delete: bool
    internal: bool
    arguments: dict[str, object]
    user: str = ""


class QueueMeta(NamedTuple):
    """``incarnation`` tells a queue from an earlier one of its name.

    ``home``: the name of the node on which it was declared.  ``owner``: of an exclusive queue, the
    member (``name/incarnation``) that has its connection, "" for all others.  ``user``: who
    declared it, "" = it is not known.
    """

    vhost: str
    name: str
    incarnation: str
    home: str
    durable: bool
    auto_delete: bool
    arguments: dict[str, object]
    owner: str = ""
    paused: bool = False
    user: str = ""


class LimitsMeta(NamedTuple):
    """All limits of a virtual host or a user (``scope``) called ``owner``."""

    scope: str
    owner: str
    limits: dict[str, int]


Record = (
    VhostRecord
    | UserRecord
    | PermissionRecord
    | TopicPermissionRecord
    | PolicyRecord
    | LimitsMeta
    | ParameterRecord
    | ExchangeMeta
    | QueueMeta
    | BindingRecord
)

VHOSTS: Final = "vhosts"
USERS: Final = "users"
PERMISSIONS: Final = "permissions"
TOPIC_PERMISSIONS: Final = "topic_permissions"
POLICIES: Final = "policies"
OPERATOR_POLICIES: Final = "operator_policies"
LIMITS: Final = "limits"
GLOBAL_PARAMETERS: Final = "global_parameters"
PARAMETERS: Final = "parameters"
EXCHANGES: Final = "exchanges"
QUEUES: Final = "queues"
BINDINGS: Final = "bindings"

FIELDS: Final[dict[str, dict[str, type]]] = {
    VHOSTS: {
        "description": str,
        "tags": list,
        "protected_from_deletion": bool,
        "default_queue_type": str,
    },
    USERS: {"password_hash": str, "hashing_algorithm": str, "tags": list},
    LIMITS: {"limits": dict},
    GLOBAL_PARAMETERS: {"value": object},
    PERMISSIONS: {"configure": str, "write": str, "read": str},
    TOPIC_PERMISSIONS: {"write": str, "read": str},
    POLICIES: {"pattern": str, "apply_to": str, "priority": int, "definition": dict},
    OPERATOR_POLICIES: {"pattern": str, "apply_to": str, "priority": int, "definition": dict},
    PARAMETERS: {"value": object, "user": str},
    EXCHANGES: {
        "type": str,
        "durable": bool,
        "auto_delete": bool,
        "internal": bool,
        "user": str,
        "arguments": dict,
    },
    QUEUES: {
        "incarnation": str,
        "home": str,
        "owner": str,
        "durable": bool,
        "auto_delete": bool,
        "paused": bool,
        "user": str,
        "arguments": dict,
    },
    BINDINGS: {"routing_key": str, "arguments": dict},
}
"""Of the value, by kind, besides ``v``.  In this order kinds refer to nothing behind them."""
ABSENT: Final[dict[str, Fields]] = {
    VHOSTS: {"protected_from_deletion": False, "default_queue_type": ""},
    EXCHANGES: {"user": ""},
    QUEUES: {"user": ""},
}
"""Fields that releases before this one lack, by kind: with these values they are left out."""

PARTS: Final = {
    VHOSTS: 1,
    USERS: 1,
    PERMISSIONS: 2,
    TOPIC_PERMISSIONS: 3,
    POLICIES: 2,
    OPERATOR_POLICIES: 2,
    LIMITS: 2,
    GLOBAL_PARAMETERS: 1,
    PARAMETERS: 3,
    EXCHANGES: 2,
    QUEUES: 2,
    BINDINGS: 5,
}
"""Of the key, behind its kind."""

_LETTERS: Final = {"queue": "q", "exchange": "e"}
_DESTINATIONS: Final = {"q": "queue", "e": "exchange"}


# -- keys ----------------------------------------------------------------------------------


def path(kind: str, *parts: str) -> str:
    return "/".join([kind, *[quote(part, safe="", errors="surrogateescape") for part in parts]])


def below(kind: str, *parts: str) -> str:
    """The prefix of everything under a path."""
    return path(kind, *parts) + "/"


def kind_of(key: str) -> str:
    """What a key is about; "" when it is no affair of this file."""
    kind = key.partition("/")[0]
    return kind if kind in PARTS else ""


def parts_of(key: str) -> list[str]:
    """Raises Corrupt unless the key is spelt as ``path`` spells it."""
    kind, *spelt = key.split("/")
    parts = [unquote(part, errors="surrogateescape") for part in spelt]
    if len(parts) != PARTS.get(kind) or path(kind, *parts) != key:
        raise Corrupt(f"the cluster's key {key!r} is no path of metadata")
    return parts


def binding_hash(routing_key: str, arguments: dict[str, object]) -> str:
    """Of what else tells bindings from one another, besides their ends."""
    name = routing_key.encode("utf-8", "surrogateescape")
    told = b"%d:%s%s" % (len(name), name, arguments_to_json(arguments).encode("ascii"))
    return urlsafe_b64encode(blake2b(told, digest_size=HASH_BYTES).digest()).decode("ascii")


def bindings_to(vhost: str, kind: str, destination: str) -> str:
    """The prefix of all bindings to a queue or an exchange (``kind``)."""
    return below(BINDINGS, vhost, _LETTERS[kind], destination)


def key_of(record: Record) -> str:
    if isinstance(record, BindingRecord):
        letter = _LETTERS[record.destination_type]
        told = binding_hash(record.routing_key, record.arguments)
        return path(BINDINGS, record.vhost, letter, record.destination, record.source, told)
    if isinstance(record, QueueMeta):
        return path(QUEUES, record.vhost, record.name)
    if isinstance(record, ExchangeMeta):
        return path(EXCHANGES, record.vhost, record.name)
    if isinstance(record, VhostRecord):
        return path(VHOSTS, record.name)
    if isinstance(record, UserRecord):
        return path(USERS, record.name)
    if isinstance(record, PermissionRecord):
        return path(PERMISSIONS, record.vhost, record.user)
    if isinstance(record, TopicPermissionRecord):
        return path(TOPIC_PERMISSIONS, record.vhost, record.user, record.exchange)
    if isinstance(record, PolicyRecord):
        kind = POLICIES if record.kind == "policy" else OPERATOR_POLICIES
        return path(kind, record.vhost, record.name)
    if isinstance(record, LimitsMeta):
        return path(LIMITS, record.scope, record.owner)
    if record.component:
        return path(PARAMETERS, record.vhost, record.component, record.name)
    return path(GLOBAL_PARAMETERS, record.name)


def is_leased(record: Record) -> bool:
    """Does it go with the member that put it?"""
    return isinstance(record, QueueMeta) and record.owner != ""


# -- values --------------------------------------------------------------------------------


def value_of(record: Record) -> str:
    fields: Fields = {}
    source = record.metadata if isinstance(record, VhostRecord) else record
    kind = key_of(record).partition("/")[0]
    absent = ABSENT.get(kind, {})
    for field in FIELDS[kind]:
        value = getattr(source, field)
        if field not in absent or value != absent[field]:
            fields[field] = to_json_value(value) if field in ("arguments", "definition") else value
    return _text({"v": VERSION, **fields})


def _text(fields: Fields) -> str:
    return json.dumps(fields, sort_keys=True, separators=(",", ":"))


def _fields(kind: str, key: str, value: str) -> Fields:
    known = FIELDS[kind]
    try:
        fields = json_of(value)
    except ValueError as error:
        raise _bad(key, f"is no JSON: {error}") from error
    if not isinstance(fields, dict) or type(fields.get("v")) is not int:
        raise _bad(key, "has no version")
    if fields.pop("v") != VERSION:
        raise _bad(key, f"has a version that this release does not know; it knows {VERSION}")
    fields = ABSENT.get(kind, {}) | fields
    if fields.keys() != known.keys():
        odd = sorted(fields.keys() ^ known.keys())
        raise _bad(key, f"lacks fields or has unknown ones: {', '.join(odd)}")
    for name, wanted in known.items():
        if wanted is not object and type(fields[name]) is not wanted:
            raise _bad(key, f"has a {name} that is no {wanted.__name__}")
    return fields


def _bad(key: str, why: str) -> Corrupt:
    return Corrupt(f"what the cluster keeps under {key!r} {why}")


def read(key: str, value: str) -> Record:
    """The record that was written so; raises Corrupt."""
    parts = parts_of(key)
    kind = kind_of(key)
    fields = _fields(kind, key, value)
    try:
        return _record(kind, parts, fields, key)
    except (TypeError, ValueError, ArithmeticError) as error:
        raise _bad(key, f"cannot be read: {error}") from error


def _record(kind: str, parts: list[str], fields: Fields, key: str) -> Record:
    if kind == BINDINGS:
        return _binding(parts, fields, key)
    if kind == QUEUES:
        vhost, name = parts
        arguments = table_from_json(fields.pop("arguments"))
        return QueueMeta(vhost, name, arguments=arguments, **fields)
    if kind == EXCHANGES:
        vhost, name = parts
        arguments = table_from_json(fields.pop("arguments"))
        return ExchangeMeta(vhost, name, arguments=arguments, **fields)
    if kind == VHOSTS:
        tags = tuple(_names(fields.pop("tags"), key))
        return VhostRecord(parts[0], metadata=VhostMetadata(tags=tags, **fields))
    if kind == USERS:
        hashed, hashing = fields["password_hash"], fields["hashing_algorithm"]
        return UserRecord(parts[0], hashed, hashing, _names(fields["tags"], key))
    if kind == PERMISSIONS:
        vhost, user = parts
        return PermissionRecord(user, vhost, **fields)
    if kind == TOPIC_PERMISSIONS:
        vhost, user, exchange = parts
        return TopicPermissionRecord(user, vhost, exchange, **fields)
    if kind in (POLICIES, OPERATOR_POLICIES):
        definition = table_from_json(fields.pop("definition"))
        what = "policy" if kind == POLICIES else "operator"
        vhost, name = parts
        return PolicyRecord(vhost, what, name, definition=definition, **fields)
    if kind == LIMITS:
        return _limits(parts, fields["limits"], key)
    if kind == PARAMETERS:
        vhost, component, name = parts
        return ParameterRecord(name, fields["value"], vhost, component, fields["user"])
    return ParameterRecord(parts[0], fields["value"])


def _binding(parts: list[str], fields: Fields, key: str) -> BindingRecord:
    vhost, letter, destination, source, told = parts
    routing_key, arguments = fields["routing_key"], table_from_json(fields["arguments"])
    if letter not in _DESTINATIONS or told != binding_hash(routing_key, arguments):
        raise _bad(key, "is not the binding that its key says")
    kind = _DESTINATIONS[letter]
    return BindingRecord(vhost, source, destination, kind, routing_key, arguments)


def _limits(parts: list[str], limits: Fields, key: str) -> LimitsMeta:
    scope, owner = parts
    if scope not in ("vhost", "user"):
        raise _bad(key, "limits neither a virtual host nor a user")
    if not all(type(value) is int for value in limits.values()):
        raise _bad(key, "has a limit that is no number")
    return LimitsMeta(scope, owner, limits)


def _names(tags: list[object], key: str) -> list[str]:
    names = [tag for tag in tags if isinstance(tag, str)]
    if len(names) != len(tags):
        raise _bad(key, "has a tag that is no name")
    return names
